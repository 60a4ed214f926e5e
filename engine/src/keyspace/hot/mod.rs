//! Which keys are used the most: one use of about 128 is counted, in a [`Sketch`].
//!
//! Counts are halved every ten seconds, so that they are of now; what was counted and the time in which it was are
//! halved with them.

mod sketch;
pub mod tracking;

pub use sketch::{Key, Sketch};

use std::time::Duration;

use ephesus_wire::Slot;
use ephesus_wire::rng::Rng;

/// Of so many uses one is counted, on average; it is drawn which.
const USES_PER_SAMPLE: u64 = 128;

/// Keys that are told apart.
const KEYS: usize = 128;

/// Counts are halved so often.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// Steps of what OBJECT FREQ tells between one power of two and the next.
const FREQ_STEPS: f64 = 8.0;

/// A key that is used much.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey {
    pub key: Key,
    /// About so many uses per second: one of them in [`USES_PER_SAMPLE`] is counted.
    pub per_second: f64,
    /// Its part of all uses.
    pub share: f64,
}

/// The keys that a shard uses the most.
#[derive(Debug)]
pub struct HotKeys {
    rng: Rng,
    /// Uses until one is counted.
    left: u64,
    sketch: Sketch,
    /// In which the counts were counted, as halved as they are.
    seconds: f64,
    /// Since they were halved.
    since: Duration,
}

impl HotKeys {
    #[must_use]
    pub fn new(seed: u64) -> HotKeys {
        HotKeys {
            rng: Rng::new(seed),
            left: 1,
            sketch: Sketch::new(KEYS),
            seconds: 0.0,
            since: Duration::ZERO,
        }
    }

    /// A key is used; true if that has to be counted.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// Counts the use of a key, of which it was said that it has to be.
    #[cold]
    pub fn count(&mut self, hash: u64, key: &[u8]) {
        self.left = self.rng.between(1, 2 * USES_PER_SAMPLE);
        self.sketch.add(hash, key, 1);
    }

    /// The next use is to be counted, and this one is none.
    pub fn wait(&mut self) {
        self.left = 1;
    }

    /// Forgets the keys of other slots.
    pub fn keep(&mut self, is_kept: impl Fn(Slot) -> bool) {
        self.sketch.keep(is_kept);
    }

    /// So much time has passed.
    pub fn pass(&mut self, passed: Duration) {
        self.seconds += passed.as_secs_f64();
        self.since += passed;
        while self.since >= HALF_LIFE && !self.sketch.is_empty() {
            self.since -= HALF_LIFE;
            self.sketch.halve();
            self.seconds /= 2.0;
        }
        // Time in which nothing was counted is none of that of the next counts.
        if self.sketch.is_empty() {
            (self.since, self.seconds) = (Duration::ZERO, 0.0);
        }
    }

    /// Uses that the counts stand for at least: eight times the binary logarithm, and 0 for a key that is none of those
    /// that are used the most.
    #[must_use]
    pub fn frequency(&self, hash: u64) -> u64 {
        let uses = self.sketch.least(hash) * USES_PER_SAMPLE;
        let frequency = FREQ_STEPS * (uses as f64 + 1.0).log2();
        (frequency as u64).min(255)
    }

    /// The hottest keys, as many as that at most.
    #[must_use]
    pub fn hottest(&self, most: usize) -> Vec<HotKey> {
        let seconds = self.seconds.max(1.0);
        let all = self.sketch.total().max(1) as f64;
        let hot = |(key, least): (&Key, u64)| HotKey {
            key: key.clone(),
            per_second: (least * USES_PER_SAMPLE) as f64 / seconds,
            share: least as f64 / all,
        };
        self.sketch.top(most).into_iter().map(hot).collect()
    }
}

#[cfg(test)]
mod tests;
