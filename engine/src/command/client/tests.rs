use proptest::prelude::*;

use super::*;

#[test]
fn the_line_has_the_fields_of_redis() {
    let client = ClientInfo {
        id: 7,
        address: "127.0.0.1:56010",
        local_address: "127.0.0.1:27391",
        fd: 9,
        age_seconds: 4,
        query_bytes: 26,
        query_bytes_free: 20448,
        argument_bytes: 10,
        reply_buffer_bytes: 1024,
        reply_pending_bytes: 0,
        total_bytes: 22298,
        command: "client|info",
        user: "default",
        library_name: "redis-py",
        library_version: "8.1.0",
        ..ClientInfo::default()
    };
    assert_eq!(
        client.to_string(),
        "id=7 addr=127.0.0.1:56010 laddr=127.0.0.1:27391 fd=9 name= age=4 idle=0 flags=N db=0 sub=0 \
         psub=0 ssub=0 multi=-1 watch=0 qbuf=26 qbuf-free=20448 argv-mem=10 multi-mem=0 rbs=1024 rbp=0 obl=0 \
         oll=0 omem=0 tot-mem=22298 events=r cmd=client|info user=default redir=-1 resp=2 \
         lib-name=redis-py lib-ver=8.1.0"
    );
    let reader = ClientInfo {
        readonly: true,
        protocol: Protocol::Resp3,
        ..ClientInfo::default()
    };
    let line = reader.to_string();
    assert!(line.contains(" flags=r ") && line.contains(" cmd=NULL ") && line.contains(" resp=3 "));
    let mut out = Vec::new();
    write_lines(&mut out, Protocol::Resp2, [reader.clone(), reader]);
    let text = String::from_utf8(out).expect("ASCII");
    assert_eq!(
        text,
        format!("${}\r\n{line}\n{line}\n\r\n", 2 * line.len() + 2)
    );
}

fn filter(request: &str) -> Result<ClientFilter, String> {
    let args: Vec<&str> = request.split(' ').collect();
    ClientFilter::parse(&args[..]).map_err(|error| error.to_string())
}

#[test]
fn list_filters() {
    let client = |id| ClientInfo {
        id,
        ..ClientInfo::default()
    };
    for (request, expected) in [
        ("client list", [true; 3]),
        ("client list TYPE Normal", [true; 3]),
        ("client list type replica", [false; 3]),
        ("client list type PubSub", [false; 3]),
        ("client list id 1 2", [true, true, false]),
        ("client list id 9 3 9 9 1 3 -5", [true, false, true]),
    ] {
        let filter = filter(request).expect("valid");
        let admitted = [1, 2, 3].map(|id| filter.admits(&client(id)));
        assert_eq!(admitted, expected, "{request}");
    }
    for (request, error) in [
        ("client list type foo", "ERR Unknown client type 'foo'"),
        ("client list id abc", "ERR Invalid client ID"),
        ("client list id 1 1x", "ERR Invalid client ID"),
        ("client list foo", "ERR syntax error"),
        ("client list id", "ERR syntax error"),
        ("client list type normal x", "ERR syntax error"),
    ] {
        assert_eq!(filter(request), Err(error.to_owned()), "{request}");
    }
}

#[test]
fn ids_that_nobody_has_are_no_error() {
    let ids = filter("client list id 0 -1 5").expect("numbers");
    let admits = |id| {
        ids.admits(&ClientInfo {
            id,
            ..ClientInfo::default()
        })
    };
    assert!(admits(5) && !admits(1) && !admits(u64::MAX));
}

