//! What members speak, and which commands all of them know: during a rolling upgrade new commands wait
//! for the last member.
//!
//! 1. A command that [needs](Command::needs) a protocol has no effect until every member, failed or
//!    not, and every coordinator that votes has said that it speaks it. One that learns counts once it has
//!    said what it speaks: it may never come. The leader does not even propose it
//!    before: a coordinator that does not know it could not go on.
//! 2. What a member speaks is replaced whenever its process starts with something else, also with
//!    less. Who was removed does not count.

use std::fmt;

use ephesus_wire::handshake::Versions;
use serde::{Deserialize, Serialize};

use super::registration::check_speaks;
use super::{Effects, Refusal, State};
use crate::command::{Command, CoordinatorChange, RaftId};

/// So many are named in a refusal.
pub const BEHIND_NAMED_MAX: usize = 8;

/// Somebody who does not speak what is needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behind {
    /// Who.
    pub who: Speaker,
    /// The newest protocol it speaks; none: it has not said yet.
    pub speaks: Option<u16>,
}

/// A member of the cluster, of either kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Speaker {
    /// A node, by its name.
    Node(String),
    /// A coordinator.
    Coordinator(RaftId),
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.who {
            Speaker::Node(name) => write!(f, "node {name}")?,
            Speaker::Coordinator(id) => write!(f, "coordinator {id}")?,
        }
        match self.speaks {
            Some(newest) => write!(f, " speaks protocol {newest}"),
            None => f.write_str(" has not said yet what it speaks"),
        }
    }
}

pub(super) fn list(behind: &[Behind], more: u64) -> String {
    let named: Vec<String> = behind.iter().map(Behind::to_string).collect();
    match more {
        0 => named.join(", "),
        more => format!("{}, and {more} more", named.join(", ")),
    }
}

impl State {
    /// Whether all members know a command, so that it may be proposed.
    ///
    /// # Errors
    /// [`Refusal::NotUpgraded`]: what [`State::apply`] would answer.
    pub fn check_known(&self, command: &Command) -> Result<(), Refusal> {
        let needed = command.needs();
        let is_behind = |member: &&super::Member| Some(member.speaks.max) < needed;
        let nodes = self.members.values().filter(is_behind);
        let nodes = nodes.map(|member| Behind {
            who: Speaker::Node(member.name.clone()),
            speaks: Some(member.speaks.max),
        });
        self.check_spoken(needed, None, nodes)
    }

    /// The same for a change of coordinators, which no node has to know.
    ///
    /// # Errors
    /// [`Refusal::NotUpgraded`]: what [`State::change_coordinators`] would answer.
    pub fn check_known_change(&self, change: &CoordinatorChange) -> Result<(), Refusal> {
        let voter = match change {
            CoordinatorChange::Promote { id } => Some(*id),
            _ => None,
        };
        self.check_spoken(change.needs(), voter, std::iter::empty())
    }

    /// Whether these nodes, all coordinators that have to, and `voter` in any case, speak what is needed.
    fn check_spoken(
        &self,
        needed: Option<u16>,
        voter: Option<RaftId>,
        nodes: impl Iterator<Item = Behind>,
    ) -> Result<(), Refusal> {
        let Some(needed) = needed else {
            return Ok(());
        };
        let is_behind = |speaks: Option<u16>| speaks.is_none_or(|newest| newest < needed);
        let may_never_come = |id: &RaftId| {
            let is_unheard = self.coordinator_speaks_now(*id).is_none();
            is_unheard && self.learners.contains(id) && voter != Some(*id)
        };
        let coordinators = self.coordinators.keys().filter(|id| !may_never_come(id));
        let coordinators = coordinators.map(|id| Behind {
            who: Speaker::Coordinator(*id),
            speaks: self.coordinator_speaks_now(*id).map(|speaks| speaks.max),
        });
        let all = coordinators.chain(nodes);
        let mut behind: Vec<Behind> = all.filter(|one| is_behind(one.speaks)).collect();
        if behind.is_empty() {
            return Ok(());
        }
        let more = behind.len().saturating_sub(BEHIND_NAMED_MAX) as u64;
        behind.truncate(BEHIND_NAMED_MAX);
        Err(Refusal::NotUpgraded {
            needed,
            behind,
            more,
        })
    }

    /// What a coordinator speaks, as far as it was noted.
    #[must_use]
    pub fn coordinator_speaks_now(&self, id: RaftId) -> Option<Versions> {
        self.coordinators_speak.get(&id).copied()
    }

    pub(super) fn coordinator_speaks(
        &mut self,
        id: RaftId,
        speaks: Versions,
    ) -> Result<Effects, Refusal> {
        check_speaks(speaks)?;
        if !self.coordinators.contains_key(&id) {
            return Err(Refusal::UnknownCoordinator(id));
        }
        self.coordinators_speak.insert(id, speaks);
        // Nodes and clients do not see it.
        Ok(Effects::default())
    }
}

#[cfg(test)]
mod tests;
