//! A party of a migration that dies, or is cut off, at one moment of it.

use ephesus_wire::MigrationId;

use super::{What, World};
use crate::moment::Moment;
use crate::network::End;

/// For so long nothing arrives of what a victim has said last, ms: longer than anything is under way.
const LOST_MS: u64 = 10;

/// Somebody who takes part in a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    Source,
    Target,
    Leader,
}

/// What becomes of a party, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    Dies,
    /// It dies, and what it has said last is lost with it.
    DiesUnheard,
    /// Nothing arrives that it says.
    IsMute,
    /// Nothing arrives that others say to it.
    IsDeaf,
    /// Its process is stopped.
    Stands,
}

/// To whom it happens, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kill {
    pub(crate) moment: Moment,
    pub(crate) party: Party,
    pub(crate) harm: Harm,
    pub(crate) away_ms: u64,
}

impl World {
    /// A migration has come to a moment of its life.
    pub(super) fn reach(&mut self, migration: MigrationId, moment: Moment) {
        if let Some(kill) = self.kill.take_if(|kill| kill.moment == moment) {
            self.after(0, What::Kill(migration, kill));
        }
    }

    /// Harms the party that was meant.
    pub(super) fn strike(&mut self, migration: MigrationId, kill: Kill) {
        let victim = match kill.party {
            Party::Leader => self.leader().map(End::Coordinator),
            party => self.party(migration, party).map(End::Node),
        };
        let Some(victim) = victim else {
            return;
        };
        self.is_struck = true;
        if kill.harm == Harm::Stands {
            match victim {
                End::Coordinator(id) => self.pause_coordinator_for(id, kill.away_ms),
                End::Node(node) => self.pause_node_for(node, kill.away_ms),
                End::Operator => {}
            }
            return;
        }
        if kill.harm != Harm::Dies {
            let trouble = self.number();
            let nodes = (0..self.nodes.len()).map(End::Node);
            let coordinators = self.coordinators.keys().copied().map(End::Coordinator);
            let others: Vec<End> = nodes
                .chain(coordinators)
                .filter(|end| *end != victim)
                .collect();
            for other in others {
                match kill.harm {
                    Harm::IsDeaf => self.network.cut(trouble, other, victim),
                    _ => self.network.cut(trouble, victim, other),
                }
            }
            let dies = kill.harm == Harm::DiesUnheard;
            let lasts = if dies { LOST_MS } else { kill.away_ms };
            self.after(lasts, What::Mend(trouble));
        }
        if matches!(kill.harm, Harm::IsMute | Harm::IsDeaf) {
            return;
        }
        match victim {
            End::Coordinator(id) => {
                self.stop_coordinator(id, kill.harm == Harm::DiesUnheard);
                self.after(kill.away_ms, What::StartCoordinator(id));
            }
            End::Node(node) => {
                self.stop_node(node);
                self.after(kill.away_ms, What::StartNode(node));
            }
            End::Operator => {}
        }
    }

    /// The node at an end of a migration that is under way, or was until just now.
    fn party(&self, migration: MigrationId, party: Party) -> Option<usize> {
        let running = self.coordinators.values();
        let states = running.filter_map(|process| Some(process.running.as_ref()?.state()));
        let mut found = states.filter_map(|state| {
            let active = state.migrations().active.get(&migration);
            let ended = state.ended_migrations().find(|(id, _)| *id == migration);
            active.or(ended.map(|(_, migration)| migration))
        });
        let found = found.next()?;
        let id = match party {
            Party::Source => found.source.node,
            _ => found.target.node,
        };
        self.nodes.iter().position(|process| process.disk.id == id)
    }
}
