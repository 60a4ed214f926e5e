//! How long a group waits for more records with relaxed durability.
//!
//! The log writes a group when no other is under way. A write costs a virtual machine about 30 us of CPU
//! whatever its size, so while many requests come, fewer and larger groups are cheaper. A group waits only if
//! the one before was large, only as long as requests come, and never for long: with few clients or without
//! pipelining it is written at once.

use std::time::{Duration, Instant};

/// Groups wait only behind one of this many bytes.
const AFTER_BYTES: usize = 16 << 10;

/// A group of this many bytes does not wait.
const ENOUGH_BYTES: usize = 64 << 10;

/// Longest time a group waits.
const DELAY_MAX: Duration = Duration::from_micros(150);

/// Whether the open group waits, and since when.
#[derive(Debug, Default)]
pub(super) struct CommitDelay {
    last_bytes: usize,
    since: Option<Instant>,
}

impl CommitDelay {
    /// Whether a group of `bytes`, which could be written, waits once more: asked after each turn, with
    /// whether it has brought requests.
    pub(super) fn delays(&mut self, bytes: usize, had_requests: bool, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let delays = had_requests
            && self.last_bytes >= AFTER_BYTES
            && (1..ENOUGH_BYTES).contains(&bytes)
            && now.saturating_duration_since(since) < DELAY_MAX;
        if !delays {
            self.since = None;
        }
        delays
    }

    /// A group of `bytes` is written.
    pub(super) fn written(&mut self, bytes: usize) {
        self.last_bytes = bytes;
        self.since = None;
    }

    /// Whether a group waits.
    pub(super) fn is_delaying(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "any instant does")]
    fn start() -> Instant {
        Instant::now()
    }

    fn after(bytes: usize) -> CommitDelay {
        let mut delay = CommitDelay::default();
        delay.written(bytes);
        delay
    }

    #[test]
    fn only_behind_a_large_group() {
        let now = start();
        for (last, bytes, had_requests, delays) in [
            (0, 1, true, false),
            (AFTER_BYTES - 1, 1, true, false),
            (AFTER_BYTES, 1, true, true),
            (AFTER_BYTES, 0, true, false),
            (AFTER_BYTES, ENOUGH_BYTES - 1, true, true),
            (AFTER_BYTES, ENOUGH_BYTES, true, false),
            (AFTER_BYTES, 1, false, false),
        ] {
            let mut delay = after(last);
            let found = delay.delays(bytes, had_requests, now);
            let case = (last, bytes, had_requests);
            assert_eq!((found, delay.is_delaying()), (delays, delays), "{case:?}");
        }
    }

    #[test]
    fn no_longer_than_the_limit_however_many_requests_come() {
        let (mut delay, now) = (after(AFTER_BYTES), start());
        let before = DELAY_MAX - Duration::from_micros(1);
        assert!(delay.delays(1, true, now));
        assert!(delay.delays(1, true, now + before));
        assert!(!delay.delays(1, true, now + DELAY_MAX));
        delay.written(AFTER_BYTES);
        assert!(delay.delays(1, true, now + DELAY_MAX), "the next one anew");
    }
}
