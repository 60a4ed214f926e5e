//! What all reports have in common: Markdown, the machine, and where the JSON goes.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::environment::Environment;
use crate::error::{BenchError, Result};
use crate::stats::{Estimate, number};

/// Writes a report with every sample to the file that was asked for, if any.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn save(report: &impl Serialize, path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let what = || BenchError::io(path.display().to_string());
    let text = serde_json::to_string_pretty(report).map_err(|error| what()(error.into()))?;
    fs::write(path, text).map_err(what())
}

/// A text in Markdown.
pub(crate) struct Page(pub(crate) String);

impl Page {
    /// Begins with a title, and a warning in front of numbers that mean nothing.
    pub(crate) fn new(title: &str, is_quick: bool) -> Self {
        let mut page = Page(format!("# {title}\n\n"));
        if is_quick {
            page.line("**--quick: this checks the tool; its numbers mean nothing.**\n");
        }
        page
    }

    pub(crate) fn line(&mut self, line: impl Display) {
        self.0 += &format!("{line}\n");
    }

    pub(crate) fn section(&mut self, title: &str) {
        self.line(format_args!("\n## {title}\n"));
    }

    /// The head of a table.
    pub(crate) fn head(&mut self, columns: &[String]) {
        self.row(columns);
        self.line(format_args!("|{}", " --- |".repeat(columns.len())));
    }

    /// One row of a table.
    pub(crate) fn row(&mut self, cells: &[String]) {
        self.line(format_args!("| {} |", cells.join(" | ")));
    }

    /// The machine; `use_of` says which CPUs do what.
    pub(crate) fn machine(&mut self, here: &Environment, use_of: &str) {
        self.section("Machine");
        self.line(format_args!(
            "- {}, load before: {}",
            here.date, here.load_average
        ));
        self.line(format_args!("- {}; CPUs {:?}{use_of}", here.cpu, here.cpus));
        self.line(format_args!("- {}", here.kernel));
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        self.line(format_args!(
            "- memory {:.1} GiB, {:.1} GiB available; transparent huge pages {}; governor {}",
            gib(here.memory_bytes),
            gib(here.memory_available_bytes),
            here.huge_pages.as_deref().unwrap_or("unknown"),
            here.governor.as_deref().unwrap_or("none")
        ));
        self.line(format_args!("- data in {} ({})", here.data_dir, here.mount));
    }
}

/// What there is, or a dash.
pub(crate) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

/// A number, if there is one.
pub(crate) fn shown(value: Option<f64>) -> String {
    or_dash(value.map(number))
}

/// The median and its interval, two cells.
pub(crate) fn interval(estimate: Option<Estimate>) -> [String; 2] {
    let range = estimate.map(|one| format!("{} to {}", number(one.low), number(one.high)));
    [shown(estimate.map(|one| one.median)), or_dash(range)]
}

/// The cells of one row, of several kinds.
pub(crate) fn cells<const N: usize>(parts: [Vec<String>; N]) -> Vec<String> {
    parts.concat()
}

/// Cells of texts.
pub(crate) fn texts<const N: usize>(texts: [&dyn Display; N]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}
