//! The command line: flags and what they mean.

pub mod address;
pub mod coordinator;
pub mod operator;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ephesus_coordinator::coordinator::Balance;
use ephesus_coordinator::link::secret_file::load_secret;
use ephesus_coordinator::state::{
    CAPACITY_DEFAULT, CAPACITY_MAX, MOVES_MAX, Refusal, check_name, check_rack,
};
use ephesus_wal::{Durability, OnDamage};
use ephesus_wire::handshake::Secret;
use ephesus_wire::limits::CLIENTS_PER_SHARD;

use crate::acl::Users;
use crate::acl::storage::{load_password, load_users};
use crate::keyspace::databases;
use crate::keyspace::events::EventClasses;
use crate::node::ServeOptions;
use crate::node::check::store::OneStore;
use crate::node::shared::DebugCommand;
use crate::node::time::WallClock;
use crate::tls::{AuthClients, TlsFiles, TlsOptions};
use coordinator::CoordinatorCommand;
use operator::migrations::{Drain, MigrationCommand, Migrations, MoveOne, Rebalance};
use operator::placement::PlacementCommand;
use operator::{Hot, Look, LookAtPartitions, MemberCommand, NodeCommand};

/// Exit code of a bad flag.
pub const EXIT_USAGE: u8 = 2;

/// A sharded, durable key-value store that speaks the Redis protocol.
#[derive(Debug, Parser)]
#[command(name = "ephesus", version, about, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve one node.
    Serve(Box<Serve>),
    /// Verify every log group and image block of a stopped node's data directory.
    Check(Check),
    /// Run one of the 1, 3 or 5 coordinators of a cluster.
    Coordinator(Box<CoordinatorCommand>),
    /// Show a cluster in a few lines; exit code 1 if it is not healthy.
    Status(Look),
    /// List the nodes of a cluster.
    Nodes(Look),
    /// List the partitions of a cluster and who owns them, or what they do.
    Partitions(LookAtPartitions),
    /// Show the partitions that are used the most, and the keys.
    Hot(Hot),
    /// List the coordinators of a cluster.
    Coordinators(Look),
    /// Spread the partitions evenly over all nodes, with the fewest moves.
    Rebalance(Rebalance),
    /// Move one partition to another node or shard.
    Move(MoveOne),
    /// Move everything away from a node, so that it can be removed.
    Drain(Drain),
    /// List the moves under way and the last that have ended.
    Migrations(Migrations),
    /// Change what moves.
    #[command(subcommand)]
    Migration(MigrationCommand),
    /// Show and change how partitions find their shards.
    #[command(subcommand)]
    Placement(PlacementCommand),
    /// Change the nodes of a cluster.
    #[command(subcommand)]
    Node(NodeCommand),
    /// Change the coordinators of a cluster.
    #[command(subcommand)]
    CoordinatorMember(MemberCommand),
}

#[derive(Debug, Args)]
pub struct Check {
    /// Directory of the node's data.
    #[arg(long, value_name = "DIR", default_value = "./ephesus-data")]
    pub data_dir: PathBuf,
    /// Reads store N of M for the check that has started this process.
    #[arg(long, hide = true, value_name = "N/M")]
    pub only_store: Option<OneStore>,
}

