//! The load of a cluster, as its leader was told.

use std::collections::BTreeMap;

use ephesus_wire::table::PartitionEntry;
use ephesus_wire::{Epoch, NodeId, ShardId};

use super::board::MINUTE;
use super::told::LoadReport;
use super::windows::{Rates, WINDOWS_S};
use crate::placement::Place;
use crate::state::{MemberStatus, State};

/// What was told of a hot partition by window is not told any more when it is so old, ms.
const HOT_MS: u64 = 1_000;

/// What a node has told is not told any more when the node was silent for so long, ms.
const TOLD_MS: u64 = 10_000;

/// What nodes have told of their load since this leader leads: of what the table gives to them, and of nothing else.
#[derive(Debug, Default)]
pub struct Loads {
    /// Which start of each node has told something, and when that was last heard of.
    heard: BTreeMap<NodeId, (u64, u64)>,
    shards: BTreeMap<Place, [Rates; WINDOWS_S.len()]>,
    /// By partition.
    partitions: Vec<Option<Known>>,
}

/// What was told of one partition by one owner.
#[derive(Clone, Copy, Debug)]
struct Known {
    place: Place,
    epoch: Epoch,
    load: PartitionLoad,
    /// What it does was told, and not only how large it is.
    is_told: bool,
    /// When `windows` were told.
    windows_ms: u64,
}

/// The load of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PartitionLoad {
    /// The share of a CPU that it takes, over the last minute.
    pub cpu: f32,
    /// Operations per second, over the last minute.
    pub ops: f32,
    /// Bytes of requests and replies per second, over the last minute; none: not told yet.
    pub traffic: Option<f32>,
    /// Bytes of its keys and values; none: not told yet.
    pub bytes: Option<u64>,
    /// By window; only of the hottest of each node.
    pub windows: Option<[Rates; WINDOWS_S.len()]>,
}

/// The load of a cluster at one moment, for who balances it: only what the table has at that moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterLoad {
    /// The share of a CPU that each shard takes, over the last minute; those that have told.
    pub shards: BTreeMap<Place, f32>,
    /// By partition; none: its owner has not told yet.
    pub partitions: Vec<Option<PartitionLoad>>,
}

impl Loads {
    /// Another lead begins: nothing was told yet.
    pub fn clear(&mut self) {
        *self = Loads::default();
    }

    /// A node that is a member has told; `now_ms` is the leader's clock.
    pub fn heard(&mut self, node: NodeId, report: &LoadReport, state: &State, now_ms: u64) {
        let members = state.members();
        let Some(member) = members.get(&node) else {
            return;
        };
        let Some(told) = report.read() else {
            // It says nothing new, and is there.
            if let Some((start, heard_ms)) = self.heard.get_mut(&node)
                && *start == member.incarnation
            {
                *heard_ms = now_ms;
            }
            return;
        };
        let before = self.heard.insert(node, (member.incarnation, now_ms));
        if before.is_none_or(|(start, _)| start != member.incarnation) {
            // What another start has told does not hold, nor what others have who are no members any more.
            let is_member = |node: &NodeId| members.contains_key(node);
            self.heard.retain(|node, _| is_member(node));
            self.shards
                .retain(|place, _| place.node != node && is_member(&place.node));
        }
        for (shard, windows) in told.shards.iter().filter(|(id, _)| *id < member.shards) {
            let shard = ShardId(*shard);
            self.shards.insert(Place { node, shard }, *windows);
        }
        self.partitions.resize(state.table().entries.len(), None);
        for (id, cpu, ops) in told.rest.entries {
            if let Some(known) = self.of(id, node, state) {
                (known.load.cpu, known.load.ops) = (cpu, ops);
                known.is_told = true;
            }
        }
        for (id, traffic, bytes) in told.sizes.entries {
            if let Some(known) = self.of(id, node, state) {
                (known.load.traffic, known.load.bytes) = (Some(traffic), Some(bytes as u64));
            }
        }
        for (id, windows) in told.hottest {
            if let Some(known) = self.of(id, node, state) {
                known.windows_ms = now_ms;
                known.load.windows = Some(windows);
                if let Some(minute) = windows.get(MINUTE) {
                    known.load.cpu = minute.cpu;
                    known.load.ops = minute.ops;
                    known.load.traffic = Some(minute.bytes_in + minute.bytes_out);
                    known.is_told = true;
                }
            }
        }
    }

