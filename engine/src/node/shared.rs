//! What all shards of a node see: settings, counters, the lease.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ephesus_coordinator::lease::Lease;
use ephesus_coordinator::link::Counters;
use ephesus_coordinator::load::{Board, HotKey};
use ephesus_coordinator::membership::boottime_ms;
use ephesus_wal::Durability;
use ephesus_wire::limits::ONE_REPLY_BYTES_MAX;
use ephesus_wire::{NodeId, Partitioning, ShardId};

use super::copying::Copying;
use super::exchange::Exchange;
use super::freed_memory::FreedMemory;
use super::hotkeys::Sessions;
use super::live::LiveSettings;
use super::load::PartitionCounts;
use super::prefixes::SharedPrefixes;
use super::slow::Slow;
use super::time::NodeTime;
use crate::acl::SharedUsers;
use crate::by_shard::ByShard;
use crate::keyspace::events::EventClasses;
use crate::keyspace::large_replies::LargeReplies;
use crate::migration::slots::thread::Asked;
use crate::script::functions::SharedLibraries;
use crate::script::library::Library;
use crate::shard::ShardStats;
use crate::shard::mesh::Peer;
use crate::shard::stats::Counter;
use crate::tls::ServerTls;

/// Who may send DEBUG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DebugCommand {
    #[default]
    No,
    /// Clients of this machine.
    Local,
    Yes,
}

/// Settings that shards and replies need.
#[derive(Clone, Debug)]
pub struct Settings {
    pub name: String,
    pub listen: SocketAddr,
    /// What clients and other nodes connect to, if that is not where the node listens.
    pub announce_host: Option<String>,
    pub durability: Durability,
    /// Bytes; 0 is no limit.
    pub max_memory: u64,
    /// Bytes that clients may make the node hold.
    pub max_client_memory: u64,
    /// A client that takes nothing of what it is owed for so long is closed.
    pub client_timeout_output: Duration,
    /// Bytes of all logs of the node.
    pub wal_budget: u64,
    pub max_clients: usize,
    /// How many databases clients may select.
    pub databases: u16,
    /// Whether clients beyond loopback may move slots.
    pub allow_slot_commands: bool,
    /// Of which events of keys there are messages at the start.
    pub events: EventClasses,
    /// How long a script may take.
    pub lua_time_limit: Duration,
    pub debug_command: DebugCommand,
    /// CONFIG GET's answers.
    pub parameters: Vec<(&'static str, String)>,
}

/// One node, as its shards share it.
#[derive(Debug)]
pub struct NodeShared {
    pub id: NodeId,
    pub settings: Settings,
    pub partitioning: Partitioning,
    /// Without it the node serves no key.
    pub lease: Lease,
    pub peers: ByShard<Peer>,
    pub stats: ByShard<ShardStats>,
    /// Key and value bytes of each partition that is served here, as its shard has published them last; `u64::MAX` before it
    /// has.
    pub partition_bytes: Arc<[Counter]>,
    /// What shards have counted of each partition since the node has started.
    pub partition_loads: Box<[PartitionCounts]>,
    /// What is done in shards and partitions, as the node's monitor has seen it last.
    pub load: Arc<Mutex<Board>>,
    /// The hottest keys of each shard, as it has published them last.
    pub hot_keys: ByShard<Mutex<Vec<HotKey>>>,
    /// Who looks at the use of keys.
    pub hotkeys: Sessions,
    pub large_replies: Arc<LargeReplies>,
    /// Of the port for other nodes.
    pub peer_links: Arc<Counters>,
    /// Who asks the coordinators for clients; none before the node serves.
    pub slot_migrations: Option<flume::Sender<Asked>>,
    /// Who may do what.
    pub users: Arc<SharedUsers>,
    /// For clients that come over TLS; none: there are no ports for them.
    pub tls: Option<ServerTls>,
    pub started: Instant,
    pub time: NodeTime,
    /// 40 hex digits, new for every start.
    pub run_id: String,
    /// Resident memory that is neither tables nor clients, the least that was seen of it.
    pub startup_bytes: Counter,
    pub disk: Disk,
    /// What gives keys to other servers.
    pub copying: Copying,
    /// What clients publish for those of other nodes.
    pub exchange: Arc<Exchange>,
    pub live: LiveSettings,
    pub slow: Slow,
    stop: AtomicBool,
    /// Connections that monitor, of all shards.
    monitors: AtomicUsize,
    /// Of which keys clients want to know whatever they have read.
    pub prefixes: SharedPrefixes,
    /// Scripts that clients have brought.
    pub scripts: Library,
    /// Libraries of functions.
    pub functions: Arc<SharedLibraries>,
    pub freed_memory: FreedMemory,
}

/// What the node's monitor has found about its disk.
#[derive(Debug, Default)]
pub struct Disk {
    is_full: AtomicBool,
    free_bytes: AtomicU64,
    floor_bytes: AtomicU64,
}

impl Disk {
    /// Whether writes are refused: free space is below the floor, or could not be had.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn floor_bytes(&self) -> u64 {
        self.floor_bytes.load(Ordering::Relaxed)
    }

