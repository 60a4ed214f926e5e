//! How much of the shard moves may take: a share of its time, and of bytes per second.

use std::time::{Duration, Instant};

/// Requests that came within this time count as a load.
const LOAD_LASTS: Duration = Duration::from_millis(1);

/// Longest time that one slice holds the shard: while requests come, and while none do.
const SLICE_LOADED: Duration = Duration::from_micros(50);
const SLICE_IDLE: Duration = Duration::from_micros(200);

/// Under load moves get one part of the time for this many parts of requests.
const PARTS: u32 = 2;

/// The same while images are urgent.
const PARTS_URGENT: u32 = 6;

/// Under load a turn that took longer counts this much more for the requests: they wait already.
const LONG_TURN: Duration = Duration::from_millis(1);

/// What a byte on a socket costs the shard within its system calls, about: it is not seen by the clock
/// around a slice.
const SOCKET_PS_PER_BYTE: u64 = 400;

/// The share of time.
#[derive(Debug)]
pub(super) struct Share {
    last_request: Option<Instant>,
    /// When the turn began that executed them.
    turn_began: Instant,
    is_slow: bool,
    after: Instant,
}

impl Share {
    pub(super) fn new(now: Instant) -> Share {
        Share {
            last_request: None,
            turn_began: now,
            is_slow: false,
            after: now,
        }
    }

    /// A turn begins at `now`; `had_requests` is about the one before.
    pub(super) fn turn(&mut self, now: Instant, had_requests: bool) {
        if had_requests {
            let took = now.saturating_duration_since(self.turn_began);
            self.is_slow = took >= LONG_TURN;
            self.last_request = Some(now);
        }
        self.turn_began = now;
    }

    fn is_loaded(&self, now: Instant) -> bool {
        self.last_request
            .is_some_and(|at| now.saturating_duration_since(at) < LOAD_LASTS)
    }

    /// How long a slice may take that begins now; `None` when requests come first, until
    /// [`Share::next`].
    pub(super) fn slice(&self, now: Instant) -> Option<Duration> {
        if !self.is_loaded(now) {
            return Some(SLICE_IDLE);
        }
        (now >= self.after).then_some(SLICE_LOADED)
    }

    /// When the next slice may begin at the latest.
    pub(super) fn next(&self) -> Instant {
        self.after
    }

    /// A slice that began at `started` took so long, and so many bytes went over sockets since the one
    /// before.
    pub(super) fn took(
        &mut self,
        started: Instant,
        took: Duration,
        socket_bytes: usize,
        is_urgent: bool,
    ) {
        let sockets = Duration::from_nanos(socket_bytes as u64 * SOCKET_PS_PER_BYTE / 1000);
        let mut parts = if is_urgent { PARTS_URGENT } else { PARTS };
        if self.is_slow {
            parts *= 2;
        }
        self.after = started + took + (took + sockets) * parts;
    }
}

/// A bound of bytes per second; at most a tenth of a second's worth is saved up.
#[derive(Debug)]
pub(super) struct Limit {
    /// 0: none.
    bytes_per_s: u64,
    /// What may be sent now; below 0 when the last message took more than there was.
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

    /// Whether a message may be sent now.
    pub(super) fn permits(&mut self, now: Instant) -> bool {
        if self.bytes_per_s == 0 {
            return true;
        }
        let since = now.saturating_duration_since(self.at);
        let gained = since.as_micros() * u128::from(self.bytes_per_s) / 1_000_000;
        if gained > 0 {
            self.at = now;
            let most = i64::try_from(self.bytes_per_s / 10).unwrap_or(i64::MAX);
            let gained = i64::try_from(gained).unwrap_or(i64::MAX);
            self.credit = self.credit.saturating_add(gained).min(most);
        }
        self.credit >= 0
    }

    pub(super) fn spend(&mut self, bytes: usize) {
        if self.bytes_per_s != 0 {
            self.credit -= bytes as i64;
        }
    }

    /// When [`Limit::permits`] again, if it does not now.
    pub(super) fn next(&self) -> Option<Instant> {
        if self.bytes_per_s == 0 || self.credit >= 0 {
            return None;
        }
        let micros = self.credit.unsigned_abs().saturating_mul(1_000_000) / self.bytes_per_s;
        Some(self.at + Duration::from_micros(micros + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "any instant does")]
    fn start() -> Instant {
        Instant::now()
    }

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn an_idle_shard_moves_at_once() {
        let now = start();
        let mut share = Share::new(now);
        assert_eq!(share.slice(now), Some(SLICE_IDLE));
        share.took(now, SLICE_IDLE, 1 << 20, true);
        assert_eq!(share.slice(now), Some(SLICE_IDLE));
    }

    #[test]
    fn requests_get_their_parts() {
        let now = start();
        let mut share = Share::new(now);
        share.turn(now + 30 * US, true);
        let started = now + 30 * US;
        assert_eq!(share.slice(started), Some(SLICE_LOADED));
        share.took(started, 50 * US, 0, false);
        assert_eq!(share.next(), started + 150 * US);
        assert_eq!(share.slice(started + 149 * US), None);
        assert_eq!(share.slice(started + 150 * US), Some(SLICE_LOADED));
        assert_eq!(
            share.slice(started + LOAD_LASTS),
            Some(SLICE_IDLE),
            "nobody is there any more"
        );
    }

    #[test]
    fn sockets_urgent_images_and_long_turns_count() {
        let now = start();
        let mut share = Share::new(now);
        share.turn(now, true);
        share.took(now, 50 * US, 100_000, false);
        assert_eq!(share.next(), now + 230 * US);
        share.took(now, 50 * US, 0, true);
        assert_eq!(share.next(), now + 350 * US);
        share.turn(now + LONG_TURN, true);
        share.took(now, 50 * US, 0, false);
        assert_eq!(share.next(), now + 250 * US);
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
