use crate::record::{Axis, Case, Event, Kind, Latencies, Plot, Row, Run, Second, Series};
use crate::stats;

use super::table::keep_first;

impl Case {
    /// Whether its quantities are drawn over something.
    pub(super) fn has_curves(&self) -> bool {
        self.plots.iter().any(|plot| plot.kind == Kind::Curve)
    }
}

/// The plots of a case: its own, those of its runs, and where no curve has them a bar per server for each quantity.
pub(super) fn groups(case: &Case) -> Vec<Vec<Plot>> {
    let of_kinds = |kinds: &[Kind]| {
        let own = case.plots.iter().filter(|plot| kinds.contains(&plot.kind));
        own.cloned().collect::<Vec<_>>()
    };
    let (percentiles, over_time) = (by_percentile(&case.runs), over_time(&case.runs));
    let curves = of_kinds(&[Kind::Percentiles, Kind::Curve]);
    let mut groups = match case.runs.len() {
        1 => vec![curves, [percentiles, over_time].concat()],
        _ => vec![[curves, percentiles].concat(), over_time],
    };
    groups.push(of_kinds(&[Kind::Time]));
    groups.push(of_kinds(&[Kind::Bars]));
    if !case.has_curves() {
        groups.push(
            case.rows
                .iter()
                .filter_map(|row| bars(row, &case.runs))
                .collect(),
        );
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Of one run its operations in one plot; of several their latencies of each operation.
fn by_percentile(runs: &[Run]) -> Vec<Plot> {
    let plot = |title: &str, series: Vec<Series>| {
        let axes = [Axis::log("percentile", ""), Axis::log("", "us")];
        Plot::new(title, Kind::Percentiles, axes, series)
    };
    let curve = |name: &str, of: &Latencies| Series::new(name, of.curve_us());
    if let [run] = runs {
        let each = run.operations.iter();
        let series = each.map(|(name, of)| curve(name, of)).collect();
        return vec![plot("Latency by percentile", series)];
    }
    let mut operations: Vec<&String> = runs.iter().flat_map(|run| run.operations.keys()).collect();
    keep_first(&mut operations);
    let of_all = |name: &String| {
        let of = |run: &Run| Some(curve(&run.name(), run.operations.get(name)?));
        plot(
            &format!("Latency of {name} by percentile"),
            runs.iter().filter_map(of).collect(),
        )
    };
    operations.into_iter().map(of_all).collect()
}

fn over_time(runs: &[Run]) -> Vec<Plot> {
    type Value = fn(&Second) -> f64;
    let timed = || runs.iter().filter(|run| run.seconds.len() > 1);
    if timed().next().is_none() {
        return Vec::new();
    }
    let line = |name: &str, run: &Run, value: Value| {
        Series::new(name, run.seconds.iter().map(|one| [one.at_s, value(one)]))
    };
    let marks = || {
        let of = |run: &Run| {
            let name = if runs.len() > 1 {
                run.name() + " "
            } else {
                String::new()
            };
            let named = move |event: &Event| Event {
                kind: format!("{name}{}", event.kind),
                ..event.clone()
            };
            run.events.iter().map(named).collect::<Vec<_>>()
        };
        timed().flat_map(of).collect()
    };
    let plot = |title: &str, y, series: Vec<Series>| {
        let axes = [Axis::linear("time", "s"), y];
        let plot = Plot::new(title, Kind::Time, axes, series);
        Plot {
            marks: marks(),
            ..plot
        }
    };
    let of_all = |value: Value| timed().map(|run| line(&run.name(), run, value)).collect();
    let quantiles: [(&str, Value); 3] = [
        ("p99.9", |one| one.p999_us),
        ("p99", |one| one.p99_us),
        ("p50", |one| one.p50_us),
    ];
    let rate = Axis::linear("operations per s", "");
    let latency = match runs {
        [run] => {
            let lines = quantiles.map(|(name, value)| line(name, run, value));
            plot("Latency over time", Axis::log("", "us"), lines.to_vec())
        }
        _ => plot(
            "99th percentile over time",
            Axis::log("", "us"),
            of_all(|one| one.p99_us),
        ),
    };
    vec![
        plot("Throughput over time", rate, of_all(|one| one.done as f64)),
        latency,
    ]
}

/// Medians with their 95% intervals, where there are servers to compare, which have the order of the runs: each has
/// one colour.
fn bars(row: &Row, runs: &[Run]) -> Option<Plot> {
    let bar = |(server, samples): (&String, &Vec<Option<f64>>)| {
        let samples: Vec<f64> = samples.iter().copied().flatten().collect();
        let found = stats::estimate(&samples)?;
        let interval = (samples.len() > 1).then_some([found.low, found.high]);
        Some(Series {
            intervals: interval.into_iter().collect(),
            ..Series::new(server.as_str(), [[0.0, found.median]])
        })
    };
    let mut series: Vec<Series> = row.samples.iter().filter_map(bar).collect();
    series.sort_by_key(|series| runs.iter().position(|run| run.server == series.name));
    let axes = [Axis::linear("", ""), Axis::linear(&row.unit, "")];
    (series.len() > 1).then(|| Plot::new(&row.name, Kind::Bars, axes, series))
}
