//! What operators ask of a coordinator.
//!
//! Answers come from a linearizable read: they contain everything that was decided before the
//! question.

use std::collections::BTreeMap;

use ephesus_wal::Disk;
use ephesus_wire::table::PartitionStatus;
use ephesus_wire::{MigrationId, NodeId, PartitionId, Partitioning, ShardId};

use super::planning::Planning;
use super::{Action, Coordinator, Pending, SessionId};
use crate::command::{Command, CoordinatorChange, RaftId};
use crate::member::{Input, Outcome};
use crate::protocol::{Answer, Refusals};
use crate::report::{
    COORDINATOR_SILENT_MS, CoordinatorRow, NodeRow, PartitionRow, Problem, Query, Report,
    StatusReport, find_node, member_word, partition_word,
};
use crate::state::{MemberStatus, Refusal};

/// An operator's request under way.
#[derive(Debug)]
pub(super) struct Operation {
    session: SessionId,
    id: u64,
    wanted: Wanted,
}

#[derive(Debug)]
pub(super) enum Wanted {
    Read(Query),
    Remove(NodeId),
    Change(CoordinatorChange),
    Plan {
        /// The refusal of the only move is that of all.
        is_single: bool,
    },
    Drain {
        node: NodeId,
        name: String,
        on: bool,
    },
    Cancel(MigrationId),
    CancelAll,
    Limit,
    Policy,
    CancelMoves,
}

impl Operation {
    /// Whether it was asked for at this session.
    pub(super) fn is_of(&self, session: SessionId) -> bool {
        self.session == session
    }

    pub(super) fn answer(&self, report: Report) -> Action {
        let answer = Answer::Operator {
            id: self.id,
            report: Box::new(report),
        };
        Action::Answer(self.session, answer)
    }
}

impl<D: Disk> Coordinator<D> {
    pub(super) fn operate(
        &mut self,
        session: SessionId,
        id: u64,
        query: Query,
        inputs: &mut Vec<Input>,
        actions: &mut Vec<Action>,
    ) {
        let operation = |wanted| Operation {
            session,
            id,
            wanted,
        };
        if !self.member.is_settled() {
            let report = Report::NotLeader(self.leader_hint());
            actions.push(operation(Wanted::Read(query)).answer(report));
            return;
        }
        let change = match query {
            Query::RemoveNode { node, lose_data } => {
                let Some(found) = find_node(self.state(), &node) else {
                    let operation = operation(Wanted::Read(Query::Nodes));
                    actions.push(operation.answer(Report::NoSuchNode(node)));
                    return;
                };
                if let Some(report) = self.keeps_node(found) {
                    let operation = operation(Wanted::Remove(found));
                    actions.push(operation.answer(report));
                    return;
                }
                let pending = Pending::Operation(operation(Wanted::Remove(found)));
                let ticket = self.ticket(Some(pending));
                let command = Command::Remove {
                    node: found,
                    lose_data,
                };
                inputs.push(Input::Propose(ticket, command));
                return;
            }
            Query::AddCoordinator { address } => {
                let mut known = self.state().coordinators().iter();
                // Said again: the first answer may have been lost.
                let known = known
                    .find(|(_, taken)| **taken == address)
                    .map(|(id, _)| *id);
                let id = known.unwrap_or(self.state().next_coordinator());
                CoordinatorChange::AddLearner { id, address }
            }
            Query::RemoveCoordinator { id } => {
                let change = CoordinatorChange::Remove { id };
                if let Some(silent) = self.missed_without(id) {
                    let refusal = Refusal::NoMajorityLeft { id, silent };
                    actions
                        .push(operation(Wanted::Change(change)).answer(Report::Refused(refusal)));
                    return;
                }
                if id == self.member.id() && self.state().voters().nth(1).is_some() {
                    inputs.push(self.step_aside());
                    actions.push(operation(Wanted::Change(change)).answer(Report::Busy));
                    return;
                }
                change
            }
            Query::Rebalance { dry_run: false } => {
                let operation = operation(Wanted::Plan { is_single: false });
                self.rebalance(operation, None, actions);
                return;
            }
            Query::RebalanceByLoad { dry_run: false } => {
                let operation = operation(Wanted::Plan { is_single: false });
                self.begin_plan(Planning::ByLoad(operation), actions);
                return;
            }
            Query::Move {
                partition,
                node,
                shard,
            } => {
                let operation = operation(Wanted::Plan { is_single: true });
                let (partition, shard) = (PartitionId(partition), shard.map(ShardId));
                self.move_one(operation, partition, node, shard, inputs, actions);
                return;
            }
            Query::MoveAll { moves } => {
                let operation = operation(Wanted::Plan { is_single: false });
                self.move_all(operation, moves, inputs, actions);
                return;
            }
            Query::Drain { node, on } => {
                self.drain(operation, node, on, inputs, actions);
                return;
            }
            Query::CancelMigration { id } => {
                let id = MigrationId(id);
                self.cancel(operation(Wanted::Cancel(id)), id, inputs, actions);
                return;
            }
            Query::CancelMigrations { ids } => {
                self.cancel_all(operation(Wanted::CancelAll), &ids, inputs, actions);
                return;
            }
            Query::SetPlacement { policy } => {
                let command = Command::SetPolicy { policy };
                self.propose_for(operation(Wanted::Policy), command, inputs, actions);
                return;
            }
            Query::CancelPlacement => {
                let command = Command::CancelMoves;
                let operation = operation(Wanted::CancelMoves);
                self.propose_for(operation, command, inputs, actions);
                return;
            }
            Query::LimitMoves { mb_s } => {
                let command = Command::LimitMoves { mb_s };
                self.propose_for(operation(Wanted::Limit), command, inputs, actions);
                return;
            }
            query => {
                let pending = Pending::Operation(operation(Wanted::Read(query)));
                let ticket = self.ticket(Some(pending));
                inputs.push(Input::Read(ticket));
                return;
            }
        };
        if let Err(refusal) = self.state().check_known_change(&change) {
            let operation = operation(Wanted::Change(change));
            actions.push(operation.answer(Report::Refused(refusal)));
            return;
        }
        let pending = Pending::Operation(operation(Wanted::Change(change.clone())));
        let ticket = self.ticket(Some(pending));
        inputs.push(Input::Change(ticket, change));
    }

