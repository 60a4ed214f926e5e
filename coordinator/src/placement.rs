//! First assignment: which shard gets which partition when none has an owner yet.
//!
//! What moves later, and where to, is planned in [`rebalance`].

use std::collections::BTreeMap;

use ephesus_wire::{NodeId, ShardId};
use serde::{Deserialize, Serialize};

mod rebalance;

pub use rebalance::{Located, Move, Share, rebalance};

/// Gives every partition a place; the answer holds, per partition, an index into `places`.
///
/// No place gets more than one partition more than another. The same arguments always give the
/// same plan; places keep the caller's order, so list a node's shards one after another.
///
/// # Errors
/// When there is no place at all.
pub fn plan(partitions: u16, places: &[Place], policy: Policy) -> Result<Vec<usize>, NoPlaces> {
    if places.is_empty() {
        return Err(NoPlaces);
    }
    let partitions = usize::from(partitions);
    Ok(match policy {
        Policy::Contiguous => (0..partitions)
            .map(|partition| partition * places.len() / partitions)
            .collect(),
        Policy::RoundRobin => {
            let order = node_by_node(places);
            (0..partitions)
                .map(|partition| order[partition % order.len()])
                .collect()
        }
    })
}

/// How neighbouring partitions are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// Each place gets one range of neighbours: clients' slot maps stay short.
    #[default]
    Contiguous,
    /// Neighbours go to different nodes, then to different shards: hot ranges are spread.
    RoundRobin,
}

/// A shard that can own partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The node.
    pub node: NodeId,
    /// The shard of that node.
    pub shard: ShardId,
}

/// There is nobody to own a partition: wait until a node has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no shard to place a partition on")]
pub struct NoPlaces;

/// The first place of every node, then the second of every node that has one, and so on.
fn node_by_node(places: &[Place]) -> Vec<usize> {
    let mut places_of_node = BTreeMap::<NodeId, usize>::new();
    let mut order: Vec<_> = places
        .iter()
        .enumerate()
        .map(|(index, place)| {
            let rank = places_of_node.entry(place.node).or_default();
            *rank += 1;
            (*rank, index)
        })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}

#[cfg(test)]
mod tests;
