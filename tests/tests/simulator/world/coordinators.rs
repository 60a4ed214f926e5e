//! The coordinators of a world: their processes, disks and messages.

use std::collections::BTreeMap;

use ephesus_coordinator::agent::AgentEvent;
use ephesus_coordinator::command::{ClusterId, RaftId};
use ephesus_coordinator::coordinator::{Action, Coordinator, CoordinatorOptions, Event, Founding};
use ephesus_coordinator::member::{ELECTION_TICKS, MemberError, founding};
use ephesus_coordinator::protocol::{self, Answer, Coordinators, PROTOCOL_VERSION};
use ephesus_coordinator::storage::{RaftLog, StorageError};
use ephesus_wal::{FaultDisk, LogId, LogOptions};
use futures_lite::future::{block_on, poll_once};

use super::{What, World};
use crate::clock::Clock;
use crate::network::End;
use crate::process::{CoordinatorProcess, Session, versions};

/// A coordinator's log is replaced by a snapshot after so many entries.
const SNAPSHOT_AFTER: usize = 40;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Whether an error is what the simulated disk was told to do.
fn is_disk_failure(error: &MemberError) -> bool {
    matches!(error, MemberError::Storage(StorageError::Wal(error)) if error.to_string().contains("simulated failure"))
}

fn log_options(id: u64) -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        group_bytes_max: 16 << 10,
        ..LogOptions::new(LogId([id as u8; 16]))
    }
}

/// The address of the coordinator founded under, or added with, a number.
pub(super) fn address(number: u64) -> String {
    format!("coordinator-{number}:27379")
}

impl World {
    /// Founds and starts the first coordinators.
    pub(super) fn found(&mut self) -> Result<(), String> {
        let voters: Vec<RaftId> = (1..=self.shape.coordinators).map(RaftId).collect();
        for RaftId(id) in voters.iter().copied() {
            self.place_coordinator(id, address(id), true);
            let disk = self.coordinators[&id].disk.clone();
            let mut log = block_on(RaftLog::open(disk, &log_options(id), 0)).map_err(text)?;
            block_on(log.persist(&founding(&voters), 0)).map_err(text)?;
            drop(log);
            self.start_coordinator(id)?;
        }
        Ok(())
    }

    pub(super) fn place_coordinator(&mut self, id: u64, address: String, is_founding: bool) {
        let clock = Clock::any(&mut self.rng);
        let process = CoordinatorProcess {
            address,
            disk: FaultDisk::new(self.seed ^ (id << 32)),
            clock,
            running: None,
            life: 0,
            speaks: self.shape.speaks,
            introduced: BTreeMap::new(),
            is_founding,
            paused_until: 0,
            inbox: Vec::new(),
        };
        self.coordinators.insert(id, process);
    }

    pub(crate) fn start_coordinator(&mut self, id: u64) -> Result<(), String> {
        let life = self.number();
        let founders = 1..=self.shape.coordinators;
        let mut peers: BTreeMap<_, _> = founders.map(|id| (RaftId(id), address(id))).collect();
        // As `coordinator-member add` names them.
        let latest = self.checks.latest().into_iter();
        peers.extend(latest.flat_map(|view| view.coordinators.clone()));
        let ticks = ELECTION_TICKS + self.rng.below(ELECTION_TICKS as u64) as usize;
        let (now, bug, cluster) = (self.now, self.bug, ClusterId([id as u8; 16]));
        let (options, auto_rebalance) = (self.shape.options, self.shape.auto_rebalance);
        let moves_max = self.shape.moves_max;
        let lives = self.coordinators.get(&id).map_or(0, |process| process.life);
        let speaks = self.speaks_now(lives);
        let Some(process) = self.coordinators.get_mut(&id) else {
            return Ok(());
        };
        // One is added once all others are upgraded, as one of the same release.
        let speaks = match process.is_founding {
            true => speaks,
            false => PROTOCOL_VERSION,
        };
        if process.running.is_some() {
            return Ok(());
        }
        process.speaks = speaks;
        let opened = block_on(RaftLog::open(process.disk.clone(), &log_options(id), now));
        let log = match opened {
            Ok(log) => log,
            Err(error) => return Err(format!("coordinator {id} cannot start: {error}")),
        };
        let options = CoordinatorOptions {
            founding: process.is_founding.then_some(Founding { cluster, options }),
            election_ticks: Some(ticks),
            snapshot_after: SNAPSHOT_AFTER,
            auto_rebalance,
            moves_max,
            speaks: versions(process.speaks),
            ..CoordinatorOptions::new(RaftId(id), peers, life)
        };
        let mut coordinator = Coordinator::new(options, log).map_err(text)?;
        if let Some(bug) = bug {
            coordinator.plant(bug);
        }
        process.running = Some(coordinator);
        process.life = life;
        process.introduced.clear();
        process.inbox.clear();
        self.after(1, What::Tick(id, life));
        Ok(())
    }

