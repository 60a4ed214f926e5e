//! What clients see of all keys, and of several at once, while a partition is on its way between two nodes: it is
//! at the one or at the other.

use std::collections::BTreeSet;
use std::time::Duration;

use ephesus_tests::slots::slot;
use ephesus_tests::{Reply, TestCluster};

use super::shapes::names;
use super::{all_committed, half_done, in_state, place};

/// Four partitions of about 2 MB each, of which one takes two seconds.
const FLAGS: [&str; 2] = ["--partitions", "4"];
const KEYS: u64 = 8_000;
const VALUE_BYTES: usize = 1_000;
const LIMIT: &str = "1";

const MOVED_WITHIN: Duration = Duration::from_secs(30);

fn key(n: u64) -> String {
    format!("key:{n}")
}

/// Two nodes with all keys, and a partition that is copied to a third one.
fn moving() -> (TestCluster, u16) {
    let mut whole = TestCluster::started(&FLAGS, &["athens", "byzantium"], 1);
    let mut client = whole.client();
    let value = "v".repeat(VALUE_BYTES);
    for n in 0..KEYS {
        assert_eq!(client.call(&["SET", &key(n), &value]), Reply::ok());
    }
    whole.add("cyrene", 1).restart();
    let limited = whole.core.ask(&["rebalance", "--limit", LIMIT]);
    limited.assert(0, &[]);
    assert!(limited.out.contains("1 move planned"), "{}", limited.out);
    let partition = whole.core.json("migrations")["migrations"][0]["partition"].as_u64();
    let partition = partition.expect("a migration") as u16;
    whole.within(MOVED_WITHIN, "something is copied", |whole| {
        in_state(whole, "copying") == 1
    });
    (whole, partition)
}

fn until_moved(whole: &TestCluster, partition: u16) {
    let unlimited = whole.core.ask(&["rebalance", "--limit", "0"]);
    unlimited.assert(0, &[]);
    whole.within(MOVED_WITHIN, "the move", |whole| {
        place(whole, partition).0 == "cyrene" && in_state(whole, "copying") == 0
    });
    assert_eq!(all_committed(whole), 1);
}

#[test]
fn scans_and_commands_of_many_keys_see_each_key_once_while_it_moves() {
    let (whole, partition) = moving();
    let all: BTreeSet<Vec<u8>> = (0..KEYS).map(|n| key(n).into_bytes()).collect();
    let mut client = whole.client();
    let tagged = (0..1_000).map(|n| format!("{{{n}}}:a"));
    let mut tagged = tagged.filter(|name| slot(name.as_bytes()) / 4_096 == partition);
    let tagged = tagged.next().expect("a key of the partition");
    let other = tagged.replace(":a", ":b");
    let mut looks = 0;
    while in_state(&whole, "copying") == 1 && looks < 3 {
        assert_eq!(whole.count_keys(), KEYS, "look {looks}");
        assert_eq!(names(&whole), all, "look {looks}");
        let pairs = ["MSET", &tagged, "one", &other, "two"];
        assert_eq!(client.call(&pairs), Reply::ok());
        let both = client.call(&["MGET", &tagged, &other]).items();
        assert_eq!(both, [Reply::bulk("one"), Reply::bulk("two")]);
        assert_eq!(client.call(&["DEL", &tagged, &other]).integer(), 2);
        looks += 1;
    }
    assert!(looks >= 2, "only {looks} looks while it was copied");
    until_moved(&whole, partition);
    assert_eq!(whole.count_keys(), KEYS);
    assert_eq!(names(&whole), all);
}

#[test]
fn what_was_flushed_while_it_moved_does_not_come_back() {
    let (whole, partition) = moving();
    whole
        .core
        .until("part of it is there", |_| half_done(&whole) == 1);
    for node in &whole.nodes {
        assert_eq!(node.client().say("FLUSHALL"), Reply::ok());
    }
    assert_eq!(whole.count_keys(), 0);
    let mut client = whole.client();
    for n in 0..100 {
        assert_eq!(client.call(&["SET", &key(n), "anew"]), Reply::ok());
    }
    until_moved(&whole, partition);
    assert_eq!(whole.count_keys(), 100);
    assert_eq!(names(&whole).len(), 100);
    for n in 0..KEYS {
        let value = client.call(&["GET", &key(n)]);
        let is_right = match n < 100 {
            true => value == Reply::bulk("anew"),
            false => value.is_nil(),
        };
        assert!(is_right, "{n}: {value:?}");
    }
}
