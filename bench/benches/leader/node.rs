//! One simulated node: what `Agent` and `Moves` of a node say, without the data.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_coordinator::command::{Addresses, Nonce, Registration, StartProof};
use ephesus_coordinator::coordinator::SessionId;
use ephesus_coordinator::liveness::HEARTBEAT_MS;
use ephesus_coordinator::load::LoadReport;
use ephesus_coordinator::migration::{Confirmation, Phase, Step};
use ephesus_coordinator::protocol::{Heartbeat, Request, VERSIONS};
use ephesus_coordinator::report::Figures;
use ephesus_coordinator::state::{CAPACITY_DEFAULT, MemberStatus};
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId};

use super::nodes::SHARDS;

/// How long a partition is copied, ms.
const COPY_MS: u64 = 100;

/// Migrations of a node that are under way at a time.
const LEAVING_MAX: usize = 16;

/// What is not known to the leader is said again after so long, ms.
const REPEAT_MS: u64 = 500;

/// Where a migration is that leaves this node.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    Planned,
    Copying { since_ms: u64 },
}

pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) name: String,
    pub(super) session: SessionId,
    pub(super) is_alive: bool,
    /// The version of its table.
    pub(super) held: u64,
    is_joined: bool,
    status: Option<MemberStatus>,
    heartbeat_at_ms: u64,
    tell_at_ms: u64,
    pub(super) unconfirmed: BTreeSet<(PartitionId, Epoch)>,
    leaving: BTreeMap<MigrationId, Leaving>,
}

impl Node {
    /// The node of this number.
    pub(super) fn new(number: u16) -> Node {
        let mut id = [0; 16];
        id[..2].copy_from_slice(&number.to_be_bytes());
        id[15] = 1;
        Node {
            id: NodeId(id),
            name: format!("node-{number}"),
            session: SessionId(u64::from(number) + 1),
            is_alive: true,
            held: 0,
            is_joined: false,
            status: None,
            heartbeat_at_ms: 0,
            tell_at_ms: 0,
            unconfirmed: BTreeSet::new(),
            leaving: BTreeMap::new(),
        }
    }

    pub(super) fn registration(&self, number: u16) -> Request {
        let address = format!("10.0.{}.{}", number / 250, number % 250);
        let registration = Registration {
            node: self.id,
            cluster: None,
            name: self.name.clone(),
            incarnation: 1,
            addresses: Addresses {
                entry: format!("{address}:7379"),
                tls_port: None,
                peer: format!("{address}:17379"),
                rack: String::new(),
            },
            shards: SHARDS,
            capacity: CAPACITY_DEFAULT,
            speaks: VERSIONS,
        };
        let start = StartProof {
            previous: None,
            nonce: Nonce(self.id.0),
            accepts_old: false,
        };
        Request::RegisterStart {
            registration,
            start,
        }
    }

    /// It is a member; its heartbeats begin at some moment of their interval.
    pub(super) fn joined(&mut self, number: u16, now_ms: u64) {
        self.is_joined = true;
        self.heartbeat_at_ms = now_ms + u64::from(number) % HEARTBEAT_MS;
        self.tell_at_ms = now_ms;
    }

    pub(super) fn heard(&mut self, status: Option<MemberStatus>) {
        self.status = status;
    }

    /// It has a newer table.
    pub(super) fn has_table(&mut self, version: u64, now_ms: u64) {
        self.held = version;
        self.tell_at_ms = now_ms;
    }

    /// A migration of its own is new or another; none: over.
    pub(super) fn leaves(&mut self, id: MigrationId, phase: Option<&Phase>, now_ms: u64) {
        match phase {
            Some(Phase::Planned) => drop(self.leaving.insert(id, Leaving::Planned)),
            Some(Phase::Copying) => {
                let since_ms = now_ms;
                self.leaving.insert(id, Leaving::Copying { since_ms });
            }
            _ => drop(self.leaving.remove(&id)),
        }
    }

    /// Of a whole table: only these are left.
    pub(super) fn keep(&mut self, is_active: impl Fn(&MigrationId) -> bool) {
        self.leaving.retain(|id, _| is_active(id));
    }

    /// What it says now.
    pub(super) fn speak(&mut self, now_ms: u64) -> Vec<Request> {
        let mut said = Vec::new();
        if !self.is_alive || !self.is_joined {
            return said;
        }
        let (node, incarnation) = (self.id, 1);
        if now_ms >= self.heartbeat_at_ms {
            self.heartbeat_at_ms += HEARTBEAT_MS;
            let heartbeat = Heartbeat {
                node,
                incarnation,
                sent_ms: now_ms,
                table_version: self.held,
                acted_version: self.held,
                idle_ms: 0,
                is_sole: true,
                figures: Figures::default(),
            };
            said.push(Request::Heartbeat(heartbeat, LoadReport::default()));
        }
        if now_ms < self.tell_at_ms {
            return said;
        }
        self.tell_at_ms = now_ms + REPEAT_MS;
        if self.status != Some(MemberStatus::Live) {
            said.push(Request::Started { node, incarnation });
        }
        if !self.unconfirmed.is_empty() {
            let copies = self.unconfirmed.iter().copied().collect();
            said.push(Request::Hosting { node, copies });
        }
        let mut steps = Vec::new();
        for (id, leaving) in self.leaving.iter().take(LEAVING_MAX) {
            match leaving {
                Leaving::Planned => steps.push((*id, Step::Begin)),
                Leaving::Copying { since_ms } if now_ms >= since_ms + COPY_MS => {
                    let confirmed = vec![(*id, Confirmation::default())];
                    steps.push((*id, Step::Commit(confirmed)));
                }
                Leaving::Copying { since_ms } => {
                    self.tell_at_ms = self.tell_at_ms.min(since_ms + COPY_MS);
                }
            }
        }
        if !steps.is_empty() {
            said.push(Request::Steps {
                node,
                incarnation,
                steps,
            });
        }
        said
    }
}
