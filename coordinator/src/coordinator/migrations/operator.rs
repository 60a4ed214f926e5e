//! What operators ask about moves: rebalances, drains, single moves and what became of them.

use std::collections::BTreeMap;

use ephesus_wal::Disk;
use ephesus_wire::{MigrationId, NodeId, PartitionId, ShardId};

use crate::command::Command;
use crate::coordinator::operator::{Operation, Wanted};
use crate::coordinator::planning::{Planned, Planning};
use crate::coordinator::{Action, Balance, Coordinator, Pending};
use crate::member::Input;
use crate::migration::{Abort, AbortReason, Migration, Phase, Purpose};
use crate::placement::{Move, Place};
use crate::report::{
    DrainingRow, MigrationRow, MigrationState, MigrationsReport, MoveRow, Report, find_node,
};
use crate::state::{Course, Effects, Refusal};

fn cancel(id: MigrationId) -> Command {
    let abort = Abort {
        reason: AbortReason::Cancelled,
        text: String::new(),
    };
    Command::AbortMigration { id, abort }
}

impl<D: Disk> Coordinator<D> {
    /// Plans what balances the cluster, or only what empties a node for that; answers at once if
    /// that is nothing.
    pub(in crate::coordinator) fn rebalance(
        &mut self,
        operation: Operation,
        of: Option<NodeId>,
        actions: &mut Vec<Action>,
    ) {
        self.begin_plan(Planning::Rebalance(operation, of), actions);
    }

    /// Plans one move; without a shard to the one that has the least.
    pub(in crate::coordinator) fn move_one(
        &mut self,
        operation: Operation,
        partition: PartitionId,
        node: String,
        shard: Option<ShardId>,
        inputs: &mut Vec<Input>,
        actions: &mut Vec<Action>,
    ) {
        let found = find_node(self.state(), &node);
        let place = found.and_then(|node| match shard {
            Some(shard) => Some(Place { node, shard }),
            None => self.state().lightest_shard(node, partition),
        });
        let Some(to) = place else {
            actions.push(operation.answer(Report::NoSuchNode(node)));
            return;
        };
        let command = Command::PlanMoves {
            moves: vec![Move { partition, to }],
            purpose: Purpose::Move,
        };
        self.propose_for(operation, command, inputs, actions);
    }

    /// Plans several moves, unless one of them is refused.
    pub(in crate::coordinator) fn move_all(
        &mut self,
        operation: Operation,
        wanted: Vec<(u16, String, u16)>,
        inputs: &mut Vec<Input>,
        actions: &mut Vec<Action>,
    ) {
        let mut moves = Vec::new();
        // As many as there are partitions, to as many nodes.
        let mut known = BTreeMap::new();
        for (partition, node, shard) in wanted {
            let found = known.get(&node).copied();
            let Some(found) = found.or_else(|| find_node(self.state(), &node)) else {
                actions.push(operation.answer(Report::NoSuchNode(node)));
                return;
            };
            let to = Place {
                node: found,
                shard: ShardId(shard),
            };
            known.insert(node, found);
            let partition = PartitionId(partition);
            moves.push(Move { partition, to });
        }
        if let Some(refusal) = self.state().refused(&moves) {
            actions.push(operation.answer(Report::Refused(refusal)));
            return;
        }
        let purpose = Purpose::Move;
        let command = Command::PlanMoves { moves, purpose };
        self.propose_for(operation, command, inputs, actions);
    }

    /// Marks a node as to be emptied, or not any more.
    pub(in crate::coordinator) fn drain(
        &mut self,
        operation: impl FnOnce(Wanted) -> Operation,
        name: String,
        on: bool,
        inputs: &mut Vec<Input>,
        actions: &mut Vec<Action>,
    ) {
        let Some(node) = find_node(self.state(), &name) else {
            let operation = operation(Wanted::Plan { is_single: false });
            actions.push(operation.answer(Report::NoSuchNode(name)));
            return;
        };
        let operation = operation(Wanted::Drain { node, name, on });
        let command = Command::Drain { node, on };
        self.propose_for(operation, command, inputs, actions);
    }

