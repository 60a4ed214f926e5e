//! Plots as plain data: a few kinds, which the page draws as SVG.

use serde::{Deserialize, Serialize};

use crate::record::Event;

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Lines over time, with events marked.
    Time,
    /// Latency by percentile: x is the quantile below 1, drawn on the log scale of `1 / (1 - x)`.
    Percentiles,
    /// y against x, points joined in their order.
    Curve,
    /// A bar per series, from its first point.
    Bars,
}

/// One plot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// What is drawn.
    pub kind: Kind,
    /// Along the bottom, with its unit.
    pub x: Axis,
    /// Along the side, with its unit.
    pub y: Axis,
    /// Lines or bars.
    pub series: Vec<Series>,
    /// Events of a plot over time.
    pub marks: Vec<Event>,
}

/// What an axis is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Axis {
    /// Quantity.
    pub label: String,
    /// Its unit; times of `us` are shown as us, ms or s.
    pub unit: String,
    /// On a log scale; otherwise from zero.
    pub is_log: bool,
}

/// What belongs to one name of the legend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Name.
    pub name: String,
    /// x and y.
    pub points: Vec<[f64; 2]>,
    /// Lower and upper bound of each y; may be empty.
    pub intervals: Vec<[f64; 2]>,
}

impl Plot {
    /// Without events; the axes are x and y.
    pub fn new(title: &str, kind: Kind, [x, y]: [Axis; 2], series: Vec<Series>) -> Self {
        Plot {
            title: title.to_owned(),
            kind,
            x,
            y,
            series,
            marks: Vec::new(),
        }
    }
}

impl Axis {
    /// From zero.
    pub fn linear(label: &str, unit: &str) -> Self {
        Axis {
            label: label.to_owned(),
            unit: unit.to_owned(),
            is_log: false,
        }
    }

    /// On a log scale.
    pub fn log(label: &str, unit: &str) -> Self {
        Axis {
            is_log: true,
            ..Axis::linear(label, unit)
        }
    }
}

impl Series {
    /// Points joined by lines.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = [f64; 2]>) -> Self {
        Series {
            name: name.into(),
            points: points.into_iter().collect(),
            intervals: Vec::new(),
        }
    }
}
