//! When images begin, and when they come before latency: a completion target, as PostgreSQL has it.
//!
//! The oldest segment goes once every partition with records in it was imaged. That is a round: it begins when
//! the log is long, or when there is so much to image that it has to begin early, and its images are spread over
//! the room that the log has left. How far they should be depends on nothing but how much of that room is used.
//!
//! When nothing was written for a while, what the log holds is imaged too, so that the next start has little to
//! replay: once per pause, and only if that sets a segment free.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use ephesus_wal::SegmentId;

/// Share of the log budget above which a round begins: what is written meanwhile finds as much room again.
const BEGIN_PERCENT: u64 = 50;

/// Share of the log budget below which no image is worth it.
const WORTHWHILE_PERCENT: u64 = 15;

/// Share of the room left at the beginning of a round that may be used when its images are done: those to come wait
/// for their time.
const DONE_PERCENT: u64 = 50;

/// The same, behind which images come first and streams wait; the rest of the room is left to clients.
const LATE_PERCENT: u64 = 75;

/// Time without a write after which the node is at rest.
const REST_AFTER: Duration = Duration::from_secs(5);

/// What is to be imaged is added up again after this time, or once this part of the budget was written.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOK_PART: u64 = 256;

/// A shard's log at one moment; in bytes, if not a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) budget: u64,
    /// Of live segments.
    pub(super) live: u64,
    /// How many those are.
    pub(super) segments: usize,
    pub(super) oldest: Option<SegmentId>,
    /// Of live segments, written.
    pub(super) used: u64,
    /// Written in live segments when writes have to wait.
    pub(super) full: u64,
    /// Written so far by clients and streams.
    pub(super) changes: u64,
}

impl Load {
    fn is_above(&self, percent: u64) -> bool {
        u128::from(self.live) * 100 > u128::from(self.budget) * u128::from(percent)
    }

    /// Whether a round begins that has to image `pinned` bytes.
    fn is_due(&self, pinned: u64, is_at_rest: bool) -> bool {
        let is_worthwhile = self.segments > 1 && self.is_above(WORTHWHILE_PERCENT);
        let is_much = self.used.saturating_add(pinned) > self.budget;
        self.is_above(BEGIN_PERCENT) || is_worthwhile && (is_at_rest || is_much)
    }
}

/// What has to be imaged before the oldest segment can go, and the log when that began.
#[derive(Clone, Copy, Debug)]
struct Round {
    oldest: Option<SegmentId>,
    pinned: u64,
    used: u64,
}

impl Round {
    /// Compares what is `left` to image with what should be, if all is to be done when this share of the room is used.
    fn compare(&self, left: u64, load: &Load, percent: u64) -> Ordering {
        let room = load.full.saturating_sub(self.used) * percent / 100;
        let room_left = (self.used + room).saturating_sub(load.used);
        // Past the end nothing is in time, even if it is only to be synced.
        if room_left == 0 {
            return Ordering::Greater;
        }
        let due = u128::from(self.pinned) * u128::from(room_left);
        (u128::from(left) * u128::from(room)).cmp(&due)
    }

    fn state(&self, left: u64, load: &Load, is_at_rest: bool) -> State {
        // No image frees the segment that is being written, so none of it is late.
        if load.segments > 1 && self.compare(left, load, LATE_PERCENT) == Ordering::Greater {
            return State::Behind;
        }
        // With nothing left the log may be cut.
        let is_ahead = self.compare(left, load, DONE_PERCENT) == Ordering::Less;
        match is_ahead && left > 0 && !is_at_rest {
            true => State::Ahead,
            false => State::Due,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No round, or its images are further than they have to be.
    #[default]
    Ahead,
    /// The next image may begin.
    Due,
    Behind,
}

/// Says when images begin, and when they come first.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When it was looked, and what was written then.
    looked: Option<(Instant, u64)>,
    /// Since when nothing was written besides these bytes.
    rests_since: Option<(Instant, u64)>,
    round: Option<Round>,
    state: State,
    segments: usize,
}

impl Pace {
    /// Whether another image should begin.
    pub(super) fn is_due(&self) -> bool {
        self.state != State::Ahead
    }

    /// Whether images come before latency.
    pub(super) fn is_behind(&self) -> bool {
        self.state == State::Behind
    }

    /// Whether streams wait for images. Not in a log of two segments, where images are behind whenever the second one
    /// is written to: clients would leave streams nothing.
    pub(super) fn holds_streams(&self) -> bool {
        self.is_behind() && self.segments > 2
    }