    /// Why a node is not to be removed now: a coordinator would end with it.
    fn keeps_node(&self, node: NodeId) -> Option<Report> {
        let state = self.state();
        let own = self.member.id();
        let hosted = (self.host == Some(node)).then_some(own);
        let id = hosted.or_else(|| state.embedded_in(node))?;
        let name = state.members().get(&node)?.name.clone();
        let is_last = state.voters().eq([id]);
        Some(Report::Refused(Refusal::BringsCoordinator {
            name,
            id,
            is_last,
        }))
    }

    /// A proposal of an operator has an outcome.
    pub(super) fn operated(
        &mut self,
        operation: Operation,
        outcome: Outcome,
        actions: &mut Vec<Action>,
    ) {
        let report = match outcome {
            Outcome::Applied(Ok(effects)) => match &operation.wanted {
                Wanted::Remove(node) => Report::NodeRemoved {
                    id: node.to_string(),
                },
                Wanted::Change(
                    CoordinatorChange::Add { id, .. }
                    | CoordinatorChange::AddLearner { id, .. }
                    | CoordinatorChange::Promote { id },
                ) => Report::CoordinatorAdded { id: *id },
                Wanted::Change(CoordinatorChange::Remove { id }) => {
                    Report::CoordinatorRemoved { id: *id }
                }
                Wanted::Plan { is_single } => self.planned(effects, *is_single),
                Wanted::Drain { node, on: true, .. } => {
                    let node = Some(*node);
                    let wanted = Wanted::Plan { is_single: false };
                    let operation = Operation {
                        wanted,
                        ..operation
                    };
                    self.rebalance(operation, node, actions);
                    return;
                }
                Wanted::Drain { name, .. } => Report::NotDraining { node: name.clone() },
                Wanted::Cancel(id) => Report::MigrationCancelled { id: id.0 },
                Wanted::CancelAll => Report::MigrationsCancelled,
                Wanted::Limit => Report::MovesLimited,
                Wanted::Policy => Report::PlacementSet,
                Wanted::CancelMoves => Report::PlacementCancelled {
                    migrations: effects.migrations.len() as u64,
                },
                Wanted::Read(_) => return,
            },
            // Over, in one way or another: as it was to be.
            Outcome::Applied(Err(_)) if matches!(operation.wanted, Wanted::CancelAll) => {
                Report::MigrationsCancelled
            }
            Outcome::Applied(Err(refusal)) => Report::Refused(refusal),
            Outcome::NotLeader(_) => Report::NotLeader(self.leader_hint()),
            Outcome::Busy => Report::Busy,
            Outcome::Unknown => Report::TimedOut,
        };
        actions.push(operation.answer(report));
    }

