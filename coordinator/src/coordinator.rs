//! One coordinator without its sockets, clock and threads: a [`Member`], who is alive, and who is
//! connected.
//!
//! ```text
//! Event -> Coordinator::turn(now) -> Action
//! ```
//!
//! A shell calls [`Coordinator::turn`] with what has happened, at the latest at
//! [`Coordinator::next_turn_ms`], and carries the actions out. Only the leader decides and tells;
//! the others name it.

use std::collections::{BTreeMap, BTreeSet};

use ephesus_wal::Disk;
use ephesus_wire::handshake::Versions;
use ephesus_wire::{MigrationId, NodeId};
use raft::eraftpb::MessageType;
use raft::prelude::Message;

use crate::command::{Command, RaftId, Registration, StartProof};
use crate::liveness::{Liveness, PendingHeartbeat, STEP_MS_MAX};
use crate::load::Loads;
use crate::load::hot::ToldKeys;
use crate::member::{Input, Member, MemberError, Outcome, Output, Ticket};
#[cfg(any(test, feature = "planted"))]
use crate::planted::{Bug, Planted};
use crate::protocol::{Answer, Coordinators, Refusals, Request};
use crate::report::Report;
use crate::state::{MemberStatus, State};
use crate::storage::RaftLog;
use crate::view::History;

mod balance;
mod events;
mod load;
mod migrations;
mod nodes;
mod operator;
mod options;
mod peers;
mod placement;
mod planning;
mod sessions;

pub use events::{Action, Event, SessionId};
pub use options::{CoordinatorOptions, Founding};

pub use balance::{AUTO_REBALANCE_AFTER_MS, AUTO_REBALANCE_AGAIN_MS_MAX, Balance};
pub use migrations::{FAILED_PATIENCE_MS, RETRY_MS, RETRY_PATIENCE_MS};

pub use planning::{PLAN_PATIENCE_MS, PlanJob, PlanResult};

use migrations::Migrating;
use operator::Operation;
use peers::address_of;
use planning::Planning;
use sessions::Sessions;

/// Between two ticks of raft, ms: a leader that falls silent is replaced after 10 to 20 of them,
/// before the leases it has granted run out.
pub const TICK_MS: u64 = 30;

/// A coordinator that is alone and has nothing to do takes its turn so much later, ms: turns are most of what an
/// idle node costs.
const REST_MS: u64 = 60;

const _: () = assert!(
    TICK_MS + REST_MS <= STEP_MS_MAX,
    "nodes are timed out by steps of this length at most"
);

/// A coordinator that was heard of within this time is there, ms: the leader asks four times as often.
const PRESENT_MS: u64 = 8 * TICK_MS;

/// A question or proposal without an outcome is given up, ms.
pub const PATIENCE_MS: u64 = 1_500;

/// What nodes and operators may have under way to be decided, before what they say next is taken: it is decided
/// at once, in the worst case, and a turn should be short.
pub const UNDECIDED_MAX: usize = 256;

/// Who waits for an outcome.
#[derive(Debug)]
enum Pending {
    Bootstrap,
    Register(SessionId, Registration, Option<StartProof>),
    /// What a node says about itself is repeated until the table shows it.
    Told(NodeId),
    Fail,
    /// What a coordinator speaks.
    Speaks(RaftId),
    /// A coordinator that has learned the log is to vote.
    Promote,
    /// What the leader moves of its own accord.
    Rebalance,
    /// How much may move at a time.
    MovesMax,
    /// Plans that are made elsewhere.
    Planning(Planning),
    /// What nodes or this leader want to have decided about it: said again until it is.
    Migration(MigrationId),
    Operation(Operation),
}

