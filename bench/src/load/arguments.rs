use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::affinity;
use crate::error::{BenchError, Result};
use crate::prefill;
use crate::report::save;

use super::{LoadConfig, LoadReport};

/// `ephesus-bench load`: drives one server at a fixed rate.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    /// What is sent.
    #[command(flatten)]
    pub config: LoadConfig,
    /// Load all keys first
    #[arg(long)]
    pub fill: bool,
    /// CPU for the generator
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Also write the report to this file, `-` for standard output alone
    #[arg(long)]
    pub json: Option<PathBuf>,
}

const SECONDS_MAX: f64 = 86_400.0;

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!("must be 0 to {SECONDS_MAX}")),
    }
}

impl LoadArgs {
    /// Runs and prints.
    ///
    /// # Errors
    /// See [`super::run`]; also when `--cpu` may not be used or `--json` not be written.
    pub fn execute(&self) -> Result<()> {
        if let Some(cpu) = self.cpu {
            affinity::confine_current(&affinity::mask(&[cpu]))
                .map_err(BenchError::io(format!("--cpu {cpu}")))?;
        }
        let config = &self.config;
        if self.fill {
            prefill::fill(config.address, config.keys, config.value_bytes, 0)?;
        }
        let report = super::run(config)?;
        let json = serde_json::json!({ "config": config, "report": report });
        if self.json.as_deref() == Some(Path::new("-")) {
            println!("{json:#}");
            return Ok(());
        }
        save(&json, self.json.as_deref())?;
        print!("{}", table(&report));
        Ok(())
    }
}

fn table(report: &LoadReport) -> String {
    let mut text = format!(
        "offered {:.0}/s, answered {:.0}/s, unanswered {}, misses {}{}\n\
         generator busy {:.0}%, sends late by {:.0} us at p99\n\
         {:<5} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
        report.offered_per_s,
        report.achieved_per_s,
        report.found.unanswered,
        report.found.misses,
        if report.found.overloaded {
            ", OVERLOADED"
        } else {
            ""
        },
        report.found.client_busy * 100.0,
        report.found.send_delay_p99_us,
        "us",
        "count",
        "p50",
        "p99",
        "p99.9",
        "max",
    );
    for (name, latency) in [
        ("all", &report.measured.all),
        ("get", &report.measured.get),
        ("set", &report.measured.set),
    ] {
        text += &format!(
            "{name:<5} {:>10} {:>10.1} {:>10.1} {:>10.1} {:>10.1}\n",
            latency.count, latency.p50_us, latency.p99_us, latency.p999_us, latency.max_us
        );
    }
    text
}
