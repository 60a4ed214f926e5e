//! Starting and stopping a node.
//!
//! Stores are opened and recovered before anything is pinned, because sled's threads inherit the
//! affinity of whoever opens them; ports are bound before shards start, so that every refusal comes
//! before the banner.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use ephesus_coordinator::link::Counters;
use ephesus_coordinator::link::keep_alive::KeepAlive;
use ephesus_coordinator::report::Figures;
use ephesus_coordinator::scheduling::prefer_short_slices;
use ephesus_coordinator::server::ServerError;
use ephesus_coordinator::state::Refusal;
use ephesus_coordinator::view::View;
use ephesus_wal::{Durability, LogId, LogOptions, OnDamage};
use ephesus_wire::handshake::{HandshakeError, Secret};
use ephesus_wire::slot::PartitionCountError;
use ephesus_wire::{NodeId, Partitioning, ShardId};
use glommio::{LocalExecutorBuilder, Placement};

use super::cgroup;
use super::environment::{self, Environment, EnvironmentError};
use super::joining::Joining;
use super::layout_writer::LayoutWriter;
use super::moves::Moves;
use super::peers::PeerPort;
use super::ports;
use super::rates::Rates;
use super::recovery::{BESIDE_SEGMENTS_BYTES, Home, Plan, RecoveredShard, Recovery, RecoveryError};
use super::reserve::Reserve;
use super::routes::Routes;
use super::running::routes;
use super::segment_threads::SegmentThreads;
use super::shared::{NodeShared, Settings};
use super::slot_moves::SlotMoves;
use super::stamp::{DataDir, DataDirError, Joined, Layout, Stamp};
use super::time::{AheadNotice, NodeTime, WallClock};
use crate::image::{
    STORES_MAX, StoreError, StoreThread, least_live_bytes, open_stores, wait_for_room,
};
use crate::keyspace::Keyspace;
use crate::migration::Report;
use crate::net::Waker;
use crate::shard::mesh::{Message, Peer};
use crate::shard::segments::Jobs;
use crate::shard::{Checkpointer, Core, Segments, Shard, Start};
use crate::small_pages::SmallPages;
use crate::table::{KeyHasher, work_for};

/// Smallest and largest log segment.
const SEGMENT_BYTES_MIN: u64 = 16 << 20;
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// Segments that a shard's budget is made of, at least.
const SEGMENTS_PER_SHARD: u64 = 8;

/// The fewest that a shard can go on with.
const SEGMENTS_MIN: u64 = 2;

/// Memory that glommio registers for each executor's own file I/O.
const EXECUTOR_IO_BYTES: usize = 128 << 10;

const EXECUTOR_RING_DEPTH: usize = 128;

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
    pub max_clients: usize,
    pub on_damage: OnDamage,
    /// Where coordinators are reached, each as `host:port`; none: the node brings its own.
    pub coordinators: Vec<String>,
    /// Whether the node's own coordinator balances the cluster of its own accord.
    pub auto_rebalance: bool,
    /// What links to coordinators have to prove.
    pub secret: Option<Secret>,
    /// Whether clients beyond loopback may move slots.
    pub allow_slot_commands: bool,
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

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Partitions(#[from] PartitionCountError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// Another process listens there: choose another `--listen` or stop that process.
    #[error("address {address} is in use{remedy}")]
    AddressInUse { address: SocketAddr, remedy: String },
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    /// Clients could not be told of these ports: choose a lower `--listen` port.
    #[error("--listen port {first}: {what} needs port {last}, and ports end at 65535")]
    Ports {
        what: &'static str,
        first: u32,
        last: u32,
    },
    /// See there.
    #[error("coordinator: {0}")]
    Coordinator(ServerError),
    /// Name some with `--coordinator`, or restore the directory of the one that it brought.
    #[error(
        "{} belongs to a cluster, and has no directory `coordinator` of its own: name its \
         coordinators with --coordinator, or restore that directory",
        .0.display()
    )]
    NoCoordinators(PathBuf),
    /// Name this cluster's coordinators with `--coordinator`, or another `--data-dir`.
    #[error(
        "{} belongs to another cluster than the coordinator at {address}: {reason}",
        data_dir.display()
    )]
    OtherCluster {
        data_dir: PathBuf,
        address: String,
        reason: HandshakeError,
    },
    /// Another number of shards has all data written anew.
    #[error(
        "the number of shards cannot change from {from} to {to}: all data is written anew for that, and the disk of \
         {} has {} MiB free of at least {} MiB that it takes; start with --shards {from}, or set space free",
        data_dir.display(),
        free >> 20,
        needed >> 20
    )]
    NoRoomToChange {
        data_dir: PathBuf,
        from: u16,
        to: u16,
        free: u64,
        needed: u64,
    },
    /// The coordinator does not take this node; its text says what to do.
    #[error("the cluster does not take this node: {0}")]
    Refused(Refusal),
    /// The process was told to stop.
    #[error("stopped before it served")]
    Interrupted,
    #[error("starting {what}: {source}")]
    Thread {
        what: &'static str,
        source: io::Error,
    },
    #[error("shard {shard} could not start: {reason}")]
    Shard { shard: ShardId, reason: String },
}