/// One coordinator.
pub struct Coordinator<D: Disk> {
    member: Member<D>,
    peers: BTreeMap<RaftId, String>,
    founding: Option<Founding>,
    auto_rebalance: Option<Balance>,
    moves_max: u32,
    host: Option<NodeId>,
    liveness: Liveness<SessionId>,
    /// What nodes have told of their load.
    loads: Loads,
    hot_keys: ToldKeys,
    sessions: Sessions,
    migrating: Migrating,
    history: History,
    /// What follows from the last turn, for the next one.
    later: Vec<Input>,
    /// Whether the last turn has changed what is decided: more may follow from it.
    has_changed: bool,
    pending: BTreeMap<Ticket, (u64, Pending)>,
    /// The plan that is made, and since when.
    plan_made: Option<(Ticket, u64)>,
    /// Nodes something of whom is proposed, and has no outcome yet.
    told: BTreeSet<NodeId>,
    tickets: u64,
    now_ms: u64,
    tick_at_ms: Option<u64>,
    /// The term this coordinator leads.
    leads: Option<u64>,
    leads_since_ms: u64,
    /// When the other coordinators were last heard of.
    heard_ms: BTreeMap<RaftId, u64>,
    /// What coordinators speak, this one included, as they have told it.
    speak: BTreeMap<RaftId, Versions>,
    /// What coordinators have refused at their ports, as they have last said.
    refused: BTreeMap<RaftId, Refusals>,
}

impl<D: Disk> Coordinator<D> {
    /// Continues from what `log` holds.
    ///
    /// # Errors
    /// [`MemberError`].
    pub fn new(
        options: CoordinatorOptions,
        log: RaftLog<D>,
    ) -> Result<Coordinator<D>, MemberError> {
        let mut member = Member::new(options.id, log, options.election_ticks, options.life)?;
        member.set_snapshot_after(options.snapshot_after);
        Ok(Coordinator {
            member,
            peers: options.peers,
            founding: options.founding,
            auto_rebalance: options.auto_rebalance,
            moves_max: options.moves_max,
            host: options.host,
            liveness: Liveness::new(),
            loads: Loads::default(),
            hot_keys: ToldKeys::default(),
            sessions: Sessions::default(),
            migrating: Migrating::default(),
            history: History::default(),
            later: Vec::new(),
            has_changed: false,
            pending: BTreeMap::new(),
            plan_made: None,
            told: BTreeSet::new(),
            tickets: 0,
            now_ms: 0,
            tick_at_ms: None,
            leads: None,
            leads_since_ms: 0,
            heard_ms: BTreeMap::new(),
            speak: BTreeMap::from([(options.id, options.speaks)]),
            refused: BTreeMap::new(),
        })
    }

    /// Plants a bug, for tests that have to find it.
    #[cfg(any(test, feature = "planted"))]
    pub fn plant(&mut self, bug: Bug) {
        self.member.plant(Planted::new(bug));
        self.liveness.planted = Planted::new(bug);
    }

    /// The member inside.
    #[must_use]
    pub fn member(&self) -> &Member<D> {
        &self.member
    }

    /// What has been decided, as far as this coordinator knows.
    #[must_use]
    pub fn state(&self) -> &State {
        self.member.state()
    }

