//! What nodes say of themselves: registrations, heartbeats, what they have recovered and host.

use ephesus_wal::Disk;
use ephesus_wire::NodeId;

use super::{Action, Coordinator, Pending, SessionId};
use crate::command::{Command, Registration};
use crate::member::Input;
use crate::planted::Bug;
use crate::protocol::{Answer, Heartbeat, HeartbeatAnswer};

impl<D: Disk> Coordinator<D> {
    pub(super) fn register(
        &mut self,
        session: SessionId,
        registration: Registration,
        inputs: &mut Vec<Input>,
        actions: &mut Vec<Action>,
    ) {
        if let Err(refusal) = registration.check() {
            actions.push(Action::Answer(session, Answer::Refused(refusal)));
            return;
        }
        if self.member.is_settled() {
            if let Err(refusal) = self.state().admit(&registration) {
                actions.push(Action::Answer(session, Answer::Refused(refusal)));
                return;
            }
            if self.state().is_registered(&registration) {
                self.registered(session, &registration, actions);
                return;
            }
        }
        let pending = Pending::Register(session, registration.clone());
        let ticket = self.ticket(Some(pending));
        inputs.push(Input::Propose(ticket, Command::Register(registration)));
    }

    pub(super) fn registered(
        &mut self,
        session: SessionId,
        registration: &Registration,
        actions: &mut Vec<Action>,
    ) {
        let Some(cluster) = self.state().cluster() else {
            return;
        };
        let incarnation = registration.incarnation;
        self.liveness.registered(registration.node);
        let older = self.sessions.registered(session, registration.node);
        actions.extend(older.map(Action::Close));
        let answer = Answer::Registered {
            cluster,
            incarnation,
        };
        actions.push(Action::Answer(session, answer));
    }

    pub(super) fn heartbeat(
        &mut self,
        session: SessionId,
        heartbeat: Heartbeat,
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
        if self.liveness.planted.has(Bug::NoReadRound) {
            let lease_ms = self.liveness.lease_ms(&heartbeat, self.state());
            let answer = self.heartbeat_answer(&heartbeat, lease_ms);
            actions.push(Action::Answer(session, answer));
        }
        self.liveness.heard(session, heartbeat);
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
        let mut pending = self.pending.values();
        if pending.any(|(_, pending)| matches!(pending, Pending::Told(of) if *of == node)) {
            return;
        }
        let ticket = self.ticket(Some(Pending::Told(node)));
        inputs.push(Input::Propose(ticket, command));
    }
}
