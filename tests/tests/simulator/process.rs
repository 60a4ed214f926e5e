//! What simulated coordinators and nodes consist of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ephesus_coordinator::agent::{Agent, AgentEvent, AgentOptions, ConnectionId};
use ephesus_coordinator::command::{Addresses, ClusterId, Registration};
use ephesus_coordinator::coordinator::{Coordinator, Event, SessionId};
use ephesus_coordinator::lease::Lease;
use ephesus_coordinator::view::View;
use ephesus_engine::node::simulated::{Disk, Happened, Process};
use ephesus_wal::FaultDisk;
use ephesus_wire::handshake::Versions;
use ephesus_wire::{Epoch, NodeId, PartitionId};

use crate::clock::Clock;

/// A coordinator's machine; the process may be dead.
pub(crate) struct CoordinatorProcess {
    pub(crate) address: String,
    pub(crate) disk: FaultDisk,
    /// The newest protocol that it speaks from its next start on.
    pub(crate) speaks: u16,
    /// The lives of others that have introduced themselves to this one.
    pub(crate) introduced: BTreeMap<u64, u64>,
    pub(crate) clock: Clock,
    pub(crate) running: Option<Coordinator<FaultDisk>>,
    pub(crate) life: u64,
    pub(crate) is_founding: bool,
    /// Stopped until then; what arrives meanwhile waits.
    pub(crate) paused_until: u64,
    pub(crate) inbox: Vec<Event>,
}

impl CoordinatorProcess {
    /// The last entry of its log, decided or not; 0: it does not run.
    pub(crate) fn last_entry(&self) -> u64 {
        let running = self.running.as_ref();
        running.map_or(0, |coordinator| coordinator.member().last_entry())
    }
}

/// A node's machine; the process may be dead.
pub(crate) struct NodeProcess {
    pub(crate) name: String,
    pub(crate) clock: Clock,
    pub(crate) running: Option<Agent>,
    pub(crate) life: u64,
    /// What each of its shards can take, per cent.
    pub(crate) capacity: u32,
    /// As a coordinator's.
    pub(crate) speaks: u16,
    pub(crate) paused_until: u64,
    pub(crate) inbox: Vec<AgentEvent>,
    pub(crate) disk: NodeDisk,
    /// What serves, once it has recovered and a table knows of this life.
    pub(crate) process: Option<Process>,
    pub(crate) is_recovered: bool,
    /// The table that the main thread has.
    pub(crate) newest: Option<Arc<View>>,
    /// The main thread has not had a turn yet.
    pub(crate) is_first_table: bool,
    /// What the main thread has not looked at.
    pub(crate) happened: Vec<Happened>,
    /// When the threads have their next turns, ms.
    pub(crate) main_at: Option<u64>,
    pub(crate) shard_at: Vec<Option<u64>>,
    pub(crate) phases: Vec<Phase>,
    /// When the last layout is durable, ms.
    pub(crate) layout_at: u64,
    /// Until when the lease lasts, and what the clock shows when that is looked at, ms.
    pub(crate) lease_until: Arc<AtomicU64>,
    pub(crate) lease_clock: Arc<AtomicU64>,
    /// Copies that commands would be executed on, with a lease.
    pub(crate) executing: BTreeMap<PartitionId, Epoch>,
    /// Copies that have begun empty; and those in which all keys are written, and after which record.
    pub(crate) to_fill: Vec<(PartitionId, Epoch)>,
    pub(crate) filling: Vec<(usize, PartitionId, u64)>,
    /// Whether a start may be refused for what is on the disk, and why it was.
    pub(crate) may_be_refused: bool,
    pub(crate) refused: Option<String>,
}

/// How far a shard's turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Begin,
    Execute,
    Finish,
}

impl Phase {
    pub(crate) fn next(self) -> Phase {
        match self {
            Phase::Begin => Phase::Execute,
            Phase::Execute => Phase::Finish,
            Phase::Finish => Phase::Begin,
        }
    }
}

/// A connection between nodes.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    /// Who has dialled, and who was dialled, each with its life.
    pub(crate) ends: [(usize, u64); 2],
    /// When the last message towards each end arrives.
    pub(crate) arrives: [u64; 2],
    pub(crate) is_broken: bool,
}

/// What a node's data directory holds.
#[derive(Debug)]
pub(crate) struct NodeDisk {
    pub(crate) id: NodeId,
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) incarnation: u64,
    pub(crate) shards: u16,
    pub(crate) dir: Disk,
}

impl NodeDisk {
    pub(crate) fn empty(id: u64, partitions: u16, shards: u16) -> NodeDisk {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&id.to_be_bytes());
        NodeDisk {
            id: NodeId(bytes),
            cluster: None,
            incarnation: 0,
            shards,
            dir: Disk::new(id, partitions, shards),
        }
    }
}

/// What a release speaks: its own protocol and the one before.
pub(crate) fn versions(newest: u16) -> Versions {
    Versions {
        min: newest.saturating_sub(1).max(1),
        max: newest,
    }
}

impl NodeProcess {
    /// Begins a life with what is on the disk.
    pub(crate) fn start(&mut self, coordinators: Vec<String>, seed: u64) {
        self.life += 1;
        self.disk.incarnation += 1;
        self.inbox.clear();
        self.is_recovered = false;
        self.is_first_table = true;
        self.newest = None;
        self.layout_at = 0;
        self.lease_until = Arc::default();
        self.lease_clock = Arc::default();
        self.running = Some(Agent::new(AgentOptions {
            start: None,
            registration: Registration {
                node: self.disk.id,
                cluster: self.disk.cluster,
                name: self.name.clone(),
                incarnation: self.disk.incarnation,
                addresses: Addresses {
                    entry: format!("{}:7379", self.name),
                    tls_port: None,
                    peer: format!("{}:17379", self.name),
                    rack: String::new(),
                },
                shards: self.disk.shards,
                capacity: self.capacity,
                speaks: versions(self.speaks),
            },
            coordinators,
            seed,
            // A machine has one directory, which one process has.
            is_sole: true,
        }));
    }
}

impl NodeProcess {
    /// What the process serves by.
    pub(crate) fn lease(&self) -> Lease {
        let (until, clock) = (&self.lease_until, &self.lease_clock);
        Lease::simulated(self.disk.shards, Arc::clone(until), Arc::clone(clock))
    }
}

/// One connection of a node to a coordinator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) node: usize,
    pub(crate) node_life: u64,
    pub(crate) connection: ConnectionId,
    pub(crate) coordinator: u64,
    pub(crate) coordinator_life: u64,
}
