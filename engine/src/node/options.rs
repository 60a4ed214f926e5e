//! What `ephesus serve` is asked for, and what that means for logs and shards.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ephesus_coordinator::coordinator::Balance;
use ephesus_coordinator::link::keep_alive::KeepAlive;
use ephesus_wal::{Durability, LogId, LogOptions, OnDamage};
use ephesus_wire::handshake::Secret;
use ephesus_wire::limits::VALUE_BYTES_MAX;

use super::environment::{Environment, EnvironmentError};
use super::process;
use super::shared::{DebugCommand, Settings};
use super::time::WallClock;
use crate::acl::Users;
use crate::keyspace::events::EventClasses;
use crate::tls::{AuthClients, TlsFiles, TlsOptions};

/// Smallest and largest log segment.
pub(super) const SEGMENT_BYTES_MIN: u64 = 16 << 20;
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// Segments that a shard's budget is made of, at least.
const SEGMENTS_PER_SHARD: u64 = 8;

/// The fewest that a shard can go on with.
const SEGMENTS_MIN: u64 = 2;

/// `ephesus serve`'s options, checked for form only.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
    /// `None`: one per CPU.
    pub shards: Option<u16>,
    pub pin: bool,
    /// `None`: what the data directory has, or the default.
    pub partitions: Option<u16>,
    pub durability: Durability,
    /// Bytes; 0 is no limit.
    pub max_memory: u64,
    /// `None`: an eighth of the memory.
    pub max_client_memory: Option<u64>,
    pub client_timeout_output: Duration,
    pub wal_budget: u64,
    pub name: String,
    /// What a shard can take, in per cent of a usual one.
    pub capacity: u32,
    /// Where it stands; empty: that is not said.
    pub rack: String,
    pub max_clients: usize,
    /// Who may do what, and the file that ACL LOAD and ACL SAVE mean.
    pub users: Users,
    pub acl_file: Option<PathBuf>,
    /// The ports for clients that come over TLS, and their files.
    pub tls: Option<TlsOptions>,
    /// How many databases clients may select, 1 to 256.
    pub databases: u16,
    pub on_damage: OnDamage,
    /// Where coordinators are reached, each as `host:port`; none: the node brings its own.
    pub coordinators: Vec<String>,
    /// Whether the node's own coordinator balances the cluster of its own accord, and by what.
    pub auto_rebalance: Option<Balance>,
    /// How many migrations that one has under way at a time.
    pub moves_max: u32,
    /// What links to coordinators have to prove.
    pub secret: Option<Secret>,
    /// Whether clients beyond loopback may move slots.
    pub allow_slot_commands: bool,
    /// Of which events of keys there are messages.
    pub events: EventClasses,
    /// How long a script may take.
    pub lua_time_limit: Duration,
    /// Who may send DEBUG.
    pub debug_command: DebugCommand,
    /// Whether a directory that is older than the cluster has seen is taken for the newest.
    pub accept_old_data: bool,
    /// What clients and other nodes are told instead of the address that the node listens on.
    pub announce_host: Option<String>,
    /// The machine's clock is right, although the data has seen a later time.
    pub reset_clock: bool,
    pub wall_clock: WallClock,
}

/// Partitions of a new data directory when none are asked for.
pub const PARTITIONS_DEFAULT: u16 = 1024;

impl ServeOptions {
    /// The options as this machine can have them, and the number of shards.
    ///
    /// # Errors
    /// Files that may be open do not suffice.
    pub(super) fn fit(
        mut self,
        machine: &Environment,
    ) -> Result<(ServeOptions, u16), EnvironmentError> {
        let shards = self.shards.unwrap_or_else(|| machine.cpus.min(256) as u16);
        let shards = shards.max(1);
        let asked = self.max_clients;
        self.max_clients = machine.clients_per_shard(shards, asked)?;
        self.wal_budget = log_budget(self.wal_budget, shards);
        Ok((self, shards))
    }

