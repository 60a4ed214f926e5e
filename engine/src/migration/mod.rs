//! A migration moves one partition from its shard, the source, to another shard, the target, while clients use it.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`batch`] | migrations that are begun, streamed, held and decided together |
//! | [`ends`] | both ends of the stream without I/O: what to send, what to do with what arrives |
//! | [`shard`] | both ends as a shard drives them: streams, windows, holds, the share of time |
//! | [`node`] | what the main thread of a node does for them: orders for its shards, steps for the coordinator |
//! | [`slots`] | the commands by which clients migrate slots |
//!
//! Elsewhere, for it is on the path of every command: `shard::core::admission::{holds, deferred}` hold commands while
//! their partition moves, and `shard::core::routing::relay` passes them on. `ephesus_wire::stream` has the messages, `ephesus_coordinator::migration` decides.

pub mod batch;
pub mod ends;
pub mod node;
pub mod shard;
pub mod slots;

pub use batch::Batch;
pub use ends::{
    Incoming, Order, Outbound, Outgoing, Records, Report, SourceError, Stage, StagingState,
    TargetError, Way,
};
