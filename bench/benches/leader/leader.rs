//! The leader as its server runs it, but for the sockets: bytes in, bytes out.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ephesus_coordinator::command::{ClusterId, ClusterOptions, RaftId};
use ephesus_coordinator::coordinator::{
    Action, Coordinator, CoordinatorOptions, Event, Founding, SessionId,
};
use ephesus_coordinator::member::founding;
use ephesus_coordinator::placement::Policy;
use ephesus_coordinator::protocol::{Answer, Request, VERSIONS, decode_raft, encode_raft};
use ephesus_coordinator::server::inbox::{Inbox, Senders, inbox};
use ephesus_coordinator::server::{LETTERS_MAX, SEGMENT_BYTES};
use ephesus_coordinator::view::TableUpdate;
use ephesus_coordinator::{RaftLog, State};
use ephesus_wal::{Durability, LogId, LogOptions, StdDisk};
use futures_lite::future::block_on;

use ephesus_bench::error::{During, Result};
use ephesus_bench::heap;
use ephesus_bench::procfs::own_cpu_time;

use super::{Size, wrong};

/// Coordinators.
pub(super) const COORDINATORS: u64 = 3;

/// A message of a coordinator to another one.
pub(super) type Letter = (RaftId, Vec<u8>);

/// One coordinator of the cluster.
pub(super) fn start(id: u64, size: Size, dir: &Path) -> Result<Coordinator<StdDisk>> {
    let dir = dir.join(format!("coordinator-{id}"));
    std::fs::create_dir(&dir).during(dir.display())?;
    let disk = StdDisk::new(&dir, Durability::Relaxed);
    let disk = disk.during(dir.display())?;
    let options = LogOptions {
        segment_bytes: SEGMENT_BYTES,
        ..LogOptions::new(LogId([id as u8; 16]))
    };
    let peers: BTreeMap<RaftId, String> = (1..=COORDINATORS)
        .map(|id| (RaftId(id), format!("c{id}:1")))
        .collect();
    let voters: Vec<RaftId> = peers.keys().copied().collect();
    let failed = |error: &dyn std::fmt::Display| wrong("a coordinator's log", error);
    let mut log = block_on(RaftLog::open(disk, &options, 0)).map_err(|e| failed(&e))?;
    block_on(log.persist(&founding(&voters), 0)).map_err(|e| failed(&e))?;
    let options = CoordinatorOptions {
        founding: Some(Founding {
            cluster: ClusterId([7; 16]),
            options: ClusterOptions {
                partitions: size.partitions,
                min_nodes: size.nodes / 2,
                policy: Policy::Contiguous,
                heartbeat_timeout_ms: 2_000,
            },
        }),
        // The first one leads.
        election_ticks: Some(10 + id as usize * 3),
        ..CoordinatorOptions::new(RaftId(id), peers, 1)
    };
    Coordinator::new(options, log).map_err(|e| wrong("a coordinator", e))
}

/// The events of a letter, and that its sender is there.
pub(super) fn heard(letter: &[u8]) -> Result<Event> {
    let message = decode_raft(letter).map_err(|e| wrong("a message of raft", e))?;
    Ok(Event::Raft(Box::new(message)))
}

/// A frame that went to several nodes.
pub(super) struct Frame {
    pub(super) to: Vec<SessionId>,
    pub(super) bytes: Arc<[u8]>,
}

/// What a turn has led to.
#[derive(Default)]
pub(super) struct Sent {
    pub(super) frames: Vec<Frame>,
    pub(super) letters: Vec<Letter>,
    /// As many as the links that they are queued for.
    queued: Vec<Arc<[u8]>>,
}

pub(super) struct Leader {
    coordinator: Coordinator<StdDisk>,
    senders: Senders,
    inbox: Inbox,
    /// By the last turn.
    pub(super) sent: Sent,
    turns_ms: Vec<f64>,
    /// Updates of the table in one turn by the versions between which they lead; how many there were of each.
    updates: BTreeMap<(u64, u64), usize>,
    pub(super) encoded: usize,
    pub(super) encoded_again: usize,
    pub(super) dropped: usize,
    /// The most proposals that were under way behind a turn.
    pub(super) undecided_max: usize,
}

impl Leader {
    pub(super) fn start(size: Size, dir: &Path) -> Result<Leader> {
        heap::counted(|| {
            let (senders, inbox) = inbox();
            Ok(Leader {
                coordinator: start(1, size, dir)?,
                senders,
                inbox,
                sent: Sent::default(),
                turns_ms: Vec::new(),
                updates: BTreeMap::new(),
                encoded: 0,
                encoded_again: 0,
                dropped: 0,
                undecided_max: 0,
            })
        })
    }

