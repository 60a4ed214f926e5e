//! A leader that balances the cluster of its own accord, when nothing has happened for a while.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wal::Disk;
use ephesus_wire::NodeId;
use ephesus_wire::table::PartitionStatus;

use super::{Coordinator, Pending};
use crate::command::Command;
use crate::member::Input;
use crate::migration::Purpose;
use crate::state::{Member, MemberStatus, State};

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
    /// Rebalances that were planned for these members.
    planned: u32,
    /// The version of the table for which there was nothing to do.
    balanced: Option<u64>,
}

impl Calm {
    /// Whether it has been calm for long enough, and is not known to be balanced.
    fn is_due(&mut self, state: &State, now_ms: u64) -> bool {
        if self.members != *state.members() || self.draining != *state.draining() {
            *self = Calm {
                members: state.members().clone(),
                draining: state.draining().clone(),
                since_ms: now_ms,
                planned: 0,
                balanced: None,
            };
        }
        if !is_calm(state) {
            self.since_ms = now_ms;
        }
        let doubled = AUTO_REBALANCE_AFTER_MS << self.planned.min(16);
        let wait_ms = doubled.min(AUTO_REBALANCE_AGAIN_MS_MAX);
        now_ms - self.since_ms >= wait_ms && self.balanced != Some(state.table().version)
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

    pub(super) fn balance_if_due(&mut self, inputs: &mut Vec<Input>) {
        let state = self.member.state();
        if self.auto_rebalance.is_none() || !self.migrating.calm.is_due(state, self.now_ms) {
            return;
        }
        let is_planning = |(_, pending): &(u64, Pending)| matches!(pending, Pending::Rebalance);
        if self.pending.values().any(is_planning) {
            return;
        }
        let moves = state.plan_rebalance();
        let calm = &mut self.migrating.calm;
        if moves.is_empty() {
            calm.balanced = Some(state.table().version);
            return;
        }
        let purpose = Purpose::Rebalance;
        let command = Command::PlanMoves { moves, purpose };
        if state.check_known(&command).is_err() {
            return;
        }
        (calm.since_ms, calm.planned) = (self.now_ms, calm.planned + 1);
        let ticket = self.ticket(Some(Pending::Rebalance));
        inputs.push(Input::Propose(ticket, command));
    }
}

#[cfg(test)]
mod tests;
