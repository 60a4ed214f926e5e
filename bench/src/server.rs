//! One server process under test: started, confined, watched, and killed whatever happens.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::affinity::{self, Confinement, CpusetGroup};
use crate::environment;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::prefill;
use crate::process::Process;
use crate::procfs::{self, CpuMark, Pid, Thread};
use crate::record::ServerRecord;
use crate::resp::{self, Connection, Value};

pub use settings::{Durability, Product, ServerSpec};

pub(crate) mod ports;
mod settings;
#[cfg(test)]
mod tests;

/// Longest start, with ten million keys to load on a slow disk.
const READY_TIMEOUT: Duration = Duration::from_secs(600);
const READY_POLL: Duration = Duration::from_millis(1);
/// A server below this share of a core over [`QUIET_WINDOW`] counts as idle.
const QUIET_BUSY_MAX: f64 = 0.02;
const QUIET_WINDOW: Duration = Duration::from_millis(150);
/// Ephesus writes images after 5 s without a write; after so long without one it is done.
const REST: Duration = Duration::from_secs(8);

/// A running server; dropping it kills it.
#[derive(Debug)]
pub struct Server {
    /// What it was started as.
    pub spec: ServerSpec,
    /// Where it listens.
    pub address: SocketAddr,
    /// From just before exec to the first answered GET.
    pub start_to_ready: Duration,
    process: Process,
    _cpuset: Option<CpusetGroup>,
}

