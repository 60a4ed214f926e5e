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

use crate::command::{Addresses, ClusterId, ClusterOptions, Command, Registration};
use crate::placement::{self, Place};

/// Longest name of a node, bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Version of the snapshot's layout.
const SNAPSHOT_FORMAT: u8 = 1;

/// Why bytes are no snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Run a release that knows the format.
    #[error("snapshot of format {0}: this release reads format {SNAPSHOT_FORMAT}")]
    Format(u8),
    /// Replace the member: remove it and add it again with an empty directory.
    #[error("snapshot is damaged")]
    Damaged,
    /// As [`SnapshotError::Damaged`].
    #[error("snapshot is damaged: {0}")]
    Encoding(#[from] postcard::Error),
}

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

/// Why a command had no effect; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Bootstrap a member first.
    #[error("there is no cluster yet: start one coordinator with --bootstrap")]
    NotBootstrapped,
    /// Leave out `--bootstrap`, or bring the data directory of the cluster that was meant.
    #[error("this is cluster {found:02x?}, which was bootstrapped before", found = .0.0)]
    OtherCluster(ClusterId),
    /// Choose a number of partitions between 1 and 16384.
    #[error("{0} is no number of partitions: 1 to 16384")]
    Partitions(u16),
    /// Start the node with at least one shard.
    #[error("a node has at least one shard")]
    NoShards,
    /// Give the node a name of 1 to 64 printable bytes without spaces.
    #[error("not a name for a node: 1 to {NAME_BYTES_MAX} printable characters without spaces")]
    Name,
    /// Give the node another name, or stop the one that has it.
    #[error("the name {name} belongs to node {owner}, which has not failed")]
    NameTaken {
        /// The name.
        name: String,
        /// Who has it.
        owner: NodeId,
    },
    /// A message of an earlier start: a newer one has registered.
    #[error("start {found} of node {node} is over: start {current} has registered")]
    Stale {
        /// The node.
        node: NodeId,
        /// The start the command is about.
        found: u64,
        /// The newest start.
        current: u64,
    },
    /// Register first.
    #[error("node {0} is no member")]
    Unknown(NodeId),
    /// Give the node an empty data directory: it then joins as a new node.
    #[error(
        "node {0} was removed from the cluster; with an empty data directory it can join again"
    )]
    Removed(NodeId),
    /// Move its partitions first, or wait until it has failed and give its data up.
    #[error("node {node} owns {partitions} partitions")]
    OwnsPartitions {
        /// The node.
        node: NodeId,
        /// How many it owns.
        partitions: usize,
    },
    /// Only a failed node can be given up with its data: stop it first.
    #[error("node {0} has not failed")]
    NotFailed(NodeId),
}

/// What a command has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Members that are new, changed or gone.
    pub members: BTreeSet<NodeId>,
    /// Partitions whose entry has changed.
    pub partitions: BTreeSet<PartitionId>,
}

impl Effects {
    /// Whether nothing has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.partitions.is_empty()
    }
}

/// Everything the coordinator has decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    cluster: Option<(ClusterId, ClusterOptions)>,
    members: BTreeMap<NodeId, Member>,
    /// UUIDs that must not come back.
    removed: BTreeSet<NodeId>,
    table: PartitionTable,
}

impl Default for State {
    fn default() -> State {
        State {
            cluster: None,
            members: BTreeMap::new(),
            removed: BTreeSet::new(),
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

    /// The partitions of a node, ascending.
    pub fn owned(&self, node: NodeId) -> impl Iterator<Item = PartitionId> + '_ {
        let entries = self.table.entries.iter().enumerate();
        let owned = entries.filter(move |(_, entry)| owner(entry) == Some(node));
        owned.map(|(index, _)| PartitionId(index as u16))
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
            Command::Bootstrap { cluster, options } => self.bootstrap(*cluster, *options)?,
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
        if !effects.is_empty() {
            self.table.version += 1;
        }
        Ok(effects)
    }

    fn bootstrap(
        &mut self,
        cluster: ClusterId,
        options: ClusterOptions,
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
        self.table.entries = PartitionTable::unassigned(partitioning).entries;
        self.cluster = Some((cluster, options));
        Ok(Effects {
            partitions: partitioning.partitions().collect(),
            ..Effects::default()
        })
    }

    fn register(&mut self, from: &Registration) -> Result<Effects, Refusal> {
        let Some((cluster, _)) = self.cluster else {
            return Err(Refusal::NotBootstrapped);
        };
        if from.cluster.is_some_and(|of| of != cluster) {
            return Err(Refusal::OtherCluster(cluster));
        }
        if self.removed.contains(&from.node) {
            return Err(Refusal::Removed(from.node));
        }
        if from.shards == 0 {
            return Err(Refusal::NoShards);
        }
        check_name(&from.name)?;
        let mut others = self.members.iter().filter(|(id, _)| **id != from.node);
        if let Some((owner, _)) = others.find(|(_, m)| m.name == from.name && is_up(m)) {
            return Err(Refusal::NameTaken {
                name: from.name.clone(),
                owner: *owner,
            });
        }
        let mut effects = Effects::default();
        let member = Member {
            name: from.name.clone(),
            incarnation: from.incarnation,
            addresses: from.addresses.clone(),
            shards: from.shards,
            status: MemberStatus::Starting,
        };
        match self.members.get_mut(&from.node) {
            Some(current) if current.incarnation > from.incarnation => {
                return Err(Refusal::Stale {
                    node: from.node,
                    found: from.incarnation,
                    current: current.incarnation,
                });
            }
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

    /// Spreads what a node owns over another number of its shards; its data stays where it is.
    fn spread(&mut self, node: NodeId, shards: u16) -> BTreeSet<PartitionId> {
        let owned: Vec<PartitionId> = self.owned(node).collect();
        let mut moved = BTreeSet::new();
        for (index, partition) in owned.iter().enumerate() {
            let shard = ShardId((index * usize::from(shards) / owned.len()) as u16);
            let entry = &mut self.table.entries[usize::from(partition.0)];
            if entry.primary().is_none_or(|primary| primary.shard != shard) {
                own(entry, Place { node, shard });
                moved.insert(*partition);
            }
        }
        moved
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

fn check_name(name: &str) -> Result<(), Refusal> {
    let is_printable = |c: char| !c.is_control() && !c.is_whitespace();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_printable) {
        return Err(Refusal::Name);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
