use std::path::PathBuf;

use crate::record::Outputs;

use super::Case;

/// `ephesus-bench cluster`: coordinators and nodes on loopback.
#[derive(Clone, Debug, clap::Args)]
pub struct ClusterArgs {
    /// Cases to run, comma-separated (default: all; see --list)
    #[arg(long, value_enum, value_delimiter = ',')]
    pub cases: Vec<Case>,
    /// List the cases and end
    #[arg(long)]
    pub list: bool,
    /// Fewer and shorter runs: checks the tool, measures nothing
    #[arg(long)]
    pub quick: bool,
    /// Where results go.
    #[command(flatten)]
    pub outputs: Outputs,
    /// The ephesus program (default: next to this one, or target/release/ephesus)
    #[arg(long)]
    pub ephesus: Option<PathBuf>,
    /// The redis-benchmark program
    #[arg(long, default_value = "/usr/bin/redis-benchmark")]
    pub redis_benchmark: PathBuf,
    /// Directory for data, on a real disk (default: a temporary one below target)
    #[arg(long)]
    pub dir: Option<PathBuf>,
}
