//! Plans that are made beside the coordinator's turns: what one follows from is copied, and a shell makes it elsewhere.
//!
//! ```text
//! Coordinator -- Action::Plan(PlanJob) --> shell: PlanJob::run -- Event::Planned(PlanResult) --> Coordinator
//! ```
//!
//! One is made at a time, from what holds when it begins; the others wait here.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wal::Disk;
use ephesus_wire::{NodeId, PartitionId};

use super::operator::Operation;
use super::{Action, Coordinator, Pending, SessionId};
use crate::command::Command;
use crate::member::{Input, Ticket};
use crate::migration::{BATCH_MIGRATIONS_MAX, Purpose};
use crate::placement::by_load::{Loaded, by_load};
use crate::placement::ring::Tokens;
use crate::placement::{
    Located, Move, Place, Planner, Policy, Request, Share, Spec, Unmet, rebalance,
};
use crate::report::Report;
use crate::state::{Course, Scene, State};

/// A plan that is not made so soon is given up, ms.
pub const PLAN_PATIENCE_MS: u64 = 30_000;

/// Plans that wait to be made, at most: operators that ask for more are told to ask again.
const PLANS_MAX: usize = 8;

/// Plans to make; [`PlanJob::run`] takes long where there are many shards.
#[derive(Clone, Debug)]
pub struct PlanJob {
    ticket: Ticket,
    version: u64,
    scene: Scene,
    moves_max: usize,
    basis: Basis,
}

/// By what is planned.
#[derive(Clone, Debug)]
enum Basis {
    Policies(Vec<Policy>),
    Load(Vec<Loaded>),
}

/// What came of a [`PlanJob`].
#[derive(Clone, Debug)]
pub struct PlanResult {
    ticket: Ticket,
    version: u64,
    /// By policy.
    pub(super) plans: Vec<Planned>,
}

/// What came of one policy.
#[derive(Clone, Debug, Default)]
pub(super) struct Planned {
    /// What is to move.
    pub(super) moves: Vec<Move>,
    /// So many partitions wait for nodes that are away, or for a later step.
    pub(super) left: usize,
    /// What could not be done, in sentences.
    pub(super) unmet: Vec<String>,
}

/// What a plan is made for.
#[derive(Debug)]
pub(super) enum Planning {
    /// The leader moves of its own accord.
    Own(Own),
    /// An operator wants the moves; of a node, only what empties that.
    Rebalance(Operation, Option<NodeId>),
    /// An operator wants to see them.
    Would(Operation),
    /// An operator wants them by load.
    ByLoad(Operation),
    /// An operator wants to see those by load.
    WouldByLoad(Operation),
    /// An operator wants to know where the table stands against a policy.
    Placement(Operation, Policy),
}

/// What the leader moves of its own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// What the policy that holds says.
    Count,
    /// The same, of what goes to nodes that own nothing, and away from those that are to be emptied.
    Newcomers,
    /// What evens load out.
    Load,
    /// The next step to the policy that was set.
    Change(Policy),
}

impl PlanJob {
    /// Makes the plans: the same ones wherever it runs.
    #[must_use]
    pub fn run(&self) -> PlanResult {
        let plans = match &self.basis {
            Basis::Policies(policies) => policies.iter().map(|policy| self.by(*policy)).collect(),
            Basis::Load(loaded) => vec![self.by_load(loaded)],
        };
        PlanResult {
            ticket: self.ticket,
            version: self.version,
            plans,
        }
    }

    fn by_load(&self, loaded: &[Loaded]) -> Planned {
        let plan = by_load(&specs(&self.scene.able), loaded);
        Planned {
            moves: plan.moves,
            left: 0,
            unmet: plan.unmet.iter().map(ToString::to_string).collect(),
        }
    }

