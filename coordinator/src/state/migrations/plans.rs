//! Moves that become migrations: planned, planned again, and those of a node that is to be emptied.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wire::{MigrationId, NodeId, PartitionId};

use crate::migration::{AbortReason, Migration, Phase, Purpose};
use crate::placement::{Move, Place, Policy};
use crate::state::{Effects, Refusal, Retry, State, is_up};

impl State {
    /// Whether a partition can go to a place; the migration that brings it there already, if any.
    ///
    /// # Errors
    /// [`Refusal`].
    fn check_move(
        &self,
        Move { partition, to }: Move,
        active: Option<(MigrationId, Place)>,
    ) -> Result<Option<MigrationId>, Refusal> {
        let entry = self.table.entry(partition);
        let entry = entry.ok_or(Refusal::NoSuchPartition(partition))?;
        match active {
            Some((id, target)) if target == to => return Ok(Some(id)),
            Some((migration, _)) => {
                return Err(Refusal::Moving {
                    partition,
                    migration,
                });
            }
            None => {}
        }
        let member = self.members.get(&to.node);
        let member = member.ok_or(Refusal::Unknown(to.node))?;
        let name = || member.name.clone();
        if !is_up(member) {
            return Err(Refusal::NodeFailed(name()));
        }
        if to.shard.0 >= member.shards {
            return Err(Refusal::NoSuchShard {
                name: name(),
                shard: to.shard,
                shards: member.shards,
            });
        }
        if self.migrations.draining.contains(&to.node) {
            return Err(Refusal::Draining(name()));
        }
        let owner = entry.primary().ok_or(Refusal::Unowned(partition))?;
        if (owner.node, owner.shard) == (to.node, to.shard) {
            return Err(Refusal::AlreadyThere(partition));
        }
        match self.members.get(&owner.node) {
            Some(member) if !is_up(member) => Err(Refusal::NodeFailed(member.name.clone())),
            _ => Ok(None),
        }
    }

    /// By partition, what moves and where to.
    pub(in crate::state) fn moving(&self) -> BTreeMap<PartitionId, (MigrationId, Place)> {
        let active = self.migrations.table.active.iter();
        active
            .map(|(id, migration)| (migration.partition, (*id, migration.target)))
            .collect()
    }

    /// Why one of the moves would not be planned; none: all would.
    #[must_use]
    pub fn refused(&self, moves: &[Move]) -> Option<Refusal> {
        let moving = self.moving();
        let mut refusals = moves.iter().filter_map(|wanted| {
            let active = moving.get(&wanted.partition).copied();
            self.check_move(*wanted, active).err()
        });
        refusals.next()
    }

    pub(in crate::state) fn plan_moves(&mut self, moves: &[Move], purpose: Purpose) -> Effects {
        self.end_rest(purpose);
        self.plan_each(moves, purpose)
    }

    /// Plans what a leader moves of its own accord, unless an operator has decided otherwise.
    pub(in crate::state) fn plan_own(
        &mut self,
        moves: &[Move],
        change: Option<Policy>,
    ) -> Result<Effects, Refusal> {
        if !self.goes_on(change) {
            return Err(Refusal::Overtaken);
        }
        Ok(self.plan_each(moves, Purpose::Rebalance))
    }

    fn plan_each(&mut self, moves: &[Move], purpose: Purpose) -> Effects {
        let mut moving = self.moving();
        let mut planned = BTreeSet::new();
        let mut effects = Effects::default();
        for &wanted in moves {
            let active = moving.get(&wanted.partition).copied();
            let outcome = match self.check_move(wanted, active) {
                Ok(Some(id)) => Ok(id),
                Ok(None) => {
                    let id = self.plan(wanted, purpose, 1, &mut effects);
                    moving.insert(wanted.partition, (id, wanted.to));
                    planned.insert(wanted.partition);
                    Ok(id)
                }
                Err(refusal) => Err(refusal),
            };
            effects.planned.push((wanted, outcome));
        }
        let retries = &mut self.migrations.retries;
        retries.retain(|_, retry| !planned.contains(&retry.partition));
        effects
    }

