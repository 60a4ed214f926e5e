//! The last LSN written under each key hash: what a reply that looked at a key has to wait for.

use ephesus_wire::Lsn;

const ENTRIES: usize = 1 << 14;

/// A small table of LSNs by key hash; keys that share an entry only wait needlessly.
pub(super) struct LastWrites {
    lsns: Box<[Lsn]>,
    /// At least this for every key, absent ones included.
    floor: Lsn,
}

impl LastWrites {
    pub(super) fn new() -> LastWrites {
        LastWrites {
            lsns: vec![Lsn::ZERO; ENTRIES].into_boxed_slice(),
            floor: Lsn::ZERO,
        }
    }

    #[inline]
    pub(super) fn get(&self, hash: u64) -> Lsn {
        self.lsns[hash as usize % ENTRIES].max(self.floor)
    }

    #[inline]
    pub(super) fn set(&mut self, hash: u64, lsn: Lsn) {
        self.lsns[hash as usize % ENTRIES] = lsn;
    }

    pub(super) fn set_all(&mut self, lsn: Lsn) {
        self.floor = lsn;
    }
}
