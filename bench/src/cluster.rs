//! Coordinators and nodes of Ephesus on loopback: how fast a cluster changes, and what it costs at rest.
//!
//! Every process is real. Times are upper bounds: they begin at the last moment at which the old
//! state was still seen, and the clients that look use the same CPUs.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::error::Result;
use crate::locate;
use crate::named::Named;
use crate::record::{Case, EPHESUS, Outputs, ServerRecord};
use crate::runner::session;
use crate::server;

use bed::{Bed, Layout};

pub(crate) mod bed;
mod idle;
mod leader;
mod table;

/// Nodes of the cluster whose changes and idle costs are measured.
const NODES: u16 = 10;

/// One question about a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Question {
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
    /// Cases to run, comma-separated [default: all]
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Question::all(), hide_default_value = true)]
    cases: Vec<Question>,
    /// Fewer and shorter runs: checks the tool, measures nothing
    #[arg(long)]
    quick: bool,
    /// Where results go.
    #[command(flatten)]
    outputs: Outputs,
    /// The ephesus program [default: next to this one, in target/release or of PATH]
    #[arg(long)]
    ephesus: Option<PathBuf>,
    /// Directory for data, on a real disk [default: a temporary one below target]
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// What all cases need.
struct Site {
    is_quick: bool,
    ephesus: PathBuf,
    root: TempDir,
}

impl Site {
    /// `full`, or `short` with `--quick`.
    fn or_quick<T>(&self, full: T, short: T) -> T {
        if self.is_quick { short } else { full }
    }

    /// A cluster of three coordinators.
    fn start(&self, nodes: u16, durability: &'static str) -> Result<Bed> {
        let layout = Layout {
            coordinators: 3,
            nodes,
            first_owns_all: false,
            durability,
            cpus: Vec::new(),
        };
        Bed::start(&self.ephesus, self.root.path(), layout)
    }
}

/// Runs the cases asked for, prints the tables and writes the files that were asked for.
///
/// # Errors
/// When a process misbehaves, or the machine lacks what is needed.
pub fn execute(arguments: &ClusterArgs) -> Result<()> {
    let site = Site {
        is_quick: arguments.quick,
        ephesus: locate::program("ephesus", arguments.ephesus.as_deref())?,
        root: locate::data_root(arguments.dir.as_deref(), "cluster-")?,
    };
    let outputs = (&arguments.outputs, Some(&site.root), arguments.quick);
    session("cluster", outputs, &serde_json::json!({}), |session| {
        session.record.add_server(ServerRecord {
            name: EPHESUS.to_owned(),
            version: server::version(&site.ephesus),
            command_line: site.ephesus.display().to_string(),
            configuration: Vec::new(),
        });
        arguments.cases.iter().try_for_each(|&question| {
            let mut case = Case::new(question, "");
            eprintln!("== {}: {}", case.name, case.title);
            let done = match question {
                Question::TableChange => table::run(&site, &mut case),
                Question::LeaderLost => leader::run(&site, &mut case),
                Question::Idle => idle::run(&site, &mut case),
            };
            case.judge(EPHESUS, "", str::to_owned);
            session.put(case)?;
            done
        })
    })
}
