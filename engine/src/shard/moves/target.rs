//! The target's side of one migration: fills a staging copy and says when it is prepared.
//!
//! ```text
//! Filling -> Preparing -> Prepared -> (over: activated or wiped by the table's word)
//!         ^ FINAL       ^ durable
//!   ENDING, HOLD before, while the source has clients
//! Filling -> (over: wiped, since the stream broke)
//! ```
//!
//! A prepared copy needs no stream: whatever happens to it, the copy stays, and orders find it by its
//! partition and epoch.

use std::time::{Duration, Instant};

use ephesus_wire::stream::{Message, Open};
use ephesus_wire::{MigrationId, NodeId, PartitionId, ShardId};

use super::link::Link;
use super::mail::Mail;
use super::source::Fate;
use super::{Cx, SILENCE_MAX};
use crate::keyspace::AfterBreak;
use crate::migration::Report;
use crate::planted::Bug;

/// DATA that is imported at once, not in a slice: captured writes that commands may be held for.
const SMALL_BYTES: usize = 4 << 10;

/// How often a target that has something to do says that it is still there.
const ALIVE_EVERY: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Filling,
    /// The source holds commands since about then: its last message was taken.
    Preparing {
        held_since: Instant,
    },
    Prepared {
        held_since: Instant,
    },
}

/// One migration to this shard.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) migration: MigrationId,
    open: Open,
    link: Link,
    state: State,
    /// How much of the first DATA message is imported.
    taken: usize,
    /// The last record that was acknowledged; the copy's creation is 1.
    acknowledged: u64,
    /// When that was.
    acknowledged_at: Instant,
    spoke: Instant,
    /// What the source was told about room, and when.
    told_room: (bool, Instant),
    /// Whether clients use the source's shard, for all that it has said.
    source_has_clients: bool,
    ending: Ending,
}

/// Whether the source is about to hold commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    No,
    /// Once it is told to; since then.
    Asked(Instant),
    /// It was told to then.
    Told(Instant),
}

impl Target {
    /// The staging copy has begun: the source may send.
    pub(super) fn new(
        migration: MigrationId,
        open: Open,
        mut link: Link,
        cx: &mut Cx<'_>,
    ) -> Target {
        link.send(Mail::Accepted, cx.sockets);
        link.flush(&cx.core.node);
        Target {
            migration,
            open,
            link,
            state: State::Filling,
            taken: 0,
            acknowledged: 1,
            acknowledged_at: cx.now,
            spoke: cx.now,
            told_room: (true, cx.now),
            source_has_clients: false,
            ending: Ending::No,
        }
    }

    pub(super) fn partition(&self) -> PartitionId {
        self.open.partition
    }

    pub(super) fn deliver(&mut self, messages: Vec<Mail>, now: Instant) {
        self.link.deliver(messages, now);
    }

    /// Whether something has arrived that can be taken now.
    pub(super) fn may_import(&mut self, cx: &mut Cx<'_>) -> bool {
        self.takes_records(cx) && !matches!(self.link.front(cx.sockets), Ok(None))
    }

    fn takes_records(&self, cx: &Cx<'_>) -> bool {
        self.state == State::Filling && !cx.core.log_behind
    }

    /// Takes what has arrived, while `more`.
    pub(super) fn import(&mut self, cx: &mut Cx<'_>, mut more: impl FnMut() -> bool) -> Fate {
        match self.take_messages(cx, &mut more) {
            Ok(()) => Fate::GoesOn,
            Err(reason) => self.broke(cx, &reason),
        }
    }

    fn take_messages(
        &mut self,
        cx: &mut Cx<'_>,
        more: &mut impl FnMut() -> bool,
    ) -> Result<(), Broken> {
        let partition = self.partition();
        let mut goes_on = true;
        while goes_on && self.state == State::Filling {
            if cx.core.node.disk.is_full() {
                return Err(Broken::here("the target's disk is full"));
            }
            if cx.core.node.is_memory_full() {
                return Err(Broken::here("the target's memory is full"));
            }
            let message = self.link.front(cx.sockets).map_err(Broken::here)?;
            let keyspace = &mut cx.core.keyspace;
            match message {
                None => return Ok(()),
                Some(Message::Keys(count)) => keyspace.expect_keys(partition, count),
                Some(Message::Data(records)) => {
                    let mut ask = || {
                        goes_on = more();
                        goes_on
                    };
                    let taken = keyspace
                        .import(partition, records, self.taken, &mut ask)
                        .map_err(Broken::here)?;
                    if taken < records.len() {
                        self.taken = taken;
                        return Ok(());
                    }
                    self.taken = 0;
                }
                Some(Message::Load(is_there)) => {
                    self.source_has_clients = is_there;
                }
                Some(Message::Ending) => self.ending = Ending::Asked(cx.now),
                Some(Message::Final(last)) => {
                    keyspace.prepare(partition, &last).map_err(Broken::here)?;
                    self.state = State::Preparing { held_since: cx.now };
                }
                Some(Message::End(reason)) => return Err(Broken::said(reason)),
                Some(_) => {
                    return Err(Broken::here("the source has sent what only a target sends"));
                }
            }
            self.link.consume(cx.sockets);
        }
        Ok(())
    }