    /// What the logs of so many shards have in common.
    pub(super) fn log_options(&self, shards: u16) -> LogOptions {
        let budget = self.wal_budget / u64::from(shards);
        let segment_bytes =
            (budget / SEGMENTS_PER_SHARD).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX) & !4095;
        LogOptions {
            durability: self.durability,
            segment_bytes,
            opening_bytes_min: SEGMENT_BYTES_MIN,
            spare_segments: spare_segments(budget, segment_bytes),
            on_damage: self.on_damage,
            ..LogOptions::new(LogId::default())
        }
    }

    /// What shards and CONFIG GET need of the options.
    pub(super) fn settings(&self, shards: u16, partitions: u16) -> Settings {
        let strict = self.durability == Durability::Strict;
        let max_client_memory = self
            .max_client_memory
            .unwrap_or_else(process::client_memory_default);
        let tls = self.tls.as_ref();
        let tls_file = |of: fn(&TlsFiles) -> Option<&PathBuf>| {
            let file = tls.and_then(|tls| of(&tls.files));
            file.map_or(String::new(), |file| file.display().to_string())
        };
        let parameters = vec![
            (
                "appendfsync",
                if strict { "always" } else { "everysec" }.to_owned(),
            ),
            (
                "aclfile",
                self.acl_file
                    .as_ref()
                    .map_or(String::new(), |file| file.display().to_string()),
            ),
            ("appendonly", "yes".to_owned()),
            ("bind", self.listen.ip().to_string()),
            ("cluster-enabled", "yes".to_owned()),
            ("databases", self.databases.to_string()),
            ("dir", self.data_dir.display().to_string()),
            (
                "durability",
                if strict { "strict" } else { "relaxed" }.to_owned(),
            ),
            (
                "enable-debug-command",
                match self.debug_command {
                    DebugCommand::No => "no",
                    DebugCommand::Local => "local",
                    DebugCommand::Yes => "yes",
                }
                .to_owned(),
            ),
            (
                "maxclients",
                (self.max_clients * usize::from(shards)).to_string(),
            ),
            (
                "lua-time-limit",
                self.lua_time_limit.as_millis().to_string(),
            ),
            ("maxmemory-clients", max_client_memory.to_string()),
            ("maxmemory-policy", "noeviction".to_owned()),
            ("name", self.name.clone()),
            ("partitions", partitions.to_string()),
            ("port", self.listen.port().to_string()),
            ("proto-max-bulk-len", VALUE_BYTES_MAX.to_string()),
            ("replica-read-only", "yes".to_owned()),
            // It is not told.
            ("requirepass", String::new()),
            ("save", String::new()),
            ("shards", shards.to_string()),
            ("slave-read-only", "yes".to_owned()),
            (
                "tcp-keepalive",
                KeepAlive::CLIENTS.idle.as_secs().to_string(),
            ),
            ("timeout", "0".to_owned()),
            (
                "tls-auth-clients",
                tls.map_or(AuthClients::Yes, |tls| tls.files.auth_clients)
                    .name()
                    .to_owned(),
            ),
            (
                "tls-ca-cert-file",
                tls_file(|files| files.authorities.as_ref()),
            ),
            ("tls-cert-file", tls_file(|files| Some(&files.certificate))),
            ("tls-key-file", tls_file(|files| Some(&files.key))),
            ("tls-port", tls.map_or(0, |tls| tls.port).to_string()),
            ("wal-budget", self.wal_budget.to_string()),
        ];
        Settings {
            name: self.name.clone(),
            listen: self.listen,
            announce_host: self.announce_host.clone(),
            durability: self.durability,
            max_memory: self.max_memory,
            max_client_memory,
            client_timeout_output: self.client_timeout_output,
            wal_budget: self.wal_budget,
            max_clients: self.max_clients,
            databases: self.databases,
            allow_slot_commands: self.allow_slot_commands,
            events: self.events,
            lua_time_limit: self.lua_time_limit,
            debug_command: self.debug_command,
            parameters,
        }
    }
}

/// Bytes that the logs of so many shards may have together: `asked`, if each can have two segments, one of which
/// images set free while the other one is written to.
fn log_budget(asked: u64, shards: u16) -> u64 {
    let least = SEGMENTS_MIN * SEGMENT_BYTES_MIN * u64::from(shards);
    if asked < least {
        tracing::warn!(
            "--wal-budget is raised to {} MiB: {shards} shards need {SEGMENTS_MIN} log segments of {} MiB each",
            least >> 20,
            SEGMENT_BYTES_MIN >> 20
        );
    }
    asked.max(least)
}

/// Segments to prepare ahead: fewer where they would be much of the shard's budget.
fn spare_segments(budget: u64, segment_bytes: u64) -> usize {
    match budget / segment_bytes {
        0..4 => 0,
        4..SEGMENTS_PER_SHARD => 1,
        SEGMENTS_PER_SHARD.. => 2,
    }
}
