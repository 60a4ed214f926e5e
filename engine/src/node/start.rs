//! Starting a node: its directory is opened, its cluster is joined, its logs are recovered, its threads are
//! spawned, and then it serves.
//!
//! Stores are opened and recovered before anything is pinned, because sled's threads inherit the
//! affinity of whoever opens them; ports are bound before shards start, so that every refusal comes
//! before the banner.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use ephesus_coordinator::link::Counters;
use ephesus_coordinator::report::Figures;
use ephesus_coordinator::view::View;
use ephesus_wal::{LogId, LogOptions};
use ephesus_wire::{NodeId, Partitioning, ShardId};

use super::cgroup;
use super::data_dir::{DataDir, DataDirError, Joined, Layout, Stamp};
use super::environment::{self, Environment};
use super::error::StartError;
use super::freed_memory::FreedMemoryThread;
use super::joining::{Joining, embeds};
use super::layout_writer::LayoutWriter;
use super::options::{SEGMENT_BYTES_MIN, ServeOptions};
use super::peers::PeerPort;
use super::ports::{self, Ports, ShardPorts};
use super::rates::Rates;
use super::recovery::{BESIDE_SEGMENTS_BYTES, Home, Plan, RecoveredShard, Recovery, elapsed_ms};
use super::reserve::Reserve;
use super::running::{Node, routes};
use super::segment_threads::SegmentThreads;
use super::shard_thread::ShardThread;
use super::shared::NodeShared;
use super::time::{AheadNotice, NodeTime};
use crate::acl::SharedUsers;
use crate::acl::thread::AclFileThread;
use crate::image::{
    STORES_MAX, SledStore, StoreClient, StoreThread, least_live_bytes, open_stores, wait_for_room,
};
use crate::migration::node::NodeMigrations;
use crate::migration::slots::thread::SlotMigrations;
use crate::net::Waker;
use crate::script::functions::{FunctionsThread, Libraries};
use crate::shard::Checkpointer;
use crate::shard::mesh::Peer;
use crate::small_pages::SmallPages;
use crate::table::KeyHasher;
use crate::tls::ServerTls;

/// A directory that nobody else serves, and what the machine lets its node have.
struct Opened {
    options: ServeOptions,
    shards: u16,
    environment: Environment,
    data_dir: DataDir,
    stamp: Stamp,
    functions: Libraries,
    since: Instant,
}

/// What the directory holds, in memory, as the newest table has it.
struct Recovered {
    partitioning: Partitioning,
    hasher: KeyHasher,
    view: Arc<View>,
    layout: Layout,
    shards: Vec<RecoveredShard>,
    stores: Vec<SledStore>,
    /// The node's time goes on from here, Unix ms.
    now_ms: u64,
    took_ms: u64,
}

impl Node {
    /// Recovers the data directory, joins the cluster and starts serving; gives up once `is_over`.
    ///
    /// # Errors
    /// [`StartError`]; nothing was changed that a later start would not expect.
    pub fn start(options: ServeOptions, is_over: &dyn Fn() -> bool) -> Result<Node, StartError> {
        let (opened, ports) = open(options)?;
        let (mut joining, joined) = join(&opened, ports.coordinator, is_over)?;
        let recovered = recover(&opened, joined, &joining, is_over)?;
        joining.note_coordinators(&opened.data_dir, &recovered.view);
        let peer_links = Arc::<Counters>::default();
        let peer_port = PeerPort::start(
            ports.peers,
            opened.stamp.node,
            joined.cluster,
            opened.options.secret.clone(),
            Arc::clone(&peer_links),
        )?;
        spawn(
            opened,
            joining,
            recovered,
            ports.shards,
            (peer_port, peer_links),
        )
    }
}

/// Takes the directory and the ports.
fn open(options: ServeOptions) -> Result<(Opened, Ports), StartError> {
    let environment = Environment::inspect()?;
    let asked = options.max_clients;
    let (options, shards) = options.fit(&environment)?;
    ports::check(&options, shards)?;
    let data_dir = DataDir::lock(&options.data_dir)?;
    data_dir.free_space()?;
    let stamp = open_stamp(&data_dir, environment.cpus)?;
    if stamp.joined.is_some() {
        // Before this start is noted.
        data_dir.begin_named_logs()?;
        check_room_to_change(&data_dir, shards)?;
    }
    let functions = Libraries::open(data_dir.path())?;
    let embeds = embeds(&options, &data_dir, &stamp);
    let ports = Ports::bind(&options, shards, embeds)?;
    for warning in environment.warnings(shards, options.max_clients, asked) {
        tracing::warn!("{warning}");
    }
    let opened = Opened {
        options,
        shards,
        environment,
        data_dir,
        stamp,
        functions,
        since: super::clock(),
    };
    Ok((opened, ports))
}

