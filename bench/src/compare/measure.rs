use std::collections::BTreeMap;

use serde::Serialize;

use crate::measure::{Goal, Measure, Measures, Scale, Verdict};
use crate::named::Named;
use crate::server::Product;
use crate::stats::{self, Estimate};

use super::Case;

/// A client using more of its core than this hides the server's limit.
pub(super) const CLIENT_BUSY_MAX: f64 = 0.9;
/// The measure that counts when a row is client-bound.
pub(super) const CPU_PER_OP: &str = "server CPU per op";

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
    pub name: String,
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
    pub title: String,
    /// How it was driven.
    pub how: String,
    /// Its measures.
    pub measures: Measures,
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
            measures: Measures::default(),
            client_busy: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// Adds one round's value of a product; the first one says how the measure is read.
    pub(super) fn record(
        &mut self,
        name: impl Into<String>,
        scale: Scale,
        product: Product,
        value: f64,
    ) {
        self.measures.record(name, scale, product, value);
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
        let measures = self.measures.0.iter();
        measures
            .map(|measure| Summary {
                name: measure.name.clone(),
                unit: measure.unit,
                medians: measure.medians(),
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
                let mut measures = self.measures.0.iter();
                let cpu = measures.find(|measure| measure.name == CPU_PER_OP);
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
