//! `CLUSTER SLOT-STATS` beside Valkey, and at the entry port of several shards.

use std::collections::BTreeMap;

use ephesus_tests::oracle::Oracle;
use ephesus_tests::slots::slot;
use ephesus_tests::{Client, Node, Options, Reply};

/// What is asked wrongly, and what there is nothing counted for.
const ASKED: [&str; 25] = [
    "CLUSTER SLOT-STATS",
    "CLUSTER SLOT-STATS SLOTSRANGE",
    "CLUSTER SLOT-STATS SLOTSRANGE 1",
    "CLUSTER SLOT-STATS SLOTSRANGE 1 2 3",
    "CLUSTER SLOT-STATS SLOTSRANGE 1 0",
    "CLUSTER SLOT-STATS SLOTSRANGE 0 16384",
    "CLUSTER SLOT-STATS SLOTSRANGE -1 4",
    "CLUSTER SLOT-STATS SLOTSRANGE x 4",
    "CLUSTER SLOT-STATS SLOTSRANGE 7 9",
    "cluster slot-stats slotsrange 16383 16383",
    "CLUSTER SLOT-STATS ORDERBY",
    "CLUSTER SLOT-STATS ORDERBY NOSUCH",
    "CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT",
    "CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 0",
    "CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT x",
    "CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 16385",
    "CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 2 LIMIT 3",
    "CLUSTER SLOT-STATS ORDERBY KEY-COUNT ASC DESC",
    "CLUSTER SLOT-STATS ORDERBY KEY-COUNT NOSUCH",
    "CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 3",
    "CLUSTER SLOT-STATS ORDERBY KEY-COUNT ASC LIMIT 3",
    "CLUSTER SLOT-STATS ORDERBY CPU-USEC LIMIT 1",
    "CLUSTER SLOT-STATS ORDERBY NETWORK-BYTES-IN LIMIT 3 DESC",
    "CLUSTER SLOT-STATS ORDERBY NETWORK-BYTES-OUT LIMIT 3 DESC",
    "CLUSTER SLOT-STATS NOSUCH 1",
];

const USED: [&str; 17] = [
    "SET {a}1 12345",
    "SET {a}2 1",
    "GET {a}1",
    "GET {a}1",
    "MSET {b}1 x {b}2 yyyyyyyyyyyyyyyyyyyy",
    "MGET {b}1 {b}2 {b}3",
    "SET c 1",
    "INCR c",
    "STRLEN {a}1",
    "SET gone 1",
    "DEL gone",
    "GET nosuchkey",
    "EXISTS {b}1 {b}2",
    // What fails counts, too.
    "SET d text",
    "INCR d",
    "SET d 1 NX XX",
    "GETRANGE d x 1",
];

fn enable(client: &mut Client, word: &str) {
    let set = ["CONFIG", "SET", "cluster-slot-stats-enabled", word];
    assert_eq!(client.call(&set), Reply::ok());
}

/// What a row says of a slot, but for the CPU time, which is only there or not.
fn row(client: &mut Client, slot: u16) -> BTreeMap<String, i64> {
    let reply = client.say(&format!("CLUSTER SLOT-STATS SLOTSRANGE {slot} {slot}"));
    let row = reply.items()[0].items();
    assert_eq!(row[0].integer(), i64::from(slot));
    let fields = row[1].items();
    let pairs = fields.chunks(2);
    let pairs = pairs.map(|pair| (pair[0].text(), pair[1].integer()));
    let mut row: BTreeMap<String, i64> = pairs.collect();
    if let Some(usec) = row.get_mut("cpu-usec") {
        *usec = 0;
    }
    row
}

