//! Writes of the log for which the system lacked space or memory: the same bytes go to the same place once more.
//!
//! Nobody was told of what they hold, and whatever of it has got to the device is written over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a write waits before it is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// Such writes, by their numbers.
#[derive(Debug, Default)]
pub(super) struct RefusedWrites {
    /// When each is tried again; `None` while it is.
    due: BTreeMap<u64, Option<Instant>>,
}

impl RefusedWrites {
    pub(super) fn refused(&mut self, write: u64, now: Instant) {
        self.due.insert(write, Some(now + PAUSE));
    }

    pub(super) fn written(&mut self, write: u64) {
        self.due.remove(&write);
    }

    /// Whether there is one, also while it is tried again.
    pub(super) fn are_there(&self) -> bool {
        !self.due.is_empty()
    }

    /// One that is to be tried again now.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<u64> {
        let is_due = |at: &&mut Option<Instant>| at.is_some_and(|at| at <= now);
        let (write, at) = self.due.iter_mut().find(|(_, at)| is_due(at))?;
        *at = None;
        Some(*write)
    }

    /// When the next one is.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.due.values().flatten().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::bed::start;

    #[test]
    fn a_refused_write_is_tried_again_after_each_pause_until_it_is_written() {
        let (mut writes, now) = (RefusedWrites::default(), start());
        writes.refused(7, now);
        writes.refused(5, now + PAUSE / 2);
        assert_eq!(writes.deadline(), Some(now + PAUSE));
        assert_eq!(writes.take_due(now), None);
        assert_eq!(writes.take_due(now + PAUSE), Some(7));
        assert_eq!(writes.take_due(now + PAUSE), None);
        assert_eq!(writes.deadline(), Some(now + PAUSE * 3 / 2));
        assert_eq!(writes.take_due(now + PAUSE * 2), Some(5));
        writes.refused(5, now + PAUSE * 2);
        writes.written(7);
        assert!(writes.are_there());
        assert_eq!(writes.take_due(now + PAUSE * 3), Some(5));
        writes.written(5);
        assert_eq!(writes.deadline(), None);
        assert!(!writes.are_there());
    }
}
