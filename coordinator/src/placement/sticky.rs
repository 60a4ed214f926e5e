//! Kafka's `StickyAssignor` (KIP-54), by weight: the fewest moves that give every shard its fair share.
//!
//! A shard's fair share is `partitions * weight / all weights`; it gets that, rounded down or up. So
//! the result is within one partition of the share, and planning again plans nothing.

use std::collections::{BTreeMap, VecDeque};

use ephesus_wire::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};

use super::field::planned;
use super::{Place, Plan, Planner, Request, Spec};

/// The fewest moves that bring every place within one of its fair share; what has no owner goes to those that have too
/// little, neighbours together.
#[derive(Clone, Copy, Debug)]
pub struct Sticky;

impl Planner for Sticky {
    fn plan(&self, request: &Request<'_>) -> Plan {
        planned(request, |field, _| {
            let shares: Vec<Share> = field.all.iter().map(Share::of).collect();
            let located: Vec<Located> = field.held.iter().copied().flatten().collect();
            let ids = (0..field.partitions).map(PartitionId);
            let orphans = ids.zip(&field.held).filter(|(_, held)| held.is_none());
            let orphans: Vec<PartitionId> = orphans.map(|(partition, _)| partition).collect();
            let partitions = 0..field.held.len();
            let holders = partitions.map(|partition| field.holder(partition).unwrap_or(0));
            let mut owners: Vec<usize> = holders.collect();
            for Move { partition, to } in rebalance(&located, &orphans, &shares) {
                let owner = owners.get_mut(usize::from(partition.0));
                let to = field.places.binary_search_by_key(&to, |spec| spec.place);
                if let (Some(owner), Ok(to)) = (owner, to) {
                    *owner = to;
                }
            }
            owners
        })
    }
}

/// One partition that goes to another shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Move {
    /// What moves.
    pub partition: PartitionId,
    /// Where to.
    pub to: Place,
}

/// A shard that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The shard.
    pub place: Place,
    /// Its part of all weights, e.g. the capacity of its node; 0: it is to be emptied.
    pub weight: u32,
}

impl Share {
    fn of(spec: &Spec<'_>) -> Self {
        let Spec { place, weight, .. } = *spec;
        Share { place, weight }
    }

    /// In no rack.
    pub(super) fn anywhere(&self) -> Spec<'static> {
        Spec {
            place: self.place,
            weight: self.weight,
            rack: None,
        }
    }
}

/// Where a partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// The partition.
    pub partition: PartitionId,
    /// Its owner, or who will be: the target of a move under way.
    pub place: Place,
    /// Whether it must stay: it is under way.
    pub is_fixed: bool,
}

/// Plans the moves, ascending by partition, and where partitions go that have no owner. Partitions at places that take no
/// part are left out of account, and so are shares of the same place but the first.
///
/// A new shard receives from all that have too much; nothing moves between two that were balanced
/// before. The same arguments in any order give the same plan.
#[must_use]
pub fn rebalance(partitions: &[Located], orphans: &[PartitionId], shares: &[Share]) -> Vec<Move> {
    let mut shards = BTreeMap::new();
    for share in shares {
        shards.entry(share.place).or_insert(Shard {
            weight: u64::from(share.weight),
            ..Shard::default()
        });
    }
    let mut count = orphans.len() as u64;
    for located in partitions {
        let Some(shard) = shards.get_mut(&located.place) else {
            continue;
        };
        count += 1;
        shard.owned += 1;
        if !located.is_fixed {
            shard.movable.push(located.partition);
        }
    }
    let weights = shards.values().map(|shard| shard.weight).sum::<u64>();
    if weights == 0 {
        return Vec::new();
    }
    give_shares(&mut shards, count, weights);
    let mut by_node: BTreeMap<NodeId, VecDeque<PartitionId>> = BTreeMap::new();
    for (partition, from) in take_surplus(&mut shards) {
        by_node.entry(from.node).or_default().push_back(partition);
    }
    let mut moves = Vec::new();
    // What can stay on its node does.
    for (place, shard) in &mut shards {
        if let Some(taken) = by_node.get_mut(&place.node) {
            let count = shard.missing().min(taken.len());
            shard.give(*place, taken.drain(..count), &mut moves);
        }
    }
    let mut taken = orphans.to_vec();
    taken.extend(by_node.into_values().flatten());
    taken.sort_unstable();
    let mut taken = taken.into_iter();
    for (place, shard) in &mut shards {
        let missing = shard.missing();
        shard.give(*place, taken.by_ref().take(missing), &mut moves);
    }
    moves.sort_unstable();
    moves
}

#[derive(Debug, Default)]
struct Shard {
    weight: u64,
    owned: u64,
    movable: Vec<PartitionId>,
    /// What it gets.
    share: u64,
}

impl Shard {
    fn missing(&self) -> usize {
        self.share.saturating_sub(self.owned) as usize
    }

    fn give(
        &mut self,
        to: Place,
        partitions: impl Iterator<Item = PartitionId>,
        moves: &mut Vec<Move>,
    ) {
        let before = moves.len();
        moves.extend(partitions.map(|partition| Move { partition, to }));
        self.owned += (moves.len() - before) as u64;
    }
}

/// Rounds the fair shares so that they add up to `count`: up first where that saves a move, then
/// where most is missing.
fn give_shares(shards: &mut BTreeMap<Place, Shard>, count: u64, weights: u64) {
    let mut candidates = Vec::new();
    let mut given = 0;
    for (place, shard) in shards.iter_mut() {
        let whole = count * shard.weight / weights;
        shard.share = whole;
        given += whole;
        if !(count * shard.weight).is_multiple_of(weights) {
            let has_more = shard.owned > whole;
            let missing = whole.saturating_sub(shard.owned);
            // Among equals first one shard of every node.
            let key = (!has_more, u64::MAX - missing, place.shard, place.node);
            candidates.push((key, *place));
        }
    }
    candidates.sort_unstable();
    let rest = (count - given) as usize;
    for (_, place) in candidates.into_iter().take(rest) {
        if let Some(shard) = shards.get_mut(&place) {
            shard.share += 1;
        }
    }
}

/// Takes from every shard what it has beyond its share, the last partitions first: neighbours stay
/// together.
fn take_surplus(shards: &mut BTreeMap<Place, Shard>) -> Vec<(PartitionId, Place)> {
    let mut taken = Vec::new();
    for (place, shard) in shards.iter_mut() {
        shard.movable.sort_unstable();
        let surplus = shard.owned.saturating_sub(shard.share) as usize;
        let from = shard.movable.len().saturating_sub(surplus);
        let moving = shard.movable.split_off(from);
        shard.owned -= moving.len() as u64;
        taken.extend(moving.into_iter().map(|partition| (partition, *place)));
    }
    taken.sort_unstable();
    taken
}

#[cfg(test)]
mod tests;
