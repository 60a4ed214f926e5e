use ephesus_wire::resp::reply;

use super::TURN_BYTES_MAX;
use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{Bed, key};

/// What a client is told of one subscription under RESP2.
fn told(word: &str, name: &str, count: usize) -> String {
    let (word_len, len) = (word.len(), name.len());
    format!("*3\r\n${word_len}\r\n{word}\r\n${len}\r\n{name}\r\n:{count}\r\n")
}

fn message(channel: &str, payload: &str) -> String {
    let (len, payload_len) = (channel.len(), payload.len());
    format!("*3\r\n$7\r\nmessage\r\n${len}\r\n{channel}\r\n${payload_len}\r\n{payload}\r\n")
}

#[test]
fn sharded_channels_of_a_partition_that_leaves_end_where_it_was() {
    let mut bed = Bed::new(2, &[]);
    let channel = key(0, 0);
    let (direct, entry) = (bed.connect(0, Direct), bed.connect(0, Entry));
    let (target, publisher) = (bed.connect(1, Direct), bed.connect(1, Entry));
    let subscribe = format!("SSUBSCRIBE {channel}");
    for client in [direct, entry] {
        assert_eq!(
            bed.ask(client, &[&subscribe]),
            told("ssubscribe", &channel, 1)
        );
    }
    assert!(bed.ask(target, &[&subscribe]).starts_with("-MOVED"));
    let publish = format!("SPUBLISH {channel} x");
    assert_eq!(bed.ask(publisher, &[&publish]), ":2\r\n");
    bed.take(direct);
    bed.take(entry);
    bed.prepare_within(0, 1);
    bed.follow();
    bed.commit_within(0);
    bed.follow();
    bed.settle();
    assert_eq!(bed.take(direct), told("sunsubscribe", &channel, 0));
    assert!(bed.ask(direct, &[&subscribe]).starts_with("-MOVED"));
    // At the entry port it is still a channel of this node.
    assert_eq!(bed.take(entry), "");
    assert_eq!(
        bed.ask(target, &[&subscribe]),
        told("ssubscribe", &channel, 1)
    );
    assert_eq!(bed.ask(publisher, &[&publish]), ":2\r\n");
}

#[test]
fn a_turn_delivers_a_part_of_many_messages_and_keeps_their_order() {
    let mut bed = Bed::new(2, &[]);
    let subscribers: Vec<_> = (0..20).map(|n| bed.connect(n % 2, Entry)).collect();
    for client in &subscribers {
        bed.ask(*client, &["SUBSCRIBE a", "PSUBSCRIBE b*"]);
    }
    let publisher = bed.connect(0, Entry);
    let payload = |n: usize| n.to_string().repeat(TURN_BYTES_MAX / 16);
    let mut publish = Vec::new();
    for n in 0..5 {
        reply::command(&mut publish, &["PUBLISH", "a", &payload(n)]);
    }
    bed.send_bytes(publisher, &publish);
    bed.settle();
    assert_eq!(bed.take(publisher), ":20\r\n".repeat(5));
    for client in subscribers {
        let expected: String = (0..5).map(|n| message("a", &payload(n))).collect();
        assert!(bed.take(client) == expected, "all messages in their order");
    }
    assert_eq!(bed.core(0).execution.pubsub.held_bytes(), 0);
}

#[test]
fn subscriptions_count_as_memory_of_their_connection_and_go_with_it() {
    let mut bed = Bed::new(2, &[]);
    let (client, other) = (bed.connect(0, Entry), bed.connect(1, Entry));
    let before = bed.held_bytes(client);
    for n in 0..100 {
        bed.ask(
            client,
            &[
                &format!("SUBSCRIBE channel:{n}"),
                &format!("PSUBSCRIBE {n}*"),
            ],
        );
    }
    assert!(bed.held_bytes(client) > before + 100 * 2000);
    let long = "x".repeat(1025);
    let refused = "-ERR a channel's name cannot be longer than 1024 bytes\r\n";
    assert_eq!(bed.ask(client, &[&format!("SUBSCRIBE {long}")]), refused);
    assert_eq!(bed.ask(other, &[&format!("PUBLISH {long} x")]), refused);
    assert_eq!(bed.ask(other, &["PUBSUB NUMPAT"]), ":100\r\n");
    bed.ask(client, &["UNSUBSCRIBE", "PUNSUBSCRIBE"]);
    assert!(bed.held_bytes(client) < before + 4096);
    bed.ask(client, &["SUBSCRIBE a"]);
    assert_eq!(bed.ask(other, &["PUBLISH a x"]), ":1\r\n");
    bed.kill(client);
    bed.settle();
    assert_eq!(
        bed.ask(other, &["PUBLISH a x", "PUBSUB CHANNELS"]),
        ":0\r\n*0\r\n"
    );
}
