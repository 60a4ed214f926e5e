use proptest::prelude::*;

use super::*;
use crate::resp::reply;

const LIMITS: RequestLimits = RequestLimits::DEFAULT;

fn args_of(buf: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let mut args = Args::new();
    match parse(buf, &LIMITS, &mut args).unwrap() {
        Parsed::Command { consumed } => (args.iter(buf).map(<[u8]>::to_vec).collect(), consumed),
        Parsed::Incomplete { needed } => panic!("needs {needed} of {}", buf.escape_ascii()),
    }
}

fn error_of(buf: &[u8], limits: &RequestLimits) -> String {
    match parse(buf, limits, &mut Args::new()) {
        Err(error) => error.to_string(),
        Ok(parsed) => panic!("{parsed:?} of {}", buf.escape_ascii()),
    }
}

fn needed_of(buf: &[u8]) -> usize {
    match parse(buf, &LIMITS, &mut Args::new()).unwrap() {
        Parsed::Incomplete { needed } => needed,
        Parsed::Command { .. } => panic!("complete: {}", buf.escape_ascii()),
    }
}

/// Splits into lines and takes bodies by length, with none of the parser's shortcuts.
fn naive(buf: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut at = 0;
    let mut line = |prefix: u8| -> Option<(usize, usize)> {
        let end = at + buf[at..].windows(2).position(|pair| pair == b"\r\n")?;
        assert_eq!(buf[at], prefix);
        let number = std::str::from_utf8(&buf[at + 1..end])
            .unwrap()
            .parse()
            .unwrap();
        at = end + 2;
        if prefix == b'$' {
            let start = at;
            at += number + 2;
            return (at <= buf.len()).then_some((start, number));
        }
        Some((at, number))
    };
    let (_, count) = line(b'*')?;
    let mut args = Vec::new();
    for _ in 0..count {
        let (start, len) = line(b'$')?;
        args.push(buf[start..start + len].to_vec());
    }
    Some((args, at))
}

#[test]
fn multibulk_and_what_follows_it() {
    let buf = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n";
    let (args, consumed) = args_of(buf);
    assert_eq!(args, [b"SET".to_vec(), b"k".to_vec(), b"".to_vec()]);
    assert_eq!(args_of(&buf[consumed..]).0, [b"PING"]);
}

#[test]
fn empty_requests_are_consumed() {
    for buf in [
        &b"*0\r\n"[..],
        b"*-1\r\n",
        b"*-10\r\n",
        b"\r\n",
        b"\n",
        b"  \t \r\n",
        b"\0x\r\n",
    ] {
        assert_eq!(args_of(buf), (vec![], buf.len()), "{}", buf.escape_ascii());
    }
}