    pub(super) fn state(&self) -> &State {
        self.coordinator.state()
    }

    pub(super) fn is_settled(&self) -> bool {
        self.coordinator.member().is_settled()
    }

    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        let events = self.inbox.waiting(self.coordinator.room());
        events > 0 || self.coordinator.next_turn_ms() <= now_ms
    }

    /// Takes what a node or operator says; false: there is no room now, and its link waits.
    pub(super) fn hear(&self, session: SessionId, request: &[u8]) -> Result<bool> {
        heap::counted(|| {
            let Some(held) = self.senders.1.hold(request.len()) else {
                return Ok(false);
            };
            let request = Request::decode(request).map_err(|e| wrong("a request", e))?;
            let event = Event::Request(session, request);
            Ok(self.senders.1.try_send(event, Some(held)))
        })
    }

    /// A node's connection is gone.
    pub(super) fn close(&self, session: SessionId) {
        heap::counted(|| {
            let _ = self.senders.1.try_send(Event::Closed(session), None);
        });
    }

    pub(super) fn introduce(&self, id: RaftId) {
        heap::counted(|| drop(self.senders.0.try_send(Event::Introduced(id, VERSIONS))));
    }

    /// Takes what another coordinator says.
    pub(super) fn hear_coordinator(&mut self, letter: &[u8]) -> Result<()> {
        heap::counted(|| {
            if self.senders.0.try_send(heard(letter)?).is_err() {
                self.dropped += 1;
            }
            Ok(())
        })
    }

    /// One turn, as the server takes it.
    pub(super) fn turn(&mut self, now_ms: u64) -> Result<()> {
        heap::counted(|| {
            self.sent = Sent::default();
            self.updates.clear();
            let began = own_cpu_time();
            let events = self.inbox.take(self.coordinator.room());
            let letters = &mut self.sent.letters;
            let mut failed = None;
            let post = |action| {
                if let Action::Raft { to, message, .. } = action {
                    match encode_raft(&message) {
                        Ok(payload) => letters.push((to, payload)),
                        Err(error) => failed = Some(wrong("a message of raft", error)),
                    }
                }
            };
            let turn = self.coordinator.turn(events, now_ms, 0, post);
            let actions = block_on(turn).map_err(|e| wrong("the leader", e))?;
            for action in actions {
                match action {
                    Action::Answer(session, answer) => self.answer(vec![session], &answer)?,
                    Action::AnswerAll(sessions, answer) => self.answer(sessions, &answer)?,
                    Action::Plan(job) => {
                        let made = Event::Planned(Box::new(job.run()));
                        if !self.senders.1.try_send(made, None) {
                            return Err(wrong("a plan", "no place for it"));
                        }
                    }
                    Action::Close(_) | Action::Raft { .. } | Action::Coordinators { .. } => {}
                }
            }
            let used = own_cpu_time().saturating_sub(began);
            self.turns_ms.push(used.as_secs_f64() * 1e3);
            let undecided = self.coordinator.member().undecided();
            self.undecided_max = self.undecided_max.max(undecided);
            let to = |id| self.sent.letters.iter().filter(|(to, _)| *to == id).count();
            let others = (2..=COORDINATORS).map(RaftId);
            let dropped = others.map(|id| to(id).saturating_sub(LETTERS_MAX));
            self.dropped += dropped.sum::<usize>();
            self.encoded_again += self.updates.values().map(|count| count - 1).sum::<usize>();
            failed.map_or(Ok(()), Err)
        })
    }

    fn answer(&mut self, to: Vec<SessionId>, answer: &Answer) -> Result<()> {
        let bytes = answer.encode().map_err(|e| wrong("an answer", e))?;
        let bytes: Arc<[u8]> = bytes.into();
        if let Answer::Table(update) = answer {
            let step = match &**update {
                TableUpdate::Full(view) => (0, view.version()),
                TableUpdate::Delta(delta) => (delta.from, delta.to),
            };
            *self.updates.entry(step).or_default() += 1;
            self.encoded += 1;
        }
        self.sent
            .queued
            .extend(to.iter().map(|_| Arc::clone(&bytes)));
        self.sent.frames.push(Frame { to, bytes });
        Ok(())
    }

    /// CPU time of the turns since the last call, ms.
    pub(super) fn take_turns(&mut self) -> Vec<f64> {
        heap::counted(|| std::mem::take(&mut self.turns_ms)).clone()
    }
}
