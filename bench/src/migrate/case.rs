use std::fmt;

use crate::prefill::KEY_BYTES;

/// Most keys of one case: with small values less data is enough.
const KEYS_MAX: u64 = 2_000_000;

/// What a server needs for a key besides it and its value, amply.
const KEY_OVERHEAD_BYTES: u64 = 150;
/// What servers need without any data, amply.
const SERVERS_BYTES: usize = 512 << 20;

/// Writes during a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    /// None: servers do nothing else.
    None,
    /// So many per second, of keys that move.
    PerSecond(u64),
    /// As many as are answered, of keys that stay.
    Unlimited,
}

/// One kind of move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) value_bytes: usize,
    pub(super) keys: u64,
    pub(super) writes: Writes,
}

impl Case {
    /// With about so much data, if `keys` does not say how many.
    pub(super) fn new(value_bytes: usize, data: u64, keys: Option<u64>, writes: Writes) -> Self {
        let fitting = data / (KEY_BYTES + value_bytes) as u64;
        Case {
            value_bytes,
            keys: keys.unwrap_or(fitting.clamp(1, KEYS_MAX)),
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
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.value_bytes)?;
        match self.writes {
            Writes::None => Ok(()),
            Writes::PerSecond(rate) => write!(f, ", {rate} writes/s"),
            Writes::Unlimited => f.write_str(", all writes it takes"),
        }
    }
}
