use proptest::prelude::*;

use super::*;

const NOW: u64 = 1_800_000_000_000;
const SYNTAX: &str = "ERR syntax error";
const NUMBER: &str = "ERR value is not an integer or out of range";
const SET_TIME: &str = "ERR invalid expire time in 'set' command";

fn words(request: &str) -> Vec<&str> {
    request.split(' ').collect()
}

fn set(options: &str) -> Result<SetOptions, String> {
    let request = format!("set k v {options}");
    SetOptions::parse(&words(request.trim_end())[..], NOW).map_err(|error| error.to_string())
}

fn options(condition: SetCondition, get: bool, expiry: SetExpiry) -> Result<SetOptions, String> {
    Ok(SetOptions {
        condition,
        get,
        expiry,
    })
}

#[test]
fn set_options_in_any_order() {
    use SetCondition::{IfEq, None, Nx, Xx};
    use SetExpiry::{At, Keep};
    assert_eq!(set(""), options(None, false, SetExpiry::None));
    assert_eq!(set("NX"), options(Nx, false, SetExpiry::None));
    assert_eq!(set("get nx"), options(Nx, true, SetExpiry::None));
    assert_eq!(set("nx nx"), options(Nx, false, SetExpiry::None));
    assert_eq!(set("xx Get keepttl"), options(Xx, true, Keep));
    assert_eq!(set("keepttl keepttl"), options(None, false, Keep));
    assert_eq!(set("ex 10 xx"), options(Xx, false, At(NOW + 10_000)));
    assert_eq!(set("px 10"), options(None, false, At(NOW + 10)));
    assert_eq!(set("EXAT 1"), options(None, false, At(1000)));
    assert_eq!(set("pxat 7"), options(None, false, At(7)));
    assert_eq!(set("ex 1 ex 2"), options(None, false, At(NOW + 2000)));
    assert_eq!(
        set("exat 9223372036854775"),
        options(None, false, At(9_223_372_036_854_775_000))
    );
    assert_eq!(set("get ifeq nx px 1"), options(IfEq(5), true, At(NOW + 1)));
}

#[test]
fn set_errors_are_those_of_redis() {
    for (text, error) in [
        ("ex", SYNTAX),
        ("nx xx", SYNTAX),
        ("xx nx", SYNTAX),
        ("keepttl ex 1", SYNTAX),
        ("ex 1 keepttl", SYNTAX),
        ("ex 1 px 1", SYNTAX),
        ("ex 0 foo", SYNTAX),
        ("foo", SYNTAX),
        ("ifeq", SYNTAX),
        ("ifeq b nx", SYNTAX),
        ("nx ifeq b", SYNTAX),
        ("ifeq c ifeq c", SYNTAX),
        ("ifeq x ex 10 keepttl", SYNTAX),
        ("ex abc", NUMBER),
        ("ex +1", NUMBER),
        ("ex 0", SET_TIME),
        ("ex -1", SET_TIME),
        ("pxat 0", SET_TIME),
        ("ex 9223372036854775807", SET_TIME),
        ("px 9223372036854775807", SET_TIME),
        ("exat 9223372036854776", SET_TIME),
        ("ex 9223372036854775", SET_TIME),
    ] {
        assert_eq!(set(text), Err(error.to_owned()), "{text}");
    }
}

#[test]
fn setex_deadlines() {
    let setex = |seconds: &str| {
        deadline(TimeUnit::Ex, seconds.as_bytes(), NOW, "setex").map_err(|error| error.to_string())
    };
    let invalid = "ERR invalid expire time in 'setex' command";
    assert_eq!(setex("10"), Ok(NOW + 10_000));
    for seconds in ["0", "-1", "9223372036854775807", "9223372036854775"] {
        assert_eq!(setex(seconds), Err(invalid.to_owned()), "{seconds}");
    }
    assert_eq!(setex("x"), Err(NUMBER.to_owned()));
}

fn expire(request: &str) -> Result<(u64, ExpireCondition), String> {
    let args = words(request);
    let (unit, name) = match args[0] {
        "expire" => (TimeUnit::Ex, "expire"),
        "expireat" => (TimeUnit::Exat, "expireat"),
        _ => (TimeUnit::Px, "pexpire"),
    };
    let parsed = Expire::parse(&args[..], unit, NOW, name);
    parsed
        .map(|expire| (expire.at_ms, expire.condition))
        .map_err(|error| error.to_string())
}

