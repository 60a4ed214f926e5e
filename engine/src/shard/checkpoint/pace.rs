//! When images have to begin, and when they come before comfort.
//!
//! A segment goes only once every partition that has records in it was imaged. With much data that
//! takes long, so it is not enough to look at how full the log is: what matters is whether the
//! images are done before the log is full, as fast as both grow now.
//!
//! When clients have written nothing for a while, what the log holds is imaged too, so that the next
//! start has little to replay: once per pause, and only if that sets a segment free.

use std::time::{Duration, Instant};

/// Share of the log budget above which images are written, however slowly the log grows.
const BEGIN_PERCENT: u64 = 60;

/// Share of the log budget above which images come first, however slowly the log grows.
const URGENT_PERCENT: u64 = 75;

/// Share of the log budget below which no image is worth it.
const WORTHWHILE_PERCENT: u64 = 15;

/// Share of the log budget at which the images should be done.
const DONE_PERCENT: u64 = 90;

/// Time without a write after which the node is at rest.
const REST_AFTER: Duration = Duration::from_secs(5);

/// How often the rates are measured.
const EVERY: Duration = Duration::from_millis(100);

/// Weight of the newest measurement.
const WEIGHT: f64 = 0.2;

/// Image bytes per second before any were measured: about what a core writes of small entries that serves
/// clients as well. With a guess that is too high the log is full before the first images are done.
const IMAGED_PER_S_FIRST: f64 = 45e6;

/// No slower rate is believed.
const IMAGED_PER_S_MIN: f64 = 1e6;

/// Images begin so many times earlier than they would just be done in time.
const HEADROOM: f64 = 1.5;

/// What a shard's log and images look like at one moment; in bytes, if not a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) budget: u64,
    /// Of live segments at which writes have to wait.
    pub(super) full: u64,
    /// Of live segments.
    pub(super) live: u64,
    /// How many those are.
    pub(super) segments: usize,
    /// Of the partitions that hold on to the oldest segment, what is not imaged yet.
    pub(super) pinned: u64,
    /// Written to the log so far.
    pub(super) written: u64,
    /// Of that, about what streams have brought.
    pub(super) imported: u64,
    /// Whether streams bring only what clients write.
    pub(super) moves_wait: bool,
    /// Of blocks handed to the stores so far.
    pub(super) imaged: u64,
    /// Written by clients so far.
    pub(super) user: u64,
    /// Whether images are under way.
    pub(super) is_imaging: bool,
}

/// Measures both rates and decides.
#[derive(Debug)]
pub(super) struct Pace {
    last: Option<(Instant, Load)>,
    /// Since when clients have written nothing.
    rests_since: Option<Instant>,
    /// By clients: a copy that comes in makes the log grow fast and not for long, which is no reason to image
    /// while it is short.
    written_per_s: f64,
    /// By clients and streams.
    grown_per_s: f64,
    imaged_per_s: f64,
    /// The same while they came first.
    urgent_per_s: f64,
    is_due: bool,
    is_urgent: bool,
    moves_wait: bool,
}

impl Load {
    fn part(&self, percent: u64) -> u64 {
        self.budget / 100 * percent
    }

    /// Whether images are worth it although nothing presses.
    fn is_worthwhile(&self) -> bool {
        self.segments > 1 && self.live > self.part(WORTHWHILE_PERCENT)
    }
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            last: None,
            rests_since: None,
            written_per_s: 0.0,
            grown_per_s: 0.0,
            imaged_per_s: IMAGED_PER_S_FIRST,
            urgent_per_s: IMAGED_PER_S_FIRST,
            is_due: false,
            is_urgent: false,
            moves_wait: false,
        }
    }
}

impl Pace {
    /// Whether another image should begin, with so many bytes of live segments.
    pub(super) fn is_due(&self, budget: u64, live: u64) -> bool {
        self.is_due || live > budget / 100 * BEGIN_PERCENT
    }

    /// Whether images come before comfort.
    pub(super) fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    /// Whether streams have to let images get ahead.
    pub(super) fn moves_wait(&self) -> bool {
        self.moves_wait
    }

