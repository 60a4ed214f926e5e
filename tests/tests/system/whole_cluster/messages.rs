//! PUBLISH in a cluster: subscribers of all nodes get what clients of any node send.

use std::time::{Duration, Instant};

use ephesus_tests::{Client, Reply, TestCluster};

use super::{NAMES, SERVES_WITHIN};

/// The messages that a subscriber gets until one comes that is the last.
fn until_last(client: &mut Client) -> Vec<String> {
    let mut messages = Vec::new();
    loop {
        let message = client.receive().expect("a message").items();
        let text = message.last().expect("a message").text();
        if text == "last" {
            return messages;
        }
        messages.push(text);
    }
}

/// Publishes until the subscriber's node is reached.
fn until_linked(publisher: &mut Client, subscriber: &mut Client, channel: &str) {
    let stream = subscriber.stream().try_clone().expect("cloned");
    stream
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("set");
    let began = Instant::now();
    loop {
        publisher.say(&format!("PUBLISH {channel} hello"));
        if subscriber.receive().is_ok() {
            break;
        }
        assert!(began.elapsed() < SERVES_WITHIN, "no message has come");
    }
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("set");
}

#[test]
fn messages_reach_subscribers_of_other_nodes_in_order() {
    let mut whole = TestCluster::started(&["--partitions", "4"], &NAMES, 2);
    let ports: Vec<(Client, Client)> = NAMES
        .iter()
        .map(|name| {
            let node = whole.node(name);
            (node.client(), node.direct_client(1))
        })
        .collect();
    let mut publishers: Vec<Client> = ports.into_iter().flat_map(|(a, b)| [a, b]).collect();
    for (at, name) in NAMES.into_iter().enumerate() {
        let node = whole.node(name);
        let mut subscribers = [node.client(), node.direct_client(0), node.direct_client(1)];
        for client in &mut subscribers {
            client.say(&format!("SUBSCRIBE from{at}"));
        }
        let [first, ..] = &mut subscribers;
        for publisher in &mut publishers {
            until_linked(publisher, first, &format!("from{at}"));
        }
        for publisher in &mut publishers {
            publisher.say(&format!("PUBLISH from{at} last"));
            for client in &mut subscribers {
                until_last(client);
            }
            for n in 0..100 {
                let reply = publisher.call(&["PUBLISH", &format!("from{at}"), &n.to_string()]);
                assert!(matches!(reply, Reply::Integer(0 | 3)), "{reply:?}");
            }
            // What a script and a transaction send goes the same way.
            let script = "return redis.call('publish', ARGV[1], '100')";
            publisher.call(&["EVAL", script, "0", &format!("from{at}")]);
            publisher.say("MULTI");
            publisher.say(&format!("PUBLISH from{at} 101"));
            publisher.say("EXEC");
            publisher.say(&format!("PUBLISH from{at} last"));
            let expected: Vec<String> = (0..102).map(|n: u64| n.to_string()).collect();
            for client in &mut subscribers {
                assert_eq!(until_last(client), expected);
            }
        }
    }
    let sent = publishers[0].info("pubsub_messages_sent");
    assert!(sent >= 1200, "{sent}");
}

#[test]
fn a_node_that_was_away_gets_messages_again_and_nobody_waits_for_one_that_stands_still() {
    let mut whole = TestCluster::started(&["--partitions", "4"], &NAMES[..2], 1);
    let mut publisher = whole.node("athens").client();
    let byzantium = whole.node("byzantium");
    let mut subscriber = byzantium.client();
    subscriber.say("SUBSCRIBE c");
    until_linked(&mut publisher, &mut subscriber, "c");
    byzantium.signal(libc::SIGSTOP);
    let began = Instant::now();
    let message = "m".repeat(1 << 20);
    for _ in 0..64 {
        assert_eq!(
            publisher.call(&["PUBLISH", "c", &message]),
            Reply::Integer(0)
        );
    }
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(publisher.info("pubsub_messages_dropped") > 0);
    byzantium.signal(libc::SIGCONT);
    byzantium.kill();
    byzantium.restart();
    let mut subscriber = byzantium.client();
    subscriber.say("SUBSCRIBE c");
    until_linked(&mut publisher, &mut subscriber, "c");
}
