//! Two shards of one node without the node: it is played by the tests, and so are clients and disks.

mod batches;
mod bed;
mod endings;
mod holding;
mod planted;
mod sealed;
mod whole;
