//! Bounds of what one client may send and be sent.

use std::time::Duration;

use ephesus_tests::bystander::Bystander;
use ephesus_tests::resp::encode;
use ephesus_tests::{Client, Node, Options, Reply};

const PATIENCE: Duration = Duration::from_secs(3);

/// With names of any length the list is longer than any reply, on every shard.
#[test]
fn names_of_connections_are_short_and_every_list_of_clients_is_answered() {
    let node = Node::start(Options {
        shards: 2,
        ..Options::default()
    });
    let bystander = Bystander::watch(node.port());
    let long = vec![b'n'; 33_554_000];
    let mut clients: Vec<_> = (0..3).map(|_| node.direct_client(0)).collect();
    let setters: [&[&[u8]]; 4] = [
        &[b"CLIENT", b"SETNAME"],
        &[b"CLIENT", b"SETINFO", b"LIB-NAME"],
        &[b"CLIENT", b"SETINFO", b"LIB-VER"],
        &[b"HELLO", b"2", b"SETNAME"],
    ];
    for client in &mut clients {
        for setter in setters {
            let refused = client.call(&[setter, &[&long[..]]].concat());
            let error = refused.error().unwrap_or_default();
            assert!(error.contains("1024 bytes"), "{refused:?}");
        }
        let most = vec![b'n'; 1024];
        let set = client.call(&[&b"CLIENT"[..], b"SETNAME", &most]);
        assert_eq!(set, Reply::ok());
    }
    let list = node.client().say("CLIENT LIST").text();
    assert_eq!(list.matches(&"n".repeat(1024)).count(), 3);
    assert!(list.len() < 16 << 10, "{} bytes", list.len());
    bystander.assert_served(PATIENCE);
}

/// As a browser sends it for a web page, headers and body in one piece and in several.
#[test]
fn a_web_page_cannot_have_commands_executed() {
    let node = Node::start(Options {
        shards: 2,
        ..Options::default()
    });
    assert_eq!(node.client().say("SET kept 1"), Reply::ok());
    let request = "POST / HTTP/1.1\r\nHost: 127.0.0.1:7379\r\nContent-Type: text/plain\r\n\
                   Content-Length: 30\r\n\r\n\r\nFLUSHALL\r\nSET owned 1\r\n";
    let get = request.replacen("POST", "GET", 1);
    for port in [node.port(), node.direct_port(0), node.direct_port(1)] {
        for (bytes, piece) in [(request, 4096), (request, 7), (&get, 4096)] {
            let mut client = Client::connect(port).expect("connect");
            for piece in bytes.as_bytes().chunks(piece) {
                // It is closed before it has sent everything.
                let _ = client.send_raw(piece);
            }
            let (answer, closed) = client.drain(Duration::from_secs(10));
            assert!(
                closed && !answer.starts_with(b"+"),
                "{}",
                answer.escape_ascii()
            );
        }
    }
    let mut client = node.client();
    assert_eq!(client.say("EXISTS kept owned"), Reply::Integer(1));
    let stats = client.say("INFO stats").text();
    assert!(stats.contains("http_connections_closed:9\r\n"), "{stats}");
}

/// Each would hold all keys until it is complete, if it went on.
#[test]
fn clients_that_ask_for_all_keys_and_leave_hold_little() {
    let node = Node::start(Options {
        shards: 2,
        ..Options::default()
    });
    let mut client = node.client();
    let name = "k".repeat(1_000);
    let keys = 8_000;
    let sets = (0..keys).map(|n| vec![b"SET".to_vec(), format!("{n}{name}").into(), b"v".to_vec()]);
    let replies = client.pipeline(&sets.collect::<Vec<_>>());
    assert!(replies.iter().all(|reply| *reply == Reply::ok()));
    let bystander = Bystander::watch(node.port());
    let before = node.process().resident_bytes();
    node.process().forget_peak();
    let mut request = Vec::new();
    encode(&["KEYS", "*"], &mut request);
    for n in 0..200 {
        let port = if n % 2 == 0 {
            node.port()
        } else {
            node.direct_port(0)
        };
        let mut leaving = Client::connect(port).expect("connect");
        let _ = leaving.send_raw(&request);
    }
    // Without those of the bystander.
    assert_eq!(client.say("KEYS *k").items().len(), keys);
    let grown = node.process().peak_bytes().saturating_sub(before) >> 20;
    assert!(grown < 384, "{grown} MiB more for 200 lists of 8 MB");
    bystander.assert_served(PATIENCE);
}

/// A few bytes make a value grow by what lies before the place that they name.
#[test]
fn a_place_in_a_value_is_within_the_largest_value() {
    let node = Node::start(Options::default());
    let mut client = node.client();
    let last = (8 << 20) - 1;
    assert_eq!(
        client.say(&format!("SETRANGE range {last} x")),
        Reply::Integer(8 << 20)
    );
    assert_eq!(
        client.say(&format!("SETBIT bits {} 1", 8 * last + 7)),
        Reply::Integer(0)
    );
    assert_eq!(client.say("STRLEN bits"), Reply::Integer(8 << 20));
    let bit = 8 * (8 << 20);
    for request in [
        format!("SETRANGE absent {} x", last + 1),
        format!("SETRANGE absent {} x", i64::MAX),
        format!("SETBIT absent {bit} 1"),
        format!("GETBIT range {bit}"),
    ] {
        let refused = client.say(&request);
        assert!(refused.error().is_some(), "{request}: {refused:?}");
    }
    assert_eq!(client.say("EXISTS absent"), Reply::Integer(0));
    assert_eq!(client.say("BITPOS range 1"), Reply::Integer(8 * last + 1));
    assert_eq!(client.say("BITCOUNT bits"), Reply::Integer(1));
    assert_eq!(
        client.say(&format!("GETRANGE range {last} -1")),
        Reply::bulk("x")
    );
    let all = client.say("GETRANGE range 0 -1");
    assert_eq!(all.text().len(), 8 << 20);
}
