//! What operators ask and are told: plain rows, for tables and for JSON.
//!
//! Ids are hex text and statuses lower-case words, so that the JSON stays what it is when the types
//! inside change.

use std::collections::BTreeMap;

use ephesus_wire::NodeId;
use ephesus_wire::table::PartitionStatus;
use serde::{Deserialize, Serialize};

use crate::command::RaftId;
use crate::placement::Policy;
use crate::state::{MemberStatus, Refusal};

mod placement;

pub use placement::{PlacementReport, PlacementRow, PlacementState};

pub use crate::load::report::{
    ClusterLoadReport, HotKeyRow, HotKeysReport, PartitionLoadRow, RatesRow, ShardLoadRow,
};
pub use crate::migration::report::{
    DrainingRow, MigrationRow, MigrationState, MigrationsReport, MoveRow,
};

/// A coordinator that the leader has not heard of for so long, ms, is reported; they talk to each
/// other every 60 ms.
pub const COORDINATOR_SILENT_MS: u64 = 1_000;

/// What an operator wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    /// The cluster in a few lines.
    Status,
    /// The nodes.
    Nodes,
    /// The partitions.
    Partitions,
    /// The coordinators.
    Coordinators,
    /// To give a node up.
    RemoveNode {
        /// Its name, or its UUID as 32 hex digits.
        node: String,
        /// Also if it owns partitions, whose data is lost; only a failed node.
        lose_data: bool,
    },
    /// Another coordinator, which is then started empty under the number of the answer.
    AddCoordinator {
        /// Where it will be reached, as `host:port`.
        address: String,
    },
    /// One coordinator less.
    RemoveCoordinator {
        /// Its number.
        id: RaftId,
    },
    /// A balanced cluster, with the fewest moves.
    Rebalance {
        /// Only what would be done.
        dry_run: bool,
    },
    /// A partition elsewhere.
    Move {
        /// The partition.
        partition: u16,
        /// Name or UUID of the node that gets it.
        node: String,
        /// The shard that gets it; none: the one that has the least.
        shard: Option<u16>,
    },
    /// A node emptied, for its removal, or not any more.
    Drain {
        /// Its name or UUID.
        node: String,
        /// Whether it is to be emptied; without, it may get partitions again, and what has been
        /// planned goes on.
        on: bool,
    },
    /// The migrations under way and the last that have ended.
    Migrations,
    /// A migration, or its next attempt, given up.
    CancelMigration {
        /// Its id.
        id: u64,
    },
    /// Another limit for the moves that are under way, or are planned next; it ends with the last of
    /// them.
    LimitMoves {
        /// What each node sends at most, in 1,000,000 bytes per second; 0: as much as it can.
        mb_s: u32,
    },
    /// Partitions elsewhere: all of them, or none if one is refused. One that changes at the very
    /// moment may be refused by itself; the answer says so.
    MoveAll {
        /// Partition, UUID or name of the node that gets it, and the shard.
        moves: Vec<(u16, String, u16)>,
    },
    /// As [`Query::CancelMigration`], of all that are not over by then.
    CancelMigrations {
        /// Their ids.
        ids: Vec<u64>,
    },
    /// What shards and partitions do.
    Load,
    /// Which keys are used the most; nodes are asked, so ask again.
    HotKeys,
    /// Where the table stands against a policy, and what it would take to get there.
    Placement {
        /// The policy; none: the one that holds.
        policy: Option<Policy>,
    },
    /// Another policy, and partitions where it says.
    SetPlacement {
        /// The policy.
        policy: Policy,
    },
    /// What rebalances, drains and a change of the policy move given up.
    CancelPlacement,
    /// Every shard within a fifth of its share of the load, with the fewest bytes moved.
    RebalanceByLoad {
        /// Only what would be done.
        dry_run: bool,
    },
}

