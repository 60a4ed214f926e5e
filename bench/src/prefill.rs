//! Loads every key that `redis-benchmark -r N` can draw: `key:000000000000` and on.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::resp::{self, ReplyScanner};
use ephesus_wire::rng::Rng;

#[cfg(test)]
mod tests;

/// Bytes of every key.
pub const KEY_BYTES: usize = 16;

const CONNECTIONS: usize = 4;
const BATCH_KEYS: u64 = 256;
/// Batches written to a connection before its oldest is waited for.
const BATCHES_IN_FLIGHT: u64 = 2;
const READ_BYTES: usize = 64 * 1024;
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

struct Lane {
    stream: TcpStream,
    scanner: ReplyScanner,
    expected: usize,
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
    let values = Values::new(value_bytes);
    for_each_key(address, "SET", indexes, |request, index| {
        let value = values.get(index, generation);
        resp::encode(request, &[b"SET", &key(index), value]);
    })
}

/// Deletes the keys of these indexes.
///
/// # Errors
/// When a deletion is refused or the connection breaks.
pub fn remove_some(address: SocketAddr, indexes: impl Iterator<Item = u64>) -> Result<()> {
    for_each_key(address, "DEL", indexes, |request, index| {
        resp::encode(request, &[b"DEL", &key(index)]);
    })
}

/// Sends one command for each index, pipelined, and returns once every reply has arrived.
fn for_each_key(
    address: SocketAddr,
    command: &str,
    mut indexes: impl Iterator<Item = u64>,
    mut encode: impl FnMut(&mut Vec<u8>, u64),
) -> Result<()> {
    let what = || BenchError::io(format!("{command} on {address}"));
    let mut lanes = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(address).map_err(what())?;
        stream.set_nodelay(true).map_err(what())?;
        lanes.push(Lane {
            stream,
            scanner: ReplyScanner::default(),
            expected: 0,
        });
    }
    let mut request = Vec::new();
    let mut chunk = vec![0; READ_BYTES];
    for turn in 0.. {
        interrupt::check()?;
        let lane = &mut lanes[turn % CONNECTIONS];
        let allowed = ((BATCHES_IN_FLIGHT - 1) * BATCH_KEYS) as usize;
        lane.wait_until(allowed, &mut chunk)
            .map_err(at(command, address))?;
        let before = lane.expected;
        request.clear();
        for index in indexes.by_ref().take(BATCH_KEYS as usize) {
            encode(&mut request, index);
            lane.expected += 1;
        }
        if lane.expected == before {
            break;
        }
        lane.stream.write_all(&request).map_err(what())?;
    }
    for lane in &mut lanes {
        lane.wait_until(0, &mut chunk)
            .map_err(at(command, address))?;
    }
    Ok(())
}

fn at(command: &str, address: SocketAddr) -> impl FnOnce(BenchError) -> BenchError {
    move |error| match error {
        BenchError::Reply { got, .. } => BenchError::Reply {
            what: format!("{command} on {address}"),
            got,
        },
        other => other,
    }
}

impl Lane {
    fn wait_until(&mut self, outstanding: usize, chunk: &mut [u8]) -> Result<()> {
        while self.expected > outstanding {
            let length = match self.stream.read(chunk) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                    interrupt::check()?;
                    continue;
                }
                other => other.map_err(BenchError::io("reading replies"))?,
            };
            if length == 0 {
                let closed = std::io::ErrorKind::UnexpectedEof;
                return Err(BenchError::io("reading replies")(closed.into()));
            }
            let found = self.scanner.scan(&chunk[..length])?;
            self.expected = self
                .expected
                .checked_sub(found.complete)
                .ok_or_else(|| BenchError::reply("more replies than SETs", &chunk[..length]))?;
        }
        Ok(())
    }
}
