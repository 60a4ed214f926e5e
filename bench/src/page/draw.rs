use crate::plot::{Axis, Kind, Plot};
use crate::stats::number;

/// Where a plot 600 wide has its axes: left, right and top; and heights below the top, less where two share a column.
const SIDES: [f64; 3] = [58.0, 590.0, 10.0];
const HEIGHT: f64 = 362.0;
const HEIGHT_OVER_TIME: f64 = 112.0;
/// Room for numbers and a label under the axis.
const FOOT: f64 = 40.0;
/// Height of a bar with the room around it; and where bars begin and end at most, 380 being the whole.
const BAR_HEIGHT: f64 = 30.0;
const BARS: [f64; 2] = [120.0, 300.0];
/// Points of a line that tell their values under the pointer.
const DOTS_MAX: usize = 400;
/// Distinct colours of the page.
const COLOURS: usize = 8;

/// A plot with everything placed, for `templates/plot.svg`.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    pub(super) title: String,
    pub(super) kind: &'static str,
    pub(super) height: f64,
    /// Left, right, top and bottom of what the axes enclose.
    pub(super) inner: [f64; 4],
    pub(super) x_label: String,
    pub(super) y_label: String,
    pub(super) x_ticks: Vec<(String, String)>,
    pub(super) y_ticks: Vec<(String, String)>,
    pub(super) lines: Vec<Line>,
    pub(super) bars: Vec<Bar>,
    pub(super) marks: Vec<Mark>,
    pub(super) mark_kinds: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) colour: usize,
    /// Of a polyline.
    pub(super) points: String,
    pub(super) dots: Vec<(String, String, String)>,
    /// x, upper and lower end.
    pub(super) whiskers: Vec<[String; 3]>,
}

#[derive(Debug)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) colour: usize,
    pub(super) y: f64,
    pub(super) width: String,
    pub(super) value: String,
    /// Left and right end.
    pub(super) whisker: Option<[String; 2]>,
    pub(super) text_x: String,
}

#[derive(Debug)]
pub(super) struct Mark {
    pub(super) kind: usize,
    pub(super) x: String,
    pub(super) width: String,
    pub(super) text: String,
}

/// From values to places.
struct Scale {
    from: f64,
    to: f64,
    low: f64,
    high: f64,
    is_log: bool,
    ticks: Vec<f64>,
}

impl Drawn {
    pub(super) fn new(plot: &Plot) -> Self {
        match plot.kind {
            Kind::Bars => bars(plot),
            Kind::Time | Kind::Percentiles | Kind::Curve => lines(plot),
        }
    }
}

