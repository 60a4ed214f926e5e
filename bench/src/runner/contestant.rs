use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::procfs::{Current, Meminfo};
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
use crate::target::{LoginArgs, Target};

/// A server to measure: one that is started for it, or one that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Contestant(pub String);

impl From<&str> for Contestant {
    fn from(text: &str) -> Self {
        Contestant(text.to_owned())
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is started for a contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) product: Product,
    /// A server for each CPU, instead of one.
    pub(crate) is_cluster: bool,
}

impl Contestant {
    /// What it is called beside others: without its program, if none before it is called so.
    pub(crate) fn name(&self, all: &[Contestant]) -> String {
        let name = |one: &Contestant| one.0.split('=').next().unwrap_or_default().to_owned();
        let first = all.iter().find(|one| name(one) == name(self));
        match first.is_none_or(|first| first == self) {
            true => name(self),
            false => self.0.clone(),
        }
    }

    /// What is started for it, and of which program if that is said; none: it runs already.
    pub(crate) fn kind(&self) -> Option<(Kind, Option<&Path>)> {
        let (name, program) = match self.0.split_once('=') {
            Some((name, program)) => (name, Some(Path::new(program))),
            None => (&*self.0, None),
        };
        let (product, is_cluster) = match name {
            "redis" => (Product::Redis, false),
            "valkey" => (Product::Valkey, false),
            "valkey-cluster" => (Product::Valkey, true),
            "ephesus" => (Product::Ephesus, false),
            _ => return None,
        };
        let kind = Kind {
            product,
            is_cluster,
        };
        Some((kind, program))
    }

    /// Whether it is started.
    pub(crate) fn is_started(&self) -> bool {
        self.kind().is_some()
    }