/// A node that serves.
pub struct Node {
    pub shared: Arc<NodeShared>,
    pub environment: Environment,
    pub recovery_ms: u64,
    pub sync_latency: Option<Duration>,
    pub is_new: bool,
    pub(super) data_dir: Arc<DataDir>,
    pub(super) reserve: Reserve,
    pub(super) segment_bytes: u64,
    pub(super) executors: Vec<JoinHandle<()>>,
    pub(super) stores: Vec<StoreThread>,
    pub(super) running: Arc<AtomicUsize>,
    pub(super) segment_jobs: Jobs,
    pub(super) segment_threads: SegmentThreads,
    pub(super) raised: bool,
    pub(super) rates: Rates,
    pub(super) joining: Joining,
    pub(super) peer_port: PeerPort,
    pub(super) slot_moves: SlotMoves,
    /// What shards say about migrations; the sender is for their starts.
    pub(super) reports: (flume::Sender<Vec<Report>>, flume::Receiver<Vec<Report>>),
    pub(super) layout: Layout,
    pub(super) view: Arc<View>,
    /// What shards were given last.
    pub(super) routes: Arc<Routes>,
    pub(super) moves: Moves,
    pub(super) layout_writer: LayoutWriter,
    pub(super) figures: Figures,
    pub(super) ahead_notice: AheadNotice,
}