    /// Ends a coordinator's process; with `power` what was not synced may be lost.
    pub(crate) fn stop_coordinator(&mut self, id: u64, power: bool) {
        let Some(process) = self.coordinators.get_mut(&id) else {
            return;
        };
        if process.running.take().is_none() {
            return;
        }
        if power {
            process.disk.crash();
        } else {
            process.disk.kill();
            process.disk.land();
        }
        process.inbox.clear();
        let life = process.life;
        let sessions = self.sessions.values();
        let lost = sessions.filter(|s| s.coordinator == id && s.coordinator_life == life);
        let lost: Vec<Session> = lost.copied().collect();
        for session in lost {
            let event = AgentEvent::Closed(session.connection);
            let delay = self.network.delay_ms(&mut self.rng);
            self.after(delay, What::ToNode(session.id, event));
        }
        if !power {
            self.lose_links(id);
        }
    }

    /// What a coordinator hears on a link before the first message of another's life.
    pub(super) fn introduce(&mut self, from: End, to: u64) -> Vec<Event> {
        let End::Coordinator(from) = from else {
            return Vec::new();
        };
        let Some((life, speaks)) = self.coordinators.get(&from).map(|p| (p.life, p.speaks)) else {
            return Vec::new();
        };
        let to = self.coordinators.get_mut(&to);
        // Whom it does not know it does not let in.
        let knows = |process: &CoordinatorProcess| {
            let running = process.running.as_ref();
            running.is_some_and(|it| it.address(RaftId(from)).is_some())
        };
        let Some(process) = to.filter(|process| knows(process)) else {
            return Vec::new();
        };
        if process.introduced.insert(from, life) == Some(life) {
            return Vec::new();
        }
        vec![Event::Introduced(RaftId(from), versions(speaks))]
    }

    /// The others learn that the links of a coordinator are gone: after all that has come over them.
    pub(crate) fn lose_links(&mut self, id: u64) {
        let others: Vec<u64> = self.coordinators.keys().copied().collect();
        for other in others.into_iter().filter(|other| *other != id) {
            let said = |what: &What| {
                matches!(what, What::ToCoordinator(from, to, Event::Raft(_))
                    if (*from, *to) == (End::Coordinator(id), other))
            };
            let mut underway = self.queue.iter().rev();
            let last = underway.find(|(_, what)| said(what));
            let last = last.map_or(0, |((at, _), _)| at.saturating_sub(self.now));
            for delay in self.network.copies(&mut self.rng) {
                let event = Event::Lost(RaftId(id));
                self.after(
                    delay.max(last),
                    What::ToCoordinator(End::Coordinator(id), other, event),
                );
            }
        }
    }