    /// Answers whether it is news that it is full, or not any more.
    pub fn set(&self, is_full: bool, free_bytes: u64, floor_bytes: u64) -> bool {
        self.free_bytes.store(free_bytes, Ordering::Relaxed);
        self.floor_bytes.store(floor_bytes, Ordering::Relaxed);
        self.is_full.swap(is_full, Ordering::Relaxed) != is_full
    }
}

impl NodeShared {
    #[must_use]
    pub fn new(
        id: NodeId,
        settings: Settings,
        partitioning: Partitioning,
        lease: Lease,
        peers: Vec<Peer>,
        time: NodeTime,
    ) -> Self {
        let shards = peers.len() as u16;
        let stats = peers.iter().map(|_| ShardStats::default()).collect();
        #[expect(
            clippy::disallowed_methods,
            reason = "uptime is for people, not for decisions"
        )]
        let started = Instant::now();
        let board = Board::new(shards, partitioning.count(), boottime_ms());
        let hot_keys = peers.iter().map(|_| Mutex::default()).collect();
        let live = LiveSettings::new(settings.max_memory, settings.events);
        let run_id = format!(
            "{}{:08x}",
            uuid::Uuid::new_v4().simple(),
            std::process::id()
        );
        NodeShared {
            id,
            settings,
            partitioning,
            lease,
            peers: peers.into(),
            stats,
            partition_bytes: partitioning
                .partitions()
                .map(|_| Counter::of(u64::MAX))
                .collect(),
            partition_loads: partitioning
                .partitions()
                .map(|_| PartitionCounts::default())
                .collect(),
            load: Arc::new(Mutex::new(board)),
            hot_keys,
            hotkeys: Sessions::new(shards),
            large_replies: Arc::default(),
            peer_links: Arc::default(),
            slot_migrations: None,
            users: Arc::default(),
            tls: None,
            started,
            time,
            run_id,
            startup_bytes: Counter::default(),
            disk: Disk::default(),
            copying: Copying::default(),
            exchange: Arc::default(),
            live,
            slow: Slow::default(),
            stop: AtomicBool::new(false),
            monitors: AtomicUsize::new(0),
            prefixes: SharedPrefixes::default(),
            scripts: Library::default(),
            functions: Arc::default(),
            freed_memory: FreedMemory::default(),
        }
    }

    /// A client has asked the node to stop.
    pub fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// A shard has more connections that monitor, or fewer.
    pub fn monitors_changed(&self, by: isize) {
        self.monitors
            .fetch_add(by.cast_unsigned(), Ordering::Release);
    }

    #[must_use]
    pub fn has_monitors(&self) -> bool {
        self.monitors.load(Ordering::Acquire) > 0
    }

    #[must_use]
    pub fn is_asked_to_stop(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    #[must_use]
    pub fn shards(&self) -> u16 {
        self.peers.len() as u16
    }

    /// What CONFIG GET answers from: all parameters and their values, by name.
    #[must_use]
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let fixed = self.settings.parameters.iter().cloned();
        let mut all: Vec<_> = fixed.chain(self.live.parameters()).collect();
        all.sort_unstable();
        all
    }

    /// Memory that counts against `--max-memory`.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.stats
            .iter()
            .map(|stats| stats.memory_bytes.get())
            .sum()
    }

    /// Memory of tables, of clients and of scripts, as shards have published it.
    #[must_use]
    pub fn counted_bytes(&self) -> u64 {
        let of_lua = |stats: &ShardStats| stats.script_bytes.get() + stats.function_bytes.get();
        let scripts: u64 = self.stats.iter().map(of_lua).sum();
        self.memory_bytes() + self.client_bytes() + scripts
    }

    /// Looks at what memory is neither tables nor clients.
    pub fn note_startup_bytes(&self, anonymous: u64) {
        let other = anonymous.saturating_sub(self.counted_bytes());
        let before = self.startup_bytes.get();
        if before == 0 || other < before {
            self.startup_bytes.set(other);
        }
    }

    #[must_use]
    pub fn is_memory_full(&self) -> bool {
        let max_memory = self.live.max_memory();
        max_memory != 0 && self.memory_bytes() >= max_memory
    }

    /// Memory that clients make the node hold, as far as its shards have published it.
    #[must_use]
    pub fn client_bytes(&self) -> u64 {
        let bytes = self.stats.iter().map(|stats| stats.client_bytes.get());
        bytes.sum()
    }

    /// Longest reply of one command.
    #[must_use]
    pub fn reply_bytes_max(&self) -> usize {
        let half = usize::try_from(self.settings.max_client_memory / 2);
        half.map_or(ONE_REPLY_BYTES_MAX, |half| half.min(ONE_REPLY_BYTES_MAX))
    }

    /// The port that is one shard.
    #[must_use]
    pub fn direct_port(&self, shard: ShardId) -> u16 {
        self.settings.listen.port() + 1 + shard.0
    }

    /// The address to show a client that reached this node at `local`.
    #[must_use]
    pub fn announced(&self, local: SocketAddr) -> String {
        if let Some(host) = &self.settings.announce_host {
            return host.clone();
        }
        let ip = match self.settings.listen.ip() {
            ip if ip.is_unspecified() => local.ip(),
            ip => ip,
        };
        match ip {
            IpAddr::V6(ip) => ip
                .to_ipv4_mapped()
                .map_or_else(|| ip.to_string(), |ip| ip.to_string()),
            IpAddr::V4(ip) => ip.to_string(),
        }
    }
}
