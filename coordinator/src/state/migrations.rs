//! Migrations in the replicated state.
//!
//! ```text
//! (none)  -> waiting, planned  [plan_moves, retry_migration]  entry as it was
//! waiting <-> planned    [give_turns]         (`turns.rs`)
//! planned -> copying     [begin_migration]    the source's current start   online -> migrating
//! copying -> committed   [commit_migrations]  the source's current start   migrating -> online,
//!                                             the target under the next epoch
//! all of these -> aborted                                                  migrating -> online
//!     [abort_migration]  source, target, operator, leader (one of them has failed)
//!     [abort_of]         source or target removed, or with another number of shards;
//!                        the target is drained
//! ```
//!
//! 1. A partition has at most one active migration. While it has, entry and migration agree on
//!    epoch and source; the entry is `migrating` exactly while the migration is copying.
//! 2. Source and target of an active migration are members, and their shards exist.
//! 3. An id is given out once. The first commit or abort in the log ends a migration for ever.
//! 4. A migration of a rebalance that was aborted for a passing reason waits in `retries` until the
//!    leader plans it again; a retry is given out once, by the id it follows.
//! 5. A limit of what moves may send ends with the last of them.
//!
//! Where data could be lost, and what prevents it:
//!
//! - A commit overtaken by the source's next start: that start serves writes the target has not seen.
//!   Begin and commit name a start, and are refused once a later one has registered.
//! - A target that wipes what it has prepared because it does not see the migration any more: its
//!   table may be older than the plan, or newer than the commit. [`MigrationTable::decision_for_target`]
//!   tells the three apart, by the last id given out and the arrivals.
//! - A source that does not see the table of its commit, but a later one, and takes its migration for aborted:
//!   [`MigrationTable::decision_for_source`] asks whether the partition has moved on, not by which migration.
//! - A node that was away while a partition left it, and owns it again because the data was given
//!   up: its old copy is void, as [`MigrationTable::is_current`] tells.
//! - A source removed with its data (`lose_data`) while a target has prepared: the operator has
//!   given the partition's data up, so the prepared copy goes as well.

mod plans;
mod steps;
mod turns;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ephesus_wire::table::{PartitionStatus, Replica, Role};
use ephesus_wire::{MigrationId, NodeId, PartitionId};
use serde::{Deserialize, Serialize};

use super::{Effects, Refusal, State};
use crate::migration::{
    ATTEMPTS_MAX, Abort, AbortReason, Arrival, Confirmation, Migration, MigrationTable, Phase,
    Purpose, bounded,
};
use crate::placement::Place;

/// Ended migrations that are kept for operators: those of a rebalance of a cluster of the usual
/// number of partitions.
pub const ENDED_KEPT: usize = 1024;

/// All that is decided about migrations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migrations {
    /// What nodes know.
    pub(super) table: MigrationTable,
    /// The last [`ENDED_KEPT`], in the order in which they have ended.
    ended: VecDeque<(MigrationId, Migration)>,
    /// By the migration that was aborted.
    pub(super) retries: BTreeMap<MigrationId, Retry>,
    /// Nodes that are to be emptied.
    pub(super) draining: BTreeSet<NodeId>,
}

/// A move that is to be planned again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// What moves.
    pub partition: PartitionId,
    /// Where to.
    pub target: Place,
    /// Which attempt the next one is.
    pub attempt: u32,
}

impl Migrations {
    /// Whether a snapshot's migrations fit its table of `partitions` entries.
    pub(super) fn is_consistent(&self, partitions: usize) -> bool {
        let is_there = |partition: PartitionId| usize::from(partition.0) < partitions;
        let table = &self.table;
        table.active.iter().all(|(id, migration)| {
            let is_active = matches!(
                migration.phase,
                Phase::Waiting | Phase::Planned | Phase::Copying
            );
            is_active && *id <= table.last && is_there(migration.partition)
        }) && table.arrivals.keys().all(|partition| is_there(*partition))
    }

