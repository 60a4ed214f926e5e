//! The two ends of a migration's stream, without I/O: what to send, what to do with what arrives.
//!
//! ```text
//! Partition --walk--> Outgoing -> Outbox ~~~ stream ~~~> Incoming -> log and table of a staging copy
//!    ^ every write ----^ captured when behind the walk
//! ```
//!
//! Both live in the partition they are about; [`Keyspace`](crate::keyspace::Keyspace) has the calls that
//! need the log besides. When to hold commands, what to do on a break and who decides is the shard's and
//! the coordinator's business.

pub mod orders;
pub mod outbox;
pub mod source;
pub mod target;

pub use orders::{Order, Report, Way};
pub use outbox::Records;
pub use source::{Outbound, Outgoing, SourceError, Stage};
pub use target::{Incoming, StagingState, TargetError};

#[cfg(test)]
pub(crate) mod tests;
