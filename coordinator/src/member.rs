//! One member of the coordinator: raft-rs, its log on disk, and the state machine on top.
//!
//! No clock, no socket: [`Member::turn`] takes what has happened and answers what to send and tell.
//! The order within a turn is what raft needs: entries, vote and term are durable before any message
//! that depends on them leaves, and only committed entries are applied. What a leader asks others to write
//! depends on nothing: it leaves before the leader has written it itself, so that all disks work at the same
//! time, and the leader counts itself among those who have it only when its own has finished (section 10.2.1
//! of Ongaro's thesis on Raft).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ephesus_wal::Disk;
use raft::eraftpb::MessageType;
use raft::prelude::{ConfChange, ConfChangeType, ConfState, HardState, Message, Snapshot};
use raft::{Config, ProgressState, RawNode, SnapshotStatus, StateRole, Storage};

use crate::command::{Command, CoordinatorChange, RaftId};
use crate::planted::Planted;
use crate::state::{Effects, Refusal, SnapshotError, State};
use crate::storage::{Persist, RaftLog, StorageError};

mod possible;
mod ready;

use possible::is_possible;

pub(crate) use ready::carry_out;

/// Ticks without a word of the leader until a member gives it up and supports another.
pub const ELECTION_TICKS: usize = 10;

/// Ticks between two heartbeats of the leader.
pub const HEARTBEAT_TICKS: usize = 2;

/// Ticks without a word of the leader until a member stands for election, drawn from this range: by
/// then the others have given the leader up as well, although they may have heard of it one
/// heartbeat later.
const CANDIDACY_TICKS: Range<usize> = ELECTION_TICKS + HEARTBEAT_TICKS + 1..2 * ELECTION_TICKS;

/// Ticks between the members that stand for election once the link to their leader is gone, so that
/// they do not stand against each other.
const SUCCESSION_TICKS: usize = 2;

/// Entries behind the last snapshot that make the next one due, unless told otherwise.
pub const SNAPSHOT_AFTER: usize = 4096;

/// Segments of the log above which the next snapshot is due: every start begins another one, and reads them
/// all, however little is in them.
const SEGMENTS_MAX: usize = 3;

/// Ticks after which a snapshot that was not confirmed counts as lost.
const SNAPSHOT_TICKS: usize = 4 * ELECTION_TICKS;

/// Largest message of entries, bytes, unless a single entry is larger.
const MESSAGE_BYTES_MAX: u64 = 256 << 10;

/// Messages of entries under way to one member.
const IN_FLIGHT_MAX: usize = 64;

/// Who waits for a proposal or a read; unique within one start of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Something that has happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A tick of the clock has passed.
    Tick,
    /// Another member has sent this.
    Message(Box<Message>),
    /// Somebody wants this to be decided.
    Propose(Ticket, Command),
    /// Somebody wants other coordinators.
    Change(Ticket, CoordinatorChange),
    /// The link to another member is gone, as when its process ends. If that one leads, it is given
    /// up at once.
    Lost(RaftId),
    /// Somebody wants another leader: hands the lead over to the one of these that is furthest.
    StepAside(Vec<RaftId>),
    /// Somebody wants to read what was decided before now.
    Read(Ticket),
}

/// What became of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was decided and carried out.
    Applied(Result<Effects, Refusal>),
    /// This member cannot decide: ask the leader, if one is known.
    NotLeader(Option<RaftId>),
    /// A change of coordinators is under way: ask again.
    Busy,
    /// This member has lost its lead meanwhile: it may be decided or not. Ask again, which changes
    /// nothing if it was.
    Unknown,
}

/// What a turn has led to.
#[derive(Debug, Default)]
pub struct Output {
    /// Proposals of this member that are decided, or that it could not take.
    pub outcomes: Vec<(Ticket, Outcome)>,
    /// Reads that may be answered now from [`Member::state`]; `false`: ask the leader.
    pub reads: Vec<(Ticket, bool)>,
    /// What has changed in [`Member::state`], with the version of the table it led to.
    pub changes: Vec<(u64, Effects)>,
    /// Whether [`Member::state`] was replaced as a whole, before these changes.
    pub restored: bool,
}

