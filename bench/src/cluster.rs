//! Coordinators and nodes of Ephesus on loopback: how fast a cluster changes, and what it costs at rest.
//!
//! Every process is real. Times are upper bounds: they begin at the last moment at which the old
//! state was still seen, and the clients that look use the same CPUs.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::Result;
use crate::locate;
use crate::named::Named;
use crate::record::{Case as CaseReport, EPHESUS, Outputs, Record, ServerRecord};
use crate::server;

pub(crate) mod bed;
mod idle;
mod leader;
mod table;

/// One question about a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// a change of the table until every one of 10 nodes answers by it
    TableChange,
    /// SIGKILL of the leading coordinator until a change is accepted
    LeaderLost,
    /// CPU of 10 nodes and 3 coordinators without clients
    Idle,
}

/// `ephesus-bench cluster`: coordinators and nodes on loopback.
#[derive(Clone, Debug, clap::Args)]
pub struct ClusterArgs {
    /// Cases to run, comma-separated (default: all; see --list)
    #[arg(long, value_enum, value_delimiter = ',')]
    cases: Vec<Case>,
    /// List the cases and end
    #[arg(long)]
    list: bool,
    /// Fewer and shorter runs: checks the tool, measures nothing
    #[arg(long)]
    quick: bool,
    /// Where results go.
    #[command(flatten)]
    outputs: Outputs,
    /// The ephesus program (default: next to this one, or target/release/ephesus)
    #[arg(long)]
    ephesus: Option<PathBuf>,
    /// Directory for data, on a real disk (default: a temporary one below target)
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// What all cases need.
struct Settings {
    is_quick: bool,
    ephesus: PathBuf,
    root: TempDir,
}

impl Settings {
    /// `full`, or `short` with `--quick`.
    fn or_quick<T>(&self, full: T, short: T) -> T {
        if self.is_quick { short } else { full }
    }

    /// The directory that holds all data.
    fn root(&self) -> &Path {
        self.root.path()
    }
}

/// Runs the cases asked for, prints the tables and writes the files that were asked for.
///
/// # Errors
/// When a process misbehaves, or the machine lacks what is needed.
pub fn execute(arguments: &ClusterArgs) -> Result<()> {
    if arguments.list {
        Case::list();
        return Ok(());
    }
    let outputs = &arguments.outputs;
    outputs.prepare()?;
    let settings = Settings {
        is_quick: arguments.quick,
        ephesus: locate::ephesus(arguments.ephesus.as_deref())?,
        root: locate::data_root(arguments.dir.as_deref(), "cluster-")?,
    };
    let cases = match &*arguments.cases {
        [] => Case::all(),
        cases => cases.to_vec(),
    };
    let mut record = Record::new("cluster", settings.root(), &serde_json::json!({}))?;
    record.is_quick = settings.is_quick;
    record.add_server(ServerRecord {
        name: EPHESUS.to_owned(),
        version: server::version(&settings.ephesus),
        command_line: settings.ephesus.display().to_string(),
        configuration: Vec::new(),
    });
    let mut run = |case: Case| {
        eprintln!("== {}: {}", case.name(), case.title());
        record.put(match case {
            Case::TableChange => table::run(&settings)?,
            Case::LeaderLost => leader::run(&settings)?,
            Case::Idle => idle::run(&settings)?,
        });
        outputs.save(&record)
    };
    let done = cases.into_iter().try_for_each(&mut run);
    outputs.publish(record, done)
}
