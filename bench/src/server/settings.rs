use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Serialize;

use crate::affinity::Confinement;
use crate::named::Named;

/// A product that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Product {
    /// Debian's Redis.
    Redis,
    /// Valkey.
    Valkey,
    /// Ephesus.
    Ephesus,
}

impl Product {
    /// The name of its program.
    pub fn program(self) -> &'static str {
        match self {
            Product::Redis => "redis-server",
            Product::Valkey => "valkey-server",
            Product::Ephesus => "ephesus",
        }
    }

    /// Whether it is Ephesus.
    pub fn is_ephesus(self) -> bool {
        self == Product::Ephesus
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
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

/// How one server is started.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// Which product.
    pub product: Product,
    /// Its program.
    pub binary: PathBuf,
    /// When a write counts as done.
    pub durability: Durability,
    /// Its own directory: data below `data`, output in `server.log`.
    pub dir: PathBuf,
    /// The CPUs it may use, one for each shard of Ephesus.
    pub cpus: Vec<usize>,
    /// How it is confined to them.
    pub confinement: Confinement,
    /// Further flags, which override the others.
    pub extra: String,
}

/// Settings that make Redis and Valkey fastest on one core at equal durability: no snapshots
/// besides the AOF, no rewrite by surprise (cases that want one ask for it), no compression of
/// incompressible values, no latency tracking, one I/O thread.
const PEER_SETTINGS: &str = "--appendonly yes --appenddirname data --no-appendfsync-on-rewrite no \
    --auto-aof-rewrite-percentage 0 --aof-use-rdb-preamble yes --rdbcompression no --io-threads 1 --latency-tracking no \
    --daemonize no";

const PARTITIONS: u32 = 1024;

impl ServerSpec {
    /// Where the server keeps its data.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Where its output goes.
    pub fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// Its command line without the program.
    pub fn arguments(&self, address: SocketAddr) -> Vec<String> {
        let data = self.data_dir().display().to_string();
        let dir = self.dir.display().to_string();
        // `--save` with nothing behind it: no snapshots.
        let (paths, flags): (&[&str], _) = match self.product.is_ephesus() {
            true => (&["serve", "--data-dir", &data], self.flags(address)),
            false => (&["--dir", &dir, "--save", ""], self.peer_flags(address)),
        };
        let flags = flags.split(' ').chain(self.extra.split_whitespace());
        let words = paths.iter().copied().chain(flags);
        words.map(str::to_owned).collect()
    }

    fn peer_flags(&self, address: SocketAddr) -> String {
        let fsync = match self.durability {
            Durability::EverySecond => "everysec",
            Durability::Always => "always",
        };
        let (ip, port) = (address.ip(), address.port());
        format!("{PEER_SETTINGS} --bind {ip} --port {port} --appendfsync {fsync}")
    }

    fn flags(&self, address: SocketAddr) -> String {
        let durability = match self.durability {
            Durability::EverySecond => "relaxed",
            Durability::Always => "strict",
        };
        format!(
            "--listen {address} --shards {} --partitions {PARTITIONS} --durability {durability} \
             --name compare",
            self.cpus.len()
        )
    }
}
