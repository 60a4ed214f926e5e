//! How much of the shard moves may take: a share of its time, and of bytes per second.

use std::time::{Duration, Instant};

/// Requests that came within this time count as a load.
const LOAD_LASTS: Duration = Duration::from_millis(1);

/// Time that one slice holds the shard: a request that comes meanwhile waits for it.
const SLICE: Duration = Duration::from_micros(100);

/// ShardMigrations get one part of the time for this many parts of requests, if there are any, and of images that are urgent.
/// Requests lose more than that, as the target, the kernel and the coordinators take time for moves, too.
const PARTS: u32 = 8;

/// The share of time.
#[derive(Debug)]
pub(super) struct Share {
    /// When requests were executed last.
    last_request: Option<Instant>,
    after: Instant,
}

impl Share {
    pub(super) fn new(now: Instant) -> Share {
        Share {
            last_request: None,
            after: now,
        }
    }

    /// A turn has executed requests.
    pub(super) fn requested(&mut self, now: Instant) {
        self.last_request = Some(now);
    }

    /// How long a slice may take that begins now; `None` when others come first, until [`Share::next`].
    pub(super) fn slice(&self, now: Instant) -> Option<Duration> {
        (now >= self.after).then_some(SLICE)
    }

    /// When the next slice may begin at the latest.
    pub(super) fn next(&self) -> Instant {
        self.after
    }

    /// A slice that began at `started` took so long.
    pub(super) fn took(&mut self, started: Instant, took: Duration, is_urgent: bool) {
        let ended = started + took;
        let is_recent = |at| ended.saturating_duration_since(at) < LOAD_LASTS;
        let others = self.last_request.is_some_and(is_recent) || is_urgent;
        self.after = ended + if others { took * PARTS } else { Duration::ZERO };
    }
}

/// A bound of bytes per second that walks add to streams; at most a tenth of a second's worth is saved up.
#[derive(Debug)]
pub(super) struct Limit {
    /// 0: none.
    bytes_per_s: u64,
    /// What may be added now; below 0 when the last step took more than there was.
    credit: i64,
    at: Instant,
}

impl Limit {
    pub(super) fn none(now: Instant) -> Limit {
        Limit {
            bytes_per_s: 0,
            credit: 0,
            at: now,
        }
    }

    pub(super) fn set(&mut self, bytes_per_s: u64, now: Instant) {
        *self = Limit {
            bytes_per_s,
            credit: 0,
            at: now,
        };
    }

    pub(super) fn is_set(&self) -> bool {
        self.bytes_per_s != 0
    }

    /// Adds what the time since the last call gives.
    pub(super) fn refill(&mut self, now: Instant) {
        if !self.is_set() {
            return;
        }
        let since = now.saturating_duration_since(self.at);
        let gained = since.as_micros() * u128::from(self.bytes_per_s) / 1_000_000;
        if gained > 0 {
            self.at = now;
            let most = i64::try_from(self.bytes_per_s / 10).unwrap_or(i64::MAX);
            let gained = i64::try_from(gained).unwrap_or(i64::MAX);
            self.credit = self.credit.saturating_add(gained).min(most);
        }
    }

    /// Whether walks may go on now.
    pub(super) fn permits(&mut self, now: Instant) -> bool {
        self.refill(now);
        !self.is_set() || self.credit >= 0
    }

    pub(super) fn spend(&mut self, bytes: usize) {
        if self.is_set() {
            self.credit -= bytes as i64;
        }
    }

    /// When [`Limit::permits`] again, if it did not when it was last filled.
    pub(super) fn next(&self) -> Option<Instant> {
        if !self.is_set() || self.credit >= 0 {
            return None;
        }
        let micros = self.credit.unsigned_abs().saturating_mul(1_000_000) / self.bytes_per_s;
        Some(self.at + Duration::from_micros(micros + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::bed::start;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn an_idle_shard_moves_at_once() {
        let now = start();
        let mut share = Share::new(now);
        assert_eq!(share.slice(now), Some(SLICE));
        share.took(now, SLICE, false);
        assert_eq!(share.slice(now + SLICE), Some(SLICE));
    }

    #[test]
    fn requests_and_urgent_images_get_their_parts() {
        let now = start();
        let mut share = Share::new(now);
        for is_urgent in [false, true] {
            if !is_urgent {
                share.requested(now);
            }
            let started = now + if is_urgent { 9_000 * US } else { US };
            share.took(started, 50 * US, is_urgent);
            assert_eq!(share.next(), started + 450 * US);
            assert_eq!(share.slice(started + 449 * US), None);
            assert_eq!(share.slice(started + 450 * US), Some(SLICE));
        }
    }

    #[test]
    fn a_limit_holds_over_time_and_saves_little_up() {
        let mut now = start();
        let mut limit = Limit::none(now);
        assert!(limit.permits(now) && limit.next().is_none());
        limit.set(10_000_000, now);
        let (first, mut sent) = (now, 0);
        while now < first + Duration::from_secs(1) {
            while limit.permits(now) {
                limit.spend(64_000);
                sent += 64_000;
            }
            now = limit.next().expect("it is used up");
        }
        assert!((9_900_000..=10_100_000).contains(&sent), "{sent}");
        now += Duration::from_secs(60);
        sent = 0;
        while limit.permits(now) {
            limit.spend(64_000);
            sent += 64_000;
        }
        assert!(sent <= 1_100_000, "{sent} after a pause");
    }
}
