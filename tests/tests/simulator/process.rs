//! What simulated coordinators and nodes consist of.

use std::collections::BTreeMap;

use ephesus_coordinator::agent::{Agent, AgentEvent, AgentOptions, ConnectionId};
use ephesus_coordinator::command::{Addresses, ClusterId, Registration};
use ephesus_coordinator::coordinator::{Coordinator, Event, SessionId};
use ephesus_coordinator::migration::{Decision, MigrationTable};
use ephesus_coordinator::view::View;
use ephesus_wal::FaultDisk;
use ephesus_wire::handshake::Versions;
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId};

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
    /// What this life knows of the migrations it is the source of.
    pub(crate) carried: BTreeMap<MigrationId, Carried>,
}

/// How far a source is with a migration.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Carried {
    Beginning,
    Copying {
        until: u64,
    },
    /// It has said commit, and lets nobody write.
    Held {
        since: u64,
    },
    HeldTooLong,
    GivingUp,
}

/// One node's data of a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) epoch: Epoch,
    /// How many it has.
    pub(crate) writes: u64,
}

/// What a node's data directory holds.
#[derive(Clone, Debug)]
pub(crate) struct NodeDisk {
    pub(crate) id: NodeId,
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) incarnation: u64,
    pub(crate) shards: u16,
    pub(crate) copies: BTreeMap<PartitionId, Copy>,
    /// Copies that wait for the outcome of their migration, and how many writes they have.
    pub(crate) prepared: BTreeMap<MigrationId, (PartitionId, u64)>,
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
            prepared: BTreeMap::new(),
        }
    }

    /// Wipes the prepared copies of aborted migrations, and answers those of committed ones.
    pub(crate) fn settle(&mut self, migrations: &MigrationTable) -> BTreeMap<PartitionId, Copy> {
        let mut arrived = BTreeMap::new();
        self.prepared.retain(|id, (partition, writes)| {
            let decision = migrations.decision(*id, *partition);
            if decision == Decision::Committed {
                let copy = Copy {
                    epoch: migrations.arrivals[partition].epoch,
                    writes: *writes,
                };
                arrived.insert(*partition, copy);
            }
            decision == Decision::Open
        });
        arrived
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
        self.carried.clear();
        self.running = Some(Agent::new(AgentOptions {
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
    /// Partitions in which nobody may write, because their source has said commit.
    pub(crate) fn held(&self, view: &View) -> Vec<PartitionId> {
        let carried = self.carried.iter();
        let held =
            carried.filter(|(_, c)| matches!(c, Carried::Held { .. } | Carried::HeldTooLong));
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