    pub(in crate::coordinator) fn cancel(
        &mut self,
        operation: Operation,
        id: MigrationId,
        inputs: &mut Vec<Input>,
        actions: &mut Vec<Action>,
    ) {
        self.propose_for(operation, cancel(id), inputs, actions);
    }

    /// Proposes the end of each; what becomes of the last one, decided behind the others, answers.
    pub(in crate::coordinator) fn cancel_all(
        &mut self,
        operation: Operation,
        ids: &[u64],
        inputs: &mut Vec<Input>,
        actions: &mut Vec<Action>,
    ) {
        let active = &self.state().migrations().active;
        let ids = ids.iter().map(|id| MigrationId(*id));
        let mut ids: Vec<MigrationId> = ids.filter(|id| active.contains_key(id)).collect();
        let Some(last) = ids.pop() else {
            actions.push(operation.answer(Report::MigrationsCancelled));
            return;
        };
        for id in ids {
            let ticket = self.ticket(None);
            inputs.push(Input::Propose(ticket, cancel(id)));
        }
        self.propose_for(operation, cancel(last), inputs, actions);
    }

    /// Proposes what an operator wants, unless some member does not know it yet.
    pub(in crate::coordinator) fn propose_for(
        &mut self,
        operation: Operation,
        command: Command,
        inputs: &mut Vec<Input>,
        actions: &mut Vec<Action>,
    ) {
        if let Err(refusal) = self.state().check_known(&command) {
            actions.push(operation.answer(Report::Refused(refusal)));
            return;
        }
        let ticket = self.ticket(Some(Pending::Operation(operation)));
        inputs.push(Input::Propose(ticket, command));
    }

    /// Moves were planned: what became of each.
    pub(in crate::coordinator) fn planned(&self, effects: Effects, is_single: bool) -> Report {
        let mut planned = effects.planned;
        if is_single
            && let Some((_, Err(refusal))) = planned.pop_if(|(_, outcome)| outcome.is_err())
        {
            return Report::Refused(refusal);
        }
        planned.sort_by_key(|(one, _)| one.partition);
        let rows = planned.into_iter();
        Report::Planned(
            rows.map(|(m, outcome)| self.move_row(m, Some(outcome)))
                .collect(),
        )
    }

    /// What would be moved.
    pub(in crate::coordinator) fn would_move(&self, moves: Vec<Move>) -> Report {
        let moves = moves.into_iter();
        Report::Planned(moves.map(|m| self.move_row(m, None)).collect())
    }

    /// What would be moved for the sake of load.
    pub(in crate::coordinator) fn would_move_by_load(&self, planned: &Planned) -> Report {
        let moves = planned.moves.iter();
        let undone = match (self.state().course(), self.auto_rebalance) {
            (Course::Changes, _) => Some("the policy is being changed"),
            (_, Some(Balance::Count)) => Some("the leader balances by the number of partitions"),
            _ => None,
        };
        let undone = undone.map(|why| format!("{why}: what moves now will be moved back"));
        let mut unmet = planned.unmet.clone();
        unmet.extend(undone.filter(|_| !planned.moves.is_empty()));
        Report::PlannedByLoad {
            plan: moves.map(|m| self.move_row(*m, None)).collect(),
            bytes: self.bytes_of(&planned.moves),
            unmet,
        }
    }

    pub(in crate::coordinator) fn move_row(
        &self,
        Move { partition, to }: Move,
        outcome: Option<Result<MigrationId, Refusal>>,
    ) -> MoveRow {
        let owner = self.state().table().entry(partition);
        let owner = owner.and_then(|entry| entry.primary());
        let (migration, refusal) = match outcome {
            Some(Ok(id)) => (Some(id.0), None),
            Some(Err(refusal)) => (None, Some(refusal.to_string())),
            None => (None, None),
        };
        MoveRow {
            partition: partition.0,
            migration,
            from_node: owner.map(|owner| self.name(owner.node)),
            from_shard: owner.map(|owner| owner.shard.0),
            to_node: self.name(to.node),
            to_shard: to.shard.0,
            refusal,
        }
    }

