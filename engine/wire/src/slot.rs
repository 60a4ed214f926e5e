//! Which slot a key has and which partition a slot is in: part of the data format, never changes.

use std::ops::RangeInclusive;

use crate::database;
use crate::ids::{PartitionId, Slot};
use crate::limits::SLOTS;

/// The slot of a stored key: CRC16-XMODEM of the key as clients know it, or of its hash tag, modulo 16384. The
/// [database](crate::database) has no part in it.
///
/// Source: the Redis Cluster specification, "Key distribution model".
#[inline]
#[must_use]
pub fn slot_of(key: &[u8]) -> Slot {
    let (_, key) = database::split(key);
    Slot(crc16(hash_tag(key)) & (SLOTS - 1))
}

/// The part of a key that decides its slot: what stands between the first `{` and the next `}`
/// if that is not empty, else the whole key.
#[inline]
#[must_use]
#[expect(
    clippy::indexing_slicing,
    reason = "memchr answers places within the key"
)]
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = memchr::memchr(b'{', key) else {
        return key;
    };
    let rest = &key[open + 1..];
    match memchr::memchr(b'}', rest) {
        Some(close) if close > 0 => &rest[..close],
        _ => key,
    }
}

/// How many partitions the slots are divided into; fixed for the life of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Partitioning(u16);

/// The number of partitions must be 1 to 16384: one per slot at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} partitions: the number must be from 1 to 16384")]
pub struct PartitionCountError(pub u16);

impl Partitioning {
    /// Divides the slots into `count` contiguous ranges of equal length, give or take one.
    ///
    /// # Errors
    /// When `count` is not from 1 to 16384.
    pub const fn new(count: u16) -> Result<Self, PartitionCountError> {
        if count >= 1 && count <= SLOTS {
            Ok(Self(count))
        } else {
            Err(PartitionCountError(count))
        }
    }

    /// The number of partitions.
    #[inline]
    #[must_use]
    pub const fn count(self) -> u16 {
        self.0
    }

    /// `floor(slot * count / 16384)`.
    #[inline]
    #[must_use]
    pub const fn partition_of(self, slot: Slot) -> PartitionId {
        debug_assert!(slot.0 < SLOTS);
        PartitionId((slot.0 as u32 * self.0 as u32 / SLOTS as u32) as u16)
    }

    /// The slots of a partition, never empty.
    ///
    /// # Panics
    /// When there is no such partition.
    #[must_use]
    pub fn slots_of(self, partition: PartitionId) -> RangeInclusive<u16> {
        assert!(partition.0 < self.0, "partition {partition} of {}", self.0);
        let first =
            |partition: u32| (partition * u32::from(SLOTS)).div_ceil(u32::from(self.0)) as u16;
        first(u32::from(partition.0))..=first(u32::from(partition.0) + 1) - 1
    }

    /// All partitions in slot order.
    pub fn partitions(self) -> impl ExactSizeIterator<Item = PartitionId> {
        (0..self.0).map(PartitionId)
    }
}

const POLYNOMIAL: u16 = 0x1021;

/// `TABLES[n][b]`: the checksum of byte `b` followed by `n` zero bytes.
static TABLES: [[u16; 256]; 8] = tables();

#[expect(
    clippy::indexing_slicing,
    reason = "computed when the crate is compiled"
)]
const fn tables() -> [[u16; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 {
                crc << 1 ^ POLYNOMIAL
            } else {
                crc << 1
            };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[zeros - 1][byte];
            tables[zeros][byte] = crc << 8 ^ tables[0][(crc >> 8) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// CRC16-XMODEM (polynomial 0x1021, initial value 0, nothing reflected), eight bytes at a time.
#[inline]
#[must_use]
#[expect(clippy::indexing_slicing, reason = "a byte is an index of 256 entries")]
pub fn crc16(data: &[u8]) -> u16 {
    let mut crc = 0u16;
    let (chunks, rest) = data.as_chunks::<8>();
    for chunk in chunks {
        crc = TABLES[7][(chunk[0] ^ (crc >> 8) as u8) as usize]
            ^ TABLES[6][(chunk[1] ^ crc as u8) as usize]
            ^ TABLES[5][chunk[2] as usize]
            ^ TABLES[4][chunk[3] as usize]
            ^ TABLES[3][chunk[4] as usize]
            ^ TABLES[2][chunk[5] as usize]
            ^ TABLES[1][chunk[6] as usize]
            ^ TABLES[0][chunk[7] as usize];
    }
    for &byte in rest {
        crc = crc << 8 ^ TABLES[0][(byte ^ (crc >> 8) as u8) as usize];
    }
    crc
}

#[cfg(test)]
mod tests;
