//! The nodes of a world: their processes, data and messages.

use std::sync::atomic::Ordering;

use ephesus_coordinator::agent::{AgentAction, AgentEvent, ConnectionId};
use ephesus_coordinator::coordinator::{Event, SessionId};
use ephesus_coordinator::protocol::{Answer, Request};
use ephesus_coordinator::report::Figures;
use ephesus_coordinator::state::Refusal;

use super::{What, World};
use crate::network::End;
use crate::process::{NodeDisk, Session};

/// The longest time a node takes to recover its data, ms.
const RECOVERY_MS_MAX: u64 = 3_000;

impl World {
    pub(super) fn shards(&mut self) -> u16 {
        if self.shape.is_plain {
            return 1;
        }
        1 + self.rng.below(4) as u16
    }

    pub(crate) fn start_node(&mut self, node: usize) {
        if self.nodes[node].running.is_some() {
            return;
        }
        // Whoever starts it knows where coordinators are now.
        let coordinators = self.coordinators.values();
        let addresses = coordinators
            .map(|process| process.address.clone())
            .collect();
        let seed = self.rng.draw();
        self.nodes[node].speaks = self.speaks_now(self.nodes[node].life);
        self.nodes[node].start(addresses, seed);
        if let (Some(bug), Some(agent)) = (self.bug, &mut self.nodes[node].running) {
            agent.plant(bug);
        }
        let life = self.nodes[node].life;
        let recovery = if self.shape.is_plain {
            20
        } else {
            1 + self.rng.below(RECOVERY_MS_MAX)
        };
        self.after(1, What::Beat(node, life));
        self.after(recovery, What::Recovered(node, life));
    }

    pub(crate) fn stop_node(&mut self, node: usize) {
        let process = &mut self.nodes[node];
        if process.running.take().is_none() {
            return;
        }
        process.inbox.clear();
        process.happened.clear();
        process.process = None;
        process.main_at = None;
        process.shard_at.clear();
        process.phases.clear();
        process.executing.clear();
        process.to_fill.clear();
        process.filling.clear();
        process.is_recovered = false;
        let power = self.rng.one_in(2);
        self.nodes[node].disk.dir.crash(power);
        self.lose_clients(node);
        self.lose_wires(node);
        let life = self.nodes[node].life;
        let sessions = self.sessions.values();
        let lost = sessions.filter(|s| s.node == node && s.node_life == life);
        let lost: Vec<Session> = lost.copied().collect();
        for session in lost {
            self.close_at_coordinator(session);
        }
    }

    pub(super) fn close_at_coordinator(&mut self, session: Session) {
        let delay = self.network.delay_ms(&mut self.rng);
        let event = Event::Closed(session.id);
        let from = End::Node(session.node);
        self.after(delay, What::ToCoordinator(from, session.coordinator, event));
    }

    /// Gives a node an empty disk, and so another UUID.
    pub(crate) fn empty_node(&mut self, node: usize) {
        let id = 1_000 + self.number();
        let shards = self.shards();
        let partitions = self.shape.options.partitions;
        self.nodes[node].disk = NodeDisk::empty(id, partitions, shards);
    }

    pub(super) fn node_turn(&mut self, node: usize, events: Vec<AgentEvent>) -> Result<(), String> {
        let now = self.now;
        let figures = Figures {
            keys: now,
            bytes: now * 100,
        };
        let process = &mut self.nodes[node];
        if process.paused_until > now {
            process.inbox.extend(events);
            return Ok(());
        }
        let local = process.clock.at(now);
        let (id, incarnation) = (process.disk.id, process.disk.incarnation);
        let Some(agent) = &mut process.running else {
            return Ok(());
        };
        for event in &events {
            if let AgentEvent::Answer(
                _,
                Answer::Registered {
                    incarnation: told, ..
                },
            ) = event
                && *told == incarnation
            {
                self.checks.registered(id, incarnation);
            }
        }
        agent.set_figures(figures);
        let pulse = process.process.as_ref().map(|process| process.pulse());
        agent.set_pulse(pulse.unwrap_or_default());
        let actions = agent.turn(events, local);
        let version = agent.view().map_or(0, |view| view.version());
        let lease = agent.lease_until_ms();
        self.unleased_ms = self.unleased_ms.max(local.saturating_sub(lease));
        self.checks.mix(version ^ (lease << 16));
        process.lease_until.store(lease, Ordering::Release);
        for action in actions {
            self.node_acts(node, action)?;
        }
        self.set_clock(node);
        self.one_owner(node)
    }

    pub(super) fn node_acts(&mut self, node: usize, action: AgentAction) -> Result<(), String> {
        let life = self.nodes[node].life;
        match action {
            AgentAction::Connect {
                connection,
                address,
            } => {
                let mut processes = self.coordinators.iter();
                let found = processes.find(|(_, process)| process.address == address);
                let coordinator = found.map_or(0, |(id, _)| *id);
                let id = SessionId(self.number());
                let session = Session {
                    id,
                    node,
                    node_life: life,
                    connection,
                    coordinator,
                    coordinator_life: 0,
                };
                self.sessions.insert(id, session);
                let delay = self.network.delay_ms(&mut self.rng);
                self.after(delay, What::Dial(id));
            }
            AgentAction::Close(connection) => {
                if let Some(session) = self.session(node, connection) {
                    self.close_at_coordinator(session);
                }
            }
            AgentAction::Send(connection, request) => {
                let Some(session) = self.session(node, connection) else {
                    return Ok(());
                };
                let payload = request.encode().map_err(|error| error.to_string())?;
                for delay in self.network.copies(&mut self.rng) {
                    let request = Request::decode(&payload).map_err(|error| error.to_string())?;
                    let event = Event::Request(session.id, request);
                    let what = What::ToCoordinator(End::Node(node), session.coordinator, event);
                    self.after(delay, what);
                }
            }
            AgentAction::Registered(cluster) => self.nodes[node].disk.cluster = Some(cluster),
            AgentAction::StartNoted(_) | AgentAction::Confirmed => {}
            AgentAction::Refused(refusal) => {
                let is_final = matches!(refusal, Refusal::Removed(_) | Refusal::OtherCluster(_));
                if is_final {
                    if !self.checks.given_up.contains(&self.nodes[node].disk.id) {
                        return Err(format!("node {node} was refused: {refusal}"));
                    }
                    self.stop_node(node);
                    self.empty_node(node);
                    self.after(300, What::StartNode(node));
                }
            }
            AgentAction::Table => {
                if let Some(view) = self.nodes[node].running.as_ref().and_then(|a| a.view()) {
                    self.checks.table(node, view)?;
                }
                self.wake_main(node);
                self.start_process(node)?;
            }
        }
        Ok(())
    }

    pub(super) fn session(&self, node: usize, connection: ConnectionId) -> Option<Session> {
        let life = self.nodes[node].life;
        let mut sessions = self.sessions.values().rev();
        sessions
            .find(|s| s.node == node && s.node_life == life && s.connection == connection)
            .copied()
    }

    pub(super) fn dial(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let (here, there) = (
            End::Node(session.node),
            End::Coordinator(session.coordinator),
        );
        if self.network.is_cut(here, there) {
            return;
        }
        let process = self.coordinators.get(&session.coordinator);
        let is_up = process.is_some_and(|process| process.running.is_some());
        session.coordinator_life = process.map_or(0, |process| process.life);
        let connection = session.connection;
        let event = if is_up {
            AgentEvent::Connected(connection)
        } else {
            AgentEvent::Closed(connection)
        };
        let delay = self.network.delay_ms(&mut self.rng);
        self.after(delay, What::ToNode(id, event));
    }
}