/// Registers with the cluster; a new directory becomes one of it.
fn join(
    opened: &Opened,
    coordinator: Option<TcpListener>,
    is_over: &dyn Fn() -> bool,
) -> Result<(Joining, Joined), StartError> {
    let Opened {
        options,
        shards,
        data_dir,
        stamp,
        ..
    } = opened;
    let joining = Joining::start(options, data_dir, stamp, *shards, coordinator)?;
    let joined = match stamp.joined {
        Some(joined) => joined,
        None => {
            let view = joining.wait_for_table(is_over)?;
            make_member(data_dir, stamp, *shards, &view)?
        }
    };
    let found = joined.partitions;
    match options.partitions {
        Some(asked) if asked != found => Err(DataDirError::Partitions { found, asked }.into()),
        _ => Ok((joining, joined)),
    }
}

/// Rebuilds in memory what the directory holds, and settles with the table which copies are the node's.
fn recover(
    opened: &Opened,
    joined: Joined,
    joining: &Joining,
    is_over: &dyn Fn() -> bool,
) -> Result<Recovered, StartError> {
    let Opened {
        options,
        shards,
        data_dir,
        stamp,
        ..
    } = opened;
    let layout = data_dir.settle_layout()?;
    data_dir.check_layout(&layout, joined)?;
    let partitioning = Partitioning::new(joined.partitions)?;
    // All memory is touched once here, and nobody waits for how fast it is read later.
    let small_pages = SmallPages::begin();
    wait_for_room(true);
    let mut stores = open_stores(&data_dir.image_dir(), stamp.stores)?;
    let hasher = data_dir.key_hasher()?;
    let logs = options.log_options(*shards);
    let now_ms = options.wall_clock.now_ms();
    let recovery = Recovery::new(data_dir, partitioning, &hasher, logs, now_ms)
        .resetting_time(options.reset_clock);
    let replayed = recovery.replay(&layout, &mut stores)?;
    let highest = replayed.highest_database();
    if u16::from(highest.0) >= options.databases {
        let databases = options.databases;
        return Err(StartError::Databases { databases, highest });
    }
    let view = joining.wait_for_table(is_over)?;
    let plan = Plan::of(&view.table, stamp.node, *shards).with(view.migrations.clone());
    let (layout, recovered) = recovery.open(layout, &plan, replayed, &mut stores)?;
    drop(small_pages);
    let last_ms = recovered.iter().map(|shard| shard.wall_clock_ms).max();
    Ok(Recovered {
        partitioning,
        hasher,
        view,
        layout,
        shards: recovered,
        stores,
        now_ms: last_ms.unwrap_or(now_ms),
        took_ms: elapsed_ms(opened.since),
    })
}