    fn by(&self, policy: Policy) -> Planned {
        let scene = &self.scene;
        // A place that is away for a while would have others change places, so it stays in the plan where that
        // follows from places alone.
        let all = match keeps_owners(policy) {
            true => &scene.able,
            false => &scene.all,
        };
        let places = specs(all);
        let plan = policy.plan(&Request {
            partitions: scene.partitions,
            places: &places,
            current: &scene.current,
            moves_max: self.moves_max,
        });
        let able = scene.able.iter();
        let able: BTreeMap<Place, u32> = able.map(|(s, _)| (s.place, s.weight)).collect();
        let current = scene.current.iter();
        let from: BTreeMap<_, _> = current.map(|l| (l.partition, l.place)).collect();
        let weight = |one: &Move| able.get(from.get(&one.partition)?).copied();
        let (mut moves, away): (Vec<Move>, Vec<Move>) = plan
            .moves(&scene.current)
            .into_iter()
            .partition(|one| able.contains_key(&one.to) && weight(one).is_some());
        // What is to be emptied does not wait for who may never come back.
        let emptied = away.iter().filter(|one| weight(one) == Some(0));
        let emptied = emptied.map(|one| one.partition).collect();
        let elsewhere = elsewhere(scene, &moves, &emptied);
        let mut unmet: Vec<String> = plan.unmet.iter().map(ToString::to_string).collect();
        let mut left = away.len().saturating_sub(elsewhere.len());
        if left > 0 {
            unmet.push(Unmet::Away { partitions: left }.to_string());
        }
        if keeps_owners(policy) {
            // They are kept, as `unmet` says; what those get that have none has to wait.
            let owners: BTreeSet<Place> = from.values().copied().collect();
            let away = scene.all.iter();
            let away: Vec<_> = away.filter(|(s, _)| !able.contains_key(&s.place)).collect();
            let places: BTreeSet<Place> = away.iter().map(|(share, _)| share.place).collect();
            left += from.values().filter(|at| places.contains(at)).count();
            let idle = away.into_iter().filter(|(s, _)| !owners.contains(&s.place));
            let partitions = self.waiting(policy, idle.cloned().collect());
            if partitions > 0 {
                unmet.push(Unmet::Away { partitions }.to_string());
                left += partitions;
            }
        }
        left += plan.later;
        moves.extend(elsewhere);
        moves.sort_unstable();
        Planned { moves, left, unmet }
    }

    /// How many partitions would go to these if they were there.
    fn waiting(&self, policy: Policy, idle: Vec<(Share, String)>) -> usize {
        if idle.is_empty() {
            return 0;
        }
        let scene = &self.scene;
        let all = [&scene.able[..], &idle].concat();
        let plan = policy.plan(&Request {
            partitions: scene.partitions,
            places: &specs(&all),
            current: &scene.current,
            moves_max: usize::MAX,
        });
        let idle: BTreeSet<Place> = idle.into_iter().map(|(share, _)| share.place).collect();
        let moves = plan.moves(&scene.current).into_iter();
        moves.filter(|one| idle.contains(&one.to)).count()
    }
}

fn specs(shares: &[(Share, String)]) -> Vec<Spec<'_>> {
    let specs = shares.iter().map(|(share, rack)| Spec {
        place: share.place,
        weight: share.weight,
        rack: Some(rack.as_str()).filter(|rack| !rack.is_empty()),
    });
    specs.collect()
}

/// Where partitions go that have to leave, and that the policy gives to places that are away: to those that can take
/// them, by what these have once `moves` are made.
fn elsewhere(scene: &Scene, moves: &[Move], partitions: &BTreeSet<PartitionId>) -> Vec<Move> {
    if partitions.is_empty() {
        return Vec::new();
    }
    let moves: BTreeMap<_, _> = moves.iter().map(|one| (one.partition, one.to)).collect();
    let located = scene.current.iter().map(|located| Located {
        place: *moves.get(&located.partition).unwrap_or(&located.place),
        is_fixed: !partitions.contains(&located.partition),
        ..*located
    });
    let shares: Vec<Share> = scene.able.iter().map(|(share, _)| *share).collect();
    rebalance(&located.collect::<Vec<_>>(), &[], &shares)
}

