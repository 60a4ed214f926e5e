use proptest::prelude::*;

use super::*;

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

use Protocol::{Resp2, Resp3};

#[test]
fn each_kind_in_both_protocols() {
    assert_eq!(written(|out| simple(out, "OK")).as_bytes(), OK);
    assert_eq!(written(|out| error(out, "ERR a\r\nb")), "-ERR a  b\r\n");
    assert_eq!(written(|out| bulk(out, b"a\r\nb")), "$4\r\na\r\nb\r\n");
    assert_eq!(
        written(|out| bulk(out, &[b'x'; 100])),
        format!("$100\r\n{}\r\n", "x".repeat(100))
    );
    assert_eq!(written(|out| bulk_integer(out, -42)), "$3\r\n-42\r\n");
    type Write = fn(&mut Vec<u8>, Protocol);
    let cases: [(Write, &str, &str); 10] = [
        (null, "$-1\r\n", "_\r\n"),
        (null_array, "*-1\r\n", "_\r\n"),
        (|out, _| array(out, 12), "*12\r\n", "*12\r\n"),
        (
            |out, protocol| map(out, protocol, 60),
            "*120\r\n",
            "%60\r\n",
        ),
        (|out, protocol| set(out, protocol, 3), "*3\r\n", "~3\r\n"),
        (|out, protocol| push(out, protocol, 3), "*3\r\n", ">3\r\n"),
        (
            |out, protocol| double(out, protocol, 1.5),
            "$3\r\n1.5\r\n",
            ",1.5\r\n",
        ),
        (
            |out, protocol| boolean(out, protocol, true),
            ":1\r\n",
            "#t\r\n",
        ),
        (
            |out, protocol| boolean(out, protocol, false),
            ":0\r\n",
            "#f\r\n",
        ),
        (
            |out, protocol| verbatim(out, protocol, "txt", b"hi"),
            "$2\r\nhi\r\n",
            "=6\r\ntxt:hi\r\n",
        ),
    ];
    for (write, resp2, resp3) in cases {
        assert_eq!(written(|out| write(out, Resp2)), resp2);
        assert_eq!(written(|out| write(out, Resp3)), resp3);
    }
}

#[test]
fn doubles_are_short_and_exact() {
    for (value, text) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (10.0, "10"),
        (0.1, "0.1"),
        (3e300, "3e300"),
        (1.5e-7, "1.5e-7"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
    ] {
        assert_eq!(written(|out| double_text(out, value)), text);
    }
}

#[test]
fn integers_at_the_edges() {
    for value in [
        0,
        9,
        10,
        99,
        100,
        101,
        1000,
        -1,
        -10,
        -100,
        i64::MAX,
        i64::MIN,
    ] {
        assert_eq!(written(|out| integer(out, value)), format!(":{value}\r\n"));
    }
}

#[test]
fn lengths_at_the_edges() {
    for len in [0, 9, 10, 99, 100, 105, 999, 1000, 16_384] {
        assert_eq!(written(|out| array(out, len)), format!("*{len}\r\n"));
    }
}

proptest! {
    #[test]
    fn integers_agree_with_the_standard_library(value: i64, shift in 0u32..64) {
        let value = value >> shift;
        prop_assert_eq!(written(|out| integer(out, value)), format!(":{value}\r\n"));
    }

    #[test]
    fn doubles_read_back(bits: u64) {
        let value = f64::from_bits(bits);
        let back: f64 = written(|out| double_text(out, value)).parse().unwrap();
        prop_assert!(back.to_bits() == bits || value.is_nan() && back.is_nan());
    }

    #[test]
    fn a_line_stays_one_line(text: String) {
        let out = written(|out| error(out, &text));
        prop_assert_eq!(out.matches(['\r', '\n']).count(), 2);
    }
}

#[test]
fn a_command_is_as_long_as_it_says() {
    for len in [0, 1, 9, 10, 99, 100, 1_000] {
        let args = vec![vec![b'x'; len]; len.clamp(1, 12)];
        let mut out = Vec::new();
        command(&mut out, &args);
        assert_eq!(command_len(&args), out.len(), "{len}");
    }
}
