//! The commands by which clients migrate slots: what they say and are answered with ([`command`]), how a shard
//! takes them, and the [`thread`] that asks the coordinators.

pub mod command;
mod shard;
pub mod thread;
