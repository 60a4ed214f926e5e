use std::sync::atomic::{AtomicU64, Ordering};

use super::workload::Values;

/// Bytes of a value that say which key, run and version it is of.
pub(crate) const STAMP_BYTES: usize = 12 + 8 + 12;

/// Versions of keys: a read that was sent after a write was confirmed has to find that write, or a later one.
///
/// A key has one write under way at a time, from whichever connection, so that versions are written in their
/// order; who finds a write under way reads instead. A write whose reply was lost may be carried out
/// at any time later: its key is not written again in this run.
#[derive(Debug)]
pub(crate) struct Ledger {
    run: u32,
    keys: Box<[Entry]>,
}

#[derive(Debug, Default)]
struct Entry {
    /// The newest version that was confirmed, and whether a write is under way.
    confirmed: AtomicU64,
    /// The newest version that removes the key, or may.
    absent: AtomicU64,
}

const UNDER_WAY: u64 = 1;
const VERSION: u64 = 2;

/// What is wrong with a value, in the words that errors are counted by.
pub(super) type Flaw = &'static str;

/// The value of another key, of no version that was written, or no value of this tool.
pub(super) const WRONG: Flaw = "WRONG-VALUE";
/// A version older than one that was confirmed before.
pub(super) const STALE: Flaw = "STALE-VALUE";

impl Ledger {
    pub(crate) fn new(run: u32, keys: u64) -> Self {
        Ledger {
            run,
            keys: (0..keys).map(|_| Entry::default()).collect(),
        }
    }

    fn entry(&self, key: u64) -> Option<&Entry> {
        self.keys.get(key as usize)
    }

    /// Begins with a write of a key; none while another one is under way.
    pub(super) fn begin(&self, key: u64, may_remove: bool) -> Option<u64> {
        let entry = self.entry(key)?;
        let before = entry.confirmed.fetch_or(UNDER_WAY, Ordering::AcqRel);
        if before & UNDER_WAY != 0 {
            return None;
        }
        let version = before / VERSION + 1;
        if may_remove {
            entry.absent.store(version, Ordering::Release);
        }
        Some(version)
    }

    pub(super) fn confirm(&self, key: u64, version: u64) {
        if let Some(entry) = self.entry(key) {
            entry.confirmed.store(version * VERSION, Ordering::Release);
        }
    }

    /// What a read that begins now has to find at least.
    pub(super) fn floor(&self, key: u64) -> u64 {
        let entry = self.entry(key);
        entry.map_or(0, |entry| entry.confirmed.load(Ordering::Acquire) / VERSION)
    }

    pub(super) fn stamp(&self, (key, version): (u64, u64), values: &Values, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(values.get(key, version));
        let stamp = format!("{key:012}{:08x}{version:012x}", self.run);
        if let Some(place) = into.get_mut(..STAMP_BYTES) {
            place.copy_from_slice(&stamp.as_bytes()[..STAMP_BYTES]);
        }
    }

    /// Judges what a read has found; `floor` is from when it began.
    pub(super) fn judge(&self, key: u64, floor: u64, value: Option<&[u8]>) -> Result<(), Flaw> {
        let Some(entry) = self.entry(key) else {
            return Ok(());
        };
        let confirmed = entry.confirmed.load(Ordering::Acquire);
        let newest = confirmed / VERSION + (confirmed & UNDER_WAY);
        // Nothing is known of what was there before the first write.
        let is_first = floor == 0;
        match value.map(read_stamp) {
            None if is_first || entry.absent.load(Ordering::Acquire) >= floor => Ok(()),
            None => Err(STALE),
            Some(None) if is_first => Ok(()),
            Some(None) => Err(WRONG),
            Some(Some((of, ..))) if of != key => Err(WRONG),
            Some(Some((_, run, _))) if run != self.run && is_first => Ok(()),
            Some(Some((_, run, _))) if run != self.run => Err(STALE),
            Some(Some((.., version))) if version > newest => Err(WRONG),
            Some(Some((.., version))) if version < floor => Err(STALE),
            Some(Some(_)) => Ok(()),
        }
    }
}

fn read_stamp(value: &[u8]) -> Option<(u64, u32, u64)> {
    let stamp = std::str::from_utf8(value.get(..STAMP_BYTES)?).ok()?;
    let (key, rest) = stamp.split_at_checked(12)?;
    let (run, version) = rest.split_at_checked(8)?;
    Some((
        key.parse().ok()?,
        u32::from_str_radix(run, 16).ok()?,
        u64::from_str_radix(version, 16).ok()?,
    ))
}
