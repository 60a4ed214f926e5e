use std::time::Duration;

use crate::net::ListenerKind::Entry;
use crate::shard::bed::{Bed, Client, command, key};

/// Uses of the shard's keys by a command, the bytes of it, and those of its answer.
fn used(bed: &mut Bed, client: Client, words: &[&str]) -> (String, [u64; 3]) {
    bed.core(0).keyspace.take_load(Duration::ZERO, |_, _| {});
    bed.send_bytes(client, &command(words));
    bed.settle();
    let mut used = [0; 3];
    bed.core(0).keyspace.take_load(Duration::ZERO, |_, amount| {
        used = [amount.ops, amount.bytes_in, amount.bytes_out];
    });
    (bed.take(client), used)
}

#[test]
fn bytes_are_those_that_clients_send_whatever_their_database_is() {
    let mut bed = Bed::new(1, &[]);
    let client = bed.connect(0, Entry);
    let key = key(0, 0);
    let long = format!("{{{key}}}{}", "x".repeat(95));
    let commands = [
        &["SET", &key, "1"][..],
        &["GET", &long],
        &["MGET", &key, &long, &key],
        &[
            "EVAL",
            "return redis.call('GET', KEYS[1])",
            "2",
            &key,
            &long,
        ],
        &["COPY", &key, &long, "DB", "2", "REPLACE"],
    ];
    for database in ["SELECT 0", "SELECT 1", "SELECT 15"] {
        bed.ask(client, &[database]);
        for words in commands {
            let (answer, [_, bytes_in, bytes_out]) = used(&mut bed, client, words);
            let bytes = [command(words).len() as u64, answer.len() as u64];
            assert_eq!([bytes_in, bytes_out], bytes, "{database}: {words:?}");
        }
    }
}

#[test]
fn commands_that_fail_count_at_their_keys() {
    let mut bed = Bed::new(1, &[]);
    let client = bed.connect(0, Entry);
    let key = key(0, 0);
    bed.ask(client, &[&format!("SET {key} text")]);
    let calls = "return redis.call('INCR', KEYS[1])";
    for words in [
        &["INCR", &key][..],
        &["SET", &key, "1", "NX", "XX"],
        &["EVAL", calls, "1", &key],
        &["EVAL", "return no", "1", &key],
        &["EVAL", "not a script", "1", &key],
        &["EVALSHA", "0", "1", &key],
    ] {
        let (answer, used) = used(&mut bed, client, words);
        assert!(answer.starts_with('-'), "{answer}");
        let bytes = [command(words).len(), answer.len()];
        assert_eq!(used, [1, bytes[0] as u64, bytes[1] as u64], "{words:?}");
    }
    // What there is no memory for.
    let live = &bed.core(0).node.live;
    live.apply(crate::command::config::Change::MaxMemory(
        crate::command::config::Memory(1),
    ));
    bed.core(0).stats().memory_bytes.set(2);
    let (answer, used) = used(&mut bed, client, &["SET", &key, "1"]);
    assert!(answer.starts_with("-OOM"), "{answer}");
    assert_eq!(used[0], 1);
}