/// What the operator is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// To [`Query::Status`].
    Status(StatusReport),
    /// To [`Query::Nodes`], by name.
    Nodes(Vec<NodeRow>),
    /// To [`Query::Partitions`], in order.
    Partitions(Vec<PartitionRow>),
    /// To [`Query::Coordinators`], by number.
    Coordinators(Vec<CoordinatorRow>),
    /// The node is no member any more.
    NodeRemoved {
        /// Its UUID, hex.
        id: String,
    },
    /// The coordinators are as wanted.
    CoordinatorAdded {
        /// The number of the new one.
        id: RaftId,
    },
    /// As [`Report::CoordinatorAdded`].
    CoordinatorRemoved {
        /// The number of the one that was removed.
        id: RaftId,
    },
    /// Nothing was changed, and why.
    Refused(Refusal),
    /// There is no such node.
    NoSuchNode(String),
    /// Ask the leader, if one is known; otherwise ask again a little later.
    NotLeader(Option<(RaftId, String)>),
    /// Ask again a little later: another change is under way, or the lead is being handed over.
    Busy,
    /// It is not known whether it was done: ask again, which changes nothing if it was.
    TimedOut,
    /// To [`Query::Rebalance`], [`Query::Move`] and [`Query::Drain`], by partition: what was planned
    /// by it, or would be; empty: nothing has to move.
    Planned(Vec<MoveRow>),
    /// To [`Query::Drain`]: the node may get partitions again.
    NotDraining {
        /// Its name or UUID, as it was asked for.
        node: String,
    },
    /// To [`Query::Migrations`].
    Migrations(MigrationsReport),
    /// The migration goes no further, and is not tried again.
    MigrationCancelled {
        /// Its id.
        id: u64,
    },
    /// To [`Query::LimitMoves`].
    MovesLimited,
    /// None of the migrations goes further.
    MigrationsCancelled,
    /// To [`Query::AddCoordinator`]: nothing was changed, as there is no way to where it would be.
    Unreachable {
        /// As it was asked for.
        address: String,
        /// Why.
        reason: String,
    },
    /// To [`Query::Load`].
    Load(ClusterLoadReport),
    /// To [`Query::HotKeys`].
    HotKeys(HotKeysReport),
    /// To [`Query::Placement`].
    Placement(Box<PlacementReport>),
    /// To [`Query::SetPlacement`].
    PlacementSet,
    /// To [`Query::CancelPlacement`].
    PlacementCancelled {
        /// How many migrations were given up.
        migrations: u64,
    },
    /// To [`Query::RebalanceByLoad`] that only asks.
    PlannedByLoad {
        /// The moves.
        plan: Vec<MoveRow>,
        /// Bytes that they move, as far as nodes have told.
        bytes: u64,
        /// What moves cannot do, or not for long, a sentence each.
        unmet: Vec<String>,
    },
}

/// The cluster in a few lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReport {
    /// The cluster's UUID, hex; empty before it is bootstrapped.
    pub cluster: String,
    /// Whether there are no problems.
    pub healthy: bool,
    /// What is not as it should be.
    pub problems: Vec<Problem>,
    /// The leader, which answers this.
    pub leader: RaftId,
    /// Its term.
    pub term: u64,
    /// The last entry that is decided.
    pub commit_index: u64,
    /// Version of the table.
    pub table_version: u64,
    /// Number of coordinators.
    pub coordinators: u64,
    /// Nodes by status: `starting`, `live`, `failed`.
    pub nodes: BTreeMap<String, u64>,
    /// Partitions by status: `unassigned`, `assigned`, `online`, `migrating`, and `failed` where
    /// the owner is.
    pub partitions: BTreeMap<String, u64>,
    /// Keys of all live nodes, as they last said.
    pub keys: u64,
    /// Bytes of these keys and their values.
    pub bytes: u64,
    /// The hottest keys that [saturate](HotKeyRow::saturates) a shard each.
    pub hot_keys: Vec<HotKeyRow>,
}

