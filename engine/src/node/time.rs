//! The node's time, which deadlines of keys are held against.
//!
//! It follows the machine's clock and never goes back, over restarts neither: every log group carries it. Behind a
//! clock that was ahead once it goes on by the monotonic clock, so that keys still expire when they should by what
//! clients were told. docs/time.md says what a jump of the machine's clock may do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// From here on an operator is told that the node's time is ahead of the machine's clock.
pub const AHEAD_WARN_MS: u64 = 1_000;

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock {
    /// What tests make it wrong by.
    shift_ms: i64,
}

impl WallClock {
    #[must_use]
    pub fn shifted(shift_ms: i64) -> WallClock {
        WallClock { shift_ms }
    }

    /// Unix milliseconds.
    #[expect(clippy::disallowed_methods, reason = "where wall time enters")]
    #[must_use]
    pub fn now_ms(self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = since.map_or(0, |since| since.as_millis() as u64);
        now_ms.saturating_add_signed(self.shift_ms)
    }
}

/// The time of all shards of a node: max(wall clock, last time that was seen + monotonic clock since).
#[derive(Debug)]
pub struct NodeTime {
    wall: WallClock,
    origin: Instant,
    /// The time at `origin`, Unix ms; it only grows.
    at_origin_ms: AtomicU64,
}

impl NodeTime {
    /// Goes on from `last_ms`, the latest time that the node's data has seen.
    #[expect(clippy::disallowed_methods, reason = "where time enters")]
    #[must_use]
    pub fn start(wall: WallClock, last_ms: u64) -> NodeTime {
        NodeTime {
            wall,
            origin: Instant::now(),
            at_origin_ms: AtomicU64::new(last_ms),
        }
    }

    /// The monotonic clock and the time, Unix ms.
    #[expect(clippy::disallowed_methods, reason = "where time enters")]
    #[must_use]
    pub fn read(&self) -> (Instant, u64) {
        // In this order: a pause between the two must not look like a wall clock that is ahead.
        let wall_ms = self.wall.now_ms();
        let now = Instant::now();
        (now, self.at(wall_ms, now))
    }

    /// The monotonic clock alone, for how long something took.
    #[expect(clippy::disallowed_methods, reason = "where time enters")]
    #[must_use]
    pub fn instant(&self) -> Instant {
        Instant::now()
    }

    /// The time, Unix us, as whoever asks is told: never earlier than what [`NodeTime::read`] has answered before.
    #[must_use]
    pub fn usec(&self) -> u64 {
        let elapsed = self.instant().saturating_duration_since(self.origin);
        let at_origin_ms = self.at_origin_ms.load(Ordering::Relaxed);
        let at_origin_usec = at_origin_ms.saturating_mul(1000);
        at_origin_usec.saturating_add(elapsed.as_micros() as u64)
    }

    /// How far the time is ahead of the machine's clock, ms.
    #[must_use]
    pub fn ahead_ms(&self) -> u64 {
        let wall_ms = self.wall.now_ms();
        let (_, now_ms) = self.read();
        // Clocks that are read in whole milliseconds differ by one.
        match now_ms.saturating_sub(wall_ms) {
            0..=1 => 0,
            ahead_ms => ahead_ms,
        }
    }

    /// The time when the wall clock has shown `wall_ms` and the monotonic clock then shows `now`.
    fn at(&self, wall_ms: u64, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.origin);
        let elapsed_ms = elapsed.as_millis() as u64;
        let at_origin_ms = wall_ms.saturating_sub(elapsed_ms);
        let mut known_ms = self.at_origin_ms.load(Ordering::Relaxed);
        if at_origin_ms > known_ms {
            known_ms = self.at_origin_ms.fetch_max(at_origin_ms, Ordering::Relaxed);
        }
        known_ms.max(at_origin_ms).saturating_add(elapsed_ms)
    }
}

/// Tells an operator once that the node's time is ahead, and once that it is not any more.
#[derive(Debug, Default)]
pub struct AheadNotice {
    is_told: bool,
}

impl AheadNotice {
    pub fn look(&mut self, ahead_ms: u64) {
        let is_ahead = ahead_ms >= AHEAD_WARN_MS;
        if is_ahead && !self.is_told {
            tracing::warn!(
                ahead_ms,
                "this machine's clock is behind the latest time that the data has seen: keys expire by a time \
                 that is {:?} ahead of it (INFO clock_ahead_ms, docs/time.md)",
                Duration::from_millis(ahead_ms),
            );
        }
        if !is_ahead && self.is_told {
            tracing::info!("the time that keys expire by is this machine's clock again");
        }
        self.is_told = is_ahead;
    }
}

#[cfg(test)]
mod tests;
