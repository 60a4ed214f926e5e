use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::affinity;
use crate::error::{BenchError, Result};
use crate::prefill;

use super::{LoadConfig, LoadReport, Operation};

/// `ephesus-bench load`: drives one server at a fixed rate.
#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    /// Where the server listens
    #[arg(long, default_value = "127.0.0.1:7379")]
    pub address: SocketAddr,
    /// Commands per second; 0 sends as fast as replies arrive
    #[arg(long, default_value_t = 10_000)]
    pub rate: u64,
    /// Connections
    #[arg(long, default_value_t = 50)]
    pub connections: usize,
    /// Commands per batch
    #[arg(long, default_value_t = 1)]
    pub pipeline: u32,
    /// What to send
    #[arg(long, value_enum, default_value = "get")]
    pub op: Operation,
    /// Share of GETs with --op mixed, in percent
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub get_percent: u32,
    /// Keys drawn from
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Measured seconds
    #[arg(long, default_value_t = 10.0, value_parser = seconds)]
    pub seconds: f64,
    /// Seconds before them that are not counted
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub warmup: f64,
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

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
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
        if self.fill {
            prefill::fill(self.address, self.keys, self.value_bytes, 0)?;
        }
        let config = LoadConfig {
            address: self.address,
            rate: self.rate,
            connections: self.connections,
            pipeline: self.pipeline,
            operation: self.op,
            get_percent: self.get_percent,
            keys: self.keys,
            value_bytes: self.value_bytes,
            duration: Duration::from_secs_f64(self.seconds),
            warmup: Duration::from_secs_f64(self.warmup),
        };
        let report = super::run(&config)?;
        let json = serde_json::json!({ "config": config, "report": report });
        match &self.json {
            Some(path) if path.as_os_str() == "-" => {
                println!("{json:#}");
                return Ok(());
            }
            Some(path) => std::fs::write(path, format!("{json:#}\n"))
                .map_err(BenchError::io(path.display().to_string()))?,
            None => {}
        }
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
        report.unanswered,
        report.misses,
        if report.overloaded {
            ", OVERLOADED"
        } else {
            ""
        },
        report.client_busy * 100.0,
        report.send_delay_p99_us,
        "us",
        "count",
        "p50",
        "p99",
        "p99.9",
        "max",
    );
    for (name, latency) in [
        ("all", &report.all),
        ("get", &report.get),
        ("set", &report.set),
    ] {
        text += &format!(
            "{name:<5} {:>10} {:>10.1} {:>10.1} {:>10.1} {:>10.1}\n",
            latency.count, latency.p50_us, latency.p99_us, latency.p999_us, latency.max_us
        );
    }
    text
}
