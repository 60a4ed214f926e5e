//! How far apart writes of the log are while CPU time runs out.
//!
//! With strict durability a shard writes its log as soon as something waits for it. Each write costs CPU time
//! beyond what it writes: of the shard, of the kernel's workers that complete and sync it, of whoever carries
//! out a virtual machine's I/O, and of the clients that wake up one by one. While there is enough of it that is
//! the quickest way. But where it is limited by a quota, what is used too much is taken away at once: everything
//! stands still for the rest of the period, and one percent of all commands waits for much longer than all
//! others would for fewer writes.
//!
//! So while stalls recur ([`Stalls`]) writes keep a distance, which grows with every stall and shrinks slowly
//! without, and those who come meanwhile share one, as with PostgreSQL's `commit_delay`. Nothing waits when
//! nobody else is expected: when all connections wait that have written lately ([`Writers`]), as clients do that
//! send one command after the other. And where hardly anything comes but writes the shard does not wake up for
//! each of them, but for all when the next write of the log is due.

use std::time::{Duration, Instant};

use super::stalls::Stalls;

/// The distance grows by so much, up to this.
const STEP: Duration = Duration::from_micros(100);
const APART_MAX: Duration = Duration::from_millis(1);

/// Below it nothing waits any more.
const APART_MIN: Duration = Duration::from_micros(50);

/// After so long without a stall it shrinks, by one part of so many.
const EASE_EVERY: Duration = Duration::from_secs(1);
const EASE_PARTS: u32 = 32;

/// Who is so late at the end of a delay has stood still.
const LATE: Duration = Duration::from_millis(2);

/// A group of so many bytes waits for nobody.
pub(super) const BYTES_MAX: usize = 64 << 10;

/// The distance between writes, and how long the next one waits.
#[derive(Debug)]
pub(super) struct CommitDelay {
    stalls: Stalls,
    apart: Duration,
    /// When the distance has changed, or a stall has kept it.
    changed: Instant,
    deadline: Option<Instant>,
}

impl CommitDelay {
    pub(super) fn new(now: Instant) -> CommitDelay {
        CommitDelay {
            stalls: Stalls::default(),
            apart: Duration::ZERO,
            changed: now,
            deadline: None,
        }
    }

    /// A write of the log has taken so long.
    pub(super) fn wrote(&mut self, took: Duration, now: Instant) {
        if self.stalls.wrote(took, now) {
            self.stalled(now);
        }
    }

    /// There was another stall. The first ones have to recur; who knows that they do goes by each.
    fn stalled(&mut self, now: Instant) {
        if !self.apart.is_zero() || self.stalls.recur() {
            self.apart = (self.apart + STEP).min(APART_MAX);
            self.changed = now;
        }
    }

    /// The distance that writes keep.
    pub(super) fn apart(&self) -> Duration {
        self.apart
    }

    /// Whether the next write waits once more, if it `may`, when the last one was at `last`: asked after each turn.
    pub(super) fn delays(&mut self, may: bool, last: Instant, now: Instant) -> bool {
        if let Some(deadline) = self.deadline.take()
            && now > deadline + LATE
            && self.stalls.ended(now)
        {
            self.stalled(now);
        }
        if now.saturating_duration_since(self.changed) >= EASE_EVERY {
            self.changed = now;
            self.apart -= self.apart / EASE_PARTS;
            if self.apart < APART_MIN {
                self.apart = Duration::ZERO;
            }
        }
        let deadline = last + self.apart;
        if may && now < deadline {
            self.deadline = Some(deadline);
        }
        self.deadline.is_some()
    }

    /// When what waits is written at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

/// So long is lately, at least, and less than twice of it.
const LATELY: Duration = Duration::from_millis(16);

/// Of so many inputs all but one are writes where hardly anybody reads.
const FEW_READS: usize = 8;

/// Who has waited for the log lately.
#[derive(Debug)]
pub(super) struct Writers {
    began: Instant,
    /// Number of the span of time that has begun then.
    span: u64,
    so_far: Counts,
    before: Counts,
}

/// Of one span.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    connections: usize,
    inputs: usize,
    waits: usize,
}

impl Writers {
    pub(super) fn new(now: Instant) -> Writers {
        Writers {
            began: now,
            span: 1,
            so_far: Counts::default(),
            before: Counts::default(),
        }
    }

