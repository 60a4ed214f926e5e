//! What is done for all moves in the same turn, every so often.

use std::time::{Duration, Instant};

/// Comes every so often.
#[derive(Debug)]
pub(super) struct Interval {
    every: Duration,
    next: Instant,
    is_due: bool,
}

impl Interval {
    /// The first one is there at once.
    pub(super) fn new(every: Duration, now: Instant) -> Interval {
        Interval {
            every,
            next: now,
            is_due: false,
        }
    }

    /// Once a turn.
    pub(super) fn look(&mut self, now: Instant) {
        self.is_due = now >= self.next;
        if self.is_due {
            self.next = now + self.every;
        }
    }

    /// Whether it is in this turn.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Instant {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant does")]
    fn it_comes_every_so_often() {
        let (start, ms) = (Instant::now(), Duration::from_millis(1));
        let mut interval = Interval::new(20 * ms, start);
        let mut is_due = |at: u32| {
            interval.look(start + at * ms);
            interval.is_due()
        };
        let due: Vec<u32> = (0..60).filter(|&at| is_due(at)).collect();
        assert_eq!(due, [0, 20, 40]);
        assert!(is_due(500));
        assert!(!is_due(501), "it begins anew");
        assert_eq!(interval.next(), start + 520 * ms);
    }
}