impl Node {
    /// Recovers the data directory, joins the cluster and starts serving; gives up once `is_over`.
    ///
    /// # Errors
    /// [`StartError`]; nothing was changed that a later start would not expect.
    pub fn start(options: ServeOptions, is_over: &dyn Fn() -> bool) -> Result<Node, StartError> {
        let environment = Environment::inspect()?;
        let shards = options
            .shards
            .unwrap_or_else(|| environment.cpus.min(256) as u16)
            .max(1);
        let asked = options.max_clients;
        let options = ServeOptions {
            max_clients: environment.clients_per_shard(shards, asked)?,
            wal_budget: log_budget(options.wal_budget, shards),
            ..options
        };
        ports::check(options.listen, shards)?;
        let data_dir = DataDir::lock(&options.data_dir)?;
        data_dir.free_space()?;
        let stamp = open_stamp(&data_dir, environment.cpus)?;
        let is_new = stamp.joined.is_none();
        if !is_new {
            // Before this start is noted.
            data_dir.begin_named_logs()?;
            check_room_to_change(&data_dir, shards)?;
        }
        let listeners = ports::bind_all(options.listen, shards)?;
        let peer_port = ports::bind_peers(options.listen)?;
        let coordinator_port = ports::bind_coordinator(&options, &data_dir, &stamp)?;
        for warning in environment.warnings(shards, options.max_clients, asked) {
            tracing::warn!("{warning}");
        }
        let started = super::clock();
        let mut joining = Joining::start(&options, &data_dir, &stamp, shards, coordinator_port)?;
        let joined = match stamp.joined {
            Some(joined) => joined,
            None => {
                let view = joining.wait_for_table(is_over)?;
                join(&data_dir, &stamp, shards, &view)?
            }
        };
        if let Some(asked) = options
            .partitions
            .filter(|asked| *asked != joined.partitions)
        {
            let found = joined.partitions;
            return Err(DataDirError::Partitions { found, asked }.into());
        }
        let layout = data_dir.settle_layout()?;
        data_dir.check_layout(&layout, joined)?;
        let partitioning = Partitioning::new(joined.partitions)?;
        // All memory is touched once here, and nobody waits for how fast it is read later.
        let small_pages = SmallPages::begin();
        wait_for_room(true);
        let mut stores = open_stores(&data_dir.image_dir(), stamp.stores)?;
        let segment_bytes = (options.wal_budget / (SEGMENTS_PER_SHARD * u64::from(shards)))
            .clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
            & !4095;
        let hasher = data_dir.key_hasher()?;
        let budget = options.wal_budget / u64::from(shards);
        let log_options = LogOptions {
            durability: options.durability,
            segment_bytes,
            opening_bytes_min: SEGMENT_BYTES_MIN,
            spare_segments: spare_segments(budget, segment_bytes),
            on_damage: options.on_damage,
            ..LogOptions::new(LogId::default())
        };
        let now_ms = options.wall_clock.now_ms();
        let recovery = Recovery::new(&data_dir, partitioning, &hasher, log_options, now_ms)
            .resetting_time(options.reset_clock);
        let replayed = recovery.replay(&layout, &mut stores)?;
        let view = joining.wait_for_table(is_over)?;
        let plan = Plan::of(&view.table, stamp.node, shards).with(view.migrations.clone());
        let (layout, recovered) = recovery.open(layout, &plan, replayed, &mut stores)?;
        drop(small_pages);
        let recovery_ms = super::recovery::elapsed_ms(started);
        let sync_latency = environment::sync_latency(data_dir.path()).ok();
        let thread_error = |what| move |source| StartError::Thread { what, source };
        let stores = stores
            .into_iter()
            .map(|store| StoreThread::start(Box::new(store)))
            .collect::<io::Result<Vec<_>>>()
            .map_err(thread_error("an image store"))?;
        let (segment_jobs, segment_threads) =
            SegmentThreads::start(shards).map_err(thread_error("a segment thread"))?;
        let mut inboxes = Vec::new();
        let mut peers = Vec::new();
        for _ in 0..shards {
            let waker = Arc::new(Waker::new().map_err(thread_error("a shard"))?);
            let (sender, receiver) = flume::unbounded();
            inboxes.push(receiver);
            peers.push(Peer::new(sender, waker));
        }
        joining.note_coordinators(&data_dir, &view);
        let peer_links = Arc::<Counters>::default();
        let peer_port = PeerPort::start(
            peer_port,
            stamp.node,
            joined.cluster,
            options.secret.clone(),
            Arc::clone(&peer_links),
        )?;
        let settings = settings(&options, shards, joined.partitions);
        let lease = joining.lease();
        let last_ms = recovered.iter().map(|shard| shard.wall_clock_ms).max();
        let time = NodeTime::start(options.wall_clock, last_ms.unwrap_or(now_ms));
        let mut shared = NodeShared::new(stamp.node, settings, partitioning, lease, peers, time);
        shared.peer_links = peer_links;
        let slot_moves = SlotMoves::start(
            stamp.node,
            options.secret.clone(),
            Arc::clone(&view),
            shared.peers.clone(),
        )
        .map_err(thread_error("the cluster's commands"))?;
        shared.slot_moves = Some(slot_moves.queue());
        let shared = Arc::new(shared);
        let routes = Arc::new(routes(&shared, &layout, &view, |_| true, None));
        let data_dir = Arc::new(data_dir);
        let layout_writer = LayoutWriter::start(Arc::clone(&data_dir));
        let layout_writer = layout_writer.map_err(thread_error("the layout's thread"))?;
        let mut node = Node {
            shared,
            environment,
            recovery_ms,
            sync_latency,
            is_new,
            reserve: Reserve::new(data_dir.path(), shards),
            data_dir,
            segment_bytes,
            executors: Vec::new(),
            stores,
            running: Arc::new(AtomicUsize::new(0)),
            segment_jobs,
            segment_threads,
            raised: false,
            rates: Rates::default(),
            joining,
            peer_port,
            slot_moves,
            reports: flume::unbounded(),
            layout,
            moves: Moves::new(stamp.node, Arc::clone(&view)),
            layout_writer,
            view,
            routes: Arc::clone(&routes),
            figures: Figures::default(),
            ahead_notice: AheadNotice::default(),
        };
        let cpus = pinned(&options, shards);
        let (gate, at_gate) = flume::bounded(usize::from(shards));
        let mut starting = Vec::new();
        for (((shard, recovered), inbox), listeners) in recovered
            .into_iter()
            .enumerate()
            .zip(inboxes)
            .zip(listeners)
        {
            let id = ShardId(shard as u16);
            let cpu = cpus.as_ref().and_then(|cpus| cpus.get(shard)).copied();
            let gate = at_gate.clone();
            let started =
                node.spawn(id, cpu, &routes, recovered, inbox, listeners, &hasher, gate)?;
            starting.push((id, started));
        }
        for (shard, started) in starting {
            let started = started
                .recv()
                .unwrap_or_else(|_| Err("its thread ended".into()));
            started.map_err(|reason| StartError::Shard { shard, reason })?;
        }
        // Clients of the first shard may use up all files there are, and then no other one could start.
        for _ in 0..shards {
            let _ = gate.send(());
        }
        node.joining.started(node.hosted());
        node.monitor();
        Ok(node)
    }

