//! What a node that has joined says: that it is there, and what the coordinator does not know yet.

use ephesus_wire::table::PartitionStatus;
use ephesus_wire::{Epoch, MigrationId, PartitionId};

use super::{Agent, AgentAction, ConnectionId, Link, PROGRESS_MS, REPEAT_MS};
use crate::command::Registration;
use crate::liveness::HEARTBEAT_MS;
use crate::migration::{Phase, Step};
use crate::protocol::{Heartbeat, Request};
use crate::state::MemberStatus;

impl Agent {
    /// Sends what is due on a connection to the leader.
    pub(super) fn speak(
        &mut self,
        connection: ConnectionId,
        now_ms: u64,
        actions: &mut Vec<AgentAction>,
    ) {
        let Registration {
            node, incarnation, ..
        } = self.options.registration;
        let table_version = self.views.version();
        let acted_version = table_version.min(self.pulse.table_version);
        let idle_ms = u32::try_from(self.idle_ms(now_ms)).unwrap_or(u32::MAX);
        let is_sole = self.options.is_sole || self.lease_until_ms > 0;
        // The lease may have been refused for the table that shards act on by now.
        let is_news = self.is_refused && acted_version > self.told_acted;
        if let Link::Joined {
            heartbeat_at_ms,
            unanswered_ms,
            ..
        } = &mut self.link
            && (now_ms >= *heartbeat_at_ms || is_news)
        {
            // Heartbeats that were slept through are not made up for.
            let due_ms = now_ms.min(*heartbeat_at_ms);
            *heartbeat_at_ms = (due_ms + HEARTBEAT_MS).max(now_ms + HEARTBEAT_MS / 2);
            unanswered_ms.get_or_insert(now_ms);
            let heartbeat = Heartbeat {
                node,
                incarnation,
                sent_ms: now_ms,
                table_version,
                acted_version,
                idle_ms,
                is_sole,
                figures: self.figures,
            };
            self.told_acted = acted_version;
            let request = Request::Heartbeat(heartbeat, self.load_report());
            actions.push(AgentAction::Send(connection, request));
        }
        if !self.progress.is_empty() && now_ms >= self.progress_at_ms {
            self.progress_at_ms = now_ms + PROGRESS_MS;
            let progress = self.progress.iter().map(|(id, p)| (*id, p.clone()));
            let request = Request::Progress {
                node,
                incarnation,
                progress: progress.collect(),
            };
            actions.push(AgentAction::Send(connection, request));
        }
        if now_ms < self.tell_at_ms {
            return;
        }
        let (first, longest) = REPEAT_MS;
        let wait_ms = (first << self.tellings.min(16)).min(longest);
        self.tell_at_ms = now_ms + wait_ms / 2 + self.rng.below(wait_ms / 2 + 1);
        self.tellings += 1;
        let untold = self.untold();
        actions.extend(
            untold
                .into_iter()
                .map(|request| AgentAction::Send(connection, request)),
        );
    }

    /// What the coordinator does not know yet.
    pub(super) fn untold(&self) -> Vec<Request> {
        let Registration {
            node, incarnation, ..
        } = self.options.registration;
        let mut untold = Vec::new();
        if self.is_started && self.status != Some(MemberStatus::Live) {
            untold.push(Request::Started { node, incarnation });
        }
        let Some(view) = self.view() else {
            return untold;
        };
        let is_unconfirmed = |partition: PartitionId, epoch: Epoch| {
            view.table.entry(partition).is_some_and(|entry| {
                entry.status == PartitionStatus::Assigned
                    && entry.epoch == epoch
                    && entry.primary().is_some_and(|primary| primary.node == node)
            })
        };
        let hosted = self
            .hosted
            .iter()
            .map(|(partition, epoch)| (*partition, *epoch));
        let copies: Vec<_> = hosted.filter(|(p, e)| is_unconfirmed(*p, *e)).collect();
        if !copies.is_empty() {
            untold.push(Request::Hosting { node, copies });
        }
        let active = &view.migrations.active;
        let is_undecided = |id: &MigrationId, step: &Step| {
            active.get(id).is_some_and(|migration| match step {
                Step::Begin => migration.phase == Phase::Planned,
                Step::Commit(_) | Step::Abort(_) => true,
            })
        };
        let steps = self
            .steps
            .iter()
            .filter(|(id, step)| is_undecided(id, step));
        let steps: Vec<_> = steps.map(|(id, step)| (*id, step.clone())).collect();
        if !steps.is_empty() {
            untold.push(Request::Steps {
                node,
                incarnation,
                steps,
            });
        }
        untold
    }
}
