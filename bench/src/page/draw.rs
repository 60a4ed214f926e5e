use crate::plot::{Axis, Kind, Plot, Series};
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
/// Distinct colours of the page.
const COLOURS: usize = 8;
/// Points of a line that tell their values under the pointer.
const DOTS_MAX: usize = 400;

/// A plot with its scales, for `templates/plot.svg`, which places everything.
#[derive(Debug)]
pub(super) struct Drawn<'a> {
    pub(super) plot: &'a Plot,
    pub(super) kind: &'static str,
    pub(super) height: f64,
    pub(super) bottom: f64,
    pub(super) x: Scale,
    pub(super) y: Scale,
    /// What kinds of events are marked.
    pub(super) mark_kinds: Vec<&'a str>,
}

/// From values to places.
#[derive(Debug)]
pub(super) struct Scale {
    pub(super) label: String,
    unit: String,
    is_percentile: bool,
    from: f64,
    to: f64,
    low: f64,
    high: f64,
    is_log: bool,
    pub(super) ticks: Vec<f64>,
}

impl<'a> Drawn<'a> {
    pub(super) fn new(plot: &'a Plot) -> Self {
        let [left, right, top] = SIDES;
        let (kind, below) = match plot.kind {
            Kind::Time => ("time", HEIGHT_OVER_TIME),
            Kind::Curve => ("xy", HEIGHT),
            Kind::Percentiles => ("percentiles", HEIGHT),
            Kind::Bars => ("bars", plot.series.len() as f64 * BAR_HEIGHT - top - FOOT),
        };
        let bottom = top + below;
        let is_bars = plot.kind == Kind::Bars;
        let mut x = Scale::new(&plot.x, [left, right]);
        let mut y = Scale::new(&plot.y, if is_bars { BARS } else { [bottom, top] });
        x.is_percentile = plot.kind == Kind::Percentiles;
        x.is_log |= x.is_percentile;
        let points = || plot.series.iter().flat_map(|series| &series.points);
        let shown = || points().filter(|[px, py]| x.takes(*px) && y.takes(*py));
        let bounds = plot
            .series
            .iter()
            .flat_map(|series| series.intervals.iter().flatten());
        let ends = plot
            .marks
            .iter()
            .map(|mark| mark.until_s.unwrap_or(mark.at_s));
        let xs: Vec<f64> = shown().map(|point| x.whole(point[0])).chain(ends).collect();
        let ys: Vec<f64> = shown()
            .map(|point| point[1])
            .chain(bounds.copied())
            .collect();
        x.fit(&xs);
        y.fit(&ys);
        let mut mark_kinds: Vec<&str> = Vec::new();
        for mark in &plot.marks {
            if !mark_kinds.contains(&&*mark.kind) {
                mark_kinds.push(&mark.kind);
            }
        }
        let height = bottom + FOOT;
        Drawn {
            plot,
            kind,
            height,
            bottom,
            x,
            y,
            mark_kinds,
        }
    }