    /// The node is no member any more, and these partitions have lost their data.
    pub(super) fn forget(&mut self, node: NodeId, lost: &[PartitionId]) {
        self.draining.remove(&node);
        let lost: BTreeSet<PartitionId> = lost.iter().copied().collect();
        let arrivals = &mut self.table.arrivals;
        arrivals.retain(|partition, _| !lost.contains(partition));
        let retries = &mut self.retries;
        retries.retain(|_, retry| retry.target.node != node && !lost.contains(&retry.partition));
    }

    /// The node has so many shards now.
    pub(super) fn resize(&mut self, node: NodeId, shards: u16) {
        let retries = &mut self.retries;
        retries.retain(|_, retry| retry.target.node != node || retry.target.shard.0 < shards);
    }
}

impl State {
    /// What nodes know of migrations.
    #[must_use]
    pub fn migrations(&self) -> &MigrationTable {
        &self.migrations.table
    }

    /// The last migrations that have ended, in that order.
    pub fn ended_migrations(&self) -> impl DoubleEndedIterator<Item = (MigrationId, &Migration)> {
        let ended = self.migrations.ended.iter();
        ended.map(|(id, migration)| (*id, migration))
    }

    /// Moves that are to be planned again, by the migration that was aborted.
    #[must_use]
    pub fn retries(&self) -> &BTreeMap<MigrationId, Retry> {
        &self.migrations.retries
    }

    /// Nodes that are to be emptied.
    #[must_use]
    pub fn draining(&self) -> &BTreeSet<NodeId> {
        &self.migrations.draining
    }

    /// Whether anything moves, or is going to.
    pub(super) fn is_moving(&self) -> bool {
        !self.migrations.table.active.is_empty() || !self.migrations.retries.is_empty()
    }

    pub(super) fn check_given(&self, id: MigrationId) -> Result<(), Refusal> {
        if id.0 == 0 || id > self.migrations.table.last {
            return Err(Refusal::NoSuchMigration(id));
        }
        Ok(())
    }

    /// The active migration; otherwise whether it has ended in the way that was asked for.
    fn active(
        &self,
        id: MigrationId,
        is_asked: impl FnOnce(&Phase) -> bool,
    ) -> Result<Option<&Migration>, Refusal> {
        self.check_given(id)?;
        if let Some(migration) = self.migrations.table.active.get(&id) {
            return Ok(Some(migration));
        }
        let mut ended = self.migrations.ended.iter().rev();
        match ended.find(|(other, _)| *other == id) {
            Some((_, migration)) if is_asked(&migration.phase) => Ok(None),
            _ => Err(Refusal::MigrationOver(id)),
        }
    }

    pub(super) fn begin_migration(
        &mut self,
        id: MigrationId,
        incarnation: u64,
    ) -> Result<Effects, Refusal> {
        let mut effects = Effects::default();
        let Some(migration) = self.active(id, |_| false)? else {
            return Ok(effects);
        };
        let (node, partition) = (migration.source.node, migration.partition);
        self.check_start(node, incarnation)?;
        match migration.phase {
            Phase::Planned => {}
            Phase::Waiting => return Err(Refusal::NotItsTurn(id)),
            _ => return Ok(effects),
        }
        let entry = self.table.entries.get_mut(usize::from(partition.0));
        let entry = entry.ok_or(Refusal::NoSuchPartition(partition))?;
        if entry.status != PartitionStatus::Online {
            return Err(Refusal::NotOnline(partition));
        }
        entry.status = PartitionStatus::Migrating;
        if let Some(migration) = self.migrations.table.active.get_mut(&id) {
            migration.phase = Phase::Copying;
        }
        effects.partitions.insert(partition);
        effects.migrations.insert(id);
        Ok(effects)
    }

    pub(super) fn commit_migrations(
        &mut self,
        incarnation: u64,
        confirmations: &[(MigrationId, Confirmation)],
    ) -> Result<Effects, Refusal> {
        for (id, confirmation) in confirmations {
            self.check_commit(*id, incarnation, *confirmation)?;
        }
        let mut effects = Effects::default();
        for (id, confirmation) in confirmations {
            self.end(*id, Phase::Committed(*confirmation), &mut effects);
        }
        Ok(effects)
    }

