//! One server process under test: started, confined, watched, and killed whatever happens.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde::Serialize;

use crate::error::{BenchError, During, Result};
use crate::named::Named;
use crate::process::Process;
use crate::procfs::{self, CpuMark, Pid, Thread};
use crate::record::ServerRecord;
use crate::resp::{self, Connection, Value};
use crate::{environment, interrupt, prefill};

pub(crate) mod ports;
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
const PARTITIONS: u32 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Product {
    Redis,
    Valkey,
    Ephesus,
}

impl Product {
    pub fn program(self) -> &'static str {
        match self {
            Product::Redis => "redis-server",
            Product::Valkey => "valkey-server",
            Product::Ephesus => "ephesus",
        }
    }

    pub fn is_ephesus(self) -> bool {
        self == Product::Ephesus
    }
}

/// When a write counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Synced once a second: `appendfsync everysec`, `--durability relaxed`.
    EverySecond,
    /// Synced before the reply: `appendfsync always`, `--durability strict`.
    Always,
}

#[derive(Clone, Debug)]
pub struct ServerSpec {
    pub product: Product,
    pub binary: PathBuf,
    pub durability: Durability,
    /// Its own directory: data below `data`, output in `server.log`.
    pub dir: PathBuf,
    /// The CPUs it may use, one for each shard of Ephesus.
    pub cpus: Vec<usize>,
    /// Further flags, which override the others.
    pub extra: String,
}

/// Settings that make Redis and Valkey fastest on one core at equal durability: no snapshots
/// besides the AOF, no rewrite by surprise (cases that want one ask for it), no compression of
/// incompressible values, no latency tracking, one I/O thread.
const PEER_SETTINGS: &str = "--appendonly yes --appenddirname data --no-appendfsync-on-rewrite no \
    --auto-aof-rewrite-percentage 0 --aof-use-rdb-preamble yes --rdbcompression no --io-threads 1 --latency-tracking no \
    --daemonize no";

impl ServerSpec {
    pub fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    pub fn arguments(&self, address: SocketAddr) -> Vec<String> {
        let (ip, port) = (address.ip(), address.port());
        let is_strict = self.durability == Durability::Always;
        let [data, dir] = [self.dir.join("data"), self.dir.clone()];
        let [data, dir] = [data, dir].map(|path| path.display().to_string());
        // `--save` with nothing behind it: no snapshots.
        let (paths, flags): (&[&str], _) = match self.product.is_ephesus() {
            true => {
                let durability = if is_strict { "strict" } else { "relaxed" };
                let shards = self.cpus.len();
                let flags = format!(
                    "--listen {address} --shards {shards} --partitions {PARTITIONS} --durability {durability} --name \
                     compare"
                );
                (&["serve", "--data-dir", &data], flags)
            }
            false => {
                let fsync = if is_strict { "always" } else { "everysec" };
                let flags =
                    format!("{PEER_SETTINGS} --bind {ip} --port {port} --appendfsync {fsync}");
                (&["--dir", &dir, "--save", ""], flags)
            }
        };
        let flags = flags.split(' ').chain(self.extra.split_whitespace());
        let words = paths.iter().copied().chain(flags);
        words.map(str::to_owned).collect()
    }
}

#[derive(Debug)]
pub struct Server {
    pub spec: ServerSpec,
    pub address: SocketAddr,
    pub start_to_ready: Duration,
    process: Process,
}

impl Server {
    /// Starts a server and waits until it answers a GET; must be called on a thread that lives as
    /// long as the server should, because the kernel kills the server with that thread.
    pub fn start(spec: ServerSpec) -> Result<Self> {
        interrupt::check()?;
        fs::create_dir_all(&spec.dir).during(spec.dir.display())?;
        let port = ports::free_block(1 + spec.cpus.len() as u16)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (name, arguments) = (spec.product.name(), spec.arguments(address));
        let log = spec.log_path();
        let started = Instant::now();
        let process = Process::start(&name, &spec.binary, &arguments, &spec.dir, log, &spec.cpus)?;
        let mut server = Server {
            spec,
            address,
            start_to_ready: Duration::ZERO,
            process,
        };
        server.wait_ready()?;
        server.start_to_ready = started.elapsed();
        server.verify_confined()?;
        Ok(server)
    }

    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    pub fn connect(&self) -> Result<Connection> {
        Connection::open(self.address)
    }

    pub fn info(&self, section: &str) -> Result<String> {
        self.connect()?.text(&["INFO", section])
    }

    /// Fails when any thread of the process may run outside its CPUs.
    pub fn verify_confined(&self) -> Result<()> {
        let cpus = &self.spec.cpus;
        let threads = procfs::threads(self.pid())?;
        let is_free = |thread: &&Thread| thread.cpus.iter().any(|cpu| !cpus.contains(cpu));
        let Some(Thread {
            name, cpus: may, ..
        }) = threads.iter().find(is_free)
        else {
            return Ok(());
        };
        let what = format!("{}, thread {name}", self.spec.product.name());
        let problem = format!("may run on CPUs {may:?}, not only on {cpus:?}");
        Err(BenchError::failed(what, problem))
    }