    fn look(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.began);
        if since >= LATELY {
            let so_far = std::mem::take(&mut self.so_far);
            self.before = if since < 2 * LATELY {
                so_far
            } else {
                Counts::default()
            };
            self.began = now;
            self.span += 1;
        }
    }

    /// Something has come that may have to wait for the log.
    pub(super) fn input(&mut self, now: Instant) {
        self.look(now);
        self.so_far.inputs += 1;
    }

    /// A connection waits for the log that did so last in the span it tells.
    pub(super) fn waits(&mut self, last: &mut u64, now: Instant) {
        self.look(now);
        self.so_far.waits += 1;
        if *last != self.span {
            *last = self.span;
            self.so_far.connections += 1;
        }
    }

    /// How many connections have waited lately.
    pub(super) fn lately(&self) -> usize {
        self.so_far.connections.max(self.before.connections)
    }

    /// Whether hardly anything has come lately that did not have to wait.
    pub(super) fn are_all(&self) -> bool {
        let inputs = self.so_far.inputs + self.before.inputs;
        let waits = self.so_far.waits + self.before.waits;
        waits * FEW_READS >= inputs * (FEW_READS - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::*;
    use crate::net::ListenerKind::Direct;
    use crate::shard::bed::{Bed, key, start};
    use crate::shard::core::Gated;

    const MS: Duration = Duration::from_millis(1);

    /// A log that was written every ms, and stood still for 10 of each 100, so many times.
    fn after_stalls(count: u32) -> (CommitDelay, Instant) {
        let mut now = start();
        let mut delay = CommitDelay::new(now);
        for _ in 0..count {
            for _ in 0..90 {
                now += MS;
                delay.wrote(MS, now);
            }
            now += 10 * MS;
            delay.wrote(10 * MS, now);
        }
        (delay, now)
    }

    #[test]
    fn the_distance_grows_with_stalls_once_they_recur() {
        let (mut delay, now) = after_stalls(3);
        assert!(delay.apart().is_zero() && !delay.delays(true, now, now));
        for (stalls, apart) in [(4, STEP), (5, 2 * STEP), (20, APART_MAX)] {
            let (mut delay, now) = after_stalls(stalls);
            assert_eq!(delay.apart(), apart);
            assert!(delay.delays(true, now, now), "{stalls}");
            assert_eq!(delay.deadline(), Some(now + apart), "{stalls}");
            assert!(!delay.delays(true, now, now + apart), "{stalls}");
            assert_eq!(delay.deadline(), None);
        }
    }

    #[test]
    fn what_may_not_wait_does_not_and_nothing_does_long_after_the_last_write() {
        let (mut delay, now) = after_stalls(20);
        assert!(!delay.delays(false, now, now));
        assert_eq!(delay.deadline(), None);
        assert!(!delay.delays(true, now - MS, now));
    }

    #[test]
    fn who_is_late_has_stood_still() {
        let (mut delay, now) = after_stalls(4);
        assert!(delay.delays(true, now, now));
        let late = now + 30 * MS;
        assert!(!delay.delays(false, now, late));
        assert!(delay.delays(true, late, late));
        assert_eq!(delay.deadline(), Some(late + 2 * STEP));
        assert!(
            !delay.delays(false, late, late + 2 * STEP + LATE),
            "in time"
        );
        assert!(delay.delays(true, late, late));
        assert_eq!(delay.deadline(), Some(late + 2 * STEP));
    }

    #[test]
    fn without_stalls_the_distance_is_gone_within_two_minutes() {
        let (mut delay, mut now) = after_stalls(20);
        let mut seconds = 0;
        while !delay.apart().is_zero() {
            now += EASE_EVERY;
            seconds += 1;
            assert!(!delay.delays(false, now, now));
        }
        assert!((60..120).contains(&seconds), "{seconds}");
        delay.wrote(30 * MS, now);
        assert!(delay.apart().is_zero(), "one stall is not one of many");
    }

    #[test]
    fn each_connection_counts_once_for_a_while() {
        let now = start();
        let mut writers = Writers::new(now);
        let mut connections = [0; 5];
        for _ in 0..3 {
            for last in &mut connections {
                writers.waits(last, now);
            }
        }
        assert_eq!(writers.lately(), 5);
        writers.waits(&mut connections[0], now + LATELY);
        assert_eq!(writers.lately(), 5, "those of the span before");
        writers.waits(&mut connections[0], now + 2 * LATELY);
        assert_eq!(writers.lately(), 1);
        writers.waits(&mut connections[1], now + 4 * LATELY);
        assert_eq!(writers.lately(), 1, "none of long ago");
    }

    #[test]
    fn who_mostly_writes_is_told_from_who_reads() {
        let now = start();
        for (reads, are_all) in [(0, true), (1, true), (2, false), (14, false)] {
            let mut writers = Writers::new(now);
            for _ in 0..7 {
                writers.input(now);
                writers.waits(&mut 0, now);
            }
            for _ in 0..reads {
                writers.input(now);
            }
            assert_eq!(writers.are_all(), are_all, "{reads}");
            writers.look(now + LATELY);
            assert_eq!(writers.are_all(), are_all, "{reads}: of the span before");
            writers.look(now + 2 * LATELY);
            writers.waits(&mut 0, now + 2 * LATELY);
            assert!(writers.are_all(), "{reads}: none of long ago");
        }
    }

    #[test]
    fn writers_are_expected_until_all_wait_who_did_so_lately() {
        let mut bed = Bed::new(2, &[]);
        let [here, there] = [0, 0].map(|shard| bed.connect(shard, Direct));
        let next = |bed: &mut Bed| bed.core(0).keyspace.log.committed().next();
        let lsn = next(&mut bed);
        assert!(!bed.core(0).expects_writers(), "nobody waits");
        for client in [here, there] {
            bed.core(0).wait_for(client.token, lsn);
            assert!(!bed.core(0).expects_writers(), "all wait whom it knows");
        }
        bed.ask(here, &[&format!("SET {} v", key(0, 0))]);
        assert!(!bed.core(0).expects_writers(), "all are answered");
        let lsn = next(&mut bed);
        bed.core(0).wait_for(here.token, lsn);
        assert!(bed.core(0).expects_writers(), "one of two waits");
        let forwarded = Gated::Replies(0);
        bed.core(0).gates.push(Reverse((lsn, forwarded)));
        assert!(!bed.core(0).expects_writers(), "who else is not known");
    }
}