/// Starts the node's threads, its shards last, and lets them serve together.
fn spawn(
    opened: Opened,
    joining: Joining,
    recovered: Recovered,
    ports: Vec<ShardPorts>,
    (peer_port, peer_links): (PeerPort, Arc<Counters>),
) -> Result<Node, StartError> {
    let Opened {
        options,
        shards,
        data_dir,
        stamp,
        functions,
        ..
    } = opened;
    let Recovered {
        partitioning, view, ..
    } = recovered;
    let sync_latency = environment::sync_latency(data_dir.path()).ok();
    let stores = recovered.stores.into_iter();
    let stores = stores.map(|store| StoreThread::start(Box::new(store)));
    let stores = stores
        .collect::<io::Result<Vec<_>>>()
        .map_err(StartError::thread("an image store"))?;
    let (segment_jobs, segment_threads) =
        SegmentThreads::start(shards).map_err(StartError::thread("a segment thread"))?;
    let mut inboxes = Vec::new();
    let mut peers = Vec::new();
    for _ in 0..shards {
        let waker = Arc::new(Waker::new().map_err(StartError::thread("a shard"))?);
        let (sender, receiver) = flume::unbounded();
        inboxes.push(receiver);
        peers.push(Peer::new(sender, waker));
    }
    let settings = options.settings(shards, partitioning.count());
    let time = NodeTime::start(options.wall_clock, recovered.now_ms);
    let lease = joining.lease();
    let mut shared = NodeShared::new(stamp.node, settings, partitioning, lease, peers, time);
    shared.peer_links = peer_links;
    shared.tls = options.tls.as_ref().map(ServerTls::new);
    shared.exchange = Arc::clone(peer_port.exchange());
    let slot_migrations = SlotMigrations::start(
        stamp.node,
        options.secret.clone(),
        Arc::clone(&view),
        shared.peers.clone(),
    )
    .map_err(StartError::thread("the cluster's commands"))?;
    shared.slot_migrations = Some(slot_migrations.queue());
    let acl_file = match options.acl_file.clone() {
        Some(path) => {
            let started = AclFileThread::start(path, options.users.clone(), shared.peers.clone());
            let (thread, users) = started.map_err(StartError::thread("the ACL file's thread"))?;
            shared.users = users;
            Some(thread)
        }
        None => {
            shared.users = Arc::new(SharedUsers::new(options.users.clone(), None));
            None
        }
    };
    let (functions, libraries) =
        FunctionsThread::start(data_dir.path().to_owned(), functions, shared.peers.clone())
            .map_err(StartError::thread("the functions' thread"))?;
    shared.functions = libraries;
    let (freed_memory_thread, freed_memory) =
        FreedMemoryThread::start().map_err(StartError::thread("the thread of freed memory"))?;
    shared.freed_memory = freed_memory;
    let shared = Arc::new(shared);
    shared.exchange.serve(&shared);
    joining.set_load(Arc::clone(&shared.load));
    let partition_bytes = Arc::clone(&shared.partition_bytes);
    let routes = Arc::new(routes(&shared, &recovered.layout, &view, |_| true, None));
    let data_dir = Arc::new(data_dir);
    let layout_writer = LayoutWriter::start(Arc::clone(&data_dir))
        .map_err(StartError::thread("the layout's thread"))?;
    let logs = options.log_options(shards);
    let mut node = Node {
        shared,
        environment: opened.environment,
        recovery_ms: recovered.took_ms,
        sync_latency,
        is_new: stamp.joined.is_none(),
        reserve: Reserve::new(data_dir.path(), shards),
        data_dir,
        segment_bytes: logs.segment_bytes,
        executors: Vec::new(),
        stores,
        running: Arc::new(AtomicUsize::new(0)),
        segment_jobs,
        segment_threads,
        raised: false,
        rates: Rates::default(),
        joining,
        peer_port,
        slot_migrations,
        acl_file,
        functions,
        freed_memory: freed_memory_thread,
        reports: flume::unbounded(),
        layout: recovered.layout,
        migrations: NodeMigrations::new(stamp.node, Arc::clone(&view), partition_bytes),
        layout_writer,
        view,
        routes: Arc::clone(&routes),
        figures: Figures::default(),
        ahead_notice: AheadNotice::default(),
        has_lease: false,
        is_assigned: true,
    };
    let cpus = pinned(&options, shards);
    let (gate, at_gate) = flume::bounded(usize::from(shards));
    let mut starting = Vec::new();
    let parts = recovered.shards.into_iter().zip(inboxes).zip(ports);
    for (shard, ((recovered_shard, inbox), ports)) in (0..shards).zip(parts) {
        let id = ShardId(shard);
        let log_id = node.layout.log(id);
        let budget = options.wal_budget / u64::from(shards);
        let thread = ShardThread {
            id,
            cpu: cpus
                .as_ref()
                .and_then(|cpus| cpus.get(usize::from(shard)))
                .copied(),
            shared: Arc::clone(&node.shared),
            routes: Arc::clone(&routes),
            hasher: recovered.hasher.clone(),
            recovered: recovered_shard,
            log: LogOptions {
                log_id,
                ..logs.clone()
            },
            segment_jobs: node.segment_jobs.clone(),
            checkpointer: Checkpointer::new(store_clients(&node, id), log_id, budget),
            inbox,
            ports,
            reports: node.reports.0.clone(),
            running: Arc::clone(&node.running),
            gate: at_gate.clone(),
        };
        starting.push(thread.spawn()?);
    }
    for starting in starting {
        let (thread, ()) = starting.ready()?;
        node.executors.push(thread);
    }
    // Clients of the first shard may use up all files there are, and then no other one could start.
    for _ in 0..shards {
        let _ = gate.send(());
    }
    node.joining.started(node.hosted());
    node.follow_others();
    node.monitor();
    Ok(node)
}

/// A shard's links to the image stores.
fn store_clients(node: &Node, shard: ShardId) -> Vec<StoreClient> {
    let waker = node.shared.peers[shard].waker();
    let clients = node.stores.iter().map(|store| {
        let waker = Arc::clone(waker);
        store.client(Arc::new(move || waker.wake()))
    });
    clients.collect()
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
fn make_member(
    dir: &DataDir,
    stamp: &Stamp,
    shards: u16,
    view: &View,
) -> Result<Joined, StartError> {
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