    /// Whether the process uses next to no CPU and no rewrite is under way.
    fn is_quiet(&self) -> Result<bool> {
        let mark = CpuMark::of(self.pid())?;
        let started = Instant::now();
        thread::sleep(QUIET_WINDOW);
        let busy = mark.elapsed()?.as_secs_f64() / started.elapsed().as_secs_f64();
        let can_rewrite = !self.spec.product.is_ephesus();
        Ok(busy < QUIET_BUSY_MAX && !(can_rewrite && is_rewriting(&mut self.connect()?)?))
    }

    /// Waits until it is quiet; whether it was within that time.
    pub fn wait_quiet(&self, timeout: Duration) -> Result<bool> {
        interrupt::wait_until(timeout, Duration::ZERO, || self.is_quiet())
    }

    /// The same, and fails when it was not.
    pub fn await_quiet(&self, timeout: Duration) -> Result<()> {
        let state = (self.spec.product.name(), "idle");
        interrupt::wait_for(state, timeout, Duration::ZERO, || self.is_quiet())
    }

    /// Lets the server do what it does to start fast next time: Redis and Valkey are told to rewrite
    /// their AOF into an RDB base, Ephesus writes images by itself once clients pause.
    pub fn settle(&self) -> Result<()> {
        if self.spec.product.is_ephesus() {
            return wait_imaged(self.address);
        }
        self.connect()?.text(&["BGREWRITEAOF"])?;
        self.await_quiet(READY_TIMEOUT)
    }

    /// Stops with SIGTERM, waiting for its own clean end; SIGKILL after a long time.
    pub fn stop(self) -> Result<()> {
        self.process.stop()
    }

    fn wait_ready(&mut self) -> Result<()> {
        let probe = String::from_utf8_lossy(&prefill::key(0)).into_owned();
        let (product, address) = (self.spec.product, self.address);
        let mut connection = None;
        interrupt::wait_for((product.name(), "ready"), READY_TIMEOUT, READY_POLL, || {
            self.process.check_running()?;
            let mut connected = match connection.take() {
                Some(connected) => connected,
                None => match Connection::open(address) {
                    Ok(connected) => connected,
                    Err(_) => return Ok(false),
                },
            };
            let reply = connected.call(&["GET", &probe]);
            let is_ready = match &reply {
                Ok(Value::Bulk(_) | Value::Null) => true,
                // How Valkey answers in a cluster before it is given slots.
                Ok(Value::Error(text)) => !product.is_ephesus() && text.starts_with("CLUSTERDOWN"),
                _ => false,
            };
            // Another server may have taken the port meanwhile.
            let own = format!("process_id:{}\r\n", self.process.pid().0);
            let is_own = is_ready && connected.text(&["INFO", "server"])?.contains(&own);
            connection = reply.is_ok().then_some(connected);
            Ok(is_own)
        })
    }

    /// For a report; its command line as a shell takes it, with any port and the directory's own part shortened to `DIR`.
    pub fn describe(&self) -> ServerRecord {
        let ServerSpec { binary, dir, .. } = &self.spec;
        let connection = self.connect();
        let reply = connection.and_then(|mut connection| connection.call(&["CONFIG", "GET", "*"]));
        let mut configuration = reply.ok().as_ref().and_then(resp::pairs);
        configuration.iter_mut().for_each(|all| all.sort());
        let mut words = self
            .spec
            .arguments(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        for word in words.iter_mut().filter(|word| word.is_empty()) {
            *word = "''".to_owned();
        }
        let line = words.join(" ").replace(&dir.display().to_string(), "DIR");
        ServerRecord {
            configuration: configuration.unwrap_or_default(),
            ..described(&self.spec.product.name(), binary, &line)
        }
    }
}

/// A program with its arguments, for a report.
pub fn described(name: &str, binary: &Path, line: &str) -> ServerRecord {
    let version = environment::output_of(Command::new(binary).arg("--version"));
    let first = version.as_ref().and_then(|text| text.lines().next());
    ServerRecord {
        name: name.to_owned(),
        version: first.unwrap_or_default().to_owned(),
        command_line: format!("{} {line}", binary.display()).trim().to_owned(),
        configuration: Vec::new(),
    }
}

/// Waits until an Ephesus node has imaged what was written, which it begins once clients pause.
pub fn wait_imaged(address: SocketAddr) -> Result<()> {
    let mut connection = Connection::open(address)?;
    let mut rests_since = Instant::now();
    let state = ("ephesus", "done writing images");
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
