//! The vocabulary of Ephesus: ids, slots and every codec. Pure: no I/O, no async, no clock.
//!
//! Every decoder takes a byte slice and answers `Ok(None)` (or `Incomplete`) when more bytes are
//! needed and an error only when no further bytes could make the input valid. No decoder panics
//! or allocates in proportion to a length it has merely been told: what could panic is denied, and an exception names
//! the invariant that it rests on.

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

#[cfg(target_endian = "big")]
compile_error!("the on-disk and on-wire headers are little-endian plain structs");

pub mod block;
pub mod copy;
pub mod database;
pub mod digest;
pub mod error;
pub mod frame;
pub mod glob;
pub mod handshake;
pub mod ids;
pub mod limits;
pub mod published;
pub mod record;
pub mod resp;
pub mod rng;
pub mod seal;
pub mod slot;
pub mod stream;
pub mod table;

pub use database::Database;
pub use error::WireError;
pub use ids::{Epoch, Lsn, MigrationId, NodeId, PartitionId, ShardId, Slot};
pub use slot::{Partitioning, slot_of};
