//! Removal of expired keys that nobody asks for: a sweep over what may have expired, in slices.
//!
//! Segments, tables and the keyspace know a time before which none of their keys expires. What is not due costs
//! nothing; a segment that was looked at knows its earliest deadline again.

use ephesus_wire::PartitionId;

use super::{Key, Keyspace, Partition};
use crate::migration::Stage;
use crate::table::{NEVER_MS, Table};

/// Partitions that one slice passes at most which have nothing due.
const PASSED_PER_SLICE: usize = 1024;

/// A round of the sweep.
pub struct Sweep {
    /// Index into the owned partitions.
    at: usize,
    /// Where in its table.
    segment: usize,
    /// No key of the partitions that were passed expires earlier.
    expires_from_ms: u64,
    expired: Vec<Vec<u8>>,
}

impl Sweep {
    fn begin() -> Sweep {
        Sweep {
            at: 0,
            segment: 0,
            expires_from_ms: NEVER_MS,
            expired: Vec::new(),
        }
    }
}

impl Keyspace {
    /// No key that is served expires earlier, Unix ms; [`NEVER_MS`] if none has an expiry.
    #[must_use]
    pub fn expires_from_ms(&self) -> u64 {
        self.expires_from_ms
    }

    /// Whether keys may have expired that are still here, or a round of the sweep is under way.
    #[must_use]
    pub fn may_have_expired(&self) -> bool {
        self.sweep.is_some() || self.expires_from_ms <= self.now_ms
    }

    /// Notes a deadline, 0 for none.
    #[inline]
    pub(super) fn note_expiry(&mut self, expire_at_ms: u64) {
        if expire_at_ms != 0 {
            self.expires_from_ms = self.expires_from_ms.min(expire_at_ms);
        }
    }

    /// The partitions that are served have changed: the next round looks at all of them.
    pub(super) fn sweep_anew(&mut self) {
        self.sweep = None;
        self.expires_from_ms = 0;
    }

    /// Removes expired keys in the next part of the keyspace; true when a round is complete.
    pub fn sweep_slice(&mut self) -> bool {
        debug_assert!(!self.is_atomic(), "a section ends within its turn");
        if !self.may_have_expired() {
            return true;
        }
        let now_ms = self.now_ms;
        let mut sweep = self.sweep.take().unwrap_or_else(|| {
            // From now on it is about what is written during the round.
            self.expires_from_ms = NEVER_MS;
            Sweep::begin()
        });
        for _ in 0..PASSED_PER_SLICE {
            let Some(&id) = self.owned.get(sweep.at) else {
                self.expires_from_ms = self.expires_from_ms.min(sweep.expires_from_ms);
                return true;
            };
            let is_due = self.table(id).expires_from_ms() <= now_ms && self.may_expire(id);
            let (at, expired) = (&mut sweep.segment, &mut sweep.expired);
            if is_due && self.remove_expired(id, at, expired, Keyspace::expire) {
                break;
            }
            let from_ms = self.table(id).expires_from_ms();
            sweep.expires_from_ms = sweep.expires_from_ms.min(from_ms);
            (sweep.at, sweep.segment) = (sweep.at + 1, 0);
        }
        self.sweep = Some(sweep);
        false
    }

    /// Removes the next keys of a partition that moves and that have expired, about 100, from the segment `at` on, which
    /// begins with 0 and is 0 after the last ones; true when none is left. The log, which may have no room, is not told.
    pub fn remove_expired_slice(&mut self, id: PartitionId, at: &mut usize) -> bool {
        let is_due = self.may_expire(id) && self.table(id).expires_from_ms() <= self.now_ms;
        let expire = Keyspace::expire_unlogged;
        if is_due && self.remove_expired(id, at, &mut Vec::new(), expire) {
            return false;
        }
        *at = 0;
        true
    }

    /// Removes all keys of a partition that have expired, so that no other clock has to tell who they were. The log is
    /// not told either.
    pub(super) fn remove_all_expired(&mut self, id: PartitionId) {
        let mut at = 0;
        while !self.remove_expired_slice(id, &mut at) {}
    }

    /// Whether keys of the partition may be removed now: not by anyone but its owner, and not behind the
    /// end of a stream that moves it.
    pub(super) fn may_expire(&self, id: PartitionId) -> bool {
        let is_over = |p: &Partition| p.outgoing().is_some_and(|o| o.stage() == Stage::Final);
        self.served(id).is_some_and(|p| !is_over(p))
    }

    /// Removes the expired keys of the next segment behind `at` that has any; false when there is none.
    fn remove_expired(
        &mut self,
        partition: PartitionId,
        at: &mut usize,
        expired: &mut Vec<Vec<u8>>,
        expire: fn(&mut Keyspace, &Key<'_>),
    ) -> bool {
        let now_ms = self.now_ms;
        let found = self.table_mut(partition).expired(at, now_ms, expired);
        for bytes in expired.drain(..) {
            let key = Key {
                bytes: &bytes,
                hash: self.hasher.hash(&bytes),
                partition,
            };
            expire(self, &key);
        }
        found
    }

    #[expect(clippy::expect_used, reason = "what is swept is served")]
    fn table(&self, id: PartitionId) -> &Table {
        &self.partition(id).expect("a served copy is here").table
    }

    #[expect(clippy::expect_used, reason = "what is swept is served")]
    fn table_mut(&mut self, id: PartitionId) -> &mut Table {
        let copy = self.partition_mut(id);
        &mut copy.expect("a served copy is here").table
    }
}
