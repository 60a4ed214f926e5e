//! Small pages while clients may have to wait for a shard that has moves under way, here or at the other end.
//!
//! Streams and copies that arrive touch new memory all the time, and a huge page may take ms where a
//! hypervisor has to find it. Without clients huge pages are the faster ones.

use std::time::{Duration, Instant};

use crate::small_pages::SmallPages;

/// Between two moves, or two commands, pages stay small for so long.
const LASTS: Duration = Duration::from_secs(1);

/// Nobody is in a hurry to have huge pages again.
const LOOK_AFTER: Duration = Duration::from_millis(1);

/// Whether new memory gets small pages because of this shard.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// Until when it does.
    small: Option<(SmallPages, Instant)>,
}

impl Pages {
    /// Something moves, and clients are there.
    pub(super) fn keep_small(&mut self, now: Instant) {
        self.keep_small_until(now + LASTS);
    }

    /// Something begins to move here, and whether clients are there is not known: to be said again in the
    /// next turn.
    pub(super) fn begin_small(&mut self, now: Instant) {
        self.keep_small_until(now);
    }

    fn keep_small_until(&mut self, until: Instant) {
        match &mut self.small {
            Some((_, last)) => *last = until.max(*last),
            None => self.small = Some((SmallPages::begin(), until)),
        }
    }

    /// Lets go of small pages that nobody has asked for any more.
    pub(super) fn look(&mut self, now: Instant) {
        self.small.take_if(|(_, until)| now > *until);
    }

    /// When to look.
    pub(super) fn next(&self) -> Option<Instant> {
        self.small.as_ref().map(|(_, until)| *until + LOOK_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::bed::start;

    #[test]
    fn pages_are_small_until_nobody_has_asked_for_a_while() {
        let now = start();
        let mut pages = Pages::default();
        pages.look(now);
        assert_eq!(pages.next(), None);
        pages.keep_small(now);
        pages.keep_small(now + LASTS / 2);
        pages.begin_small(now + LASTS);
        pages.look(now + LASTS);
        let next = pages.next().expect("they are small");
        assert!(next > now + LASTS / 2 + LASTS);
        pages.look(next);
        assert_eq!(pages.next(), None);
    }

    #[test]
    fn what_is_not_known_has_to_be_said_again() {
        let mut now = start();
        let mut pages = Pages::default();
        for _ in 0..2 {
            pages.begin_small(now);
            pages.look(now);
            assert!(pages.next().is_some());
            now += LOOK_AFTER;
        }
        pages.look(now);
        assert_eq!(pages.next(), None);
    }
}
