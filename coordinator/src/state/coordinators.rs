//! Changes of who the coordinators are.

use super::registration::check_address;
use super::{COORDINATORS_MAX, Effects, Refusal, State};
use crate::command::CoordinatorChange;

impl State {
    /// Carries a change of coordinators out; without effects, raft's voters stay as they are, too.
    ///
    /// # Errors
    /// As [`State::apply`].
    pub fn change_coordinators(&mut self, change: &CoordinatorChange) -> Result<Effects, Refusal> {
        if self.cluster.is_none() {
            return Err(Refusal::NotBootstrapped);
        }
        let mut effects = Effects::default();
        match change {
            CoordinatorChange::Add { id, address } => {
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
                if self.coordinators.len() == 1 {
                    return Err(Refusal::LastCoordinator(*id));
                }
                self.coordinators.remove(id);
                self.coordinators_speak.remove(id);
            }
        }
        effects.coordinators = true;
        Ok(self.seen(effects))
    }
}