#[derive(Debug, Args)]
pub struct Serve {
    /// Directory of the node's data; created if it is not there.
    #[arg(long, value_name = "DIR", default_value = "./ephesus-data")]
    data_dir: PathBuf,
    /// Entry port of the node; shard i also listens on PORT+1+i.
    #[arg(long, default_value = "127.0.0.1:7379", value_name = "ADDR:PORT", value_parser = address::listening)]
    listen: SocketAddr,
    /// Shards, each with its own executor and log, 1 to 1024; may differ at every start [default: CPUs of the affinity
    /// mask, bounded by quotas of cgroups].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    shards: Option<u16>,
    /// Do not pin shards to CPUs; they are pinned only if there are as many as CPUs and no cgroup's quota is below that.
    #[arg(long)]
    no_pin: bool,
    /// Partitions of the whole cluster, 1 to 16384; fixed at the first start [default: 1024].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16384))]
    partitions: Option<u16>,
    /// When a write is acknowledged: on the device, or written and synced within a second.
    #[arg(long, value_enum, default_value_t = DurabilityFlag::Strict)]
    durability: DurabilityFlag,
    /// Memory for keys and values, such as 4g; writes beyond get -OOM [default: no limit].
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = bytes,
        default_value = "0",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    max_memory: u64,
    /// Memory for what clients have sent and have not read yet, such as 1g, at least 64m; beyond it the largest
    /// connection is closed first. A single reply may take half of it [default: an eighth of the memory].
    #[arg(long, value_name = "BYTES", value_parser = client_memory, allow_hyphen_values = true)]
    max_client_memory: Option<u64>,
    /// Seconds after which a client is closed that takes none of the replies that wait for it.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    client_timeout_output: u64,
    /// Disk space that the logs of all shards may take, at least 64m; raised to two segments of 16 MiB per shard.
    #[arg(long, value_name = "BYTES", value_parser = budget, default_value = "1g", allow_hyphen_values = true)]
    wal_budget: u64,
    /// Name of the node, for people: 1 to 64 printable bytes without spaces and / [default: the host's name].
    #[arg(long)]
    name: Option<String>,
    /// What a shard of this node can take, in per cent of a usual one, 1 to 10000: a rebalance gives it partitions in
    /// proportion.
    #[arg(
        long,
        value_name = "W",
        default_value_t = CAPACITY_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(CAPACITY_MAX))
    )]
    capacity: u32,
    /// Rack of the node, or whatever else fails together, up to 64 characters without spaces.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    rack: String,
    /// Client connections per shard; lowered at the start to what the limit of open files leaves.
    #[arg(long, value_name = "N", default_value_t = NonZeroUsize::new(CLIENTS_PER_SHARD).unwrap_or(NonZeroUsize::MIN))]
    max_clients: NonZeroUsize,
    /// File with the password of the user `default`, its only line.
    #[arg(long, value_name = "FILE", conflicts_with = "acl_file")]
    password_file: Option<PathBuf>,
    /// File with all users, as Redis's ACL files have them.
    #[arg(long, value_name = "FILE")]
    acl_file: Option<PathBuf>,
    /// Entry port for clients that come over TLS, on the host of --listen; shard i also listens on TLS-PORT+1+i.
    #[arg(
        long,
        value_name = "PORT",
        requires_all = ["tls_cert", "tls_key"],
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    tls_port: Option<u16>,
    /// File with the node's certificate for clients, and those between it and what they trust, in PEM format; SIGHUP has
    /// this file and the next two read again.
    #[arg(long, value_name = "FILE", requires = "tls_port")]
    tls_cert: Option<PathBuf>,
    /// File with the key of that certificate, which others must not be able to read.
    #[arg(long, value_name = "FILE", requires = "tls_port")]
    tls_key: Option<PathBuf>,
    /// File with the certificates of those who sign clients' certificates.
    #[arg(long, value_name = "FILE", requires = "tls_port")]
    tls_ca: Option<PathBuf>,
    /// Whether clients over TLS need a certificate: yes, no, or only a right one if any [default: yes with --tls-ca].
    #[arg(long, value_enum, value_name = "WHETHER", requires = "tls_port")]
    tls_auth_clients: Option<AuthClients>,
    /// Databases that clients may SELECT, 1 to 256; not fewer than have keys. No keys of others move to this node.
    #[arg(
        long,
        value_name = "N",
        default_value_t = databases::DEFAULT,
        value_parser = clap::value_parser!(u16).range(1..=i64::from(databases::MOST))
    )]
    databases: u16,
    /// Coordinators of the cluster to join [default: the node brings its own, at PORT+20000].
    #[arg(long, value_name = "ADDR:PORT,...", value_delimiter = ',', value_parser = address::address)]
    coordinator: Vec<String>,
    /// The node's own coordinator balances the cluster by itself, when nothing has changed for a while: so that every shard
    /// has its share of partitions (count, also without a value), or of work (load).
    #[arg(
        long,
        value_enum,
        value_name = "BY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "count",
        conflicts_with = "coordinator"
    )]
    auto_rebalance: Option<BalanceFlag>,
    /// Moves of rebalances and drains that the node's own coordinator has under way at a time in the whole cluster.
    #[arg(
        long,
        value_name = "N",
        default_value_t = MOVES_MAX,
        value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with = "coordinator"
    )]
    moves_max: u32,
    /// File with the secret that all nodes and coordinators of the cluster share; it encrypts their links.
    #[arg(long, value_name = "FILE")]
    cluster_secret_file: Option<PathBuf>,
    /// Host that clients and other nodes are told to connect to [default: that of --listen].
    #[arg(long, value_name = "HOST")]
    announce_host: Option<String>,
    /// What to do with a damaged log: refuse to start, skip the damage, or cut everything behind it.
    #[arg(long, value_enum, default_value_t = DamageFlag::Refuse)]
    on_damage: DamageFlag,
    /// Take this machine's clock for right although the data has seen a later time. Deadlines of keys stay what
    /// they are: what got one while the clock was ahead lives longer by that.
    #[arg(long)]
    reset_clock: bool,
    /// Makes the machine's clock wrong, for tests.
    #[arg(
        long,
        hide = true,
        value_name = "MS",
        default_value_t = 0,
        allow_hyphen_values = true
    )]
    clock_shift_ms: i64,
    /// Serve clients beyond loopback although nobody needs a password; other nodes and coordinators need the
    /// secret there.
    #[arg(long)]
    insecure: bool,
    /// Take a restored directory for the newest one, although the cluster has seen a newer: what was written since is
    /// lost. For one start.
    #[arg(long)]
    accept_old_data: bool,
    /// Let clients beyond loopback move slots: CLUSTER MIGRATESLOTS and CANCELSLOTMIGRATIONS.
    #[arg(long)]
    allow_slot_commands: bool,
    /// Publish what happens to keys, as Redis does: K, E and the letters of what; CONFIG SET changes it.
    #[arg(long, value_name = "LETTERS", value_parser = events, default_value = "")]
    notify_keyspace_events: EventClasses,
    /// Milliseconds, 1 to 5000, that a script may take and keep its shard from other commands; then it is stopped, and nothing of it
    /// has happened.
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..=5000)
    )]
    lua_time_limit: u64,
    /// Who may send DEBUG: nobody, clients of this machine, or all who may send all other commands.
    #[arg(long, value_enum, default_value_t = DebugFlag::No)]
    enable_debug_command: DebugFlag,
    /// error, warn, info, debug or trace; the log goes to standard error.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: tracing::Level,
}

