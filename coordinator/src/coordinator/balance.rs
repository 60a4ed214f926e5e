//! A leader that balances the cluster of its own accord, when nothing has happened for a while, and that goes on with a
//! change of the policy.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wal::Disk;
use ephesus_wire::NodeId;
use ephesus_wire::table::PartitionStatus;

use super::planning::{Own, Planned, Planning, in_turns};
use super::{Action, Coordinator, Pending};
use crate::command::Command;
use crate::member::Input;
use crate::migration::{AbortReason, Phase, Purpose};
use crate::placement::Move;
use crate::placement::by_load::BUSY_PERCENT;
use crate::state::{Course, Member, MemberStatus, State};

/// By what a leader balances the cluster of its own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Every shard has its share of partitions.
    Count,
    /// Every shard has its share of work.
    Load,
}

/// After what was moved by load the figures, which decay over a minute, have to be those of what is now: so long, ms, and
/// twice as long each time while the members stay the same.
pub const BY_LOAD_AFTER_MS: u64 = 180_000;

/// Between two looks whether load is uneven, ms.
const BY_LOAD_LOOK_MS: u64 = 10_000;

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
    /// When load was last looked at.
    looked_ms: Option<u64>,
    /// The last step of a change of the policy, and when it was planned or, later, seen to be under way.
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

    /// Whether it is time to look at the load.
    fn is_look_due(&mut self, state: &State, now_ms: u64) -> bool {
        let calm_ms = now_ms - self.since_ms;
        let has_moved = state.ended_migrations().next().is_some();
        let wait_ms = match has_moved {
            true => (BY_LOAD_AFTER_MS << self.planned.saturating_sub(1).min(16))
                .min(AUTO_REBALANCE_AGAIN_MS_MAX),
            false => AUTO_REBALANCE_AFTER_MS,
        };
        let is_early = |looked_ms: u64| now_ms - looked_ms < BY_LOAD_LOOK_MS;
        if calm_ms < wait_ms || self.looked_ms.is_some_and(is_early) {
            return false;
        }
        self.looked_ms = Some(now_ms);
        true
    }

    /// Whether the next step of a change is due: at once, unless all of the last one was in vain, or an operator has
    /// cancelled a part of it.
    fn is_step_due(&mut self, state: &State, now_ms: u64) -> bool {
        let mut active = state.migrations().active.values();
        // What waits for nodes that are away may wait for long, and goes elsewhere by the next step.
        let mut retries = state.retries().values();
        if active.any(|migration| migration.purpose == Purpose::Rebalance)
            || retries.any(|retry| state.awaits(retry))
        {
            if let Some((_, at_ms)) = &mut self.step {
                *at_ms = now_ms;
            }
            return false;
        }
        let Some((moves, at_ms)) = &self.step else {
            return true;
        };
        let is_done = |one: &Move| state.place_of(one.partition) == Some(one.to);
        if moves.iter().any(is_done) {
            self.planned = 0;
            let cancelled = cancelled(state);
            let is_cancelled = |one: &Move| !is_done(one) && cancelled.contains(one);
            if !moves.iter().any(is_cancelled) {
                return true;
            }
        }
        now_ms - at_ms >= self.wait_ms()
    }
}

/// What operators have cancelled of late.
fn cancelled(state: &State) -> BTreeSet<Move> {
    let ended = state.ended_migrations();
    let cancelled = ended.filter(|(_, migration)| {
        matches!(&migration.phase, Phase::Aborted(abort) if abort.reason == AbortReason::Cancelled)
    });
    let moves = cancelled.map(|(_, migration)| Move {
        partition: migration.partition,
        to: migration.target,
    });
    moves.collect()
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

/// Whether a node owns nothing and could, or owns something and is to be emptied.
fn has_newcomers(state: &State) -> bool {
    let mut members = state.members().keys();
    members.any(|node| {
        let owns = state.owned(*node).next().is_some();
        owns == state.draining().contains(node)
    })
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
            (Course::Follows, Some(Balance::Load)) => {
                if has_newcomers(state) && calm.is_due(state, now_ms) {
                    Own::Newcomers
                } else if calm.is_look_due(state, now_ms) && self.is_busy() {
                    Own::Load
                } else {
                    return;
                }
            }
            _ => return,
        };
        self.begin_plan(Planning::Own(own), actions);
    }

    /// Whether some shard is so busy that its commands wait for one another, and all nodes have told what their
    /// partitions do.
    fn is_busy(&self) -> bool {
        let load = self.cluster_load();
        load.shards
            .values()
            .any(|cpu| *cpu * 100.0 >= BUSY_PERCENT as f32)
            && load.partitions.iter().all(Option::is_some)
    }

    /// Plans what a leader has found to do; notes that there is nothing, or nothing while nodes are away.
    pub(super) fn move_by_itself(
        &mut self,
        own: Own,
        Planned {
            mut moves, left, ..
        }: Planned,
        version: u64,
        inputs: &mut Vec<Input>,
    ) {
        let (state, now_ms) = (self.member.state(), self.now_ms);
        let calm = &mut self.migrating.calm;
        let change = match own {
            Own::Change(policy) => Some(policy),
            _ => None,
        };
        if !state.goes_on(change) {
            return;
        }
        if own == Own::Newcomers {
            moves.retain(|one| {
                let from = state.owner_of(one.partition);
                from.is_some_and(|from| state.draining().contains(&from))
                    || state.owned(one.to.node).next().is_none()
            });
        }
        if own != Own::Load {
            moves = in_turns(moves, state);
        }
        let command = match (moves.is_empty(), own) {
            (true, Own::Change(_)) if left > 0 => {
                calm.step = Some((moves, now_ms));
                calm.planned += 1;
                return;
            }
            (true, Own::Change(policy)) => {
                calm.step = None;
                Command::EndChange { policy }
            }
            (true, Own::Load) => return,
            (true, _) => {
                calm.balanced = Some(version);
                return;
            }
            (false, _) => {
                if let Own::Change(_) = own {
                    calm.step = Some((moves.clone(), now_ms));
                }
                let own = Command::PlanOwn {
                    moves: moves.clone(),
                    change,
                };
                let purpose = Purpose::Rebalance;
                // Where some do not know it nobody can have cancelled anything.
                match state.check_known(&own) {
                    Ok(()) => own,
                    Err(_) => Command::PlanMoves { moves, purpose },
                }
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
