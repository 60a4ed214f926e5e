//! The node: shards, their log and images, and the protocol that clients speak to them.

pub mod cli;
pub mod command;
pub mod coordinator_process;
pub mod image;
pub mod keyspace;
pub mod logging;
pub mod migration;
pub mod net;
pub mod node;
pub mod operator;
pub mod planted;
pub mod shard;
pub mod signals;
pub mod sled_sync;
pub mod table;

mod prefetch;
mod small_pages;
