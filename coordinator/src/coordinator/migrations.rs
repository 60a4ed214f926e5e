//! What a leader does about migrations of its own accord, and what it keeps of what sources say.

mod operator;

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wal::Disk;
use ephesus_wire::{MigrationId, NodeId};

use super::balance::Calm;
use super::{Action, Coordinator, Pending, UNDECIDED_MAX};
use crate::command::Command;
use crate::member::{Input, Ticket};
use crate::migration::{Abort, AbortReason, Phase, Progress, Step, bounded};
use crate::placement::Place;
use crate::state::{MemberStatus, State};

/// Between two looks at what migrations need, ms.
const LOOK_MS: u64 = 100;

/// Most proposals of one look: a failed target may be that of every partition.
const PROPOSALS_MAX: usize = 64;

/// Before the second attempt of a move, ms; twice as long before each that follows.
pub const RETRY_MS: u64 = 1_000;

/// A migration waits for its source so long, ms, and for its target before it has begun; then it is
/// aborted.
pub const FAILED_PATIENCE_MS: u64 = 60_000;

/// An aborted move waits for its nodes so long, ms; then it is not tried again.
pub const RETRY_PATIENCE_MS: u64 = 600_000;

/// What one leader knows in one term, and nobody has to know for safety.
#[derive(Debug, Default)]
pub(super) struct Migrating {
    noted: BTreeMap<MigrationId, Noted>,
    /// Something about these is proposed, and has no outcome yet.
    proposed: BTreeMap<MigrationId, Ticket>,
    /// Since when migrations wait for a node that has failed.
    stranded_ms: BTreeMap<MigrationId, u64>,
    /// By the migration that was aborted.
    waiting: BTreeMap<MigrationId, Retry>,
    pub(super) calm: Calm,
    looked_at_ms: Option<u64>,
    /// The last that was planned when this leader has first looked: others may have copied before.
    earlier: Option<MigrationId>,
    pace: Pace,
}

/// What moves have copied since something has begun to move, and for how long.
#[derive(Debug, Default)]
struct Pace {
    bytes: u64,
    busy_ms: u64,
    is_moving: bool,
}

impl Pace {
    /// So much time has passed, in which something was to move or not, and could.
    fn pass(&mut self, is_moving: bool, can_go: bool, ms: u64) {
        if is_moving && !self.is_moving && self.bytes > 0 {
            *self = Pace::default();
        }
        if can_go {
            self.busy_ms += ms;
        }
        self.is_moving = is_moving;
    }
}

/// An aborted move that is to be planned again.
#[derive(Clone, Copy, Debug)]
struct Retry {
    retry_at_ms: u64,
    /// When its nodes were last there.
    there_ms: u64,
}

/// How far a migration is.
#[derive(Clone, Debug, Default)]
pub(super) struct Noted {
    pub(super) progress: Progress,
    at_ms: u64,
    pub(super) keys_per_s: u64,
    pub(super) bytes_per_s: u64,
}

impl Migrating {
    pub(super) fn noted(&self, id: MigrationId) -> Option<&Noted> {
        self.noted.get(&id)
    }

    /// A proposal about a migration has its outcome, or is not waited for any more. It may be one of an earlier
    /// term of this leader, which says nothing of a later one.
    pub(super) fn settle(&mut self, id: MigrationId, ticket: Ticket) {
        if self.proposed.get(&id) == Some(&ticket) {
            self.proposed.remove(&id);
        }
    }

    /// What moves of late have copied per second, all together; none: nothing has moved yet.
    pub(super) fn rate(&self) -> Option<u64> {
        let per_s = self.pace.bytes.saturating_mul(1_000) / self.pace.busy_ms.max(1);
        Some(per_s).filter(|rate| *rate > 0)
    }

    fn note(&mut self, id: MigrationId, progress: Progress, now_ms: u64) {
        let progress = Progress {
            last_error: bounded(&progress.last_error),
            ..progress
        };
        let before = self.noted.get(&id).cloned();
        let is_whole = self.earlier.is_some_and(|earlier| id > earlier);
        let more = match &before {
            Some(before) => progress.bytes.saturating_sub(before.progress.bytes),
            None if is_whole => progress.bytes,
            None => 0,
        };
        let mut noted = Noted {
            progress,
            at_ms: now_ms,
            ..Noted::default()
        };
        if let Some(before) = before {
            let passed_ms = now_ms - before.at_ms;
            if passed_ms == 0 {
                return;
            }
            let per_s =
                |now: u64, then: u64| now.saturating_sub(then).saturating_mul(1_000) / passed_ms;
            noted.keys_per_s = per_s(noted.progress.keys, before.progress.keys);
            noted.bytes_per_s = per_s(noted.progress.bytes, before.progress.bytes);
        }
        self.pace.bytes = self.pace.bytes.saturating_add(more);
        self.noted.insert(id, noted);
    }
}

impl<D: Disk> Coordinator<D> {
    /// Proposes what a node has said about migrations, each once; what is too much for one turn it says again.
    pub(super) fn take_steps(
        &mut self,
        node: NodeId,
        incarnation: u64,
        steps: &[(MigrationId, Step)],
        inputs: &mut Vec<Input>,
    ) {
        for (id, step) in steps.iter().take(UNDECIDED_MAX) {
            let command = self.state().command_for(node, incarnation, *id, step);
            if let Some(command) = command {
                self.propose_migration(*id, command, inputs);
            }
        }
    }

