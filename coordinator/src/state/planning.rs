//! What the planner sees of the state: which shards take part, and what they have or will have.

use std::collections::BTreeMap;

use ephesus_wire::{NodeId, PartitionId};

use super::{State, is_live, is_up, places};
use crate::placement::{Located, Move, Place, Share, rebalance};

impl State {
    /// The fewest moves that balance the cluster, draining nodes emptied. Nodes that have failed or recover neither
    /// give nor get, but for draining ones that recover, which give; what is under way counts where it goes.
    #[must_use]
    pub fn plan_rebalance(&self) -> Vec<Move> {
        let members = self.members.iter();
        let take_part = members.filter(|(id, member)| {
            is_live(member) || is_up(member) && self.draining().contains(id)
        });
        let shares: Vec<Share> = take_part
            .flat_map(|(id, member)| {
                let is_drained = self.draining().contains(id);
                let weight = if is_drained { 0 } else { member.capacity };
                places(*id, member.shards).map(move |place| Share { place, weight })
            })
            .collect();
        rebalance(&self.located(), &shares)
    }

    /// The shard of a node, other than the one that has the partition, that has the fewest.
    #[must_use]
    pub fn lightest_shard(&self, node: NodeId, partition: PartitionId) -> Option<Place> {
        let member = self.members.get(&node)?;
        let owner = self.table.entry(partition).and_then(|e| e.primary());
        let owner = owner.map(|owner| (owner.node, owner.shard));
        let mut counts: BTreeMap<Place, usize> = places(node, member.shards)
            .map(|place| (place, 0))
            .collect();
        for located in self.located() {
            if let Some(count) = counts.get_mut(&located.place) {
                *count += 1;
            }
        }
        let is_other = |place: &Place| owner != Some((place.node, place.shard));
        let others = counts.iter().filter(|(place, _)| is_other(place));
        let lightest = others.min_by_key(|(place, count)| (**count, place.shard));
        // With one shard there is no other: the refusal will say that it is there.
        lightest
            .or_else(|| counts.iter().next())
            .map(|(place, _)| *place)
    }

    fn located(&self) -> Vec<Located> {
        let moving = self.moving();
        let retries = self.retries().values();
        let coming: BTreeMap<PartitionId, Place> = retries
            .filter(|retry| self.awaits(retry))
            .map(|retry| (retry.partition, retry.target))
            .collect();
        let entries = self.table.entries.iter().enumerate();
        entries
            .filter_map(|(index, entry)| {
                let partition = PartitionId(index as u16);
                let owner = entry.primary()?;
                let active = moving.get(&partition).map(|(_, target)| *target);
                let goes = active.or_else(|| coming.get(&partition).copied());
                let here = Place {
                    node: owner.node,
                    shard: owner.shard,
                };
                Some(Located {
                    partition,
                    place: goes.unwrap_or(here),
                    is_fixed: goes.is_some(),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
