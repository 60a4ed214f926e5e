//! First assignment: which shard gets which partition when none has an owner yet.
//!
//! What moves later, and where to, is planned in [`rebalance`].

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wire::{NodeId, ShardId};
use serde::{Deserialize, Serialize};

mod rebalance;

pub use rebalance::{Located, Move, Share, rebalance};

/// [`plan_shares`] of places that are all alike.
///
/// # Errors
/// When there is no place at all.
pub fn plan(partitions: u16, places: &[Place], policy: Policy) -> Result<Vec<usize>, NoPlaces> {
    let weight = 1;
    let shares = places.iter().map(|place| Share {
        place: *place,
        weight,
    });
    plan_shares(partitions, &shares.collect::<Vec<_>>(), policy)
}

/// Gives every partition a place; the answer holds, per partition, an index into `places`.
///
/// Every place gets its fair share, `partitions * weight / all weights`, rounded down or up. The same
/// arguments always give the same plan; places keep the caller's order, so list a node's shards one
/// after another.
///
/// # Errors
/// When there is no place of any weight.
pub fn plan_shares(
    partitions: u16,
    places: &[Share],
    policy: Policy,
) -> Result<Vec<usize>, NoPlaces> {
    let weights: u64 = places.iter().map(|share| u64::from(share.weight)).sum();
    if weights == 0 {
        return Err(NoPlaces);
    }
    Ok(match policy {
        Policy::Contiguous => contiguous(u64::from(partitions), places, weights),
        Policy::RoundRobin => round_robin(u64::from(partitions), places, weights),
    })
}

/// Each place gets the partitions that begin within its part of all weights.
fn contiguous(partitions: u64, places: &[Share], weights: u64) -> Vec<usize> {
    let mut plan = Vec::new();
    let mut end = 0;
    for (index, share) in places.iter().enumerate() {
        end += u64::from(share.weight);
        let until = (end * partitions).div_ceil(weights);
        plan.resize(until as usize, index);
    }
    plan
}

/// The places take turns, those with more weight more often.
#[expect(
    clippy::indexing_slicing,
    reason = "ranks are of the order, which has each of the places"
)]
fn round_robin(partitions: u64, places: &[Share], weights: u64) -> Vec<usize> {
    let order = node_by_node(places);
    let fair = |place: usize| partitions * u64::from(places[place].weight);
    let mut quotas: Vec<u64> = order.iter().map(|place| fair(*place) / weights).collect();
    let rest = partitions - quotas.iter().sum::<u64>();
    let mut candidates: Vec<usize> = (0..order.len()).collect();
    candidates.sort_by_key(|rank| (u64::MAX - fair(order[*rank]) % weights, *rank));
    for rank in candidates.into_iter().take(rest as usize) {
        quotas[rank] += 1;
    }
    // The n-th of a place that gets q is due at (2n + 1) / q.
    let due = |n: u64, quota: u64| ((2 * n + 1) << 32) / quota;
    let ranks = (0..order.len()).filter(|rank| quotas[*rank] > 0);
    let mut turns: BTreeSet<(u64, usize, u64)> =
        ranks.map(|rank| (due(0, quotas[rank]), rank, 0)).collect();
    let mut plan = Vec::new();
    while let Some((_, rank, n)) = turns.pop_first() {
        plan.push(order[rank]);
        if n + 1 < quotas[rank] {
            turns.insert((due(n + 1, quotas[rank]), rank, n + 1));
        }
    }
    plan
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
fn node_by_node(places: &[Share]) -> Vec<usize> {
    let mut places_of_node = BTreeMap::<NodeId, usize>::new();
    let mut order: Vec<_> = places
        .iter()
        .enumerate()
        .map(|(index, share)| {
            let rank = places_of_node.entry(share.place.node).or_default();
            *rank += 1;
            (*rank, index)
        })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}

#[cfg(test)]
mod tests;
