//! What is measured of moves, and what it should reach.

use std::collections::BTreeMap;
use std::iter::zip;

use crate::load::{Outcome as Found, Phase};
use crate::measure::{Goal, Scale, less, more};
use crate::named::Named;
use crate::record::{Axis, Case, EPHESUS, Event, Kind, Latencies, Plot, Run, Series};

use super::Shape;
use super::round::{Contestant, Outcome};

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
const THROUGHPUT_MIN: f64 = 0.5;
const MB: f64 = 1e6;
const RATE_POINTS: f64 = 40.0;

/// What the machine can do, measured in every round, MB/s.
pub(super) type Raw = [f64; 3];

/// Sequential O_DSYNC writes as a log makes them, several at a time; the same one by one, as `dd oflag=direct,dsync
/// bs=1M` makes them, which no goal is held against; one TCP connection.
const RAW: [&str; 3] = ["disk", "disk, write by write", "loopback TCP"];

const PHASES: [(&str, Phase); 3] = [
    ("before", Phase::Before),
    ("during", Phase::During),
    ("after", Phase::After),
];

/// Adds what one turn has found; a move that failed has no figures of it.
pub(super) fn add(case: &mut Case, who: &str, (shape, raw): (Shape, Raw), outcome: &Outcome) {
    let has_failed = outcome.course.failure.is_some();
    of_move(shape, outcome, raw, |name, scale, value| {
        let value = if has_failed { f64::NAN } else { value };
        case.sample(name, scale, who, value);
    });
    if let Some(found) = &outcome.writers {
        of_writers(shape, found, |name, scale, value| {
            case.sample(name, scale, who, value);
        });
    }
    for (what, raw) in zip(RAW, raw) {
        case.sample(format!("raw {what}"), more("MB/s"), who, raw);
    }
}

/// What the last moves were like, by who moved.
pub(super) type Outcomes = BTreeMap<String, Outcome>;

/// Holds of every move in every round.
pub(super) type Holds = BTreeMap<String, Latencies>;

/// What all rounds have come to by now, with plots over time of the last one.
pub(super) fn conclude(case: &mut Case, shape: Shape, holds: &Holds, last: &Outcomes) {
    case.rows
        .retain(|row| row.name != SHARE_OF_GOAL && !row.name.starts_with("hold "));
    let valkey = Contestant::Valkey.name();
    let of = |name: &str, who: &str| {
        let row = case.rows.iter().find(|row| row.name == name);
        let samples = row.and_then(|row| row.samples.get(who));
        samples.cloned().unwrap_or_default()
    };
    let rates = zip(of("rate", EPHESUS), of("rate", &valkey));
    let shares = zip(rates, of("raw disk", EPHESUS)).map(|((own, valkey), disk)| {
        let goal = (FASTER * valkey?).min(OF_DISK * disk?);
        Some(own? / goal)
    });
    let shares: Vec<Option<f64>> = shares.collect();
    for share in shares.into_iter().filter(|_| shape.writes.is_none()) {
        let reached = more("").to(Goal::ValueAtLeast(1.0));
        case.sample(SHARE_OF_GOAL, reached, EPHESUS, share.unwrap_or(f64::NAN));
    }
    let bounded = less("ms").to(Goal::ValueAtMost(HOLD_P99_MS_MAX));
    for (name, quantile, scale) in [
        ("hold p50, all moves", 0.5, less("ms")),
        ("hold p99, all moves", 0.99, bounded),
        ("hold maximum, all moves", 1.0, less("ms")),
    ] {
        for (who, holds) in holds.iter().filter(|(_, holds)| holds.count() > 0) {
            case.sample(name, scale, who, holds.us(quantile) / 1e3);
        }
    }
    case.judge(EPHESUS, &valkey, str::to_owned);
    case.runs = last.iter().filter_map(|of| writers(shape, of)).collect();
    case.plots = vec![by_percentile(holds)];
    case.plots.extend(over_time(last));
}