    /// A read of an operator may be answered, or not by this coordinator.
    pub(super) fn reported(
        &mut self,
        operation: Operation,
        is_current: bool,
        actions: &mut Vec<Action>,
    ) {
        let Wanted::Read(query) = &operation.wanted else {
            return;
        };
        if is_current && let Query::Placement { policy } = query {
            let policy = policy.unwrap_or(self.state().policy());
            self.begin_plan(Planning::Placement(operation, policy), actions);
            return;
        }
        if is_current && let Query::Rebalance { .. } = query {
            self.begin_plan(Planning::Would(operation), actions);
            return;
        }
        if is_current && let Query::RebalanceByLoad { .. } = query {
            self.begin_plan(Planning::WouldByLoad(operation), actions);
            return;
        }
        let report = if is_current {
            match query {
                Query::Nodes => Report::Nodes(self.nodes()),
                Query::Partitions => Report::Partitions(self.partitions()),
                Query::Coordinators => Report::Coordinators(self.coordinators()),
                Query::Migrations => Report::Migrations(self.migrations()),
                Query::Load => Report::Load(self.load_report()),
                Query::HotKeys => Report::HotKeys(self.hot_keys_report()),
                _ => Report::Status(self.status()),
            }
        } else {
            Report::NotLeader(self.leader_hint())
        };
        actions.push(operation.answer(report));
    }

    fn nodes(&self) -> Vec<NodeRow> {
        let owned = self.owned();
        let members = self.state().members().iter();
        let mut rows: Vec<NodeRow> = members
            .map(|(id, member)| {
                let heard = self.liveness.heard_of(*id);
                let figures = heard.map(|(heard, _)| heard.figures).unwrap_or_default();
                NodeRow {
                    name: member.name.clone(),
                    id: id.to_string(),
                    status: member_word(member.status).to_owned(),
                    draining: self.state().draining().contains(id),
                    incarnation: member.incarnation,
                    shards: member.shards,
                    capacity: member.capacity,
                    partitions: owned.get(id).copied().unwrap_or(0),
                    keys: figures.keys,
                    bytes: figures.bytes,
                    last_heartbeat_ms: heard.map(|(_, silent_ms)| silent_ms),
                    table_version: heard.map_or(0, |(heard, _)| heard.table_version),
                    entry: member.addresses.entry.clone(),
                    peer: member.addresses.peer.clone(),
                    shard_cpu_us_per_s: self.shard_cpu(*id, member.shards),
                    rack: member.addresses.rack.clone(),
                }
            })
            .collect();
        rows.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        rows
    }

    /// Partitions by owner.
    fn owned(&self) -> BTreeMap<NodeId, u64> {
        let mut owned = BTreeMap::new();
        for entry in &self.state().table().entries {
            if let Some(primary) = entry.primary() {
                *owned.entry(primary.node).or_default() += 1;
            }
        }
        owned
    }

    fn partitions(&self) -> Vec<PartitionRow> {
        let state = self.state();
        let Ok(partitioning) = state.table().partitioning() else {
            return Vec::new();
        };
        let entries = state.table().entries.iter().enumerate();
        let row = |(index, entry): (usize, &ephesus_wire::table::PartitionEntry)| {
            let partition = PartitionId(index as u16);
            let (first, last) = slots(partitioning, partition);
            let primary = entry.primary();
            let owner = primary.and_then(|primary| state.members().get(&primary.node));
            PartitionRow {
                partition: partition.0,
                first_slot: first,
                last_slot: last,
                status: self.word(entry).to_owned(),
                epoch: entry.epoch.0,
                node: owner.map(|member| member.name.clone()),
                shard: primary.map(|primary| primary.shard.0),
            }
        };
        entries.map(row).collect()
    }

