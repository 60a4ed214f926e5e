//! The target's side of one migration: fills a staging copy and says when it is prepared.
//!
//! ```text
//! Filling -> Preparing -> Prepared -> (over: activated or wiped by the table's word)
//!         ^ FINAL       ^ durable
//! Filling -> (over: wiped, since the stream broke)
//! ```
//!
//! A prepared copy needs no stream: whatever happens to it, the copy stays, and orders find it by its
//! partition and epoch.

use std::time::{Duration, Instant};

use ephesus_wire::stream::{Message, Open};
use ephesus_wire::{MigrationId, PartitionId};

use super::link::Link;
use super::mail::Mail;
use super::source::Fate;
use super::window::Peer;
use super::{Cx, SILENCE_MAX};
use crate::keyspace::AfterBreak;
use crate::migration::Report;
use crate::planted::Bug;

/// How often a target that has something to do says that it is still there.
const ALIVE_EVERY: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Filling,
    /// The source's last message was taken.
    Preparing,
    Prepared,
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
    /// The credit that the source has been given, and when.
    told_credit: (usize, Instant),
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
            told_credit: (0, cx.now),
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
        self.state == State::Filling && !cx.core.admission.log_room.is_behind()
    }

    /// Takes what has arrived, while `more`.
    pub(super) fn import(&mut self, cx: &mut Cx<'_>, mut more: impl FnMut() -> bool) -> Fate {
        loop {
            match self.take_message(cx, &mut more) {
                Ok(true) if more() => {}
                Ok(_) => return Fate::GoesOn,
                Err(reason) => return self.broke(cx, &reason),
            }
        }
    }

    /// Takes the first message, of DATA what there is time for; whether there may be another one to be taken.
    fn take_message(
        &mut self,
        cx: &mut Cx<'_>,
        more: &mut impl FnMut() -> bool,
    ) -> Result<bool, Broken> {
        let partition = self.partition();
        if self.state != State::Filling {
            return Ok(false);
        }
        if cx.core.node.disk.is_full() {
            return Err(Broken::here("the target's disk is full"));
        }
        if cx.core.node.is_memory_full() {
            return Err(Broken::here("the target's memory is full"));
        }
        let message = self.link.front(cx.sockets).map_err(Broken::here)?;
        let keyspace = &mut cx.core.keyspace;
        match message {
            None => return Ok(false),
            Some(Message::Keys(count)) => keyspace.expect_keys(partition, count),
            Some(Message::Data(records)) => {
                let taken = keyspace
                    .import(partition, records, self.taken, more)
                    .map_err(Broken::here)?;
                if taken < records.len() {
                    self.taken = taken;
                    return Ok(false);
                }
                self.taken = 0;
            }
            Some(Message::Final(last)) => {
                keyspace.prepare(partition, &last).map_err(Broken::here)?;
                self.state = State::Preparing;
            }
            Some(Message::End(reason)) => return Err(Broken::said(reason)),
            Some(_) => return Err(Broken::here("the source has sent what only a target sends")),
        }
        self.link.consume(cx.sockets);
        Ok(true)
    }

    /// Takes what is no record, which costs nothing, and whether there was anything.
    pub(super) fn take_words(&mut self, cx: &mut Cx<'_>) -> (Fate, bool) {
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
        let is_word = |message: &Message<'_>| !matches!(message, Message::Data(_));
        while self.takes_records(cx)
            && matches!(self.link.front(cx.sockets), Ok(Some(message)) if is_word(&message))
        {
            has_taken = true;
            if let Err(reason) = self.take_message(cx, &mut || false) {
                return (self.broke(cx, &reason), has_taken);
            }
        }
        (Fate::GoesOn, has_taken)
    }

    /// Acknowledges what the log has, gives the source its `credit`, and looks at the clock.
    pub(super) fn tend(&mut self, cx: &mut Cx<'_>, credit: usize) -> Fate {
        let outcome = self.advance(cx, credit);
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

    /// Where the copy comes from.
    pub(super) fn from(&self) -> Peer {
        (self.open.source, self.open.source_shard)
    }

    fn advance(&mut self, cx: &mut Cx<'_>, credit: usize) -> Result<(), Broken> {
        let (keyspace, partition) = (&mut cx.core.keyspace, self.partition());
        let (committed, durable) = (keyspace.log.committed(), keyspace.log.durable());
        let taken = keyspace.partition(partition).map_or(0, |copy| copy.seq());
        let incoming = keyspace.incoming_mut(partition);
        let incoming = incoming.ok_or_else(|| Broken::here("the copy is gone"))?;
        let (acknowledged, confirmed) =
            (incoming.acknowledge(committed), incoming.confirmed(durable));
        if let Some(seq) = acknowledged {
            (self.acknowledged, self.acknowledged_at) = (seq, cx.now);
        }
        let since = |at: Instant| cx.now.saturating_duration_since(at);
        let has_changed = (credit == 0) != (self.told_credit.0 == 0);
        let is_filling = self.state == State::Filling;
        let is_due = has_changed || since(self.spoke) >= ALIVE_EVERY;
        if acknowledged.is_some() || is_filling && is_due {
            if has_changed {
                self.told_credit.1 = cx.now;
            }
            self.told_credit.0 = credit;
            let (seq, credit) = (self.acknowledged, credit as u64);
            self.say(cx, Mail::Window { seq, credit });
        }
        if self.state == State::Preparing
            && let Some(held) = confirmed
        {
            self.state = State::Prepared;
            self.say(cx, Mail::Prepared(held));
        }
        let (told_credit, told_at) = self.told_credit;
        // A source whose credit is used up has nothing to say.
        if is_filling
            && told_credit > 0
            && self.acknowledged >= taken
            && let Some(heard) = self.link.heard(cx.sockets)
            && cx
                .now
                .saturating_duration_since(heard.max(self.acknowledged_at).max(told_at))
                >= SILENCE_MAX
        {
            let seconds = SILENCE_MAX.as_secs();
            return Err(Broken::here(format!(
                "the source has been silent for {seconds} s"
            )));
        }
        Ok(())
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
        self.state == State::Preparing
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
