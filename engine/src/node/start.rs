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
use std::time::{Duration, Instant};

use ephesus_coordinator::scheduling::prefer_short_slices;
use ephesus_wal::{Durability, LogId, LogOptions, OnDamage};
use ephesus_wire::slot::PartitionCountError;
use ephesus_wire::{NodeId, Partitioning, ShardId};
use glommio::{LocalExecutorBuilder, Placement};

use super::environment::{self, Environment, EnvironmentError};
use super::process::SmallPages;
use super::rates::Rates;
use super::recovery::{RecoveredShard, Recovery, RecoveryError, first_layout};
use super::segment_thread;
use super::shared::{NodeShared, Ownership, Settings};
use super::stamp::{DataDir, DataDirError, Layout, Stamp};
use crate::image::{StoreError, StoreThread, open_stores};
use crate::keyspace::Keyspace;
use crate::net::{self, Waker};
use crate::shard::mesh::{Message, Peer};
use crate::shard::segments::Job;
use crate::shard::{Checkpointer, Core, Segments, Shard, Start};
use crate::table::KeyHasher;

/// sled Dbs of a new data directory.
const STORES: u16 = 4;

/// Smallest and largest log segment.
const SEGMENT_BYTES_MIN: u64 = 16 << 20;
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// Segments that a shard's budget is made of, at least.
const SEGMENTS_PER_SHARD: u64 = 8;

/// Memory that glommio registers for each executor's own file I/O.
const EXECUTOR_IO_BYTES: usize = 128 << 10;

const EXECUTOR_RING_DEPTH: usize = 128;

/// How often the node looks at its disk and at the length of its logs.
const MONITOR_EVERY: Duration = Duration::from_millis(100);

/// Free space that must remain for sled's own files.
const FREE_FLOOR_BYTES: u64 = 64 << 20;

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
    pub wal_budget: u64,
    pub name: String,
    pub max_clients: usize,
    pub on_damage: OnDamage,
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
    #[error("address {address} is in use")]
    AddressInUse { address: SocketAddr },
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    /// Clients could not be told of these ports: choose a lower `--listen` port.
    #[error(
        "--listen port {first}: {shards} shards need the ports up to {last}, which end at 65535"
    )]
    Ports { shards: u16, first: u32, last: u32 },
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
    data_dir: DataDir,
    segment_bytes: u64,
    executors: Vec<JoinHandle<()>>,
    stores: Vec<StoreThread>,
    running: Arc<AtomicUsize>,
    segment_jobs: flume::Sender<Job>,
    segment_thread: JoinHandle<()>,
    raised: bool,
    rates: Rates,
}

