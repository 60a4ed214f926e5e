//! How long to wait before dialling again.

use std::time::Duration;

use ephesus_wire::rng::Rng;

/// The first wait, at most.
pub const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// The longest wait.
pub const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Waits that double from [`BACKOFF_MIN`] to [`BACKOFF_MAX`], each shortened by up to a half at
/// random, so that those who lost the same peer do not come back at once.
#[derive(Clone, Debug)]
pub struct Backoff {
    ceiling: Duration,
    rng: Rng,
}

impl Backoff {
    /// `seed` has to differ between those that may wait for the same peer.
    #[must_use]
    pub fn new(seed: u64) -> Backoff {
        Backoff {
            ceiling: BACKOFF_MIN,
            rng: Rng::new(seed),
        }
    }

    /// How long to wait after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        let ceiling = self.ceiling;
        self.ceiling = (ceiling * 2).min(BACKOFF_MAX);
        let half_us = ceiling.as_micros() as u64 / 2;
        ceiling - Duration::from_micros(self.rng.below(half_us + 1))
    }

    /// It has worked: the next failure begins anew.
    pub fn reset(&mut self) {
        self.ceiling = BACKOFF_MIN;
    }
}

#[cfg(test)]
mod tests;