#[test]
fn inline_quoting() {
    let cases: [(&[u8], &[&[u8]]); 11] = [
        (b"PING\r\n", &[b"PING"]),
        (b"  set\tkey  value \n", &[b"set", b"key", b"value"]),
        (br#"a "b c" 'd e'"#, &[b"a", b"b c", b"d e"]),
        (
            br#""\x41\xfF\x00" "\n\r\t\b\a\"\\\q""#,
            &[b"A\xff\0", b"\n\r\t\x08\x07\"\\q"],
        ),
        (br#"'it\'s \n'"#, &[b"it's \\n"]),
        (br#""" ''"#, &[b"", b""]),
        (br#"ab"cd" e"#, &[b"abcd", b"e"]),
        (br#""\xZ1\x1""#, &[b"xZ1x1"]),
        (b"a\x0bb\x0b c", &[b"a\x0bb\x0b", b"c"]),
        (b"a\x00b", &[b"a"]),
        (b"'a'\x0c'b'", &[b"a", b"b"]),
    ];
    for (line, expected) in cases {
        let mut buf = line.to_vec();
        buf.extend_from_slice(b"\r\n");
        let (args, _) = args_of(&buf);
        assert_eq!(args, expected, "{}", line.escape_ascii());
    }
}

#[test]
fn inline_arguments_do_not_outlive_the_next_request() {
    let mut args = Args::new();
    let inline = b"get \"\\x61\"\r\n";
    parse(inline, &LIMITS, &mut args).unwrap();
    assert_eq!(args.get(1, inline), b"a");
    assert_eq!(&args.source(inline)[args.range(1)], b"a");
    let multibulk = b"*2\r\n$3\r\nget\r\n$1\r\nb\r\n";
    parse(multibulk, &LIMITS, &mut args).unwrap();
    assert_eq!((args.len(), args.get(1, multibulk)), (2, &b"b"[..]));
    assert_eq!(args.range(1), 17..18);
}

#[test]
fn error_texts_are_those_of_redis() {
    let cases: [(&[u8], &str); 21] = [
        (b"*3000000000\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*1\rx", "invalid multibulk length"),
        (b"*9223372036854775808\r\n", "invalid multibulk length"),
        (
            b"*11111111111111111111111111111111",
            "too big mbulk count string",
        ),
        (
            b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\nfooz\r\n",
            "expected '$', got 'f'",
        ),
        (b"*1\r\nfoo\r\n", "expected '$', got 'f'"),
        (b"*1\r\n\x01", "expected '$', got '\\x01'"),
        (b"*1\r\n$-10\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$2000000000\r\n", "invalid bulk length"),
        (b"*1\r\n$blabla\r\n", "invalid bulk length"),
        (
            b"*1\r\n$11111111111111111111111111111111",
            "too big bulk count string",
        ),
        (b"*1\r\n$1\r\nabc", "bulk not followed by CRLF"),
        (b"set \"a\r\n", "unbalanced quotes in request"),
        (b"set 'a'b\r\n", "unbalanced quotes in request"),
        (b"set \"a\\\r\n", "unbalanced quotes in request"),
    ];
    for (buf, text) in cases {
        assert_eq!(error_of(buf, &LIMITS), format!("Protocol error: {text}"));
    }
    let endless = vec![b'A'; LIMITS.inline_bytes_max];
    assert_eq!(
        error_of(&endless, &LIMITS),
        "Protocol error: too big inline request"
    );
    assert_eq!(needed_of(&endless[1..]), endless.len());
}

#[test]
fn before_auth_little_is_allowed() {
    let limits = RequestLimits::PREAUTH;
    assert_eq!(
        error_of(b"*11\r\n", &limits),
        "Protocol error: unauthenticated multibulk length"
    );
    let too_long = b"*1\r\n$16385\r\n";
    assert_eq!(
        error_of(too_long, &limits),
        "Protocol error: unauthenticated bulk length"
    );
    let sum = b"*2\r\n$16370\r\n";
    assert_eq!(error_of(sum, &limits), "Protocol error: too big request");
    let inline = b"a b c d e f g h i j k\r\n";
    assert_eq!(
        error_of(inline, &limits),
        "Protocol error: unauthenticated multibulk length"
    );
}

#[test]
fn a_request_above_the_query_limit_is_refused_as_soon_as_it_says_so() {
    let mut buf = b"*3\r\n".to_vec();
    reply::bulk(&mut buf, &vec![0; 20 << 20]);
    buf.extend_from_slice(b"$20000000\r\n");
    assert_eq!(error_of(&buf, &LIMITS), "Protocol error: too big request");
}

#[test]
fn needed_spares_a_large_value_the_parses_in_between() {
    assert_eq!(needed_of(b""), 1);
    assert_eq!(needed_of(b"*3\r\n"), 4 + 3 * 6);
    assert_eq!(
        needed_of(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$8388608\r\nxx"),
        30 + 8_388_608 + 2
    );
    assert_eq!(needed_of(b"*2\r\n$100\r\nx"), 10 + 102 + 6);
}

#[test]
fn a_claimed_length_allocates_nothing() {
    let mut args = Args::new();
    parse(b"*1048576\r\n$1\r\na\r\n$5\r\n", &LIMITS, &mut args).unwrap();
    assert!(args.spans.capacity() <= 8);
}

/// What was parsed is not looked at again, or a request in many pieces would cost their number times its length.
#[test]
fn a_request_is_parsed_on_from_where_it_stood() {
    let whole = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\nbc\r\n";
    for cut in 0..whole.len() {
        let mut args = Args::new();
        let first = parse(&whole[..cut], &LIMITS, &mut args);
        assert!(matches!(first, Ok(Parsed::Incomplete { .. })), "{cut}");
        let mut behind = whole.to_vec();
        behind[..args.next].fill(b'?');
        if args.next == 0 {
            continue;
        }
        for end in cut..=whole.len() {
            let parsed = resume(&behind[..end], &LIMITS, &mut args);
            let is_whole = end == whole.len();
            let consumed = Parsed::Command { consumed: end };
            assert_eq!(parsed == Ok(consumed), is_whole, "{cut} {end}");
        }
        let args: Vec<&[u8]> = args.iter(whole).collect();
        assert_eq!(args, [&b"SET"[..], b"a", b"bc"], "{cut}");
    }
}

#[test]
fn places_of_a_huge_request_are_given_back() {
    let mut args = Args::new();
    let mut buf = b"*100000\r\n".to_vec();
    for _ in 0..100_000 {
        buf.extend_from_slice(b"$0\r\n\r\n");
    }
    assert_eq!(
        parse(&buf, &LIMITS, &mut args),
        Ok(Parsed::Command {
            consumed: buf.len()
        })
    );
    assert_eq!(args.len(), 100_000);
    parse(b"PING\r\n", &LIMITS, &mut args).unwrap();
    assert!(args.spans.capacity() <= SPANS_KEPT);
}

#[test]
fn integers_have_one_spelling() {
    for (text, value) in [
        ("0", Some(0)),
        ("-1", Some(-1)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("9999999999999999999", None),
        ("99999999999999999999", None),
        ("", None),
        ("-", None),
        ("-0", None),
        ("+1", None),
        ("00", None),
        (" 1", None),
        ("1a", None),
    ] {
        assert_eq!(integer(text.as_bytes()), value, "{text}");
    }
}

fn command() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..140), 1..14)
}

/// Bytes that look like a request often enough to get past the first checks.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just(b"*".to_vec()),
        Just(b"$".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"\\x".to_vec()),
        (-2i64..30).prop_map(|number| number.to_string().into_bytes()),
        (0usize..9).prop_map(|len| format!("${len}\r\n").into_bytes()),
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..9),
    ];
    prop::collection::vec(token, 0..24).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn agrees_with_a_naive_parser_at_every_length(command in command()) {
        let mut buf = Vec::new();
        reply::command(&mut buf, &command);
        let mut args = Args::new();
        for end in 0..=buf.len() {
            let part = &buf[..end];
            let expected = if end == 0 { None } else { naive(part) };
            match (parse(part, &LIMITS, &mut args).unwrap(), expected) {
                (Parsed::Command { consumed }, Some((naive_args, naive_consumed))) => {
                    prop_assert_eq!(consumed, naive_consumed);
                    prop_assert!(args.iter(part).eq(naive_args.iter().map(Vec::as_slice)));
                    prop_assert_eq!(end, buf.len());
                }
                (Parsed::Incomplete { needed }, None) => {
                    prop_assert!(needed > end && needed <= buf.len());
                }
                (parsed, expected) => prop_assert!(false, "{parsed:?} {expected:?}"),
            }
        }
    }

    #[test]
    fn any_chunking_yields_the_same_commands(
        commands in prop::collection::vec(command(), 1..6),
        chunks in prop::collection::vec(1usize..90, 1..20),
        resumes: bool,
    ) {
        let mut stream = Vec::new();
        for command in &commands {
            reply::command(&mut stream, command);
        }
        let mut sizes = chunks.iter().cycle();
        let (mut buf, mut fed, mut needed) = (Vec::new(), 0, 1);
        let mut args = Args::new();
        let mut seen: Vec<Vec<Vec<u8>>> = Vec::new();
        while fed < stream.len() {
            let end = stream.len().min(fed + sizes.next().unwrap());
            buf.extend_from_slice(&stream[fed..end]);
            fed = end;
            while buf.len() >= needed {
                let parsed = match resumes && needed > 1 {
                    true => resume(&buf, &LIMITS, &mut args),
                    false => parse(&buf, &LIMITS, &mut args),
                };
                match parsed.unwrap() {
                    Parsed::Command { consumed } => {
                        seen.push(args.iter(&buf).map(<[u8]>::to_vec).collect());
                        buf.drain(..consumed);
                        needed = 1;
                    }
                    Parsed::Incomplete { needed: more } => needed = more,
                }
            }
        }
        prop_assert_eq!(seen, commands);
        prop_assert!(buf.is_empty());
    }

    #[test]
    fn quoted_inline_arguments_come_back(args in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..9)) {
        let line: Vec<String> = args
            .iter()
            .map(|arg| arg.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>())
            .map(|quoted| format!("\"{quoted}\""))
            .collect();
        let line = line.join(" ") + "\r\n";
        prop_assert_eq!(args_of(line.as_bytes()), (args, line.len()));
    }

    #[test]
    fn any_bytes_are_answered_within_bounds(buf in prop_oneof![noise(), prop::collection::vec(any::<u8>(), 0..200)]) {
        let mut args = Args::new();
        match parse(&buf, &LIMITS, &mut args) {
            Ok(Parsed::Command { consumed }) => {
                prop_assert!((1..=buf.len()).contains(&consumed));
                prop_assert!(args.iter(&buf).map(<[u8]>::len).sum::<usize>() < consumed);
            }
            Ok(Parsed::Incomplete { needed }) => prop_assert!(needed > buf.len()),
            Err(error) => prop_assert!(error.to_string().starts_with("Protocol error: ")),
        }
    }

    #[test]
    fn an_error_stays_an_error_when_more_arrives(buf in noise(), more: Vec<u8>) {
        if let Err(error) = parse(&buf, &LIMITS, &mut Args::new()) {
            let longer = [buf, more].concat();
            prop_assert_eq!(parse(&longer, &LIMITS, &mut Args::new()), Err(error));
        }
    }
}
