//! Medians, quantiles and a seeded bootstrap interval.

use std::fmt;

use ephesus_wire::rng::Rng;
use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

const RESAMPLES: usize = 10_000;
/// Fixed, so that the same samples always give the same interval.
const BOOTSTRAP_SEED: u64 = 0x4550_4845_5355_5331;

/// A median with the bounds of its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, low, high] = [self.median, self.low, self.high].map(number);
        write!(f, "{median} ({low} to {high})")
    }
}

/// The median with a bootstrapped 95% percentile interval; `None` without samples.
pub fn estimate(samples: &[f64]) -> Option<Estimate> {
    let median = median(samples)?;
    let mut random = Rng::new(BOOTSTRAP_SEED);
    let mut resample = vec![0.0; samples.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            for slot in &mut resample {
                *slot = samples[random.below(samples.len() as u64) as usize];
            }
            resample.sort_by(f64::total_cmp);
            quantile_of_sorted(&resample, 0.5)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Some(Estimate {
        median,
        low: quantile_of_sorted(&medians, 0.025),
        high: quantile_of_sorted(&medians, 0.975),
    })
}

pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(samples, 0.5)
}

/// The quantile `q` in 0..=1, linear between neighbours; `None` without samples.
pub fn quantile(samples: &[f64], q: f64) -> Option<f64> {
    if samples.is_empty() {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(quantile_of_sorted(&sorted, q))
}

fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// A number for a table, with as many decimals as its size needs.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