/// The same moves in the order in which they get their turns: nodes take turns to give, a batch each, so that what is
/// under way is spread over them.
pub(super) fn in_turns(mut moves: Vec<Move>, state: &State) -> Vec<Move> {
    moves.sort_unstable();
    let mut pairs = BTreeMap::<_, usize>::new();
    let mut batches = BTreeMap::new();
    let mut given = BTreeMap::<_, usize>::new();
    let keyed = moves.into_iter().map(|one| {
        let owner = state.table().entry(one.partition).and_then(|e| e.primary());
        let source = owner.map(|owner| (owner.node, owner.shard));
        let pair = (source, one.to);
        let size = pairs.entry(pair).or_default();
        let batch = (pair, *size / BATCH_MIGRATIONS_MAX);
        *size += 1;
        let node = source.map(|(node, _)| node);
        let turn = *batches.entry(batch).or_insert_with(|| {
            let turn = given.entry(node).or_default();
            *turn += 1;
            *turn
        });
        ((turn, node), one)
    });
    let mut keyed: Vec<_> = keyed.collect();
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, one)| one).collect()
}

impl<D: Disk> Coordinator<D> {
    /// Has plans made.
    pub(super) fn begin_plan(&mut self, planning: Planning, actions: &mut Vec<Action>) {
        let is_plan = |(_, pending): &&(u64, Pending)| matches!(pending, Pending::Planning(_));
        if self.pending.values().filter(is_plan).count() >= PLANS_MAX {
            if let Some(operation) = planning.operation() {
                actions.push(operation.answer(Report::Busy));
            }
            return;
        }
        self.ticket(Some(Pending::Planning(planning)));
        self.hand_out_plan(actions);
    }

    /// Has the plan made that has waited the longest, unless one is made.
    fn hand_out_plan(&mut self, actions: &mut Vec<Action>) {
        let mut waiting = self
            .pending
            .iter()
            .filter_map(|(ticket, (_, pending))| match pending {
                Pending::Planning(planning) => Some((*ticket, planning)),
                _ => None,
            });
        let Some((ticket, planning)) = waiting.next().filter(|_| self.plan_made.is_none()) else {
            return;
        };
        let basis = match planning {
            Planning::ByLoad(_) | Planning::WouldByLoad(_) | Planning::Own(Own::Load) => {
                Basis::Load(self.loaded())
            }
            Planning::Own(Own::Change(policy)) => Basis::Policies(vec![*policy]),
            Planning::Placement(_, policy) => {
                Basis::Policies(vec![*policy, self.state().standing_policy()])
            }
            _ => Basis::Policies(vec![self.state().standing_policy()]),
        };
        let job = PlanJob {
            ticket,
            version: self.state().table().version,
            scene: self.state().scene(),
            moves_max: self.step_of(planning),
            basis,
        };
        self.plan_made = Some((ticket, self.now_ms));
        actions.push(Action::Plan(Box::new(job)));
    }

    /// How much may move because of a plan: a change goes step by step; all else is planned as a whole, of which as much
    /// waits as has to.
    fn step_of(&self, planning: &Planning) -> usize {
        let state = self.state();
        match (planning, state.moves_max() as usize) {
            (Planning::Own(Own::Change(_)), most @ 1..) => {
                // What operators move by itself does not count.
                let active = state.migrations().active.values();
                most + active.filter(|one| one.purpose == Purpose::Move).count()
            }
            _ => usize::MAX,
        }
    }

    /// A plan that takes too long keeps others waiting no more.
    pub(super) fn give_up_plan(&mut self, actions: &mut Vec<Action>) {
        let is_late = |(_, since_ms): &mut (Ticket, u64)| {
            self.now_ms.saturating_sub(*since_ms) >= PLAN_PATIENCE_MS
        };
        if self.plan_made.take_if(is_late).is_some() {
            self.hand_out_plan(actions);
        }
    }

    /// What each partition does, as its owner has told.
    pub(super) fn loaded(&self) -> Vec<Loaded> {
        let load = self.cluster_load();
        let bytes = self.partition_bytes(&load);
        let loaded = self.state().located().into_iter().map(|located| {
            let at = usize::from(located.partition.0);
            let known = load.partitions.get(at).copied().flatten();
            Loaded {
                located,
                cpu: known.map(|known| known.cpu),
                bytes: bytes.get(at).copied().unwrap_or(0),
            }
        });
        loaded.collect()
    }

