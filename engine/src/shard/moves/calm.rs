//! When holds may begin: not while the disk stands still, and not right after commands had to wait.
//!
//! A hold lasts for two syncs, the target's and the coordinators'. Disks that several machines share, or
//! that write a lot at once, stand still for tens of ms now and then, often several times in a row: a
//! hold that begins then lasts for as long, and one that waits for the end of it costs no client anything.
//! The shard's own log tells: it is written all the time while there are clients to be held. It tells of stalls
//! that recur, too, when a quota of CPU time is used up: no hold begins shortly before the next one is due.
//!
//! Holds in which commands have waited are kept apart, so that few of all commands meet one: with 16 of 512
//! partitions held at a time, and commands that are sent together waiting for each other, nearly half of
//! all clients wait during a hold. A sixth of a percent of the commands may: then the slowest percent of
//! them, which is what p99 tells, has room for what else they meet. With fewer partitions held it is
//! accordingly fewer commands.

use std::time::{Duration, Instant};

use crate::shard::stalls::Stalls;

/// So long after a slow write another one is expected.
const LASTS: Duration = Duration::from_millis(40);

/// Behind a hold of all partitions in which commands have waited none would begin for so many times as long:
/// for 300 times with 16 of 1024, of which 512 are written to.
const REST_TIMES: u32 = 19_200;

/// The longest rest: what was held for long, or was much of all, is not all that is to move.
const REST_MAX: Duration = Duration::from_secs(3);

/// How the shard's log is written, and when commands have waited.
#[derive(Debug)]
pub(super) struct Calm {
    /// No hold begins before.
    until: Instant,
    /// In which slow writes were under way.
    stalls: Stalls,
}

impl Calm {
    pub(super) fn new(now: Instant) -> Calm {
        Calm {
            until: now,
            stalls: Stalls::default(),
        }
    }

    /// A write of the log has taken so long.
    pub(super) fn wrote(&mut self, took: Duration, now: Instant) {
        self.waits(took, now);
        self.stalls.wrote(took, now);
    }

    /// A write is under way for so long.
    pub(super) fn waits(&mut self, since: Duration, now: Instant) {
        if self.stalls.is_slow(since) {
            self.until = self.until.max(now + LASTS);
        }
    }

    /// Commands have waited for the end of a hold of so long, of so many partitions of those here.
    pub(super) fn held(&mut self, took: Duration, (held, all): (usize, usize), now: Instant) {
        let share = held as f64 / all.max(held).max(1) as f64;
        let rest = took.mul_f64(share * f64::from(REST_TIMES)).min(REST_MAX);
        self.until = self.until.max(now + rest);
    }

    /// Whether holds may begin.
    pub(super) fn is_calm(&self, now: Instant) -> bool {
        self.next(now).is_none()
    }

    /// When to ask [`Calm::is_calm`] again if nothing is written until then, if it is not so now.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        if now < self.until {
            return Some(self.until);
        }
        self.stalls.near_until(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::bed::start;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn it_is_calm_until_a_write_is_slow_and_again_a_while_later() {
        let now = start();
        let mut calm = Calm::new(now);
        calm.wrote(MS, now);
        assert!(calm.is_calm(now) && calm.next(now).is_none());
        calm.waits(20 * MS, now);
        assert!(!calm.is_calm(now + LASTS - MS));
        assert_eq!(calm.next(now), Some(now + LASTS));
        assert!(calm.is_calm(now + LASTS));
        calm.wrote(25 * MS, now + 5 * MS);
        assert!(!calm.is_calm(now + LASTS), "it counts from its end on");
    }

    #[test]
    fn it_is_not_calm_shortly_before_a_stall_that_recurs() {
        let mut now = start();
        let mut calm = Calm::new(now);
        for _ in 0..4 {
            for _ in 0..90 {
                now += MS;
                calm.wrote(MS, now);
            }
            now += 10 * MS;
            calm.wrote(10 * MS, now);
        }
        assert!(!calm.is_calm(now + 30 * MS), "another one may follow");
        assert!(calm.is_calm(now + LASTS) && calm.is_calm(now + 54 * MS));
        assert_eq!(calm.next(now + 80 * MS), Some(now + 100 * MS));
        assert!(!calm.is_calm(now + 99 * MS) && calm.is_calm(now + 101 * MS));
    }

    #[test]
    fn commands_that_have_waited_keep_the_next_hold_away() {
        let now = start();
        let mut calm = Calm::new(now);
        calm.held(2 * MS, (16, 1024), now);
        calm.held(MS, (16, 1024), now + MS);
        assert_eq!(calm.next(now), Some(now + 600 * MS));
        assert!(!calm.is_calm(now + 599 * MS) && calm.is_calm(now + 600 * MS));
    }

    #[test]
    fn few_partitions_among_many_keep_the_next_hold_away_for_less_and_none_for_ever() {
        let now = start();
        for (held, all, ms) in [
            (16, 512, 1200),
            (1, 512, 75),
            (1, 1024, 37),
            (1, 1, 3000),
            (2, 0, 3000),
        ] {
            let mut calm = Calm::new(now);
            calm.held(2 * MS, (held, all), now);
            let rest = calm.next(now).expect("it is not calm").duration_since(now);
            assert_eq!(rest.as_millis(), ms, "{held} of {all}");
        }
    }

    #[test]
    fn what_is_slow_goes_by_what_is_usual() {
        let mut now = start();
        let mut calm = Calm::new(now);
        for _ in 0..500 {
            now += 50 * MS;
            calm.wrote(10 * MS, now);
        }
        assert!(
            calm.is_calm(now),
            "a slow disk is not one that stands still"
        );
        calm.wrote(30 * MS, now);
        assert!(calm.is_calm(now));
        calm.wrote(60 * MS, now);
        assert!(!calm.is_calm(now));
    }
}