    /// Whether it uses as many CPUs as it is given.
    pub(crate) fn scales(&self) -> bool {
        let scales = |kind: Kind| kind.is_cluster || kind.product.is_ephesus();
        self.kind().is_some_and(|(kind, _)| scales(kind))
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
    /// So many CPUs for each contestant that is started and for clients, or why there are not.
    pub fn of(
        contestants: &[Contestant],
        cpus: [u16; 2],
        durability: Durability,
    ) -> Result<Result<Setup, String>> {
        let is_needed = contestants.iter().any(Contestant::is_started);
        let [servers, clients] = cpus.map(|count| if is_needed { usize::from(count) } else { 0 });
        let allowed = affinity::allowed()?;
        Ok(match allowed.get(..servers + clients) {
            Some(all) => Ok(Setup {
                durability,
                cpus: all[..servers].to_vec(),
                client_cpus: all[servers..].to_vec(),
            }),
            None => Err(format!(
                "servers need {servers} CPUs and clients {clients}, and {} may be used",
                allowed.len()
            )),
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
/// A peer's AOF above this is rewritten between turns, outside every measurement.
const AOF_BYTES_MAX: u64 = 2 << 30;

impl ServerArgs {
    /// A new directory for data, removed when dropped, if there is to be any.
    pub fn root(&self, contestants: &[Contestant], prefix: &str) -> Result<Option<TempDir>> {
        let is_needed = contestants.iter().any(Contestant::is_started);
        let make = || locate::data_root(self.dir.as_deref(), prefix);
        is_needed.then(make).transpose()
    }

    /// Starts a contestant with its data below `dir`, or finds out whether it is there.
    pub fn start(
        &self,
        (one, all): (&Contestant, &[Contestant]),
        setup: &Setup,
        dir: &Path,
    ) -> Result<Driven> {
        let name = one.name(all);
        let Some((kind, program)) = one.kind() else {
            let target = self.login.resolve(&one.0)?;
            let plan = Plan {
                is_cluster: self.cluster,
                ..Plan::new(target)
            };
            return Ok(Driven {
                name,
                servers: Vec::new(),
                plan,
            });
        };
        let shares: Vec<&[usize]> = match kind.is_cluster {
            true => setup.cpus.chunks(1).collect(),
            false => vec![&setup.cpus],
        };
        let dir = dir.join(name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"));
        let memory = Meminfo::current().map_err(|error| BenchError::failed("memory", error))?;
        let memory_bytes = memory.mem_total;
        let start = |(number, cpus): (usize, &[usize])| {
            let extra = match (kind.product, kind.is_cluster) {
                (Product::Ephesus, _) => format!(
                    "--wal-budget {} --max-memory {}",
                    self.wal_budget,
                    memory_bytes / 2
                ),
                (_, true) => "--cluster-enabled yes".to_owned(),
                (_, false) => String::new(),
            };
            let spec = ServerSpec {
                product: kind.product,
                binary: match kind.product {
                    Product::Redis => locate::redis(program)?,
                    Product::Valkey => locate::valkey(program)?,
                    Product::Ephesus => locate::ephesus(program)?,
                },
                durability: setup.durability,
                dir: dir.join(number.to_string()),
                cpus: cpus.to_vec(),
                confinement: self.confine,
                extra,
            };
            Server::start(spec)
        };
        let servers = shares.into_iter().enumerate().map(start);
        let servers = servers.collect::<Result<Vec<_>>>()?;
        if kind.is_cluster {
            join(&servers, servers.len())?;
        }
        let plan = Plan {
            is_cluster: kind.is_cluster || kind.product.is_ephesus() && setup.cpus.len() > 1,
            cpus: setup.client_cpus.clone(),
            ..Plan::new(servers[0].address)
        };
        Ok(Driven {
            name,
            servers,
            plan,
        })
    }
}

/// Makes a cluster of them, the first so many of which have a share of the slots each.
pub(crate) fn join(servers: &[Server], owners: usize) -> Result<()> {
    let slots = usize::from(ephesus_wire::limits::SLOTS);
    let connections = servers.iter().map(Server::connect);
    let mut connections = connections.collect::<Result<Vec<_>>>()?;
    for (number, one) in connections.iter_mut().enumerate() {
        let [first, next] = [number, number + 1].map(|number| number * slots / owners);
        let [epoch, first, last] = [number + 1, first, next - 1].map(|it| it.to_string());
        one.text(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])?;
        if number < owners {
            one.text(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
        }
    }
    for other in &servers[1..] {
        let (ip, port) = (other.address.ip(), other.address.port());
        connections[0].text(&["CLUSTER", "MEET", &ip.to_string(), &port.to_string()])?;
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
    /// Where it is, or where one of its servers is.
    pub fn target(&self) -> &Target {
        &self.plan.target
    }

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
        let target = self.target();
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
        self.servers
            .iter()
            .map(|one| CpuMark::of(one.pid()))
            .collect()
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

    /// What clients have written so far to an Ephesus that was started here.
    pub(super) fn written_bytes(&self) -> Result<Option<u64>> {
        let own = self
            .servers
            .iter()
            .find(|one| one.spec.product.is_ephesus());
        let written = |one: &Server| {
            let info = one.info("persistence")?;
            Ok(resp::info_number(&info, "wal_user_bytes").unwrap_or(0))
        };
        own.map(written).transpose()
    }

    /// Rewrites large AOFs.
    pub(super) fn shorten_logs(&self) -> Result<()> {
        for one in &self.servers {
            let info = one.info("persistence")?;
            if resp::info_number(&info, "aof_current_size").unwrap_or(0) > AOF_BYTES_MAX {
                one.rewrite_aof()?;
            }
        }
        Ok(())
    }

    /// Lets its processes do what they do to start fast next time.
    pub fn settle(&self) -> Result<()> {
        self.servers.iter().try_for_each(Server::settle)
    }

    /// Bytes sent to the device so far.
    pub fn device_bytes(&self) -> Result<u64> {
        let pids = self.servers.iter().map(Server::pid);
        pids.map(crate::procfs::written_bytes).sum()
    }
}