/// Why a member has to stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemberError {
    /// See there.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// See there.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A committed entry is no command: run a release that knows it.
    #[error("entry {index}: {source}")]
    Entry {
        /// The entry.
        index: u64,
        /// What the decoder says.
        source: postcard::Error,
    },
    /// A committed change of members is none: run a release that knows it.
    #[error("entry {index} is no change of members: {source}")]
    ConfChange {
        /// The entry.
        index: u64,
        /// What the decoder says.
        source: protobuf::ProtobufError,
    },
    /// As [`MemberError::ConfChange`].
    #[error("entry {0} changes members in a way that this release does not know")]
    JointChange(u64),
    /// The log was rolled back behind what it had confirmed, or is another one's.
    #[error(
        "this directory, with the log up to entry {0}, is older than what the other coordinators have seen of it: \
         remove this coordinator, and add it again with an empty directory"
    )]
    Older(u64),
    /// What raft itself refuses.
    #[error("raft: {0}")]
    Raft(#[from] raft::Error),
}

/// One member.
pub struct Member<D: Disk> {
    id: RaftId,
    node: RawNode<RaftLog<D>>,
    state: State,
    applied: u64,
    conf_state: ConfState,
    /// Reads that wait until so much is applied.
    reads: Vec<(Ticket, u64)>,
    /// Reads that raft has not placed yet.
    asked: BTreeSet<Ticket>,
    /// Proposals under way.
    proposed: BTreeSet<Ticket>,
    /// Distinguishes the proposals of this start from those of an earlier one.
    life: u64,
    /// The term that the proposals and reads under way belong to.
    asked_in: u64,
    /// Members that are being sent a snapshot, and for how many ticks.
    snapshots: BTreeMap<u64, usize>,
    snapshot_after: usize,
    /// Ticks of silence after which it stands for election, drawn anew each time.
    candidacy: Range<usize>,
    pub(crate) planted: Planted,
}

/// What every member of a new cluster begins with: the same first snapshot.
#[must_use]
pub fn founding(voters: &[RaftId]) -> Persist {
    let mut snapshot = Snapshot {
        data: State::default().to_snapshot().into(),
        ..Snapshot::default()
    };
    let metadata = snapshot.mut_metadata();
    (metadata.index, metadata.term) = (1, 1);
    metadata.mut_conf_state().voters = voters.iter().map(|id| id.0).collect();
    Persist {
        snapshot: Some(snapshot),
        hard_state: Some(HardState {
            term: 1,
            commit: 1,
            ..HardState::default()
        }),
        entries: Vec::new(),
    }
}

impl<D: Disk> Member<D> {
    /// Continues from what `log` holds. `election_ticks` fixes the election timeout, for simulations;
    /// `life` is different for every start.
    ///
    /// # Errors
    /// [`MemberError`].
    pub fn new(
        id: RaftId,
        log: RaftLog<D>,
        election_ticks: Option<usize>,
        life: u64,
    ) -> Result<Member<D>, MemberError> {
        let snapshot = log.latest_snapshot();
        let metadata = snapshot.get_metadata();
        let state = if metadata.index == 0 {
            State::default()
        } else {
            State::from_snapshot(&snapshot.data)?
        };
        let (applied, conf_state) = (metadata.index, metadata.get_conf_state().clone());
        let candidacy = election_ticks.map_or(CANDIDACY_TICKS, |ticks| ticks..ticks + 1);
        let config = Config {
            id: id.0,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            min_election_tick: candidacy.start,
            max_election_tick: candidacy.end,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: IN_FLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            // What is decided is waited for by those whom the leader tells; followers hear it with the next message.
            skip_bcast_commit: true,
            applied,
            ..Config::default()
        };
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let mut node = RawNode::new(&config, log, &silent)?;
        if conf_state.voters == [id.0] {
            node.campaign()?;
        }
        Ok(Member {
            id,
            node,
            state,
            applied,
            conf_state,
            reads: Vec::new(),
            asked: BTreeSet::new(),
            proposed: BTreeSet::new(),
            life,
            asked_in: 0,
            snapshots: BTreeMap::new(),
            snapshot_after: SNAPSHOT_AFTER,
            candidacy,
            planted: Planted::default(),
        })
    }

