use serde::Serialize;

use crate::environment::Environment;
use crate::error::{BenchError, Result};
use crate::measure::{Goal, Verdict};
use crate::named::Named;
use crate::report::{Page, or_dash, shown, texts};
use crate::stats;

use super::Case;

/// Everything a run has found.
#[derive(Debug, Serialize)]
pub struct Report {
    environment: Environment,
    is_quick: bool,
    cases: Vec<CaseReport>,
}

/// What one case has found.
#[derive(Debug, Serialize)]
pub(super) struct CaseReport {
    case: Case,
    title: String,
    how: String,
    rows: Vec<Row>,
}

/// One quantity.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    unit: &'static str,
    samples: Vec<f64>,
    median: Option<f64>,
    max: Option<f64>,
    goal: Option<Goal>,
    verdict: Verdict,
    client_bound: bool,
}

impl CaseReport {
    pub(super) fn new(case: Case, how: impl Into<String>) -> Self {
        CaseReport {
            case,
            title: case.title(),
            how: how.into(),
            rows: Vec::new(),
        }
    }

    /// Adds a quantity, whose median a goal is about.
    pub(super) fn add(
        &mut self,
        name: impl Into<String>,
        unit: &'static str,
        samples: Vec<f64>,
        goal: Option<Goal>,
    ) {
        let median = stats::median(&samples);
        let verdict = Verdict::on(goal, median);
        let row = Row {
            name: name.into(),
            unit,
            median,
            max: stats::quantile(&samples, 1.0),
            samples,
            goal,
            verdict,
            client_bound: false,
        };
        eprintln!("   {}: {} {unit}", row.name, shown(row.median));
        self.rows.push(row);
    }

    /// Marks the row that was added last: its servers had time left, and the goal is reached or not
    /// by what the case says of CPU per operation.
    ///
    /// # Panics
    /// Without a row.
    pub(super) fn mark_client_bound(&mut self, is_reached_by_cpu: Option<bool>) {
        let row = self.rows.last_mut().expect("a row");
        row.client_bound = true;
        row.verdict = match (row.goal, is_reached_by_cpu) {
            (None, _) => Verdict::NoGoal,
            (Some(_), None) => Verdict::NotMeasured,
            (Some(_), Some(true)) => Verdict::MetByCpu,
            (Some(_), Some(false)) => Verdict::MissedByCpu,
        };
    }
}

impl Report {
    pub(super) fn new(environment: Environment, is_quick: bool) -> Self {
        Report {
            environment,
            is_quick,
            cases: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, case: CaseReport) {
        self.cases.push(case);
    }

    /// Whether all bounds are kept: those of [`Case::Scale`] do not depend on what else the machine does.
    ///
    /// # Errors
    /// The first that is missed.
    pub(super) fn check_bounds(&self) -> Result<()> {
        let bounded = self.cases.iter().filter(|case| case.case == Case::Scale);
        let mut rows = bounded.flat_map(|case| &case.rows);
        match rows.find(|row| row.verdict == Verdict::Missed) {
            Some(row) => Err(BenchError::failed(&row.name, "the bound is missed")),
            None => Ok(()),
        }
    }

    /// Tables and settings as Markdown.
    pub fn markdown(&self) -> String {
        let mut page = Page::new("Cluster", self.is_quick);
        page.head(&texts([
            &"case",
            &"measure",
            &"unit",
            &"median",
            &"max",
            &"samples",
            &"goal",
            &"verdict",
            &"client-bound",
        ]));
        for case in &self.cases {
            for row in &case.rows {
                page.row(&texts([
                    &case.case.name(),
                    &row.name,
                    &row.unit,
                    &shown(row.median),
                    &shown(row.max),
                    &row.samples.len(),
                    &or_dash(row.goal),
                    &row.verdict,
                    &if row.client_bound { "yes" } else { "-" },
                ]));
            }
        }
        page.section("Cases");
        for case in &self.cases {
            page.line(format_args!(
                "- **{}**: {}. {}",
                case.case.name(),
                case.title,
                case.how
            ));
        }
        page.machine(&self.environment, "");
        page.0
    }
}
