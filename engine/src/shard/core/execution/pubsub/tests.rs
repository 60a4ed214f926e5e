use ephesus_wire::limits::QUERY_BYTES_MAX;
use ephesus_wire::resp::reply;

use super::{PATTERNS_MAX, TURN_BYTES_MAX};
use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{Bed, CLIENT_MEMORY, Client, command, key};

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

/// Subscribes to so many names of as many bytes.
fn subscribe_to_many(bed: &mut Bed, client: Client, word: &str, count: usize, bytes: usize) {
    let names: Vec<String> = (0..count).map(|n| format!("{n:0bytes$}")).collect();
    for names in names.chunks(1000) {
        let mut words = vec![word];
        words.extend(names.iter().map(String::as_str));
        bed.send_bytes(client, &command(&words));
        bed.settle();
        bed.take(client);
    }
}

#[test]
fn the_client_that_publishes_may_be_the_one_that_holds_most() {
    for exec in [false, true] {
        let mut bed = Bed::new(1, &[]);
        let (largest, subscriber) = (bed.connect(0, Entry), bed.connect(0, Entry));
        bed.ask(largest, &["HELLO 3"]);
        subscribe_to_many(&mut bed, largest, "SUBSCRIBE", 28_000, 1_000);
        let held = bed.held_bytes(largest);
        assert!((CLIENT_MEMORY as usize - held) < 8 << 20, "{held}");
        bed.ask(subscriber, &["SUBSCRIBE ch"]);
        bed.stop_reading(subscriber);
        let publish = command(&["PUBLISH", "ch", &"x".repeat(8 << 20)]);
        let request = match exec {
            true => [b"MULTI\r\n", &publish[..], b"EXEC\r\n"].concat(),
            false => publish,
        };
        bed.send_bytes(largest, &request);
        bed.settle();
        assert!(!bed.is_open(largest) && bed.is_open(subscriber));
    }
}

#[test]
fn a_client_gets_what_it_has_published_itself_behind_multi() {
    for shards in [1, 2] {
        let mut bed = Bed::new(shards, &[]);
        let client = bed.connect(0, Entry);
        bed.ask(client, &["HELLO 3", "SUBSCRIBE a"]);
        let replies = bed.ask(client, &["MULTI", "PUBLISH a 1", "PUBLISH a 2", "EXEC"]);
        let pushed = |payload| message("a", payload).replace("*3", ">3");
        let both = pushed("1") + &pushed("2");
        assert_eq!(replies.matches(&both).count(), 1, "{replies}");
        let replies = replies.replacen(&both, "", 1);
        let queued = "+QUEUED\r\n".repeat(2);
        assert_eq!(replies, format!("+OK\r\n{queued}*2\r\n:1\r\n:1\r\n"));
    }
}

#[test]
fn events_of_many_keys_are_compared_with_many_patterns_in_many_turns() {
    const KEYS: usize = 1_000;
    let mut bed = Bed::new(1, &[]);
    let (subscriber, client) = (bed.connect(0, Entry), bed.connect(0, Entry));
    bed.ask(client, &["CONFIG SET notify-keyspace-events KA"]);
    subscribe_to_many(&mut bed, subscriber, "PSUBSCRIBE", 1_000, 10);
    bed.ask(subscriber, &["PSUBSCRIBE __key*"]);
    let keys: Vec<String> = (0..KEYS).map(|n| format!("{{a}}{n}")).collect();
    let mut words = vec!["MSET"];
    words.extend(keys.iter().flat_map(|key| [key.as_str(), "v"]));
    bed.send_bytes(client, &command(&words));
    bed.turn(0, 0);
    let mut told = bed.take(subscriber);
    let first = told.matches("pmessage").count();
    assert!((1..KEYS / 2).contains(&first), "{first} in the first turns");
    bed.settle();
    told += &bed.take(subscriber);
    let mut at = 0;
    for key in &keys {
        let channel = format!("__keyspace@0__:{key}\r\n");
        at += told
            .get(at..)
            .and_then(|rest| rest.find(&channel))
            .expect("all of them in their order");
    }
    assert_eq!(bed.core(0).execution.pubsub.held_bytes(), 0);
    // Another client's command does not pay for it.
    assert_eq!(bed.core(0).keyspace.take_work(), 0);
}

#[test]
fn patterns_beyond_the_limit_are_refused_together() {
    let mut bed = Bed::new(2, &[]);
    let (first, other) = (bed.connect(0, Entry), bed.connect(0, Entry));
    subscribe_to_many(&mut bed, first, "PSUBSCRIBE", PATTERNS_MAX - 1, 5);
    let refused = format!("-ERR clients may subscribe to {PATTERNS_MAX} patterns\r\n");
    assert_eq!(bed.ask(other, &["PSUBSCRIBE a b 00001"]), refused);
    assert!(bed.ask(other, &["CLIENT INFO"]).contains(" psub=0 "));
    let told = bed.ask(other, &["PSUBSCRIBE a a 00001"]);
    assert!(told.ends_with(":2\r\n"), "{told}");
    let publisher = bed.connect(1, Entry);
    assert_eq!(bed.ask(publisher, &["PUBLISH 00001 x"]), ":2\r\n");
    bed.take(first);
    assert_eq!(bed.ask(first, &["PSUBSCRIBE b"]), refused);
}

/// Hundreds of thousands of long names took seconds.
#[test]
fn a_long_pattern_is_not_compared_with_any_number_of_channels() {
    let mut bed = Bed::new(1, &[]);
    let (client, other) = (bed.connect(0, Direct), bed.connect(0, Direct));
    let long = "a".repeat(1_000);
    for chunk in 0..100 {
        let names: Vec<String> = (0..50).map(|n| format!("{long}{chunk}:{n}")).collect();
        bed.ask(client, &[&format!("SUBSCRIBE {}", names.join(" "))]);
    }
    let hostile = format!("PUBSUB CHANNELS *{}b", &long[..900]);
    let refused = bed.ask(other, &[&hostile]);
    assert!(
        refused.starts_with("-ERR there are too many channels"),
        "{refused}"
    );
    let found = bed.ask(other, &["PUBSUB CHANNELS *a0:7"]);
    assert!(found.starts_with("*1\r\n$1003\r\n"), "{found}");
    let none = bed.ask(other, &[&format!("PUBSUB CHANNELS b{long}")]);
    assert_eq!(none, "*0\r\n", "it is seen at once");
}

/// What a script publishes has to be a request that other shards take.
#[test]
fn a_script_publishes_no_more_than_a_client_may() {
    let mut bed = Bed::new(2, &[]);
    let (subscriber, publisher) = (bed.connect(1, Entry), bed.connect(0, Entry));
    bed.ask(subscriber, &["SUBSCRIBE c"]);
    for word in ["PUBLISH", "SPUBLISH"] {
        let framing = 64;
        for (bytes, expected) in [
            (QUERY_BYTES_MAX - 24, "-ERR"),
            (QUERY_BYTES_MAX - framing - 12, ":"),
        ] {
            let script = format!("return redis.call('{word}', 'c', string.rep('x', {bytes}))");
            bed.send_bytes(publisher, &command(&["EVAL", &script, "0"]));
            bed.settle();
            let reply = bed.take(publisher);
            assert!(reply.starts_with(expected), "{word} {bytes}: {reply:.200}");
        }
    }
}