    /// Looks at the load, at most every [`EVERY`].
    pub(super) fn look(&mut self, now: Instant, load: impl FnOnce() -> Load) {
        let since = self.last.map(|(at, _)| now.saturating_duration_since(at));
        if since.is_some_and(|since| since < EVERY) {
            return;
        }
        let load = load();
        if let (Some(since), Some((_, last))) = (since, self.last) {
            let per_s = |now: u64, before: u64| (now - before) as f64 / since.as_secs_f64();
            let mix = |old: &mut f64, new: f64| *old += (new - *old) * WEIGHT;
            let grown = per_s(load.written, last.written);
            mix(&mut self.grown_per_s, grown);
            let written = if load.moves_wait && last.moves_wait {
                grown
            } else {
                (grown - per_s(load.imported, last.imported)).max(0.0)
            };
            mix(&mut self.written_per_s, written);
            if load.is_imaging && last.is_imaging {
                let imaged = per_s(load.imaged, last.imaged);
                mix(&mut self.imaged_per_s, imaged);
                if self.is_urgent {
                    mix(&mut self.urgent_per_s, imaged);
                }
            }
        }
        let changes = |load: &Load| (load.user, load.imported);
        if self
            .last
            .is_none_or(|(_, last)| changes(&last) != changes(&load))
        {
            self.rests_since = Some(now);
        }
        self.last = Some((now, load));
        let is_at_rest = self
            .rests_since
            .is_some_and(|since| now.saturating_duration_since(since) >= REST_AFTER);
        self.decide(&load, is_at_rest);
    }

