//! The node: shards, their log and images, and the protocol that clients speak to them.
//!
//! What clients, peers, tables, files and flags say ends in an error, never in a panic: what could panic is denied, and an
//! exception names the invariant that it rests on.

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

pub mod acl;
pub mod by_shard;
pub mod cli;
pub mod command;
pub mod coordinator_process;
pub mod failpoint;
pub mod image;
pub mod keyspace;
pub mod logging;
pub mod migration;
pub mod net;
pub mod newest;
pub mod node;
pub mod operator;
pub mod planted;
pub mod script;
pub mod shard;
pub mod signals;
pub mod sled_sync;
#[expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a data structure whose indexes are its own: none comes from outside"
)]
pub mod table;
pub mod tls;

mod prefetch;
mod small_pages;