    /// Starts a shard's thread, which tells when it is ready, and serves once `gate` lets it through.
    #[expect(
        clippy::too_many_arguments,
        reason = "what one shard is made of, used once"
    )]
    fn spawn(
        &mut self,
        id: ShardId,
        cpu: Option<usize>,
        routes: &Arc<Routes>,
        recovered: RecoveredShard,
        inbox: flume::Receiver<Message>,
        listeners: (TcpListener, TcpListener),
        hasher: &KeyHasher,
        gate: flume::Receiver<()>,
    ) -> Result<mpsc::Receiver<Result<(), String>>, StartError> {
        let shared = Arc::clone(&self.shared);
        let waker = Arc::clone(shared.peers[id].waker());
        let clients = self
            .stores
            .iter()
            .map(|store| {
                let waker = Arc::clone(&waker);
                store.client(Arc::new(move || waker.wake()))
            })
            .collect();
        let log_id = self.layout.log(id);
        let budget = shared.settings.wal_budget / u64::from(shared.shards());
        let routes = Arc::clone(routes);
        let checkpointer = Checkpointer::new(clients, log_id, budget);
        let partitioning = shared.partitioning;
        let durability = shared.settings.durability;
        let log_options = LogOptions {
            durability,
            segment_bytes: self.segment_bytes,
            ..LogOptions::new(log_id)
        };
        let hasher = hasher.clone();
        let running = Arc::clone(&self.running);
        let jobs = self.segment_jobs.clone();
        let reports = self.reports.0.clone();
        let (report, started) = mpsc::channel();
        let without_executor = report.clone();
        let placement = cpu.map_or(Placement::Unbound, Placement::Fixed);
        let executor = LocalExecutorBuilder::new(placement)
            .name(&format!("shard-{id}"))
            .io_memory(EXECUTOR_IO_BYTES)
            .ring_depth(EXECUTOR_RING_DEPTH);
        let run = move || async move {
            work_for(usize::from(id.0));
            prefer_short_slices();
            // The first sleep of an executor takes tens of milliseconds: not at a client's cost.
            glommio::timer::sleep(Duration::from_micros(1)).await;
            let RecoveredShard {
                partitions,
                writer,
                segment,
                mapped,
                files,
                wall_clock_ms,
            } = recovered;
            let keyspace = Keyspace::new(partitioning, partitions, hasher, writer, wall_clock_ms);
            let start = Start {
                core: Core::new(id, shared, routes, keyspace),
                segments: Segments::new(
                    jobs,
                    files,
                    log_options,
                    Arc::clone(&waker),
                    segment,
                    checkpointer.keep_bytes(),
                ),
                mapped,
                checkpointer,
                inbox,
                waker,
                entry: listeners.0,
                direct: listeners.1,
                reports,
            };
            match Shard::new(start) {
                Ok(shard) => {
                    running.fetch_add(1, Ordering::AcqRel);
                    let _ = report.send(Ok(()));
                    if gate.recv().is_ok() {
                        shard.run();
                    }
                    running.fetch_sub(1, Ordering::AcqRel);
                }
                Err(error) => {
                    let _ = report.send(Err(error.to_string()));
                }
            }
        };
        let handle = std::thread::Builder::new()
            .name(format!("shard-{id}"))
            .spawn(move || match executor.make() {
                Ok(executor) => executor.run(run()),
                Err(error) => {
                    let _ = without_executor.send(Err(error.to_string()));
                }
            })
            .map_err(|source| StartError::Thread {
                what: "a shard",
                source,
            })?;
        self.executors.push(handle);
        Ok(started)
    }
}

