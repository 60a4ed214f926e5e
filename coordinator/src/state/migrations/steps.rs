//! What may be decided about migrations next, and who may say so.

use std::collections::BTreeSet;

use ephesus_wire::limits::STREAM_OPENS_MAX;
use ephesus_wire::table::PartitionStatus;
use ephesus_wire::{MigrationId, NodeId};

use crate::command::Command;
use crate::migration::{Abort, AbortReason, Migration, Phase, Step, bounded};
use crate::state::{Member, MemberStatus, Retry, State, is_live, is_up};

impl State {
    /// The command for what a node says about a migration; none where it is not its turn to say so,
    /// or everybody knows already.
    #[must_use]
    pub fn command_for(
        &self,
        node: NodeId,
        incarnation: u64,
        id: MigrationId,
        step: &Step,
    ) -> Option<Command> {
        let migration = self.migrations.table.active.get(&id)?;
        if self.members.get(&node)?.incarnation != incarnation {
            return None;
        }
        let is_source = migration.source.node == node;
        match step {
            Step::Begin if is_source && migration.phase == Phase::Planned => {
                let entry = self.table.entry(migration.partition)?;
                let is_online = entry.status == PartitionStatus::Online;
                is_online.then_some(Command::BeginMigration { id, incarnation })
            }
            Step::Commit(confirmations) => {
                let active = &self.migrations.table.active;
                let is_copying = |migration: &Migration| {
                    migration.source.node == node && migration.phase == Phase::Copying
                };
                let mut all = confirmations.iter();
                let is_due = confirmations.first().is_some_and(|(first, _)| *first == id)
                    && confirmations.len() as u64 <= STREAM_OPENS_MAX
                    && all.all(|(id, _)| active.get(id).is_some_and(is_copying));
                is_due.then(|| Command::CommitMigrations {
                    incarnation,
                    confirmations: confirmations.clone(),
                })
            }
            Step::Abort(text) if is_source || migration.target.node == node => {
                let reason = if is_source {
                    AbortReason::Source
                } else {
                    AbortReason::Target
                };
                let text = bounded(text);
                let abort = Abort { reason, text };
                Some(Command::AbortMigration { id, abort })
            }
            _ => None,
        }
    }

    /// Active migrations that cannot go on because a node of theirs has failed, and which one.
    pub fn stranded(&self) -> impl Iterator<Item = (MigrationId, &Migration, AbortReason)> {
        let members = self.members.iter();
        let failed = members.filter(|(_, member)| member.status == MemberStatus::Failed);
        let failed: BTreeSet<NodeId> = failed.map(|(id, _)| *id).collect();
        let is_failed = move |node| failed.contains(&node);
        // Mostly nobody has failed, and there may be as many as partitions.
        let active = self.migrations.table.active.iter();
        active.filter_map(move |(id, migration)| {
            let reason = if is_failed(migration.target.node) {
                AbortReason::TargetFailed
            } else if is_failed(migration.source.node) {
                AbortReason::SourceFailed
            } else {
                return None;
            };
            Some((*id, migration, reason))
        })
    }

    /// Whether the nodes of a retry serve, so that it can be planned again: an attempt towards a node that
    /// recovers would be used up in vain.
    #[must_use]
    pub fn can_retry(&self, retry: &Retry) -> bool {
        self.nodes_of(retry).all(is_live)
    }

    /// Whether the nodes of a retry are there, serving or not, so that it is waited for.
    #[must_use]
    pub fn awaits(&self, retry: &Retry) -> bool {
        self.nodes_of(retry).all(is_up)
    }

    /// The nodes of a retry that are members: without the others it will be found to be over.
    fn nodes_of(&self, retry: &Retry) -> impl Iterator<Item = &Member> {
        let owner = self.table.entry(retry.partition).and_then(|e| e.primary());
        let nodes = owner.map(|owner| owner.node).into_iter();
        let nodes = nodes.chain([retry.target.node]);
        nodes.filter_map(|node| self.members.get(&node))
    }
}
