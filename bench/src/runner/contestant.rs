use std::path::{Path, PathBuf};
use std::time::Duration;

use ::procfs::{Current, Meminfo};
use ephesus_wire::limits::SLOTS;
use serde::Serialize;

use crate::error::{BenchError, During, Result};
use crate::load::{Op, Plan};
use crate::procfs::CpuMark;
use crate::record::ServerRecord;
use crate::server::{Durability, Product, Server, ServerSpec};
use crate::target::LoginArgs;
use crate::{affinity, interrupt, locate, prefill, resp};

/// A server to measure: one that runs, or one that is started for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Contestant {
    /// What it is called on the command line and in tables.
    pub name: String,
    /// None: it runs.
    #[serde(skip)]
    product: Option<Product>,
    /// A server is started for each CPU, instead of one.
    #[serde(skip)]
    is_cluster: bool,
    #[serde(skip)]
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
            product,
            is_cluster: what == "valkey-cluster",
            program,
        }
    }
}

impl Contestant {
    pub fn is_started(&self) -> bool {
        self.product.is_some()
    }

    /// Whether it uses as many CPUs as it is given.
    pub fn scales(&self) -> bool {
        self.is_cluster || self.product == Some(Product::Ephesus)
    }
}

#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct ServerArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub login: LoginArgs,
    /// Servers that run are clusters: connect to each of their servers, and send each operation to the owner of its key
    #[arg(long)]
    pub cluster: bool,
    /// Of what is started: shards of an Ephesus, servers of a Valkey cluster, and CPUs of each contestant
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub shards: u16,
    /// Directory for data of what is started, on a real disk [default: a temporary one below target]
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

/// What may differ between two starts of a contestant.
#[derive(Clone, Debug)]
pub struct Setup {
    pub durability: Durability,
    /// CPUs of each contestant, which take turns on them.
    pub cpus: Vec<usize>,
    pub client_cpus: Vec<usize>,
}

impl Setup {
    /// So many CPUs for each contestant that is started and for clients.
    pub fn of(contestants: &[Contestant], cpus: [u16; 2], durability: Durability) -> Result<Self> {
        let is_needed = contestants.iter().any(Contestant::is_started);
        let [servers, clients] = cpus.map(|count| if is_needed { usize::from(count) } else { 0 });
        let allowed = affinity::allowed()?;
        let all = allowed.get(..servers + clients).ok_or_else(|| {
            let there = allowed.len();
            BenchError::TooFewCpus(format!(
                "servers need {servers} CPUs and clients {clients}, and {there} may be used"
            ))
        })?;
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
    pub name: String,
    /// Its processes, if they were started here.
    pub servers: Vec<Server>,
    /// How it is reached and with which load it is driven.
    pub plan: Plan,
}

const WAL_BYTES: u64 = 1 << 30;
const MEET_TIMEOUT: Duration = Duration::from_secs(60);
const MEET_POLL: Duration = Duration::from_millis(20);

impl ServerArgs {
    /// Starts a contestant with its data below `dir`, or finds out whether it is there.
    pub fn start(&self, one: &Contestant, setup: &Setup, dir: &Path) -> Result<Driven> {
        let mut servers = Vec::new();
        let plan = match one.product {
            None => Plan {
                is_cluster: self.cluster,
                ..Plan::new(self.login.resolve(&one.name)?)
            },
            Some(product) => {
                let plain = |letter: char| letter.is_ascii_alphanumeric();
                let dir = dir.join(one.name.replace(|letter| !plain(letter), "-"));
                let each = if one.is_cluster { 1 } else { setup.cpus.len() };
                let extra = extra_flags(one, product)?;
                for (number, cpus) in setup.cpus.chunks(each).enumerate() {
                    servers.push(Server::start(ServerSpec {
                        product,
                        binary: locate::program(product.program(), one.program.as_deref())?,
                        durability: setup.durability,
                        dir: dir.join(number.to_string()),
                        cpus: cpus.to_vec(),
                        extra: extra.clone(),
                    })?);
                }
                if one.is_cluster {
                    join(&servers, servers.len())?;
                }
                let mut plan = Plan::new(servers[0].address);
                plan.is_cluster = one.scales() && setup.cpus.len() > 1;
                plan.pace.cpus.clone_from(&setup.client_cpus);
                plan
            }
        };
        Ok(Driven {
            name: one.name.clone(),
            servers,
            plan,
        })
    }
}

fn extra_flags(one: &Contestant, product: Product) -> Result<String> {
    let most = Meminfo::current().during("memory")?.mem_total / 2;
    Ok(match (product, one.is_cluster) {
        (Product::Ephesus, _) => format!("--wal-budget {WAL_BYTES} --max-memory {most}"),
        (_, true) => "--cluster-enabled yes".to_owned(),
        (_, false) => String::new(),
    })
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
    for other in servers[1..].iter().map(|other| other.address) {
        let (ip, port) = (other.ip().to_string(), other.port().to_string());
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
    pub fn describe(&self) -> Result<ServerRecord> {
        if let Some(first) = self.servers.first() {
            return Ok(ServerRecord {
                name: self.name.clone(),
                ..first.describe()
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

    pub fn cpu_marks(&self) -> Result<Vec<CpuMark>> {
        let pids = self.servers.iter().map(Server::pid);
        pids.map(CpuMark::of).collect()
    }

    pub fn wait_quiet(&self, timeout: Duration) -> Result<bool> {
        let mut quiet = self.servers.iter().map(|one| one.wait_quiet(timeout));
        quiet.try_fold(true, |all, one| Ok(all && one?))
    }

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

    /// Fails when its processes hold fewer keys together; what a server that runs holds besides is its own affair.
    pub fn verify_keys(&self, keys: u64) -> Result<()> {
        let held = |one: &Server| one.connect()?.integer(&["DBSIZE"]);
        let found: u64 = self.servers.iter().map(held).sum::<Result<u64>>()?;
        match found < keys && !self.servers.is_empty() {
            true => Err(BenchError::keys(&self.name, found, keys)),
            false => Ok(()),
        }
    }
}
