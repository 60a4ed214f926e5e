use std::iter::Sum;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

use crate::error::{BenchError, During, Result};

const NS_MAX: u64 = 600_000_000_000;

/// Latencies in nanoseconds, 3 digits, up to ten minutes; longer ones count as so long.
///
/// In JSON: `count` and percentiles, for people, and `hdr`, of which it is read again: the histogram in HdrHistogram's V2
/// format, deflated, in base64. Other implementations and plotters of HdrHistogram read that as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Latencies(Histogram::new_with_max(NS_MAX, 3).expect("bounds of a histogram"))
    }
}

impl Latencies {
    pub fn record_ns(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    pub fn add(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("bounds are the same");
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn us(&self, q: f64) -> f64 {
        self.0.value_at_quantile(q) as f64 / 1e3
    }

    pub fn mean_us(&self) -> f64 {
        self.0.mean() / 1e3
    }

    pub fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }

    /// Quantiles below 1 and their latencies, evenly spread where `1 / (1 - q)` is on a log scale.
    pub fn curve_us(&self) -> impl Iterator<Item = [f64; 2]> + '_ {
        let steps = self.0.iter_quantiles(4);
        let point = |ns: u64, quantile| [quantile, ns as f64 / 1e3];
        steps
            .filter(|step| step.quantile() < 1.0)
            .map(move |step| point(step.value_iterated_to(), step.quantile()))
    }

    /// Percentiles in milliseconds, in the text that HdrHistogram's `outputPercentileDistribution` writes.
    pub fn hgrm(&self) -> String {
        let mut text = format!(
            "{:>12} {:>14} {:>10} {:>14}\n\n",
            "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
        );
        let mut total = 0;
        let ms = |ns: f64| ns / 1e6;
        for step in self.0.iter_quantiles(5) {
            total += step.count_since_last_iteration();
            let quantile = step.quantile_iterated_to();
            let value = ms(step.value_iterated_to() as f64);
            text += &format!("{value:12.6} {quantile:2.12} {total:10}");
            text += &match quantile < 1.0 {
                true => format!(" {:14.2}\n", 1.0 / (1.0 - quantile)),
                false => "\n".to_owned(),
            };
        }
        let last = |first, value, second, other| {
            format!("#[{first:<7} = {value:12.6}, {second:<14} = {other:12.6}]\n")
        };
        text += &last(
            "Mean",
            ms(self.0.mean()),
            "StdDeviation",
            ms(self.0.stdev()),
        );
        let (longest, count) = (ms(self.0.max() as f64), self.0.len() as f64);
        text += &last("Max", longest, "Total count", count);
        let (buckets, values) = (self.0.buckets(), self.0.distinct_values());
        text + &format!("#[Buckets = {buckets:12}, SubBuckets     = {values:12}]\n")
    }
}

impl<'a> Sum<&'a Latencies> for Latencies {
    fn sum<I: Iterator<Item = &'a Latencies>>(parts: I) -> Self {
        let mut all = Latencies::default();
        parts.for_each(|part| all.add(part));
        all
    }
}

#[derive(Serialize, Deserialize)]
struct Written {
    count: u64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    p9999_us: f64,
    max_us: f64,
    hdr: String,
}

impl From<Latencies> for Written {
    fn from(all: Latencies) -> Self {
        let mut hdr = Vec::new();
        let written = V2DeflateSerializer::new().serialize(&all.0, &mut hdr);
        written.expect("there is room in memory");
        Written {
            count: all.count(),
            mean_us: all.mean_us(),
            p50_us: all.us(0.5),
            p90_us: all.us(0.9),
            p99_us: all.us(0.99),
            p999_us: all.us(0.999),
            p9999_us: all.us(0.9999),
            max_us: all.max_us(),
            hdr: STANDARD.encode(hdr),
        }
    }
}

impl TryFrom<Written> for Latencies {
    type Error = BenchError;

    fn try_from(written: Written) -> Result<Self> {
        let hdr = STANDARD.decode(written.hdr).during("hdr")?;
        let histogram: Histogram<u64> =
            Deserializer::new().deserialize(&mut &*hdr).during("hdr")?;
        let mut latencies = Latencies::default();
        latencies.0.add(histogram).during("hdr")?;
        Ok(latencies)
    }
}
