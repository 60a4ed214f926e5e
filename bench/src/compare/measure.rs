use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::server::Product;
use crate::stats::{self, Estimate};

use super::Case;

/// A client using more of its core than this hides the server's limit.
pub(super) const CLIENT_BUSY_MAX: f64 = 0.9;
/// The measure that counts when a row is client-bound.
pub(super) const CPU_PER_OP: &str = "server CPU per op";

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
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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

/// One quantity with its samples of every server, one per round; NaN where a server has none.
#[derive(Clone, Debug, Serialize)]
pub struct Measure<P: Ord = Product> {
    /// What it is.
    pub name: &'static str,
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
    pub fn new(name: &'static str, unit: &'static str, better: Better, goal: Option<Goal>) -> Self {
        Measure {
            name,
            unit,
            better,
            goal,
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

impl Measure {
    /// Subject / best peer, round by round; an older build is none.
    pub fn ratios(&self, subject: Product) -> Vec<f64> {
        self.ratios_to(subject, |product| !is_older(product))
    }
}

fn is_older(product: Product) -> bool {
    product == Product::Older
}

/// A measure reduced to what the table shows.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// What it is.
    pub name: &'static str,
    /// In what unit.
    pub unit: &'static str,
    /// Median of every product.
    pub medians: BTreeMap<Product, Option<f64>>,
    /// Subject / best peer with its interval.
    pub ratio: Option<Estimate>,
    /// Subject / older build with its interval, if there is one.
    pub ratio_to_older: Option<Estimate>,
    /// Goal, if any.
    pub goal: Option<Goal>,
    /// Whether it is reached.
    pub verdict: Verdict,
}

/// Everything one case found.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    /// Which case.
    pub case: Case,
    /// What it shows.
    pub title: &'static str,
    /// How it was driven.
    pub how: String,
    /// Its measures.
    pub measures: Vec<Measure>,
    /// Share of its core the client used, by round.
    pub client_busy: BTreeMap<Product, Vec<f64>>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

impl CaseResult {
    pub(super) fn new(case: Case, how: String) -> Self {
        CaseResult {
            case,
            title: case.title(),
            how,
            measures: Vec::new(),
            client_busy: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// Declares a measure; declaring order is the table's.
    pub(super) fn declare(
        &mut self,
        name: &'static str,
        unit: &'static str,
        better: Better,
        goal: Option<Goal>,
    ) {
        self.measures.push(Measure::new(name, unit, better, goal));
    }

    /// Adds one round's value of a declared measure.
    ///
    /// # Panics
    /// When the measure was not declared.
    pub(super) fn record(&mut self, name: &str, product: Product, value: f64) {
        let measure = self
            .measures
            .iter_mut()
            .find(|measure| measure.name == name);
        let measure = measure.unwrap_or_else(|| panic!("measure {name} was not declared"));
        measure.samples.entry(product).or_default().push(value);
    }

    pub(super) fn record_client(&mut self, product: Product, busy: f64) {
        self.client_busy.entry(product).or_default().push(busy);
    }

    /// Adds a note once.
    pub(super) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            eprintln!("   note: {note}");
            self.notes.push(note);
        }
    }

    /// Products whose client was busier than it may be, by the median.
    pub fn client_bound(&self) -> Vec<Product> {
        let busy = |samples: &Vec<f64>| stats::median(samples).unwrap_or(0.0) > CLIENT_BUSY_MAX;
        self.client_busy
            .iter()
            .filter(|(_, samples)| busy(samples))
            .map(|(product, _)| *product)
            .collect()
    }

    /// The table's rows.
    pub fn summarize(&self, subject: Product) -> Vec<Summary> {
        self.measures
            .iter()
            .map(|measure| Summary {
                name: measure.name,
                unit: measure.unit,
                medians: measure
                    .samples
                    .keys()
                    .map(|&product| (product, measure.median(product)))
                    .collect(),
                ratio: stats::estimate(&measure.ratios(subject)),
                ratio_to_older: stats::estimate(&measure.ratios_to(subject, is_older)),
                goal: measure.goal,
                verdict: self.judge(measure, subject),
            })
            .collect()
    }

    fn judge(&self, measure: &Measure, subject: Product) -> Verdict {
        let Some(goal) = measure.goal else {
            return Verdict::NoGoal;
        };
        let plain = |value| Verdict::on(Some(goal), value);
        let ratio = stats::median(&measure.ratios(subject));
        match goal {
            Goal::ValueAtMost(_) => plain(measure.median(subject)),
            Goal::RatioAtMost(_) => plain(ratio),
            Goal::RatioAtLeast(least) => {
                let cpu = self
                    .measures
                    .iter()
                    .find(|measure| measure.name == CPU_PER_OP);
                match cpu.filter(|_| !self.client_bound().is_empty()) {
                    None => plain(ratio),
                    Some(cpu) => match stats::median(&cpu.ratios(subject)) {
                        None => Verdict::NotMeasured,
                        Some(ratio) if ratio <= 1.0 / least => Verdict::MetByCpu,
                        Some(_) => Verdict::MissedByCpu,
                    },
                }
            }
        }
    }
}
