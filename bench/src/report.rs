//! What all reports have in common.

use serde::Serialize;

use crate::error::{BenchError, Result};

/// Stands above the numbers of a run with `--quick`.
pub(crate) const QUICK: &str = "**--quick: this checks the tool; its numbers mean nothing.**";

/// A report with every sample.
///
/// # Errors
/// When it cannot be written as JSON.
pub(crate) fn json(report: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(report)
        .map_err(|error| BenchError::io("writing the report as JSON")(error.into()))
}
