//! The nodes of a world carry migrations out, without a stream: what a copy holds is a number of
//! writes, and a target gets all of it at once when it prepares.
//!
//! Every acknowledged write must be in the copy that serves next.

use std::collections::BTreeMap;

use ephesus_coordinator::migration::{Confirmation, Migration, Phase, Progress, Step};
use ephesus_coordinator::report::Query;
use ephesus_coordinator::state::MemberStatus;
use ephesus_wire::{MigrationId, PartitionId};

use super::World;
use crate::process::{Carried, Copy};

/// A source that has said commit, and does not learn what became of it, says abort, ms.
const DEADLINE_MS: u64 = 1_500;

/// How long a source copies, ms.
const COPY_MS_MAX: u64 = 600;

impl World {
    /// A node goes on with the migrations it is the source of, and serves writes.
    pub(super) fn migrate(&mut self, node: usize) -> Result<(), String> {
        let process = &self.nodes[node];
        let Some(view) = process.running.as_ref().and_then(|agent| agent.view()) else {
            return Ok(());
        };
        if process.paused_until > self.now {
            return Ok(());
        }
        let (view, me) = (view.clone(), process.disk.id);
        let mut carried = std::mem::take(&mut self.nodes[node].carried);
        carried.retain(|id, _| view.migrations.active.contains_key(id));
        let own = view.migrations.active.iter();
        for (id, migration) in own.filter(|(_, migration)| migration.source.node == me) {
            let next = match (carried.get(id), &migration.phase) {
                (None, Phase::Planned) if self.rng.one_in(3) => Some(Carried::Beginning),
                (None, Phase::Planned) => None,
                // An earlier start has begun it.
                (None, _) => Some(Carried::GivingUp),
                (Some(Carried::Beginning), Phase::Copying) => Some(Carried::Copying {
                    until: self.now + 1 + self.rng.below(COPY_MS_MAX),
                }),
                (Some(Carried::Copying { until }), _) if *until <= self.now => {
                    Some(self.finish(node, *id, migration))
                }
                (Some(Carried::Held { since }), _) if self.now - since > DEADLINE_MS => {
                    Some(Carried::HeldTooLong)
                }
                (Some(state), _) => Some(*state),
            };
            if let Some(next) = next {
                carried.insert(*id, next);
            }
        }
        let steps = carried
            .iter()
            .filter_map(|(id, state)| Some((*id, step(*state)?)));
        let steps: BTreeMap<MigrationId, Step> = steps.collect();
        let progress = carried.keys().map(|id| {
            let progress = Progress {
                keys: self.now,
                ..Progress::default()
            };
            (*id, progress)
        });
        let progress = progress.collect();
        let process = &mut self.nodes[node];
        process.carried = carried;
        if let Some(agent) = &mut process.running {
            agent.set_migration_steps(steps);
            agent.set_migration_progress(progress);
        }
        self.write(node)
    }

    /// The source has copied everything: it holds writes once the target has prepared.
    fn finish(&mut self, node: usize, id: MigrationId, migration: &Migration) -> Carried {
        let target = migration.target.node;
        let (now, is_rough) = (self.now, self.is_rough);
        let disk = &self.nodes[node].disk;
        let held = disk.copies.get(&migration.partition).copied();
        let is_there = |process: &&mut crate::process::NodeProcess| {
            process.disk.id == target && process.running.is_some() && process.paused_until <= now
        };
        let found = self.nodes.iter_mut().find(is_there);
        let fails = is_rough && self.rng.one_in(5);
        match (found, held) {
            (Some(process), Some(copy)) if !fails => {
                let prepared = (migration.partition, copy.writes);
                process.disk.prepared.insert(id, prepared);
                Carried::Held { since: now }
            }
            _ => Carried::GivingUp,
        }
    }

    /// A client writes to some of what a node serves.
    fn write(&mut self, node: usize) -> Result<(), String> {
        let now = self.now;
        let process = &self.nodes[node];
        let Some(agent) = &process.running else {
            return Ok(());
        };
        let serves =
            agent.holds_lease(process.clock.at(now)) && agent.status() == Some(MemberStatus::Live);
        let Some(view) = agent.view().filter(|_| serves).cloned() else {
            return Ok(());
        };
        let held = process.held(&view);
        for (index, entry) in view.table.entries.iter().enumerate() {
            let partition = PartitionId(index as u16);
            let process = &mut self.nodes[node];
            let is_own = entry.primary().is_some_and(|p| p.node == process.disk.id);
            if !is_own || held.contains(&partition) || !self.rng.one_in(4) {
                continue;
            }
            let Some(copy) = process.disk.copies.get_mut(&partition) else {
                continue;
            };
            if copy.epoch == entry.epoch {
                copy.writes += 1;
                self.checks.written(node, partition, *copy)?;
            }
        }
        Ok(())
    }

    /// A node takes over what the table gives to it, and gives up what it does not.
    pub(super) fn host(&mut self, node: usize) -> Result<(), String> {
        let process = &mut self.nodes[node];
        let Some(agent) = &mut process.running else {
            return Ok(());
        };
        let Some(view) = agent.view().cloned() else {
            return Ok(());
        };
        let disk = &mut process.disk;
        let arrived = disk.settle(&view.migrations);
        disk.copies.extend(arrived);
        for (index, entry) in view.table.entries.iter().enumerate() {
            let partition = PartitionId(index as u16);
            if entry
                .primary()
                .is_none_or(|primary| primary.node != disk.id)
            {
                disk.copies.remove(&partition);
                continue;
            }
            let copy = disk.copies.get_mut(&partition);
            if let Some(copy) = copy.filter(|c| view.migrations.is_current(partition, c.epoch)) {
                copy.epoch = entry.epoch;
                continue;
            }
            let arrival = view.migrations.arrivals.get(&partition);
            if let Some(arrival) = arrival.filter(|arrival| arrival.migration.0 > 0) {
                return Err(format!(
                    "node {node} has nothing of partition {partition}, which {arrival:?} has brought"
                ));
            }
            let copy = Copy {
                epoch: entry.epoch,
                writes: 0,
            };
            self.checks.emptied(node, partition, copy)?;
            disk.copies.insert(partition, copy);
        }
        let epochs = disk.copies.iter().map(|(p, copy)| (*p, copy.epoch));
        agent.set_hosted(epochs.collect());
        Ok(())
    }

    /// The operator moves something, now and then.
    pub(super) fn rearrange(&mut self, coordinator: u64) {
        let name = |world: &mut World| {
            let node = world.rng.below(world.nodes.len() as u64) as usize;
            world.nodes[node].name.clone()
        };
        let query = match self.rng.below(12) {
            0 | 1 => Query::Rebalance { dry_run: false },
            2..=4 => Query::Move {
                partition: self.rng.below(self.shape.options.partitions.into()) as u16,
                node: name(self),
                shard: None,
            },
            5 => Query::Drain {
                node: name(self),
                on: self.rng.one_in(2),
            },
            6 => Query::CancelMigration {
                id: 1 + self.rng.below(60),
            },
            7 => Query::Migrations,
            _ => return,
        };
        self.ask(coordinator, query);
    }
}

/// What a source wants to have decided.
fn step(state: Carried) -> Option<Step> {
    match state {
        Carried::Beginning => Some(Step::Begin),
        Carried::Copying { .. } => None,
        Carried::Held { .. } => Some(Step::Commit(Confirmation::default())),
        Carried::GivingUp | Carried::HeldTooLong => Some(Step::Abort("simulated".to_owned())),
    }
}
