use std::collections::{BTreeMap, BTreeSet};

use ephesus_coordinator::report::{MigrationRow, MigrationState};

use super::pair::{Said, Stage};

#[cfg(test)]
mod tests;

fn has_ended(row: &MigrationRow) -> bool {
    !row.state.is_active()
}

/// How far the moves of some partitions are, by what the coordinators say of them time and again.
///
/// They keep only the last migrations that have ended, so every look adds to the one before.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    wanted: BTreeSet<u16>,
    arrived: BTreeSet<u16>,
    /// The newest of each partition.
    newest: BTreeMap<u16, MigrationRow>,
    /// Ids of what there was before.
    older: BTreeSet<u64>,
    has_begun: bool,
}

impl Progress {
    /// Of these partitions, before their moves are ordered; `older` is not about them.
    pub(super) fn new(wanted: BTreeSet<u16>, older: &[MigrationRow]) -> Self {
        Progress {
            wanted,
            arrived: BTreeSet::new(),
            newest: BTreeMap::new(),
            older: older.iter().map(|row| row.id).collect(),
            has_begun: false,
        }
    }

    /// Takes one more answer.
    pub(super) fn note(&mut self, rows: &[MigrationRow]) {
        let listed: BTreeSet<u64> = rows.iter().map(|row| row.id).collect();
        self.newest
            .retain(|_, row| listed.contains(&row.id) || has_ended(row));
        for row in rows {
            if self.older.contains(&row.id) || !self.wanted.contains(&row.partition) {
                continue;
            }
            self.has_begun |= row.state != MigrationState::Planned;
            if row.state == MigrationState::Committed {
                self.arrived.insert(row.partition);
            }
            let known = self.newest.get(&row.partition);
            if known.is_none_or(|known| known.id <= row.id) {
                self.newest.insert(row.partition, row.clone());
            }
        }
    }

    /// Whether nothing is known to be under way although not everything is known to have arrived.
    pub(super) fn may_be_over(&self) -> bool {
        self.arrived.len() < self.wanted.len() && self.newest.values().all(has_ended)
    }

    /// Takes partitions that the target owns.
    pub(super) fn arrived(&mut self, partitions: impl Iterator<Item = u16>) {
        let wanted = &self.wanted;
        self.arrived
            .extend(partitions.filter(|partition| wanted.contains(partition)));
        self.has_begun |= !self.arrived.is_empty();
    }

    /// All of them together.
    pub(super) fn stage(&self) -> Stage {
        if self.arrived.len() == self.wanted.len() {
            return Stage::Done;
        }
        let given_up = self.newest.values().find(|row| {
            row.state == MigrationState::Aborted
                && !row.will_retry
                && !self.arrived.contains(&row.partition)
        });
        if let Some(row) = given_up {
            let (partition, error) = (row.partition, &row.last_error);
            return Stage::Failed(format!("partition {partition}: {error}"));
        }
        match self.has_begun {
            true => Stage::Copying,
            false => Stage::Waiting,
        }
    }

    /// Whether it was told of all that were committed how long commands were held.
    pub(super) fn knows_holds(&self) -> bool {
        let mut committed = self
            .newest
            .values()
            .filter(|row| row.state == MigrationState::Committed);
        committed.all(|row| row.hold_us > 0)
    }

    /// What is told of those that were committed.
    pub(super) fn said(&self) -> Said {
        let committed = || {
            self.newest
                .values()
                .filter(|row| row.state == MigrationState::Committed)
        };
        Said {
            holds_ms: committed().map(|row| row.hold_us as f64 / 1e3).collect(),
            retries: committed()
                .map(|row| u64::from(row.attempt.saturating_sub(1)))
                .sum(),
            forked_bytes: 0,
        }
    }
}