    /// Takes snapshots after so many entries.
    pub fn set_snapshot_after(&mut self, entries: usize) {
        self.snapshot_after = entries;
    }

    /// This member's number.
    #[must_use]
    pub fn id(&self) -> RaftId {
        self.id
    }

    /// What has been decided, as far as this member knows.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Index of the last entry that [`Member::state`] contains.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// The term this member is in.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// Whether this member believes to be the leader.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// Whether this member leads and knows everything that was decided before.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.is_leader() && self.node.raft.apply_to_current_term()
    }

    /// Proposals of this member without an outcome yet.
    #[must_use]
    pub fn undecided(&self) -> usize {
        self.proposed.len()
    }

    /// Index of the last entry that this member knows to be decided.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// Index of the last entry that this member has, decided or not.
    #[must_use]
    pub fn last_entry(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    /// The last entry that another member is known to have; only a leader knows.
    #[must_use]
    pub fn matched(&self, id: RaftId) -> u64 {
        let progress = self.node.raft.prs().get(id.0);
        progress.map_or(0, |progress| progress.matched)
    }

    /// Whether another member lacks no more entries than may be under way to it; only a leader knows.
    #[must_use]
    pub fn is_caught_up(&self, id: RaftId) -> bool {
        let matched = self.matched(id);
        matched > 0 && self.last_entry().saturating_sub(matched) < IN_FLIGHT_MAX as u64
    }

    #[cfg(any(test, feature = "planted"))]
    pub(crate) fn plant(&mut self, planted: Planted) {
        self.planted = planted;
        self.node.mut_store().planted = planted;
    }

    /// The leader, if this member knows one and has not given it up.
    #[must_use]
    pub fn leader(&self) -> Option<RaftId> {
        let raft = &self.node.raft;
        let is_heard = self.is_leader() || raft.election_elapsed < ELECTION_TICKS;
        (raft.leader_id != raft::INVALID_ID && is_heard).then_some(RaftId(raft.leader_id))
    }

    /// The members that vote.
    #[must_use]
    pub fn voters(&self) -> Vec<RaftId> {
        self.conf_state.voters.iter().copied().map(RaftId).collect()
    }

    /// Takes what has happened, and answers what follows from it. `send` is called with each message as soon
    /// as it may leave, and with [`Member::state`] at that moment; losing some is fine. What it has been
    /// called with may leave whether the turn ends or not.
    ///
    /// # Errors
    /// [`MemberError`]: nothing more is promised, end the process.
    pub async fn turn(
        &mut self,
        inputs: impl IntoIterator<Item = Input>,
        wall_clock_ms: u64,
        mut send: impl FnMut(&State, Message),
    ) -> Result<Output, MemberError> {
        let mut output = Output::default();
        for input in inputs {
            if let Input::Message(message) = &input
                && !is_possible(message)
            {
                let (kind, from) = (message.get_msg_type(), message.from);
                tracing::debug!(?kind, from, "dropping what no coordinator sends");
                continue;
            }
            if let Input::Message(message) = &input
                && !self.is_too_early(message)
                && self.is_older_than(message)
            {
                return Err(MemberError::Older(self.last_entry()));
            }
            self.forget_if_deposed(&mut output);
            self.take(input, &mut output);
        }
        while self.node.has_ready() {
            self.ready(&mut output, wall_clock_ms, &mut send).await?;
        }
        self.forget_if_deposed(&mut output);
        self.snapshot_if_due(wall_clock_ms).await?;
        Ok(output)
    }

    #[expect(clippy::expect_used, reason = "commands always encode")]
    fn take(&mut self, input: Input, output: &mut Output) {
        match input {
            Input::Tick => {
                self.node.tick();
                self.send_lost_snapshots_again();
            }
            Input::Message(message) if self.is_too_early(&message) => {}
            // A message from a member that was removed, or to one: nothing depends on it.
            Input::Message(message) => drop(self.node.step(*message)),
            Input::Change(ticket, change) => {
                let outcome = if !self.is_settled() {
                    Outcome::NotLeader(self.leader())
                } else if self.node.raft.has_pending_conf() {
                    Outcome::Busy
                } else if self
                    .node
                    .propose_conf_change(self.context(ticket), conf_change(&change))
                    .is_ok()
                {
                    self.proposed.insert(ticket);
                    return;
                } else {
                    Outcome::NotLeader(self.leader())
                };
                output.outcomes.push((ticket, outcome));
            }
            Input::Lost(id) => self.succeed(id),
            Input::StepAside(present) => {
                let progress = self.node.raft.prs().iter();
                let others = progress.filter(|(id, _)| present.contains(&RaftId(**id)));
                let others = others.filter(|(id, _)| self.conf_state.voters.contains(id));
                let furthest = others.max_by_key(|(id, p)| (p.matched, **id));
                let furthest = furthest.map(|(id, _)| *id);
                if let Some(next) = furthest.filter(|_| self.is_leader()) {
                    self.node.transfer_leader(next);
                }
            }
            Input::Propose(ticket, command) => {
                let data = postcard::to_allocvec(&command).expect("commands encode");
                if self.is_leader() && self.node.propose(self.context(ticket), data).is_ok() {
                    self.proposed.insert(ticket);
                } else {
                    let outcome = Outcome::NotLeader(self.leader());
                    output.outcomes.push((ticket, outcome));
                }
            }
            Input::Read(ticket) => {
                // A leader that has decided nothing in its term yet does not know what was decided.
                if self.is_settled() {
                    self.node.read_index(ticket.0.to_le_bytes().to_vec());
                    self.asked.insert(ticket);
                } else {
                    output.reads.push((ticket, false));
                }
            }
        }
    }

    /// Gives up a leader whose links are gone, and stands for election soon: the member with the lowest
    /// number first. A leader that is still there is heard of before that, and stays.
    fn succeed(&mut self, lost: RaftId) {
        let own = self.id.0;
        let voters = self.conf_state.voters.iter();
        let before = voters.filter(|id| **id < own && **id != lost.0).count();
        let wait = HEARTBEAT_TICKS + 1 + SUCCESSION_TICKS * before;
        let latest = self.candidacy.end - 1;
        let raft = &mut self.node.raft;
        if raft.state == StateRole::Follower && raft.leader_id == lost.0 {
            let elapsed = latest.saturating_sub(wait).max(ELECTION_TICKS);
            raft.set_randomized_election_timeout(latest);
            raft.election_elapsed = raft.election_elapsed.max(elapsed);
        }
    }

    /// Raft waits for ever for the confirmation of a snapshot; it or the snapshot may be lost.
    fn send_lost_snapshots_again(&mut self) {
        let progress = self.node.raft.prs().iter();
        let waiting = progress.filter(|(_, p)| p.state == ProgressState::Snapshot);
        let waiting: Vec<u64> = waiting.map(|(id, _)| *id).collect();
        self.snapshots.retain(|id, _| waiting.contains(id));
        for id in waiting {
            let ticks = self.snapshots.entry(id).or_default();
            *ticks += 1;
            if *ticks >= SNAPSHOT_TICKS {
                *ticks = 0;
                self.node.report_snapshot(id, SnapshotStatus::Failure);
            }
        }
    }

    fn context(&self, ticket: Ticket) -> Vec<u8> {
        [self.life.to_le_bytes(), ticket.0.to_le_bytes()].concat()
    }

    /// Whether a message is for a member that has a log, and this one has none: it was wiped, or
    /// waits for its first entries. It must not vote: it may have done so before.
    fn is_too_early(&self, message: &Message) -> bool {
        let has_log = self.node.store().last_index().is_ok_and(|last| last > 0);
        !has_log
            && match message.get_msg_type() {
                MessageType::MsgHeartbeat => message.commit > 0,
                MessageType::MsgAppend | MessageType::MsgSnapshot => false,
                _ => true,
            }
    }

    /// Whether a leader knows of decided entries that this member has not, or has others in their place: its log
    /// was rolled back after it had confirmed them, or is another one's. Raft takes that for impossible, and panics.
    fn is_older_than(&self, message: &Message) -> bool {
        // A leader of an earlier term may not have what was decided since, and is not listened to.
        if message.term < self.term() {
            return false;
        }
        let log = &self.node.raft.raft_log;
        match message.get_msg_type() {
            MessageType::MsgHeartbeat => message.commit > log.last_index(),
            MessageType::MsgAppend => {
                let entries = message
                    .entries
                    .iter()
                    .map(|entry| (entry.index, entry.term));
                let kept = (log.first_index() - 1)..=log.committed;
                let mut decided = std::iter::once((message.index, message.log_term))
                    .chain(entries)
                    .filter(|(index, _)| kept.contains(index));
                decided.any(|(index, term)| log.term(index).is_ok_and(|own| own != term))
            }
            _ => false,
        }
    }

    /// A member that does not lead any more may never learn what became of what it was asked.
    fn forget_if_deposed(&mut self, output: &mut Output) {
        if self.is_leader() && self.asked_in == self.term() {
            return;
        }
        self.asked_in = self.term();
        let forgotten = std::mem::take(&mut self.proposed);
        let unknown = forgotten
            .into_iter()
            .map(|ticket| (ticket, Outcome::Unknown));
        output.outcomes.extend(unknown);
        let reads = self.reads.drain(..).map(|(ticket, _)| ticket);
        let unread = reads.chain(std::mem::take(&mut self.asked));
        output.reads.extend(unread.map(|ticket| (ticket, false)));
    }

    async fn snapshot_if_due(&mut self, now_ms: u64) -> Result<(), MemberError> {
        let store = self.node.store();
        let taken = store.latest_snapshot().get_metadata();
        // A member that was added takes only a snapshot that names it.
        let is_due = store.entries_kept() >= self.snapshot_after
            || store.segments() > SEGMENTS_MAX
            || *taken.get_conf_state() != self.conf_state;
        if !is_due || self.applied == taken.index {
            return Ok(());
        }
        let mut snapshot = Snapshot {
            data: self.state.to_snapshot().into(),
            ..Snapshot::default()
        };
        let metadata = snapshot.mut_metadata();
        metadata.index = self.applied;
        metadata.term = store.term(self.applied)?;
        metadata.set_conf_state(self.conf_state.clone());
        self.node.mut_store().compact(snapshot, now_ms).await?;
        Ok(())
    }
}

/// Raft's entry for a change; the change itself is its context.
#[expect(clippy::expect_used, reason = "changes always encode")]
fn conf_change(change: &CoordinatorChange) -> ConfChange {
    let (kind, id) = match change {
        CoordinatorChange::Add { id, .. } | CoordinatorChange::Promote { id } => {
            (ConfChangeType::AddNode, id)
        }
        CoordinatorChange::AddLearner { id, .. } => (ConfChangeType::AddLearnerNode, id),
        CoordinatorChange::Remove { id } => (ConfChangeType::RemoveNode, id),
    };
    let mut conf_change = ConfChange::default();
    conf_change.set_change_type(kind);
    conf_change.node_id = id.0;
    conf_change.context = postcard::to_allocvec(change)
        .expect("changes encode")
        .into();
    conf_change
}

#[cfg(test)]
mod tests;
