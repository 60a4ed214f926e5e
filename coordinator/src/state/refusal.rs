//! Why something is refused: commands, snapshots.

use ephesus_wire::{MigrationId, NodeId, PartitionId, ShardId};
use serde::{Deserialize, Serialize};

use super::upgrade::Behind;
use super::{
    ADDRESS_BYTES_MAX, CAPACITY_MAX, COORDINATORS_MAX, HEARTBEAT_TIMEOUT_MS_MAX,
    HEARTBEAT_TIMEOUT_MS_MIN, MEMBERS_MAX, NAME_BYTES_MAX, RACK_BYTES_MAX, SHARDS_MAX,
    SNAPSHOT_FORMAT, SNAPSHOT_FORMAT_OLDEST, upgrade,
};
use crate::command::{ClusterId, RaftId};

/// Why a command had no effect; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Bootstrap a member first.
    #[error("there is no cluster yet: start one coordinator with --bootstrap")]
    NotBootstrapped,
    /// Leave out `--bootstrap`, or bring the data directory of the cluster that was meant.
    #[error("this is cluster {0}, which was bootstrapped before")]
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
    #[error("the name {name} belongs to node {owner}, which has not failed: choose another --name")]
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
    /// Choose a heartbeat timeout within the bounds.
    #[error(
        "a heartbeat timeout of {0} ms: {HEARTBEAT_TIMEOUT_MS_MIN} to {HEARTBEAT_TIMEOUT_MS_MAX}"
    )]
    HeartbeatTimeout(u32),
    /// Give addresses of 1 to 256 ASCII characters without spaces.
    #[error("not an address: 1 to {ADDRESS_BYTES_MAX} printable ASCII characters without spaces")]
    Address,
    /// Name a coordinator that there is.
    #[error("there is no coordinator {0}")]
    UnknownCoordinator(RaftId),
    /// Add the coordinator again: it gets the next number.
    #[error("{found} is no new number for a coordinator: numbers up to {used} were given")]
    CoordinatorId {
        /// The number.
        found: RaftId,
        /// The largest number so far.
        used: RaftId,
    },
    /// Name another address, or remove the coordinator that has it.
    #[error("coordinator {0} has this address")]
    AddressTaken(RaftId),
    /// Add another one first.
    #[error("coordinator {0} is the last one")]
    LastCoordinator(RaftId),
    /// Remove one first: more coordinators make every decision slower and nothing safer.
    #[error("there are {COORDINATORS_MAX} coordinators already")]
    TooManyCoordinators,
    /// Name a partition that there is.
    #[error("there is no partition {0}")]
    NoSuchPartition(PartitionId),
    /// Name a shard that the node has.
    #[error("node {name} has no shard {shard}: it has {shards}, counted from 0")]
    NoSuchShard {
        /// The node's name.
        name: String,
        /// What was named.
        shard: ShardId,
        /// How many it has.
        shards: u16,
    },
    /// Bring the node back first: one that has failed neither gives nor gets.
    #[error("node {0} has failed")]
    NodeFailed(String),
    /// Choose another node, or end the drain first.
    #[error("node {0} is being drained")]
    Draining(String),
    /// Wait for the migration that is under way, or cancel it.
    #[error("partition {partition} is moved elsewhere by migration {migration}")]
    Moving {
        /// The partition.
        partition: PartitionId,
        /// What moves it.
        migration: MigrationId,
    },
    /// Wait until it is assigned.
    #[error("partition {0} has no owner")]
    Unowned(PartitionId),
    /// Nothing is to be done.
    #[error("partition {0} is there already")]
    AlreadyThere(PartitionId),
    /// Name a migration that there is.
    #[error("there is no migration {0}")]
    NoSuchMigration(MigrationId),
    /// Nothing more can be done about it: it has ended in another way.
    #[error("migration {0} is over")]
    MigrationOver(MigrationId),
    /// Begin first.
    #[error("migration {0} has not begun")]
    NotCopying(MigrationId),
    /// Wait until its owner has confirmed that it hosts it.
    #[error("partition {0} is not online")]
    NotOnline(PartitionId),
    /// Choose a capacity within the bounds.
    #[error("a capacity of {0} per cent: 1 to {CAPACITY_MAX}")]
    Capacity(u32),
    /// Name the protocol versions that are spoken, the oldest first.
    #[error("the oldest protocol version is newer than the newest")]
    Versions,
    /// Upgrade and restart who is named, start it, or remove it; then ask again.
    #[error("this needs protocol {needed} everywhere: {}", upgrade::list(.behind, *.more))]
    NotUpgraded {
        /// The protocol.
        needed: u16,
        /// Some of those who do not speak it yet, at most [`super::BEHIND_NAMED_MAX`].
        behind: Vec<Behind>,
        /// How many more there are.
        more: u64,
    },
    /// Add a node, or bring one back, before this one is drained.
    #[error("no other node can take what {0} owns")]
    NowhereToGo(String),
    /// Start the node with fewer shards.
    #[error("a node of {0} shards: {SHARDS_MAX} are the most")]
    Shards(u16),
    /// Start the node with its newest directory; if there is none any more, do what it says.
    #[error(
        "the directory of node {0} is older than what the cluster has seen of it: it was restored or rolled back. \
         Start the node with its newest directory; without one, give it up with `ephesus node remove` and an empty \
         directory, or take the old data for the newest with --accept-old-data"
    )]
    OldDirectory(NodeId),
    /// Do what it says: the coordinator would end with the node.
    #[error(
        "coordinator {id} is in the process of node {name} and would end with it: {}take it out with \
         `ephesus coordinator-member remove {id}`, then remove the node",
        if *.is_last {
            "it is the last one, so add another with `ephesus coordinator-member add`, start that, then "
        } else {
            ""
        }
    )]
    BringsCoordinator {
        /// The node's name.
        name: String,
        /// The coordinator.
        id: RaftId,
        /// Whether no other one votes.
        is_last: bool,
    },
    /// Start the node again. What it serves may be what nobody knows any more, so it compares its copies with the
    /// table as every start does. Nodes say this to themselves.
    #[error(
        "a coordinator was forced to lead alone with a table that may be older than what this node has seen: \
         start the node again"
    )]
    Forced,
    /// Start the silent one, or remove it first.
    #[error(
        "without coordinator {id} too few would be left that answer: coordinator {silent} is silent, so start it, or \
         remove it first"
    )]
    NoMajorityLeft {
        /// What was to be removed.
        id: RaftId,
        /// One that would be left, and is not there.
        silent: RaftId,
    },
    /// Name the coordinators that the cluster begins with.
    #[error("a cluster has at least one coordinator")]
    NoCoordinators,
    /// Give the rack a name of up to 64 printable bytes without spaces.
    #[error("not a name for a rack: up to {RACK_BYTES_MAX} printable characters without spaces")]
    Rack,
    /// Choose a policy that there is, and its parameters within their bounds.
    #[error("{0}")]
    Policy(String),
    /// Wait: as many others move as may at a time.
    #[error("the turn of migration {0} has not come")]
    NotItsTurn(MigrationId),
    /// Plan again, if anything at all.
    #[error("an operator has decided otherwise since this was planned")]
    Overtaken,
    /// Remove nodes that have failed.
    #[error(
        "there are {MEMBERS_MAX} nodes already: remove those that have failed with `ephesus node remove`"
    )]
    TooManyNodes,
}

/// Why bytes are no snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Run the release that has written it.
    #[error(
        "snapshot of format {0}: this release reads formats {SNAPSHOT_FORMAT_OLDEST} to {SNAPSHOT_FORMAT}"
    )]
    Format(u8),
    /// Replace the member: remove it and add it again with an empty directory.
    #[error("snapshot is damaged")]
    Damaged,
    /// As [`SnapshotError::Damaged`].
    #[error("snapshot is damaged: {0}")]
    Encoding(#[from] postcard::Error),
}