    /// A node's name, or its UUID if it is no member any more.
    fn name(&self, node: NodeId) -> String {
        let member = self.state().members().get(&node);
        member.map_or_else(|| node.to_string(), |member| member.name.clone())
    }

    pub(in crate::coordinator) fn migrations(&self) -> MigrationsReport {
        let state = self.state();
        let active = state.migrations().active.iter().map(|(id, m)| (*id, m));
        let all = active.chain(state.ended_migrations());
        let stranded: BTreeMap<_, _> = state.stranded().map(|(id, _, why)| (id, why)).collect();
        // Of attempts for the same place the later one stays.
        let tried = state.ended_migrations().map(|(_, m)| (attempt(m), m));
        let tried: BTreeMap<_, _> = tried.collect();
        let why = |id: MigrationId, migration: &Migration| {
            let waits = stranded.get(&id);
            let waits = waits.map(|reason| self.waits_for(migration, *reason));
            waits.unwrap_or_else(|| last_try(&tried, migration))
        };
        let row = |(id, migration)| self.migration_row(id, migration, why);
        let mut migrations: Vec<MigrationRow> = all.map(row).collect();
        migrations.sort_unstable_by_key(|row| row.id);
        let draining = state.draining().iter();
        let mut draining: Vec<DrainingRow> = draining
            .map(|node| DrainingRow {
                node: self.name(*node),
                partitions: state.owned(*node).count() as u64,
            })
            .collect();
        draining.sort_unstable();
        MigrationsReport {
            migrations,
            draining,
            limit_mb_s: state.migrations().limit_mb_s,
        }
    }

    /// The failed node that a migration waits for.
    fn waits_for(&self, migration: &Migration, reason: AbortReason) -> String {
        let node = match reason {
            AbortReason::SourceFailed => migration.source.node,
            _ => migration.target.node,
        };
        format!("waits for {}: {reason}", self.name(node))
    }

    /// `why` says what an active one without an error waits for, or why the attempt before it failed.
    fn migration_row(
        &self,
        id: MigrationId,
        migration: &Migration,
        why: impl Fn(MigrationId, &Migration) -> String,
    ) -> MigrationRow {
        let noted = self.migrating.noted(id).cloned().unwrap_or_default();
        let mut keys = noted.progress.keys;
        let mut last_error = noted.progress.last_error;
        let mut abort_reason = None;
        let state = match &migration.phase {
            Phase::Waiting | Phase::Planned | Phase::Copying => {
                if last_error.is_empty() {
                    last_error = why(id, migration);
                }
                match migration.phase {
                    Phase::Copying => MigrationState::Copying,
                    Phase::Waiting => MigrationState::Waiting,
                    _ => MigrationState::Planned,
                }
            }
            Phase::Committed(confirmation) => {
                keys = confirmation.count;
                MigrationState::Committed
            }
            Phase::Aborted(abort) => {
                last_error = abort.to_string();
                abort_reason = Some(abort.reason);
                MigrationState::Aborted
            }
        };
        MigrationRow {
            id: id.0,
            partition: migration.partition.0,
            state,
            abort_reason,
            from_node: self.name(migration.source.node),
            from_shard: migration.source.shard.0,
            to_node: self.name(migration.target.node),
            to_shard: migration.target.shard.0,
            attempt: migration.attempt,
            will_retry: self.state().retries().contains_key(&id),
            keys,
            bytes: noted.progress.bytes,
            keys_per_s: noted.keys_per_s,
            bytes_per_s: noted.bytes_per_s,
            hold_us: noted.progress.hold_us,
            last_error,
        }
    }
}

/// What an attempt was about, and which one it was.
type Attempt = (PartitionId, Place, u32);

fn attempt(migration: &Migration) -> Attempt {
    (migration.partition, migration.target, migration.attempt)
}

/// Why the attempt before this one was given up; empty: there was none, or it is forgotten.
fn last_try(tried: &BTreeMap<Attempt, &Migration>, migration: &Migration) -> String {
    let (partition, target, attempt) = attempt(migration);
    let before = tried.get(&(partition, target, attempt.wrapping_sub(1)));
    match before.map(|before| &before.phase) {
        Some(Phase::Aborted(abort)) => abort.to_string(),
        _ => String::new(),
    }
}
