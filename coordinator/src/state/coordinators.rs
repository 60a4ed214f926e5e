//! Changes of who the coordinators are.

use std::collections::BTreeSet;

use ephesus_wire::NodeId;

use super::registration::check_address;
use super::{COORDINATORS_MAX, Effects, FORCED_VERSIONS, Refusal, State};
use crate::command::{CoordinatorChange, RaftId};

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
    /// not heard of is lost as well, so nothing may depend on it: the table's version passes any that nodes
    /// have seen, and the next start of each node is taken for what it says.
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
        self.table.version = self.table.version.saturating_add(FORCED_VERSIONS);
        Ok(())
    }
}
