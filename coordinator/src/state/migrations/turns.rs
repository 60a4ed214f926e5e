//! How many migrations of rebalances and drains are under way at a time, in the whole cluster: the others wait, and
//! begin in the order in which they were planned.
//!
//! What an operator moves by itself neither waits nor counts. One that a node keeps from going on, because it does not
//! serve, gives its turn to the next one until it has begun; but one of a batch of which others have begun keeps it, as
//! its source opens a batch once all of it has begun.

use std::collections::BTreeSet;

use ephesus_wire::NodeId;

use crate::migration::{Migration, Phase, Purpose};
use crate::placement::Place;
use crate::state::{Effects, State, is_live};

impl State {
    /// How many migrations of rebalances and drains may be under way at a time; 0: no leader has said yet, and there
    /// is no bound.
    #[must_use]
    pub fn moves_max(&self) -> u32 {
        self.placing.moves_max
    }

    pub(in crate::state) fn set_moves_max(&mut self, moves: u32) -> Effects {
        self.placing.moves_max = moves;
        // Nobody sees it but by what may begin then.
        Effects::default()
    }

    /// What a migration of this purpose begins as.
    pub(in crate::state) fn first_phase(&self, purpose: Purpose) -> Phase {
        match purpose {
            Purpose::Rebalance if self.moves_max() > 0 => Phase::Waiting,
            _ => Phase::Planned,
        }
    }

    /// Gives free turns to those that wait, once something has changed that they depend on.
    pub(in crate::state) fn give_turns(&mut self, effects: &mut Effects) {
        let is_bounded = self.moves_max() > 0;
        let active = &mut self.migrations.table.active;
        if active.is_empty() {
            return;
        }
        let live = self.members.iter().filter(|(_, member)| is_live(member));
        let live: BTreeSet<NodeId> = live.map(|(node, _)| *node).collect();
        let can_go = |migration: &Migration| {
            live.contains(&migration.source.node) && live.contains(&migration.target.node)
        };
        let rebalanced = |one: &&Migration| one.purpose == Purpose::Rebalance;
        let copying = active.values().filter(rebalanced);
        let copying = copying.filter(|one| one.phase == Phase::Copying);
        let begun: BTreeSet<(Place, Place)> = copying.map(|one| (one.source, one.target)).collect();
        let mut under_way = 0;
        for migration in active.values() {
            if migration.purpose == Purpose::Rebalance {
                let counts = match migration.phase {
                    Phase::Copying => true,
                    Phase::Planned => can_go(migration),
                    _ => false,
                };
                under_way += u32::from(counts);
            }
        }
        for (id, migration) in active {
            let next = match migration.phase {
                Phase::Planned if migration.purpose == Purpose::Rebalance && is_bounded => {
                    let stays = begun.contains(&(migration.source, migration.target));
                    (!can_go(migration) && !stays).then_some(Phase::Waiting)
                }
                Phase::Waiting if !is_bounded => Some(Phase::Planned),
                Phase::Waiting if can_go(migration) && under_way < self.placing.moves_max => {
                    under_way += 1;
                    Some(Phase::Planned)
                }
                _ => None,
            };
            if let Some(phase) = next {
                migration.phase = phase;
                effects.migrations.insert(*id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
