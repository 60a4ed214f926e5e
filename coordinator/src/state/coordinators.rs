//! Changes of who the coordinators are.

use std::collections::BTreeSet;

use ephesus_wire::table::PartitionStatus;
use ephesus_wire::{MigrationId, NodeId, PartitionId};

use super::registration::check_address;
use super::{COORDINATORS_MAX, Effects, FORCED_BY, Refusal, State};
use crate::command::{CoordinatorChange, RaftId};
use crate::migration::Arrival;

impl State {
    /// Carries a change of coordinators out; without effects, raft's voters stay as they are, too.
    ///
    /// # Errors
    /// As [`State::apply`].
    pub fn change_coordinators(&mut self, change: &CoordinatorChange) -> Result<Effects, Refusal> {
        if self.cluster.is_none() {
            return Err(Refusal::NotBootstrapped);
        }
        self.check_known_change(change)?;
        let mut effects = Effects::default();
        match change {
            CoordinatorChange::Add { id, address }
            | CoordinatorChange::AddLearner { id, address } => {
                check_address(address)?;
                if self.coordinators.get(id) == Some(address) {
                    return Ok(effects);
                }
                let mut others = self.coordinators.iter();
                if let Some((owner, _)) = others.find(|(_, taken)| *taken == address) {
                    return Err(Refusal::AddressTaken(*owner));
                }
                let used = self.coordinator_id_max;
                if *id <= used {
                    return Err(Refusal::CoordinatorId { found: *id, used });
                }
                if self.coordinators.len() >= COORDINATORS_MAX {
                    return Err(Refusal::TooManyCoordinators);
                }
                self.coordinators.insert(*id, address.clone());
                self.coordinator_id_max = *id;
                if matches!(change, CoordinatorChange::AddLearner { .. }) {
                    self.learners.insert(*id);
                }
            }
            CoordinatorChange::Promote { id } => {
                if !self.coordinators.contains_key(id) {
                    return Err(Refusal::UnknownCoordinator(*id));
                }
                if !self.learners.remove(id) {
                    return Ok(effects);
                }
            }
            CoordinatorChange::Remove { id } => {
                if !self.coordinators.contains_key(id) {
                    let is_gone = id.0 > 0 && *id <= self.coordinator_id_max;
                    return if is_gone {
                        Ok(effects)
                    } else {
                        Err(Refusal::UnknownCoordinator(*id))
                    };
                }
                if self.voters().eq([*id]) {
                    return Err(Refusal::LastCoordinator(*id));
                }
                self.coordinators.remove(id);
                self.learners.remove(id);
                self.coordinators_speak.remove(id);
            }
        }
        effects.coordinators = true;
        Ok(self.seen(effects))
    }

    /// The coordinators that vote, ascending.
    pub fn voters(&self) -> impl Iterator<Item = RaftId> + '_ {
        let ids = self.coordinators.keys().copied();
        ids.filter(|id| !self.learners.contains(id))
    }

    /// The coordinators that are sent the log and do not vote yet.
    #[must_use]
    pub fn learners(&self) -> &BTreeSet<RaftId> {
        &self.learners
    }

    /// The coordinator in a node's process, by where both are reached.
    #[must_use]
    pub fn embedded_in(&self, node: NodeId) -> Option<RaftId> {
        let address = self.members.get(&node)?.addresses.embedded()?;
        let mut all = self.coordinators.iter();
        all.find(|(_, at)| **at == address).map(|(id, _)| *id)
    }

    /// Makes one coordinator the only one, after the others are lost. What they have decided and this one has
    /// not heard of is lost as well, so nothing may depend on it:
    ///
    /// - The table's version and the ids of migrations pass any that nodes have seen. A migration that only nodes
    ///   know of has ended: no source waits for its end, and its id is not given out again.
    /// - What somebody has confirmed to host begins empty nowhere: where the table says it is, it may have been
    ///   given up since, for a copy that goes on elsewhere.
    /// - The next start of each node is taken for what it says. One that runs ends by itself: what it serves may be
    ///   newer than the table ([`View::is_forced_since`](crate::view::View::is_forced_since)).
    ///
    /// # Errors
    /// [`Refusal::NotBootstrapped`], or [`Refusal::UnknownCoordinator`] for one that was removed.
    pub fn force(&mut self, id: RaftId) -> Result<(), Refusal> {
        if self.cluster.is_none() {
            return Err(Refusal::NotBootstrapped);
        }
        if !self.coordinators.contains_key(&id) {
            return Err(Refusal::UnknownCoordinator(id));
        }
        self.coordinators.retain(|other, _| *other == id);
        self.coordinators_speak.retain(|other, _| *other == id);
        self.learners.clear();
        self.starts.clear();
        self.table.version = self.table.version.saturating_add(FORCED_BY);
        let last = &mut self.migrations.table.last;
        *last = MigrationId(last.0.saturating_add(FORCED_BY));
        self.begin_nothing_again();
        Ok(())
    }

    /// Has all partitions that were begun count as brought by a migration. Epochs stay, so that the copies that
    /// the table means are as good as before; and so do migrations that are known, by which a target that has
    /// not activated its copy tells that it was committed.
    fn begin_nothing_again(&mut self) {
        let migration = self.migrations.table.last;
        for (partition, entry) in (0..).map(PartitionId).zip(&self.table.entries) {
            if matches!(
                entry.status,
                PartitionStatus::Unassigned | PartitionStatus::Assigned
            ) {
                continue;
            }
            let arrivals = &mut self.migrations.table.arrivals;
            let arrival = arrivals.entry(partition).or_insert(Arrival {
                migration,
                epoch: entry.epoch,
            });
            if arrival.migration == MigrationId(0) {
                arrival.migration = migration;
            }
        }
    }
}
