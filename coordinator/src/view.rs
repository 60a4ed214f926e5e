//! What a node keeps of the coordinator's decisions, and how it is kept up to date.
//!
//! A view has the version of its table. It moves on by [`Delta`]s, each of which fits exactly one
//! version, or is replaced as a whole.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ephesus_wire::table::{PartitionEntry, PartitionTable};
use ephesus_wire::{MigrationId, NodeId, PartitionId};
use serde::{Deserialize, Serialize};

use crate::command::{ClusterId, ClusterOptions, RaftId};
use crate::migration::{Arrival, Migration, MigrationTable};
use crate::state::{Effects, FORCED_BY, Member, State};

/// Changes that [`History`] remembers.
pub const HISTORY_CHANGES_MAX: usize = 1024;

/// The members, the partition table and the migrations at one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its layout.
    pub options: ClusterOptions,
    /// Where the coordinators are reached.
    pub coordinators: BTreeMap<RaftId, String>,
    /// The members by UUID.
    pub members: BTreeMap<NodeId, Member>,
    /// Who owns what; its version is that of the whole view.
    pub table: PartitionTable,
    /// What moves, and what has moved.
    pub migrations: MigrationTable,
}

/// What has changed between two versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// The version it fits.
    pub from: u64,
    /// The version it leads to.
    pub to: u64,
    /// The coordinators, if they have changed.
    pub coordinators: Option<BTreeMap<RaftId, String>>,
    /// Members that are new or changed; none: gone.
    pub members: Vec<(NodeId, Option<Member>)>,
    /// Partitions whose entry has changed.
    pub partitions: Vec<(PartitionId, PartitionEntry)>,
    /// The last migration that there was; see [`MigrationTable::last`].
    pub last_migration: MigrationId,
    /// Migrations that are new or changed; none: over.
    pub migrations: Vec<(MigrationId, Option<Migration>)>,
    /// Of the partitions above that have an owner, how that got it.
    pub arrivals: Vec<(PartitionId, Arrival)>,
    /// As [`MigrationTable::limit_mb_s`].
    pub limit_mb_s: u32,
}

/// What brings a view up to date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TableUpdate {
    /// Everything.
    Full(View),
    /// What has changed.
    Delta(Delta),
}

/// Why an update cannot be carried out: ask for a full copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// It is for another version.
    #[error("the delta fits version {from}, not version {held}")]
    Base {
        /// What it fits.
        from: u64,
        /// What is there.
        held: u64,
    },
    /// Nobody could be asked for the next one.
    #[error("it names no coordinators")]
    NoCoordinators,
    /// It names a partition that there is not.
    #[error("there is no partition {0}")]
    Partition(PartitionId),
    /// The table has another number of partitions than its options say.
    #[error("{found} partitions instead of {expected}")]
    Partitions {
        /// Entries of the table.
        found: usize,
        /// What the options say.
        expected: u16,
    },
}

impl Delta {
    /// How many changes it names.
    #[expect(
        clippy::len_without_is_empty,
        reason = "one without changes is not made"
    )]
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len() + self.partitions.len() + self.migrations.len()
    }
}

impl View {
    /// What nodes know of a state; none before the cluster is bootstrapped.
    #[must_use]
    pub fn of(state: &State) -> Option<View> {
        Some(View {
            cluster: state.cluster()?,
            options: state.options()?,
            coordinators: state.coordinators().clone(),
            members: state.members().clone(),
            table: state.table().clone(),
            migrations: state.migrations().clone(),
        })
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.table.version
    }

    /// Whether a coordinator was [forced](State::force) to lead alone between the two.
    #[must_use]
    pub fn is_forced_since(&self, earlier: &View) -> bool {
        self.version() / FORCED_BY > earlier.version() / FORCED_BY
    }

    /// Checks a view that came from elsewhere.
    ///
    /// # Errors
    /// [`UpdateError::Partitions`], [`UpdateError::NoCoordinators`] and [`UpdateError::Partition`].
    pub fn check(&self) -> Result<(), UpdateError> {
        if self.coordinators.is_empty() {
            return Err(UpdateError::NoCoordinators);
        }
        let (found, expected) = (self.table.entries.len(), self.options.partitions);
        if found != usize::from(expected) {
            return Err(UpdateError::Partitions { found, expected });
        }
        let migrations = self.migrations.active.values();
        let moving = migrations.map(|migration| migration.partition);
        self.check_partitions(moving.chain(self.migrations.arrivals.keys().copied()))
    }

    /// Checks that all of these are partitions of the table.
    fn check_partitions(
        &self,
        mut partitions: impl Iterator<Item = PartitionId>,
    ) -> Result<(), UpdateError> {
        let count = self.table.entries.len();
        match partitions.find(|partition| usize::from(partition.0) >= count) {
            Some(missing) => Err(UpdateError::Partition(missing)),
            None => Ok(()),
        }
    }