impl Node {
    /// Recovers the data directory and starts serving.
    ///
    /// # Errors
    /// [`StartError`]; nothing was changed that a later start would not expect.
    pub fn start(options: ServeOptions) -> Result<Node, StartError> {
        let environment = Environment::inspect()?;
        let shards = options
            .shards
            .unwrap_or_else(|| environment.cpus.min(256) as u16)
            .max(1);
        check_ports(options.listen, shards)?;
        let data_dir = DataDir::lock(&options.data_dir)?;
        let listeners = bind_all(options.listen, shards)?;
        for warning in environment.warnings(shards, options.max_clients) {
            tracing::warn!("{warning}");
        }
        let started = super::clock();
        let (stamp, is_new) = open_stamp(&data_dir, &options, shards)?;
        let layout = data_dir.layout()?;
        let partitioning = Partitioning::new(stamp.partitions)?;
        let small_pages = SmallPages::begin();
        let mut stores = open_stores(&data_dir.image_dir(), stamp.stores)?;
        let segment_bytes = (options.wal_budget / (SEGMENTS_PER_SHARD * u64::from(shards)))
            .clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
            & !4095;
        let hasher = KeyHasher::random();
        let budget = options.wal_budget / u64::from(shards);
        let log_options = LogOptions {
            durability: options.durability,
            segment_bytes,
            spare_segments: spare_segments(budget, segment_bytes),
            on_damage: options.on_damage,
            ..LogOptions::new(LogId::default())
        };
        let now_ms = crate::shard::wall_clock_ms();
        let recovery = Recovery::new(
            &data_dir,
            stamp.node,
            partitioning,
            &hasher,
            log_options,
            now_ms,
        );
        let (layout, recovered) = recovery.run(layout, shards, &mut stores)?;
        drop(small_pages);
        let recovery_ms = super::recovery::elapsed_ms(started);
        let sync_latency = environment::sync_latency(data_dir.path()).ok();
        let thread_error = |what| move |source| StartError::Thread { what, source };
        let stores = stores
            .into_iter()
            .map(|store| StoreThread::start(Box::new(store)))
            .collect::<io::Result<Vec<_>>>()
            .map_err(thread_error("an image store"))?;
        let (segment_jobs, segment_thread) =
            segment_thread::start().map_err(thread_error("the segment thread"))?;
        let mut inboxes = Vec::new();
        let mut peers = Vec::new();
        for _ in 0..shards {
            let waker = Arc::new(Waker::new().map_err(thread_error("a shard"))?);
            let (sender, receiver) = flume::unbounded();
            inboxes.push(receiver);
            peers.push(Peer::new(sender, waker));
        }
        let settings = settings(&options, shards, stamp.partitions);
        let ownership = Ownership::new(partitioning, layout.partitions.clone());
        let shared = Arc::new(NodeShared::new(stamp.node, settings, ownership, peers));
        let mut node = Node {
            shared,
            environment,
            recovery_ms,
            sync_latency,
            is_new,
            data_dir,
            segment_bytes,
            executors: Vec::new(),
            stores,
            running: Arc::new(AtomicUsize::new(0)),
            segment_jobs,
            segment_thread,
            raised: false,
            rates: Rates::default(),
        };
        let cpus = environment::allowed_cpus();
        let pin = options.pin && usize::from(shards) <= environment.cpus.min(cpus.len());
        for (((shard, recovered), inbox), listeners) in recovered
            .into_iter()
            .enumerate()
            .zip(inboxes)
            .zip(listeners)
        {
            let id = ShardId(shard as u16);
            let cpu = pin.then(|| cpus[shard % cpus.len()]);
            node.spawn(id, cpu, &layout, recovered, inbox, listeners, &hasher)?;
        }
        node.monitor();
        Ok(node)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what one shard is made of, used once"
    )]
    fn spawn(
        &mut self,
        id: ShardId,
        cpu: Option<usize>,
        layout: &Layout,
        recovered: RecoveredShard,
        inbox: flume::Receiver<Message>,
        listeners: (TcpListener, TcpListener),
        hasher: &KeyHasher,
    ) -> Result<(), StartError> {
        let shared = Arc::clone(&self.shared);
        let waker = Arc::clone(shared.peers[usize::from(id.0)].waker());
        let clients = self
            .stores
            .iter()
            .map(|store| {
                let waker = Arc::clone(&waker);
                store.client(Arc::new(move || waker.wake()))
            })
            .collect();
        let log_id = layout.log(id);
        let budget = shared.settings.wal_budget / u64::from(layout.shards());
        let checkpointer = Checkpointer::new(clients, log_id, budget);
        let log_dir = self.data_dir.log_dir(log_id);
        let partitioning = shared.ownership.partitioning();
        let durability = shared.settings.durability;
        let log_options = LogOptions {
            durability,
            segment_bytes: self.segment_bytes,
            ..LogOptions::new(log_id)
        };
        let hasher = hasher.clone();
        let running = Arc::clone(&self.running);
        let jobs = self.segment_jobs.clone();
        let (report, started) = mpsc::channel::<Result<(), String>>();
        let placement = cpu.map_or(Placement::Unbound, Placement::Fixed);
        let executor = LocalExecutorBuilder::new(placement)
            .name(&format!("shard-{id}"))
            .io_memory(EXECUTOR_IO_BYTES)
            .ring_depth(EXECUTOR_RING_DEPTH);
        let run = move || async move {
            prefer_short_slices();
            // The first sleep of an executor takes tens of milliseconds: not at a client's cost.
            glommio::timer::sleep(Duration::from_micros(1)).await;
            let RecoveredShard {
                partitions,
                writer,
                segment,
                wall_clock_ms,
            } = recovered;
            let keyspace = Keyspace::new(partitioning, partitions, hasher, writer, wall_clock_ms);
            let first = (segment.info.id, Box::new(segment.file) as Box<_>);
            let start = Start {
                core: Core::new(id, shared, keyspace),
                segments: Segments::new(
                    jobs,
                    log_dir,
                    log_options,
                    Arc::clone(&waker),
                    first,
                    checkpointer.keep_bytes(),
                ),
                checkpointer,
                inbox,
                waker,
                entry: listeners.0,
                direct: listeners.1,
            };
            match Shard::new(start) {
                Ok(shard) => {
                    running.fetch_add(1, Ordering::AcqRel);
                    let _ = report.send(Ok(()));
                    shard.run();
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
                    tracing::error!(shard = %id, %error, "no executor");
                    std::process::exit(1);
                }
            })
            .map_err(|source| StartError::Thread {
                what: "a shard",
                source,
            })?;
        self.executors.push(handle);
        match started.recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(StartError::Shard { shard: id, reason }),
            Err(_) => Err(StartError::Shard {
                shard: id,
                reason: "its thread ended".into(),
            }),
        }
    }

    /// Looks at free space and log lengths until `is_over` says so, or all shards have ended.
    pub fn supervise(&mut self, mut is_over: impl FnMut() -> bool) {
        while !is_over() && self.running.load(Ordering::Acquire) > 0 {
            std::thread::sleep(MONITOR_EVERY);
            self.monitor();
        }
    }

    fn monitor(&mut self) {
        let shared = &self.shared;
        #[expect(
            clippy::disallowed_methods,
            reason = "rates are for people, not for decisions"
        )]
        self.rates.sample(Instant::now(), &shared.stats);
        let segments = 2 * self.segment_bytes * u64::from(shared.shards());
        let largest_image = 2 * shared.memory_bytes()
            / u64::from(shared.ownership.partitioning().count())
            + FREE_FLOOR_BYTES;
        if let Some(free) = environment::free_bytes(self.data_dir.path()) {
            let is_full = free < segments + largest_image;
            if shared.set_disk_full(is_full) {
                if is_full {
                    tracing::warn!(
                        free,
                        floor = segments + largest_image,
                        "free space is below the floor: writes are refused, reads go on"
                    );
                } else {
                    tracing::info!(free, "free space is back: writes go on");
                }
            }
        }
        let is_urgent = shared.stats.iter().any(|s| s.images_urgent.get() != 0);
        if is_urgent != self.raised {
            self.raised = is_urgent;
            for store in &self.stores {
                if is_urgent {
                    store.raise()
                } else {
                    store.lower()
                }
            }
        }
    }

    /// Answers what was executed, makes it durable, and ends.
    pub fn stop(self) {
        for peer in &self.shared.peers {
            peer.send(Message::Stop);
        }
        for executor in self.executors {
            if executor.join().is_err() {
                tracing::error!("a shard ended in a panic");
            }
        }
        drop(self.segment_jobs);
        if self.segment_thread.join().is_err() {
            tracing::error!("the segment thread ended in a panic");
        }
        for store in self.stores {
            store.stop();
        }
    }
}

