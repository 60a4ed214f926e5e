//! The coordinator: decides which shard of which node owns which partition.
//!
//! ```text
//! node: Agent <-> Coordinator: Command -> Member (raft-rs) -> RaftLog (on disk) -> State::apply
//! ```
//!
//! The decisions know no clock, no socket and no thread: [`Agent`] and [`Coordinator`] take what has
//! happened and answer what to do, so that the same code runs under a simulated network and
//! simulated disks. [`server`] and [`membership`] give them sockets, clocks and threads.
//!
//! What peers and files say ends in an error, never in a panic: what could panic is denied, and an exception names the
//! invariant that it rests on.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

pub mod agent;
pub mod ask;
pub mod command;
pub mod coordinator;
pub mod lease;
pub mod link;
pub mod liveness;
pub mod load;
pub mod member;
pub mod membership;
pub mod migration;
pub mod placement;
pub mod planted;
pub mod protocol;
pub mod report;
pub mod scheduling;
pub mod server;
pub mod sole_node;
pub mod state;
pub mod storage;
pub mod view;

pub use agent::Agent;
pub use command::Command;
pub use coordinator::Coordinator;
pub use member::Member;
pub use state::State;
pub use storage::RaftLog;
