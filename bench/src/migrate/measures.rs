//! What is measured of moves, and what it should reach.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::compare::{Better, Goal, Measure, Verdict};
use crate::load::Phase;
use crate::stats::{self, Estimate};

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
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Raw {
    /// Sequential O_DSYNC writes as a log makes them, several at a time.
    pub(super) disk_mb_per_s: f64,
    /// The same writes one by one, as `dd oflag=direct,dsync bs=1M` makes them; no goal is held against it.
    pub(super) disk_one_by_one_mb_per_s: f64,
    /// One TCP connection over loopback.
    pub(super) loopback_mb_per_s: f64,
}

/// All samples of one case.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Samples {
    measures: Vec<Measure<Contestant>>,
    /// Of every move in every round.
    holds_ms: BTreeMap<Contestant, Vec<f64>>,
    raw: Vec<Raw>,
    #[serde(skip)]
    case: Case,
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) medians: BTreeMap<Contestant, Option<f64>>,
    /// Ephesus / each of the others, paired by round, with its interval.
    pub(super) ratios: BTreeMap<Contestant, Estimate>,
    pub(super) goal: Option<Goal>,
    pub(super) verdict: Verdict,
}

impl Samples {
    pub(super) fn new(case: Case) -> Self {
        Samples {
            measures: Vec::new(),
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
            self.record(
                Spec(
                    SHARE_OF_GOAL,
                    "",
                    Better::Higher,
                    Some(Goal::RatioAtLeast(1.0)),
                ),
                Contestant::Ephesus,
                of_valkey.max(of_disk),
            );
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
        let growth = Some(Goal::ValueAtMost(GROWTH_MB_MAX));
        use Better::{Higher, Lower};
        let mut record = |spec, value| self.record(spec, contestant, value);
        record(Spec("rate", "MB/s", Higher, faster), mb_per_s);
        record(Spec("keys", "keys/s", Higher, None), keys_per_s);
        record(Spec("rate from the order on", "MB/s", Higher, None), whole);
        let of_disk = mb_per_s / raw.disk_mb_per_s * 100.0;
        record(Spec("rate, of raw disk", "%", Higher, None), of_disk);
        let of_one = mb_per_s / raw.disk_one_by_one_mb_per_s * 100.0;
        record(
            Spec("rate, of raw disk, write by write", "%", Higher, None),
            of_one,
        );
        let of_loopback = mb_per_s / raw.loopback_mb_per_s * 100.0;
        record(
            Spec("rate, of raw loopback TCP", "%", Higher, None),
            of_loopback,
        );
        record(
            Spec("attempts beyond the first", "", Lower, None),
            outcome.said.retries as f64,
        );
        if let Some([source, target]) = outcome.ends {
            let forked = outcome.said.forked_bytes as f64;
            let source_mb = (source.growth_bytes as f64 + forked) / MB;
            let target_mb = target.growth_bytes as f64 / MB;
            let beyond = known(target_mb - outcome.bytes as f64 / MB);
            record(
                Spec("source memory growth", "MB", Lower, growth),
                known(source_mb),
            );
            record(
                Spec("target memory growth", "MB", Lower, None),
                known(target_mb),
            );
            record(
                Spec("target growth beyond data", "MB", Lower, growth),
                beyond,
            );
            for (name, end) in [("source CPU", source), ("target CPU", target)] {
                let us = end.cpu.as_secs_f64() * 1e6 / outcome.keys as f64;
                record(Spec(name, "us per key", Lower, None), known(us));
            }
        }
        let holds = self.holds_ms.entry(contestant).or_default();
        holds.extend(&outcome.said.holds_ms);
    }

    fn add_writers(&mut self, contestant: Contestant, outcome: &Outcome) {
        let Some(found) = &outcome.writers else {
            return;
        };
        use Better::{Higher, Lower};
        let [before, during, after] =
            [Phase::Before, Phase::During, Phase::After].map(|phase| found.phase(phase));
        // A closed loop has no latency of its own.
        let is_open = matches!(self.case.writes, Writes::PerSecond(_));
        let calm = is_open.then_some(Goal::ValueAtMost(P99_RATIO_MAX));
        let ms = |us: f64| us / 1e3;
        let mut record = |spec, value| self.record(spec, contestant, value);
        record(Spec("p50 before", "ms", Lower, None), ms(before.all.p50_us));
        record(Spec("p50 during", "ms", Lower, None), ms(during.all.p50_us));
        record(Spec("p50 after", "ms", Lower, None), ms(after.all.p50_us));
        record(Spec("p99 before", "ms", Lower, None), ms(before.all.p99_us));
        record(Spec("p99 during", "ms", Lower, None), ms(during.all.p99_us));
        record(Spec("p99 after", "ms", Lower, None), ms(after.all.p99_us));
        record(
            Spec("maximum during", "ms", Lower, None),
            ms(during.all.max_us),
        );
        record(
            Spec("p99 during / before", "", Lower, calm),
            during.all.p99_us / before.all.p99_us,
        );
        record(Spec("writes before", "/s", Higher, None), before.per_s);
        record(Spec("writes during", "/s", Higher, None), during.per_s);
        record(Spec("writes after", "/s", Higher, None), after.per_s);
        if self.case.writes == Writes::Unlimited {
            // What is not done is the lost share.
            let lost = Some(Goal::ValueAtMost(1.0 - THROUGHPUT_MIN));
            let share = 1.0 - during.per_s / before.per_s;
            self.record(
                Spec("writes lost during", "share", Lower, lost),
                contestant,
                share,
            );
        }
        let errors: u64 = found.errors.values().sum();
        let none = Some(Goal::ValueAtMost(0.0));
        self.record(
            Spec("client errors", "", Better::Lower, none),
            contestant,
            errors as f64,
        );
        let redirects = found.redirects as f64;
        self.record(
            Spec("redirects", "", Better::Lower, None),
            contestant,
            redirects,
        );
    }

    /// Adds one round's value; the first one says how the measure is shown, and in which place.
    fn record(&mut self, spec: Spec, contestant: Contestant, value: f64) {
        let Spec(name, unit, better, goal) = spec;
        let known = self
            .measures
            .iter()
            .position(|measure| measure.name == name);
        let at = known.unwrap_or_else(|| {
            self.measures.push(Measure::new(name, unit, better, goal));
            self.measures.len() - 1
        });
        let samples = &mut self.measures[at].samples;
        samples.entry(contestant).or_default().push(value);
    }

    /// The table's lines.
    pub(super) fn rows(&self) -> Vec<Row> {
        let holds = [
            ("hold p50, all moves", 0.5, None),
            (
                "hold p99, all moves",
                0.99,
                Some(Goal::ValueAtMost(HOLD_P99_MS_MAX)),
            ),
            ("hold maximum, all moves", 1.0, None),
        ];
        let of_holds = holds.into_iter().map(|(name, quantile, goal)| {
            let mut measure = Measure::new(name, "ms", Better::Lower, goal);
            for (contestant, holds) in &self.holds_ms {
                let value = stats::quantile(holds, quantile).into_iter().collect();
                measure.samples.insert(*contestant, value);
            }
            measure
        });
        let measures = self.measures.iter().cloned().chain(of_holds);
        measures.map(|measure| row(&measure)).collect()
    }

    /// Moves whose hold time is known.
    pub(super) fn holds(&self, contestant: Contestant) -> usize {
        self.holds_ms.get(&contestant).map_or(0, Vec::len)
    }

    /// Medians of what the machine can do: disk, disk write by write, and loopback, MB/s.
    pub(super) fn raw(&self) -> [Option<f64>; 3] {
        let of = |read: fn(&Raw) -> f64| {
            let values: Vec<f64> = self.raw.iter().map(read).collect();
            stats::median(&values)
        };
        [
            of(|raw| raw.disk_mb_per_s),
            of(|raw| raw.disk_one_by_one_mb_per_s),
            of(|raw| raw.loopback_mb_per_s),
        ]
    }
}

/// Name, unit, direction and goal of a measure.
struct Spec(&'static str, &'static str, Better, Option<Goal>);

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
    let ratios = others.filter_map(|&other| Some((other, ratio(other)?)));
    let value = match measure.goal {
        // What is a ratio already has no peer.
        Some(Goal::RatioAtLeast(_) | Goal::RatioAtMost(_)) if measure.name != SHARE_OF_GOAL => {
            stats::median(&measure.ratios_to(own, |one| one == Contestant::Valkey))
        }
        _ => measure.median(own),
    };
    Row {
        name: measure.name,
        unit: measure.unit,
        medians: measure
            .samples
            .keys()
            .map(|&contestant| (contestant, measure.median(contestant)))
            .collect(),
        ratios: ratios.collect(),
        goal: measure.goal,
        verdict: Verdict::on(measure.goal, value),
    }
}
