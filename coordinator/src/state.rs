//! The coordinator's state machine: members and the partition table, derived from the replicated log.
//!
//! [`State::apply`] is deterministic: it knows no clock, no randomness and no I/O, and every map is
//! ordered, so every member that applies the same log has the same bytes.
//!
//! ```text
//! node        (none) -> starting -> live <-> failed -> (removed)
//! partition   unassigned -> assigned -> online <-> migrating
//! migration   waiting -> planned -> copying -> committed, or aborted   (`state/migrations.rs`)
//! ```
//!
//! 1. A partition's epoch never decreases, and grows with every change of node or shard.
//! 2. Every partition but an unassigned one has one primary, on a member.
//! 3. The version grows exactly when something that nodes or clients see has changed.
//! 4. A node whose UUID was removed never comes back: its data may be older than what replaced it.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wire::handshake::Versions;
use ephesus_wire::table::{PartitionEntry, PartitionStatus, PartitionTable};
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId, Partitioning};
use serde::{Deserialize, Serialize};

use crate::command::{Addresses, ClusterId, ClusterOptions, Command, Nonce, RaftId, Registration};
use crate::migration::{AbortReason, Migration};
use crate::placement::{Move, Place, Policy};

mod assignment;
mod coordinators;
mod migrations;
mod placing;
mod planning;
mod refusal;
mod registration;
mod upgrade;

pub(crate) use assignment::places;

pub use migrations::{ENDED_KEPT, Migrations, Retry};
pub use placing::Course;
pub use planning::Scene;
pub use refusal::{Refusal, SnapshotError};
pub use registration::{check_name, check_rack};
pub use upgrade::{BEHIND_NAMED_MAX, Behind, Speaker};

/// Longest name of a node, bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Longest name of a rack, bytes.
pub const RACK_BYTES_MAX: usize = 64;

/// Longest address of a node or coordinator, bytes.
pub const ADDRESS_BYTES_MAX: usize = 256;

/// Most nodes of a cluster, failed ones included: with the longest names and addresses all of them take a fifth of a
/// frame, and of a record of the log, both of which have to hold the whole state.
pub const MEMBERS_MAX: usize = 4096;

/// Most shards of a node.
pub const SHARDS_MAX: u16 = 1024;

/// What a usual shard can take, per cent: [`Registration::capacity`] without a reason for another.
pub const CAPACITY_DEFAULT: u32 = 100;

/// Its upper bound: a hundred times the usual.
pub const CAPACITY_MAX: u32 = 10_000;

/// Migrations of rebalances and drains that are under way at a time, unless operators say otherwise: two batches.
pub const MOVES_MAX: u32 = 32;

/// Default of [`ClusterOptions::heartbeat_timeout_ms`].
pub const HEARTBEAT_TIMEOUT_MS: u32 = 2_000;

/// Its bounds: a lease, which is half of it, has to outlive a few heartbeats.
pub const HEARTBEAT_TIMEOUT_MS_MIN: u32 = 1_000;
pub const HEARTBEAT_TIMEOUT_MS_MAX: u32 = 600_000;

/// Most coordinators of a cluster: one more than the largest core, while one is replaced.
pub const COORDINATORS_MAX: usize = 6;

/// How far the table's version and the ids of migrations move on when a coordinator is [forced](State::force).
pub(crate) const FORCED_BY: u64 = 1 << 32;

/// Version of the snapshot's layout: 4 has the [`Added`] fields behind those of 3, and 5 those of [`Placing`] behind
/// these. A state whose added fields are empty is written without them, as members of earlier releases read it, too:
/// only what needs a newer protocol everywhere fills them. Older ones, which no release has written, are refused by
/// name.
const SNAPSHOT_FORMAT: u8 = 5;
const SNAPSHOT_FORMAT_OLDEST: u8 = 3;

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
    /// What each of its shards can take, in per cent of a usual one.
    pub capacity: u32,
    /// The protocol versions that it speaks.
    pub speaks: Versions,
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
    /// Migrations that are new, changed or over.
    pub migrations: BTreeSet<MigrationId>,
    /// Whether their limit is another.
    pub limit: bool,
    /// What became of every move that was to be planned: nothing for a node to see by itself.
    pub planned: Vec<(Move, Result<MigrationId, Refusal>)>,
}