fn lines(plot: &Plot) -> Drawn {
    let by_percentile = plot.kind == Kind::Percentiles;
    let place = |[x, y]: [f64; 2]| [if by_percentile { 1.0 / (1.0 - x) } else { x }, y];
    let is_shown = |[x, y]: &[f64; 2]| {
        let fits = |is_log: bool, value: f64| value.is_finite() && (value > 0.0 || !is_log);
        fits(plot.x.is_log || by_percentile, *x) && fits(plot.y.is_log, *y)
    };
    let points = || {
        plot.series
            .iter()
            .flat_map(|series| series.points.iter().copied().map(place))
    };
    let bounds = plot
        .series
        .iter()
        .flat_map(|series| series.intervals.iter().flatten().copied());
    let is_over_time = plot.kind == Kind::Time;
    let [left, right, top] = SIDES;
    let bottom = top
        + if is_over_time {
            HEIGHT_OVER_TIME
        } else {
            HEIGHT
        };
    let xs = points().filter(is_shown).map(|[x, _]| x);
    let ends = plot
        .marks
        .iter()
        .map(|mark| mark.until_s.unwrap_or(mark.at_s));
    let is_log = plot.x.is_log || by_percentile;
    let x = Scale::new([left, right], is_log, xs.chain(ends));
    let y = Scale::new(
        [bottom, top],
        plot.y.is_log,
        points().filter(is_shown).map(|[_, y]| y).chain(bounds),
    );
    let shown_x = |value: f64| match by_percentile {
        true => percentile(value),
        false => shown(value, &plot.x.unit),
    };
    let mut drawn = Drawn {
        title: plot.title.clone(),
        kind: match plot.kind {
            Kind::Time => "time",
            Kind::Curve => "xy",
            _ => "percentiles",
        },
        height: bottom + FOOT,
        inner: [left, right, top, bottom],
        x_label: label(&plot.x),
        y_label: label(&plot.y),
        x_ticks: x.ticks.iter().map(|&at| (x.at(at), shown_x(at))).collect(),
        y_ticks: y
            .ticks
            .iter()
            .map(|&at| (y.at(at), shown(at, &plot.y.unit)))
            .collect(),
        ..Drawn::default()
    };
    for (at, series) in plot.series.iter().enumerate() {
        let places: Vec<[f64; 2]> = series
            .points
            .iter()
            .copied()
            .map(place)
            .filter(is_shown)
            .collect();
        let corners = places
            .iter()
            .map(|&[px, py]| format!("{},{}", x.at(px), y.at(py)));
        let value = |&[px, py]: &[f64; 2]| {
            let text = format!(
                "{}: {}, {}",
                series.name,
                shown_x(px),
                shown(py, &plot.y.unit)
            );
            (x.at(px), y.at(py), text)
        };
        let ranges = places.iter().zip(&series.intervals);
        drawn.lines.push(Line {
            name: series.name.clone(),
            colour: at % COLOURS,
            points: corners.collect::<Vec<_>>().join(" "),
            dots: places
                .iter()
                .filter(|_| places.len() <= DOTS_MAX)
                .map(value)
                .collect(),
            whiskers: ranges
                .map(|(point, [low, high])| [x.at(point[0]), y.at(*high), y.at(*low)])
                .collect(),
        });
    }
    for mark in &plot.marks {
        let known = drawn.mark_kinds.iter().position(|kind| *kind == mark.kind);
        let kind = known.unwrap_or_else(|| {
            drawn.mark_kinds.push(mark.kind.clone());
            drawn.mark_kinds.len() - 1
        });
        let until = mark.until_s.unwrap_or(mark.at_s);
        drawn.marks.push(Mark {
            kind: kind % COLOURS,
            x: x.at(mark.at_s),
            width: format!("{:.1}", (x.place(until) - x.place(mark.at_s)).max(0.0)),
            text: match mark.until_s {
                Some(until) => format!("{}: {:.2} to {until:.2} s", mark.kind, mark.at_s),
                None => format!("{}: {:.2} s", mark.kind, mark.at_s),
            },
        });
    }
    drawn
}

fn bars(plot: &Plot) -> Drawn {
    let value = |points: &[[f64; 2]]| points.first().map_or(0.0, |point| point[1]);
    let upper = plot
        .series
        .iter()
        .flat_map(|series| series.intervals.iter().flatten().copied());
    let values = plot.series.iter().map(|series| value(&series.points));
    let x = Scale::new(
        BARS,
        plot.y.is_log,
        values.chain(upper).filter(|value| value.is_finite()),
    );
    let bar = |(at, series): (usize, &crate::plot::Series)| {
        let value = value(&series.points);
        let whisker = series
            .intervals
            .first()
            .filter(|range| range.iter().all(|end| end.is_finite()));
        let end = whisker.map_or(value, |[_, high]| high.max(value));
        Bar {
            name: series.name.clone(),
            colour: at % COLOURS,
            y: at as f64 * BAR_HEIGHT,
            width: format!("{:.1}", (x.place(value) - BARS[0]).max(1.0)),
            value: shown(value, &plot.y.unit),
            whisker: whisker.map(|range| range.map(|end| x.at(end))),
            text_x: format!("{:.1}", x.place(end) + 8.0),
        }
    };
    Drawn {
        title: plot.title.clone(),
        kind: "bars",
        height: plot.series.len() as f64 * BAR_HEIGHT + 4.0,
        inner: [BARS[0], BARS[1], 0.0, 0.0],
        y_label: label(&plot.y),
        bars: plot.series.iter().enumerate().map(bar).collect(),
        ..Drawn::default()
    }
}

