//! What the leader says of load.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::iter::zip;

use ephesus_wal::Disk;
use ephesus_wire::{NodeId, PartitionId, ShardId};

use super::Coordinator;
use super::operator::slots;
use crate::load::hot::HOT_KEYS_MAX;
use crate::load::report::{
    ClusterLoadReport, HotKeyRow, HotKeysReport, PartitionLoadRow, SATURATING_US_PER_S,
    ShardLoadRow, cpu_us, rows,
};
use crate::load::{ClusterLoad, HotKeys};
use crate::placement::Place;
use crate::state::MemberStatus;

/// Keys that a status names, at most.
const SATURATING_MAX: usize = 16;

impl<D: Disk> Coordinator<D> {
    /// The load of the cluster, as far as nodes have told it since this coordinator leads.
    #[must_use]
    pub fn cluster_load(&self) -> ClusterLoad {
        self.loads.of_cluster(self.state(), self.now_ms)
    }

    /// By shard of a node, us of CPU time per second.
    pub(super) fn shard_cpu(&self, node: NodeId, shards: u16) -> Vec<Option<u64>> {
        let places = (0..shards).map(|shard| Place {
            node,
            shard: ShardId(shard),
        });
        let cpu = places.map(|place| {
            let cpu = self.loads.shard_cpu(place, self.state(), self.now_ms)?;
            Some(cpu_us(cpu))
        });
        cpu.collect()
    }

    /// Whether a shard of a node has so much to do that it can be for the sake of one key.
    pub(super) fn may_saturate(&self, node: NodeId) -> bool {
        let cpu = self.loads.busiest_shard_cpu(node);
        cpu.is_some_and(|cpu| cpu_us(cpu) >= SATURATING_US_PER_S)
    }

    /// The hottest keys of the cluster, as nodes have told; those that have not are asked.
    pub(super) fn hot_keys_report(&mut self) -> HotKeysReport {
        self.hot_keys.want(self.now_ms);
        let members = self.state().members().iter();
        let missing = members.filter(|(node, member)| {
            let told = self.hot_keys.of(**node, self.now_ms);
            told.is_none() && member.status == MemberStatus::Live
        });
        let missing = missing.map(|(_, member)| member.name.clone()).collect();
        let mut keys = self.hot_keys();
        keys.truncate(HOT_KEYS_MAX);
        HotKeysReport { missing, keys }
    }

    /// The hottest keys that are too much for a shard each.
    pub(super) fn saturating_keys(&self) -> Vec<HotKeyRow> {
        let mut keys = self.hot_keys();
        keys.retain(HotKeyRow::saturates);
        keys.truncate(SATURATING_MAX);
        keys
    }

    /// What nodes have told of hot keys, those that are used the most first.
    fn hot_keys(&self) -> Vec<HotKeyRow> {
        if self.hot_keys.is_empty() {
            return Vec::new();
        }
        let mut cpu = BTreeMap::<Place, f32>::new();
        for (entry, load) in zip(
            &self.state().table().entries,
            self.cluster_load().partitions,
        ) {
            if let (Some(owner), Some(load)) = (entry.primary(), load) {
                let (node, shard) = (owner.node, owner.shard);
                *cpu.entry(Place { node, shard }).or_default() += load.cpu;
            }
        }
        let mut rows = Vec::new();
        for (node, member) in self.state().members() {
            let told = self.hot_keys.of(*node, self.now_ms);
            for key in told.into_iter().flat_map(HotKeys::keys) {
                let (node, shard) = (*node, ShardId(key.shard));
                let of_shard = cpu.get(&Place { node, shard });
                let share = f64::from(key.share) / 1e6;
                rows.push(HotKeyRow {
                    key: key.name.bytes().to_vec(),
                    key_bytes: key.len,
                    database: key.database,
                    node: member.name.clone(),
                    shard: key.shard,
                    ops_per_s: key.ops_per_s,
                    share_of_shard: key.share,
                    cpu_us_per_s: of_shard.map(|cpu| (cpu_us(*cpu) as f64 * share) as u64),
                });
            }
        }
        rows.sort_by_key(|key| Reverse(key.ops_per_s));
        rows
    }

    pub(super) fn load_report(&self) -> ClusterLoadReport {
        let state = self.state();
        let mut shards = Vec::new();
        for (node, member) in state.members() {
            for shard in 0..member.shards {
                let place = Place {
                    node: *node,
                    shard: ShardId(shard),
                };
                let [last_1s, last_1m, last_10m] =
                    rows(self.loads.shard(place, state, self.now_ms).copied());
                shards.push(ShardLoadRow {
                    node: member.name.clone(),
                    shard,
                    last_1s,
                    last_1m,
                    last_10m,
                });
            }
        }
        shards.sort_by(|a, b| (&a.node, a.shard).cmp(&(&b.node, b.shard)));
        let Ok(partitioning) = state.table().partitioning() else {
            return ClusterLoadReport {
                shards,
                partitions: Vec::new(),
            };
        };
        let entries = (0..).zip(&state.table().entries);
        let row = |(partition, entry)| {
            let (first_slot, last_slot) = slots(partitioning, PartitionId(partition));
            let primary = ephesus_wire::table::PartitionEntry::primary(entry);
            let owner = primary.and_then(|primary| state.members().get(&primary.node));
            let load = self.loads.partition(partition, entry, state, self.now_ms);
            let [last_1s, last_1m, last_10m] = rows(load.and_then(|load| load.windows));
            PartitionLoadRow {
                partition,
                first_slot,
                last_slot,
                node: owner.map(|member| member.name.clone()),
                shard: primary.map(|primary| primary.shard.0),
                cpu_us_per_s: load.map(|load| cpu_us(load.cpu)),
                ops_per_s: load.map(|load| load.ops.round() as u64),
                traffic_bytes_per_s: load.and_then(|load| Some(load.traffic?.round() as u64)),
                bytes: load.and_then(|load| load.bytes),
                last_1s,
                last_1m,
                last_10m,
            }
        };
        let mut partitions: Vec<PartitionLoadRow> = entries.map(row).collect();
        // None is less than any.
        partitions.sort_by_key(|row| Reverse((row.cpu_us_per_s, row.ops_per_s)));
        ClusterLoadReport { shards, partitions }
    }
}

#[cfg(test)]
mod tests;
