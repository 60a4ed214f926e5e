//! How long commands take, as INFO, LATENCY and SLOWLOG tell it.
//!
//! The clock is read where a client's input begins and ends, and around each command that may take long: one with more
//! than a short key at its front. Other commands between two readings count with their average.

use std::time::Instant;

use super::stats::{Counter, ShardStats};
use crate::command::spec::{Cmd, Spec};

/// Input of a command from which on it is timed alone.
const LONG_BYTES: usize = 1 << 10;

/// Commands that were executed since the clock was read last.
#[derive(Default)]
pub(crate) struct Timing {
    since: Option<Instant>,
    /// In runs of the same one.
    runs: Vec<(Cmd, u32)>,
    /// These, and those that do not count as executed here: forwarded or refused.
    commands: u32,
    /// How often partitions were used before the present command.
    uses: u64,
    /// What is executed now was handed to another shard.
    pub(crate) is_elsewhere: bool,
}

impl Timing {
    /// Whether the command is timed alone.
    pub(crate) fn is_long(spec: &Spec, source: &[u8]) -> bool {
        source.len() >= LONG_BYTES || spec.first_key() != 1 || spec.last_key() != 1
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.since.is_some()
    }

    /// Since when what is executed now was not counted yet.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// What follows is counted from the next beginning on.
    pub(crate) fn stop(&mut self) {
        self.since = None;
    }

    pub(crate) fn begin(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// A command is over, which counts as that one if as any; `uses` is how often partitions were used at all.
    pub(crate) fn executed(&mut self, cmd: Option<Cmd>, uses: u64) {
        self.commands += 1;
        self.uses = uses;
        let Some(cmd) = cmd else { return };
        match self.runs.last_mut() {
            Some((last, times)) if *last == cmd => *times += 1,
            _ => self.runs.push((cmd, 1)),
        }
    }

    /// Whether partitions, which were used so often at all, were used since a command was over.
    pub(crate) fn has_used(&self, uses: u64) -> bool {
        uses != self.uses
    }

    /// Counts what was executed until `now`; answers what all took, and each, ns.
    pub(crate) fn count(&mut self, now: Instant, stats: &ShardStats) -> (u64, u64) {
        let since = self.since.replace(now).unwrap_or(now);
        let nanos = now.saturating_duration_since(since).as_nanos() as u64;
        let each = nanos / u64::from(self.commands.max(1));
        for (cmd, times) in self.runs.drain(..) {
            stats.of(cmd).took(each, times.into());
        }
        self.commands = 0;
        (nanos, each)
    }
}

/// Steps between one power of two and the next.
const STEPS: usize = 4;

/// Powers of two that are told apart, from 1/32 us up to half an hour.
const OCTAVES: usize = 36;

/// The shortest time that is told apart, in [`unit`]s.
const FIRST: u32 = 5;

/// Times of one command: buckets whose bounds grow by a fourth of a power of two.
#[derive(Debug)]
pub struct Histogram([Counter; STEPS * OCTAVES]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram(std::array::from_fn(|_| Counter::default()))
    }
}

/// A 1024th of a microsecond, so that powers of two of either agree.
fn unit(nanos: u64) -> u64 {
    nanos.saturating_mul(1024) / 1000
}

impl Histogram {
    pub(super) fn add(&self, nanos: u64, times: u64) {
        if let Some(bucket) = self.0.get(index(unit(nanos))) {
            bucket.add(times);
        }
    }

    pub(super) fn reset(&self) {
        self.0.iter().for_each(|bucket| bucket.set(0));
    }
}

fn index(units: u64) -> usize {
    let units = units.max(1 << FIRST);
    let octave = units.ilog2();
    let step = (units >> (octave - 2)) & (STEPS as u64 - 1);
    let index = (octave - FIRST) as usize * STEPS + step as usize;
    index.min(STEPS * OCTAVES - 1)
}

/// The end of a bucket, in microseconds.
fn bound_usec(index: usize) -> f64 {
    let octave = (index / STEPS) as u32 + FIRST;
    let step = (index % STEPS) as u64 + 1;
    let units = (1u64 << octave) + (step << (octave - 2));
    units as f64 / 1024.0
}

/// Times of one command, of several shards.
#[derive(Clone, Debug)]
pub struct Times(Vec<u64>);

impl Times {
    pub fn of<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Times {
        let mut sums = vec![0; STEPS * OCTAVES];
        for histogram in histograms {
            for (sum, bucket) in sums.iter_mut().zip(&histogram.0) {
                *sum += bucket.get();
            }
        }
        Times(sums)
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The time that a part of all, such as 0.99, does not exceed, us: the end of its bucket.
    #[must_use]
    pub fn quantile_usec(&self, part: f64) -> f64 {
        let wanted = (self.count() as f64 * part).ceil() as u64;
        let mut seen = 0;
        let found = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted.max(1)
        });
        found.map_or(0.0, bound_usec)
    }

    /// Powers of two of microseconds, and how many were not longer; only those that more than the one before were.
    #[must_use]
    pub fn cumulative(&self) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        let (mut seen, mut told) = (0, 0);
        for (octave, counts) in self.0.chunks(STEPS).enumerate() {
            seen += counts.iter().sum::<u64>();
            let bound = bound_usec(octave * STEPS + STEPS - 1);
            let is_last_below = bound < 1.0;
            if seen > told && !is_last_below {
                all.push((bound as u64, seen));
                told = seen;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_to_a_fourth() {
        for nanos in [
            1,
            31,
            32,
            500,
            999,
            1_000,
            1_001,
            70_000,
            123_456_789,
            u64::MAX,
        ] {
            let histogram = Histogram::default();
            histogram.add(nanos, 3);
            let times = Times::of([&histogram].into_iter());
            assert_eq!(times.count(), 3);
            let told = times.quantile_usec(0.5);
            let usec = nanos as f64 / 1000.0;
            if (100..1_000_000_000_000).contains(&nanos) {
                assert!(usec <= told && told <= usec * 1.26, "{nanos} ns: {told} us");
            }
        }
    }

    #[test]
    fn quantiles_and_bounds_add_up() {
        let histogram = Histogram::default();
        histogram.add(900, 90);
        histogram.add(3_500, 9);
        histogram.add(100_000, 1);
        let times = Times::of([&histogram].into_iter());
        assert_eq!(times.cumulative(), [(1, 90), (4, 99), (128, 100)]);
        assert!(times.quantile_usec(0.5) <= 1.0);
        assert!(times.quantile_usec(0.99) <= 4.0);
        assert!(times.quantile_usec(0.999) >= 100.0);
    }
}
