//! A migration moves one partition from its shard, the source, to another shard, the target, while clients use it.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`ends`] | both ends of the stream without I/O: what to send, what to do with what arrives |

pub mod ends;

pub use ends::{
    Connection, Incoming, Line, Order, Outbound, Outgoing, Records, Report, SourceError, Stage,
    StagingState, TargetError, Way,
};
