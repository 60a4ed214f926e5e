//! Three coordinators and named nodes as processes: how they become one cluster, what clients see
//! of it, and what they see of the loss of any part.

use std::collections::BTreeSet;
use std::time::Duration;

use ephesus_tests::roaming::Roaming;
use ephesus_tests::slots::{SLOTS, slot};
use ephesus_tests::whole::Row;
use ephesus_tests::{Reply, TestCluster};

mod alone;
mod coordinators;
mod cut;
mod deposed;
mod golden;
mod losses;
mod messages;
mod returns;
mod rolling;
mod slot_moves;

/// The nodes that every test has.
const NAMES: [&str; 3] = ["athens", "byzantium", "cyrene"];

/// Nine partitions, of which neighbours belong to different nodes.
const NINE: [&str; 4] = ["--partitions", "9", "--assignment", "round-robin"];

/// A node that is lost counts as failed within this time.
const FAILED_WITHIN: Duration = Duration::from_secs(3);

/// Nodes without a lease stop to serve within this time; a lease is half of the timeout of 2 s.
const LEASE_LOST_WITHIN: Duration = Duration::from_millis(1500);

/// What is stopped and goes on serves again within this time, on a machine that others use as well.
const SERVES_WITHIN: Duration = Duration::from_secs(10);

fn key(n: u64) -> String {
    format!("key:{n}")
}

/// Writes the keys of these numbers.
fn fill(client: &mut Roaming, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let reply = client.call(&["SET", &key(n), &n.to_string()]);
        assert_eq!(reply, Reply::ok(), "{}", key(n));
    }
}

/// Reads the keys of these numbers, which [`fill`] has written.
fn check(client: &mut Roaming, numbers: impl IntoIterator<Item = u64>) {
    for n in numbers {
        let reply = client.call(&["GET", &key(n)]);
        assert_eq!(reply, Reply::bulk(n.to_string()), "{}", key(n));
    }
}

/// The row that a key belongs to.
fn row_of<'a>(table: &'a [Row], key: &str) -> &'a Row {
    let slot = slot(key.as_bytes());
    let mut rows = table.iter();
    rows.find(|row| (row.slots.0..=row.slots.1).contains(&slot))
        .expect("every slot has a row")
}

/// A key in a partition of this node; `salt` gives others.
fn key_of(table: &[Row], node: &str, salt: u64) -> String {
    let mut keys = (0..).map(|n| format!("{salt}:{n}"));
    keys.find(|key| row_of(table, key).node == node)
        .expect("a node with a partition")
}

/// The slots of a node's partitions.
fn slots_of(table: &[Row], node: &str) -> BTreeSet<u16> {
    let own = table.iter().filter(|row| row.node == node);
    own.flat_map(|row| row.slots.0..=row.slots.1).collect()
}

/// Who owns what under which epoch, whatever its status.
fn ownership(table: &[Row]) -> Vec<(u16, String, u16, u64)> {
    let rows = table.iter();
    rows.map(|row| (row.partition, row.node.clone(), row.shard, row.epoch))
        .collect()
}

/// Whether the node answers a key of its own as one without a lease.
fn is_down(reply: &Reply) -> bool {
    reply
        .error()
        .is_some_and(|text| text.starts_with("CLUSTERDOWN"))
}

/// A key of each node, asked at the node itself.
fn own_keys(whole: &TestCluster) -> Vec<(usize, String)> {
    let table = whole.table();
    let nodes = whole.nodes.iter().enumerate();
    let name = |index: usize| whole.nodes[index].options.name.clone().expect("a name");
    nodes
        .map(|(index, _)| (index, key_of(&table, &name(index), 0)))
        .collect()
}

/// The number of slots that the table's rows cover.
fn assert_complete(table: &[Row]) {
    let slots: BTreeSet<u16> = table
        .iter()
        .flat_map(|row| row.slots.0..=row.slots.1)
        .collect();
    assert_eq!(slots.len(), usize::from(SLOTS));
}