    /// Whether commands may be held for what has arrived, and it takes little time.
    fn is_urgent(&mut self, cx: &mut Cx<'_>) -> bool {
        self.takes_records(cx)
            && match self.link.front(cx.sockets) {
                Ok(Some(Message::Data(records))) => records.len() <= SMALL_BYTES,
                front => matches!(
                    front,
                    Ok(Some(
                        Message::Keys(_) | Message::Load(_) | Message::Ending | Message::Final(_)
                    ))
                ),
            }
    }

    /// Takes what commands may be held for, and whether there was anything.
    pub(super) fn take_urgent(&mut self, cx: &mut Cx<'_>) -> (Fate, bool) {
        let mut has_taken = false;
        if self.state != State::Filling {
            // Nothing changes any more, and other streams may wait behind the end of this one.
            let is_over = loop {
                match self.link.front(cx.sockets) {
                    Ok(Some(_)) => {
                        self.link.consume(cx.sockets);
                        has_taken = true;
                    }
                    Ok(None) => break false,
                    // The table decides what becomes of a prepared copy, whatever becomes of its stream.
                    Err(_) => break true,
                }
            };
            if is_over && cx.core.keyspace.planted.has(Bug::PreparedWiped) {
                let reason = Broken::here("the stream is over");
                return (self.broke(cx, &reason), has_taken);
            }
        }
        while self.is_urgent(cx) {
            has_taken = true;
            if let Err(reason) = self.take_messages(cx, &mut || false) {
                return (self.broke(cx, &reason), has_taken);
            }
        }
        (Fate::GoesOn, has_taken)
    }

    /// Acknowledges what the log has, and looks at the clock; `pauses` says that the source is not to walk.
    pub(super) fn tend(&mut self, cx: &mut Cx<'_>, pauses: bool) -> Fate {
        let outcome = self.advance(cx, pauses);
        self.link.flush(&cx.core.node);
        match outcome {
            Ok(()) => Fate::GoesOn,
            Err(reason) => self.broke(cx, &reason),
        }
    }

    /// Whether part of the copy may still have to come.
    pub(super) fn is_filling(&self) -> bool {
        self.state == State::Filling
    }

    /// Tells the source whether there is room for what it walks, if that has changed: in the log, and beside others
    /// whose commands are held. What it walked meanwhile would take CPUs and links from what they wait for.
    fn tell_room(&mut self, cx: &mut Cx<'_>, pauses: bool) {
        let has_room = cx.core.log_has_room && !pauses;
        if self.told_room.0 != has_room {
            self.told_room = (has_room, cx.now);
            self.say(cx, Mail::Room(has_room));
        }
    }

    /// Whether clients use the source's shard, for all that it has said: they wait for this one when their
    /// commands are held.
    pub(super) fn source_has_clients(&self) -> bool {
        self.source_has_clients
    }

    /// Where the copy comes from.
    pub(super) fn from(&self) -> (NodeId, ShardId) {
        (self.open.source, self.open.source_shard)
    }

    /// Since when commands are held at the source, or about to be, as far as is known here.
    pub(super) fn held_since(&self) -> Option<Instant> {
        match (self.state, self.ending) {
            (State::Preparing { held_since } | State::Prepared { held_since }, _) => {
                Some(held_since)
            }
            (State::Filling, Ending::Asked(since) | Ending::Told(since)) => Some(since),
            (State::Filling, Ending::No) => None,
        }
    }

    /// Whether commands are about to be held at the source.
    pub(super) fn is_ending(&self) -> bool {
        self.state == State::Filling && self.ending != Ending::No
    }