    /// Adds a migration that was checked.
    #[expect(
        clippy::indexing_slicing,
        clippy::expect_used,
        reason = "a move is checked to be of a partition with an owner"
    )]
    fn plan(
        &mut self,
        Move { partition, to }: Move,
        purpose: Purpose,
        attempt: u32,
        effects: &mut Effects,
    ) -> MigrationId {
        let entry = &self.table.entries[usize::from(partition.0)];
        let owner = entry.primary().expect("an owner was found");
        let migration = Migration {
            partition,
            epoch: entry.epoch,
            source: Place {
                node: owner.node,
                shard: owner.shard,
            },
            target: to,
            phase: self.first_phase(purpose),
            attempt,
            purpose,
        };
        let table = &mut self.migrations.table;
        table.last = MigrationId(table.last.0 + 1);
        table.active.insert(table.last, migration);
        effects.migrations.insert(table.last);
        table.last
    }

    pub(in crate::state) fn retry_migration(
        &mut self,
        id: MigrationId,
    ) -> Result<Effects, Refusal> {
        let mut effects = Effects::default();
        let Some(&retry) = self.migrations.retries.get(&id) else {
            return self.check_given(id).map(|()| effects);
        };
        let Retry {
            partition,
            target,
            attempt,
        } = retry;
        let wanted = Move {
            partition,
            to: target,
        };
        let mut active = self.migrations.table.active.iter();
        let active = active.find(|(_, migration)| migration.partition == partition);
        let active = active.map(|(id, migration)| (*id, migration.target));
        match self.check_move(wanted, active) {
            Ok(None) => {
                self.plan(wanted, Purpose::Rebalance, attempt, &mut effects);
            }
            // It may come back.
            Err(refusal @ Refusal::NodeFailed(_)) => return Err(refusal),
            Ok(Some(_)) | Err(_) => {}
        }
        self.migrations.retries.remove(&id);
        Ok(effects)
    }

    pub(in crate::state) fn limit_moves(&mut self, mb_s: u32) -> Effects {
        let limit = &mut self.migrations.table.limit_mb_s;
        let was = std::mem::replace(limit, mb_s);
        Effects {
            limit: was != mb_s,
            ..Effects::default()
        }
    }

    pub(in crate::state) fn drain(&mut self, node: NodeId, on: bool) -> Result<Effects, Refusal> {
        let member = self.members.get(&node).ok_or(Refusal::Unknown(node))?;
        let mut effects = Effects::default();
        if !on {
            if self.migrations.draining.remove(&node) {
                let is_meant = |migration: &Migration| {
                    migration.source.node == node && migration.phase == Phase::Waiting
                };
                self.abort_of(AbortReason::Cancelled, is_meant, &mut effects);
                // Members of a release that leaves them would disagree: there are none once a leader has said this.
                if self.moves_max() > 0 {
                    let owned: BTreeSet<PartitionId> = self.owned(node).collect();
                    let retries = &mut self.migrations.retries;
                    retries.retain(|_, retry| !owned.contains(&retry.partition));
                }
            }
            return Ok(effects);
        }
        let mut others = self.members.iter();
        let takes = others.any(|(id, other)| {
            *id != node && is_up(other) && !self.migrations.draining.contains(id)
        });
        if !takes {
            return Err(Refusal::NowhereToGo(member.name.clone()));
        }
        self.migrations.draining.insert(node);
        let retries = &mut self.migrations.retries;
        retries.retain(|_, retry| retry.target.node != node);
        let is_meant = |migration: &Migration| migration.target.node == node;
        self.abort_of(AbortReason::Draining, is_meant, &mut effects);
        Ok(effects)
    }
}
