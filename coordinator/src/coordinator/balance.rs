//! A leader that balances the cluster of its own accord, when nothing has happened for a while, and that goes on with a
//! change of the policy.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wal::Disk;
use ephesus_wire::NodeId;
use ephesus_wire::table::PartitionStatus;

use super::planning::{Own, Planning};
use super::{Action, Coordinator, Pending};
use crate::command::Command;
use crate::member::Input;
use crate::migration::Purpose;
use crate::placement::Move;
use crate::state::{Course, Member, MemberStatus, State};

/// By what a leader balances the cluster of its own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Every shard has its share of partitions.
    Count,
}

/// The members have to be the same, all of them live and nothing moving, for so long, ms.
pub const AUTO_REBALANCE_AFTER_MS: u64 = 10_000;

/// The longest wait before the next attempt while the members stay the same, ms: it doubles each time.
pub const AUTO_REBALANCE_AGAIN_MS_MAX: u64 = 600_000;

/// Since when nothing has happened, as far as this leader has seen.
#[derive(Debug, Default)]
pub(super) struct Calm {
    members: BTreeMap<NodeId, Member>,
    draining: BTreeSet<NodeId>,
    since_ms: u64,
    /// Plans that were made for these members in vain.
    planned: u32,
    /// The version of the table for which there was nothing to do.
    balanced: Option<u64>,
    /// The last step of a change of the policy, and when it was planned.
    step: Option<(Vec<Move>, u64)>,
}

impl Calm {
    /// Notes what has happened.
    fn look(&mut self, state: &State, now_ms: u64) {
        if self.members != *state.members() || self.draining != *state.draining() {
            *self = Calm {
                members: state.members().clone(),
                draining: state.draining().clone(),
                since_ms: now_ms,
                ..Calm::default()
            };
        }
        if !is_calm(state) {
            self.since_ms = now_ms;
        }
    }

    fn wait_ms(&self) -> u64 {
        let doubled = AUTO_REBALANCE_AFTER_MS << self.planned.min(16);
        doubled.min(AUTO_REBALANCE_AGAIN_MS_MAX)
    }

    /// Whether it has been calm for long enough, and is not known to be balanced.
    fn is_due(&self, state: &State, now_ms: u64) -> bool {
        now_ms - self.since_ms >= self.wait_ms() && self.balanced != Some(state.table().version)
    }

    /// Whether the next step of a change is due: at once, unless all of the last one was in vain.
    fn is_step_due(&mut self, state: &State, now_ms: u64) -> bool {
        let mut active = state.migrations().active.values();
        if active.any(|migration| migration.purpose == Purpose::Rebalance)
            || !state.retries().is_empty()
        {
            return false;
        }
        let Some((moves, at_ms)) = &self.step else {
            return true;
        };
        let is_done = |one: &Move| state.place_of(one.partition) == Some(one.to);
        if moves.iter().any(is_done) {
            self.planned = 0;
            return true;
        }
        now_ms - at_ms >= self.wait_ms()
    }
}

/// Whether nothing is on its way: every member is live, every partition online.
fn is_calm(state: &State) -> bool {
    let mut members = state.members().values();
    let mut entries = state.table().entries.iter();
    members.all(|member| member.status == MemberStatus::Live)
        && entries.all(|entry| entry.status == PartitionStatus::Online)
        && state.migrations().active.is_empty()
        && state.retries().is_empty()
}

impl<D: Disk> Coordinator<D> {
    /// Has decided how much moves at a time, where that is something else while this one leads.
    pub(super) fn note_moves_max(&mut self, inputs: &mut Vec<Input>) {
        let state = self.member.state();
        let command = Command::MovesMax {
            moves: self.moves_max,
        };
        let is_noted = state.moves_max() == self.moves_max;
        let is_noting = |(_, pending): &(u64, Pending)| matches!(pending, Pending::MovesMax);
        if is_noted
            || state.cluster().is_none()
            || self.pending.values().any(is_noting)
            || state.check_known(&command).is_err()
        {
            return;
        }
        let ticket = self.ticket(Some(Pending::MovesMax));
        inputs.push(Input::Propose(ticket, command));
    }

    /// Begins a plan if it is time for one.
    pub(super) fn balance_if_due(&mut self, actions: &mut Vec<Action>) {
        let (state, now_ms) = (self.member.state(), self.now_ms);
        if self.auto_rebalance.is_none() && state.course() != Course::Changes {
            return;
        }
        let calm = &mut self.migrating.calm;
        calm.look(state, now_ms);
        let is_planning = |(_, pending): &(u64, Pending)| {
            matches!(
                pending,
                Pending::Rebalance | Pending::Planning(Planning::Own(_))
            )
        };
        if self.pending.values().any(is_planning) {
            return;
        }
        let own = match (state.course(), self.auto_rebalance) {
            (Course::Changes, _) if calm.is_step_due(state, now_ms) => Own::Change(state.policy()),
            (Course::Follows, Some(Balance::Count)) if calm.is_due(state, now_ms) => Own::Count,
            _ => return,
        };
        let planning = Planning::Own(own);
        match own {
            Own::Change(policy) => self.plan_by(vec![policy], planning, actions),
            _ => self.plan_by(vec![self.state().standing_policy()], planning, actions),
        }
    }

    /// Plans what a leader has found to do; notes that there is nothing.
    pub(super) fn move_by_itself(
        &mut self,
        own: Own,
        moves: Vec<Move>,
        version: u64,
        inputs: &mut Vec<Input>,
    ) {
        let (state, now_ms) = (self.member.state(), self.now_ms);
        let calm = &mut self.migrating.calm;
        let is_wanted = match own {
            Own::Change(policy) => state.course() == Course::Changes && state.policy() == policy,
            Own::Count => state.course() == Course::Follows,
        };
        if !is_wanted {
            return;
        }
        let command = match (moves.is_empty(), own) {
            (true, Own::Change(policy)) => {
                calm.step = None;
                Command::EndChange { policy }
            }
            (true, Own::Count) => {
                calm.balanced = Some(version);
                return;
            }
            (false, _) => {
                if let Own::Change(_) = own {
                    calm.step = Some((moves.clone(), now_ms));
                }
                let purpose = Purpose::Rebalance;
                Command::PlanMoves { moves, purpose }
            }
        };
        if state.check_known(&command).is_err() {
            return;
        }
        (calm.since_ms, calm.planned) = (now_ms, calm.planned + 1);
        let ticket = self.ticket(Some(Pending::Rebalance));
        inputs.push(Input::Propose(ticket, command));
    }
}

#[cfg(test)]
mod tests;
