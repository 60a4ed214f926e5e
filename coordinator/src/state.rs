//! The coordinator's state machine: members and the partition table, derived from the replicated log.
//!
//! [`State::apply`] is deterministic: it knows no clock, no randomness and no I/O, and every map is
//! ordered, so every member that applies the same log has the same bytes.
//!
//! ```text
//! node        (none) -> starting -> live <-> failed -> (removed)
//! partition   unassigned -> assigned -> online
//! ```
//!
//! 1. A partition's epoch never decreases, and grows with every change of node or shard.
//! 2. Every partition but an unassigned one has one primary, on a member.
//! 3. The version grows exactly when something that nodes or clients see has changed.
//! 4. A node whose UUID was removed never comes back: its data may be older than what replaced it.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wire::table::{PartitionEntry, PartitionStatus, PartitionTable, Replica, Role};
use ephesus_wire::{Epoch, NodeId, PartitionId, Partitioning, ShardId};
use serde::{Deserialize, Serialize};

use crate::command::{
    Addresses, ClusterId, ClusterOptions, Command, CoordinatorChange, RaftId, Registration,
};
use crate::placement::{self, Place};

mod refusal;
mod registration;

use registration::check_address;

pub use refusal::{Refusal, SnapshotError};

/// Longest name of a node, bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Longest address of a node or coordinator, bytes.
pub const ADDRESS_BYTES_MAX: usize = 256;

/// Default of [`ClusterOptions::heartbeat_timeout_ms`].
pub const HEARTBEAT_TIMEOUT_MS: u32 = 2_000;

/// Its bounds: a lease, which is half of it, has to outlive a few heartbeats.
pub const HEARTBEAT_TIMEOUT_MS_MIN: u32 = 1_000;
pub const HEARTBEAT_TIMEOUT_MS_MAX: u32 = 600_000;

/// Most coordinators of a cluster: one more than the largest core, while one is replaced.
pub const COORDINATORS_MAX: usize = 6;

/// Version of the snapshot's layout.
const SNAPSHOT_FORMAT: u8 = 1;

/// Where a member is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemberStatus {
    /// Recovers its data; not failed, and not serving yet.
    Starting,
    /// Serves what it owns.
    Live,
    /// Was not heard of for the heartbeat timeout; keeps what it owns.
    Failed,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// What people call it.
    pub name: String,
    /// Its newest start.
    pub incarnation: u64,
    /// Where it can be reached.
    pub addresses: Addresses,
    /// Its shards.
    pub shards: u16,
    /// Where it is in its life.
    pub status: MemberStatus,
}

/// What a command has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Members that are new, changed or gone.
    pub members: BTreeSet<NodeId>,
    /// Partitions whose entry has changed.
    pub partitions: BTreeSet<PartitionId>,
    /// Whether the coordinators are others.
    pub coordinators: bool,
}

impl Effects {
    /// Whether nothing has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.partitions.is_empty() && !self.coordinators
    }
}

/// Everything the coordinator has decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    cluster: Option<(ClusterId, ClusterOptions)>,
    members: BTreeMap<NodeId, Member>,
    /// UUIDs that must not come back.
    removed: BTreeSet<NodeId>,
    coordinators: BTreeMap<RaftId, String>,
    /// The largest number a coordinator ever had.
    coordinator_id_max: RaftId,
    table: PartitionTable,
}

impl Default for State {
    fn default() -> State {
        State {
            cluster: None,
            members: BTreeMap::new(),
            removed: BTreeSet::new(),
            coordinators: BTreeMap::new(),
            coordinator_id_max: RaftId(0),
            table: PartitionTable {
                version: 0,
                entries: Vec::new(),
            },
        }
    }
}