#[test]
fn names_are_at_most_a_kibibyte_long() {
    let (most, more) = ("n".repeat(1024), "n".repeat(1025));
    let refused = |what: &str| format!("ERR {what} cannot be longer than 1024 bytes");
    let set_name = |name: &str| {
        let args = ["client", "setname", name];
        set_name(&args[..]).err().map(|error| error.to_string())
    };
    let hello = |name: &str| {
        let args = ["hello", "3", "setname", name];
        Hello::parse(&args[..]).err().map(|error| error.to_string())
    };
    let set_info = |attribute: &str, value: &str| {
        let args = ["client", "setinfo", attribute, value];
        SetInfo::parse(&args[..])
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!((set_name(&most), hello(&most)), (None, None));
    assert_eq!(set_name(&more), Some(refused("a client's name")));
    assert_eq!(hello(&more), Some(refused("a client's name")));
    for attribute in ["lib-name", "lib-ver"] {
        assert_eq!(set_info(attribute, &most), None);
        let error = set_info(attribute, &more);
        assert_eq!(error, Some(refused("a client library's attribute")));
    }
}

#[test]
fn names_are_visible_ascii() {
    let rename = |name: &str| {
        set_name(&["client", "setname", name][..])
            .map(str::to_owned)
            .map_err(|error| error.to_string())
    };
    assert_eq!(rename("worker-1!~"), Ok("worker-1!~".to_owned()));
    assert_eq!(rename(""), Ok(String::new()));
    let refused = "ERR Client names cannot contain spaces, newlines or special characters.";
    for name in ["a b", "a\tb", "é", "a\n", "\x7f", "\0"] {
        assert_eq!(rename(name), Err(refused.to_owned()), "{name:?}");
    }
}

#[test]
fn library_attributes() {
    let set = |attribute, value| {
        let args = ["client", "setinfo", attribute, value];
        SetInfo::parse(&args[..])
            .map(|set| format!("{set:?}"))
            .map_err(|error| error.to_string())
    };
    assert_eq!(
        set("lib-name", "redis-py"),
        Ok("LibraryName(\"redis-py\")".to_owned())
    );
    assert_eq!(
        set("LIB-VER", "1.0"),
        Ok("LibraryVersion(\"1.0\")".to_owned())
    );
    assert_eq!(set("LIB-NAME", ""), Ok("LibraryName(\"\")".to_owned()));
    assert_eq!(
        set("LIB-VER", "a\u{1}b"),
        Err("ERR LIB-VER cannot contain spaces, newlines or special characters.".to_owned())
    );
    assert_eq!(
        set("foo", "a"),
        Err("ERR Unrecognized option 'foo'".to_owned())
    );
}

#[test]
fn hello_arguments() {
    let full = ["hello", "3", "AUTH", "u", "p", "setname", "n"];
    let hello = Hello {
        protocol: Some(Protocol::Resp3),
        auth: Some((b"u", b"p")),
        name: Some("n"),
    };
    assert_eq!(Hello::parse(&full[..]), Ok(hello));
    assert_eq!(Hello::parse(&["hello"][..]), Ok(Hello::default()));
    for (request, error) in [
        ("hello 4", "NOPROTO unsupported protocol version"),
        ("hello -1", "NOPROTO unsupported protocol version"),
        (
            "hello abc",
            "ERR Protocol version is not an integer or out of range",
        ),
        (
            "hello setname x",
            "ERR Protocol version is not an integer or out of range",
        ),
        (
            "hello 2 setname",
            "ERR Syntax error in HELLO option 'setname'",
        ),
        ("hello 2 foo", "ERR Syntax error in HELLO option 'foo'"),
        ("hello 3 auth a", "ERR Syntax error in HELLO option 'auth'"),
        (
            "hello 3 setname \u{e9}",
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ),
    ] {
        let args: Vec<&str> = request.split(' ').collect();
        let refused = Hello::parse(&args[..]).map_err(|error| error.to_string());
        assert_eq!(refused, Err(error.to_owned()), "{request}");
    }
}

#[test]
fn the_hello_reply_is_that_of_redis() {
    let body = "$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.4\r\n$5\r\nproto\r\n:3\r\n$2\r\n\
        id\r\n:7\r\n$4\r\nmode\r\n$7\r\ncluster\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n";
    let mut out = Vec::new();
    write_hello(&mut out, Protocol::Resp3, 7);
    assert_eq!(String::from_utf8_lossy(&out), format!("%7\r\n{body}"));
    out.clear();
    write_hello(&mut out, Protocol::Resp2, 7);
    assert_eq!(
        String::from_utf8_lossy(&out),
        format!("*14\r\n{}", body.replace(":3", ":2"))
    );
}

proptest! {
    #[test]
    fn no_arguments_panic(
        tail in proptest::collection::vec(
            prop_oneof![
                proptest::sample::select(vec!["2", "3", "auth", "setname", "type", "id", "lib-name"])
                    .prop_map(|word| word.as_bytes().to_vec()),
                proptest::collection::vec(any::<u8>(), 0..6),
            ],
            3..8,
        ),
    ) {
        let mut args = vec![b"hello".to_vec()];
        args.extend(tail);
        let _ = Hello::parse(&args[..]);
        let _ = ClientFilter::parse(&args[..]);
        let _ = SetInfo::parse(&args[..]);
        if let Ok(name) = set_name(&args[..]) {
            prop_assert!(name.bytes().all(|byte| (b'!'..=b'~').contains(&byte)));
        }
    }
}
