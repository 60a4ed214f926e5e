//! How long a group waits to be written whose records are committed already.
//!
//! With relaxed durability the open group lies in memory that the kernel keeps when the process dies, so nobody
//! waits for its write, which costs a virtual machine about 30 us of CPU whatever its size. So groups are
//! written when they are full, or have waited for [`DELAY_MAX`]: power loss takes the last second either way.

use std::time::{Duration, Instant};

/// Longest time a group waits.
const DELAY_MAX: Duration = Duration::from_millis(5);

/// Whether the open group waits, and since when.
#[derive(Debug, Default)]
pub(super) struct WriteDelay {
    since: Option<Instant>,
}

impl WriteDelay {
    /// Whether what is to be written next waits once more, if it `may`: asked after each turn.
    pub(super) fn delays(&mut self, may: bool, now: Instant) -> bool {
        if !may {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.saturating_duration_since(since) < DELAY_MAX
    }

    /// A group is written; the next one waits from its own start on.
    pub(super) fn written(&mut self) {
        self.since = None;
    }

    /// When the group that waits is written at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(self.since? + DELAY_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::bed::start;

    #[test]
    fn a_group_waits_until_its_deadline() {
        let (mut delay, now) = (WriteDelay::default(), start());
        assert_eq!(delay.deadline(), None);
        assert!(delay.delays(true, now));
        assert_eq!(delay.deadline(), Some(now + DELAY_MAX));
        let before = now + DELAY_MAX - Duration::from_micros(1);
        assert!(delay.delays(true, before));
        assert!(!delay.delays(true, now + DELAY_MAX));
        delay.written();
        assert!(delay.delays(true, now + DELAY_MAX), "the next one anew");
    }

    #[test]
    fn what_may_not_wait_does_not_and_neither_does_it_count() {
        let (mut delay, now) = (WriteDelay::default(), start());
        assert!(delay.delays(true, now));
        assert!(!delay.delays(false, now + DELAY_MAX / 2));
        assert_eq!(delay.deadline(), None);
        assert!(delay.delays(true, now + DELAY_MAX));
    }
}
