//! Two nodes with logs as small as they may be: what else is on their disks is seen beside them.

use ephesus_tests::disk::{allocated_bytes, segment_bytes};
use ephesus_tests::{Node, Options, TestCluster};

use super::bed::NAMES;

/// The smallest one.
const WAL_BUDGET: u64 = 64 << 20;

/// Nodes of one shard each, once every partition is online; `flags` are for the coordinators.
pub fn started(flags: &[&str]) -> TestCluster {
    started_under(&[], flags)
}

/// The same with nodes that run under another program.
pub fn started_under(wrapper: &[&str], flags: &[&str]) -> TestCluster {
    TestCluster::started_with(flags, &NAMES, |whole, name| Options {
        wal_budget: Some(WAL_BUDGET),
        wrapper: wrapper.iter().map(|word| (*word).to_owned()).collect(),
        ..whole.options(name, 1)
    })
}

/// Bytes on disk beside the logs, which are within their budget.
pub fn stored(node: &Node) -> u64 {
    let dir = node.data_dir().join("logs");
    let segments = segment_bytes(&dir);
    assert!(segments <= WAL_BUDGET, "logs of {segments} bytes");
    let logs = allocated_bytes(&dir);
    allocated_bytes(node.data_dir()) - logs
}
