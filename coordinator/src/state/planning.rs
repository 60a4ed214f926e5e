//! What the planner sees of the state: which shards take part, and what they have or will have.

use std::collections::BTreeMap;

use ephesus_wire::{NodeId, PartitionId};

use super::{State, is_live, is_up, places};
use crate::placement::{Located, Place, Share};

/// What plans follow from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scene {
    /// Partitions of the cluster.
    pub partitions: u16,
    /// The shards that can give and get, and their racks; those of draining nodes have no weight.
    pub able: Vec<(Share, String)>,
    /// The same with those of nodes that are away for a while.
    pub all: Vec<(Share, String)>,
    /// Where partitions are, or will be.
    pub current: Vec<Located>,
}

impl State {
    /// What plans follow from now. Nodes that have failed or recover neither give nor get, but for draining ones that
    /// recover, which give; what is under way counts where it goes.
    #[must_use]
    pub fn scene(&self) -> Scene {
        let mut scene = Scene {
            partitions: self.table.entries.len() as u16,
            current: self.located(),
            ..Scene::default()
        };
        for (node, member) in &self.members {
            let weight = match self.draining().contains(node) {
                true => 0,
                false => member.capacity,
            };
            let is_able = self.takes_part(*node);
            for place in places(*node, member.shards) {
                let one = (Share { place, weight }, member.addresses.rack.clone());
                if is_able {
                    scene.able.push(one.clone());
                }
                scene.all.push(one);
            }
        }
        scene
    }

    /// Whether a node can give or get partitions now.
    #[must_use]
    pub fn takes_part(&self, node: NodeId) -> bool {
        let member = self.members.get(&node);
        member.is_some_and(|member| {
            is_live(member) || is_up(member) && self.draining().contains(&node)
        })
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

    /// Where partitions are, or will be.
    #[must_use]
    pub fn located(&self) -> Vec<Located> {
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
