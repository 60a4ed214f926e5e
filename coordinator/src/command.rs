//! What the coordinator's replicated log holds: every change of membership and partition table.

use ephesus_wire::{Epoch, NodeId, PartitionId};
use serde::{Deserialize, Serialize};

use crate::placement::Policy;

/// The persistent UUID of a cluster, made when it is bootstrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub [u8; 16]);

/// Where a node can be reached, each as `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// Its entry port, for clients; direct ports follow it.
    pub entry: String,
    /// Its port for other nodes.
    pub peer: String,
}

/// How a cluster is laid out; fixed when it is bootstrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterOptions {
    /// Number of partitions, which never changes.
    pub partitions: u16,
    /// The first assignment waits for so many nodes.
    pub min_nodes: u16,
    /// How the first assignment spreads partitions.
    pub policy: Policy,
}

/// What a node says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Its UUID, from its data directory.
    pub node: NodeId,
    /// The cluster its data belongs to; none if it has never been in one.
    pub cluster: Option<ClusterId>,
    /// What people call it.
    pub name: String,
    /// Grows with every start of the node.
    pub incarnation: u64,
    /// Where it can be reached.
    pub addresses: Addresses,
    /// Its shards.
    pub shards: u16,
}

/// One entry of the replicated log.
///
/// Every command may be proposed more than once, also by successive leaders: a repetition changes
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Founds the cluster: the first command that has an effect.
    Bootstrap {
        /// Its UUID.
        cluster: ClusterId,
        /// Its layout.
        options: ClusterOptions,
    },
    /// A node has started, or was reached again; it is `starting` until it says otherwise.
    Register(Registration),
    /// The node has recovered its data and serves.
    Started {
        /// The node.
        node: NodeId,
        /// The start this is about.
        incarnation: u64,
    },
    /// The node hosts these copies.
    Hosting {
        /// The node.
        node: NodeId,
        /// The copies; those of an older epoch are ignored.
        copies: Vec<(PartitionId, Epoch)>,
    },
    /// The leader has not heard of the node for the heartbeat timeout.
    Fail {
        /// The node.
        node: NodeId,
        /// The start this is about: a later one is not failed by it.
        incarnation: u64,
    },
    /// An operator gives up a node.
    Remove {
        /// The node.
        node: NodeId,
        /// Also if it owns partitions, whose data is lost; only a failed node.
        lose_data: bool,
    },
}
