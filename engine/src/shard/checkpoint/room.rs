//! How full the log is: what writes and moves wait for, and what images are paced by.

use super::pace::Load;
use super::{Checkpointer, StoreLink};
use crate::keyspace::Keyspace;

/// Share of its log budget up to which truncated files are kept: zero-filling new ones costs as much
/// of the disk as the log itself.
const KEEP_PERCENT: u64 = 90;

/// Prepared segments, which count against the budget, too.
const PREPARED: u64 = 2;

/// Segments that moves leave to the writes of clients.
const KEPT_FROM_MOVES: u64 = 1;

impl<L: StoreLink> Checkpointer<L> {
    /// Bytes of log files up to which truncated ones are worth keeping for later.
    #[must_use]
    pub fn keep_bytes(&self) -> u64 {
        self.budget / 100 * KEEP_PERCENT
    }

    /// Whether the log may take what moves bring besides what clients write. A move makes it grow as fast as
    /// a disk writes, and images, which alone make it shorter, are slower: without this clients would wait for
    /// the images of what others move. So images get ahead early, and a little of the log is always left to clients.
    ///
    /// Never false unless images are due or under way, which end that.
    #[must_use]
    pub fn has_room_for_moves(&self, keyspace: &Keyspace) -> bool {
        let log = &keyspace.log;
        let live_bytes = log.log_bytes();
        let kept_bytes = KEPT_FROM_MOVES * log.options().segment_bytes;
        let is_short =
            self.pace.is_urgent() || live_bytes + kept_bytes >= self.full_bytes(keyspace);
        let is_freed = log.segments().count() > 2 && self.pace.is_due(self.budget, live_bytes);
        !(self.pace.moves_wait() || is_short && is_freed)
    }

    /// Bytes of live segments from which on writes wait, about: see [`Checkpointer::is_over_budget`].
    fn full_bytes(&self, keyspace: &Keyspace) -> u64 {
        let segment_bytes = keyspace.log.options().segment_bytes;
        let prepared_bytes = PREPARED * segment_bytes;
        self.budget
            .saturating_sub(prepared_bytes)
            .max(3 * segment_bytes)
    }

    /// Whether the log has used up its budget, so that writes have to wait.
    ///
    /// Never with a single live segment, which no image can set free: the log must be able to go on
    /// to the next one. Spare segments count once the log has more than it needs to do that.
    #[must_use]
    pub fn is_over_budget(&self, keyspace: &Keyspace) -> bool {
        let live_bytes = keyspace.log.log_bytes();
        match keyspace.log.segments().count() {
            0 | 1 => false,
            2 => live_bytes >= self.budget,
            _ => live_bytes + self.spare_bytes >= self.budget,
        }
    }

    /// What the log and the images look like now.
    pub(super) fn load(&self, keyspace: &Keyspace) -> Load {
        Load {
            budget: self.budget,
            full: self.full_bytes(keyspace),
            live: keyspace.log.log_bytes(),
            segments: keyspace.log.segments().count(),
            pinned: self.pinned_bytes(keyspace),
            written: self.log_written_bytes,
            imported: keyspace.counters.imported_bytes,
            moves_wait: self.moves_wait,
            imaged: self.imaged_bytes,
            user: keyspace.counters.user_bytes,
            is_imaging: self.is_active(),
        }
    }

    /// Bytes that have to be imaged before the oldest segment can go.
    pub(super) fn pinned_bytes(&self, keyspace: &Keyspace) -> u64 {
        let Some(oldest) = keyspace.log.segments().next() else {
            return 0;
        };
        let pinned = keyspace
            .partitions()
            .filter(|p| p.pin().is_some_and(|pin| pin <= oldest.last_lsn));
        let all: u64 = pinned.map(|p| p.table.data_bytes()).sum();
        let walking = self.walking.iter().flatten();
        let walking = walking.map(|walking| (walking.manifest.image.partition, walking.done()));
        let walked = self.walked.iter();
        let walked = walked.map(|walked| (walked.manifest.image.partition, 1.0));
        let bytes = |id| keyspace.partition(id).map_or(0, |p| p.table.data_bytes());
        let done = walking.chain(walked);
        let done = done.map(|(partition, part)| (bytes(partition) as f64 * part) as u64);
        all.saturating_sub(done.sum())
    }
}