    /// Since when the source waits for [`Target::let_hold`].
    pub(super) fn asked_since(&self) -> Option<Instant> {
        match (self.state, self.ending) {
            (State::Filling, Ending::Asked(since)) => Some(since),
            _ => None,
        }
    }

    /// Tells the source that it may hold commands.
    pub(super) fn let_hold(&mut self, cx: &mut Cx<'_>) {
        self.ending = Ending::Told(cx.now);
        self.say(cx, Mail::Hold);
    }

    fn advance(&mut self, cx: &mut Cx<'_>, pauses: bool) -> Result<(), Broken> {
        let (keyspace, partition) = (&mut cx.core.keyspace, self.partition());
        let (committed, durable) = (keyspace.log.committed(), keyspace.log.durable());
        let taken = keyspace.partition(partition).map_or(0, |copy| copy.seq());
        let incoming = keyspace.incoming_mut(partition);
        let incoming = incoming.ok_or_else(|| Broken::here("the copy is gone"))?;
        let (acknowledged, confirmed) =
            (incoming.acknowledge(committed), incoming.confirmed(durable));
        if let Some(seq) = acknowledged {
            self.acknowledged = seq;
            self.acknowledged_at = cx.now;
            self.say(cx, Mail::Ack { seq });
        }
        match self.state {
            State::Preparing { held_since } => {
                if let Some(held) = confirmed {
                    self.state = State::Prepared { held_since };
                    self.say(cx, Mail::Prepared(held));
                }
                Ok(())
            }
            State::Prepared { .. } => Ok(()),
            State::Filling => {
                self.tell_room(cx, pauses);
                let (has_room, told_room) = self.told_room;
                let heard = self.link.heard(cx.sockets);
                let since = |at: Instant| cx.now.saturating_duration_since(at);
                // A source whose credit is used up has nothing to say, nor one that must not walk.
                if let Some(heard) = heard
                    && has_room
                    && self.acknowledged >= taken
                    && since(heard.max(self.acknowledged_at).max(told_room)) >= SILENCE_MAX
                {
                    let seconds = SILENCE_MAX.as_secs();
                    return Err(Broken::here(format!(
                        "the source has been silent for {seconds} s"
                    )));
                }
                if since(self.spoke) >= ALIVE_EVERY {
                    let seq = self.acknowledged;
                    self.say(cx, Mail::Ack { seq });
                }
                Ok(())
            }
        }
    }

    fn say(&mut self, cx: &mut Cx<'_>, mail: Mail) {
        self.spoke = cx.now;
        self.link.send(mail, cx.sockets);
    }

    /// The stream is over before its end: the copy goes, unless it is prepared.
    fn broke(&mut self, cx: &mut Cx<'_>, why: &Broken) -> Fate {
        let (migration, partition, epoch) = (self.migration, self.partition(), self.open.epoch);
        let reason = if why.is_ours { &why.reason[..] } else { "" };
        self.close(cx, reason);
        match cx.core.keyspace.stream_broken(partition) {
            AfterBreak::Wiped(lsn) => {
                let reason = reason.to_owned();
                cx.reports.once_durable(
                    lsn,
                    Report::Wiped {
                        migration,
                        partition,
                        epoch,
                        reason,
                    },
                );
            }
            AfterBreak::Kept(_) | AfterBreak::Nothing => {}
        }
        Fate::Over
    }

    /// Ends the stream: the table has decided.
    pub(super) fn close(&mut self, cx: &mut Cx<'_>, reason: &str) {
        let farewell = Mail::End(reason.to_owned());
        let node = &cx.core.node;
        self.link.close(Some(farewell), cx.sockets, node, cx.now);
    }

    /// Whether the source waits for the log to be durable.
    pub(super) fn is_preparing(&self) -> bool {
        matches!(self.state, State::Preparing { .. })
    }

    /// When to look at the migration again although nothing happens.
    pub(super) fn next_look(&self) -> Option<Instant> {
        (self.state == State::Filling).then_some(self.spoke + ALIVE_EVERY)
    }
}

/// Why a stream is over.
#[derive(Debug)]
struct Broken {
    reason: String,
    /// The source does not know it yet.
    is_ours: bool,
}

impl Broken {
    fn here(reason: impl ToString) -> Broken {
        Broken {
            reason: reason.to_string(),
            is_ours: true,
        }
    }

    fn said(reason: &str) -> Broken {
        Broken {
            reason: reason.to_owned(),
            is_ours: false,
        }
    }
}
