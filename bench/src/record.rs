//! The record of one run of any subcommand: tables, plots, files and `docs/benchmarks.md` are made of it alone.
//!
//! Layout in JSON: the fields below, times in seconds since the measured time began (`at_s`) and latencies in microseconds
//! (`_us`). Histograms are there twice, as percentiles to read and as `hdr`, from which everything can be computed
//! again: see [`Latencies`]. Readers refuse other versions than [`SCHEMA`].

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::environment::{self, Environment};
use crate::error::{BenchError, Result};
use crate::measure::{Better, Goal, Verdict};
use crate::named::Named;
use crate::plot::Plot;
use crate::stats::Estimate;

pub use latencies::Latencies;
pub use outputs::Outputs;

mod latencies;
mod outputs;
#[cfg(test)]
pub(crate) mod tests;

/// Name of Ephesus in cases.
pub const EPHESUS: &str = "ephesus";

/// Version of the layout.
pub const SCHEMA: u32 = 1;

/// One run of a subcommand.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The subcommand.
    pub tool: String,
    /// The machine, the program and its flags.
    pub environment: Environment,
    /// Settings by name, defaults filled in.
    pub settings: BTreeMap<String, Value>,
    /// It checked the tool: its figures mean nothing.
    pub is_quick: bool,
    /// Why it ended early; its figures are of what was done until then.
    pub truncated: Option<String>,
    /// What was measured.
    pub servers: Vec<ServerRecord>,
    /// What was found.
    pub cases: Vec<Case>,
}

/// A server, by the name that cases know it by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// Name in tables and legends.
    pub name: String,
    /// What it says its version is.
    pub version: String,
    /// Program and arguments, or the address of one that ran already.
    pub command_line: String,
    /// Settings it answered, by name.
    pub configuration: Vec<(String, String)>,
}

/// One question, of one or more servers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Case {
    /// Short name.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// How it was measured.
    pub how: String,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Quantities.
    pub rows: Vec<Row>,
    /// Runs of the load generator.
    pub runs: Vec<Run>,
    /// Plots beside those that every run has.
    pub plots: Vec<Plot>,
}

/// One quantity with its samples of every server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// In what unit.
    pub unit: String,
    /// Samples by server and round; null where a server has none.
    pub samples: BTreeMap<String, Vec<Option<f64>>>,
    /// Medians by server.
    pub medians: BTreeMap<String, Option<f64>>,
    /// Ratios of the first named server to others, paired by round.
    pub ratios: BTreeMap<String, Estimate>,
    /// What it is to reach.
    pub goal: Option<Goal>,
    /// Whether it does.
    pub verdict: Verdict,
    /// Servers whose client had no time left.
    pub client_bound: Vec<String>,
    /// Which direction is better.
    #[serde(skip)]
    pub(crate) better: Better,
}

/// One run of the load generator against one server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// Name of the server.
    pub server: String,
    /// What tells it from other runs of the server in its case; empty if there is none.
    pub label: String,
    /// Operations per second asked for; none for a closed loop.
    pub offered_per_s: Option<f64>,
    /// Measured seconds.
    pub elapsed_s: f64,
    /// Latency by operation.
    pub operations: BTreeMap<String, Latencies>,
    /// Second by second.
    pub seconds: Vec<Second>,
    /// What happened meanwhile.
    pub events: Vec<Event>,
    /// Operations that failed, by why.
    pub errors: BTreeMap<String, u64>,
    /// Reads of keys that were not there.
    pub misses: u64,
    /// Operations never answered.
    pub unanswered: u64,
    /// Share of its CPUs that the generator used.
    pub client_busy: f64,
    /// 99th percentile of how late requests left the generator.
    pub send_delay_p99_us: f64,
}

/// What one second of a run was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// When it began.
    pub at_s: f64,
    /// Operations done.
    pub done: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
}

/// Something that happened during a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When it began.
    pub at_s: f64,
    /// When it was over, if it lasted.
    pub until_s: Option<f64>,
    /// What kind of event: move, failover, image.
    pub kind: String,
}

impl Record {
    /// A record without results; call before anything is pinned.
    ///
    /// # Errors
    /// When the machine cannot be described.
    pub fn new(tool: &str, data_dir: &Path, settings: &impl Serialize) -> Result<Self> {
        let settings = serde_json::to_value(settings)
            .and_then(serde_json::from_value)
            .map_err(|error| BenchError::failed("settings", error))?;
        Ok(Record {
            schema: SCHEMA,
            tool: tool.to_owned(),
            environment: environment::read(data_dir)?,
            settings,
            is_quick: false,
            truncated: None,
            servers: Vec::new(),
            cases: Vec::new(),
        })
    }

    /// Reads a record of this version.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |error: serde_json::Error| BenchError::failed("a record", error);
        let value: Value = serde_json::from_str(text).map_err(bad)?;
        if value["schema"] != SCHEMA {
            let problem = format!("has schema {}, not {SCHEMA}", value["schema"]);
            return Err(BenchError::failed("a record", problem));
        }
        serde_json::from_value(value).map_err(bad)
    }

    /// Notes a server, once for each way in which it is started.
    pub fn add_server(&mut self, server: ServerRecord) {
        let is_same = |known: &ServerRecord| {
            (&known.name, &known.command_line) == (&server.name, &server.command_line)
        };
        if !self.servers.iter().any(is_same) {
            self.servers.push(server);
        }
    }

    /// Adds a case, or replaces what there is of it.
    pub fn put(&mut self, case: Case) {
        self.cases.retain(|known| known.name != case.name);
        self.cases.push(case);
    }
}

impl Case {
    /// Without results.
    pub fn new(case: impl Named, how: impl Into<String>) -> Self {
        Case {
            name: case.name(),
            title: case.title(),
            how: how.into(),
            ..Case::default()
        }
    }
}

impl Run {
    /// All operations together.
    pub fn all(&self) -> Latencies {
        self.operations.values().sum()
    }

    /// Operations done per second.
    pub fn per_s(&self) -> f64 {
        let done: u64 = self.operations.values().map(Latencies::count).sum();
        done as f64 / self.elapsed_s.max(f64::MIN_POSITIVE)
    }

    /// Name in a table or legend.
    pub fn name(&self) -> String {
        format!("{} {}", self.server, self.label).trim().to_owned()
    }
}

impl Second {
    /// A second with the latencies that ended in it.
    pub fn new(at_s: f64, latencies: &Latencies, errors: u64) -> Self {
        Second {
            at_s,
            done: latencies.count(),
            errors,
            p50_us: latencies.us(0.5),
            p99_us: latencies.us(0.99),
            p999_us: latencies.us(0.999),
        }
    }
}