#[test]
fn expire_times_and_conditions() {
    let always = ExpireCondition::default();
    assert_eq!(expire("expire k 10"), Ok((NOW + 10_000, always)));
    assert_eq!(expire("pexpire k 10"), Ok((NOW + 10, always)));
    assert_eq!(expire("expireat k 10"), Ok((10_000, always)));
    assert_eq!(expire("expire k -9223372036854775"), Ok((1, always)));
    assert_eq!(expire("pexpire k -9223372036854775808"), Ok((1, always)));
    let xx_gt = ExpireCondition {
        xx: true,
        gt: true,
        ..always
    };
    assert_eq!(expire("expire k 1 xx GT"), Ok((NOW + 1000, xx_gt)));
    let invalid = "ERR invalid expire time in 'expire' command";
    for (request, error) in [
        ("expire k abc", NUMBER),
        ("expire k 9223372036854775807", invalid),
        ("expire k -9223372036854775808", invalid),
        ("expire k 9223372036854775", invalid),
        (
            "pexpire k 9223372036854775807",
            "ERR invalid expire time in 'pexpire' command",
        ),
        ("expire k 1 foo", "ERR Unsupported option foo"),
        (
            "expire k x nx xx",
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ),
        (
            "expire k 1 gt lt",
            "ERR GT and LT options at the same time are not compatible",
        ),
    ] {
        assert_eq!(expire(request), Err(error.to_owned()), "{request}");
    }
}

#[test]
fn a_key_without_expiry_counts_as_expiring_never() {
    let nx = ExpireCondition {
        nx: true,
        ..Default::default()
    };
    let xx = ExpireCondition {
        xx: true,
        ..Default::default()
    };
    let gt = ExpireCondition {
        gt: true,
        ..Default::default()
    };
    let lt = ExpireCondition {
        lt: true,
        ..Default::default()
    };
    assert!(nx.allows(None, 5) && !nx.allows(Some(9), 5));
    assert!(!xx.allows(None, 5) && xx.allows(Some(9), 5));
    assert!(!gt.allows(None, 5) && !gt.allows(Some(5), 5) && gt.allows(Some(4), 5));
    assert!(lt.allows(None, 5) && !lt.allows(Some(5), 5) && lt.allows(Some(6), 5));
    let xx_lt = ExpireCondition {
        xx: true,
        lt: true,
        ..Default::default()
    };
    assert!(!xx_lt.allows(None, 5) && xx_lt.allows(Some(6), 5));
}

#[test]
fn scan_cursors_follow_strtoul() {
    let cursor = |text: &str| {
        Scan::parse(&["scan", text][..])
            .map(|scan| scan.cursor)
            .map_err(|error| error.to_string())
    };
    for (text, value) in [
        ("0", 0),
        ("01", 1),
        ("+1", 1),
        ("-1", u64::MAX),
        ("18446744073709551615", u64::MAX),
        ("", 0),
        ("1\0x", 1),
        ("\0", 0),
    ] {
        assert_eq!(cursor(text), Ok(value), "{text}");
    }
    for text in ["abc", "18446744073709551616", " 1", "1x", "-", "+", "--1"] {
        assert_eq!(cursor(text), Err("ERR invalid cursor".to_owned()), "{text}");
    }
}

#[test]
fn scan_options() {
    let args = words("scan 7 match a* COUNT 50 type string match b*");
    let scan = Scan::parse(&args[..]).expect("valid");
    assert_eq!((scan.cursor, scan.count), (7, 50));
    assert_eq!(scan.type_name, Some(&b"string"[..]));
    let pattern = scan.pattern.expect("the last one");
    assert!(pattern.matches(b"b1") && !pattern.matches(b"a1"));
    let most = "?".repeat(1024);
    assert!(Scan::parse(&["scan", "0", "match", &most][..]).is_ok());
    let more = most + "*";
    let refused = Scan::parse(&["scan", "0", "match", &more][..]).expect_err("too long");
    let error = "ERR a pattern cannot be longer than 1024 bytes";
    assert_eq!(refused.to_string(), error);
    for (request, error) in [
        ("scan 0 count 0", SYNTAX),
        ("scan 0 count -1", SYNTAX),
        ("scan 0 count abc", NUMBER),
        ("scan 0 count", SYNTAX),
        ("scan 0 match", SYNTAX),
        ("scan 0 foo bar", SYNTAX),
        ("scan x foo bar", "ERR invalid cursor"),
    ] {
        let refused = Scan::parse(&words(request)[..]).expect_err(request);
        assert_eq!(refused.to_string(), error, "{request}");
    }
}