/// Why a cluster is not healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Problem {
    /// Start one coordinator with `--bootstrap`.
    #[error("there is no cluster yet: start one coordinator with --bootstrap")]
    NotBootstrapped,
    /// Start more nodes.
    #[error("not enough nodes, {present} of {needed}: nothing is assigned yet")]
    NotEnoughNodes {
        /// How many there are.
        present: u16,
        /// `--min-nodes`.
        needed: u16,
    },
    /// Bring the node back, or give it up with `ephesus node remove`.
    #[error("node {name} has failed and owns {partitions} partitions")]
    NodeFailed {
        /// Its name.
        name: String,
        /// What is unavailable.
        partitions: u64,
    },
    /// Wait: the node recovers its data.
    #[error("node {name} is starting and owns {partitions} partitions")]
    NodeStarting {
        /// Its name.
        name: String,
        /// What is unavailable.
        partitions: u64,
    },
    /// Wait: owners have not confirmed them yet.
    #[error("{partitions} partitions are not online")]
    NotOnline {
        /// How many.
        partitions: u64,
    },
    /// Bring it back, or replace it with `ephesus coordinator-member add` and `remove`.
    #[error("coordinator {id} at {address} is not heard of")]
    CoordinatorSilent {
        /// Its number.
        id: RaftId,
        /// Where it should be.
        address: String,
    },
    /// Wait before another is given up: this one cannot vote or take its place yet.
    #[error("coordinator {id} at {address} is not known to have the log yet")]
    CoordinatorBehind {
        /// Its number.
        id: RaftId,
        /// Where it is.
        address: String,
    },
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// Its UUID, hex.
    pub id: String,
    /// `starting`, `live` or `failed`.
    pub status: String,
    /// Whether it is being emptied for its removal.
    pub draining: bool,
    /// Its starts so far.
    pub incarnation: u64,
    /// Its shards.
    pub shards: u16,
    /// What each of them can take, in per cent of a usual one.
    pub capacity: u32,
    /// Partitions it owns.
    pub partitions: u64,
    /// Its keys, as it last said to this leader.
    pub keys: u64,
    /// Bytes of these keys and their values.
    pub bytes: u64,
    /// Since it was last heard of, ms; none: not by this leader.
    pub last_heartbeat_ms: Option<u64>,
    /// Version of the table it has, as it last said.
    pub table_version: u64,
    /// Its entry port, `host:port`.
    pub entry: String,
    /// Its port for other nodes.
    pub peer: String,
    /// By shard, how much CPU time it takes, us per second over the last minute; none: it has not told this leader.
    pub shard_cpu_us_per_s: Vec<Option<u64>>,
    /// The rack it stands in; empty: that is not known.
    pub rack: String,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRow {
    /// The partition.
    pub partition: u16,
    /// Its first slot.
    pub first_slot: u16,
    /// Its last slot.
    pub last_slot: u16,
    /// `unassigned`, `assigned`, `online`, `migrating`, or `failed` where the owner is.
    pub status: String,
    /// Its epoch.
    pub epoch: u64,
    /// Name of its owner.
    pub node: Option<String>,
    /// The owner's shard.
    pub shard: Option<u16>,
}

/// One coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoordinatorRow {
    /// Its number.
    pub id: RaftId,
    /// Where it is reached.
    pub address: String,
    /// Whether it leads.
    pub leader: bool,
    /// Whether it votes: one that was added does once it has the log.
    pub votes: bool,
    /// The last entry it is known to have.
    pub matched: u64,
    /// Whether it was heard of within the last [`COORDINATOR_SILENT_MS`].
    pub active: bool,
    /// Since the leader has last heard of it, ms, and 0 for the leader; none: not since it leads.
    pub last_heard_ms: Option<u64>,
    /// Connections that it has not let in at its port, or closed for what came over them, since it was
    /// started; none: the leader has not heard of it.
    pub refused: Option<u64>,
    /// The same by reason.
    pub refusals: BTreeMap<String, u64>,
}

/// How a member's status is called.
#[must_use]
pub fn member_word(status: MemberStatus) -> &'static str {
    match status {
        MemberStatus::Starting => "starting",
        MemberStatus::Live => "live",
        MemberStatus::Failed => "failed",
    }
}

/// How a partition's status is called.
#[must_use]
pub fn partition_word(status: PartitionStatus) -> &'static str {
    match status {
        PartitionStatus::Unassigned => "unassigned",
        PartitionStatus::Assigned => "assigned",
        PartitionStatus::Online => "online",
        PartitionStatus::Migrating => "migrating",
    }
}

/// What a node has last said of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Its keys.
    pub keys: u64,
    /// Bytes of these keys and their values.
    pub bytes: u64,
}

/// The node that an operator means.
pub(crate) fn find_node(state: &crate::State, name: &str) -> Option<NodeId> {
    let by_name = state.members().iter().find(|(_, m)| m.name == name);
    by_name.map(|(id, _)| *id).or_else(|| name.parse().ok())
}
