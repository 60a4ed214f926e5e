//! The last LSN written under each key hash: what a reply that looked at a key has to wait for.
//!
//! Writes lie in a ring, newest over oldest, and those of one bucket are chained:
//!
//! ```text
//! heads[hash % HEADS]   lsn and number of the bucket's newest write
//! ring[number % RING]   lsn, 32 other bits of the hash, distance to the bucket's write before it
//! ```
//!
//! Of the writes that wait for the disk each is found by its hash, so that reads of other keys wait for
//! none of them. Only behind more than [`RING`] writes a read may wait needlessly, never too little. Writes that
//! are committed at the end of the turn need not be told apart: they only raise what every reply waits for.

#![expect(
    clippy::indexing_slicing,
    reason = "buckets and numbers are taken modulo the lengths"
)]

use ephesus_wire::Lsn;

use crate::prefetch;

const HEADS: usize = 1 << 13;

/// Writes that are told apart.
const RING: usize = 1 << 14;

/// In place of a distance: the bucket had no write before.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Head {
    lsn: Lsn,
    /// Of its newest write.
    number: u64,
}

#[derive(Clone, Copy)]
struct Write {
    lsn: Lsn,
    tag: u32,
    /// Writes since the one before it in its bucket, at most [`RING`], or [`NONE`].
    back: u32,
}

const _: () = assert!(size_of::<Head>() == 16 && size_of::<Write>() == 16);

/// A shard's newest writes by key hash.
pub(super) struct LastWrites {
    heads: Box<[Head]>,
    ring: Box<[Write]>,
    /// Number of the next write; the first is 1.
    next: u64,
    /// Of the newest write that is told apart.
    newest: Lsn,
    /// At least this for every key, absent ones included.
    floor: Lsn,
}

impl LastWrites {
    pub(super) fn new() -> LastWrites {
        let lsn = Lsn::ZERO;
        let (tag, back) = (0, NONE);
        LastWrites {
            heads: vec![Head { lsn, number: 0 }; HEADS].into_boxed_slice(),
            ring: vec![Write { lsn, tag, back }; RING].into_boxed_slice(),
            next: 1,
            newest: lsn,
            floor: Lsn::ZERO,
        }
    }

    /// Asks the CPU to load what [`LastWrites::get`] and [`LastWrites::set`] begin with.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch::line(&raw const self.heads[bucket(hash)]);
    }

    /// What a reply about a key has to wait for: nothing, if it is at or below `committed`.
    #[inline]
    pub(super) fn get(&self, hash: u64, committed: Lsn) -> Lsn {
        if self.newest <= committed {
            return self.floor;
        }
        let head = self.heads[bucket(hash)];
        if head.lsn <= committed {
            return head.lsn.max(self.floor);
        }
        self.find(hash, head, committed).max(self.floor)
    }

    /// Looks along the bucket's chain, among writes that are not committed.
    fn find(&self, hash: u64, head: Head, committed: Lsn) -> Lsn {
        let (mut number, mut newer) = (head.number, head.lsn);
        while self.next - number <= RING as u64 {
            let write = self.ring[number as usize % RING];
            if write.lsn <= committed || write.tag == tag(hash) {
                return write.lsn;
            }
            if write.back == NONE {
                return Lsn::ZERO;
            }
            newer = write.lsn;
            number -= u64::from(write.back);
        }
        // What was overwritten is older than this.
        newer
    }

    #[inline]
    pub(super) fn set(&mut self, hash: u64, lsn: Lsn) {
        self.newest = lsn;
        let number = self.next;
        self.next += 1;
        let head = &mut self.heads[bucket(hash)];
        let back = match head.number {
            0 => NONE,
            before => (number - before).min(RING as u64) as u32,
        };
        *head = Head { lsn, number };
        let tag = tag(hash);
        self.ring[number as usize % RING] = Write { lsn, tag, back };
    }

    /// Notes a write of any keys.
    #[inline]
    pub(super) fn set_all(&mut self, lsn: Lsn) {
        self.floor = lsn;
    }
}

fn bucket(hash: u64) -> usize {
    hash as usize % HEADS
}

/// Bits of the hash that do not choose the bucket.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests;
