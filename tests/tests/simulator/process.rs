//! What simulated coordinators and nodes consist of.

use std::collections::BTreeMap;

use ephesus_coordinator::agent::{Agent, AgentEvent, AgentOptions, ConnectionId};
use ephesus_coordinator::command::{Addresses, ClusterId, Registration};
use ephesus_coordinator::coordinator::{Coordinator, Event, SessionId};
use ephesus_wal::FaultDisk;
use ephesus_wire::{Epoch, NodeId, PartitionId};

use crate::clock::Clock;

/// A coordinator's machine; the process may be dead.
pub(crate) struct CoordinatorProcess {
    pub(crate) address: String,
    pub(crate) disk: FaultDisk,
    pub(crate) clock: Clock,
    pub(crate) running: Option<Coordinator<FaultDisk>>,
    pub(crate) life: u64,
    pub(crate) is_founding: bool,
    /// Stopped until then; what arrives meanwhile waits.
    pub(crate) paused_until: u64,
    pub(crate) inbox: Vec<Event>,
}

/// A node's machine; the process may be dead.
pub(crate) struct NodeProcess {
    pub(crate) name: String,
    pub(crate) clock: Clock,
    pub(crate) running: Option<Agent>,
    pub(crate) life: u64,
    pub(crate) paused_until: u64,
    pub(crate) inbox: Vec<AgentEvent>,
    pub(crate) disk: NodeDisk,
}

/// What a node's data directory holds.
#[derive(Clone, Debug)]
pub(crate) struct NodeDisk {
    pub(crate) id: NodeId,
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) incarnation: u64,
    pub(crate) shards: u16,
    pub(crate) copies: BTreeMap<PartitionId, Epoch>,
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
        }
    }
}

impl NodeProcess {
    /// Begins a life with what is on the disk.
    pub(crate) fn start(&mut self, coordinators: Vec<String>, seed: u64) {
        self.life += 1;
        self.disk.incarnation += 1;
        self.inbox.clear();
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
            },
            coordinators,
            seed,
        }));
    }

    /// Hosts what the table gives to it.
    pub(crate) fn host(&mut self) {
        let Some(agent) = &mut self.running else {
            return;
        };
        let Some(view) = agent.view().cloned() else {
            return;
        };
        for (index, entry) in view.table.entries.iter().enumerate() {
            let partition = PartitionId(index as u16);
            match entry.primary() {
                Some(primary) if primary.node == self.disk.id => {
                    self.disk.copies.insert(partition, entry.epoch);
                }
                _ => drop(self.disk.copies.remove(&partition)),
            }
        }
        agent.set_hosted(self.disk.copies.clone());
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
