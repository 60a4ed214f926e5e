//! The node: shards, their log and images, and the protocol that clients speak to them.

pub mod cli;
pub mod command;
pub mod image;
pub mod keyspace;
pub mod net;
pub mod node;
pub mod shard;
pub mod sled_sync;
pub mod table;

mod planted;
