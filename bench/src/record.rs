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
use crate::error::{BenchError, During, Result};
use crate::measure::{Better, Goal, Verdict};
use crate::named::Named;
use crate::stats::Estimate;

pub use latencies::Latencies;
pub use outputs::Outputs;

mod latencies;
mod outputs;
#[cfg(test)]
pub(crate) mod tests;

/// Name of Ephesus in cases.
pub const EPHESUS: &str = "ephesus";

pub const SCHEMA: u32 = 1;

/// One run of a subcommand.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub schema: u32,
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
    pub cases: Vec<Case>,
}

/// A server, by the name that cases know it by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerRecord {
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
    pub name: String,
    pub title: String,
    pub how: String,
    pub notes: Vec<String>,
    pub rows: Vec<Row>,
    /// Runs of the load generator.
    pub runs: Vec<Run>,
    /// Plots beside those that every run has.
    pub plots: Vec<Plot>,
}

/// One quantity with its samples of every server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    pub unit: String,
    /// Samples by server and round; null where a server has none.
    pub samples: BTreeMap<String, Vec<Option<f64>>>,
    pub medians: BTreeMap<String, Option<f64>>,
    /// Ratios of the first named server to others, paired by round.
    pub ratios: BTreeMap<String, Estimate>,
    pub goal: Option<Goal>,
    pub verdict: Verdict,
    /// Servers whose client had no time left.
    pub client_bound: Vec<String>,
    #[serde(skip)]
    pub(crate) better: Better,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    pub server: String,
    /// What tells it from other runs of the server in its case; empty if there is none.
    pub label: String,
    /// Operations per second asked for; none for a closed loop.
    pub offered_per_s: Option<f64>,
    pub elapsed_s: f64,
    pub operations: BTreeMap<String, Latencies>,
    pub seconds: Vec<Second>,
    pub events: Vec<Event>,
    pub errors: BTreeMap<String, u64>,
    pub misses: u64,
    pub unanswered: u64,
    /// Share of its CPUs that the generator used.
    pub client_busy: f64,
    /// 99th percentile of how late requests left the generator.
    pub send_delay_p99_us: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    pub at_s: f64,
    pub done: u64,
    pub errors: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub at_s: f64,
    /// When it was over, if it lasted.
    pub until_s: Option<f64>,
    /// What kind of event: move, failover, image.
    pub kind: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Time,
    /// Latency by percentile: x is the quantile below 1, drawn on the log scale of `1 / (1 - x)`.
    Percentiles,
    Curve,
    Bars,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plot {
    pub title: String,
    pub kind: Kind,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    pub marks: Vec<Event>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Axis {
    pub label: String,
    /// Its unit; times of `us` are shown as us, ms or s.
    pub unit: String,
    pub is_log: bool,
}

/// What belongs to one name of the legend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    pub points: Vec<[f64; 2]>,
    /// Lower and upper bound of each y; may be empty.
    pub intervals: Vec<[f64; 2]>,
}

impl Plot {
    /// Without events; the axes are x and y.
    pub fn new(title: &str, kind: Kind, [x, y]: [Axis; 2], series: Vec<Series>) -> Self {
        Plot {
            title: title.to_owned(),
            kind,
            x,
            y,
            series,
            marks: Vec::new(),
        }
    }
}

impl Axis {
    pub fn linear(label: &str, unit: &str) -> Self {
        Axis {
            label: label.to_owned(),
            unit: unit.to_owned(),
            is_log: false,
        }
    }

    pub fn log(label: &str, unit: &str) -> Self {
        Axis {
            is_log: true,
            ..Axis::linear(label, unit)
        }
    }
}

impl Series {
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = [f64; 2]>) -> Self {
        Series {
            name: name.into(),
            points: points.into_iter().collect(),
            intervals: Vec::new(),
        }
    }
}

impl Record {
    /// A record without results; call before anything is pinned.
    pub fn new(tool: &str, data_dir: &Path, settings: &impl Serialize) -> Result<Self> {
        let settings = serde_json::to_value(settings).and_then(serde_json::from_value);
        Ok(Record {
            schema: SCHEMA,
            tool: tool.to_owned(),
            environment: environment::read(data_dir)?,
            settings: settings.during("settings")?,
            is_quick: false,
            truncated: None,
            servers: Vec::new(),
            cases: Vec::new(),
        })
    }

    pub fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text).during("a record")?;
        if value["schema"] != SCHEMA {
            let problem = format!("has schema {}, not {SCHEMA}", value["schema"]);
            return Err(BenchError::failed("a record", problem));
        }
        serde_json::from_value(value).during("a record")
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

    pub fn put(&mut self, case: Case) {
        self.cases.retain(|known| known.name != case.name);
        self.cases.push(case);
    }
}

impl Case {
    pub fn new(case: impl Named) -> Self {
        Case {
            name: case.name(),
            title: case.title(),
            ..Case::default()
        }
    }
}

impl Run {
    pub fn all(&self) -> Latencies {
        self.operations.values().sum()
    }

    pub fn per_s(&self) -> f64 {
        let done: u64 = self.operations.values().map(Latencies::count).sum();
        done as f64 / self.elapsed_s.max(f64::MIN_POSITIVE)
    }

    pub fn name(&self) -> String {
        format!("{} {}", self.server, self.label).trim().to_owned()
    }
}

impl Second {
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
