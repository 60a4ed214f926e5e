//! Coordinators and nodes of Ephesus on loopback: how fast a cluster changes, and what it costs at rest.
//!
//! Every process is real. Times are upper bounds: they begin at the last moment at which the old
//! state was still seen, and the clients that look use the same CPUs.

use std::path::PathBuf;

use serde::Serialize;
use tempfile::TempDir;

use crate::error::Result;
use crate::named::Named;
use crate::record::{Case, EPHESUS};
use crate::runner::{SiteArgs, session};
use crate::{locate, server};

use bed::{Bed, Layout};

pub(crate) mod bed;
mod cases;

/// Nodes of the cluster whose changes and idle costs are measured.
const NODES: u16 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
pub enum Question {
    /// a change of the table until every one of 10 nodes answers by it
    TableChange,
    /// SIGKILL of the leading coordinator until a change is accepted
    LeaderLost,
    /// CPU of 10 nodes and 3 coordinators without clients
    Idle,
}

#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct ClusterArgs {
    /// Cases to run, comma-separated [default: all]
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Question::all(), hide_default_value = true)]
    cases: Vec<Question>,
    /// The ephesus program [default: next to this one, in target/release or of PATH]
    #[arg(long)]
    ephesus: Option<PathBuf>,
    #[command(flatten)]
    #[serde(flatten)]
    site: SiteArgs,
}

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

impl ClusterArgs {
    pub fn execute(&self) -> Result<()> {
        let site = Site {
            is_quick: self.site.quick,
            ephesus: locate::program("ephesus", self.ephesus.as_deref())?,
            root: locate::data_root(self.site.dir.as_deref(), "cluster-")?,
        };
        let outputs = (&self.site.outputs, Some(&site.root), site.is_quick);
        session("cluster", outputs, self, |session| {
            let server = server::described(EPHESUS, &site.ephesus, "");
            session.record.add_server(server);
            self.cases.iter().try_for_each(|&question| {
                let mut case = Case::new(question);
                eprintln!("== {}: {}", case.name, case.title);
                let done = match question {
                    Question::TableChange => cases::of_table(&site, &mut case),
                    Question::LeaderLost => cases::of_leader(&site, &mut case),
                    Question::Idle => cases::of_rest(&site, &mut case),
                };
                case.judge(EPHESUS, "", str::to_owned);
                session.put(case)?;
                done
            })
        })
    }
}
