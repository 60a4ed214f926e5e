//! What operators ask about the policy of placement: where the table stands, what a change would cost.

use std::collections::BTreeMap;

use ephesus_wal::Disk;
use ephesus_wire::NodeId;
use ephesus_wire::table::Replica;

use super::Coordinator;
use super::planning::Planned;
use crate::load::ClusterLoad;
use crate::migration::{Phase, Purpose};
use crate::placement::{Move, Place, Policy};
use crate::report::{PlacementReport, PlacementRow, PlacementState, Problem};
use crate::state::{Course, Member, MemberStatus};

/// Thousandths.
const PERMILLE: u64 = 1_000;

impl<D: Disk> Coordinator<D> {
    /// Where the table stands against a policy, and what it would take to get there; `followed` is what a rebalance
    /// would do now.
    pub(super) fn placement(
        &self,
        policy: Policy,
        planned: &Planned,
        followed: &Planned,
    ) -> PlacementReport {
        let state = self.state();
        let active = state.migrations().active.values();
        let of_plans = active.filter(|migration| migration.purpose == Purpose::Rebalance);
        let waiting = of_plans.clone().filter(|m| m.phase == Phase::Waiting);
        let (waiting, all) = (waiting.count() as u64, of_plans.count() as u64);
        let bytes = self.bytes_of(&planned.moves);
        let rate = self.migrating.rate();
        let shards = self.shard_rows();
        let imbalance = shards.iter().filter(|row| row.fair_ppm > 0);
        let imbalance = imbalance.map(|row| {
            let permille = row.share_ppm.saturating_mul(PERMILLE);
            permille / row.fair_ppm
        });
        PlacementReport {
            policy: policy.to_string(),
            current: state.policy().to_string(),
            followed_by: state.standing_policy().to_string(),
            state: match state.course() {
                Course::Follows => PlacementState::Follows,
                Course::Changes => PlacementState::Changes,
                Course::Rests => PlacementState::Rests,
            },
            moves_max: state.moves_max(),
            under_way: all - waiting,
            waiting,
            partitions: state.table().entries.len() as u64,
            imbalance_permille: imbalance.max().unwrap_or(0),
            nodes: summed(&shards, |row| row.node.clone()),
            racks: match shards.iter().any(|row| !row.rack.is_empty()) {
                true => summed(&shards, |row| row.rack.clone()),
                false => Vec::new(),
            },
            shards,
            moves: planned.moves.len() as u64,
            bytes,
            bytes_per_s: rate,
            seconds: rate.filter(|_| bytes > 0).map(|rate| bytes.div_ceil(rate)),
            rebalance_moves: followed.moves.len() as u64,
            unmet: self
                .not_placed()
                .chain(planned.unmet.iter().cloned())
                .collect(),
            plan: planned
                .moves
                .iter()
                .map(|m| self.move_row(*m, None))
                .collect(),
        }
    }

    /// What keeps partitions without an owner, or with one that is away, whatever the policy says.
    fn not_placed(&self) -> impl Iterator<Item = String> {
        let keeps = |problem: &Problem| {
            matches!(
                problem,
                Problem::NotEnoughNodes { .. } | Problem::NodeFailed { .. }
            )
        };
        let problems = self.problems().into_iter();
        problems.filter(keeps).map(|problem| problem.to_string())
    }

    /// A line for each shard, by node.
    fn shard_rows(&self) -> Vec<PlacementRow> {
        let state = self.state();
        let mut owned = BTreeMap::<Place, u64>::new();
        for entry in &state.table().entries {
            if let Some(owner) = entry.primary() {
                let (node, shard) = (owner.node, owner.shard);
                *owned.entry(Place { node, shard }).or_default() += 1;
            }
        }
        // Who is to be emptied, or is away, gets nothing now.
        let weight = |node: &NodeId, member: &Member| match state.draining().contains(node)
            || member.status == MemberStatus::Failed
        {
            true => 0,
            false => u64::from(member.capacity),
        };
        let members = state.members().iter();
        let weights = members
            .clone()
            .map(|(node, member)| weight(node, member) * u64::from(member.shards));
        let weights = weights.sum::<u64>().max(1);
        let all = (state.table().entries.len() as u64).max(1);
        let mut rows = Vec::new();
        for (node, member) in members {
            for place in crate::state::places(*node, member.shards) {
                let partitions = owned.get(&place).copied().unwrap_or(0);
                rows.push(PlacementRow {
                    node: member.name.clone(),
                    shard: Some(place.shard.0),
                    rack: member.addresses.rack.clone(),
                    partitions,
                    share_ppm: partitions * PERMILLE * PERMILLE / all,
                    fair_ppm: weight(node, member) * PERMILLE * PERMILLE / weights,
                });
            }
        }
        rows.sort_by(|a, b| (&a.node, a.shard).cmp(&(&b.node, b.shard)));
        rows
    }

    /// How many bytes moves would move, as far as nodes have told.
    pub(super) fn bytes_of(&self, moves: &[Move]) -> u64 {
        let all = self.partition_bytes(&self.cluster_load());
        let bytes = moves
            .iter()
            .map(|one| all.get(usize::from(one.partition.0)));
        bytes.flatten().copied().fold(0, u64::saturating_add)
    }

    /// Bytes of each partition, as nodes have told: of it, or else what the node's usually have.
    pub(super) fn partition_bytes(&self, load: &ClusterLoad) -> Vec<u64> {
        let entries = &self.state().table().entries;
        let mut owned = BTreeMap::<NodeId, u64>::new();
        for entry in entries {
            if let Some(owner) = entry.primary() {
                *owned.entry(owner.node).or_default() += 1;
            }
        }
        let usual = |owner: &Replica| {
            let (heard, _) = self.liveness.heard_of(owner.node)?;
            Some(heard.figures.bytes / owned.get(&owner.node).copied().unwrap_or(1).max(1))
        };
        let bytes = entries.iter().enumerate().map(|(at, entry)| {
            let known = load.partitions.get(at).copied().flatten();
            let known = known.and_then(|load| load.bytes);
            known.or_else(|| usual(entry.primary()?)).unwrap_or(0)
        });
        bytes.collect()
    }
}

/// The rows of what has the same name, together.
fn summed(rows: &[PlacementRow], name: impl Fn(&PlacementRow) -> String) -> Vec<PlacementRow> {
    let mut sums = BTreeMap::<String, PlacementRow>::new();
    for row in rows {
        let name = name(row);
        let sum = sums.entry(name.clone()).or_insert_with(|| PlacementRow {
            node: name,
            shard: None,
            rack: row.rack.clone(),
            ..PlacementRow::default()
        });
        sum.partitions += row.partitions;
        sum.share_ppm += row.share_ppm;
        sum.fair_ppm += row.fair_ppm;
    }
    sums.into_values().collect()
}

#[cfg(test)]
mod tests;