#[test]
fn slots_of_a_direct_port_are_told_as_valkey_tells_them() {
    let oracle = Oracle::valkey_cluster();
    let node = Node::start(Options {
        shards: 1,
        ..Options::default()
    });
    let (mut ours, mut theirs) = (node.direct_client(0), oracle.client());
    for word in ["no", "yes"] {
        enable(&mut ours, word);
        enable(&mut theirs, word);
        for asked in ASKED {
            assert_eq!(ours.say(asked), theirs.say(asked), "{asked}, {word}");
        }
        for used in USED {
            assert_eq!(ours.say(used), theirs.say(used), "{used}");
        }
        for key in ["a", "b", "c", "d", "gone", "nosuchkey", "other"] {
            let slot = slot(key.as_bytes());
            assert_eq!(
                row(&mut ours, slot),
                row(&mut theirs, slot),
                "{key}, {word}"
            );
        }
    }
    // What was counted stays, also while nothing is.
    for word in ["no", "yes"] {
        enable(&mut ours, word);
        enable(&mut theirs, word);
        assert_eq!(ours.say("GET {a}1"), theirs.say("GET {a}1"));
        let slot = slot(b"a");
        assert_eq!(row(&mut ours, slot), row(&mut theirs, slot), "{word}");
    }
    for asked in [
        "CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 4 DESC",
        "CLUSTER SLOT-STATS ORDERBY NETWORK-BYTES-IN LIMIT 5",
        "CLUSTER SLOT-STATS ORDERBY NETWORK-BYTES-OUT LIMIT 5",
    ] {
        let slots = |client: &mut Client| -> Vec<i64> {
            let rows = client.say(asked).items();
            rows.iter().map(|row| row.items()[0].integer()).collect()
        };
        assert_eq!(slots(&mut ours), slots(&mut theirs), "{asked}");
    }
    let info = "COMMAND INFO CLUSTER|SLOT-STATS";
    assert_eq!(ours.say(info), theirs.say(info));
    for client in [&mut ours, &mut theirs] {
        assert_eq!(client.call(&["CONFIG", "RESETSTAT"]), Reply::ok());
        assert_eq!(row(client, slot(b"a"))["network-bytes-in"], 0);
        assert_eq!(row(client, slot(b"a"))["key-count"], 2);
    }
}

#[test]
fn slots_of_all_shards_are_told_at_the_entry_port_and_its_own_by_each() {
    let node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    let mut client = node.client();
    enable(&mut client, "yes");
    let mut keys = BTreeMap::<u16, i64>::new();
    for n in 0..300 {
        let key = format!("key:{n}");
        *keys.entry(slot(key.as_bytes())).or_default() += 1;
        assert_eq!(client.call(&["SET", &key, "12345"]), Reply::ok());
    }
    let rows = client.say("CLUSTER SLOT-STATS SLOTSRANGE 0 16383").items();
    assert_eq!(rows.len(), 16384);
    for (slot, row) in (0..).zip(&rows) {
        let row = row.items();
        assert_eq!(row[0].integer(), i64::from(slot));
        let count = row[1].field("key-count").expect("a number").integer();
        assert_eq!(count, keys.get(&slot).copied().unwrap_or(0), "{slot}");
        let bytes_out = row[1].field("network-bytes-out").expect("a number");
        assert_eq!(bytes_out.integer(), 5 * count, "+OK of each");
    }
    let asked = "CLUSTER SLOT-STATS ORDERBY KEY-COUNT LIMIT 2 DESC";
    let top = client.say(asked).items();
    let mut expected: Vec<(i64, u16)> = keys.iter().map(|(slot, n)| (-n, *slot)).collect();
    expected.sort_unstable();
    for (row, (_, slot)) in top.iter().zip(expected) {
        assert_eq!(row.items()[0].integer(), i64::from(slot));
    }
    let of_shards = (0..3).map(|shard| {
        let rows = node
            .direct_client(shard)
            .say("CLUSTER SLOT-STATS SLOTSRANGE 0 16383");
        rows.items().len()
    });
    let of_shards: Vec<usize> = of_shards.collect();
    assert_eq!(of_shards.iter().sum::<usize>(), 16384, "{of_shards:?}");
    assert!(
        of_shards.iter().all(|slots| *slots > 5_000),
        "{of_shards:?}"
    );
}
