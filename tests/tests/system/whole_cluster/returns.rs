//! Nodes that come back other than they went: with other shards, another cluster's data, or none.

use std::collections::BTreeSet;

use ephesus_tests::{Node, Options, TestCluster, paths};

use super::{NAMES, NINE, SERVES_WITHIN, check, fill, key, ownership, row_of};

const KEYS: u64 = 300;

#[test]
fn partitions_spread_over_another_number_of_shards() {
    let mut whole = TestCluster::started(&["--partitions", "24"], &NAMES, 2);
    let mut client = whole.client();
    fill(&mut client, 0..KEYS);
    let mut before = whole.table();
    for (shards, clean) in [(4, true), (1, false), (3, false)] {
        let node = whole.node("byzantium");
        if clean {
            node.stop();
        } else {
            node.kill();
        }
        node.options.shards = shards;
        node.restart();
        whole.until_healthy();
        let table = whole.table();
        let own = table.iter().filter(|row| row.node == "byzantium");
        let spread: BTreeSet<u16> = own.clone().map(|row| row.shard).collect();
        assert_eq!(spread, (0..shards).collect());
        for (row, before) in table.iter().zip(&before) {
            assert_eq!(row.node, before.node, "no partition leaves its node");
            let grows = row.node == "byzantium";
            assert_eq!(row.epoch, before.epoch + u64::from(grows), "{row:?}");
        }
        // One that knew the old shards, and one that knows none.
        for client in [&mut client, &mut whole.client()] {
            for n in 0..KEYS {
                let reply = client.insist(&["GET", &key(n)], SERVES_WITHIN);
                assert_eq!(reply.text(), n.to_string(), "{}", key(n));
            }
        }
        before = table;
    }
    fill(&mut client, KEYS..2 * KEYS);
    check(&mut whole.client(), 0..2 * KEYS);
}

#[test]
fn data_of_another_cluster_is_refused() {
    let mut other = Node::start(Options::default());
    other.client().say("SET a 1");
    other.stop();
    let mut whole = TestCluster::started(&NINE, &NAMES[..1], 1);
    let before = whole.table();
    let data = other.data_dir().to_path_buf();
    let options = Options {
        partitions: None,
        ..whole.options("intruder", 2)
    };
    let mut intruder = Node::stopped_at(options, paths::scratch(), data);
    let refused = intruder.start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(&["belongs to another cluster", "coordinator at"]);
    assert_eq!(whole.table(), before);
    assert_eq!(whole.statuses().len(), 1, "nobody has joined");
    assert_eq!(whole.node("athens").client().say("PING").text(), "PONG");
    // Its data is as it was.
    other.restart();
    assert_eq!(other.client().say("GET a").text(), "1");
}

#[test]
fn an_empty_disk_under_an_old_name_is_a_new_node() {
    let mut whole = TestCluster::started(&NINE, &NAMES, 1);
    fill(&mut whole.client(), 0..KEYS);
    let before = whole.table();
    whole.node("cyrene").kill();
    // The old one has not failed yet: the new one waits for that, and joins.
    whole.add("cyrene", 1).spawn();
    whole.core.until("both are known", |core| {
        let rows = core.json("nodes");
        let rows = rows.as_array().expect("rows");
        let named = rows.iter().filter(|row| row["name"] == "cyrene");
        let mut statuses: Vec<_> = named.filter_map(|row| row["status"].as_str()).collect();
        statuses.sort_unstable();
        statuses == ["failed", "live"]
    });
    whole.node("cyrene").wait_ready().expect("it serves");
    let output = whole.node("cyrene").process().output();
    assert!(!output.contains("panicked"), "{output}");
    let table = whole.table();
    assert_eq!(ownership(&table), ownership(&before), "it owns nothing");
    let rows = whole.core.json("nodes");
    let rows = rows.as_array().expect("rows").clone();
    let lost = rows
        .iter()
        .find(|row| row["status"] == "failed")
        .expect("the old one");
    assert_eq!(lost["partitions"], 3);
    let id = lost["id"].as_str().expect("an id");

    let told = whole.core.ask(&["node", "remove", "cyrene", "--yes"]);
    told.assert(1, &["2 nodes are called cyrene", id]);
    whole
        .core
        .ask(&["node", "remove", id, "--yes"])
        .assert(0, &["lost for good"]);
    whole.until_healthy();
    let table = whole.table();
    let mut client = whole.client();
    for n in 0..KEYS {
        let is_lost = row_of(&before, &key(n)).node == "cyrene";
        let reply = client.insist(&["GET", &key(n)], SERVES_WITHIN);
        assert_eq!(reply.is_nil(), is_lost, "{}: {reply:?}", key(n));
    }
    for (row, before) in table.iter().zip(&before) {
        let was_lost = before.node == "cyrene";
        assert_eq!(row.epoch, before.epoch + u64::from(was_lost), "{row:?}");
        assert_eq!(row.status, "online");
    }
    // The old disk again: what replaced it is newer.
    let old = &mut whole.nodes[2];
    let refused = old.start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(&["was removed from the cluster", "empty data directory"]);
    fill(&mut client, 0..KEYS);
    check(&mut whole.client(), 0..KEYS);
}
