use std::path::{Path, PathBuf};
use std::time::Duration;

use ::procfs::{Current, Meminfo};
use ephesus_wire::limits::SLOTS;
use serde::Serialize;
use tempfile::TempDir;

use crate::affinity::{self, Confinement};
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::load::{Op, Plan};
use crate::locate;
use crate::prefill;
use crate::procfs::CpuMark;
use crate::record::ServerRecord;
use crate::resp;
use crate::server::{self, Durability, Product, Server, ServerSpec};
use crate::target::LoginArgs;

/// A server to measure: one that runs, or one that is started for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Contestant {
    /// What it is called on the command line and in tables.
    pub name: String,
    #[serde(skip)]
    start: Option<Start>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Start {
    product: Product,
    /// A server for each CPU, instead of one.
    is_cluster: bool,
    program: Option<PathBuf>,
}

impl From<&str> for Contestant {
    /// An address, or what is started, with `=PROGRAM` or without.
    fn from(name: &str) -> Self {
        let (what, program) = match name.split_once('=') {
            Some((what, program)) => (what, Some(PathBuf::from(program))),
            None => (name, None),
        };
        let product = match what {
            "redis" => Some(Product::Redis),
            "valkey" | "valkey-cluster" => Some(Product::Valkey),
            "ephesus" => Some(Product::Ephesus),
            _ => None,
        };
        Contestant {
            name: name.to_owned(),
            start: product.map(|product| Start {
                product,
                is_cluster: what == "valkey-cluster",
                program,
            }),
        }
    }
}

impl Contestant {
    /// Whether it is started.
    pub fn is_started(&self) -> bool {
        self.start.is_some()
    }

    /// Whether it uses as many CPUs as it is given.
    pub fn scales(&self) -> bool {
        let scales = |start: &Start| start.is_cluster || start.product.is_ephesus();
        self.start.as_ref().is_some_and(scales)
    }
}

/// How servers are reached or started.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct ServerArgs {
    /// How clients get in.
    #[command(flatten)]
    #[serde(flatten)]
    pub login: LoginArgs,
    /// Servers that run are clusters: connect to each of their servers, and send each operation to the owner of its key
    #[arg(long)]
    pub cluster: bool,
    /// Of what is started: shards of an Ephesus, servers of a Valkey cluster, and CPUs of each contestant
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub shards: u16,
    /// --wal-budget of an Ephesus that is started, bytes
    #[arg(long, default_value_t = 1 << 30)]
    pub wal_budget: u64,
    /// Directory for data of what is started, on a real disk [default: a temporary one below target]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// How what is started is confined
    #[arg(long, value_enum, default_value = "affinity")]
    pub confine: Confinement,
}

/// What may differ between two starts of a contestant.
#[derive(Clone, Debug)]
pub struct Setup {
    /// When a write counts as done.
    pub durability: Durability,
    /// CPUs of each contestant, which take turns on them.
    pub cpus: Vec<usize>,
    /// CPUs of the load generator.
    pub client_cpus: Vec<usize>,
}

impl Setup {
    /// So many CPUs for each contestant that is started and for clients.
    pub fn of(contestants: &[Contestant], cpus: [u16; 2], durability: Durability) -> Result<Self> {
        let is_needed = contestants.iter().any(Contestant::is_started);
        let [servers, clients] = cpus.map(|count| if is_needed { usize::from(count) } else { 0 });
        let allowed = affinity::allowed()?;
        let too_few = BenchError::TooFewCpus {
            servers,
            clients,
            there: allowed.len(),
        };
        let all = allowed.get(..servers + clients).ok_or(too_few)?;
        Ok(Setup {
            durability,
            cpus: all[..servers].to_vec(),
            client_cpus: all[servers..].to_vec(),
        })
    }
}

/// A contestant that runs.
#[derive(Debug)]
pub struct Driven {
    /// Its name in tables and legends.
    pub name: String,
    /// Its processes, if they were started here.
    pub servers: Vec<Server>,
    /// How it is reached and with which load it is driven.
    pub plan: Plan,
}

/// How long servers of a cluster may take to know each other.
const MEET_TIMEOUT: Duration = Duration::from_secs(60);
const MEET_POLL: Duration = Duration::from_millis(20);

impl ServerArgs {
    /// A new directory for data, removed when dropped, if there is to be any.
    pub fn root(&self, contestants: &[Contestant], prefix: &str) -> Result<Option<TempDir>> {
        let is_needed = contestants.iter().any(Contestant::is_started);
        let make = || locate::data_root(self.dir.as_deref(), prefix);
        is_needed.then(make).transpose()
    }

    /// Starts a contestant with its data below `dir`, or finds out whether it is there.
    pub fn start(&self, one: &Contestant, setup: &Setup, dir: &Path) -> Result<Driven> {
        let name = one.name.clone();
        let mut servers = Vec::new();
        let plan = match &one.start {
            None => Plan {
                is_cluster: self.cluster,
                ..Plan::new(self.login.resolve(&name)?)
            },
            Some(start) => {
                let plain = |letter: char| letter.is_ascii_alphanumeric();
                let dir = dir.join(name.replace(|letter| !plain(letter), "-"));
                let each = if start.is_cluster {
                    1
                } else {
                    setup.cpus.len()
                };
                for (number, cpus) in setup.cpus.chunks(each).enumerate() {
                    let dir = dir.join(number.to_string());
                    let spec = self.spec(start, setup.durability, (dir, cpus))?;
                    servers.push(Server::start(spec)?);
                }
                if start.is_cluster {
                    join(&servers, servers.len())?;
                }
                Plan {
                    is_cluster: one.scales() && setup.cpus.len() > 1,
                    cpus: setup.client_cpus.clone(),
                    ..Plan::new(servers[0].address)
                }
            }
        };
        Ok(Driven {
            name,
            servers,
            plan,
        })
    }