    /// Looks at the log, and at how many bytes have to be imaged before the oldest segment can go.
    pub(super) fn look(&mut self, now: Instant, load: &Load, pinned: impl FnOnce() -> u64) {
        let is_recent = |(at, used): (Instant, u64)| {
            let grown = load.used.abs_diff(used);
            now.saturating_duration_since(at) < LOOK_EVERY && grown * LOOK_PART < load.budget
        };
        if self.looked.is_some_and(is_recent) {
            return;
        }
        self.looked = Some((now, load.used));
        self.segments = load.segments;
        let (since, changes) = *self.rests_since.get_or_insert((now, load.changes));
        if changes != load.changes {
            self.rests_since = Some((now, load.changes));
        }
        let is_at_rest =
            changes == load.changes && now.saturating_duration_since(since) >= REST_AFTER;
        self.round = self.round.filter(|round| round.oldest == load.oldest);
        if self.round.is_none() && !load.is_above(WORTHWHILE_PERCENT) {
            self.state = State::Ahead;
            return;
        }
        let left = pinned();
        if self.round.is_none() && load.is_due(left, is_at_rest) {
            let (oldest, used) = (load.oldest, load.used);
            let pinned = left;
            self.round = Some(Round {
                oldest,
                pinned,
                used,
            });
        }
        self.state = match self.round {
            None => State::Ahead,
            Some(round) => round.state(left, load, is_at_rest),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::bed::start;

    const MB: u64 = 1_000_000;

    /// A log of 1000 MB in which writes wait at 900.
    fn load(used: u64) -> Load {
        Load {
            budget: 1_000 * MB,
            live: used * MB,
            segments: 2,
            oldest: Some(SegmentId(1)),
            used: used * MB,
            full: 900 * MB,
            changes: 0,
        }
    }

    /// Looks at logs so long of which so much has to be imaged, in MB.
    fn look(pace: &mut Pace, used: u64, pinned: u64) -> State {
        pace.looked = None;
        pace.look(start(), &load(used), || pinned * MB);
        pace.state
    }

    #[test]
    fn images_begin_when_half_of_the_budget_is_used_or_all_of_it_would_be_behind_them() {
        for (used, pinned, is_due) in [
            (500, 100, false),
            (501, 100, true),
            (300, 700, false),
            (300, 701, true),
            (151, 9_000, true),
            (150, 9_000, false),
        ] {
            let mut pace = Pace::default();
            look(&mut pace, used, pinned);
            assert_eq!(pace.is_due(), is_due, "{used} {pinned}");
            assert!(!pace.is_behind());
        }
    }

    #[test]
    fn images_are_spread_over_the_room_that_is_left_and_come_first_when_they_are_late() {
        let mut pace = Pace::default();
        assert_eq!(look(&mut pace, 600, 100), State::Due, "300 MB are left");
        // Half of the images is to be begun when 75 MB are written, and done when 112 are.
        for (used, left, state) in [
            (610, 90, State::Ahead),
            (675, 49, State::Ahead),
            (675, 50, State::Due),
            (712, 50, State::Due),
            (713, 50, State::Behind),
            (713, 49, State::Due),
            (750, 1, State::Due),
            (824, 0, State::Due),
            (825, 0, State::Behind),
        ] {
            assert_eq!(look(&mut pace, used, left), state, "{used} {left}");
        }
    }

    #[test]
    fn a_round_ends_with_the_oldest_segment_and_the_next_begins_by_the_same_rule() {
        let mut pace = Pace::default();
        look(&mut pace, 600, 100);
        let after = |used| Load {
            oldest: Some(SegmentId(2)),
            ..load(used)
        };
        pace.looked = None;
        pace.look(start(), &after(620), || 100 * MB);
        assert_eq!(pace.state, State::Due, "it has just begun");
        assert_eq!(look(&mut pace, 100, 50), State::Ahead);
    }

    #[test]
    fn nothing_waits_for_images_of_the_segment_that_is_being_written() {
        let mut pace = Pace::default();
        for used in [600, 899, 950] {
            let only = Load {
                segments: 1,
                ..load(used)
            };
            pace.looked = None;
            pace.look(start(), &only, || 50 * MB);
            assert!(!pace.is_behind(), "{used}");
        }
        assert_eq!(look(&mut pace, 950, 50), State::Behind, "another one began");
    }

    #[test]
    fn streams_wait_for_images_that_are_behind_but_not_in_a_log_of_two_segments() {
        let mut pace = Pace::default();
        for (segments, waits) in [(2, false), (3, true)] {
            let load = Load {
                segments,
                ..load(950)
            };
            pace.looked = None;
            pace.look(start(), &load, || 50 * MB);
            assert!(pace.is_behind());
            assert_eq!(pace.holds_streams(), waits, "{segments}");
        }
        look(&mut pace, 100, 50);
        assert!(!pace.holds_streams());
    }

    #[test]
    fn images_that_begin_without_room_come_first() {
        assert_eq!(look(&mut Pace::default(), 900, 1), State::Behind);
    }

    #[test]
    fn a_node_at_rest_images_what_is_worth_it() {
        let mut pace = Pace::default();
        let mut look = |seconds, used, changes| {
            let load = Load {
                changes,
                ..load(used)
            };
            let now = start() + Duration::from_secs(seconds);
            pace.look(now, &load, || 300 * MB);
            pace.is_due()
        };
        assert!(!look(0, 300, 1));
        assert!(!look(4, 300, 2));
        assert!(!look(8, 300, 2), "4 s without a write");
        assert!(!look(9, 150, 2), "not worth it");
        assert!(look(9, 300, 2), "5 s without a write");
    }

    #[test]
    fn it_looks_no_more_often_than_it_has_to() {
        let mut pace = Pace::default();
        look(&mut pace, 600, 100);
        let mut look = |used, after| {
            let mut has_looked = false;
            pace.look(start() + after, &load(used), || {
                has_looked = true;
                0
            });
            has_looked
        };
        assert!(!look(603, LOOK_EVERY / 2));
        assert!(look(604, LOOK_EVERY / 2));
        assert!(look(604, LOOK_EVERY * 3 / 2));
    }
}
