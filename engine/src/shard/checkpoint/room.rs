//! How full the log is: what writes wait for, and what images are paced by.

use super::pace::Load;
use super::{Checkpointer, StoreLink};
use crate::keyspace::Keyspace;

/// Share of its log budget up to which truncated files are kept: zero-filling new ones costs as much
/// of the disk as the log itself.
const KEEP_PERCENT: u64 = 90;

impl<L: StoreLink> Checkpointer<L> {
    /// Bytes of log files up to which truncated ones are worth keeping for later.
    #[must_use]
    pub fn keep_bytes(&self) -> u64 {
        self.budget / 100 * KEEP_PERCENT
    }

    /// Whether the log may take what moves bring besides what clients write: not while images are behind, but in a
    /// log of two segments. A move makes
    /// it grow as fast as a disk writes, and images, which alone make it shorter, are slower: without this clients
    /// would wait for the images of what others move.
    #[must_use]
    pub fn has_room_for_moves(&self) -> bool {
        !self.pace.holds_streams()
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

    /// What the log looks like now.
    pub(super) fn load(&self, keyspace: &Keyspace) -> Load {
        let log = &keyspace.log;
        let (live, segment_bytes) = (log.log_bytes(), log.options().segment_bytes);
        // What is prepared counts as well, and the next segment is over the budget when it begins.
        let ahead = log.options().spare_segments as u64 + 1;
        let most = (self.budget / segment_bytes).saturating_sub(ahead);
        Load {
            budget: self.budget,
            live,
            segments: log.segments().count(),
            oldest: log.segments().next().map(|oldest| oldest.id),
            used: live - log.unused_bytes(),
            full: most.max(1) * segment_bytes,
            changes: keyspace.counters.user_bytes + keyspace.counters.imported_bytes,
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