    /// Whether this coordinator was removed: end the process.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        let (id, state) = (self.member.id(), self.state());
        id < state.next_coordinator() && !state.coordinators().contains_key(&id)
    }

    /// Whether this is the only coordinator, and leads.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.member.is_leader() && self.member.voters() == [self.member.id()]
    }

    /// For how much of what nodes and operators [want](Event::wants) there is room in the next turn: what is
    /// more waits where it is.
    #[must_use]
    pub fn room(&self) -> usize {
        UNDECIDED_MAX.saturating_sub(self.member.undecided())
    }

    /// Whether there is no node but the one around this coordinator.
    #[must_use]
    pub fn has_only_its_host(&self) -> bool {
        let mut nodes = self.state().members().keys();
        nodes.all(|node| Some(*node) == self.host)
    }

    /// When the next turn is due at the latest.
    #[must_use]
    pub fn next_turn_ms(&self) -> u64 {
        match self.tick_at_ms {
            _ if self.sessions.is_behind() => self.now_ms,
            Some(at_ms) if self.is_at_rest() => at_ms + REST_MS,
            at_ms => at_ms.unwrap_or(0),
        }
    }

    /// Whether nothing depends on the next tick: nobody else votes, and what was asked for is done.
    fn is_at_rest(&self) -> bool {
        self.is_alone()
            && self.state().cluster().is_some()
            && !self.has_changed
            && self.pending.is_empty()
            && self.later.is_empty()
            && !self.sessions.is_behind()
            && self.state().migrations().active.is_empty()
    }

    /// Takes what has happened, and answers what to do. `now_ms` never decreases (monotonic clock). Every
    /// [`Action::Raft`] goes to `send` as soon as it may be carried out, in the middle of the turn, while the
    /// disk works; what was given to it may be sent whether the turn ends or not.
    ///
    /// # Errors
    /// [`MemberError`]: nothing more is promised, end the process.
    pub async fn turn(
        &mut self,
        events: impl IntoIterator<Item = Event>,
        now_ms: u64,
        wall_clock_ms: u64,
        mut send: impl FnMut(Action),
    ) -> Result<Vec<Action>, MemberError> {
        self.now_ms = now_ms;
        self.liveness.pass(now_ms);
        let (mut inputs, mut actions) = (std::mem::take(&mut self.later), Vec::new());
        for event in events {
            self.take(event, &mut inputs, &mut actions);
        }
        self.tick(&mut inputs);
        if self.member.is_settled() {
            self.decide(&mut inputs, &mut actions);
        }
        let peers = &self.peers;
        let post = |state: &State, message: Message| {
            let to = RaftId(message.to);
            send(Action::Raft {
                to,
                address: address_of(state, peers, to).map(str::to_owned),
                message: Box::new(message),
            });
        };
        let output = self.member.turn(inputs, wall_clock_ms, post).await?;
        self.has_changed = output.restored || !output.changes.is_empty();
        self.follow(output, &mut actions);
        self.give_up(&mut actions);
        self.give_up_plan(&mut actions);
        if self.leads.is_some() {
            self.sessions
                .push_tables(self.member.state(), &self.history, now_ms, &mut actions);
        }
        Ok(actions)
    }

    fn ticket(&mut self, pending: Option<Pending>) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        if let Some(pending) = pending {
            self.pending.insert(ticket, (self.now_ms, pending));
        }
        ticket
    }

    fn tick(&mut self, inputs: &mut Vec<Input>) {
        let at_ms = *self.tick_at_ms.get_or_insert(self.now_ms);
        if self.now_ms < at_ms {
            return;
        }
        inputs.push(Input::Tick);
        // Ticks that were slept through are not made up for.
        let next = at_ms + TICK_MS;
        self.tick_at_ms = Some(if next > self.now_ms {
            next
        } else {
            self.now_ms + TICK_MS
        });
    }

    fn take(&mut self, event: Event, inputs: &mut Vec<Input>, actions: &mut Vec<Action>) {
        match event {
            // Of nobody but the coordinators: a higher term alone would depose the leader.
            Event::Raft(message) if !self.knows(RaftId(message.from)) => {}
            Event::Introduced(id, _)
            | Event::Refused(id, _)
            | Event::Coordinators(id, _)
            | Event::Lost(id)
                if !self.knows(id) => {}
            Event::Raft(message) => {
                self.heard_ms.insert(RaftId(message.from), self.now_ms);
                actions.extend(self.tell_who_leads(&message));
                let is_forwarded = matches!(
                    message.get_msg_type(),
                    MessageType::MsgPropose
                        | MessageType::MsgReadIndex
                        | MessageType::MsgTransferLeader
                );
                if message.to == self.member.id().0 && !is_forwarded {
                    inputs.push(Input::Message(message));
                }
            }
            Event::Introduced(id, speaks) => drop(self.speak.insert(id, speaks)),
            Event::Refused(id, refusals) => drop(self.refused.insert(id, refusals)),
            Event::Coordinators(_, Coordinators(told)) => self.learn_of(told),
            Event::Lost(id) => inputs.push(Input::Lost(id)),
            Event::StepAside => inputs.push(self.step_aside()),
            Event::Planned(result) => self.plans_made(*result, inputs, actions),
            Event::Closed(session) => {
                self.sessions.closed(session);
                self.drop_plans(session);
            }
            Event::Request(session, Request::Operator { id, query }) => {
                self.operate(session, id, query, inputs, actions);
            }
            Event::Request(session, _) if !self.member.is_leader() => {
                let answer = Answer::NotLeader(self.leader_hint());
                actions.push(Action::Answer(session, answer));
            }
            Event::Request(session, Request::Register(registration)) => {
                self.register(session, registration, None, inputs, actions);
            }
            Event::Request(
                session,
                Request::RegisterStart {
                    registration,
                    start,
                },
            ) => self.register(session, registration, Some(start), inputs, actions),
            Event::Request(session, Request::Heartbeat(heartbeat, load)) => {
                self.heartbeat(session, heartbeat, &load, actions);
            }
            Event::Request(_, Request::Started { node, incarnation }) => {
                let member = self.state().members().get(&node);
                let is_news = member.is_some_and(|member| {
                    member.incarnation == incarnation && member.status == MemberStatus::Starting
                });
                if is_news {
                    self.tell(node, Command::Started { node, incarnation }, inputs);
                }
            }
            Event::Request(_, Request::Hosting { node, copies }) => {
                let copies = self.state().unconfirmed(node, &copies);
                if !copies.is_empty() {
                    self.tell(node, Command::Hosting { node, copies }, inputs);
                }
            }
            Event::Request(
                _,
                Request::Steps {
                    node,
                    incarnation,
                    steps,
                },
            ) => self.take_steps(node, incarnation, &steps, inputs),
            Event::Request(
                _,
                Request::Progress {
                    node,
                    incarnation,
                    progress,
                },
            ) => self.take_progress(node, incarnation, progress),
            Event::Request(_, Request::HotKeys { node, keys }) => {
                let (state, now_ms) = (self.member.state(), self.now_ms);
                self.hot_keys.heard(node, keys, state, now_ms);
            }
        }
    }

    /// What a leader does of its own accord.
    fn decide(&mut self, inputs: &mut Vec<Input>, actions: &mut Vec<Action>) {
        let is_founding = |(_, pending): &(u64, Pending)| matches!(pending, Pending::Bootstrap);
        if self.state().cluster().is_none()
            && let Some(founding) = self.founding.clone()
            && !self.pending.values().any(is_founding)
            && let Some(coordinators) = self.founders()
        {
            let command = Command::Bootstrap {
                cluster: founding.cluster,
                options: founding.options,
                coordinators,
            };
            let ticket = self.ticket(Some(Pending::Bootstrap));
            inputs.push(Input::Propose(ticket, command));
        }
        if self.leads != Some(self.member.term()) {
            return;
        }
        for (node, incarnation) in self.liveness.overdue(self.member.state()) {
            let ticket = self.ticket(Some(Pending::Fail));
            self.liveness.failing(node, ticket);
            inputs.push(Input::Propose(ticket, Command::Fail { node, incarnation }));
        }
        self.note_what_is_spoken(inputs);
        self.promote_learners(inputs);
        self.note_moves_max(inputs);
        self.decide_migrations(inputs, actions);
        let ticket = self.ticket(None);
        if self.liveness.begin_round(ticket) {
            inputs.push(Input::Read(ticket));
        }
    }

    fn follow(&mut self, output: Output, actions: &mut Vec<Action>) {
        if output.restored {
            self.history.clear();
        }
        for (version, effects) in output.changes {
            self.history.record(version, effects);
        }
        for (ticket, outcome) in output.outcomes {
            self.liveness.decided(ticket);
            if let Some((_, pending)) = self.pending.remove(&ticket) {
                self.decided(ticket, pending, outcome, actions);
            }
        }
        for (ticket, is_current) in output.reads {
            let waiting = self.liveness.end_round(ticket);
            if let Some((_, Pending::Operation(operation))) = self.pending.remove(&ticket) {
                self.reported(operation, is_current, actions);
            }
            for PendingHeartbeat { session, heartbeat } in waiting {
                let answer = if is_current {
                    let lease_ms = self.liveness.lease_ms(&heartbeat, self.state());
                    self.heartbeat_answer(&heartbeat, lease_ms)
                } else {
                    Answer::NotLeader(self.leader_hint())
                };
                actions.push(Action::Answer(session, answer));
            }
        }
        self.follow_lead(actions);
    }

    /// Notices that this coordinator has begun or ceased to lead.
    fn follow_lead(&mut self, actions: &mut Vec<Action>) {
        let leads = self.member.is_leader().then(|| self.member.term());
        if leads == self.leads {
            return;
        }
        if self.leads.is_some() {
            let hint = self.leader_hint();
            let abandoned = self.sessions.abandon();
            let tell = |session| Action::Answer(session, Answer::NotLeader(hint.clone()));
            actions.extend(abandoned.map(tell));
        }
        self.leads = leads;
        self.leads_since_ms = self.now_ms;
        self.heard_ms.clear();
        self.liveness.lead();
        self.loads.clear();
        self.hot_keys = ToldKeys::default();
        self.migrating = Migrating::default();
    }

    fn decided(
        &mut self,
        ticket: Ticket,
        pending: Pending,
        outcome: Outcome,
        actions: &mut Vec<Action>,
    ) {
        match pending {
            Pending::Migration(id) => self.migrating.settle(id, ticket),
            Pending::Told(node) => drop(self.told.remove(&node)),
            Pending::Bootstrap
            | Pending::Fail
            | Pending::Speaks(_)
            | Pending::Promote
            | Pending::MovesMax
            | Pending::Planning(_)
            | Pending::Rebalance => {}
            Pending::Register(session, registration, start) => match outcome {
                Outcome::Applied(Ok(_)) => {
                    self.registered(session, &registration, start.as_ref(), actions);
                }
                Outcome::Applied(Err(refusal)) => {
                    actions.push(Action::Answer(session, Answer::Refused(refusal)));
                }
                Outcome::NotLeader(_) | Outcome::Busy | Outcome::Unknown => {
                    let answer = Answer::NotLeader(self.leader_hint());
                    actions.push(Action::Answer(session, answer));
                }
            },
            Pending::Operation(operation) => self.operated(operation, outcome, actions),
        }
    }

    /// Does not wait for ever: raft drops a read or a proposal now and then.
    fn give_up(&mut self, actions: &mut Vec<Action>) {
        let is_late = |(_, (since, pending)): &(&Ticket, &(u64, Pending))| {
            let patience_ms = match pending {
                Pending::Planning(_) => PLAN_PATIENCE_MS,
                _ => PATIENCE_MS,
            };
            self.now_ms - since >= patience_ms
        };
        let late = self.pending.iter().filter(is_late);
        let late: Vec<Ticket> = late.map(|(ticket, _)| *ticket).collect();
        for ticket in late {
            let Some((_, pending)) = self.pending.remove(&ticket) else {
                continue;
            };
            match pending {
                Pending::Operation(operation) => {
                    actions.push(operation.answer(Report::TimedOut));
                }
                Pending::Migration(id) => self.migrating.settle(id, ticket),
                Pending::Told(node) => drop(self.told.remove(&node)),
                Pending::Planning(planning) => {
                    let waits = planning.operation();
                    actions.extend(waits.map(|operation| operation.answer(Report::TimedOut)));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
