//! What is measured of moves, and what it should reach.

use std::collections::BTreeMap;

use crate::load::Phase;
use crate::measure::{Goal, Measure, Measures, Scale, Verdict, less, more};
use crate::plot::{Axis, Kind, Plot, Series};
use crate::record::Row;
use crate::stats;

use super::case::{Case, Writes};
use super::contestant::Contestant;
use super::round::Outcome;

#[cfg(test)]
mod tests;

const SHARE_OF_GOAL: &str = "rate, share of the goal";
/// Ephesus / Valkey in memory.
const FASTER: f64 = 2.0;
/// Of the raw disk, where that is less.
const OF_DISK: f64 = 0.6;
const GROWTH_MB_MAX: f64 = 64.0;
const HOLD_P99_MS_MAX: f64 = 10.0;
const P99_RATIO_MAX: f64 = 2.0;
/// Of what is usual.
const THROUGHPUT_MIN: f64 = 0.5;
const MB: f64 = 1e6;

/// What the machine can do, measured in every round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw {
    /// Sequential O_DSYNC writes as a log makes them, several at a time.
    pub(super) disk_mb_per_s: f64,
    /// The same writes one by one, as `dd oflag=direct,dsync bs=1M` makes them; no goal is held against it.
    pub(super) disk_one_by_one_mb_per_s: f64,
    /// One TCP connection over loopback.
    pub(super) loopback_mb_per_s: f64,
}

/// All samples of one case.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    measures: Measures<Contestant>,
    /// Of every move in every round.
    holds_ms: BTreeMap<Contestant, Vec<f64>>,
    raw: Vec<Raw>,
    case: Case,
}

impl Samples {
    pub(super) fn new(case: Case) -> Self {
        Samples {
            measures: Measures::default(),
            holds_ms: BTreeMap::new(),
            raw: Vec::new(),
            case,
        }
    }

    /// Adds what one round has found; contestants whose move failed have no figures of it.
    pub(super) fn add(&mut self, raw: Raw, outcomes: &[(Contestant, Outcome)]) {
        self.raw.push(raw);
        for (contestant, outcome) in outcomes {
            self.add_move(*contestant, outcome, raw);
            self.add_writers(*contestant, outcome);
        }
        let rate = |wanted| {
            let found = outcomes
                .iter()
                .find(|(contestant, _)| *contestant == wanted);
            found.map_or(f64::NAN, |(_, outcome)| rates(outcome).0)
        };
        let of_valkey = rate(Contestant::Ephesus) / (FASTER * rate(Contestant::Valkey));
        let of_disk = rate(Contestant::Ephesus) / (OF_DISK * raw.disk_mb_per_s);
        if self.case.writes == Writes::None && !of_valkey.is_nan() {
            let share = more("").to(Goal::RatioAtLeast(1.0));
            let best = of_valkey.max(of_disk);
            self.record(SHARE_OF_GOAL, share, Contestant::Ephesus, best);
        }
    }

    fn add_move(&mut self, contestant: Contestant, outcome: &Outcome, raw: Raw) {
        let (mb_per_s, keys_per_s) = rates(outcome);
        let known = |value: f64| match outcome.failure {
            None => value,
            Some(_) => f64::NAN,
        };
        let whole = known(outcome.bytes as f64 / MB / outcome.whole.as_secs_f64());
        let faster = (self.case.writes == Writes::None).then_some(Goal::RatioAtLeast(FASTER));
        let mut record = |name: &str, scale, value| self.record(name, scale, contestant, value);
        record("rate", more("MB/s").to(faster), mb_per_s);
        record("keys", more("keys/s"), keys_per_s);
        record("rate from the order on", more("MB/s"), whole);
        for (what, raw) in [
            ("disk", raw.disk_mb_per_s),
            ("disk, write by write", raw.disk_one_by_one_mb_per_s),
            ("loopback TCP", raw.loopback_mb_per_s),
        ] {
            record(
                &format!("rate, of raw {what}"),
                more("%"),
                mb_per_s / raw * 100.0,
            );
        }
        record(
            "attempts beyond the first",
            less(""),
            outcome.said.retries as f64,
        );
        if let Some([source, target]) = outcome.ends {
            let forked = outcome.said.forked_bytes as f64;
            let source_mb = (source.growth_bytes as f64 + forked) / MB;
            let target_mb = target.growth_bytes as f64 / MB;
            let bounded = less("MB").to(Goal::ValueAtMost(GROWTH_MB_MAX));
            record("source memory growth", bounded, known(source_mb));
            record("target memory growth", less("MB"), known(target_mb));
            let beyond = target_mb - outcome.bytes as f64 / MB;
            record("target growth beyond data", bounded, known(beyond));
            for (name, end) in [("source CPU", source), ("target CPU", target)] {
                let us = end.cpu.as_secs_f64() * 1e6 / outcome.keys as f64;
                record(name, less("us per key"), known(us));
            }
        }
        let holds = self.holds_ms.entry(contestant).or_default();
        holds.extend(&outcome.said.holds_ms);
    }

