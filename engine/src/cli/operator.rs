//! Commands that ask the coordinators: their flags.

pub mod migrations;
pub mod placement;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ephesus_coordinator::command::RaftId;

use super::address::address;

/// Entry port of a node plus 20000: its embedded coordinator.
const COORDINATOR_DEFAULT: &str = "127.0.0.1:27379";

/// Who is asked, and for how long.
#[derive(Clone, Debug, Args)]
pub struct Asking {
    /// Coordinators to ask: A:P,A:P,A:P.
    #[arg(
        long,
        value_name = "HOST:PORT,...",
        value_delimiter = ',',
        value_parser = address,
        default_value = COORDINATOR_DEFAULT
    )]
    pub coordinator: Vec<String>,
    /// Secret of the cluster.
    #[arg(long, value_name = "FILE")]
    pub cluster_secret_file: Option<PathBuf>,
    /// How long to look for a coordinator that leads.
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 5_000,
        value_parser = clap::value_parser!(u32).range(100..=600_000)
    )]
    timeout: u32,
}

impl Asking {
    /// How long a leader is looked for.
    #[must_use]
    pub fn limit(&self) -> Duration {
        Duration::from_millis(self.timeout.into())
    }
}

#[derive(Debug, Args)]
pub struct Look {
    #[command(flatten)]
    pub asking: Asking,
    /// Print JSON, for scripts.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct LookAtPartitions {
    /// Sort them by what they do, and show that, of shards as well.
    #[arg(long, value_name = "WHAT")]
    pub by: Option<By>,
    #[command(flatten)]
    pub look: Look,
}

#[derive(Debug, Args)]
pub struct Hot {
    /// Keys by name as well; nodes are asked for them.
    #[arg(long)]
    pub keys: bool,
    #[command(flatten)]
    pub look: Look,
}

/// What partitions are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The CPU time that they take.
    Load,
}

#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Give up a node that owns nothing, or that is lost for good together with its data.
    Remove(RemoveNode),
}

#[derive(Debug, Args)]
pub struct RemoveNode {
    /// Name of the node, or its id.
    pub name: String,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub asking: Asking,
}

#[derive(Debug, Subcommand)]
pub enum MemberCommand {
    /// Take one more coordinator in, and say how to start it.
    Add {
        /// Where it will be reached.
        #[arg(value_name = "HOST:PORT", value_parser = address)]
        address: String,
        #[command(flatten)]
        asking: Asking,
    },
    /// Take a coordinator out; its number is never used again.
    Remove {
        /// Its number.
        #[arg(value_name = "ID", value_parser = raft_id)]
        id: RaftId,
        #[command(flatten)]
        asking: Asking,
    },
}

fn raft_id(text: &str) -> Result<RaftId, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("not a coordinator's number: 1, 2, ...".to_owned()),
        Ok(id) => Ok(RaftId(id)),
    }
}

#[cfg(test)]
mod tests;