impl State {
    /// Everything, as bytes; equal states have equal bytes.
    ///
    /// Layout: one byte, the format ([`SNAPSHOT_FORMAT`]), then the state in postcard's encoding.
    #[must_use]
    pub fn to_snapshot(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![SNAPSHOT_FORMAT]).expect("a state of ordered maps encodes")
    }

    /// The state that [`State::to_snapshot`] was called on.
    ///
    /// # Errors
    /// [`SnapshotError`]; the bytes are not such a snapshot.
    pub fn from_snapshot(bytes: &[u8]) -> Result<State, SnapshotError> {
        let (&format, body) = bytes.split_first().ok_or(SnapshotError::Damaged)?;
        if format != SNAPSHOT_FORMAT {
            return Err(SnapshotError::Format(format));
        }
        let (state, rest) = postcard::take_from_bytes::<State>(body)?;
        let consistent = match state.cluster {
            Some((_, options)) => state.table.entries.len() == usize::from(options.partitions),
            None => state.table.entries.is_empty() && state.members.is_empty(),
        };
        if !rest.is_empty() || !consistent {
            return Err(SnapshotError::Damaged);
        }
        Ok(state)
    }

    /// The cluster, once it was bootstrapped.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster.map(|(cluster, _)| cluster)
    }

    /// How the cluster is laid out.
    #[must_use]
    pub fn options(&self) -> Option<ClusterOptions> {
        self.cluster.map(|(_, options)| options)
    }

    /// The members by UUID.
    #[must_use]
    pub fn members(&self) -> &BTreeMap<NodeId, Member> {
        &self.members
    }

    /// Who owns what; its version is that of the whole state.
    #[must_use]
    pub fn table(&self) -> &PartitionTable {
        &self.table
    }

    /// Where the coordinators are reached.
    #[must_use]
    pub fn coordinators(&self) -> &BTreeMap<RaftId, String> {
        &self.coordinators
    }

    /// The number that the next coordinator gets.
    #[must_use]
    pub fn next_coordinator(&self) -> RaftId {
        RaftId(self.coordinator_id_max.0 + 1)
    }

    /// The partitions of a node, ascending.
    pub fn owned(&self, node: NodeId) -> impl Iterator<Item = PartitionId> + '_ {
        let entries = self.table.entries.iter().enumerate();
        let owned = entries.filter(move |(_, entry)| owner(entry) == Some(node));
        owned.map(|(index, _)| PartitionId(index as u16))
    }

    /// Those of `copies` that the node owns, and has not confirmed yet.
    #[must_use]
    pub fn unconfirmed(
        &self,
        node: NodeId,
        copies: &[(PartitionId, Epoch)],
    ) -> Vec<(PartitionId, Epoch)> {
        let is_unconfirmed = |(partition, epoch): &&(PartitionId, Epoch)| {
            self.table.entry(*partition).is_some_and(|entry| {
                let is_current = owner(entry) == Some(node) && entry.epoch == *epoch;
                is_current && entry.status == PartitionStatus::Assigned
            })
        };
        let copies: BTreeSet<_> = copies.iter().filter(is_unconfirmed).copied().collect();
        copies.into_iter().collect()
    }

    /// Whether registering would change nothing.
    #[must_use]
    pub fn is_registered(&self, from: &Registration) -> bool {
        self.members.get(&from.node).is_some_and(|member| {
            let status = member.status;
            is_up(member) && *member == from.member(status)
        })
    }

    /// How many nodes the first assignment still waits for; 0 once it was made.
    #[must_use]
    pub fn missing_nodes(&self) -> u16 {
        let Some(options) = self.options() else {
            return 0;
        };
        if self.is_assigned() {
            return 0;
        }
        let ready = self.members.values().filter(|m| is_up(m)).count();
        options.min_nodes.saturating_sub(ready as u16)
    }

    fn is_assigned(&self) -> bool {
        let mut entries = self.table.entries.iter();
        entries.any(|entry| entry.status != PartitionStatus::Unassigned)
    }

    /// Carries a command out.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was changed, and every member refuses alike.
    pub fn apply(&mut self, command: &Command) -> Result<Effects, Refusal> {
        let effects = match command {
            Command::Bootstrap {
                cluster,
                options,
                coordinators,
            } => self.bootstrap(*cluster, *options, coordinators)?,
            Command::Register(registration) => self.register(registration)?,
            Command::Started { node, incarnation } => {
                self.set_status(*node, *incarnation, MemberStatus::Live)?
            }
            Command::Hosting { node, copies } => self.hosting(*node, copies)?,
            Command::Fail { node, incarnation } => {
                self.set_status(*node, *incarnation, MemberStatus::Failed)?
            }
            Command::Remove { node, lose_data } => self.remove(*node, *lose_data)?,
        };
        Ok(self.seen(effects))
    }

    /// Carries a change of coordinators out; without effects, raft's voters stay as they are, too.
    ///
    /// # Errors
    /// As [`State::apply`].
    pub fn change_coordinators(&mut self, change: &CoordinatorChange) -> Result<Effects, Refusal> {
        if self.cluster.is_none() {
            return Err(Refusal::NotBootstrapped);
        }
        let mut effects = Effects::default();
        match change {
            CoordinatorChange::Add { id, address } => {
                check_address(address)?;
                if self.coordinators.get(id) == Some(address) {
                    return Ok(effects);
                }
                let mut others = self.coordinators.iter();
                if let Some((owner, _)) = others.find(|(_, taken)| *taken == address) {
                    return Err(Refusal::AddressTaken(*owner));
                }
                let used = self.coordinator_id_max;
                if *id <= used {
                    return Err(Refusal::CoordinatorId { found: *id, used });
                }
                if self.coordinators.len() >= COORDINATORS_MAX {
                    return Err(Refusal::TooManyCoordinators);
                }
                self.coordinators.insert(*id, address.clone());
                self.coordinator_id_max = *id;
            }
            CoordinatorChange::Remove { id } => {
                if !self.coordinators.contains_key(id) {
                    let is_gone = id.0 > 0 && *id <= self.coordinator_id_max;
                    return if is_gone {
                        Ok(effects)
                    } else {
                        Err(Refusal::UnknownCoordinator(*id))
                    };
                }
                if self.coordinators.len() == 1 {
                    return Err(Refusal::LastCoordinator(*id));
                }
                self.coordinators.remove(id);
            }
        }
        effects.coordinators = true;
        Ok(self.seen(effects))
    }

    fn seen(&mut self, effects: Effects) -> Effects {
        if !effects.is_empty() {
            self.table.version += 1;
        }
        effects
    }

    fn bootstrap(
        &mut self,
        cluster: ClusterId,
        options: ClusterOptions,
        coordinators: &BTreeMap<RaftId, String>,
    ) -> Result<Effects, Refusal> {
        if let Some((current, _)) = self.cluster {
            return if current == cluster {
                Ok(Effects::default())
            } else {
                Err(Refusal::OtherCluster(current))
            };
        }
        let partitioning = Partitioning::new(options.partitions)
            .map_err(|_| Refusal::Partitions(options.partitions))?;
        let timeout_ms = options.heartbeat_timeout_ms;
        if !(HEARTBEAT_TIMEOUT_MS_MIN..=HEARTBEAT_TIMEOUT_MS_MAX).contains(&timeout_ms) {
            return Err(Refusal::HeartbeatTimeout(timeout_ms));
        }
        self.table.entries = PartitionTable::unassigned(partitioning).entries;
        self.cluster = Some((cluster, options));
        self.coordinators = coordinators.clone();
        self.coordinator_id_max = coordinators.keys().next_back().copied().unwrap_or_default();
        Ok(Effects {
            partitions: partitioning.partitions().collect(),
            coordinators: true,
            ..Effects::default()
        })
    }

    /// Whether a node may register now.
    ///
    /// # Errors
    /// [`Refusal`]: what [`State::apply`] would answer.
    pub fn admit(&self, from: &Registration) -> Result<(), Refusal> {
        let Some((cluster, _)) = self.cluster else {
            return Err(Refusal::NotBootstrapped);
        };
        if from.cluster.is_some_and(|of| of != cluster) {
            return Err(Refusal::OtherCluster(cluster));
        }
        if self.removed.contains(&from.node) {
            return Err(Refusal::Removed(from.node));
        }
        from.check()?;
        let current = self.members.get(&from.node).map_or(0, |m| m.incarnation);
        if current > from.incarnation {
            return Err(Refusal::Stale {
                node: from.node,
                found: from.incarnation,
                current,
            });
        }
        let mut others = self.members.iter().filter(|(id, _)| **id != from.node);
        if let Some((owner, _)) = others.find(|(_, m)| m.name == from.name && is_up(m)) {
            return Err(Refusal::NameTaken {
                name: from.name.clone(),
                owner: *owner,
            });
        }
        Ok(())
    }

    fn register(&mut self, from: &Registration) -> Result<Effects, Refusal> {
        self.admit(from)?;
        let mut effects = Effects::default();
        let member = from.member(MemberStatus::Starting);
        match self.members.get_mut(&from.node) {
            Some(current) => {
                // Said again by the same start: whether it serves is known already, unless it had
                // been given up.
                let is_repeated = current.incarnation == from.incarnation && is_up(current);
                let status = if is_repeated {
                    current.status
                } else {
                    MemberStatus::Starting
                };
                let member = Member { status, ..member };
                if *current != member {
                    let had_shards = current.shards;
                    *current = member;
                    effects.members.insert(from.node);
                    if had_shards != from.shards {
                        effects.partitions = self.spread(from.node, from.shards);
                    }
                }
            }
            None => {
                self.members.insert(from.node, member);
                effects.members.insert(from.node);
            }
        }
        effects.partitions.extend(self.assign_if_ready());
        Ok(effects)
    }

    fn member(&mut self, node: NodeId, incarnation: u64) -> Result<&mut Member, Refusal> {
        let member = self.members.get_mut(&node).ok_or(Refusal::Unknown(node))?;
        if member.incarnation != incarnation {
            return Err(Refusal::Stale {
                node,
                found: incarnation,
                current: member.incarnation,
            });
        }
        Ok(member)
    }

    fn set_status(
        &mut self,
        node: NodeId,
        incarnation: u64,
        status: MemberStatus,
    ) -> Result<Effects, Refusal> {
        let member = self.member(node, incarnation)?;
        let mut effects = Effects::default();
        if member.status != status {
            member.status = status;
            effects.members.insert(node);
        }
        Ok(effects)
    }

    fn hosting(
        &mut self,
        node: NodeId,
        copies: &[(PartitionId, Epoch)],
    ) -> Result<Effects, Refusal> {
        if !self.members.contains_key(&node) {
            return Err(Refusal::Unknown(node));
        }
        let mut effects = Effects::default();
        for &(partition, epoch) in copies {
            let Some(entry) = self.table.entries.get_mut(usize::from(partition.0)) else {
                continue;
            };
            let is_current = owner(entry) == Some(node) && entry.epoch == epoch;
            if is_current && entry.status == PartitionStatus::Assigned {
                entry.status = PartitionStatus::Online;
                effects.partitions.insert(partition);
            }
        }
        Ok(effects)
    }

    fn remove(&mut self, node: NodeId, lose_data: bool) -> Result<Effects, Refusal> {
        if self.removed.contains(&node) {
            return Ok(Effects::default());
        }
        let member = self.members.get(&node).ok_or(Refusal::Unknown(node))?;
        let owned: Vec<PartitionId> = self.owned(node).collect();
        if !owned.is_empty() && !lose_data {
            return Err(Refusal::OwnsPartitions {
                node,
                partitions: owned.len(),
            });
        }
        if !owned.is_empty() && is_up(member) {
            return Err(Refusal::NotFailed(node));
        }
        self.members.remove(&node);
        self.removed.insert(node);
        let mut effects = Effects {
            members: BTreeSet::from([node]),
            partitions: owned.iter().copied().collect(),
            coordinators: false,
        };
        for partition in owned {
            let entry = &mut self.table.entries[usize::from(partition.0)];
            entry.status = PartitionStatus::Unassigned;
            entry.replicas.clear();
        }
        effects.partitions.extend(self.assign_if_ready());
        Ok(effects)
    }

    /// Gives every partition without an owner one, if there are enough nodes.
    fn assign_if_ready(&mut self) -> BTreeSet<PartitionId> {
        let Some((_, options)) = self.cluster else {
            return BTreeSet::new();
        };
        let orphans: Vec<usize> = (0..self.table.entries.len())
            .filter(|&index| self.table.entries[index].replicas.is_empty())
            .collect();
        let up = self.members.iter().filter(|(_, member)| is_up(member));
        let places: Vec<Place> = up
            .clone()
            .flat_map(|(id, m)| places(*id, m.shards))
            .collect();
        let is_first = orphans.len() == self.table.entries.len();
        if orphans.is_empty() || (is_first && up.count() < usize::from(options.min_nodes.max(1))) {
            return BTreeSet::new();
        }
        let Ok(plan) = placement::plan(orphans.len() as u16, &places, options.policy) else {
            return BTreeSet::new();
        };
        let mut assigned = BTreeSet::new();
        for (index, place) in orphans.into_iter().zip(plan) {
            own(&mut self.table.entries[index], places[place]);
            assigned.insert(PartitionId(index as u16));
        }
        assigned
    }

    /// Spreads what a node owns over another number of its shards; its data stays where it is. All
    /// of it gets a new epoch, because all of the node's logs are new.
    fn spread(&mut self, node: NodeId, shards: u16) -> BTreeSet<PartitionId> {
        let owned: Vec<PartitionId> = self.owned(node).collect();
        for (index, partition) in owned.iter().enumerate() {
            let shard = ShardId((index * usize::from(shards) / owned.len()) as u16);
            let entry = &mut self.table.entries[usize::from(partition.0)];
            own(entry, Place { node, shard });
        }
        owned.into_iter().collect()
    }
}

fn owner(entry: &PartitionEntry) -> Option<NodeId> {
    entry.primary().map(|primary| primary.node)
}

/// Whether a member counts as being there.
fn is_up(member: &Member) -> bool {
    member.status != MemberStatus::Failed
}

fn places(node: NodeId, shards: u16) -> impl Iterator<Item = Place> {
    (0..shards).map(move |shard| Place {
        node,
        shard: ShardId(shard),
    })
}

/// Gives a partition to a shard that has not confirmed it yet.
fn own(entry: &mut PartitionEntry, place: Place) {
    entry.epoch = entry.epoch.next();
    entry.status = PartitionStatus::Assigned;
    entry.replicas = vec![Replica {
        node: place.node,
        shard: place.shard,
        role: Role::Primary,
        in_sync: true,
    }];
}

#[cfg(test)]
mod tests;
