//! Who gets what nobody owns, and what becomes of it when a node has other shards.
//!
//! Members that apply the same log have to come to the same owners, in whatever release: a policy that is to give other
//! ones is another policy. Its tests hold what each gives.

use std::collections::BTreeSet;

use ephesus_wire::table::{PartitionEntry, PartitionStatus, Replica, Role};
use ephesus_wire::{MigrationId, NodeId, PartitionId, ShardId};

use super::{State, is_up};
use crate::migration::Arrival;
use crate::placement::{Located, Place, Planner, Policy, Request, Spec};

impl State {
    /// Gives every partition without an owner one, if there are enough nodes.
    #[expect(clippy::indexing_slicing, reason = "orphans are of the table")]
    pub(super) fn assign_if_ready(&mut self) -> BTreeSet<PartitionId> {
        let Some((_, options)) = self.cluster else {
            return BTreeSet::new();
        };
        let entries = self.table.entries.iter().enumerate();
        let orphans = entries.filter(|(_, entry)| entry.replicas.is_empty());
        let orphans: Vec<usize> = orphans.map(|(index, _)| index).collect();
        let is_first = orphans.len() == self.table.entries.len();
        let up = self.members.iter().filter(|(_, member)| is_up(member));
        let waits_for_nodes =
            is_first && up.clone().count() < usize::from(options.min_nodes.max(1));
        if orphans.is_empty() || waits_for_nodes {
            return BTreeSet::new();
        }
        let draining = self.draining();
        let of = |is_drained: bool| {
            up.clone()
                .filter(move |(id, _)| is_drained || !draining.contains(id))
                .flat_map(|(id, member)| {
                    places(*id, member.shards).map(|place| Spec {
                        place,
                        weight: member.capacity,
                        rack: Some(member.addresses.rack.as_str()).filter(|rack| !rack.is_empty()),
                    })
                })
                .collect()
        };
        let mut places: Vec<Spec<'_>> = of(false);
        if places.is_empty() {
            places = of(true);
        }
        let owners = self.owners_of(&orphans, &places);
        let mut assigned = BTreeSet::new();
        for (index, place) in orphans.into_iter().zip(owners) {
            let Some(place) = place else { continue };
            let entry = &mut self.table.entries[index];
            own(entry, place);
            let partition = PartitionId(index as u16);
            let arrival = Arrival {
                migration: MigrationId(0),
                epoch: entry.epoch,
            };
            let arrivals = &mut self.migrations.table.arrivals;
            arrivals.insert(partition, arrival);
            assigned.insert(partition);
        }
        assigned
    }

    /// Who gets each of these partitions, none of which has an owner.
    fn owners_of(&self, orphans: &[usize], places: &[Spec<'_>]) -> Vec<Option<Place>> {
        let plan = |partitions, current: &[Located]| {
            let request = Request {
                partitions,
                places,
                current,
                moves_max: usize::MAX,
            };
            self.policy().plan(&request).owners
        };
        match self.policy() {
            // These would have all others change places: they divide what there is to divide.
            Policy::Contiguous | Policy::RoundRobin => plan(orphans.len() as u16, &[]),
            _ => {
                let owners = plan(self.table.entries.len() as u16, &self.located());
                let owner = |index: &usize| owners.get(*index).copied().flatten();
                orphans.iter().map(owner).collect()
            }
        }
    }

    /// Spreads what a node owns over another number of its shards; its data stays where it is. All
    /// of it gets a new epoch, because all of the node's logs are new.
    pub(super) fn spread(&mut self, node: NodeId, shards: u16) -> BTreeSet<PartitionId> {
        let owned: Vec<PartitionId> = self.owned(node).collect();
        for (index, partition) in owned.iter().enumerate() {
            let shard = ShardId((index * usize::from(shards) / owned.len()) as u16);
            if let Some(entry) = self.table.entries.get_mut(usize::from(partition.0)) {
                own(entry, Place { node, shard });
            }
        }
        owned.into_iter().collect()
    }
}

pub(crate) fn places(node: NodeId, shards: u16) -> impl Iterator<Item = Place> {
    (0..shards).map(move |shard| Place {
        node,
        shard: ShardId(shard),
    })
}

/// Gives a partition to a shard that has not confirmed it yet.
fn own(entry: &mut PartitionEntry, place: Place) {
    entry.epoch = entry.epoch.next();
    entry.status = PartitionStatus::Assigned;
    entry.replicas = vec![Replica {
        node: place.node,
        shard: place.shard,
        role: Role::Primary,
        in_sync: true,
    }];
}

#[cfg(test)]
mod tests;
