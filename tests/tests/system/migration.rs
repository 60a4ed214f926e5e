//! Partitions that move between nodes that serve: nobody sees an error, and nothing is lost.

pub(crate) mod bed;
mod cancelled;
mod cuts;
mod deaths;
mod full_disk;
mod hot;
mod joining;
mod keyless;
mod load;
mod long_moves;
mod pauses;
mod placement;
mod resharded;
mod sealed;
mod shapes;
mod small_logs;
mod stock;
mod traces;
mod undecided;

use std::collections::BTreeMap;

use ephesus_tests::Rng;
use ephesus_tests::whole::Row;
use ephesus_tests::{Reply, TestCluster};
use serde_json::Value;

use self::load::Load;

/// Nine partitions, of which neighbours belong to different nodes.
const NINE: [&str; 4] = ["--partitions", "9", "--assignment", "round-robin"];

const NAMES: [&str; 3] = ["athens", "byzantium", "cyrene"];

/// Commands between two moves.
const BETWEEN: u64 = 500;

/// Where a partition is.
fn place(whole: &TestCluster, partition: u16) -> (String, u16) {
    let row = row(whole, partition);
    (row.node, row.shard)
}

fn row(whole: &TestCluster, partition: u16) -> Row {
    let table = whole.table();
    let row = table.into_iter().find(|row| row.partition == partition);
    row.expect("a partition")
}

/// A move by order is one attempt: it is ordered again, so often at most, where a disk that stands still
/// has made the hold take too long.
const ORDERS_MAX: usize = 3;

/// What a move failed for whose hold took too long.
const LATE: &str = "has not confirmed within";

/// Has a partition moved, and waits for it.
fn move_to(whole: &TestCluster, partition: u16, node: &str, shard: u16) {
    let before = row(whole, partition).epoch;
    let (number, to) = (partition.to_string(), format!("{node}/{shard}"));
    let order = || {
        let words = ["move", "--partition", &number, "--to", &to, "--wait"];
        whole.core.ask(&words)
    };
    let mut told = order();
    for _ in 1..ORDERS_MAX {
        if told.code == Some(1) && told.err.contains(LATE) {
            told = order();
        }
    }
    told.assert(0, &[]);
    let after = row(whole, partition);
    assert_eq!((&*after.node, after.shard), (node, shard));
    assert_eq!(after.epoch, before + 1);
    assert_eq!(after.status, "online");
}

/// Partitions by owner.
fn owned(whole: &TestCluster) -> BTreeMap<String, usize> {
    let mut owned = BTreeMap::new();
    for row in whole.table() {
        *owned.entry(row.node).or_default() += 1;
    }
    owned
}

/// Asserts that every migration there was has succeeded, and answers how many. On a machine whose disk
/// stands still for too long one may have been tried, or ordered, again.
fn all_committed(whole: &TestCluster) -> usize {
    let report = whole.core.json("migrations");
    let mut rows = report["migrations"].as_array().expect("rows").clone();
    let is_next = |row: &serde_json::Value, of: &serde_json::Value| {
        row["partition"] == of["partition"]
            && row["id"].as_u64() > of["id"].as_u64()
            && [of["attempt"].as_u64().map(|attempt| attempt + 1), Some(1)]
                .contains(&row["attempt"].as_u64())
    };
    let is_late = |row: &serde_json::Value| {
        let error = row["last_error"].as_str().unwrap_or_default();
        row["state"] == "aborted" && error.contains(LATE)
    };
    let all = rows.clone();
    rows.retain(|row| !(is_late(row) && all.iter().any(|other| is_next(other, row))));
    for row in &rows {
        assert_eq!(row["state"], "committed", "{row}");
        assert!(row["attempt"] != 1 || row["last_error"] == "", "{row}");
    }
    let mut held: Vec<u64> = rows
        .iter()
        .filter_map(|row| row["hold_us"].as_u64())
        .collect();
    held.sort_unstable();
    eprintln!("commands were held for so many us: {held:?}");
    rows.len()
}

#[test]
fn partitions_move_between_nodes_while_they_are_written() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("migration"));
    let mut whole = TestCluster::started(&NINE, &NAMES, 2);
    let load = Load::start(&whole.entries(), &mut rng);
    load.goes_on(5 * BETWEEN);
    let mut moves = 0;
    for round in 0..3 {
        for partition in [0, 4, 8] {
            let (node, shard) = place(&whole, partition);
            let others: Vec<&str> = NAMES.into_iter().filter(|name| *name != node).collect();
            let to = *rng.pick(&others);
            move_to(&whole, partition, to, (shard + round) % 2);
            moves += 1;
            load.goes_on(BETWEEN);
        }
    }
    let mut outcome = load.finish();
    outcome.verify(&whole);
    assert!(outcome.moved > 0, "clients have followed");
    assert_eq!(all_committed(&whole), moves);
    // What every node has is what it says after a start, too.
    for node in &mut whole.nodes {
        node.stop();
        node.restart();
    }
    whole.until_healthy();
    outcome.verify(&whole);
}