    /// Notes what a source says about its migrations.
    pub(super) fn take_progress(
        &mut self,
        node: NodeId,
        incarnation: u64,
        progress: Vec<(MigrationId, Progress)>,
    ) {
        let member = self.state().members().get(&node);
        if member.is_none_or(|member| member.incarnation != incarnation) {
            return;
        }
        let ended = self.state().ended_migrations();
        let ended = ended.filter(|(_, migration)| migration.source.node == node);
        let ended: BTreeSet<MigrationId> = ended.map(|(id, _)| id).collect();
        for (id, progress) in progress {
            let active = self.state().migrations().active.get(&id);
            let is_active = active.is_some_and(|migration| migration.source.node == node);
            // How long commands were held is known once the end is.
            if is_active || ended.contains(&id) {
                self.migrating.note(id, progress, self.now_ms);
            }
        }
    }

    /// Proposes something about a migration, unless something about it is under way.
    fn propose_migration(&mut self, id: MigrationId, command: Command, inputs: &mut Vec<Input>) {
        if self.migrating.proposed.contains_key(&id) {
            return;
        }
        let ticket = self.ticket(Some(Pending::Migration(id)));
        self.migrating.proposed.insert(id, ticket);
        inputs.push(Input::Propose(ticket, command));
    }

    /// Aborts what cannot go on, plans aborted moves again, and balances if it is to.
    pub(super) fn decide_migrations(&mut self, inputs: &mut Vec<Input>, actions: &mut Vec<Action>) {
        let now_ms = self.now_ms;
        let is_early = |at: u64| now_ms - at < LOOK_MS;
        if self.migrating.looked_at_ms.is_some_and(is_early) {
            return;
        }
        let looked_ms = self.migrating.looked_at_ms.replace(now_ms);
        let state = self.member.state();
        let migrating = &mut self.migrating;
        let last = state.migrations().last;
        migrating.earlier.get_or_insert(last);
        let active = &state.migrations().active;
        let is_live = |place: Place| {
            let member = state.members().get(&place.node);
            member.is_some_and(|member| member.status == MemberStatus::Live)
        };
        let can_go = active
            .values()
            .any(|one| one.phase != Phase::Waiting && is_live(one.source) && is_live(one.target));
        let passed_ms = now_ms - looked_ms.unwrap_or(now_ms);
        migrating.pace.pass(!active.is_empty(), can_go, passed_ms);
        let ended: BTreeSet<MigrationId> = state.ended_migrations().map(|(id, _)| id).collect();
        migrating
            .noted
            .retain(|id, _| active.contains_key(id) || ended.contains(id));
        let mut commands = migrating.overdue(state, now_ms);
        commands.extend(migrating.retries_due(state, now_ms));
        for (id, command) in commands {
            self.propose_migration(id, command, inputs);
        }
        self.balance_if_due(actions);
    }
}

fn abort(id: MigrationId, reason: AbortReason) -> (MigrationId, Command) {
    let text = String::new();
    let abort = Abort { reason, text };
    (id, Command::AbortMigration { id, abort })
}

impl Migrating {
    /// Ends what waits for a failed node: at once where a source holds on to what it has captured for
    /// a target that is gone, otherwise when it was waited for.
    fn overdue(&mut self, state: &State, now_ms: u64) -> Vec<(MigrationId, Command)> {
        let mut stranded_ms = BTreeMap::new();
        let mut due = Vec::new();
        for (id, migration, reason) in state.stranded() {
            let since_ms = self.stranded_ms.get(&id).copied().unwrap_or(now_ms);
            stranded_ms.insert(id, since_ms);
            let is_held = migration.phase == Phase::Copying && reason == AbortReason::TargetFailed;
            let is_due = is_held || now_ms - since_ms >= FAILED_PATIENCE_MS;
            if is_due && due.len() < PROPOSALS_MAX {
                due.push(abort(id, reason));
            }
        }
        self.stranded_ms = stranded_ms;
        due
    }

    /// Plans aborted moves again when their time has come and their nodes are there; those whose nodes
    /// stay away are given up.
    fn retries_due(&mut self, state: &State, now_ms: u64) -> Vec<(MigrationId, Command)> {
        let retries = state.retries();
        self.waiting.retain(|id, _| retries.contains_key(id));
        let mut due = Vec::new();
        for (id, retry) in retries {
            let doublings = retry.attempt.saturating_sub(2).min(16);
            let waiting = self.waiting.entry(*id).or_insert(Retry {
                retry_at_ms: now_ms + (RETRY_MS << doublings),
                there_ms: now_ms,
            });
            if due.len() == PROPOSALS_MAX {
                continue;
            }
            let command = Command::RetryMigration { id: *id };
            if !state.awaits(retry) {
                if now_ms - waiting.there_ms >= RETRY_PATIENCE_MS {
                    due.push(abort(*id, AbortReason::GivenUp));
                }
                continue;
            }
            waiting.there_ms = now_ms;
            let is_due = now_ms >= waiting.retry_at_ms && state.can_retry(retry);
            if is_due && state.check_known(&command).is_ok() {
                due.push((*id, command));
            }
        }
        due
    }
}

#[cfg(test)]
pub(super) mod tests;
