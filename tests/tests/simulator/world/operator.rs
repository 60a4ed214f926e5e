//! What the operator of a world asks, and does about troubles.

use ephesus_coordinator::coordinator::{Event, SessionId};
use ephesus_coordinator::placement::Policy;
use ephesus_coordinator::protocol::Request;
use ephesus_coordinator::report::{Query, Report};
use ephesus_coordinator::state::{MemberStatus, Refusal, Speaker};

use super::coordinators::address;
use super::{What, World};
use crate::network::End;

/// Between two things that the operator does, ms.
pub(crate) const OPERATE_MS: u64 = 150;

impl World {
    /// Asks a coordinator something, as an operator.
    pub(crate) fn ask(&mut self, coordinator: u64, query: Query) {
        let id = self.number();
        self.asked.insert(id, query.clone());
        let request = Request::Operator { id, query };
        let event = Event::Request(SessionId(id), request);
        let delay = self.network.delay_ms(&mut self.rng);
        self.after(
            delay,
            What::ToCoordinator(End::Operator, coordinator, event),
        );
    }

    pub(super) fn operator_told(&mut self, session: u64, report: Report) {
        let Some(query) = self.asked.remove(&session) else {
            return;
        };
        match (&query, &report) {
            (Query::RemoveNode { node, .. }, Report::NodeRemoved { .. }) => {
                if let Ok(id) = node.parse() {
                    self.checks.removed(id);
                }
            }
            (Query::RemoveCoordinator { .. }, Report::CoordinatorRemoved { id }) => {
                self.checks.coordinator_removed(*id);
                if self.replacement.as_ref() == Some(&query) {
                    let address = address(100 + self.number());
                    self.replacement = Some(Query::AddCoordinator { address });
                }
            }
            // Does what the refusal says, one by one, and asks again.
            (
                Query::AddCoordinator { .. },
                Report::Refused(Refusal::NotUpgraded { behind, .. }),
            ) => {
                if let Some(Speaker::Coordinator(id)) = behind.first().map(|one| &one.who) {
                    self.stop_coordinator(id.0, false);
                    self.after(10, What::StartCoordinator(id.0));
                }
            }
            (Query::AddCoordinator { address }, Report::CoordinatorAdded { id }) => {
                self.checks.coordinator_added(*id);
                if self.replacement.as_ref() == Some(&query) {
                    self.replacement = None;
                    self.place_coordinator(id.0, address.clone(), false);
                    self.after(1, What::StartCoordinator(id.0));
                }
            }
            _ => {}
        }
        self.reports.push(report);
        if self.reports.len() > 16 {
            self.reports.remove(0);
        }
    }

    /// The operator gives failed nodes up, and replaces coordinators.
    pub(crate) fn operate(&mut self) {
        self.after(OPERATE_MS, What::Operate);
        let coordinator = self.any_coordinator();
        let coordinator = self
            .leader()
            .filter(|_| self.rng.below(4) > 0)
            .unwrap_or(coordinator);
        if let Some(query) = self.replacement.clone() {
            self.ask(coordinator, query);
        }
        self.ask(coordinator, Query::Status);
        if self.is_rough {
            self.rearrange(coordinator);
        }
        let Some(latest) = self.checks.latest().cloned() else {
            return;
        };
        let failed = latest.members.iter();
        let failed = failed.filter(|(_, member)| member.status == MemberStatus::Failed);
        let failed: Vec<_> = failed.map(|(id, _)| *id).collect();
        for id in failed {
            let is_lost = self.nodes.iter().all(|process| process.disk.id != id);
            let is_doomed = self.doomed == Some(id);
            if is_lost || is_doomed || (self.is_rough && self.rng.one_in(3)) {
                self.checks.given_up.insert(id);
                let query = Query::RemoveNode {
                    node: id.to_string(),
                    lose_data: true,
                };
                self.ask(coordinator, query);
            }
        }
    }

    /// The operator moves something, now and then.
    fn rearrange(&mut self, coordinator: u64) {
        let name = |world: &mut World| {
            let node = world.rng.below(world.nodes.len() as u64) as usize;
            world.nodes[node].name.clone()
        };
        let query = match self.rng.below(14) {
            0 | 1 => Query::Rebalance { dry_run: false },
            2..=4 => Query::Move {
                partition: self.rng.below(self.shape.options.partitions.into()) as u16,
                node: name(self),
                shard: None,
            },
            5 => Query::Drain {
                node: name(self),
                on: self.rng.one_in(2),
            },
            6 => Query::CancelMigration {
                id: 1 + self.rng.below(60),
            },
            7 => Query::Migrations,
            8 => {
                let all = Policy::all();
                let chosen = self.rng.below(all.len() as u64) as usize;
                self.changes_policy = true;
                Query::SetPlacement {
                    policy: all[chosen],
                }
            }
            9 if self.rng.one_in(2) => Query::CancelPlacement,
            9 => Query::Placement { policy: None },
            _ => return,
        };
        self.ask(coordinator, query);
    }
}