    /// When to look again although nothing happens: the node may be at rest then, or streams go on.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let (at, load) = self.last?;
        if self.moves_wait {
            return Some(at + EVERY);
        }
        let rests = self.rests_since? + REST_AFTER;
        (load.is_worthwhile() && !self.is_due).then_some(rests.max(at + EVERY))
    }

    fn decide(&mut self, load: &Load, is_at_rest: bool) {
        // In seconds; infinite when nothing is written.
        let left =
            |bytes: u64| bytes.min(load.full).saturating_sub(load.live) as f64 / self.written_per_s;
        let needed = |per_s: f64| load.pinned as f64 / per_s.max(IMAGED_PER_S_MIN);
        let pressed = needed(self.imaged_per_s) * HEADROOM;
        let is_pressing = pressed > left(load.part(DONE_PERCENT));
        // In idle moments images are cheaper, so they come first no earlier than they must.
        let stays = if self.is_urgent { HEADROOM } else { 1.0 };
        let hurried = needed(self.imaged_per_s.max(self.urgent_per_s)) * stays;
        let is_late = load.is_imaging && hurried > left(load.full);
        // As if all went on like this: once streams wait the log grows less, and images get on faster.
        let left_to_moves = load.full.saturating_sub(load.live) as f64 / self.grown_per_s;
        self.moves_wait = load.is_imaging && pressed > left_to_moves;
        self.is_due = load.is_worthwhile() && (is_at_rest || is_pressing);
        self.is_urgent = is_late || load.live > load.part(URGENT_PERCENT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::bed::start;

    const MB: u64 = 1_000_000;

    fn load(live: u64, pinned: u64) -> Load {
        Load {
            budget: 1_000 * MB,
            full: 1_000 * MB,
            live: live * MB,
            segments: 2,
            pinned: pinned * MB,
            written: 0,
            imported: 0,
            moves_wait: false,
            imaged: 0,
            user: 0,
            is_imaging: false,
        }
    }

    /// Looks every 100 ms while `written` and `imaged` MB per second are reached.
    fn after(load: Load, written: u64, imaged: u64) -> Pace {
        let (mut pace, start) = (Pace::default(), start());
        for n in 0..100 {
            let load = Load {
                written: n * written * MB / 10,
                user: n,
                imaged: n * imaged * MB / 10,
                is_imaging: imaged > 0,
                ..load
            };
            pace.look(start + EVERY * n as u32, || load);
        }
        pace
    }

    #[test]
    fn a_log_that_does_not_grow_is_judged_by_its_length() {
        for (live, is_due, is_urgent) in [
            (0, false, false),
            (599, false, false),
            (601, true, false),
            (751, true, true),
        ] {
            let pace = after(load(live, 10_000), 0, 0);
            let found = (pace.is_due(1_000 * MB, live * MB), pace.is_urgent());
            assert_eq!(found, (is_due, is_urgent), "{live}");
        }
    }

    #[test]
    fn much_data_begins_early_and_little_data_late() {
        // 600 MB of room at 60 MB/s: 10 s are left.
        assert!(!after(load(300, 280), 60, 0).is_due, "9.3 s are needed");
        assert!(after(load(300, 320), 60, 0).is_due, "10.7 s are needed");
        assert!(!after(load(100, 9_000), 60, 0).is_due, "not worth it yet");
    }

    #[test]
    fn what_streams_bring_does_not_count_as_growth() {
        let (mut pace, start) = (Pace::default(), start());
        for n in 0..100 {
            let load = Load {
                written: n * 60 * MB / 10,
                imported: n * 50 * MB / 10,
                user: n,
                ..load(300, 700)
            };
            pace.look(start + EVERY * n as u32, || load);
        }
        // 15.6 s are needed, with headroom 23 s; at 10 MB/s 60 s are left, at 60 MB/s 10 s.
        assert!(!pace.is_due);
    }

    #[test]
    fn writes_wait_before_the_budget_is_used_up() {
        let near = |pinned| Load {
            full: 850 * MB,
            ..load(600, pinned)
        };
        // 250 MB at 60 MB/s: 4.2 s.
        assert!(after(near(200), 60, 40).is_urgent(), "4.4 s are needed");
        assert!(!after(near(150), 60, 40).is_urgent(), "3.3 s are needed");
        let near = |pinned| Load {
            full: 500 * MB,
            ..load(300, pinned)
        };
        // 200 MB at 60 MB/s: 3.3 s.
        assert!(after(near(110), 60, 0).is_due, "3.7 s are needed");
        assert!(!after(near(90), 60, 0).is_due, "3 s are needed");
    }

    /// Streams bring 40 of 60 MB/s, and 360 MB take 8 s.
    fn with_streams(live: u64, waits: bool, is_imaging: bool) -> Pace {
        let (mut pace, start) = (Pace::default(), start());
        for n in 0..100 {
            let load = Load {
                written: n * 60 * MB / 10,
                imported: n * 40 * MB / 10,
                imaged: n * 45 * MB / 10,
                moves_wait: waits,
                is_imaging,
                user: n,
                ..load(live, 360)
            };
            pace.look(start + EVERY * n as u32, || load);
        }
        pace
    }

    #[test]
    fn streams_wait_where_images_would_not_be_done_in_time() {
        // With headroom 12 s are needed.
        assert!(!with_streams(260, false, true).moves_wait(), "12.3 s left");
        assert!(with_streams(300, false, true).moves_wait(), "11.7 s left");
        assert!(
            !with_streams(300, false, false).moves_wait(),
            "nothing would end the wait"
        );
        let waiting = with_streams(300, false, true);
        let looked = waiting.last.map(|(at, _)| at + EVERY);
        assert_eq!(waiting.next_look(), looked, "the wait may be over soon");
        assert!(!with_streams(580, false, true).is_urgent(), "8 of 21 s");
        assert!(
            with_streams(580, true, true).is_urgent(),
            "8 of 7 s: what comes while streams wait is what clients write"
        );
    }

    #[test]
    fn images_that_fall_behind_come_first_until_they_have_caught_up() {
        // In a hurry 45 MB/s are expected: 8 s for 360 MB.
        assert!(!after(load(400, 360), 60, 20).is_urgent(), "8 of 10 s");
        assert!(after(load(580, 360), 60, 20).is_urgent(), "8 of 7 s");
        assert!(!after(load(580, 360), 60, 60).is_urgent(), "6 of 7 s");
        let mut pace = after(load(580, 360), 60, 20);
        pace.urgent_per_s = 60e6;
        let imaging = |live| Load {
            is_imaging: true,
            ..load(live, 360)
        };
        pace.decide(&imaging(580), false);
        assert!(pace.is_urgent(), "only just in time");
        pace.decide(&imaging(400), false);
        assert!(!pace.is_urgent(), "ahead again");
    }

    #[test]
    fn a_node_at_rest_images_what_is_worth_it() {
        let (mut pace, start) = (Pace::default(), start());
        let at = |seconds| start + Duration::from_secs(seconds);
        let written = |user| Load {
            user,
            ..load(300, 300)
        };
        pace.look(at(0), || written(1));
        pace.look(at(4), || written(2));
        assert_eq!(pace.next_look(), Some(at(9)));
        pace.look(at(8), || written(2));
        assert!(!pace.is_due, "4 s without a write");
        pace.look(at(9), || written(2));
        assert!(pace.is_due, "5 s without a write");
        assert_eq!(pace.next_look(), None, "it is under way");
        pace.look(at(10), || written(3));
        assert!(!pace.is_due, "a write ends the pause");
        let little = |user| Load {
            user,
            ..load(100, 100)
        };
        for seconds in [20, 40] {
            pace.look(at(seconds), || little(4));
            assert!(!pace.is_due && pace.next_look().is_none(), "not worth it");
        }
    }

    #[test]
    fn it_looks_no_more_often_than_it_has_to() {
        let (mut pace, start) = (Pace::default(), start());
        pace.look(start, || load(0, 0));
        pace.look(start + EVERY / 2, || unreachable!("too early"));
    }
}