    /// What is known of a partition that a node owns; none: it does not.
    fn of(&mut self, partition: u16, node: NodeId, state: &State) -> Option<&mut Known> {
        let entry = state.table().entries.get(usize::from(partition))?;
        let (place, epoch) = owner(entry).filter(|(place, _)| place.node == node)?;
        let known = self.partitions.get_mut(usize::from(partition))?;
        let is_current = known.is_some_and(|known| (known.place, known.epoch) == (place, epoch));
        if !is_current {
            *known = None;
        }
        Some(known.get_or_insert(Known {
            place,
            epoch,
            load: PartitionLoad::default(),
            is_told: false,
            windows_ms: 0,
        }))
    }

    /// Whether what a node has told still holds: it serves, and was heard of since it was started.
    fn holds(&self, node: NodeId, state: &State, now_ms: u64) -> bool {
        let member = state.members().get(&node);
        let member = member.filter(|member| member.status == MemberStatus::Live);
        let heard = self.heard.get(&node);
        member
            .zip(heard)
            .is_some_and(|(member, (start, heard_ms))| {
                *start == member.incarnation && now_ms.saturating_sub(*heard_ms) <= TOLD_MS
            })
    }

    /// What each shard does per second, by window.
    #[must_use]
    pub fn shard(
        &self,
        place: Place,
        state: &State,
        now_ms: u64,
    ) -> Option<&[Rates; WINDOWS_S.len()]> {
        let windows = self.shards.get(&place)?;
        self.holds(place.node, state, now_ms).then_some(windows)
    }

    /// The share of a CPU that a shard takes, over the last minute.
    #[must_use]
    pub fn shard_cpu(&self, place: Place, state: &State, now_ms: u64) -> Option<f32> {
        Some(self.shard(place, state, now_ms)?.get(MINUTE)?.cpu)
    }

    /// The share of a CPU that the busiest shard of a node takes, over the last minute, as it has told last.
    #[must_use]
    pub fn busiest_shard_cpu(&self, node: NodeId) -> Option<f32> {
        let place = |shard| Place {
            node,
            shard: ShardId(shard),
        };
        let shards = self.shards.range(place(0)..=place(u16::MAX));
        let cpu = shards.filter_map(|(_, windows)| Some(windows.get(MINUTE)?.cpu));
        cpu.max_by(f32::total_cmp)
    }

    /// What is known of a partition that has this entry in the table.
    #[must_use]
    pub fn partition(
        &self,
        partition: u16,
        entry: &PartitionEntry,
        state: &State,
        now_ms: u64,
    ) -> Option<PartitionLoad> {
        let known = (*self.partitions.get(usize::from(partition))?)?;
        let is_current = owner(entry) == Some((known.place, known.epoch));
        if !known.is_told || !is_current || !self.holds(known.place.node, state, now_ms) {
            return None;
        }
        let is_hot = now_ms.saturating_sub(known.windows_ms) <= HOT_MS;
        let windows = known.load.windows.filter(|_| is_hot);
        Some(PartitionLoad {
            windows,
            ..known.load
        })
    }

    /// All that is known and still so.
    #[must_use]
    pub fn of_cluster(&self, state: &State, now_ms: u64) -> ClusterLoad {
        let is_there = |place: &Place| {
            let member = state.members().get(&place.node);
            member.is_some_and(|member| place.shard.0 < member.shards)
                && self.holds(place.node, state, now_ms)
        };
        let shards = self.shards.iter().filter(|(place, _)| is_there(place));
        let entries = (0..).zip(&state.table().entries);
        ClusterLoad {
            shards: shards
                .map(|(place, windows)| (*place, windows.get(MINUTE).map_or(0.0, |r| r.cpu)))
                .collect(),
            partitions: entries
                .map(|(id, entry)| self.partition(id, entry, state, now_ms))
                .collect(),
        }
    }
}

/// Who owns a partition, and since which epoch.
fn owner(entry: &PartitionEntry) -> Option<(Place, Epoch)> {
    let primary = entry.primary()?;
    let place = Place {
        node: primary.node,
        shard: primary.shard,
    };
    Some((place, entry.epoch))
}
