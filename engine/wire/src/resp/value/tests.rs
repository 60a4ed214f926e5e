use proptest::prelude::*;

use super::super::reply::{self, Protocol::Resp3};
use super::*;

/// Writes with the reply writers, so that both sides are held against each other.
fn write(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Simple(text) => reply::simple(out, text),
        Value::Error(text) => reply::error(out, text),
        Value::Integer(value) => reply::integer(out, *value),
        Value::Bulk(data) => reply::bulk(out, data),
        Value::Null => reply::null(out, Resp3),
        Value::Double(value) => reply::double(out, Resp3, *value),
        Value::Boolean(value) => reply::boolean(out, Resp3, *value),
        Value::BigNumber(digits) => out.extend_from_slice(format!("({digits}\r\n").as_bytes()),
        Value::Verbatim { format, text } => {
            reply::verbatim(out, Resp3, std::str::from_utf8(format).unwrap(), text);
        }
        Value::Array(values) => {
            reply::array(out, values.len());
            values.iter().for_each(|value| write(out, value));
        }
        Value::Set(values) => {
            reply::set(out, Resp3, values.len());
            values.iter().for_each(|value| write(out, value));
        }
        Value::Push(values) => {
            reply::push(out, Resp3, values.len());
            values.iter().for_each(|value| write(out, value));
        }
        Value::Map(pairs) => {
            reply::map(out, Resp3, pairs.len());
            for (key, value) in pairs {
                write(out, key);
                write(out, value);
            }
        }
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        "[ -~]{0,20}".prop_map(Value::Simple),
        "[A-Z]{1,9} [ -~]{0,20}".prop_map(Value::Error),
        any::<i64>().prop_map(Value::Integer),
        any::<Vec<u8>>().prop_map(Value::Bulk),
        Just(Value::Null),
        (-1e9..1e9).prop_map(Value::Double),
        any::<bool>().prop_map(Value::Boolean),
        "-?[1-9][0-9]{0,40}".prop_map(Value::BigNumber),
        any::<Vec<u8>>().prop_map(|text| Value::Verbatim {
            format: *b"txt",
            text
        }),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..6);
        prop_oneof![
            list.clone().prop_map(Value::Array),
            list.clone().prop_map(Value::Set),
            list.prop_map(Value::Push),
            prop::collection::vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
        ]
    })
}

#[test]
fn replies_of_resp2() {
    let cases: [(&[u8], Value); 6] = [
        (b"+OK\r\n", Value::Simple("OK".into())),
        (b"-MOVED 1 a:1\r\n", Value::Error("MOVED 1 a:1".into())),
        (b"$-1\r\n", Value::Null),
        (b"*-1\r\n", Value::Null),
        (b"*0\r\n", Value::Array(vec![])),
        (b":+5\r\n", Value::Integer(5)),
    ];
    for (buf, value) in cases {
        assert_eq!(decode(buf), Ok(Some((value, buf.len()))));
    }
}

#[test]
fn attributes_are_dropped_and_blob_errors_are_errors() {
    let buf = b"|1\r\n+ttl\r\n:5\r\n!5\r\nERR x\r\n";
    assert_eq!(
        decode(buf),
        Ok(Some((Value::Error("ERR x".into()), buf.len())))
    );
    assert_eq!(measure(buf), Ok(Some(buf.len())));
}

#[test]
fn nesting_is_limited() {
    let deepest = [b"*1\r\n".repeat(RESP_DEPTH_MAX), b"_\r\n".to_vec()].concat();
    assert!(matches!(decode(&deepest), Ok(Some(_))));
    let too_deep = [b"*1\r\n".as_slice(), &deepest].concat();
    assert_eq!(
        decode(&too_deep),
        Err(WireError::Depth {
            max: RESP_DEPTH_MAX
        })
    );
    assert_eq!(
        decode(&b"|0\r\n".repeat(1_000_000)),
        Err(WireError::Depth {
            max: RESP_DEPTH_MAX
        })
    );
}

#[test]
fn what_is_no_reply_is_refused() {
    for buf in [
        &b"PING\r\n"[..],
        b"$x\r\n",
        b"$-2\r\n",
        b"$99999999999\r\n",
        b"$1\r\nabc",
        b"+a\rb",
        b":\r\n",
        b"#x\r\n",
        b",abc\r\n",
        b"%-1\r\n",
        b"=2\r\nab\r\n",
        b"=-1\r\n",
        b"_x\r\n",
        b"$?\r\n",
    ] {
        assert!(decode(buf).is_err(), "{}", buf.escape_ascii());
    }
}

proptest! {
    #[test]
    fn replies_come_back_and_cut_ones_are_incomplete(value in any_value(), more: Vec<u8>) {
        let mut buf = Vec::new();
        write(&mut buf, &value);
        let len = buf.len();
        for end in 0..len {
            prop_assert_eq!(decode(&buf[..end]), Ok(None));
            prop_assert_eq!(measure(&buf[..end]), Ok(None));
        }
        buf.extend_from_slice(&more);
        prop_assert_eq!(decode(&buf), Ok(Some((value, len))));
        prop_assert_eq!(measure(&buf), Ok(Some(len)));
    }

    #[test]
    fn any_bytes_never_panic(value in any_value(), at: prop::sample::Index, byte: u8, noise: Vec<u8>) {
        let mut buf = Vec::new();
        write(&mut buf, &value);
        let at = at.index(buf.len());
        buf[at] = byte;
        if let Ok(Some((_, len))) = decode(&buf) {
            prop_assert_eq!(measure(&buf), Ok(Some(len)));
        }
        let _ = decode(&noise);
        let _ = measure(&noise);
    }
}
