//! Where commands go: executed here, by another shard of the node, or redirected.

pub(crate) mod cluster;
pub(crate) mod databases;
pub(crate) mod forwarding;
pub(crate) mod relay;
pub(crate) mod route;
pub(crate) mod transactions;

use std::sync::Arc;

use self::cluster::ClusterReplies;
use crate::command::error::ClientError;
use crate::node::{NodeShared, Routes};
use crate::shard::mesh::Peers;

/// The table as this shard knows it, and the ways to the node's other shards.
pub(crate) struct Router {
    /// Where keys lead; replaced when the table changes.
    pub routes: Arc<Routes>,
    pub cluster_replies: ClusterReplies,
    /// The lease held when the turn began.
    pub serving: bool,
    pub peers: Peers,
}

impl Router {
    pub fn new(node: &NodeShared, routes: Arc<Routes>) -> Router {
        Router {
            routes,
            cluster_replies: ClusterReplies::default(),
            serving: false,
            peers: Peers::new(&node.peers),
        }
    }

    /// Refuses commands on keys while the node may not serve any.
    #[inline]
    pub fn check_serving(&self) -> Result<(), ClientError> {
        if self.serving {
            Ok(())
        } else {
            Err(ClientError::ClusterDown)
        }
    }
}
