//! What the leader says of load.

use ephesus_wal::Disk;
use ephesus_wire::{NodeId, PartitionId, ShardId};

use super::Coordinator;
use super::operator::slots;
use crate::load::ClusterLoad;
use crate::load::report::{
    ClusterLoadReport, HotKeyRow, HotKeysReport, PartitionLoadRow, ShardLoadRow, cpu_us, rows,
};
use crate::placement::Place;
use crate::state::MemberStatus;

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

    /// What nodes have told of hot keys; those that have not are asked.
    pub(super) fn hot_keys_report(&mut self) -> HotKeysReport {
        let now_ms = self.now_ms;
        self.hot_keys.want(now_ms);
        let mut report = HotKeysReport::default();
        for (node, member) in self.state().members() {
            match self.hot_keys.of(*node, now_ms) {
                Some(keys) => report.keys.extend(keys.keys().iter().map(|key| HotKeyRow {
                    key: key.name.bytes().to_vec(),
                    key_bytes: key.len,
                    database: key.database,
                    node: member.name.clone(),
                    shard: key.shard,
                    ops_per_s: key.ops_per_s,
                    share_of_shard: key.share,
                })),
                None if member.status == MemberStatus::Live => {
                    report.missing.push(member.name.clone());
                }
                None => {}
            }
        }
        report
            .keys
            .sort_by_key(|key| std::cmp::Reverse(key.ops_per_s));
        report
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
        partitions.sort_by_key(|row| std::cmp::Reverse((row.cpu_us_per_s, row.ops_per_s)));
        ClusterLoadReport { shards, partitions }
    }
}

#[cfg(test)]
mod tests;
