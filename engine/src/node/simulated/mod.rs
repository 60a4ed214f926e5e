//! A node's process under a simulated clock, for the simulator: what starts, decides, routes and executes is what a
//! [`Node`](super::Node) has. Threads, sockets, disks and the agent are left to whoever drives it.
//!
//! ```text
//! Process::start   Recovery, Plan::settle       the table of that moment
//! Process::turn    NodeMigrations, Layout, routes        the node's main thread
//! shard            Core, shard::ShardMigrations           each a thread of its own: see [`Shard`]
//! ```

mod disk;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ephesus_coordinator::agent::Pulse;
use ephesus_coordinator::lease::Lease;
use ephesus_coordinator::link::PeerStream;
use ephesus_coordinator::migration::{Progress, Step};
use ephesus_coordinator::view::View;
use ephesus_wal::{Durability, LogId, LogOptions};
use ephesus_wire::stream::Message;
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId, Partitioning, ShardId};

use super::data_dir::{Layout, StagingPlace};
use super::peers::Offer;
use super::recovery::{Plan, Recovery, RecoveryError};
use super::routes::Routes;
use super::running::{hosted, routes, send_routes, tell_shards};
use super::shared::{NodeShared, Settings};
use super::time::{NodeTime, WallClock};
use crate::migration::Batch;
use crate::migration::Report;
use crate::migration::node::{Event, NodeMigrations};
use crate::net::Waker;
use crate::planted::{Bug, Planted};
use crate::shard::mesh::Peer;
use crate::shard::simulated::{Answered, Arrived, Held, Sent, Shard};
use crate::table::KeyHasher;

pub use super::peers::Dial;
pub use disk::Disk;

/// What keys are hashed with.
const SEEDS: [u64; 4] = [1, 2, 3, 4];

/// One end of a connection between nodes: its number, and whether it is the end that has dialled.
pub type End = (u64, bool);

/// What has happened for the main thread.
#[derive(Debug)]
pub enum Happened {
    /// What became of a dial.
    Dialled(MigrationId, Result<u64, String>),
    /// A source has opened this connection.
    Offered(Batch, NodeId, u64),
    /// The layout of this number is durable.
    Written(u64),
}

/// What a turn of the main thread has led to.
#[derive(Debug, Default)]
pub struct Outcome {
    pub steps: Option<BTreeMap<MigrationId, Step>>,
    pub progress: Option<BTreeMap<MigrationId, Progress>>,
    pub hosted: Option<BTreeMap<PartitionId, Epoch>>,
    /// A layout to be written, and its number.
    pub layout: Option<(u64, Layout)>,
    pub dials: Vec<Dial>,
    /// Copies that begin empty.
    pub begun: Vec<(PartitionId, Epoch)>,
    /// Copies that were given up, and that are served by the decision about a move, as shards have reported.
    pub given_up: Vec<(PartitionId, Epoch)>,
    pub activated: Vec<(PartitionId, Epoch)>,
    /// Why ends of streams have given up.
    pub reasons: Vec<String>,
}

/// What a process is started with.
#[derive(Debug)]
pub struct Start {
    pub node: NodeId,
    pub shards: u16,
    pub port: u16,
    /// The table that knows of this start.
    pub view: Arc<View>,
    pub lease: Lease,
    /// When the simulation began.
    pub base: Instant,
    /// Wall clock, ms.
    pub wall_ms: u64,
    pub bug: Option<Bug>,
}

/// Why a node does not start.
#[derive(Debug)]
pub enum Refused {
    /// It has a copy that is not decided about: start with the number of shards that it had.
    Undecided,
    /// Anything else.
    Other(String),
}

/// A connection's end that this process has.
#[derive(Debug)]
struct Wire {
    end: End,
    /// Tells its descriptor from others that had the number before.
    inode: u64,
}

