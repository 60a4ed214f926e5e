//! What a coordinator is started with.

use std::collections::BTreeMap;

use ephesus_wire::NodeId;
use ephesus_wire::handshake::Versions;

use super::Balance;
use crate::command::{ClusterId, ClusterOptions, RaftId};
use crate::member::SNAPSHOT_AFTER;
use crate::protocol::VERSIONS;
use crate::state::MOVES_MAX;

/// What founds a cluster, the same on every founding coordinator but for the UUID.
#[derive(Clone, Debug)]
pub struct Founding {
    /// Drawn by each; that of the first leader counts.
    pub cluster: ClusterId,
    /// The layout.
    pub options: ClusterOptions,
}

/// What a coordinator is started with.
#[derive(Clone, Debug)]
pub struct CoordinatorOptions {
    /// Its number.
    pub id: RaftId,
    /// Where the coordinators are reached, itself included, as long as the replicated state does
    /// not say; a cluster is founded only by one that knows where all of them are.
    pub peers: BTreeMap<RaftId, String>,
    /// Only with `--bootstrap`.
    pub founding: Option<Founding>,
    /// Fixes raft's election timeout, in ticks, for simulations; otherwise it is drawn.
    pub election_ticks: Option<usize>,
    /// The log is replaced by a snapshot after so many entries.
    pub snapshot_after: usize,
    /// Different for every start.
    pub life: u64,
    /// Whether it balances the cluster of its own accord while it leads, and by what.
    pub auto_rebalance: Option<Balance>,
    /// How many migrations of rebalances and drains may be under way at a time while it leads.
    pub moves_max: u32,
    /// The protocol versions that this release speaks; another one only in tests.
    pub speaks: Versions,
    /// The node in whose process it is, if it is in one.
    pub host: Option<NodeId>,
}

impl CoordinatorOptions {
    /// The defaults.
    #[must_use]
    pub fn new(id: RaftId, peers: BTreeMap<RaftId, String>, life: u64) -> CoordinatorOptions {
        CoordinatorOptions {
            id,
            peers,
            founding: None,
            election_ticks: None,
            snapshot_after: SNAPSHOT_AFTER,
            life,
            auto_rebalance: None,
            moves_max: MOVES_MAX,
            speaks: VERSIONS,
            host: None,
        }
    }
}