#[test]
fn small_arguments() {
    let decrement_of = |text| decrement(&["decrby", "k", text][..]);
    assert_eq!(decrement_of("5"), Ok(-5));
    assert_eq!(
        decrement_of("-9223372036854775808"),
        Err(ClientError::DecrementOverflow)
    );
    assert_eq!(
        increment(&["incrby", "k", "abc"][..]),
        Err(ClientError::NotAnInteger)
    );
    for (number, expected) in [
        ("0", Ok(Database(0))),
        ("15", Ok(Database(15))),
        ("16", Err(ClientError::DbIndex)),
        ("-1", Err(ClientError::DbIndex)),
        ("99999999999", Err(ClientError::OutOfInt32)),
        ("abc", Err(ClientError::NotAnInteger)),
    ] {
        assert_eq!(database(number.as_bytes(), 16), expected, "{number}");
    }
    assert_eq!(database(b"255", 256), Ok(Database(255)));
    assert_eq!(flush(&["flushall", "SYNC"][..]), Ok(()));
    assert_eq!(flush(&["flushall", "foo"][..]), Err(ClientError::Syntax));
    let slot_of = |text| count_keys_in_slot(&["cluster", "countkeysinslot", text][..]);
    assert_eq!(slot_of("16383"), Ok(Slot(16383)));
    assert_eq!(slot_of("16384"), Err(ClientError::InvalidSlot));
    assert_eq!(slot_of("65536"), Err(ClientError::InvalidSlot));
    assert_eq!(slot_of("-1"), Err(ClientError::InvalidSlot));
    assert_eq!(slot_of("abc"), Err(ClientError::NotAnInteger));
    let keys_in = |slot, count| get_keys_in_slot(&["cluster", "getkeysinslot", slot, count][..]);
    assert_eq!(keys_in("1", "9"), Ok((Slot(1), 9)));
    assert_eq!(keys_in("1", "-1"), Err(ClientError::InvalidSlotOrCount));
    assert_eq!(keys_in("16384", "1"), Err(ClientError::InvalidSlotOrCount));
}

#[test]
fn a_parsed_request_is_an_argument_list() {
    use ephesus_wire::resp::request::{Args, RequestLimits, parse};
    for buf in [&b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"[..], b"GET \"k\"\r\n"] {
        let mut args = Args::new();
        parse(buf, &RequestLimits::DEFAULT, &mut args).expect("a whole request");
        let request = Request::new(&args, buf);
        assert_eq!(
            (request.len(), request.arg(0), request.arg(1)),
            (2, &b"GET"[..], &b"k"[..])
        );
    }
}

fn request() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let word = prop_oneof![
        proptest::sample::select(vec![
            "ex",
            "PX",
            "exat",
            "pxat",
            "nx",
            "xx",
            "gt",
            "lt",
            "get",
            "keepttl",
            "ifeq",
            "match",
            "count",
            "type",
            "0",
            "1",
            "-1",
            "9223372036854775807",
            "-9223372036854775808",
        ])
        .prop_map(|word| word.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(word, 4..10)
}

proptest! {
    #[test]
    fn no_arguments_panic(args in request(), now_ms in any::<u64>()) {
        let _ = SetOptions::parse(&args[..], now_ms);
        for unit in [TimeUnit::Ex, TimeUnit::Px, TimeUnit::Exat, TimeUnit::Pxat] {
            let _ = Expire::parse(&args[..], unit, now_ms, "expire");
            let _ = deadline(unit, &args[2], now_ms, "setex");
        }
        let _ = GetExpiry::parse(&args[..]);
        let _ = CopyOptions::parse(&args[..], 16);
        let _ = Scan::parse(&args[..]);
        let _ = database(&args[1], 16);
        let _ = flush(&args[..]);
        let _ = increment(&args[..]);
        let _ = decrement(&args[..]);
        let _ = count_keys_in_slot(&args[..]);
        let _ = get_keys_in_slot(&args[..]);
    }

    #[test]
    fn integers_are_read_exactly_as_they_are_printed(text in "[-+ ]?[0-9]{1,20}", value in any::<i64>()) {
        let plain = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
        prop_assert_eq!(integer(text.as_bytes()).ok(), plain);
        prop_assert_eq!(integer(value.to_string().as_bytes()), Ok(value));
    }

    #[test]
    fn an_accepted_deadline_of_set_is_positive_and_fits(args in request()) {
        let parsed = SetOptions::parse(&args[..], NOW);
        if let Ok(SetOptions { expiry: SetExpiry::At(at), .. }) = parsed {
            prop_assert!(at > 0 && i64::try_from(at).is_ok());
        }
    }
}