    /// Who waited for plans at this session is gone.
    pub(super) fn drop_plans(&mut self, session: SessionId) {
        self.pending.retain(|_, (_, pending)| {
            let Pending::Planning(planning) = pending else {
                return true;
            };
            let operation = planning.operation();
            operation.is_none_or(|operation| !operation.is_of(session))
        });
    }

    /// Plans were made.
    pub(super) fn plans_made(
        &mut self,
        result: PlanResult,
        inputs: &mut Vec<Input>,
        actions: &mut Vec<Action>,
    ) {
        let is_it = |(ticket, _): &mut (Ticket, u64)| *ticket == result.ticket;
        self.plan_made.take_if(is_it);
        self.follow_plans(result, inputs, actions);
        self.hand_out_plan(actions);
    }

    fn follow_plans(
        &mut self,
        result: PlanResult,
        inputs: &mut Vec<Input>,
        actions: &mut Vec<Action>,
    ) {
        let Some((since_ms, pending)) = self.pending.remove(&result.ticket) else {
            return;
        };
        let Pending::Planning(planning) = pending else {
            self.pending.insert(result.ticket, (since_ms, pending));
            return;
        };
        if !self.member.is_settled() {
            if let Some(operation) = planning.operation() {
                actions.push(operation.answer(Report::NotLeader(self.leader_hint())));
            }
            return;
        }
        let mut plans = result.plans.into_iter();
        let first = plans.next().unwrap_or_default();
        match planning {
            Planning::Own(own) => {
                self.move_by_itself(own, first, result.version, inputs);
            }
            Planning::Rebalance(operation, of) => {
                let mut moves = first.moves;
                if let Some(node) = of {
                    let state = self.state();
                    // It may have ended meanwhile.
                    let is_draining = state.draining().contains(&node);
                    moves.retain(|one| is_draining && state.owner_of(one.partition) == Some(node));
                }
                let moves = in_turns(moves, self.state());
                self.plan_moves(operation, moves, inputs, actions);
            }
            Planning::WouldByLoad(operation) => {
                let report = self.would_move_by_load(&first);
                actions.push(operation.answer(report));
            }
            Planning::ByLoad(operation) => {
                self.plan_moves(operation, first.moves, inputs, actions);
            }
            Planning::Would(operation) => {
                let report = self.would_move(first.moves);
                actions.push(operation.answer(report));
            }
            Planning::Placement(operation, policy) => {
                let followed = plans.next().unwrap_or_default();
                let report = self.placement(policy, &first, &followed);
                actions.push(operation.answer(Report::Placement(Box::new(report))));
            }
        }
    }

    /// Plans what an operator wants; answers at once if that is nothing, and ends no rest.
    fn plan_moves(
        &mut self,
        operation: Operation,
        moves: Vec<Move>,
        inputs: &mut Vec<Input>,
        actions: &mut Vec<Action>,
    ) {
        if moves.is_empty() && self.state().course() != Course::Rests {
            actions.push(operation.answer(Report::Planned(Vec::new())));
            return;
        }
        let purpose = Purpose::Rebalance;
        let command = Command::PlanMoves { moves, purpose };
        self.propose_for(operation, command, inputs, actions);
    }
}

impl Planning {
    /// The operator that waits for it.
    pub(super) fn operation(&self) -> Option<&Operation> {
        match self {
            Planning::Own(_) => None,
            Planning::Rebalance(operation, _)
            | Planning::Would(operation)
            | Planning::ByLoad(operation)
            | Planning::WouldByLoad(operation)
            | Planning::Placement(operation, _) => Some(operation),
        }
    }
}

/// Whether a policy goes by who has what, and not by places alone.
fn keeps_owners(policy: Policy) -> bool {
    match policy {
        Policy::Sticky | Policy::CooperativeSticky => true,
        Policy::Ring(ring) => ring.tokens == Tokens::Even,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