impl Effects {
    /// Whether nothing has changed that nodes or clients see.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
            && self.partitions.is_empty()
            && !self.coordinators
            && self.migrations.is_empty()
            && !self.limit
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
    /// The protocol versions that coordinators speak, as far as they have said.
    coordinators_speak: BTreeMap<RaftId, Versions>,
    table: PartitionTable,
    migrations: Migrations,
    /// Behind the layout of format 3: see [`Added`].
    #[serde(skip)]
    learners: BTreeSet<RaftId>,
    /// The last accepted start of each node, as far as they prove it.
    #[serde(skip)]
    starts: BTreeMap<NodeId, Nonce>,
    /// Behind the layout of format 4.
    #[serde(skip)]
    placing: Placing,
}

/// The fields that snapshots of format 4 have behind those of 3.
#[derive(Default, Serialize, Deserialize)]
struct Added {
    /// Coordinators that do not vote yet.
    learners: BTreeSet<RaftId>,
    /// See [`State::admit_start`].
    starts: BTreeMap<NodeId, Nonce>,
}

/// How partitions are moved: the fields that snapshots of format 5 have behind those of 4.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Placing {
    /// See [`State::moves_max`].
    moves_max: u32,
    /// The policy, once another one was set.
    policy: Option<Policy>,
    course: Course,
}

impl Default for State {
    fn default() -> State {
        State {
            cluster: None,
            members: BTreeMap::new(),
            removed: BTreeSet::new(),
            coordinators: BTreeMap::new(),
            coordinator_id_max: RaftId(0),
            coordinators_speak: BTreeMap::new(),
            table: PartitionTable {
                version: 0,
                entries: Vec::new(),
            },
            migrations: Migrations::default(),
            learners: BTreeSet::new(),
            starts: BTreeMap::new(),
            placing: Placing::default(),
        }
    }
}

impl Added {
    fn is_empty(&self) -> bool {
        self.learners.is_empty() && self.starts.is_empty()
    }
}

