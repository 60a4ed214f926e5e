use std::fmt;
use std::time::Duration;

use crate::prefill::KEY_BYTES;

use super::round::{CONNECTIONS, PIPELINE};

/// Bytes of keys and values, and the most keys: with small values less data is enough.
const DATA_BYTES: u64 = 1_000_000_000;
const QUICK_SHRINK: u64 = 50;
const KEYS_MAX: u64 = 2_000_000;

/// What a server needs for a key besides it and its value, amply.
const KEY_OVERHEAD_BYTES: u64 = 150;
/// What servers need without any data, amply.
const SERVERS_BYTES: usize = 512 << 20;

/// One kind of move, which is a case of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) value_bytes: usize,
    pub(super) keys: u64,
    /// Writes per second of keys that move; 0: as many as are answered, of keys that stay; none: no clients.
    pub(super) writes: Option<u64>,
}

impl Shape {
    /// With the usual number of keys.
    pub(super) fn new(value_bytes: u32, writes: Option<u64>, is_quick: bool) -> Self {
        let data = DATA_BYTES / if is_quick { QUICK_SHRINK } else { 1 };
        let value_bytes = value_bytes as usize;
        let fitting = data / (KEY_BYTES + value_bytes) as u64;
        Shape {
            value_bytes,
            keys: fitting.clamp(2, KEYS_MAX),
            writes,
        }
    }

    /// Bytes of one key and its value.
    pub(super) fn entry_bytes(self) -> u64 {
        (KEY_BYTES + self.value_bytes) as u64
    }

    /// What the two servers may need together.
    pub(super) fn memory_bytes(self) -> usize {
        let data = self.keys * (self.entry_bytes() + KEY_OVERHEAD_BYTES);
        2 * data as usize + SERVERS_BYTES
    }

    /// How it is measured, with so much time before and after the move.
    pub(super) fn how(self, load_time: Duration) -> String {
        let mb = (self.keys * self.entry_bytes()) as f64 / 1e6;
        let clients = format!(
            "{CONNECTIONS} connections, pipeline {PIPELINE}, {} s before and after",
            load_time.as_secs()
        );
        let load = match self.writes {
            None => "no clients".to_owned(),
            Some(0) => format!("SETs of keys that stay, closed loop, {clients}"),
            Some(rate) => format!("{rate} SETs/s of keys that move, open loop, {clients}"),
        };
        let keys = self.keys;
        format!(
            "{keys} keys, {mb:.0} MB, half of which moves; {load}. Last round in plots over time."
        )
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.value_bytes)?;
        match self.writes {
            None => Ok(()),
            Some(0) => f.write_str(", all writes it takes"),
            Some(rate) => write!(f, ", {rate} writes/s"),
        }
    }
}
