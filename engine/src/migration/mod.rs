//! A migration moves one partition from its shard, the source, to another shard, the target, while clients use it.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`ends`] | both ends of the stream without I/O: what to send, what to do with what arrives |
//! | [`shard`] | both ends as a shard drives them: streams, windows, groups, holds, the share of time |

pub mod ends;
pub mod shard;

pub use ends::{
    Connection, Incoming, Line, Order, Outbound, Outgoing, Records, Report, SourceError, Stage,
    StagingState, TargetError, Way,
};