impl State {
    /// Everything, as bytes; equal states have equal bytes.
    ///
    /// Layout: one byte, the format ([`SNAPSHOT_FORMAT`]), then the state in postcard's encoding, then from
    /// format 4 on the [`Added`] fields, and from 5 on [`Placing`].
    #[expect(
        clippy::expect_used,
        reason = "ordered maps of numbers and texts always encode"
    )]
    #[must_use]
    pub fn to_snapshot(&self) -> Vec<u8> {
        let added = Added {
            learners: self.learners.clone(),
            starts: self.starts.clone(),
        };
        let format = match (added.is_empty(), self.placing == Placing::default()) {
            (_, false) => SNAPSHOT_FORMAT,
            (false, true) => 4,
            (true, true) => 3,
        };
        let mut bytes = postcard::to_extend(self, vec![format]).expect("a state");
        if format >= 4 {
            bytes = postcard::to_extend(&added, bytes).expect("a state");
        }
        if format >= 5 {
            bytes = postcard::to_extend(&self.placing, bytes).expect("a state");
        }
        bytes
    }

    /// The state that [`State::to_snapshot`] was called on.
    ///
    /// # Errors
    /// [`SnapshotError`]; the bytes are not such a snapshot.
    pub fn from_snapshot(bytes: &[u8]) -> Result<State, SnapshotError> {
        let (&format, body) = bytes.split_first().ok_or(SnapshotError::Damaged)?;
        if !(SNAPSHOT_FORMAT_OLDEST..=SNAPSHOT_FORMAT).contains(&format) {
            return Err(SnapshotError::Format(format));
        }
        let (mut state, mut rest) = postcard::take_from_bytes::<State>(body)?;
        if format >= 4 {
            let (added, behind) = postcard::take_from_bytes::<Added>(rest)?;
            Added {
                learners: state.learners,
                starts: state.starts,
            } = added;
            rest = behind;
        }
        if format >= 5 {
            (state.placing, rest) = postcard::take_from_bytes::<Placing>(rest)?;
        }
        let are_coordinators = |id: &RaftId| state.coordinators.contains_key(id);
        if !state.learners.iter().all(are_coordinators) {
            return Err(SnapshotError::Damaged);
        }
        let consistent = match state.cluster {
            Some((_, options)) => {
                let has_voter = state.voters().next().is_some();
                has_voter && state.table.entries.len() == usize::from(options.partitions)
            }
            None => state.table.entries.is_empty() && state.members.is_empty(),
        };
        let has_migrations = state.migrations.is_consistent(state.table.entries.len());
        if !rest.is_empty() || !consistent || !has_migrations {
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

    /// Where a partition is.
    #[must_use]
    pub fn place_of(&self, partition: PartitionId) -> Option<Place> {
        let owner = self.table.entry(partition)?.primary()?;
        let (node, shard) = (owner.node, owner.shard);
        Some(Place { node, shard })
    }

    /// The node that a partition is on.
    #[must_use]
    pub fn owner_of(&self, partition: PartitionId) -> Option<NodeId> {
        Some(self.place_of(partition)?.node)
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
        self.check_known(command)?;
        let was_moving = self.is_moving();
        let mut effects = match command {
            Command::Bootstrap {
                cluster,
                options,
                coordinators,
            } => self.bootstrap(*cluster, *options, coordinators)?,
            Command::Register(registration) => self.register(registration)?,
            Command::RegisterStart {
                registration,
                start,
            } => self.register_start(registration, start)?,
            Command::Started { node, incarnation } => {
                self.set_status(*node, *incarnation, MemberStatus::Live)?
            }
            Command::Hosting { node, copies } => self.hosting(*node, copies)?,
            Command::Fail { node, incarnation } => {
                self.set_status(*node, *incarnation, MemberStatus::Failed)?
            }
            Command::Remove { node, lose_data } => self.remove(*node, *lose_data)?,
            Command::PlanMoves { moves, purpose } => self.plan_moves(moves, *purpose),
            Command::BeginMigration { id, incarnation } => {
                self.begin_migration(*id, *incarnation)?
            }
            Command::CommitMigration {
                id,
                incarnation,
                confirmation,
            } => self.commit_migrations(*incarnation, &[(*id, *confirmation)])?,
            Command::CommitMigrations {
                incarnation,
                confirmations,
            } => self.commit_migrations(*incarnation, confirmations)?,
            Command::AbortMigration { id, abort } => self.abort_migration(*id, abort)?,
            Command::RetryMigration { id } => self.retry_migration(*id)?,
            Command::Drain { node, on } => self.drain(*node, *on)?,
            Command::CoordinatorSpeaks { id, speaks } => self.coordinator_speaks(*id, *speaks)?,
            Command::LimitMoves { mb_s } => self.limit_moves(*mb_s),
            Command::MovesMax { moves } => self.set_moves_max(*moves),
            Command::SetPolicy { policy } => self.set_policy(*policy)?,
            Command::EndChange { policy } => self.end_change(*policy),
            Command::CancelMoves => self.cancel_moves(),
            Command::PlanOwn { moves, change } => self.plan_own(moves, *change)?,
        };
        self.give_turns(&mut effects);
        if was_moving && !self.is_moving() {
            effects.limit |= self.limit_moves(0).limit;
        }
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
        if coordinators.is_empty() {
            return Err(Refusal::NoCoordinators);
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

    fn end_migrations_of(&mut self, node: NodeId, reason: AbortReason, effects: &mut Effects) {
        let is_meant =
            |migration: &Migration| migration.source.node == node || migration.target.node == node;
        self.abort_of(reason, is_meant, effects);
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
        let mut effects = Effects {
            members: BTreeSet::from([node]),
            partitions: owned.iter().copied().collect(),
            ..Effects::default()
        };
        self.end_migrations_of(node, AbortReason::Removed, &mut effects);
        self.migrations.forget(node, &owned);
        self.members.remove(&node);
        self.starts.remove(&node);
        self.removed.insert(node);
        for partition in owned {
            if let Some(entry) = self.table.entries.get_mut(usize::from(partition.0)) {
                entry.status = PartitionStatus::Unassigned;
                entry.replicas.clear();
            }
        }
        effects.partitions.extend(self.assign_if_ready());
        Ok(effects)
    }
}

fn owner(entry: &PartitionEntry) -> Option<NodeId> {
    entry.primary().map(|primary| primary.node)
}

/// Whether a member has recovered, and serves what it owns.
fn is_live(member: &Member) -> bool {
    member.status == MemberStatus::Live
}

/// Whether a member counts as being there.
fn is_up(member: &Member) -> bool {
    member.status != MemberStatus::Failed
}

#[cfg(test)]
pub(crate) mod tests;
