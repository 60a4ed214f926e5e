use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tempfile::TempDir;

use crate::affinity::{self, Confinement, CpusetGroup};
use crate::environment;
use crate::error::{BenchError, Result};
use crate::locate;
use crate::named::Named;
use crate::redis_benchmark::RedisBenchmark;
use crate::run::Preset;
use crate::server::{Durability, Product, Server, ServerSpec};

use super::arguments::Driver;
use super::{Case, CompareArgs};

/// Requests are divided by this with `--quick`.
const QUICK_SHRINK: u64 = 10;

/// A comparison's flags with every default filled in.
#[derive(Debug, Serialize)]
pub(super) struct Settings {
    #[serde(skip)]
    pub(super) cases: Vec<Case>,
    pub(super) preset: Option<Preset>,
    pub(super) products: Vec<Product>,
    pub(super) rounds: u32,
    pub(super) long_rounds: u32,
    pub(super) keys: u64,
    pub(super) large_keys: u64,
    pub(super) value_bytes: usize,
    pub(super) is_quick: bool,
    pub(super) server_cpu: usize,
    pub(super) client_cpu: usize,
    pub(super) confinement: Confinement,
    #[serde(skip)]
    pub(super) latency_duration: Duration,
    #[serde(skip)]
    pub(super) wal_budget_bytes: u64,
    #[serde(skip)]
    max_memory_bytes: u64,
    /// Beside our own load generator.
    #[serde(skip)]
    pub(super) benchmark: Option<RedisBenchmark>,
    #[serde(skip)]
    programs: BTreeMap<Product, PathBuf>,
    #[serde(skip)]
    root: TempDir,
    #[serde(skip)]
    one_core: Option<Arc<CpusetGroup>>,
    #[serde(skip)]
    two_cores: Option<Arc<CpusetGroup>>,
}

/// What may differ between the servers of two cases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) durability: Durability,
    pub(super) wal_budget_bytes: u64,
    pub(super) two_cores: bool,
}

impl Settings {
    /// Servers on one core.
    pub(super) fn setup(&self, durability: Durability) -> Setup {
        Setup {
            durability,
            wal_budget_bytes: self.wal_budget_bytes,
            two_cores: false,
        }
    }

    pub(super) fn resolve(arguments: &CompareArgs) -> Result<Self> {
        let quick = arguments.quick;
        let or =
            |given: Option<u64>, full, short| given.unwrap_or(if quick { short } else { full });
        let [server_cpu, client_cpu] = affinity::two()?;
        let mut products: Vec<Product> = Vec::new();
        for product in arguments
            .servers
            .iter()
            .copied()
            .chain(arguments.against.is_some().then_some(Product::Older))
        {
            if !products.contains(&product) {
                products.push(product);
            }
        }
        if arguments.against.is_some() && !products.contains(&Product::Ephesus) {
            return Err(BenchError::flag(
                "--against",
                "ephesus has to be among --servers",
            ));
        }
        let program = |&product| {
            let program = match product {
                Product::Redis => arguments.redis.clone(),
                Product::Valkey => locate::valkey(arguments.valkey.as_deref())?,
                Product::Ephesus => locate::ephesus(arguments.ephesus.as_deref())?,
                Product::Older => arguments.against.clone().unwrap_or_default(),
            };
            Ok((product, program))
        };
        let programs = products.iter().map(program).collect::<Result<_>>()?;
        let root = locate::data_root(arguments.dir.as_deref(), "compare-")?;
        let memory_bytes = environment::read(root.path())?.memory_bytes;
        let group = |name: &str, cpus: &[usize]| match arguments.confine {
            Confinement::Affinity => Ok(None),
            Confinement::Cpuset => {
                let name = format!("ephesus-bench-{}-{name}", std::process::id());
                CpusetGroup::create(&name, cpus).map(|group| Some(Arc::new(group)))
            }
        };
        Ok(Settings {
            cases: match &*arguments.cases {
                _ if arguments.preset.is_some() => Vec::new(),
                [] => Case::all(),
                cases => cases.to_vec(),
            },
            preset: arguments.preset,
            products,
            rounds: or(arguments.rounds.map(u64::from), 10, 2) as u32,
            long_rounds: or(arguments.long_rounds.map(u64::from), 3, 1) as u32,
            keys: or(arguments.keys, 1_000_000, 100_000),
            large_keys: or(arguments.large_keys, 10_000_000, 300_000),
            value_bytes: arguments.value_bytes as usize,
            latency_duration: Duration::from_secs(or(arguments.latency_seconds, 10, 2)),
            is_quick: quick,
            server_cpu,
            client_cpu,
            confinement: arguments.confine,
            wal_budget_bytes: arguments.wal_budget,
            max_memory_bytes: memory_bytes / 2,
            benchmark: (arguments.driver)
                .map(|Driver::RedisBenchmark| RedisBenchmark(arguments.redis_benchmark.clone())),
            programs,
            root,
            one_core: group("one", &[server_cpu])?,
            two_cores: group("two", &[server_cpu, client_cpu])?,
        })
    }

    /// So many requests, or fewer with `--quick`.
    pub(super) fn requests(&self, full: u64) -> u64 {
        full / if self.is_quick { QUICK_SHRINK } else { 1 }
    }

    /// The product compared with the best of the others.
    pub(super) fn subject(&self) -> Product {
        match self.products.contains(&Product::Ephesus) {
            true => Product::Ephesus,
            false => *self.products.last().unwrap_or(&Product::Ephesus),
        }
    }

    /// The directory that holds all data.
    pub(super) fn root(&self) -> &Path {
        self.root.path()
    }

    /// A scratch file for a client's output.
    pub(super) fn scratch(&self) -> PathBuf {
        self.root.path().join("client.out")
    }

    /// A new directory below the root, removed when dropped.
    pub(super) fn case_dir(&self) -> Result<TempDir> {
        locate::dir_in(self.root.path(), "case-")
    }

    /// Starts one product with its data below `dir`.
    pub(super) fn start(&self, product: Product, dir: &Path, setup: Setup) -> Result<Server> {
        let (cpus, group) = if setup.two_cores {
            (vec![self.server_cpu, self.client_cpu], &self.two_cores)
        } else {
            (vec![self.server_cpu], &self.one_core)
        };
        let spec = ServerSpec {
            product,
            binary: self.programs.get(&product).cloned().unwrap_or_default(),
            durability: setup.durability,
            dir: dir.join(product.to_string()),
            shards: cpus.len() as u16,
            cpus,
            wal_budget_bytes: setup.wal_budget_bytes,
            max_memory_bytes: self.max_memory_bytes,
            extra: Vec::new(),
        };
        Server::start(spec, group.clone())
    }
}
