//! Who gets what nobody owns, and what becomes of it when a node has other shards.

use std::collections::BTreeSet;

use ephesus_wire::table::{PartitionEntry, PartitionStatus, Replica, Role};
use ephesus_wire::{MigrationId, NodeId, PartitionId, ShardId};

use super::{State, is_up};
use crate::migration::Arrival;
use crate::placement::{self, Place, Share};

impl State {
    /// Gives every partition without an owner one, if there are enough nodes.
    #[expect(
        clippy::indexing_slicing,
        reason = "orphans are of the table, and what is planned is of the places"
    )]
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
                .flat_map(|(id, m)| {
                    let weight = m.capacity;
                    places(*id, m.shards).map(move |place| Share { place, weight })
                })
                .collect()
        };
        let mut places: Vec<Share> = of(false);
        if places.is_empty() {
            places = of(true);
        }
        let Ok(plan) = placement::plan_shares(orphans.len() as u16, &places, options.policy) else {
            return BTreeSet::new();
        };
        let mut assigned = BTreeSet::new();
        for (index, place) in orphans.into_iter().zip(plan) {
            let entry = &mut self.table.entries[index];
            own(entry, places[place].place);
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

pub(super) fn places(node: NodeId, shards: u16) -> impl Iterator<Item = Place> {
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