/// A node's process.
pub struct Process {
    shared: Arc<NodeShared>,
    base: Instant,
    disk: Disk,
    layout: Layout,
    view: Arc<View>,
    routes: Arc<Routes>,
    migrations: NodeMigrations,
    shards: Vec<Shard>,
    reports: flume::Receiver<Vec<Report>>,
    wires: BTreeMap<RawFd, Wire>,
    arrived: BTreeMap<RawFd, Arrived>,
    /// What came before the connection was known.
    early: BTreeMap<End, Arrived>,
    outgoing: Vec<(End, Sent)>,
}

impl Process {
    /// Recovers what is on the disk, and starts with the copies that the table gives to this node; answers also those
    /// that begin empty.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn start(
        disk: &Disk,
        start: Start,
    ) -> Result<(Process, Vec<(PartitionId, Epoch)>), Refused> {
        let Start {
            node, shards, view, ..
        } = start;
        let partitioning = Partitioning::new(view.options.partitions).expect("a valid number");
        let hasher = KeyHasher::with_seeds(SEEDS);
        let options = LogOptions {
            durability: Durability::Strict,
            segment_bytes: 64 << 10,
            group_bytes_max: 32 << 10,
            ..LogOptions::new(LogId::default())
        };
        let mut recovery = Recovery::new(disk, partitioning, &hasher, options, start.wall_ms);
        recovery.planted = Planted::new(start.bug);
        let found = disk.layout();
        let mut stores = disk.take_stores();
        let plan = Plan::of(&view.table, node, shards).with(view.migrations.clone());
        let replayed = recovery.replay_with(&Default::default(), &found, &mut stores);
        let opened = replayed
            .and_then(|replayed| recovery.open(found.clone(), &plan, replayed, &mut stores));
        disk.put_stores(stores);
        let (layout, recovered) = opened.map_err(|error| match error {
            RecoveryError::Undecided { .. } => Refused::Undecided,
            other => Refused::Other(other.to_string()),
        })?;
        // What was void is gone, and the copy that is there instead has begun empty; also instead of a staging copy of
        // this epoch, unless its migration has brought the partition.
        let was_here = |partition| {
            let served = found.served(partition);
            let staging = found.staging_of(partition);
            let arrival = view.migrations.arrivals.get(&partition);
            let has_arrived = |staging: &StagingPlace| {
                arrival.is_some_and(|arrival| arrival.migration == staging.source.migration)
            };
            served.is_some_and(|(_, epoch)| !view.migrations.is_void(partition, epoch))
                || staging.is_some_and(has_arrived)
        };
        let begun = layout
            .copies()
            .filter(|(partition, ..)| !was_here(*partition));
        let begun: Vec<_> = begun.map(|(id, _, epoch)| (id, epoch)).collect();
        let (inboxes, peers): (Vec<_>, Vec<_>) = (0..shards)
            .map(|_| {
                let (sender, inbox) = flume::unbounded();
                let waker = Arc::new(Waker::new().expect("an eventfd"));
                (inbox, Peer::new(sender, waker))
            })
            .unzip();
        let settings = settings(start.port);
        let time = NodeTime::start(WallClock::default(), 0);
        let mut shared = NodeShared::new(node, settings, partitioning, start.lease, peers, time);
        shared.started = start.base;
        let shared = Arc::new(shared);
        let first = Arc::new(routes(&shared, &layout, &view, |_| true, None));
        let (told, reports) = flume::unbounded();
        let shards = (0..).map(ShardId).zip(recovered).zip(inboxes);
        let shards = shards.map(|((id, recovered), inbox)| {
            Shard::new(
                (id, Arc::clone(&shared), Arc::clone(&first)),
                recovered,
                hasher.clone(),
                inbox,
                told.clone(),
                start.bug,
            )
        });
        let mut migrations =
            NodeMigrations::new(node, Arc::clone(&view), Arc::clone(&shared.partition_bytes));
        if let Some(bug) = start.bug {
            migrations.plant(bug);
        }
        let process = Process {
            base: start.base,
            disk: disk.clone(),
            migrations,
            shards: shards.collect(),
            shared,
            layout,
            view,
            routes: first,
            reports,
            wires: BTreeMap::new(),
            arrived: BTreeMap::new(),
            early: BTreeMap::new(),
            outgoing: Vec::new(),
        };
        Ok((process, begun))
    }

    /// The copies that are served, as the coordinators are told.
    #[must_use]
    pub fn hosted(&self) -> BTreeMap<PartitionId, Epoch> {
        hosted(&self.layout, &self.migrations)
    }

    /// What heartbeats tell of the shards.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.shared.lease.pulse()
    }

    /// Whether a turn has something to do now.
    #[must_use]
    pub fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Whether something is to be done when time has passed.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.migrations.is_waiting()
    }

    /// A turn of the main thread, with the newest of the tables that have come since the last one.
    pub fn turn(
        &mut self,
        happened: Vec<Happened>,
        newest: Option<Arc<View>>,
        now_ms: u64,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let mut events = Vec::new();
        for happened in happened {
            events.push(match happened {
                Happened::Dialled(batch, result) => {
                    let result = result.map(|connection| self.open((connection, true)));
                    Event::Dialled { batch, result }
                }
                Happened::Offered(batch, from, connection) => {
                    let stream = self.open((connection, false));
                    Event::Offered(Offer {
                        batch,
                        from,
                        stream,
                    })
                }
                Happened::Written(number) => Event::Written(number),
            });
        }
        for report in self.reports.try_iter().flatten() {
            match &report {
                Report::Dropped { partition, epoch } => outcome.given_up.push((*partition, *epoch)),
                Report::Activated { partition, epoch } => {
                    outcome.activated.push((*partition, *epoch));
                }
                Report::RolledBack { reason, .. } | Report::Wiped { reason, .. } => {
                    outcome.reasons.push(reason.clone());
                }
                _ => {}
            }
            events.push(Event::Report(report));
        }
        if let Some(view) = newest {
            self.view = Arc::clone(&view);
            events.push(Event::Table(view));
        }
        let effects = self.migrations.turn(events, &mut self.layout, now_ms);
        let begun = effects.begun.iter();
        outcome.begun = begun.map(|(id, _, epoch)| (*id, *epoch)).collect();
        (outcome.steps, outcome.progress) = (effects.steps, effects.progress);
        tell_shards(&self.shared, effects.begun, effects.orders);
        if effects.routes {
            let is_begun = |partition| self.migrations.is_begun(partition);
            let before = Some(&*self.routes);
            let routes = routes(&self.shared, &self.layout, &self.view, is_begun, before);
            self.routes = send_routes(&self.shared, routes);
        }
        let layout = effects.layout;
        outcome.layout = layout.map(|number| (number, self.layout.clone()));
        outcome.hosted = effects.hosted.then(|| self.hosted());
        outcome.dials = effects.dials;
        for (offer, reason) in effects.refusals {
            self.refuse(&offer, &reason);
        }
        self.note_closed();
        outcome
    }

    /// A descriptor that stands for an end of a connection.
    fn open(&mut self, end: End) -> PeerStream {
        // SAFETY: the result is checked before it becomes an owned descriptor.
        let stream = unsafe {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0, "a socket");
            TcpStream::from_raw_fd(fd)
        };
        let fd = stream.as_raw_fd();
        let inode = inode(fd).expect("it is open");
        if let Some(closed) = self.wires.insert(fd, Wire { end, inode }) {
            self.outgoing.push((closed.end, Sent::End));
        }
        let early = self.early.remove(&end).unwrap_or_default();
        self.arrived.insert(fd, early);
        stream.into()
    }

    fn refuse(&mut self, offer: &Offer, reason: &str) {
        let mut bytes = Vec::new();
        Message::Refused(reason).encode(offer.batch.id(), 0, &mut bytes);
        if let Some(wire) = self.wires.get(&offer.stream.as_raw_fd()) {
            self.outgoing.push((wire.end, Sent::Bytes(bytes)));
        }
    }

    /// Lets the other ends know of connections that are closed here.
    fn note_closed(&mut self) {
        let wires = self.wires.iter();
        let closed = wires.filter(|(fd, wire)| inode(**fd) != Some(wire.inode));
        let closed: Vec<RawFd> = closed.map(|(fd, _)| *fd).collect();
        for fd in closed {
            self.arrived.remove(&fd);
            if let Some(wire) = self.wires.remove(&fd) {
                self.outgoing.push((wire.end, Sent::End));
            }
        }
    }

    /// Something has come for an end of a connection.
    pub fn arrive(&mut self, end: End, sent: Sent) {
        let mut wires = self.wires.iter();
        let fd = wires.find(|(_, wire)| wire.end == end).map(|(fd, _)| *fd);
        let arrived = match fd {
            Some(fd) => self.arrived.entry(fd).or_default(),
            None => self.early.entry(end).or_default(),
        };
        match sent {
            Sent::Bytes(bytes) => arrived.bytes.extend(bytes),
            Sent::End => arrived.is_ended = true,
        }
    }

    /// What was sent since the last call.
    pub fn take_sent(&mut self) -> Vec<(End, Sent)> {
        std::mem::take(&mut self.outgoing)
    }

    /// How many shards it has.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    pub fn shard(&mut self, shard: usize) -> &mut Shard {
        &mut self.shards[shard]
    }

    /// Whether a shard has something to do now.
    #[must_use]
    pub fn has_work(&self, shard: usize) -> bool {
        self.shards[shard].has_work()
    }

    /// When a shard has something to do although nothing happens, ms since the simulation began.
    #[must_use]
    pub fn next_turn_ms(&self, shard: usize) -> Option<u64> {
        let shard = &self.shards[shard];
        let look = shard.next_look(self.base);
        look.into_iter().chain(shard.next_written()).min()
    }

    /// The first part of a shard's turn.
    pub fn begin(&mut self, shard: usize, now_ms: u64, wall_ms: u64) {
        let now = self.base + Duration::from_millis(now_ms);
        self.shards[shard].begin(now, now_ms, wall_ms);
    }

    /// The second one.
    pub fn execute(&mut self, shard: usize) {
        let disk = &self.disk;
        let mut remove = |partition, epoch| disk.drop_images(partition, epoch);
        self.shards[shard].execute(&mut self.arrived, &mut remove);
    }

    /// The last one.
    pub fn finish(&mut self, shard: usize, delay_ms: impl FnMut() -> u64) -> Vec<Answered> {
        let answers = self.shards[shard].finish(delay_ms);
        for (fd, sent) in self.shards[shard].take_sent() {
            if let Some(wire) = self.wires.get(&fd) {
                self.outgoing.push((wire.end, sent));
            }
        }
        self.note_closed();
        answers
    }

    /// What is here of partitions.
    pub fn copies(&self) -> impl Iterator<Item = (PartitionId, Held)> + '_ {
        self.shards.iter().flat_map(Shard::copies)
    }
}

/// Which file a descriptor is of.
fn inode(fd: RawFd) -> Option<u64> {
    // SAFETY: all zeroes are a valid value, which the call overwrites.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &raw mut stat) == 0).then_some(stat.st_ino)
    }
}

fn settings(port: u16) -> Settings {
    Settings {
        name: "simulated".into(),
        listen: SocketAddr::from(([127, 0, 0, 1], port)),
        announce_host: None,
        durability: Durability::Strict,
        max_memory: 0,
        wal_budget: 1 << 30,
        max_clients: 1_000,
        databases: crate::keyspace::databases::DEFAULT,
        max_client_memory: 1 << 30,
        lua_time_limit: std::time::Duration::from_secs(1),
        debug_command: crate::node::shared::DebugCommand::No,
        allow_slot_commands: false,
        events: crate::keyspace::events::EventClasses::default(),
        client_timeout_output: Duration::from_secs(60),
        parameters: Vec::new(),
    }
}