fn by_percentile(holds: &Holds) -> Plot {
    let of = |(who, holds): (&String, &Latencies)| {
        let name = format!("{who}, {} moves", holds.count());
        Series::new(name, holds.curve_us())
    };
    let axes = [Axis::log("percentile", ""), Axis::log("", "us")];
    let series = holds.iter().map(of).collect();
    Plot::new("Holds by percentile", Kind::Percentiles, axes, series)
}

impl Outcome {
    pub(super) fn told(&self) -> String {
        let seconds = self.course.copying.as_secs_f64();
        let [mb, keys] = [self.bytes as f64 / MB, self.keys as f64];
        match &self.course.failure {
            Some(why) => format!("FAILED: {why}"),
            None => format!(
                "{mb:.0} MB in {seconds:.2} s: {:.0} MB/s, {:.0} keys/s",
                mb / seconds,
                keys / seconds
            ),
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let failure = self.course.failure.iter();
        let failure = failure.map(|why| format!("the move has failed: {why}"));
        let errors = self.writers.iter().flat_map(|found| &found.run.errors);
        let errors = errors.map(|(why, count)| format!("{count} writes: {why}"));
        failure.chain(errors).collect()
    }

    pub(super) fn count_holds(&self, all: &mut Latencies) {
        let ns = self.said.holds.iter().map(|[_, ms]| (ms * 1e6) as u64);
        ns.for_each(|ns| all.record_ns(ns));
    }

    /// When a plot begins that has writers in it, too, seconds before the order.
    fn before_s(&self) -> f64 {
        let found = self.writers.as_ref();
        found.map_or(0.0, |found| found.seconds_of(Phase::Before))
    }

    fn event(&self, kind: String) -> Event {
        let at_s = self.before_s();
        let until_s = Some(at_s + self.course.whole.as_secs_f64());
        Event {
            at_s,
            until_s,
            kind,
        }
    }
}

fn of_move(shape: Shape, outcome: &Outcome, raw: Raw, mut sample: impl FnMut(&str, Scale, f64)) {
    let (course, said) = (&outcome.course, &outcome.said);
    let (mb, keys) = (outcome.bytes as f64 / MB, outcome.keys as f64);
    let [copying_s, whole_s] = [course.copying, course.whole].map(|time| time.as_secs_f64());
    let faster = shape.writes.is_none().then_some(Goal::RatioAtLeast(FASTER));
    let rate = mb / copying_s;
    sample("rate", more("MB/s").to(faster), rate);
    sample("keys", more("keys/s"), keys / copying_s);
    sample("rate from the order on", more("MB/s"), mb / whole_s);
    for (what, raw) in zip(RAW, raw) {
        let share = rate / raw * 100.0;
        sample(&format!("rate, of raw {what}"), more("%"), share);
    }
    sample("attempts beyond the first", less(""), said.retries as f64);
    let Some([source, target]) = outcome.ends else {
        return;
    };
    let source_mb = (source.growth_bytes + said.forked_bytes) as f64 / MB;
    let target_mb = target.growth_bytes as f64 / MB;
    let bounded = less("MB").to(Goal::ValueAtMost(GROWTH_MB_MAX));
    sample("source memory growth", bounded, source_mb);
    sample("target memory growth", less("MB"), target_mb);
    sample("target growth beyond data", bounded, target_mb - mb);
    for (name, end) in [("source CPU", source), ("target CPU", target)] {
        let us = end.cpu.as_secs_f64() * 1e6;
        sample(name, less("us per key"), us / keys);
    }
}

fn of_writers(shape: Shape, found: &Found, mut sample: impl FnMut(&str, Scale, f64)) {
    let phases = PHASES.map(|(when, phase)| (when, found.all(phase), found.per_s(phase)));
    let [(_, before, before_per_s), (_, during, during_per_s), _] = &phases;
    for (when, all, per_s) in &phases {
        sample(&format!("p50 {when}"), less("ms"), all.us(0.5) / 1e3);
        sample(&format!("p99 {when}"), less("ms"), all.us(0.99) / 1e3);
        sample(&format!("writes {when}"), more("/s"), *per_s);
    }
    let is_full = shape.writes == Some(0);
    // A closed loop has no latency of its own.
    let calm = (!is_full).then_some(Goal::ValueAtMost(P99_RATIO_MAX));
    let ratio = during.us(0.99) / before.us(0.99);
    sample("maximum during", less("ms"), during.max_us() / 1e3);
    sample("p99 during / before", less("").to(calm), ratio);
    if is_full {
        // What is not done is the lost share.
        let goal = Goal::ValueAtMost(1.0 - THROUGHPUT_MIN);
        let lost = 1.0 - during_per_s / before_per_s;
        sample("writes lost during", less("share").to(goal), lost);
    }
    let errors: u64 = found.run.errors.values().sum();
    let none = less("").to(Goal::ValueAtMost(0.0));
    sample("client errors", none, errors as f64);
    sample("redirects", less(""), found.redirects as f64);
}

fn writers(shape: Shape, (who, outcome): (&String, &Outcome)) -> Option<Run> {
    let found = outcome.writers.as_ref()?;
    let run = found.run(who, "", shape.writes.unwrap_or(0));
    let operations = PHASES.map(|(when, phase)| (format!("writes {when}"), found.all(phase)));
    Some(Run {
        operations: operations.into(),
        events: vec![outcome.event("move".to_owned())],
        ..run
    })
}

/// How fast data arrived, and how long each part of it was held.
fn over_time(outcomes: &Outcomes) -> [Plot; 2] {
    let marks = outcomes.iter();
    let marks = marks.map(|(who, outcome)| outcome.event(format!("{who} move")));
    let marks: Vec<Event> = marks.collect();
    let plot = |title: &str, y, points: fn(&Outcome) -> Vec<[f64; 2]>| {
        let of = |(who, outcome): (&String, &Outcome)| {
            let before_s = outcome.before_s();
            let points = points(outcome).into_iter();
            Series::new(who, points.map(|[s, y]| [before_s + s, y]))
        };
        let axes = [Axis::linear("time", "s"), y];
        let plot = Plot::new(title, Kind::Time, axes, outcomes.iter().map(of).collect());
        let marks = marks.clone();
        Plot { marks, ..plot }
    };
    let rate = Axis::linear("MB/s", "");
    [
        plot("Data moved over time", rate, rates),
        plot("Holds over time", Axis::log("", "us"), holds_us),
    ]
}

/// When holds were seen to have ended, and how long the longest of them was.
fn holds_us(outcome: &Outcome) -> Vec<[f64; 2]> {
    let mut holds = outcome.said.holds.clone();
    holds.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let seen = holds.chunk_by(|a, b| a[0] == b[0]);
    let longest = |seen: &[[f64; 2]]| seen.iter().map(|[_, ms]| ms * 1e3).fold(0.0, f64::max);
    seen.map(|seen| [seen[0][0], longest(seen)]).collect()
}

/// Seconds and MB/s of a move that has come to its end: then all has arrived.
fn rates(outcome: &Outcome) -> Vec<[f64; 2]> {
    let arrived = &outcome.course.arrived;
    let end = arrived.last().filter(|[_, all]| *all > 0.0);
    let (Some([end_s, all]), None) = (end, &outcome.course.failure) else {
        return Vec::new();
    };
    let mb = outcome.bytes as f64 / MB / all;
    let mut points = Vec::new();
    let mut from = [0.0, 0.0];
    for now in arrived {
        let took_s = now[0] - from[0];
        if took_s >= end_s / RATE_POINTS {
            points.push([from[0] + took_s / 2.0, (now[1] - from[1]) * mb / took_s]);
            from = *now;
        }
    }
    points
}