fn label(axis: &Axis) -> String {
    match axis.unit.as_str() {
        "" | "us" => axis.label.clone(),
        unit => format!("{}, {unit}", axis.label),
    }
}

/// A value with as many digits as a person reads at a glance.
pub(super) fn shown(value: f64, unit: &str) -> String {
    let short = |value: f64| {
        let text = number(value);
        let is_fraction = text.contains('.');
        if is_fraction {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text
        }
    };
    match (unit, value.abs()) {
        ("us", size) if size >= 1e6 => format!("{} s", short(value / 1e6)),
        ("us", size) if size >= 1e3 => format!("{} ms", short(value / 1e3)),
        ("us", _) => format!("{} µs", short(value)),
        (_, size) if size >= 1e9 => format!("{}G", short(value / 1e9)),
        (_, size) if size >= 1e6 => format!("{}M", short(value / 1e6)),
        (_, size) if size >= 1e4 => format!("{}k", short(value / 1e3)),
        _ => short(value),
    }
}

/// The percentile of which one in so many is above.
fn percentile(one_in: f64) -> String {
    let decimals = (one_in.log10().ceil() - 2.0).max(0.0) as usize;
    format!("{:.decimals$}%", 100.0 - 100.0 / one_in)
}

impl Scale {
    /// With room for all values; from zero where it is not logarithmic.
    fn new([from, to]: [f64; 2], is_log: bool, values: impl Iterator<Item = f64>) -> Self {
        let range = values.fold(None, |range: Option<[f64; 2]>, value| {
            let [low, high] = range.unwrap_or([value, value]);
            Some([low.min(value), high.max(value)])
        });
        let [low, high] = range.unwrap_or([0.0, 1.0]);
        let ticks = match is_log {
            true => log_ticks(low.max(1e-3), high.max(2e-3)),
            false => linear_ticks(high * 1.04),
        };
        let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
        let is_wide = is_log && high / low > 60.0;
        let is_kept = |tick: &f64| !is_wide || (tick.log10() - tick.log10().round()).abs() < 1e-9;
        Scale {
            from,
            to,
            low,
            high,
            is_log,
            ticks: ticks.into_iter().filter(is_kept).collect(),
        }
    }

    fn place(&self, value: f64) -> f64 {
        let along = match self.is_log {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        self.from + (self.to - self.from) * along.clamp(0.0, 1.0)
    }

    fn at(&self, value: f64) -> String {
        format!("{:.1}", self.place(value))
    }
}

/// From zero to at least `high` in three to eight steps of 1, 2 or 5.
fn linear_ticks(high: f64) -> Vec<f64> {
    let high = if high > 0.0 { high } else { 1.0 };
    let unit = 10f64.powf((high / 3.0).log10().floor());
    let step = [5.0, 2.0, 1.0].map(|times| times * unit);
    let step = step
        .into_iter()
        .find(|step| high / step >= 3.0)
        .unwrap_or(unit);
    let steps = (high / step - 1e-9).ceil() as usize;
    (0..=steps).map(|at| at as f64 * step).collect()
}

/// 1, 2 and 5 of each decade, from at most `low` to at least `high`.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all: Vec<f64> = decades
        .flat_map(|decade| [1.0, 2.0, 5.0].map(|times| times * 10f64.powi(decade)))
        .collect();
    let first = all
        .iter()
        .rposition(|tick| *tick <= low * 1.000_001)
        .unwrap_or(0);
    let last = all
        .iter()
        .position(|tick| *tick >= high * 0.999_999)
        .unwrap_or(all.len() - 1);
    all[first..=last.max(first + 1)].to_vec()
}