    /// Moves on to the delta's version.
    ///
    /// # Errors
    /// [`UpdateError`]: nothing was changed.
    pub fn update(&mut self, delta: Delta) -> Result<(), UpdateError> {
        let held = self.version();
        if delta.from != held {
            let from = delta.from;
            return Err(UpdateError::Base { from, held });
        }
        self.update_unchecked(delta)
    }

    pub(crate) fn update_unchecked(&mut self, delta: Delta) -> Result<(), UpdateError> {
        if delta.coordinators.as_ref().is_some_and(BTreeMap::is_empty) {
            return Err(UpdateError::NoCoordinators);
        }
        let changed = delta.partitions.iter().map(|(partition, _)| *partition);
        let arrived = delta.arrivals.iter().map(|(partition, _)| *partition);
        let migrations = delta.migrations.iter();
        let moving = migrations.filter_map(|(_, migration)| Some(migration.as_ref()?.partition));
        self.check_partitions(changed.chain(arrived).chain(moving))?;
        if let Some(coordinators) = delta.coordinators {
            self.coordinators = coordinators;
        }
        for (node, member) in delta.members {
            match member {
                Some(member) => drop(self.members.insert(node, member)),
                None => drop(self.members.remove(&node)),
            }
        }
        let migrations = &mut self.migrations;
        for (partition, entry) in delta.partitions {
            if let Some(place) = self.table.entries.get_mut(usize::from(partition.0)) {
                *place = entry;
            }
            migrations.arrivals.remove(&partition);
        }
        migrations.arrivals.extend(delta.arrivals);
        for (id, migration) in delta.migrations {
            match migration {
                Some(migration) => drop(migrations.active.insert(id, migration)),
                None => drop(migrations.active.remove(&id)),
            }
        }
        migrations.last = delta.last_migration;
        migrations.limit_mb_s = delta.limit_mb_s;
        self.table.version = delta.to;
        Ok(())
    }
}

/// The last changes of a state, for deltas.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// By ascending version, without gaps.
    changes: VecDeque<(u64, Effects)>,
}

impl History {
    /// Notes what led to `version`.
    pub fn record(&mut self, version: u64, mut effects: Effects) {
        effects.planned = Vec::new();
        if self
            .changes
            .back()
            .is_some_and(|(last, _)| last + 1 != version)
        {
            self.changes.clear();
        }
        if self.changes.len() == HISTORY_CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back((version, effects));
    }

    /// Forgets everything: the state was replaced.
    pub fn clear(&mut self) {
        self.changes.clear();
    }

    /// What brings a view of version `held` to `state`; none if nothing has to.
    ///
    /// It is a full copy when the changes are not remembered, or are most of the table.
    #[must_use]
    pub fn update(&self, state: &State, held: u64) -> Option<TableUpdate> {
        if held >= state.table().version {
            return None;
        }
        let delta = self.delta(state, held).map(TableUpdate::Delta);
        delta.or_else(|| View::of(state).map(TableUpdate::Full))
    }

    /// How many changes have followed version `held`; none: not all of them are remembered.
    #[must_use]
    pub fn changes_since(&self, held: u64) -> Option<usize> {
        let (first, last) = (self.changes.front()?.0, self.changes.back()?.0);
        let is_remembered = held > 0 && first <= held + 1;
        is_remembered.then_some(last.saturating_sub(held) as usize)
    }

    /// What has changed between version `held`, which is an older one, and `state`; none: a full copy is needed,
    /// because the changes are not remembered, or are most of the table.
    #[must_use]
    pub fn delta(&self, state: &State, held: u64) -> Option<Delta> {
        let to = state.table().version;
        let newest = self.changes.back().map(|(last, _)| *last);
        let since = self.changes_since(held).filter(|_| newest == Some(to))?;
        let mut members = BTreeSet::new();
        let mut partitions = BTreeSet::new();
        let mut coordinators = false;
        let mut migrations = BTreeSet::new();
        for (_, effects) in self.changes.iter().rev().take(since) {
            members.extend(effects.members.iter().copied());
            partitions.extend(effects.partitions.iter().copied());
            coordinators |= effects.coordinators;
            migrations.extend(effects.migrations.iter().copied());
        }
        let table = state.table();
        if partitions.len() * 2 > table.entries.len() {
            return None;
        }
        let member = |node: NodeId| (node, state.members().get(&node).cloned());
        let entry = |partition: PartitionId| Some((partition, table.entry(partition)?.clone()));
        let known = state.migrations();
        let arrival = |partition: &PartitionId| Some((*partition, *known.arrivals.get(partition)?));
        let migration = |id: MigrationId| (id, known.active.get(&id).cloned());
        Some(Delta {
            from: held,
            to,
            coordinators: coordinators.then(|| state.coordinators().clone()),
            members: members.into_iter().map(member).collect(),
            arrivals: partitions.iter().filter_map(arrival).collect(),
            partitions: partitions.into_iter().filter_map(entry).collect(),
            last_migration: known.last,
            limit_mb_s: known.limit_mb_s,
            migrations: migrations.into_iter().map(migration).collect(),
        })
    }
}

#[cfg(test)]
mod tests;