    /// Points that have a place.
    pub(super) fn points<'b>(&self, series: &'b Series) -> Vec<&'b [f64; 2]> {
        let points = series.points.iter();
        points
            .filter(|[x, y]| self.x.takes(*x) && self.y.takes(*y))
            .collect()
    }

    /// Those of them that tell their values.
    pub(super) fn dots<'b>(&self, series: &'b Series) -> Vec<&'b [f64; 2]> {
        let mut points = self.points(series);
        points.truncate(if points.len() > DOTS_MAX { 0 } else { DOTS_MAX });
        points
    }

    /// Points with their intervals.
    pub(super) fn whiskers<'b>(&self, series: &'b Series) -> Vec<(f64, &'b [f64; 2])> {
        let pairs = series.points.iter().zip(&series.intervals);
        let finite = pairs.filter(|(_, ends)| ends.iter().all(|end| end.is_finite()));
        finite.map(|(point, ends)| (point[0], ends)).collect()
    }

    /// The class of an event: it has the colour of the line that it is about, if it is about one.
    pub(super) fn mark_class(&self, kind: &str) -> String {
        let lines = || self.plot.series.iter();
        match lines().position(|line| kind.starts_with(&format!("{} ", line.name))) {
            Some(line) => format!("of c{}", line % COLOURS),
            None => {
                let known = self.mark_kinds.iter().position(|known| *known == kind);
                format!("m{}", known.unwrap_or(0) % COLOURS)
            }
        }
    }

    pub(super) fn bar(&self, series: &Series) -> f64 {
        series.points.first().map_or(0.0, |point| point[1])
    }

    /// Where a bar and its interval end.
    pub(super) fn bar_end(&self, series: &Series) -> f64 {
        let ends = series.intervals.iter().flatten().copied();
        let ends = ends.filter(|end| end.is_finite());
        self.y.at(ends.fold(self.bar(series), f64::max))
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

/// A number, behind however many references a template puts it.
pub(super) trait Number {
    fn get(&self) -> f64;
}

impl Number for f64 {
    fn get(&self) -> f64 {
        *self
    }
}

impl<T: Number> Number for &T {
    fn get(&self) -> f64 {
        (*self).get()
    }
}

impl Scale {
    fn new(axis: &Axis, [from, to]: [f64; 2]) -> Self {
        Scale {
            label: match axis.unit.as_str() {
                "" | "us" => axis.label.clone(),
                unit => format!("{}, {unit}", axis.label),
            },
            unit: axis.unit.clone(),
            is_percentile: false,
            from,
            to,
            low: 0.0,
            high: 1.0,
            is_log: axis.is_log,
            ticks: Vec::new(),
        }
    }

    /// Makes room for all values; from zero where it is not logarithmic.
    fn fit(&mut self, values: &[f64]) {
        let values = values.iter().copied().filter(|value| value.is_finite());
        let range = values.fold(None, |range: Option<[f64; 2]>, value| {
            let [low, high] = range.unwrap_or([value, value]);
            Some([low.min(value), high.max(value)])
        });
        let [low, high] = range.unwrap_or([0.0, 1.0]);
        self.ticks = match self.is_log {
            true => log_ticks(low.max(1e-3), high.max(2e-3)),
            false => linear_ticks(high * 1.04),
        };
        (self.low, self.high) = (self.ticks[0], self.ticks[self.ticks.len() - 1]);
        let is_decade = |tick: f64| (tick.log10() - tick.log10().round()).abs() < 1e-9;
        if self.is_log && self.high / self.low > 60.0 {
            self.ticks.retain(|tick| is_decade(*tick));
        }
    }

    /// The value that is on the scale: one in how many is above a quantile, or as it is.
    fn whole(&self, value: f64) -> f64 {
        match self.is_percentile {
            true => 1.0 / (1.0 - value),
            false => value,
        }
    }

    fn takes(&self, value: f64) -> bool {
        let value = self.whole(value);
        value.is_finite() && (value > 0.0 || !self.is_log)
    }

    /// The place of a value on the scale, to a tenth.
    pub(super) fn at(&self, value: impl Number) -> f64 {
        let value = value.get();
        let along = match self.is_log {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        let place = self.from + (self.to - self.from) * along.clamp(0.0, 1.0);
        (place * 10.0).round() / 10.0
    }

    /// The place of a point's value.
    pub(super) fn place(&self, value: impl Number) -> f64 {
        self.at(self.whole(value.get()))
    }

    /// A value on the scale as text.
    pub(super) fn shown(&self, value: impl Number) -> String {
        match self.is_percentile {
            true => percentile(value.get()),
            false => shown(value.get(), &self.unit),
        }
    }

    /// A point's value as text.
    pub(super) fn told(&self, value: impl Number) -> String {
        self.shown(self.whole(value.get()))
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
