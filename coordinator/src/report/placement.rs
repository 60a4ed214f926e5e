//! What operators are told about placement.

use serde::{Deserialize, Serialize};

use super::MoveRow;

/// To [`Query::Placement`](super::Query::Placement): where the table stands against a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementReport {
    /// The policy that was asked for, with its parameters; the one that holds if none was.
    pub policy: String,
    /// The one that holds.
    pub current: String,
    /// The one by which rebalances are planned.
    pub followed_by: String,
    /// What the leader does about it.
    pub state: PlacementState,
    /// How many migrations may be under way at a time; 0: no bound.
    pub moves_max: u32,
    /// How many of rebalances, drains and changes are.
    pub under_way: u64,
    /// How many wait.
    pub waiting: u64,
    /// Partitions of the cluster.
    pub partitions: u64,
    /// What the shard has that has most, against its fair share, in thousandths.
    pub imbalance_permille: u64,
    /// By node.
    pub nodes: Vec<PlacementRow>,
    /// By rack, whose name is that of the row's node, empty for nodes that have not said theirs; none where no node has.
    pub racks: Vec<PlacementRow>,
    /// By shard.
    pub shards: Vec<PlacementRow>,
    /// How many partitions would move.
    pub moves: u64,
    /// Their bytes of keys and values, as far as nodes have told.
    pub bytes: u64,
    /// What moves of late have copied per second; none: nothing has moved since this one leads.
    pub bytes_per_s: Option<u64>,
    /// How long the moves would take at that.
    pub seconds: Option<u64>,
    /// How many partitions a rebalance would move now.
    pub rebalance_moves: u64,
    /// What the policy could not do, a sentence each.
    pub unmet: Vec<String>,
    /// The moves, by partition.
    pub plan: Vec<MoveRow>,
}

/// What a leader does about the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlacementState {
    /// Automatic balancing follows it, if there is any.
    Follows,
    /// Partitions are moved to where it says.
    Changes,
    /// Nothing is moved before somebody asks for it.
    Rests,
}

/// What a shard has, or all of a node or a rack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementRow {
    /// Name of the node, or of the rack.
    pub node: String,
    /// The shard; none: all of them.
    pub shard: Option<u16>,
    /// The rack; empty: that is not known.
    pub rack: String,
    /// Partitions.
    pub partitions: u64,
    /// Their part of all partitions, in millionths.
    pub share_ppm: u64,
    /// Its part of all weights, in millionths.
    pub fair_ppm: u64,
}
