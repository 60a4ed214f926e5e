use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::disk;
use crate::error::Result;
use crate::interrupt;
use crate::record::ServerRecord;
use crate::resp;
use crate::server::{self, Product, Server};

use super::CaseResult;
use super::settings::{Settings, Setup};

/// How long background work of an earlier turn is waited for.
const QUIET_TIMEOUT: Duration = Duration::from_secs(120);
/// How long once a server has shown that it never becomes idle.
const RESTLESS_TIMEOUT: Duration = Duration::from_secs(1);
/// Share of the server core that idle servers may use before the turn is marked.
const IDLE_BUSY_MAX: f64 = 0.03;
/// A peer's AOF above this is rewritten between turns, outside every measurement.
const AOF_BYTES_MAX: u64 = 2 << 30;

/// All compared servers, started and loaded, driven one at a time.
#[derive(Debug)]
pub(super) struct Bed<'a> {
    settings: &'a Settings,
    servers: Vec<Server>,
    quiet_timeout: Cell<Duration>,
    /// What clients had written to each build of Ephesus when it was last left alone.
    settled_bytes: RefCell<BTreeMap<Product, u64>>,
    _dir: TempDir,
}

/// One run on one server.
#[derive(Debug)]
pub(super) struct Turn<T> {
    /// What the run returned.
    pub(super) value: T,
    /// CPU time of the server during the run.
    pub(super) server_cpu: Duration,
    /// CPU time it used afterwards until it was idle.
    pub(super) deferred_cpu: Duration,
}

impl<'a> Bed<'a> {
    /// Starts every product in turn and loads `keys` into each.
    pub(super) fn start(settings: &'a Settings, setup: Setup, keys: u64) -> Result<Self> {
        Self::start_with(settings, setup, |server| {
            server.fill(keys, settings.value_bytes, 0)
        })
    }

    /// The same, loaded by `fill`.
    pub(super) fn start_with(
        settings: &'a Settings,
        setup: Setup,
        fill: impl Fn(&Server) -> Result<()>,
    ) -> Result<Self> {
        let dir = settings.case_dir()?;
        let mut servers = Vec::new();
        for &product in &settings.products {
            let server = settings.start(product, dir.path(), setup)?;
            fill(&server)?;
            server.wait_quiet(QUIET_TIMEOUT)?;
            servers.push(server);
        }
        Ok(Bed {
            settings,
            servers,
            quiet_timeout: Cell::new(QUIET_TIMEOUT),
            settled_bytes: RefCell::default(),
            _dir: dir,
        })
    }

    /// The servers in the order of a round.
    pub(super) fn round(&self, round: u32) -> impl Iterator<Item = &Server> {
        let shift = round as usize % self.servers.len();
        self.servers[shift..].iter().chain(&self.servers[..shift])
    }

    /// The server of a product.
    pub(super) fn server(&self, product: Product) -> Option<&Server> {
        self.servers
            .iter()
            .find(|server| server.product() == product)
    }

    /// How every server was started and configured.
    pub(super) fn describe(&self) -> Vec<ServerRecord> {
        self.servers.iter().map(server::describe).collect()
    }

    /// Waits until all servers are idle, runs on one, checks that it stayed on its core and that
    /// the others stayed idle.
    pub(super) fn turn<T>(
        &self,
        server: &Server,
        result: &mut CaseResult,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<Turn<T>> {
        interrupt::check()?;
        self.settle(result)?;
        let others = || {
            self.servers
                .iter()
                .filter(|other| other.pid() != server.pid())
        };
        let idle_marks = others().map(Server::cpu_mark).collect::<Result<Vec<_>>>()?;
        let mark = server.cpu_mark()?;
        let started = Instant::now();
        let value = run()?;
        let wall = started.elapsed();
        let server_cpu = mark.elapsed()?;
        let mut idle_cpu = Duration::ZERO;
        for mark in idle_marks {
            idle_cpu += mark.elapsed()?;
        }
        server.verify_confined()?;
        let idle_busy = idle_cpu.as_secs_f64() / wall.as_secs_f64();
        if idle_busy > IDLE_BUSY_MAX {
            let product = server.product();
            result.note(format!(
                "idle servers used {:.0}% of the core while {product} was driven",
                idle_busy * 100.0
            ));
        }
        let after = server.cpu_mark()?;
        server.wait_quiet(self.quiet_timeout.get())?;
        Ok(Turn {
            value,
            server_cpu,
            deferred_cpu: after.elapsed()?,
        })
    }

    fn settle(&self, result: &mut CaseResult) -> Result<()> {
        for server in &self.servers {
            let info = server.info("persistence")?;
            if server.product().is_ephesus() {
                // It images what was written once clients pause: not while another is driven.
                let written = resp::info_number(&info, "wal_user_bytes").unwrap_or(0);
                let product = server.product();
                let settled = self.settled_bytes.borrow_mut().insert(product, written);
                if settled != Some(written) {
                    server.settle()?;
                }
            } else if resp::info_number(&info, "aof_current_size").unwrap_or(0) > AOF_BYTES_MAX {
                server.rewrite_aof()?;
            }
            if !server.wait_quiet(self.quiet_timeout.get())? {
                self.quiet_timeout.set(RESTLESS_TIMEOUT);
                let product = server.product();
                result.note(format!("{product} did not become idle before a run"));
            }
        }
        disk::settle(self.settings.root())
    }
}