    /// Whether a migration can be committed, or is.
    fn check_commit(
        &self,
        id: MigrationId,
        incarnation: u64,
        confirmation: Confirmation,
    ) -> Result<(), Refusal> {
        let is_committed = |phase: &Phase| *phase == Phase::Committed(confirmation);
        let Some(migration) = self.active(id, is_committed)? else {
            return Ok(());
        };
        self.check_start(migration.source.node, incarnation)?;
        if migration.phase != Phase::Copying {
            return Err(Refusal::NotCopying(id));
        }
        let entry = self.table.entry(migration.partition);
        let is_current = entry.is_some_and(|entry| {
            let owner = entry.primary().map(|owner| (owner.node, owner.shard));
            let source = (migration.source.node, migration.source.shard);
            entry.epoch == migration.epoch && owner == Some(source)
        });
        if !is_current {
            return Err(Refusal::MigrationOver(id));
        }
        Ok(())
    }

    pub(super) fn abort_migration(
        &mut self,
        id: MigrationId,
        abort: &Abort,
    ) -> Result<Effects, Refusal> {
        let mut effects = Effects::default();
        // It may have ended so long ago that nothing else is known of it.
        if !abort.reason.is_passing() && self.migrations.retries.remove(&id).is_some() {
            return Ok(effects);
        }
        let Some(_) = self.active(id, |phase| matches!(phase, Phase::Aborted(_)))? else {
            return Ok(effects);
        };
        let abort = Abort {
            reason: abort.reason,
            text: bounded(&abort.text),
        };
        self.end(id, Phase::Aborted(abort), &mut effects);
        Ok(effects)
    }

    /// Aborts all active migrations that `is_meant` finds.
    pub(super) fn abort_of(
        &mut self,
        reason: AbortReason,
        is_meant: impl Fn(&Migration) -> bool,
        effects: &mut Effects,
    ) {
        let active = self.migrations.table.active.iter();
        let meant = active.filter(|(_, migration)| is_meant(migration));
        let meant: Vec<MigrationId> = meant.map(|(id, _)| *id).collect();
        for id in meant {
            let text = String::new();
            self.end(id, Phase::Aborted(Abort { reason, text }), effects);
        }
    }

    /// Ends an active migration.
    fn end(&mut self, id: MigrationId, phase: Phase, effects: &mut Effects) {
        let Some(mut migration) = self.migrations.table.active.remove(&id) else {
            return;
        };
        effects.migrations.insert(id);
        let partition = migration.partition;
        let entry = self.table.entries.get_mut(usize::from(partition.0));
        match (&phase, entry) {
            (Phase::Committed(_), Some(entry)) => {
                entry.epoch = entry.epoch.next();
                entry.status = PartitionStatus::Online;
                entry.replicas = vec![Replica {
                    node: migration.target.node,
                    shard: migration.target.shard,
                    role: Role::Primary,
                    in_sync: true,
                }];
                let arrival = Arrival {
                    migration: id,
                    epoch: entry.epoch,
                };
                let arrivals = &mut self.migrations.table.arrivals;
                arrivals.insert(partition, arrival);
                effects.partitions.insert(partition);
            }
            (Phase::Aborted(_), Some(entry)) if migration.phase == Phase::Copying => {
                entry.status = PartitionStatus::Online;
                effects.partitions.insert(partition);
            }
            _ => {}
        }
        if let Phase::Aborted(Abort { reason, .. }) = &phase
            && migration.purpose == Purpose::Rebalance
            && migration.attempt < ATTEMPTS_MAX
            && reason.is_passing()
        {
            let retry = Retry {
                partition,
                target: migration.target,
                attempt: migration.attempt + 1,
            };
            self.migrations.retries.insert(id, retry);
        }
        migration.phase = phase;
        let ended = &mut self.migrations.ended;
        ended.push_back((id, migration));
        if ended.len() > ENDED_KEPT {
            ended.pop_front();
        }
    }

    fn check_start(&self, node: NodeId, found: u64) -> Result<(), Refusal> {
        let member = self.members.get(&node).ok_or(Refusal::Unknown(node))?;
        if member.incarnation != found {
            let current = member.incarnation;
            return Err(Refusal::Stale {
                node,
                found,
                current,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