impl Server {
    /// Starts a server and waits until it answers a GET; must be called on a thread that lives as
    /// long as the server should, because the kernel kills the server with that thread.
    pub fn start(spec: ServerSpec) -> Result<Self> {
        interrupt::check()?;
        fs::create_dir_all(&spec.dir).map_err(BenchError::io(spec.dir.display().to_string()))?;
        let port = ports::free_block(1 + spec.cpus.len() as u16)?;
        let group = format!("ephesus-bench-{}-{port}", std::process::id());
        let cpuset = match spec.confinement {
            Confinement::Affinity => None,
            Confinement::Cpuset => Some(CpusetGroup::create(&group, &spec.cpus)?),
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (name, arguments) = (spec.product.to_string(), spec.arguments(address));
        let log = spec.log_path();
        let started = Instant::now();
        let process = Process::start(&name, &spec.binary, &arguments, &spec.dir, log, &spec.cpus)?;
        if let Some(group) = &cpuset {
            group.join(process.pid())?;
        }
        let mut server = Server {
            spec,
            address,
            start_to_ready: Duration::ZERO,
            process,
            _cpuset: cpuset,
        };
        server.wait_ready(started)?;
        server.start_to_ready = started.elapsed();
        server.verify_confined()?;
        Ok(server)
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// A new control connection.
    pub fn connect(&self) -> Result<Connection> {
        Connection::open(self.address)
    }

    /// One section of INFO.
    pub fn info(&self, section: &str) -> Result<String> {
        self.connect()?.text(&["INFO", section])
    }

    /// Fails when any thread of the process may run outside its CPUs.
    pub fn verify_confined(&self) -> Result<()> {
        let (product, cpus) = (self.spec.product, &self.spec.cpus);
        let threads = procfs::threads(self.pid())?;
        let is_free = |thread: &&Thread| thread.cpus.iter().any(|cpu| !cpus.contains(cpu));
        let Some(thread) = threads.iter().find(is_free) else {
            return Ok(());
        };
        let what = format!("{product}, thread {} ({})", thread.tid, thread.name);
        let problem = format!(
            "may run on CPUs {}, not only on {}; if it is an io_uring worker of the kernel, use \
             --confine cpuset",
            affinity::list(&thread.cpus),
            affinity::list(cpus)
        );
        Err(BenchError::failed(what, problem))
    }

    /// Waits until the process uses next to no CPU and no rewrite is under way; says whether it got
    /// there within `timeout`.
    pub fn wait_quiet(&self, timeout: Duration) -> Result<bool> {
        interrupt::wait_until(timeout, Duration::ZERO, || {
            let mark = CpuMark::of(self.pid())?;
            let started = Instant::now();
            thread::sleep(QUIET_WINDOW);
            let busy = mark.elapsed()?.as_secs_f64() / started.elapsed().as_secs_f64();
            let can_rewrite = !self.spec.product.is_ephesus();
            Ok(busy < QUIET_BUSY_MAX && !(can_rewrite && is_rewriting(&mut self.connect()?)?))
        })
    }

    /// The same, and fails when it did not.
    pub fn await_quiet(&self, timeout: Duration) -> Result<()> {
        let product = self.spec.product;
        match self.wait_quiet(timeout)? {
            true => Ok(()),
            false => Err(BenchError::timed_out(product, "idle", timeout)),
        }
    }

    /// Rewrites the AOF of Redis or Valkey into an RDB base and waits for its end.
    pub fn rewrite_aof(&self) -> Result<()> {
        self.connect()?.text(&["BGREWRITEAOF"])?;
        self.await_quiet(READY_TIMEOUT)
    }

    /// Lets the server do what it does to start fast next time: Redis and Valkey are told to rewrite
    /// their AOF, Ephesus writes images by itself once clients pause.
    pub fn settle(&self) -> Result<()> {
        match self.spec.product.is_ephesus() {
            true => wait_imaged(self.address),
            false => self.rewrite_aof(),
        }
    }

    /// Stops with SIGTERM, waiting for its own clean end; SIGKILL after a long time.
    pub fn stop(self) -> Result<()> {
        self.process.stop()
    }

    fn wait_ready(&mut self, started: Instant) -> Result<()> {
        let probe = String::from_utf8_lossy(&prefill::key(0)).into_owned();
        let mut connection = None;
        let left = READY_TIMEOUT.saturating_sub(started.elapsed());
        let (product, address) = (self.spec.product, self.address);
        interrupt::wait_for((product, "ready"), left, READY_POLL, || {
            self.process.check_running()?;
            let connected = connection
                .take()
                .map_or_else(|| Connection::open(address), Ok);
            let Ok(mut connected) = connected else {
                return Ok(false);
            };
            let reply = connected.call(&["GET", &probe]);
            connection = reply.is_ok().then_some(connected);
            Ok(match reply {
                Ok(Value::Bulk(_) | Value::Null) => true,
                // How Valkey answers in a cluster before it is given slots.
                Ok(Value::Error(text)) => !product.is_ephesus() && text.starts_with("CLUSTERDOWN"),
                _ => false,
            })
        })
    }
}

/// Waits until an Ephesus node has imaged what was written, which it begins once clients pause.
pub fn wait_imaged(address: SocketAddr) -> Result<()> {
    let mut connection = Connection::open(address)?;
    let mut rests_since = Instant::now();
    let state = (Product::Ephesus, "done writing images");
    interrupt::wait_for(state, READY_TIMEOUT, QUIET_WINDOW, || {
        let info = connection.text(&["INFO", "persistence"])?;
        if resp::info_number(&info, "image_in_progress") == Some(1) {
            rests_since = Instant::now();
        }
        Ok(rests_since.elapsed() >= REST)
    })
}

/// Whether a Redis or Valkey is rewriting its AOF, or about to.
pub fn is_rewriting(connection: &mut Connection) -> Result<bool> {
    let info = connection.text(&["INFO", "persistence"])?;
    let on = |name| resp::info_number(&info, name) == Some(1);
    Ok(on("aof_rewrite_in_progress") || on("aof_rewrite_scheduled"))
}

/// The command line as a shell takes it, with any port and the directory's own part shortened to `DIR`.
fn shown(spec: &ServerSpec) -> String {
    let dir = spec.dir.display().to_string();
    let mut line = spec.binary.display().to_string();
    for word in spec.arguments(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))) {
        let word = if word.is_empty() { "''" } else { &word };
        line += &format!(" {}", word.replace(&dir, "DIR"));
    }
    line
}

/// Describes a running server for the report.
pub fn describe(server: &Server) -> ServerRecord {
    let connection = server.connect();
    let reply = connection.and_then(|mut connection| connection.call(&["CONFIG", "GET", "*"]));
    let mut configuration = reply
        .ok()
        .as_ref()
        .and_then(resp::pairs)
        .unwrap_or_default();
    configuration.sort();
    ServerRecord {
        name: server.spec.product.to_string(),
        version: version(&server.spec.binary),
        command_line: shown(&server.spec),
        configuration,
    }
}

/// First line of `--version`.
pub fn version(binary: &Path) -> String {
    let text = environment::output_of(Command::new(binary).arg("--version")).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}
