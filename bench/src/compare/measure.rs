use std::collections::BTreeMap;

use crate::measure::{Goal, Measure, Measures, Scale, Verdict};
use crate::named::Named;
use crate::record::{self, Row, Run};
use crate::server::Product;
use crate::stats;

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

/// Everything one case found.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// Short name.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// How it was driven.
    pub how: String,
    /// Runs of the first round.
    pub runs: Vec<Run>,
    /// Its measures.
    pub measures: Measures,
    /// Share of its core the client used, by round.
    pub client_busy: BTreeMap<Product, Vec<f64>>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

impl CaseResult {
    pub(super) fn new(case: impl Named, how: String) -> Self {
        CaseResult {
            name: case.name(),
            title: case.title(),
            how,
            runs: Vec::new(),
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

    /// What it comes to, as it is kept.
    pub fn recorded(self, subject: Product) -> record::Case {
        let bound = self.client_bound();
        let row = |measure: &Measure| {
            let to = |name: &str, ratios: Vec<f64>| (name.to_owned(), stats::estimate(&ratios));
            let ratios = [
                to("best peer", measure.ratios(subject)),
                to("older", measure.ratios_to(subject, is_older)),
            ];
            let row = Row::new(measure, self.judge(measure, subject), ratios);
            let client_bound = bound.iter().map(Product::to_string).collect();
            Row {
                client_bound,
                ..row
            }
        };
        let rows = self.measures.0.iter().map(row).collect();
        record::Case {
            rows,
            notes: self.notes,
            name: self.name,
            title: self.title,
            how: self.how,
            runs: self.runs,
            plots: Vec::new(),
        }
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