    fn add_writers(&mut self, contestant: Contestant, outcome: &Outcome) {
        let Some(found) = &outcome.writers else {
            return;
        };
        let phases = [
            ("before", Phase::Before),
            ("during", Phase::During),
            ("after", Phase::After),
        ];
        let phases = phases.map(|(when, phase)| (when, found.all(phase), found.per_s(phase)));
        let [(_, before, before_per_s), (_, during, during_per_s), _] = &phases;
        // A closed loop has no latency of its own.
        let is_open = matches!(self.case.writes, Writes::PerSecond(_));
        let calm = is_open.then_some(Goal::ValueAtMost(P99_RATIO_MAX));
        let is_full = self.case.writes == Writes::Unlimited;
        let mut record = |name: &str, scale, value| self.record(name, scale, contestant, value);
        for (when, all, _) in &phases {
            record(&format!("p50 {when}"), less("ms"), all.us(0.5) / 1e3);
        }
        for (when, all, _) in &phases {
            record(&format!("p99 {when}"), less("ms"), all.us(0.99) / 1e3);
        }
        record("maximum during", less("ms"), during.max_us() / 1e3);
        let ratio = during.us(0.99) / before.us(0.99);
        record("p99 during / before", less("").to(calm), ratio);
        for (when, _, per_s) in &phases {
            record(&format!("writes {when}"), more("/s"), *per_s);
        }
        if is_full {
            // What is not done is the lost share.
            let lost = less("share").to(Goal::ValueAtMost(1.0 - THROUGHPUT_MIN));
            record(
                "writes lost during",
                lost,
                1.0 - during_per_s / before_per_s,
            );
        }
        let errors: u64 = found.errors().values().sum();
        record(
            "client errors",
            less("").to(Goal::ValueAtMost(0.0)),
            errors as f64,
        );
        record("redirects", less(""), found.redirects() as f64);
    }

    fn record(&mut self, name: &str, scale: Scale, contestant: Contestant, value: f64) {
        self.measures.record(name, scale, contestant, value);
    }

    /// The table's lines.
    pub(super) fn rows(&self) -> Vec<Row> {
        let bounded = less("ms").to(Goal::ValueAtMost(HOLD_P99_MS_MAX));
        let holds = [
            ("p50", 0.5, less("ms")),
            ("p99", 0.99, bounded),
            ("maximum", 1.0, less("ms")),
        ];
        let of_holds = holds.map(|(name, quantile, scale)| {
            let mut measure = Measure::new(format!("hold {name}, all moves"), scale);
            for (contestant, holds) in &self.holds_ms {
                let value = stats::quantile(holds, quantile).into_iter().collect();
                measure.samples.insert(*contestant, value);
            }
            measure
        });
        self.measures.0.iter().chain(&of_holds).map(row).collect()
    }

    /// How long moves were held, by quantile.
    pub(super) fn holds(&self) -> Plot {
        let of = |(contestant, holds): (&Contestant, &Vec<f64>)| {
            let mut us: Vec<f64> = holds.iter().map(|ms| ms * 1e3).collect();
            us.sort_by(f64::total_cmp);
            let share = 1.0 / us.len() as f64;
            let name = format!("{contestant}, {} moves", us.len());
            Series::new(
                name,
                us.into_iter()
                    .enumerate()
                    .map(|(at, us)| [at as f64 * share, us]),
            )
        };
        let axes = [Axis::log("percentile", ""), Axis::log("", "us")];
        Plot::new(
            "Holds by percentile",
            Kind::Percentiles,
            axes,
            self.holds_ms.iter().map(of).collect(),
        )
    }

    /// What the machine could do meanwhile.
    pub(super) fn raw(&self) -> String {
        let of = |read: fn(&Raw) -> f64| {
            let values: Vec<f64> = self.raw.iter().map(read).collect();
            stats::median(&values).map_or("-".to_owned(), stats::number)
        };
        format!(
            "raw disk {} MB/s, write by write {} MB/s, raw loopback TCP {} MB/s",
            of(|raw| raw.disk_mb_per_s),
            of(|raw| raw.disk_one_by_one_mb_per_s),
            of(|raw| raw.loopback_mb_per_s)
        )
    }
}

/// MB/s and keys/s from the first copying on.
fn rates(outcome: &Outcome) -> (f64, f64) {
    let seconds = match outcome.failure {
        None => outcome.copying.as_secs_f64(),
        Some(_) => f64::NAN,
    };
    let (bytes, keys) = (outcome.bytes as f64, outcome.keys as f64);
    (bytes / MB / seconds, keys / seconds)
}

fn row(measure: &Measure<Contestant>) -> Row {
    let own = Contestant::Ephesus;
    let others = measure.samples.keys().filter(|one| **one != own);
    let ratio = |other: Contestant| stats::estimate(&measure.ratios_to(own, |one| one == other));
    let ratios = others.map(|&other| (other.to_string(), ratio(other)));
    let value = match measure.goal {
        // What is a ratio already has no peer.
        Some(Goal::RatioAtLeast(_) | Goal::RatioAtMost(_)) if measure.name != SHARE_OF_GOAL => {
            stats::median(&measure.ratios_to(own, |one| one == Contestant::Valkey))
        }
        _ => measure.median(own),
    };
    Row::new(measure, Verdict::on(measure.goal, value), ratios)
}
