//! Two nodes with logs as small as they may be: what else is on their disks is seen beside them.

use ephesus_tests::disk::allocated_bytes;
use ephesus_tests::{Node, Options, Whole};

use super::bed::NAMES;

/// The smallest one.
const WAL_BUDGET: u64 = 64 << 20;

/// What a list of a log's files takes at most here: much less than a segment.
const LIST_BYTES: u64 = 64 << 10;

/// Nodes of one shard each, once every partition is online; `flags` are for the coordinators.
pub fn started(flags: &[&str]) -> Whole {
    Whole::started_with(flags, &NAMES, |whole, name| Options {
        wal_budget: Some(WAL_BUDGET),
        ..whole.options(name, 1)
    })
}

/// Bytes on disk beside the logs, which are within their budget.
pub fn stored(node: &Node) -> u64 {
    let logs = allocated_bytes(&node.data_dir().join("logs"));
    // The list of a log's files lies beside its segments.
    assert!(logs <= WAL_BUDGET + LIST_BYTES, "logs of {logs} bytes");
    allocated_bytes(node.data_dir()) - logs
}
