//! DEBUG, which is off unless a flag says otherwise.

use std::time::{Duration, Instant};

use super::{Pair, Port};
use ephesus_tests::oracle::Oracle;
use ephesus_tests::{Client, Node, Options, Reply};

#[test]
fn debug_is_refused_as_redis_refuses_it() {
    let mut pair = Pair::new(Port::Entry, 2);
    for line in [
        "DEBUG",
        "DEBUG SLEEP 0",
        "DEBUG OBJECT x",
        "DEBUG FOO",
        "DEBUG HELP",
        "MULTI",
        "DEBUG SLEEP 0",
        "EXEC",
    ] {
        pair.same_line(line);
    }
    assert_eq!(
        pair.ours.say("CONFIG GET enable-debug-command").items(),
        [Reply::bulk("enable-debug-command"), Reply::bulk("no")]
    );
}

fn started(shards: u16, flags: &[&str]) -> Node {
    Node::start(Options {
        shards,
        flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
        ..Options::default()
    })
}

/// What DEBUG OBJECT says, without what differs from run to run.
fn object(client: &mut Client, key: &str) -> String {
    let reply = client.call(&["DEBUG", "OBJECT", key]);
    let text = reply.text();
    let kept = ["refcount:", "encoding:", "serializedlength:"];
    let words = text
        .split(' ')
        .filter(|word| kept.iter().any(|head| word.starts_with(head)));
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn values_are_told_of_wherever_they_are() {
    let node = started(3, &["--enable-debug-command", "local"]);
    let oracle = Oracle::with(&["--enable-debug-command", "yes"]);
    let (mut ours, mut theirs) = (node.client(), oracle.client());
    for database in ["0", "5"] {
        for client in [&mut ours, &mut theirs] {
            client.call(&["SELECT", database]);
        }
        for (key, value) in [("a", "x"), ("b", "123456"), ("c", "hello world"), ("d", "")] {
            for client in [&mut ours, &mut theirs] {
                client.call(&["SET", key, value]);
            }
            assert_eq!(object(&mut ours, key), object(&mut theirs, key), "{key}");
        }
        for line in [
            "DEBUG OBJECT nosuch",
            "DEBUG OBJECT",
            "DEBUG FOO bar",
            "DEBUG SLEEP",
        ] {
            assert_eq!(ours.say(line), theirs.say(line), "{line}");
        }
    }
}

#[test]
fn all_clients_wait_and_the_node_keeps_its_lease() {
    let node = started(2, &["--enable-debug-command", "yes"]);
    let (mut client, mut others) = (node.client(), [node.client(), node.client()]);
    let began = Instant::now();
    client.send(&["DEBUG", "SLEEP", "1.5"]).expect("sent");
    std::thread::sleep(Duration::from_millis(200));
    for (n, other) in others.iter_mut().enumerate() {
        assert_eq!(other.call(&["SET", &format!("k{n}"), "1"]), Reply::ok());
        assert!(began.elapsed() >= Duration::from_millis(1500));
    }
    assert_eq!(client.receive().expect("a reply"), Reply::ok());
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(client.say("DEBUG SLEEP -1"), Reply::ok());
    assert_eq!(client.say("DEBUG SLEEP x"), Reply::ok());
}
