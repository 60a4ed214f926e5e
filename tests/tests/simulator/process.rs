//! What simulated coordinators and nodes consist of.

use std::collections::BTreeMap;

use ephesus_coordinator::agent::{Agent, AgentEvent, AgentOptions, ConnectionId};
use ephesus_coordinator::command::{Addresses, ClusterId, Registration};
use ephesus_coordinator::coordinator::{Coordinator, Event, SessionId};
use ephesus_coordinator::view::View;
use ephesus_wal::FaultDisk;
use ephesus_wire::handshake::Versions;
use ephesus_wire::{MigrationId, NodeId, PartitionId};

use crate::clock::Clock;
use crate::migration::{Copy, Source, Staging, Write};

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
    /// What this life knows of the migrations it is the source of.
    pub(crate) sources: BTreeMap<MigrationId, Source>,
    /// Commands that have arrived and wait to be executed.
    pub(crate) commands: Vec<(PartitionId, Write)>,
}

/// What a node's data directory holds.
#[derive(Debug)]
pub(crate) struct NodeDisk {
    pub(crate) id: NodeId,
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) incarnation: u64,
    pub(crate) shards: u16,
    pub(crate) copies: BTreeMap<PartitionId, Copy>,
    /// Copies that are being made, or wait for the outcome of their migration.
    pub(crate) staging: BTreeMap<MigrationId, Staging>,
}

impl NodeDisk {
    pub(crate) fn empty(id: u64, shards: u16) -> NodeDisk {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&id.to_be_bytes());
        NodeDisk {
            id: NodeId(bytes),
            cluster: None,
            incarnation: 0,
            shards,
            copies: BTreeMap::new(),
            staging: BTreeMap::new(),
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
        self.sources.clear();
        self.commands.clear();
        self.running = Some(Agent::new(AgentOptions {
            start: None,
            registration: Registration {
                node: self.disk.id,
                cluster: self.disk.cluster,
                name: self.name.clone(),
                incarnation: self.disk.incarnation,
                addresses: Addresses {
                    entry: format!("{}:7379", self.name),
                    peer: format!("{}:17379", self.name),
                },
                shards: self.disk.shards,
                capacity: self.capacity,
                speaks: versions(self.speaks),
            },
            coordinators,
            seed,
        }));
    }
}

impl NodeProcess {
    /// Partitions in which nobody may write, because their source holds.
    pub(crate) fn held(&self, view: &View) -> Vec<PartitionId> {
        let held = self.sources.iter().filter(|(_, source)| source.holds());
        let active = &view.migrations.active;
        held.filter_map(|(id, _)| Some(active.get(id)?.partition))
            .collect()
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