#[test]
fn a_partition_moves_between_the_shards_of_a_node_while_it_is_written() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("migration within a node"));
    let mut whole = TestCluster::started(&["--partitions", "4"], &["athens"], 2);
    let load = Load::start(&whole.entries(), &mut rng);
    load.goes_on(5 * BETWEEN);
    for _ in 0..6 {
        for partition in 0..2 {
            let (_, shard) = place(&whole, partition);
            move_to(&whole, partition, "athens", 1 - shard);
            load.goes_on(BETWEEN);
        }
    }
    let mut outcome = load.finish();
    outcome.verify(&whole);
    assert_eq!(outcome.moved, 0, "the entry port is the node");
    assert_eq!(all_committed(&whole), 12);
    whole.nodes[0].kill();
    whole.nodes[0].restart();
    whole.until_healthy();
    outcome.verify(&whole);
}

#[test]
fn a_fourth_node_gets_its_share_and_an_old_one_is_emptied() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("rebalance"));
    let flags = ["--partitions", "32"];
    let mut whole = TestCluster::started(&flags, &NAMES, 2);
    let load = Load::start(&whole.entries(), &mut rng);
    load.goes_on(5 * BETWEEN);
    whole.add("delphi", 2).restart();
    whole.core.ask(&["rebalance", "--wait"]).assert(0, &[]);
    assert_eq!(owned(&whole)["delphi"], 8);
    load.goes_on(BETWEEN);
    let told = whole.core.ask(&["drain", "athens", "--wait"]);
    told.assert(0, &[]);
    assert_eq!(owned(&whole).get("athens"), None);
    load.goes_on(BETWEEN);
    let mut outcome = load.finish();
    outcome.verify(&whole);
    all_committed(&whole);
    let mut athens = whole.node("athens").client();
    assert_eq!(athens.say("DBSIZE"), Reply::Integer(0));
    whole.node("athens").stop();
    whole.until_node_is("athens", "failed");
    let told = whole.core.ask(&["node", "remove", "athens", "--yes"]);
    told.assert(0, &[]);
    outcome.verify(&whole);
}

/// Keys and value bytes that make a partition take seconds at 1 MB per second.
const LARGE: (u64, usize) = (3_000, 4_096);

/// Writes large values into every partition of the cluster, and answers how they are read.
fn fill(whole: &TestCluster, seed: u64) -> Vec<(String, Vec<u8>)> {
    let mut rng = Rng::new(seed);
    let mut client = whole.client();
    let pairs: Vec<(String, Vec<u8>)> = (0..LARGE.0)
        .map(|n| (format!("large:{n}"), rng.bytes(LARGE.1)))
        .collect();
    for (key, value) in &pairs {
        let words = [b"SET", key.as_bytes(), value];
        assert_eq!(client.call(&words), Reply::ok(), "{key}");
    }
    pairs
}

fn assert_filled(whole: &TestCluster, pairs: &[(String, Vec<u8>)]) {
    let mut client = whole.client();
    for (key, value) in pairs {
        let reply = client.call(&["GET", key]);
        assert!(reply == Reply::bulk(value), "{key}");
    }
}

/// How many migrations are in this state.
fn in_state(whole: &TestCluster, state: &str) -> usize {
    let report = whole.core.json("migrations");
    let rows = report["migrations"].as_array().expect("rows").iter();
    rows.filter(|row| row["state"] == state).count()
}

/// Migrations of which a part is sent and the rest is not decided.
fn half_done(whole: &TestCluster) -> usize {
    let report = whole.core.json("migrations");
    let rows = report["migrations"].as_array().expect("rows").iter();
    let is_half = |row: &&Value| row["state"] == "copying" && row["bytes"].as_u64() > Some(0);
    rows.filter(is_half).count()
}

#[test]
fn a_node_that_dies_in_the_middle_of_moves_costs_nothing_but_time() {
    let seed = ephesus_tests::seed_of_run("death during moves");
    for (round, victim) in ["athens", "byzantium"].into_iter().enumerate() {
        let mut whole = TestCluster::started(&["--partitions", "4"], &["athens"], 2);
        let pairs = fill(&whole, seed + round as u64);
        whole.add("byzantium", 2).restart();
        whole
            .core
            .ask(&["rebalance", "--limit", "1"])
            .assert(0, &[]);
        whole
            .core
            .until("two partitions move", |_| in_state(&whole, "copying") == 2);
        whole
            .core
            .until("one is half done", |_| half_done(&whole) > 0);
        whole.node(victim).kill();
        whole.node(victim).restart();
        whole
            .core
            .until("they have failed", |_| in_state(&whole, "aborted") == 2);
        assert_filled(&whole, &pairs);
        let told = whole.core.ask(&["rebalance", "--wait", "--limit", "0"]);
        told.assert(0, &[]);
        assert_eq!(owned(&whole)["byzantium"], 2, "{victim} was killed");
        assert_filled(&whole, &pairs);
        for node in &mut whole.nodes {
            node.kill();
            node.restart();
        }
        whole.until_healthy();
        assert_filled(&whole, &pairs);
    }
}
