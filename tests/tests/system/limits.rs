//! Bounds of what one client may send and be sent.

use std::time::Duration;

use ephesus_tests::bystander::Bystander;
use ephesus_tests::{Node, Options, Reply};

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
