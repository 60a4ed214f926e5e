//! What a heartbeat says of load.
//!
//! ```text
//! u8 n, n times  u16 shard      3 x RATES        at most 4, in rotation
//! u8 n, n times  u16 partition  3 x RATES        the hottest, at most 16
//! RANGE, per partition in it  u8 cpu  u8 ops     of the last minute, in rotation
//! RANGE, per partition in it  u8 traffic  u8 bytes
//!
//! RATES  ops  bytes in  bytes out  cpu           two bytes each, per second, of one window
//! RANGE  u16 first  u16 count  a bit for each partition of the range: whether the node has it
//! ```
//!
//! Numbers are little-endian; codes of one and two bytes are those of [`codes`]. The first range is a 25th of all
//! partitions, so that all are told within 5 s; the other one is no longer than the bytes that are left permit.

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::codes;
use super::windows::{Rates, WINDOWS_S};
use crate::liveness::HEARTBEAT_MS;

/// Longest report, bytes: with its length, a heartbeat is 2 KiB longer at most.
pub const LOAD_BYTES_MAX: usize = 2046;

/// Shards and hottest partitions of one report.
pub(super) const SHARDS_MAX: usize = 4;
pub(super) const HOTTEST_MAX: usize = 16;

/// Heartbeats within which every partition is told: 5 s.
pub(super) const ROUND: u16 = (5_000 / HEARTBEAT_MS) as u16;

/// Partitions of the second range, at most.
pub(super) const SIZES_MAX: u16 = 48;

/// The report of one heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport(Box<[u8]>);

/// The same, as numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// Some shards, by window.
    pub shards: Vec<(u16, [Rates; WINDOWS_S.len()])>,
    /// The hottest partitions, by window.
    pub hottest: Vec<(u16, [Rates; WINDOWS_S.len()])>,
    /// Some partitions: share of a CPU and operations per second, of the last minute.
    pub rest: ToldRange,
    /// Some partitions: bytes of requests and replies per second, of the last minute, and bytes of keys and values.
    pub sizes: ToldRange,
}

/// Two numbers for each partition that a node has, of a range of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToldRange {
    /// The range.
    pub first: u16,
    /// Its length.
    pub count: u16,
    /// By partition, ascending.
    pub entries: Vec<(u16, f32, f32)>,
}

impl LoadReport {
    /// Encodes what a board has made: no more than one report may have.
    pub(super) fn new(told: &Told) -> LoadReport {
        let mut out = Vec::new();
        for list in [&told.shards, &told.hottest] {
            out.push(list.len() as u8);
            for (id, windows) in list {
                out.extend_from_slice(&id.to_le_bytes());
                for rates in windows {
                    for value in [rates.ops, rates.bytes_in, rates.bytes_out, rates.cpu] {
                        out.extend_from_slice(&codes::two(value));
                    }
                }
            }
        }
        put_range(&mut out, &told.rest, (codes::CPU, codes::OPS));
        put_range(&mut out, &told.sizes, (codes::TRAFFIC, codes::SIZE));
        debug_assert!(out.len() <= LOAD_BYTES_MAX, "{} bytes", out.len());
        LoadReport(out.into())
    }

    /// Its length, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// What it says; none: it is no report, or says nothing.
    #[must_use]
    pub fn read(&self) -> Option<Told> {
        let mut bytes = &*self.0;
        let told = Told {
            shards: take_windows(&mut bytes, SHARDS_MAX)?,
            hottest: take_windows(&mut bytes, HOTTEST_MAX)?,
            rest: take_range(&mut bytes, (codes::CPU, codes::OPS))?,
            sizes: take_range(&mut bytes, (codes::TRAFFIC, codes::SIZE))?,
        };
        bytes.is_empty().then_some(told)
    }
}

fn put_range(out: &mut Vec<u8>, range: &ToldRange, smallest: (i32, i32)) {
    out.extend_from_slice(&range.first.to_le_bytes());
    out.extend_from_slice(&range.count.to_le_bytes());
    let mut bits = vec![0u8; usize::from(range.count).div_ceil(8)];
    for (id, ..) in &range.entries {
        let place = usize::from(id - range.first);
        if let Some(byte) = bits.get_mut(place / 8) {
            *byte |= 1 << (place % 8);
        }
    }
    out.append(&mut bits);
    for (_, first, second) in &range.entries {
        out.push(codes::one(*first, smallest.0));
        out.push(codes::one(*second, smallest.1));
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}

fn take_u16(bytes: &mut &[u8]) -> Option<u16> {
    take(bytes).map(u16::from_le_bytes)
}

fn take_windows(bytes: &mut &[u8], most: usize) -> Option<Vec<(u16, [Rates; WINDOWS_S.len()])>> {
    let [count] = take(bytes)?;
    if usize::from(count) > most {
        return None;
    }
    let mut list = Vec::new();
    for _ in 0..count {
        let id = take_u16(bytes)?;
        let mut windows = [Rates::default(); WINDOWS_S.len()];
        for rates in &mut windows {
            rates.ops = codes::of_two(take(bytes)?, codes::OPS);
            rates.bytes_in = codes::of_two(take(bytes)?, codes::TRAFFIC);
            rates.bytes_out = codes::of_two(take(bytes)?, codes::TRAFFIC);
            rates.cpu = codes::of_two(take(bytes)?, codes::CPU);
        }
        list.push((id, windows));
    }
    Some(list)
}

fn take_range(bytes: &mut &[u8], smallest: (i32, i32)) -> Option<ToldRange> {
    let (first, count) = (take_u16(bytes)?, take_u16(bytes)?);
    first.checked_add(count)?;
    let bits = bytes.split_off(..usize::from(count).div_ceil(8))?;
    let mut entries = Vec::new();
    for (place, id) in (first..first + count).enumerate() {
        let byte = bits.get(place / 8)?;
        if byte >> (place % 8) & 1 != 0 {
            let [one, other] = take(bytes)?;
            let (one, other) = (
                codes::of_one(one, smallest.0),
                codes::of_one(other, smallest.1),
            );
            entries.push((id, one, other));
        }
    }
    Some(ToldRange {
        first,
        count,
        entries,
    })
}

impl Serialize for LoadReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for LoadReport {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LoadReport, D::Error> {
        deserializer.deserialize_bytes(Bytes)
    }
}

/// Looks at the bytes where they lie.
struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = LoadReport;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "at most {LOAD_BYTES_MAX} bytes")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<LoadReport, E> {
        match bytes.len() <= LOAD_BYTES_MAX {
            true => Ok(LoadReport(bytes.into())),
            false => Err(E::invalid_length(bytes.len(), &self)),
        }
    }
}
