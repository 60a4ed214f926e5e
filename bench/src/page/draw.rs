use crate::record::{Axis, Event, Kind, Plot, Series};
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
const COLOURS: usize = 8;
/// Points of a line that tell their values under the pointer.
const DOTS_MAX: usize = 400;

/// A plot with everything in its place, for `templates/plot.svg`.
#[derive(Debug)]
pub(super) struct Drawn<'a> {
    pub(super) title: &'a str,
    pub(super) kind: &'static str,
    pub(super) height: f64,
    pub(super) bottom: f64,
    pub(super) x: Scale,
    pub(super) y: Scale,
    pub(super) lines: Vec<Line<'a>>,
    pub(super) marks: Vec<Mark<'a>>,
}

#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    /// With their values as text.
    pub(super) points: Vec<(f64, f64, String)>,
    /// Places in x, and from where to where in y.
    pub(super) whiskers: Vec<[f64; 3]>,
}

#[derive(Debug)]
pub(super) struct Mark<'a> {
    pub(super) event: &'a Event,
    /// Its colour is that of the line that it is about, if it is about one, or of its kind.
    pub(super) class: String,
    pub(super) from: f64,
    pub(super) until: Option<f64>,
    pub(super) is_first_of_kind: bool,
}

impl<'a> Drawn<'a> {
    pub(super) fn new(plot: &'a Plot) -> Self {
        let [left, right, top] = SIDES;
        let is_bars = plot.kind == Kind::Bars;
        let (kind, below) = match plot.kind {
            Kind::Time => ("time", HEIGHT_OVER_TIME),
            Kind::Curve => ("xy", HEIGHT),
            Kind::Percentiles => ("percentiles", HEIGHT),
            Kind::Bars => ("bars", plot.series.len() as f64 * BAR_HEIGHT - top - FOOT),
        };
        let bottom = top + below;
        let is_percentile = plot.kind == Kind::Percentiles;
        // One in how many is above a quantile.
        let on_scale = |x: f64| if is_percentile { 1.0 / (1.0 - x) } else { x };
        let takes = |is_log: bool, value: f64| value.is_finite() && (value > 0.0 || !is_log);
        let is_x_log = plot.x.is_log || is_percentile;
        let has_place = |[x, y]: &[f64; 2]| takes(is_x_log, *x) && takes(plot.y.is_log, *y);
        let points = |series: &'a Series| {
            let points = series.points.iter().map(move |[x, y]| [on_scale(*x), *y]);
            points.filter(has_place)
        };
        let intervals = |series: &'a Series| {
            let pairs = series.points.iter().zip(&series.intervals);
            let ends = pairs.map(move |([x, _], [low, high])| [on_scale(*x), *low, *high]);
            ends.filter(|ends| ends.iter().all(|end| end.is_finite()))
        };
        let series = || plot.series.iter();
        let ends = (plot.marks.iter()).map(|mark| mark.until_s.unwrap_or(mark.at_s));
        let bounds = series().flat_map(intervals);
        let bounds = bounds.flat_map(|[_, low, high]| [low, high]);
        let xs = series().flat_map(points).map(|[x, _]| x).chain(ends);
        let ys = series().flat_map(points).map(|[_, y]| y).chain(bounds);
        let x = Scale::new(&plot.x, is_percentile, [left, right], xs);
        let y_sides = if is_bars { BARS } else { [bottom, top] };
        let y = Scale::new(&plot.y, false, y_sides, ys);
        let point = |[px, py]: [f64; 2]| {
            let told = match is_bars {
                true => y.shown(py),
                false => format!("{}, {}", x.shown(px), y.shown(py)),
            };
            (x.at(px), y.at(py), told)
        };
        let line = |series: &'a Series| Line {
            name: &series.name,
            points: points(series).map(point).collect(),
            whiskers: (intervals(series))
                .map(|[px, low, high]| [x.at(px), y.at(low), y.at(high)])
                .collect(),
        };
        Drawn {
            title: &plot.title,
            kind,
            height: bottom + FOOT,
            bottom,
            lines: series().map(line).collect(),
            marks: marks(plot, &x),
            x,
            y,
        }
    }
}

impl Line<'_> {
    /// Points that tell their values.
    pub(super) fn dots(&self) -> &[(f64, f64, String)] {
        let has_room = self.points.len() <= DOTS_MAX;
        if has_room { &self.points } else { &[] }
    }

    /// Where a bar with its interval ends.
    pub(super) fn end(&self) -> f64 {
        let bar = self.points.iter().map(|(_, end, _)| *end);
        let ends = self.whiskers.iter().flatten().copied();
        bar.chain(ends).fold(0.0, f64::max)
    }
}