    /// How the status of a partition is called: that of a failed owner comes first.
    fn word(&self, entry: &ephesus_wire::table::PartitionEntry) -> &'static str {
        let members = self.state().members();
        let owner = entry
            .primary()
            .and_then(|primary| members.get(&primary.node));
        if owner.is_some_and(|owner| owner.status == MemberStatus::Failed) {
            return "failed";
        }
        partition_word(entry.status)
    }

    fn coordinators(&self) -> Vec<CoordinatorRow> {
        let row = |(id, address): (&RaftId, &String)| CoordinatorRow {
            id: *id,
            address: address.clone(),
            leader: *id == self.member.id(),
            votes: !self.state().learners().contains(id),
            matched: self.member.matched(*id),
            active: !self.is_silent(*id),
            last_heard_ms: self.last_heard_ms(*id),
            refused: self.refused.get(id).map(Refusals::total),
            refusals: self.refused.get(id).cloned().unwrap_or_default().0,
        };
        self.state().coordinators().iter().map(row).collect()
    }

    /// Since another coordinator was last heard of, ms; none: not since this one leads.
    fn last_heard_ms(&self, id: RaftId) -> Option<u64> {
        if id == self.member.id() {
            return Some(0);
        }
        let heard_ms = self.heard_ms.get(&id)?;
        Some(self.now_ms - heard_ms)
    }

    /// One that votes and is silent, if without `id` those that answer are no majority of those that vote.
    fn missed_without(&self, id: RaftId) -> Option<RaftId> {
        let left: Vec<RaftId> = self.state().voters().filter(|voter| *voter != id).collect();
        let is_heard = |voter: &RaftId| {
            let heard_ms = self.last_heard_ms(*voter);
            heard_ms.is_some_and(|ms| ms < COORDINATOR_SILENT_MS)
        };
        let (heard, silent): (Vec<RaftId>, Vec<RaftId>) = left.iter().partition(|id| is_heard(id));
        let has_majority = heard.len() > silent.len();
        silent.first().copied().filter(|_| !has_majority)
    }

    fn is_silent(&self, id: RaftId) -> bool {
        let unheard_ms = self.now_ms - self.leads_since_ms;
        self.last_heard_ms(id).unwrap_or(unheard_ms) >= COORDINATOR_SILENT_MS
    }

    fn status(&self) -> StatusReport {
        let state = self.state();
        let mut nodes = BTreeMap::<String, u64>::new();
        let (mut keys, mut bytes) = (0u64, 0u64);
        for (id, member) in state.members() {
            *nodes
                .entry(member_word(member.status).to_owned())
                .or_default() += 1;
            if let Some((heard, _)) = self.liveness.heard_of(*id) {
                keys = keys.saturating_add(heard.figures.keys);
                bytes = bytes.saturating_add(heard.figures.bytes);
            }
        }
        let mut partitions = BTreeMap::<String, u64>::new();
        for entry in &state.table().entries {
            *partitions.entry(self.word(entry).to_owned()).or_default() += 1;
        }
        let problems = self.problems();
        StatusReport {
            cluster: state.cluster().map(|id| id.to_string()).unwrap_or_default(),
            healthy: problems.is_empty(),
            problems,
            leader: self.member.id(),
            term: self.member.term(),
            commit_index: self.member.committed(),
            table_version: state.table().version,
            coordinators: state.coordinators().len() as u64,
            nodes,
            partitions,
            keys,
            bytes,
            hot_keys: self.saturating_keys(),
        }
    }

    /// What is wrong with a coordinator.
    fn problem_of(&self, id: RaftId, address: String) -> Option<Problem> {
        if self.is_silent(id) {
            return Some(Problem::CoordinatorSilent { id, address });
        }
        let is_behind = self.member.matched(id) == 0 || self.state().learners().contains(&id);
        is_behind.then_some(Problem::CoordinatorBehind { id, address })
    }

    pub(super) fn problems(&self) -> Vec<Problem> {
        let state = self.state();
        let Some(options) = state.options() else {
            return vec![Problem::NotBootstrapped];
        };
        let coordinators = state.coordinators().iter();
        let mut problems: Vec<Problem> = coordinators
            .filter_map(|(id, address)| self.problem_of(*id, address.clone()))
            .collect();
        let needed = options.min_nodes;
        let missing = state.missing_nodes();
        if missing > 0 {
            let present = needed - missing;
            problems.push(Problem::NotEnoughNodes { present, needed });
            return problems;
        }
        let owned = self.owned();
        for (id, member) in state.members() {
            let partitions = owned.get(id).copied().unwrap_or(0);
            let name = member.name.clone();
            match member.status {
                MemberStatus::Live => {}
                _ if partitions == 0 => {}
                MemberStatus::Failed => problems.push(Problem::NodeFailed { name, partitions }),
                MemberStatus::Starting => problems.push(Problem::NodeStarting { name, partitions }),
            }
        }
        let is_waiting = |status| {
            matches!(
                status,
                PartitionStatus::Unassigned | PartitionStatus::Assigned
            )
        };
        let entries = state.table().entries.iter();
        let partitions = entries.filter(|entry| is_waiting(entry.status)).count() as u64;
        if partitions > 0 {
            problems.push(Problem::NotOnline { partitions });
        }
        problems
    }
}

/// The first and the last slot of a partition.
pub(super) fn slots(partitioning: Partitioning, partition: PartitionId) -> (u16, u16) {
    partitioning.slots_of(partition).into_inner()
}
