//! Lines of the log about what clients can make happen any number of times.

use std::time::{Duration, Instant};

/// Most often that one thing is told of.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Tells of the first of many events, and then of their number now and then.
#[derive(Debug, Default)]
pub(super) struct Seldom {
    told: Option<Instant>,
    untold: u64,
}

impl Seldom {
    /// Counts an event; answers how many there were since the last line, if one is due.
    pub(super) fn tell(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        let is_recent = |told: Instant| now.saturating_duration_since(told) < TELL_EVERY;
        if self.told.is_some_and(is_recent) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::bed;

    #[test]
    fn many_events_are_one_line_and_a_number() {
        let (start, mut events) = (bed::start(), Seldom::default());
        assert_eq!(events.tell(start), Some(1));
        for ms in 0..100 {
            assert_eq!(events.tell(start + Duration::from_millis(ms)), None);
        }
        assert_eq!(events.tell(start + TELL_EVERY), Some(101));
        assert_eq!(events.tell(start + TELL_EVERY), None);
    }
}