fn marks<'a>(plot: &'a Plot, x: &Scale) -> Vec<Mark<'a>> {
    let mut kinds: Vec<&str> = Vec::new();
    let mark = |event: &'a Event| {
        let is_about = |line: &Series| event.kind.starts_with(&format!("{} ", line.name));
        let known = kinds.iter().position(|kind| *kind == event.kind);
        let kind = known.unwrap_or(kinds.len());
        if known.is_none() {
            kinds.push(&event.kind);
        }
        Mark {
            event,
            class: match plot.series.iter().position(is_about) {
                Some(line) => format!("of c{}", line % COLOURS),
                None => format!("m{}", kind % COLOURS),
            },
            from: x.at(event.at_s),
            until: event.until_s.map(|until_s| x.at(until_s)),
            is_first_of_kind: known.is_none(),
        }
    };
    plot.marks.iter().map(mark).collect()
}

/// A value with as many digits as a person reads at a glance.
pub(super) fn shown(value: f64, unit: &str) -> String {
    let short = |value: f64| {
        let text = number(value);
        match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text,
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

/// From values to places.
#[derive(Debug)]
pub(super) struct Scale {
    pub(super) label: String,
    unit: String,
    /// Values are one in how many is above, and shown as the percentile of that.
    is_percentile: bool,
    is_log: bool,
    /// Places of both ends, and their values.
    places: [f64; 2],
    values: [f64; 2],
    ticks: Vec<f64>,
}

impl Scale {
    /// Has room for all values; from zero where it is not logarithmic.
    fn new(
        axis: &Axis,
        is_percentile: bool,
        places: [f64; 2],
        values: impl Iterator<Item = f64>,
    ) -> Self {
        let values = values.filter(|value| value.is_finite());
        let range = values.fold(None, |range: Option<[f64; 2]>, value| {
            let [low, high] = range.unwrap_or([value, value]);
            Some([low.min(value), high.max(value)])
        });
        let [low, high] = range.unwrap_or([0.0, 1.0]);
        let is_log = axis.is_log || is_percentile;
        let mut ticks = match is_log {
            true => log_ticks(low.max(1e-3), high.max(2e-3)),
            false => linear_ticks(high * 1.04),
        };
        let values @ [low, high] = [ticks[0], ticks[ticks.len() - 1]];
        let is_decade = |tick: f64| (tick.log10() - tick.log10().round()).abs() < 1e-9;
        if is_log && high / low > 60.0 {
            ticks.retain(|tick| is_decade(*tick));
        }
        Scale {
            label: match axis.unit.as_str() {
                "" | "us" => axis.label.clone(),
                unit => format!("{}, {unit}", axis.label),
            },
            unit: axis.unit.clone(),
            is_percentile,
            is_log,
            places,
            values,
            ticks,
        }
    }

    /// The place of a value, to a tenth.
    fn at(&self, value: f64) -> f64 {
        let ([from, to], [low, high]) = (self.places, self.values);
        let along = match self.is_log {
            true => (value.max(low) / low).ln() / (high / low).ln(),
            false => (value - low) / (high - low),
        };
        let place = from + (to - from) * along.clamp(0.0, 1.0);
        (place * 10.0).round() / 10.0
    }

    fn shown(&self, value: f64) -> String {
        match self.is_percentile {
            true => {
                let decimals = (value.log10().ceil() - 2.0).max(0.0) as usize;
                format!("{:.decimals$}%", 100.0 - 100.0 / value)
            }
            false => shown(value, &self.unit),
        }
    }

    /// Places and texts of ticks.
    pub(super) fn ticks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        let ticks = self.ticks.iter();
        ticks.map(|tick| (self.at(*tick), self.shown(*tick)))
    }
}

/// From zero to at least `high` in three to eight steps of 1, 2 or 5.
fn linear_ticks(high: f64) -> Vec<f64> {
    let high = if high > 0.0 { high } else { 1.0 };
    let unit = 10f64.powf((high / 3.0).log10().floor());
    let mut steps = [5.0, 2.0, 1.0].map(|times| times * unit).into_iter();
    let step = steps.find(|step| high / step >= 3.0).unwrap_or(unit);
    let steps = (high / step - 1e-9).ceil() as usize;
    (0..=steps).map(|at| at as f64 * step).collect()
}

/// 1, 2 and 5 of each decade, from at most `low` to at least `high`.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let of_decade = |decade| [1.0, 2.0, 5.0].map(|times| times * 10f64.powi(decade));
    let ticks: Vec<f64> = decades.flat_map(of_decade).collect();
    let first = ticks.partition_point(|tick| *tick <= low * 1.000_001);
    let first = first.saturating_sub(1);
    let last = ticks.partition_point(|tick| *tick < high * 0.999_999);
    ticks[first..=last.clamp(first + 1, ticks.len() - 1)].to_vec()
}