    fn spec(
        &self,
        start: &Start,
        durability: Durability,
        (dir, cpus): (PathBuf, &[usize]),
    ) -> Result<ServerSpec> {
        let memory = Meminfo::current().map_err(|error| BenchError::failed("memory", error))?;
        let (budget, most) = (self.wal_budget, memory.mem_total / 2);
        let extra = match (start.product, start.is_cluster) {
            (Product::Ephesus, _) => format!("--wal-budget {budget} --max-memory {most}"),
            (_, true) => "--cluster-enabled yes".to_owned(),
            (_, false) => String::new(),
        };
        Ok(ServerSpec {
            product: start.product,
            binary: locate::program(start.product.program(), start.program.as_deref())?,
            durability,
            dir,
            cpus: cpus.to_vec(),
            confinement: self.confine,
            extra,
        })
    }
}

/// Makes a cluster of Valkeys, the first of which have equal shares of the slots.
pub fn join(servers: &[Server], owners: usize) -> Result<()> {
    let slots = usize::from(SLOTS);
    let connections = servers.iter().map(Server::connect);
    let mut connections = connections.collect::<Result<Vec<_>>>()?;
    for (number, one) in connections.iter_mut().enumerate() {
        one.text(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()])?;
        if number < owners {
            let ends = [number * slots / owners, (number + 1) * slots / owners - 1];
            let [first, last] = ends.map(|slot| slot.to_string());
            one.text(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
        }
    }
    for other in &servers[1..] {
        let (ip, port) = (
            other.address.ip().to_string(),
            other.address.port().to_string(),
        );
        connections[0].text(&["CLUSTER", "MEET", &ip, &port])?;
    }
    let state = (format!("a cluster of {} Valkeys", servers.len()), "ready");
    interrupt::wait_for(state, MEET_TIMEOUT, MEET_POLL, || {
        let mut ready = connections.iter_mut().map(|one| {
            let info = one.text(&["CLUSTER", "INFO"])?;
            let number = |name| resp::info_number(&info, name);
            Ok(resp::info_field(&info, "cluster_state") == Some("ok")
                && number("cluster_known_nodes") == Some(servers.len() as u64)
                && number("cluster_slots_ok") == Some(slots as u64))
        });
        ready.try_fold(true, |all, one| Ok(all && one?))
    })
}

impl Driven {
    /// Whether it is an Ephesus that was started here.
    pub fn is_own_ephesus(&self) -> bool {
        self.servers.iter().any(|one| one.spec.product.is_ephesus())
    }

    /// For a report.
    pub fn describe(&self) -> Result<ServerRecord> {
        if let Some(first) = self.servers.first() {
            return Ok(ServerRecord {
                name: self.name.clone(),
                ..server::describe(first)
            });
        }
        let target = &self.plan.target;
        let info = target.connect(target.address)?.text(&["INFO", "server"])?;
        let found = ["ephesus", "valkey", "redis"].into_iter().find_map(|one| {
            let version = resp::info_field(&info, &format!("{one}_version"))?;
            Some((one, version))
        });
        let (product, version) = found.unwrap_or(("server", "unknown"));
        Ok(ServerRecord {
            name: product.to_owned(),
            version: version.to_owned(),
            command_line: format!("at {}", target.address),
            configuration: Vec::new(),
        })
    }

    /// CPU time of its processes so far.
    pub fn cpu_marks(&self) -> Result<Vec<CpuMark>> {
        let pids = self.servers.iter().map(Server::pid);
        pids.map(CpuMark::of).collect()
    }

    /// Waits until its processes are idle; whether they are, within that time.
    pub fn wait_quiet(&self, timeout: Duration) -> Result<bool> {
        let mut quiet = self.servers.iter().map(|one| one.wait_quiet(timeout));
        quiet.try_fold(true, |all, one| Ok(all && one?))
    }

    /// Fails when a thread of its processes may run elsewhere than on their CPUs.
    pub fn verify_confined(&self) -> Result<()> {
        self.servers.iter().try_for_each(Server::verify_confined)
    }

    /// Loads all keys of its load: with a time to live, if its keys have one.
    pub fn fill(&self) -> Result<()> {
        let workload = &self.plan.workload;
        let keys = workload.keys.clone();
        eprintln!("   loading {} keys into {}", keys.count(), self.name);
        let op = match workload.mix.has(Op::Ttl) {
            true => Op::Ttl,
            false => Op::Write,
        };
        prefill::each(self.plan.clone(), op, keys.clone())?;
        self.verify_keys(keys.count())?;
        self.verify_confined()
    }

    /// Fails when its processes hold fewer keys together.
    pub fn verify_keys(&self, keys: u64) -> Result<()> {
        if self.servers.is_empty() {
            // What it holds besides is its own affair.
            return Ok(());
        }
        let held = |one: &Server| one.connect()?.integer(&["DBSIZE"]);
        let found: u64 = self.servers.iter().map(held).sum::<Result<u64>>()?;
        match found < keys {
            true => Err(BenchError::keys(&self.name, found, keys)),
            false => Ok(()),
        }
    }

    /// Lets its processes do what they do to start fast next time.
    pub fn settle(&self) -> Result<()> {
        self.servers.iter().try_for_each(Server::settle)
    }
}
