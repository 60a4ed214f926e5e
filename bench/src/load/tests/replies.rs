use std::net::SocketAddr;

use ephesus_wire::resp::value::decode;

use super::super::link::{Reply, first};
use super::super::routes::{Routes, moved};

#[test]
fn replies_are_read_wherever_they_are_cut() {
    let stream =
        b"+OK\r\n$5\r\na\r\nbc\r\n$-1\r\n:-12\r\n-MOVED 12 :7000\r\n$0\r\n\r\n*1\r\n:1\r\n_\r\n";
    let expected = [
        Reply::Done,
        Reply::Value(b"a\r\nbc"),
        Reply::Null,
        Reply::Integer(-12),
        Reply::Error(b"MOVED 12 :7000"),
        Reply::Value(b""),
        Reply::List(b"*1\r\n:1\r\n"),
        Reply::Null,
    ];
    let mut at = 0;
    for reply in expected {
        let ends = at + 1..=stream.len();
        let whole = ends
            .clone()
            .find_map(|end| Some((end, first(&stream[at..end]).expect("RESP")?)));
        let (end, (found, length)) = whole.expect("a reply");
        assert_eq!((found, at + length), (reply, end));
        assert_eq!(first(&stream[at..]), Ok(Some((reply, length))));
        at = end;
    }
    assert_eq!((at, first(b"")), (stream.len(), Ok(None)));
    for wrong in [&b"?\r\n"[..], b"+OK\rx", b":one\r\n"] {
        assert!(first(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn redirects_without_a_host_are_to_the_one_that_was_asked() {
    let from: SocketAddr = "10.0.0.1:7000".parse().expect("address");
    let to = |text| moved(text, from).map(|address| address.to_string());
    assert_eq!(
        to("MOVED 3 10.0.0.2:7001").as_deref(),
        Some("10.0.0.2:7001")
    );
    assert_eq!(to("MOVED 3 :7001").as_deref(), Some("10.0.0.1:7001"));
    assert_eq!(to("MOVED 3 nowhere"), None);
    assert_eq!(to("ASK 3 10.0.0.2:7001"), None);
}

#[test]
fn slots_that_nobody_has_are_counted_and_bad_tables_refused() {
    let from: SocketAddr = "10.0.0.1:7000".parse().expect("address");
    let learn = |text: &str| {
        let (table, _) = decode(text.as_bytes()).expect("RESP").expect("whole");
        let mut routes = Routes::to(from);
        routes
            .learn(&table, from)
            .map(|missing| (missing, routes.servers))
    };
    let range = |first: u32, last: u32, host: &str, port: u32| {
        format!(
            "*3\r\n:{first}\r\n:{last}\r\n*2\r\n${}\r\n{host}\r\n:{port}\r\n",
            host.len()
        )
    };
    let (missing, servers) =
        learn(&format!("*1\r\n{}", range(0, 16_283, "", 7001))).expect("table");
    assert_eq!(missing, 100);
    assert_eq!(servers, [from, "10.0.0.1:7001".parse().expect("address")]);
    for wrong in [
        "+OK\r\n".to_owned(),
        format!("*1\r\n{}", range(0, 16_384, "", 7001)),
        format!("*1\r\n{}", range(5, 4, "", 7001)),
        format!("*1\r\n{}", range(0, 4, "", 70_001)),
        "*1\r\n*1\r\n:1\r\n".to_owned(),
    ] {
        assert!(learn(&wrong).is_err(), "{wrong}");
    }
}