/// By what a cluster is balanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BalanceFlag {
    /// Every shard has its share of partitions.
    Count,
    /// Every shard has its share of work.
    Load,
}

impl From<BalanceFlag> for Balance {
    fn from(flag: BalanceFlag) -> Balance {
        match flag {
            BalanceFlag::Count => Balance::Count,
            BalanceFlag::Load => Balance::Load,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DurabilityFlag {
    Strict,
    Relaxed,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DebugFlag {
    No,
    Local,
    Yes,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DamageFlag {
    Refuse,
    Skip,
    Cut,
}

/// Smallest log budget: a few segments.
const WAL_BUDGET_MIN: u64 = 64 << 20;

/// The secret in a file, if one was named.
fn cluster_secret(file: Option<&Path>) -> Result<Option<Secret>, String> {
    let secret = file.map(load_secret).transpose();
    secret.map_err(|error| format!("--cluster-secret-file: {error}"))
}

impl Serve {
    /// The users that the node starts with.
    fn users(&self) -> Result<Users, String> {
        if let Some(file) = &self.password_file {
            let password = load_password(file);
            let password = password.map_err(|error| format!("--password-file: {error}"))?;
            return Ok(Users::with_password(password));
        }
        match &self.acl_file {
            Some(file) => load_users(file).map_err(|error| format!("--acl-file: {error}")),
            None => Ok(Users::default()),
        }
    }

    /// The name of the rack, if it is one.
    fn checked_rack(&self) -> Result<String, String> {
        check_rack(&self.rack).map_err(|refusal| format!("--rack: {refusal}"))?;
        Ok(self.rack.clone())
    }

    /// The name of the node; `move --to NODE/SHARD` has to tell it from a shard.
    fn checked_name(&self) -> Result<String, String> {
        let Some(name) = &self.name else {
            return Ok(host_name());
        };
        if check_name(name).is_err() || name.contains('/') {
            return Err(format!("--name: {}, nor /", Refusal::Name));
        }
        Ok(name.clone())
    }

    /// TLS for clients, its files read.
    fn tls(&self) -> Result<Option<TlsOptions>, String> {
        let (Some(port), Some(certificate), Some(key)) =
            (self.tls_port, &self.tls_cert, &self.tls_key)
        else {
            return Ok(None);
        };
        let by_default = match self.tls_ca {
            Some(_) => AuthClients::Yes,
            None => AuthClients::No,
        };
        let auth_clients = self.tls_auth_clients.unwrap_or(by_default);
        if auth_clients != AuthClients::No && self.tls_ca.is_none() {
            return Err(format!(
                "--tls-auth-clients {}: who signs certificates of clients has to be known; add --tls-ca",
                auth_clients.name()
            ));
        }
        let files = TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            authorities: self.tls_ca.clone(),
            auth_clients,
        };
        let config = files.load().map_err(|error| error.to_string())?;
        Ok(Some(TlsOptions {
            port,
            files,
            config,
        }))
    }

    /// The options, checked.
    ///
    /// # Errors
    /// One line that names the flag.
    pub fn options(&self) -> Result<ServeOptions, String> {
        let users = self.users()?;
        let is_open = users.default_user().is_open();
        if !self.listen.ip().is_loopback() && !self.insecure && is_open {
            return Err(format!(
                "--listen {}: anyone on that network could read and write all keys; listen on \
                 127.0.0.1, add --password-file or --acl-file, or add --insecure",
                self.listen
            ));
        }
        if self.listen.port() == 0 {
            return Err(format!(
                "--listen {}: the ports of the shards follow this one, which has to be named",
                self.listen
            ));
        }
        if !self.listen.ip().is_loopback() && self.cluster_secret_file.is_none() {
            return Err(format!(
                "--listen {}: anyone on that network could take the cluster over through the ports for nodes and \
                 coordinators, which --insecure does not open; add --cluster-secret-file",
                self.listen
            ));
        }
        let is_wildcard = self.listen.ip().is_unspecified();
        if is_wildcard && !self.coordinator.is_empty() && self.announce_host.is_none() {
            return Err(format!(
                "--listen {}: the other nodes have to be told an address; add --announce-host",
                self.listen
            ));
        }
        let secret = cluster_secret(self.cluster_secret_file.as_deref())?;
        let tls = self.tls()?;
        Ok(ServeOptions {
            tls,
            coordinators: self.coordinator.clone(),
            auto_rebalance: self.auto_rebalance.map(Balance::from),
            moves_max: self.moves_max,
            rack: self.checked_rack()?,
            secret,
            allow_slot_commands: self.allow_slot_commands,
            events: self.notify_keyspace_events,
            lua_time_limit: Duration::from_millis(self.lua_time_limit),
            debug_command: match self.enable_debug_command {
                DebugFlag::No => DebugCommand::No,
                DebugFlag::Local => DebugCommand::Local,
                DebugFlag::Yes => DebugCommand::Yes,
            },
            accept_old_data: self.accept_old_data,
            announce_host: self.announce_host.clone(),
            reset_clock: self.reset_clock,
            wall_clock: WallClock::shifted(self.clock_shift_ms),
            data_dir: self.data_dir.clone(),
            listen: self.listen,
            shards: self.shards,
            pin: !self.no_pin,
            partitions: self.partitions,
            durability: match self.durability {
                DurabilityFlag::Strict => Durability::Strict,
                DurabilityFlag::Relaxed => Durability::Relaxed,
            },
            max_memory: self.max_memory,
            max_client_memory: self.max_client_memory,
            client_timeout_output: Duration::from_secs(self.client_timeout_output),
            wal_budget: self.wal_budget,
            name: self.checked_name()?,
            capacity: self.capacity,
            max_clients: self.max_clients.get(),
            users,
            acl_file: self.acl_file.clone(),
            databases: self.databases,
            on_damage: match self.on_damage {
                DamageFlag::Refuse => OnDamage::Refuse,
                DamageFlag::Skip => OnDamage::Skip,
                DamageFlag::Cut => OnDamage::Cut,
            },
        })
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "ephesus".to_owned(), |name| name.trim().to_owned())
}

/// Reads a number of bytes with an optional unit: k, m, g, t (powers of 1024), with or without b.
///
/// # Errors
/// What is wrong with the text.
pub fn bytes(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let number = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &lower[number.len()..] {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        unit => return Err(format!("unknown unit '{unit}', use k, m, g or t")),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| format!("'{text}' is not a number of bytes"))?;
    number
        .checked_shl(shift)
        .filter(|bytes| bytes >> shift == number)
        .ok_or("too large".to_owned())
}

/// Letters of events of keys.
fn events(letters: &str) -> Result<EventClasses, String> {
    EventClasses::parse(letters).ok_or_else(|| "use letters of Ag$lshzxeKEtmdn".to_owned())
}

fn budget(text: &str) -> Result<u64, String> {
    bytes_from(text, WAL_BUDGET_MIN)
}

fn client_memory(text: &str) -> Result<u64, String> {
    bytes_from(text, ephesus_wire::limits::CLIENT_MEMORY_BYTES_MIN)
}

fn bytes_from(text: &str, min: u64) -> Result<u64, String> {
    match bytes(text)? {
        small if small < min => Err(format!("at least {}m", min >> 20)),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests;
