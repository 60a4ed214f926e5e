//! Rates over about the last second, for INFO.

use std::collections::VecDeque;
use std::time::Instant;

use crate::shard::ShardStats;

/// Samples that a rate spans.
const SAMPLES: usize = 10;

/// What is counted, per shard.
type Totals = Vec<[u64; 3]>;

/// Turns counters into rates; sampled by one thread.
#[derive(Debug, Default)]
pub struct Rates {
    samples: VecDeque<(Instant, Totals)>,
}

impl Rates {
    /// Publishes the rates since the oldest sample that is kept.
    pub fn sample(&mut self, now: Instant, stats: &[ShardStats]) {
        let totals = |s: &ShardStats| {
            let counters = [&s.commands, &s.net_input_bytes, &s.net_output_bytes];
            counters.map(|counter| counter.get())
        };
        let current: Totals = stats.iter().map(totals).collect();
        if let Some((at, oldest)) = self.samples.front() {
            let seconds = now.saturating_duration_since(*at).as_secs_f64();
            for ((stats, current), oldest) in stats.iter().zip(&current).zip(oldest) {
                let rates = [
                    &stats.ops_per_second,
                    &stats.net_input_per_second,
                    &stats.net_output_per_second,
                ];
                for ((rate, current), oldest) in rates.into_iter().zip(current).zip(oldest) {
                    // Counters may have been set to 0 meanwhile. As a float, so that a span of no time is a rate of 0.
                    let counted = current.saturating_sub(*oldest) as f64;
                    rate.set((counted / seconds.max(1e-3)).round() as u64);
                }
            }
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((now, current));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rates_span_a_second_and_fall_to_zero_when_nothing_happens() {
        #[expect(clippy::disallowed_methods, reason = "any instant does")]
        let start = Instant::now();
        let stats = [ShardStats::default(), ShardStats::default()];
        let mut rates = Rates::default();
        for tick in 0..=20 {
            stats[0].commands.add(500);
            stats[0].net_input_bytes.add(1_000);
            rates.sample(start + Duration::from_millis(100 * tick), &stats);
        }
        assert_eq!(stats[0].ops_per_second.get(), 5_000);
        assert_eq!(stats[0].net_input_per_second.get(), 10_000);
        assert_eq!(stats[1].ops_per_second.get(), 0);
        for tick in 21..=31 {
            rates.sample(start + Duration::from_millis(100 * tick), &stats);
        }
        assert_eq!(stats[0].ops_per_second.get(), 0);
    }
}