/// The CPUs that shards are pinned to, and says so.
fn pinned(options: &ServeOptions, shards: u16) -> Option<Vec<usize>> {
    let cpus = match options.pin {
        true => environment::pinned_cpus(shards, environment::allowed_cpus(), cgroup::cpus()),
        false => Err("--no-pin".to_owned()),
    };
    match cpus {
        Ok(cpus) => {
            tracing::info!(?cpus, "shards are pinned, one to each CPU");
            Some(cpus)
        }
        Err(reason) => {
            tracing::info!("shards are not pinned: {reason}");
            None
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

/// Refuses another number of shards where there is surely no room for it. The cluster must not hear of it then: it gives
/// all copies new epochs, and after that the old number takes as much room.
fn check_room_to_change(dir: &DataDir, shards: u16) -> Result<(), StartError> {
    // A damaged layout is refused later.
    let from = dir.layout().map_or(shards, |layout| layout.shards());
    let Some(free) = dir.free_bytes().filter(|_| from != shards) else {
        return Ok(());
    };
    let needed = least_live_bytes(&dir.image_dir())
        + u64::from(shards) * SEGMENT_BYTES_MIN
        + BESIDE_SEGMENTS_BYTES;
    if free >= needed {
        return Ok(());
    }
    Err(StartError::NoRoomToChange {
        data_dir: dir.path().to_owned(),
        from,
        to: shards,
        free,
        needed,
    })
}

/// Reads the stamp, or makes the directory a new node's. That has a store for each CPU: a store has a thread of
/// its own, and keeps tens of megabytes of what it has written in memory.
fn open_stamp(dir: &DataDir, cpus: usize) -> Result<Stamp, StartError> {
    if let Some(stamp) = dir.stamp()? {
        return Ok(stamp);
    }
    let stamp = Stamp {
        node: NodeId(*uuid::Uuid::new_v4().as_bytes()),
        stores: cpus.clamp(1, usize::from(STORES_MAX)) as u16,
        joined: None,
    };
    dir.write_stamp(&stamp)?;
    Ok(stamp)
}

/// Makes the directory one of the cluster.
fn join(dir: &DataDir, stamp: &Stamp, shards: u16, view: &View) -> Result<Joined, StartError> {
    let joined = Joined {
        cluster: view.cluster,
        partitions: view.options.partitions,
    };
    let logs = (0..shards).map(|_| dir.new_log());
    let logs: Vec<LogId> = logs.collect::<Result<_, _>>()?;
    dir.write_layout(&Layout::empty(joined.partitions, logs.into_iter()))?;
    dir.write_stamp(&Stamp {
        joined: Some(joined),
        ..stamp.clone()
    })?;
    Ok(joined)
}

/// What shards and CONFIG GET need of the options.
fn settings(options: &ServeOptions, shards: u16, partitions: u16) -> Settings {
    let strict = options.durability == Durability::Strict;
    let max_client_memory = options
        .max_client_memory
        .unwrap_or_else(super::process::client_memory_default);
    let parameters = vec![
        (
            "appendfsync",
            if strict { "always" } else { "everysec" }.to_owned(),
        ),
        ("appendonly", "yes".to_owned()),
        ("bind", options.listen.ip().to_string()),
        ("cluster-enabled", "yes".to_owned()),
        ("databases", "1".to_owned()),
        ("dir", options.data_dir.display().to_string()),
        (
            "durability",
            if strict { "strict" } else { "relaxed" }.to_owned(),
        ),
        (
            "maxclients",
            (options.max_clients * usize::from(shards)).to_string(),
        ),
        ("maxmemory", options.max_memory.to_string()),
        ("maxmemory-clients", max_client_memory.to_string()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("name", options.name.clone()),
        ("partitions", partitions.to_string()),
        ("port", options.listen.port().to_string()),
        (
            "proto-max-bulk-len",
            ephesus_wire::limits::VALUE_BYTES_MAX.to_string(),
        ),
        ("replica-read-only", "yes".to_owned()),
        ("save", String::new()),
        ("shards", shards.to_string()),
        ("slave-read-only", "yes".to_owned()),
        (
            "tcp-keepalive",
            KeepAlive::CLIENTS.idle.as_secs().to_string(),
        ),
        ("timeout", "0".to_owned()),
        ("wal-budget", options.wal_budget.to_string()),
    ];
    Settings {
        name: options.name.clone(),
        listen: options.listen,
        announce_host: options.announce_host.clone(),
        durability: options.durability,
        max_memory: options.max_memory,
        max_client_memory,
        client_timeout_output: options.client_timeout_output,
        wal_budget: options.wal_budget,
        max_clients: options.max_clients,
        allow_slot_commands: options.allow_slot_commands,
        parameters,
    }
}
