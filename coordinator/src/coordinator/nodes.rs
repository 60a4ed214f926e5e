//! What nodes say of themselves: registrations, heartbeats, what they have recovered and host.

use ephesus_wal::Disk;
use ephesus_wire::NodeId;

use super::{Action, Coordinator, Pending, SessionId};
use crate::command::{Command, Registration, StartProof};
use crate::load::LoadReport;
use crate::member::Input;
use crate::planted::Bug;
use crate::protocol::{Answer, Heartbeat, HeartbeatAnswer};
use crate::state::{Refusal, SHARDS_MAX};

impl<D: Disk> Coordinator<D> {
    /// What is asked of a registration before it is proposed, also by a leader that has not settled yet.
    fn check_registration(&self, registration: &Registration) -> Result<(), Refusal> {
        if registration.shards > SHARDS_MAX {
            return Err(Refusal::Shards(registration.shards));
        }
        registration.check()?;
        registration.check_addresses()?;
        match self.member.is_leader() {
            true => self.state().check_room(registration.node),
            false => Ok(()),
        }
    }

    pub(super) fn register(
        &mut self,
        session: SessionId,
        registration: Registration,
        start: Option<StartProof>,
        inputs: &mut Vec<Input>,
        actions: &mut Vec<Action>,
    ) {
        if let Err(refusal) = self.check_registration(&registration) {
            actions.push(Action::Answer(session, Answer::Refused(refusal)));
            return;
        }
        let node = registration.node;
        // Proved once everybody knows such starts.
        let proved = start.map(|start| Command::RegisterStart {
            registration: registration.clone(),
            start,
        });
        let proved = proved.filter(|command| self.state().check_known(command).is_ok());
        if self.member.is_settled() {
            let state = self.state();
            let old = start.and_then(|start| state.admit_start(node, &start).err());
            if let Some(refusal) = old.or_else(|| state.admit(&registration).err()) {
                actions.push(Action::Answer(session, Answer::Refused(refusal)));
                return;
            }
            let is_noted = start.is_some_and(|start| state.is_start_noted(node, &start));
            if state.is_registered(&registration) && (is_noted || proved.is_none()) {
                self.registered(session, &registration, start.as_ref(), actions);
                return;
            }
        }
        let pending = Pending::Register(session, registration.clone(), start);
        let ticket = self.ticket(Some(pending));
        let command = proved.unwrap_or(Command::Register(registration));
        inputs.push(Input::Propose(ticket, command));
    }

    pub(super) fn registered(
        &mut self,
        session: SessionId,
        registration: &Registration,
        start: Option<&StartProof>,
        actions: &mut Vec<Action>,
    ) {
        let Some(cluster) = self.state().cluster() else {
            return;
        };
        let incarnation = registration.incarnation;
        let state = self.member.state();
        self.liveness
            .registered(registration.node, incarnation, state);
        let older = self.sessions.registered(session, registration.node);
        actions.extend(older.into_iter().map(Action::Close));
        let answer = Answer::Registered {
            cluster,
            incarnation,
        };
        actions.push(Action::Answer(session, answer));
        let is_noted = |start: &&StartProof| self.state().is_start_noted(registration.node, start);
        if let Some(start) = start.filter(is_noted) {
            let noted = Answer::StartNoted(start.nonce);
            actions.push(Action::Answer(session, noted));
        }
    }

    pub(super) fn heartbeat(
        &mut self,
        session: SessionId,
        heartbeat: Heartbeat,
        load: &LoadReport,
        actions: &mut Vec<Action>,
    ) {
        if !self.member.is_settled() {
            return;
        }
        let member = self.state().members().get(&heartbeat.node);
        if member.is_none_or(|member| member.incarnation != heartbeat.incarnation) {
            let answer = self.heartbeat_answer(&heartbeat, 0);
            actions.push(Action::Answer(session, answer));
            return;
        }
        self.sessions
            .heard(session, heartbeat.node, heartbeat.table_version);
        self.liveness.heard(session, heartbeat, self.member.state());
        let state = self.member.state();
        self.loads.heard(heartbeat.node, load, state, self.now_ms);
        self.hot_keys.forget(heartbeat.node, self.now_ms);
        let is_saturated = self.may_saturate(heartbeat.node);
        if self
            .hot_keys
            .are_wanted_of(heartbeat.node, is_saturated, self.now_ms)
        {
            actions.push(Action::Answer(session, Answer::TellHotKeys));
        }
        if self.liveness.planted.has(Bug::NoReadRound) {
            let lease_ms = self.liveness.lease_ms(&heartbeat, self.state());
            let answer = self.heartbeat_answer(&heartbeat, lease_ms);
            actions.push(Action::Answer(session, answer));
        }
    }

    pub(super) fn heartbeat_answer(&self, heartbeat: &Heartbeat, lease_ms: u32) -> Answer {
        let member = self.state().members().get(&heartbeat.node);
        let current = member.filter(|member| member.incarnation == heartbeat.incarnation);
        Answer::Heartbeat(HeartbeatAnswer {
            incarnation: heartbeat.incarnation,
            sent_ms: heartbeat.sent_ms,
            lease_ms,
            table_version: self.state().table().version,
            status: current.map(|member| member.status),
        })
    }

    /// Proposes what a node has said, unless something it has said is under way.
    pub(super) fn tell(&mut self, node: NodeId, command: Command, inputs: &mut Vec<Input>) {
        if !self.told.insert(node) {
            return;
        }
        let ticket = self.ticket(Some(Pending::Told(node)));
        inputs.push(Input::Propose(ticket, command));
    }
}
