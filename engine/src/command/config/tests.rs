use super::*;

fn get(patterns: &[&str], protocol: Protocol) -> String {
    let parameters = [
        ("maxmemory", "0".to_owned()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("save", String::new()),
    ];
    let mut args = vec!["config", "get"];
    args.extend(patterns);
    let mut out = Vec::new();
    let written = write_matching(&mut out, protocol, &parameters, &args[..]);
    if let Err(error) = written {
        return error.to_string();
    }
    String::from_utf8(out).expect("ASCII")
}

#[test]
fn one_parameter_as_redis_writes_it() {
    assert_eq!(
        get(&["maxmemory"], Protocol::Resp2),
        "*2\r\n$9\r\nmaxmemory\r\n$1\r\n0\r\n"
    );
    assert_eq!(
        get(&["MaxMemory"], Protocol::Resp3),
        "%1\r\n$9\r\nMaxMemory\r\n$1\r\n0\r\n"
    );
    assert_eq!(get(&["nope"], Protocol::Resp2), "*0\r\n");
    assert_eq!(get(&["nope"], Protocol::Resp3), "%0\r\n");
}

#[test]
fn several_patterns_name_each_parameter_once() {
    let all = get(&["*"], Protocol::Resp2);
    assert!(all.starts_with("*6\r\n") && all.ends_with("$4\r\nsave\r\n$0\r\n\r\n"));
    assert_eq!(get(&["MAX*", "maxmemory", "[rs]ave"], Protocol::Resp2), all);
}

#[test]
fn a_long_pattern_is_refused() {
    let error = get(&["save", &"*".repeat(1025)], Protocol::Resp2);
    assert_eq!(error, "ERR a pattern cannot be longer than 1024 bytes");
}

#[test]
fn more_patterns_than_are_compiled_at_once_are_refused() {
    let reply = get(&["save"; 64], Protocol::Resp2);
    assert_eq!(reply, "*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
    let error = get(&["save"; 65], Protocol::Resp2);
    assert_eq!(error, "ERR at most 64 patterns can be asked for at once");
}

#[test]
fn patterns_that_are_long_together_are_refused() {
    let half = "?".repeat(512);
    assert_eq!(get(&[&half, &half], Protocol::Resp2), "*0\r\n");
    let error = get(&[&half, &half, "*"], Protocol::Resp2);
    let text = "ERR all patterns together cannot be longer than 1024 bytes";
    assert_eq!(error, text);
}
