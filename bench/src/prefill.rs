//! Loads every key that `redis-benchmark -r N` can draw: `key:000000000000` and on.

use ephesus_wire::rng::Rng;
use std::net::SocketAddr;

use crate::error::Result;
use crate::load::{Command, Generator, Kind, Timetable, Traffic};

#[cfg(test)]
mod tests;

/// Bytes of every key.
pub const KEY_BYTES: usize = 16;

const CONNECTIONS: usize = 4;
const BATCH_KEYS: u32 = 256;
const POOL_BYTES: usize = 64 * 1024;

/// The `index`-th key, in redis-benchmark's format.
pub fn key(index: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"key:000000000000";
    let mut rest = index;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// The slot of the `index`-th key.
pub fn slot_of_key(index: u64) -> usize {
    usize::from(ephesus_wire::slot_of(&key(index)).0)
}

/// Printable, incompressible values that differ from key to key and from generation to generation.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Vec<u8>,
    value_bytes: usize,
}

impl Values {
    /// Values of `value_bytes` each.
    pub fn new(value_bytes: usize) -> Self {
        let mut random = Rng::new(0x5641_4c55_4553);
        let printable = |_| b'0' + random.below(75) as u8;
        Values {
            pool: (0..POOL_BYTES + value_bytes).map(printable).collect(),
            value_bytes,
        }
    }

    /// The value of a key in a generation.
    pub fn get(&self, index: u64, generation: u64) -> &[u8] {
        let mixed = Rng::new(index ^ generation.rotate_left(32)).draw();
        let start = mixed as usize % POOL_BYTES;
        &self.pool[start..start + self.value_bytes]
    }
}

/// Sets keys `0..keys` once each, pipelined, and returns once every reply has arrived.
///
/// # Errors
/// When a write is refused or the connection breaks.
pub fn fill(address: SocketAddr, keys: u64, value_bytes: usize, generation: u64) -> Result<()> {
    fill_some(address, 0..keys, value_bytes, generation)
}

/// Sets the keys of these indexes.
///
/// # Errors
/// When a write is refused or the connection breaks.
pub fn fill_some(
    address: SocketAddr,
    indexes: impl Iterator<Item = u64>,
    value_bytes: usize,
    generation: u64,
) -> Result<()> {
    for_each_key(address, indexes, value_bytes, Kind::Set, generation)
}

/// Deletes the keys of these indexes.
///
/// # Errors
/// When a deletion is refused or the connection breaks.
pub fn remove_some(address: SocketAddr, indexes: impl Iterator<Item = u64>) -> Result<()> {
    for_each_key(address, indexes, 0, Kind::Del, 0)
}

/// Sends one command for each index, pipelined, and returns once every reply has arrived.
fn for_each_key(
    address: SocketAddr,
    mut indexes: impl Iterator<Item = u64>,
    value_bytes: usize,
    kind: Kind,
    generation: u64,
) -> Result<()> {
    let traffic = Traffic {
        address,
        rate: 0,
        connections: CONNECTIONS,
        pipeline: BATCH_KEYS,
        value_bytes,
        apart: None,
        spins: false,
        is_patient: false,
    };
    let next = |_: &mut Rng, _| {
        indexes.next().map(|key| Command {
            kind,
            key,
            generation,
        })
    };
    Generator::open(traffic, next)?
        .run(&Timetable::new())
        .map(drop)
}
