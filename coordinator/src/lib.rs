//! The coordinator: decides which shard of which node owns which partition.
//!
//! ```text
//! Command -> Member (raft-rs) -> RaftLog (on disk) -> committed -> State::apply -> Effects
//! ```
//!
//! Nothing here knows a clock, a socket or a thread: [`Member`] takes what has happened and answers
//! what follows, so that the same code runs under a simulated network and simulated disks.

pub mod command;
pub mod member;
pub mod placement;
#[cfg(test)]
mod rng;
pub mod state;
pub mod storage;

pub use command::Command;
pub use member::Member;
pub use state::State;
pub use storage::RaftLog;