    /// One turn of a coordinator, now and then cut short by a power loss.
    pub(super) fn coordinator_turn(&mut self, id: u64, events: Vec<Event>) -> Result<(), String> {
        let now = self.now;
        let is_cut_short = self.is_rough && self.rng.one_in(3_000);
        let polls = self.rng.below(12);
        let Some(process) = self.coordinators.get_mut(&id) else {
            return Ok(());
        };
        if process.paused_until > now {
            process.inbox.extend(events);
            return Ok(());
        }
        let local = process.clock.at(now);
        let Some(coordinator) = &mut process.running else {
            return Ok(());
        };
        // Sent while the disk works: also by a turn that does not end.
        let mut sent = Vec::new();
        let send = |action| sent.push(action);
        let outcome = if is_cut_short {
            let mut turn = Box::pin(coordinator.turn(events, local, now, send));
            (0..=polls).find_map(|_| block_on(poll_once(&mut turn)))
        } else {
            Some(block_on(coordinator.turn(events, local, now, send)))
        };
        for action in sent {
            self.coordinator_acts(id, action)?;
        }
        let actions = match outcome {
            Some(Ok(actions)) => actions,
            // The power is gone, or the disk is: both end the process.
            None => {
                self.stop_coordinator(id, true);
                self.restart_coordinator_later(id);
                return Ok(());
            }
            Some(Err(error)) if is_disk_failure(&error) => {
                let power = self.rng.one_in(2);
                self.stop_coordinator(id, power);
                self.restart_coordinator_later(id);
                return Ok(());
            }
            Some(Err(error)) => return Err(format!("coordinator {id}: {error}")),
        };
        if let Some(coordinator) = &self.coordinators[&id].running {
            self.checks.coordinator(id, coordinator)?;
        }
        for action in actions {
            self.coordinator_acts(id, action)?;
        }
        Ok(())
    }

    pub(super) fn restart_coordinator_later(&mut self, id: u64) {
        let later = 100 + self.rng.below(2_000);
        self.after(later, What::StartCoordinator(id));
    }

    pub(super) fn coordinator_acts(&mut self, id: u64, action: Action) -> Result<(), String> {
        let from = End::Coordinator(id);
        match action {
            Action::Raft { to, message, .. } => {
                let payload = protocol::encode_raft(&message).map_err(text)?;
                for delay in self.network.copies(&mut self.rng) {
                    let message = protocol::decode_raft(&payload).map_err(text)?;
                    let event = Event::Raft(Box::new(message));
                    self.after(delay, What::ToCoordinator(from, to.0, event));
                }
            }
            Action::Coordinators {
                to, coordinators, ..
            } => {
                let payload = coordinators.encode().map_err(text)?;
                for delay in self.network.copies(&mut self.rng) {
                    let told = Coordinators::decode(&payload).map_err(text)?;
                    let event = Event::Coordinators(RaftId(id), told);
                    self.after(delay, What::ToCoordinator(from, to.0, event));
                }
            }
            Action::AnswerAll(sessions, answer) => {
                for session in sessions {
                    self.coordinator_acts(id, Action::Answer(session, answer.clone()))?;
                }
            }
            Action::Answer(session, answer) => {
                let payload = answer.encode().map_err(text)?;
                self.checks.mix(payload.len() as u64);
                if let Answer::Operator { id, report } = answer {
                    let delay = self.network.delay_ms(&mut self.rng);
                    if !self.network.is_cut(from, End::Operator) {
                        self.after(delay, What::ToOperator(id, *report));
                    }
                    return Ok(());
                }
                let Some(connection) = self.sessions.get(&session).map(|s| s.connection) else {
                    return Ok(());
                };
                for delay in self.network.copies(&mut self.rng) {
                    let answer = Answer::decode(&payload).map_err(text)?;
                    let event = AgentEvent::Answer(connection, answer);
                    self.after(delay, What::ToNode(session, event));
                }
            }
            Action::Plan(job) => {
                let life = self.coordinators.get(&id).map_or(0, |process| process.life);
                let delay = 1 + self.rng.below(20);
                self.after(delay, What::Planned(id, life, Box::new(job.run())));
            }
            Action::Close(session) => {
                if let Some(known) = self.sessions.get(&session) {
                    let event = AgentEvent::Closed(known.connection);
                    let delay = self.network.delay_ms(&mut self.rng);
                    self.after(delay, What::ToNode(session, event));
                }
            }
        }
        Ok(())
    }
}