/// Segments to prepare ahead: fewer where they would be much of the shard's budget.
fn spare_segments(budget: u64, segment_bytes: u64) -> usize {
    match budget / segment_bytes {
        0..4 => 0,
        4..SEGMENTS_PER_SHARD => 1,
        SEGMENTS_PER_SHARD.. => 2,
    }
}

fn check_ports(listen: SocketAddr, shards: u16) -> Result<(), StartError> {
    let first = u32::from(listen.port());
    let last = first + u32::from(shards);
    if last > u32::from(u16::MAX) {
        return Err(StartError::Ports {
            shards,
            first,
            last,
        });
    }
    Ok(())
}

/// Binds every shard's two ports; the entry port once per shard.
fn bind_all(
    listen: SocketAddr,
    shards: u16,
) -> Result<Vec<(TcpListener, TcpListener)>, StartError> {
    let refuse = |address: SocketAddr| {
        move |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => StartError::AddressInUse { address },
            _ => StartError::Listen { address, source },
        }
    };
    for port in 0..=shards {
        let address = SocketAddr::new(listen.ip(), listen.port() + port);
        net::probe(address).map_err(refuse(address))?;
    }
    (1..=shards)
        .map(|port| {
            let direct = SocketAddr::new(listen.ip(), listen.port() + port);
            Ok((
                net::bind(listen).map_err(refuse(listen))?,
                net::bind(direct).map_err(refuse(direct))?,
            ))
        })
        .collect()
}

/// Reads the stamp, or makes the directory a new node's.
fn open_stamp(
    dir: &DataDir,
    options: &ServeOptions,
    shards: u16,
) -> Result<(Stamp, bool), StartError> {
    if let Some(stamp) = dir.stamp()? {
        return match options.partitions {
            Some(asked) if asked != stamp.partitions => Err(DataDirError::Partitions {
                found: stamp.partitions,
                asked,
            }
            .into()),
            _ => Ok((stamp, false)),
        };
    }
    let partitions = options.partitions.unwrap_or(PARTITIONS_DEFAULT);
    Partitioning::new(partitions)?;
    let id = || NodeId(*uuid::Uuid::new_v4().as_bytes());
    let stamp = Stamp {
        cluster: id(),
        node: id(),
        partitions,
        stores: STORES,
    };
    dir.initialize(&stamp, &first_layout(stamp.node, partitions, shards))?;
    Ok((stamp, true))
}

/// What shards and CONFIG GET need of the options.
fn settings(options: &ServeOptions, shards: u16, partitions: u16) -> Settings {
    let strict = options.durability == Durability::Strict;
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
        ("timeout", "0".to_owned()),
        ("wal-budget", options.wal_budget.to_string()),
    ];
    Settings {
        name: options.name.clone(),
        listen: options.listen,
        durability: options.durability,
        max_memory: options.max_memory,
        wal_budget: options.wal_budget,
        max_clients: options.max_clients,
        parameters,
    }
}
