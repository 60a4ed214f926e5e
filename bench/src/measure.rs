//! Quantities with their samples of every server, and what they are to reach.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::server::Product;
use crate::stats;

/// Which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// What a measure is to reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Subject / best peer at least this.
    RatioAtLeast(f64),
    /// Subject / best peer at most this.
    RatioAtMost(f64),
    /// The subject's own value at most this.
    ValueAtMost(f64),
}

/// Whether a goal is reached, by the median.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Reached.
    Met,
    /// Not reached.
    Missed,
    /// Client-bound, and reached by CPU per operation.
    MetByCpu,
    /// Client-bound, and not reached by CPU per operation.
    MissedByCpu,
    /// A value that the goal needs is missing.
    NotMeasured,
    /// There is no goal.
    NoGoal,
}

impl Goal {
    /// Whether a value, or a ratio for goals about ratios, reaches it.
    pub fn is_reached(self, value: f64) -> bool {
        match self {
            Goal::RatioAtLeast(least) => value >= least,
            Goal::RatioAtMost(most) | Goal::ValueAtMost(most) => value <= most,
        }
    }
}

impl Verdict {
    /// On the value that a goal is about.
    pub fn on(goal: Option<Goal>, value: Option<f64>) -> Self {
        match (goal, value) {
            (None, _) => Verdict::NoGoal,
            (Some(_), None) => Verdict::NotMeasured,
            (Some(goal), Some(value)) if goal.is_reached(value) => Verdict::Met,
            _ => Verdict::Missed,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::RatioAtLeast(least) => write!(f, ">= {least}x"),
            Goal::RatioAtMost(most) => write!(f, "<= {most}x"),
            Goal::ValueAtMost(most) => write!(f, "value <= {most}"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::MetByCpu => "met (CPU per op)",
            Verdict::MissedByCpu => "MISSED (CPU per op)",
            Verdict::NotMeasured => "not measured",
            Verdict::NoGoal => "-",
        })
    }
}

/// How a quantity is read.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    unit: &'static str,
    better: Better,
    goal: Option<Goal>,
}

/// More of it is better.
pub fn more(unit: &'static str) -> Scale {
    Scale {
        unit,
        better: Better::Higher,
        goal: None,
    }
}

/// Less of it is better.
pub fn less(unit: &'static str) -> Scale {
    Scale {
        better: Better::Lower,
        ..more(unit)
    }
}

impl Scale {
    /// With what it is to reach, if anything.
    pub fn to(self, goal: impl Into<Option<Goal>>) -> Self {
        let goal = goal.into();
        Scale { goal, ..self }
    }
}

/// One quantity with its samples of every server, one per round; NaN where a server has none.
#[derive(Clone, Debug, Serialize)]
pub struct Measure<P: Ord = Product> {
    /// What it is.
    pub name: String,
    /// In what unit.
    pub unit: &'static str,
    /// Which direction is better.
    pub better: Better,
    /// What it should reach.
    pub goal: Option<Goal>,
    /// Samples by round.
    pub samples: BTreeMap<P, Vec<f64>>,
}

impl<P: Ord + Copy> Measure<P> {
    /// A measure without samples.
    pub fn new(name: impl Into<String>, scale: Scale) -> Self {
        Measure {
            name: name.into(),
            unit: scale.unit,
            better: scale.better,
            goal: scale.goal,
            samples: BTreeMap::new(),
        }
    }

    /// The median of one server.
    pub fn median(&self, server: P) -> Option<f64> {
        let present: Vec<f64> = self
            .samples
            .get(&server)?
            .iter()
            .copied()
            .filter(|value| !value.is_nan())
            .collect();
        stats::median(&present)
    }

    /// The medians of all servers.
    pub fn medians(&self) -> BTreeMap<P, Option<f64>> {
        let servers = self.samples.keys();
        servers
            .map(|&server| (server, self.median(server)))
            .collect()
    }

    /// Subject / best of the peers that `counts` holds of, round by round.
    pub fn ratios_to(&self, subject: P, counts: impl Fn(P) -> bool) -> Vec<f64> {
        let Some(own) = self.samples.get(&subject) else {
            return Vec::new();
        };
        let peer = |round: usize| {
            let others = self
                .samples
                .iter()
                .filter(|(server, _)| **server != subject && counts(**server));
            let values = others.filter_map(|(_, samples)| samples.get(round).copied());
            values
                .filter(|value| !value.is_nan())
                .reduce(match self.better {
                    Better::Higher => f64::max,
                    Better::Lower => f64::min,
                })
        };
        let pairs = own
            .iter()
            .enumerate()
            .filter_map(|(round, own)| Some(own / peer(round)?));
        pairs.filter(|ratio| ratio.is_finite()).collect()
    }
}

/// Measures in the order of their first samples, which is the table's.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Measures<P: Ord = Product>(pub Vec<Measure<P>>);

impl<P: Ord> Default for Measures<P> {
    fn default() -> Self {
        Measures(Vec::new())
    }
}

impl<P: Ord + Copy> Measures<P> {
    /// Adds one round's value; the first one says how the measure is read.
    pub fn record(&mut self, name: impl Into<String>, scale: Scale, server: P, value: f64) {
        let name = name.into();
        let known = self.0.iter().position(|measure| measure.name == name);
        let at = known.unwrap_or_else(|| {
            self.0.push(Measure::new(name, scale));
            self.0.len() - 1
        });
        self.0[at].samples.entry(server).or_default().push(value);
    }
}
