//! The target's side of a batch: fills its staging copies and says of each when it is prepared.
//!
//! ```text
//! Filling -> Preparing -> Prepared -> (over: activated or wiped by the table's word)
//!         ^ FINAL       ^ durable
//! Filling -> (over: wiped, since the stream broke)
//! ```
//!
//! A prepared copy needs no stream: whatever happens to it, the copy stays, and orders find it by its
//! partition and epoch.

use std::time::Instant;

use ephesus_wire::stream::Message;
use ephesus_wire::{Epoch, MigrationId, PartitionId};

use super::link::Link;
use super::mail::Mail;
use super::source::Fate;
use super::window::Peer;
use super::{ALIVE_EVERY, Cx, SILENCE_MAX};
use crate::keyspace::AfterBreak;
use crate::migration::{Batch, Report};
use crate::planted::Bug;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Filling,
    /// The source's last message was taken.
    Preparing,
    Prepared,
}

/// A batch that comes to this shard.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) batch: MigrationId,
    /// Where it comes from.
    pub(super) from: Peer,
    copies: Vec<Copy>,
    link: Link,
    /// How much of the first DATA message is imported.
    taken: usize,
    spoke: Instant,
    /// The credit that the source has been given.
    told_credit: usize,
}

/// A staging copy of a batch.
#[derive(Debug)]
struct Copy {
    migration: MigrationId,
    partition: PartitionId,
    epoch: Epoch,
    state: State,
    /// KEYS has come.
    has_keys: bool,
    /// The last record that was acknowledged; the copy's creation is 1.
    acknowledged: u64,
}

impl Target {
    /// A batch of which no copy is there yet.
    pub(super) fn new(batch: &Batch, link: Link, now: Instant) -> Target {
        let first = batch.first();
        Target {
            batch: batch.id(),
            from: (first.source, first.source_shard),
            copies: Vec::new(),
            link,
            taken: 0,
            spoke: now,
            told_credit: 0,
        }
    }

    /// A staging copy has begun.
    pub(super) fn add(&mut self, migration: MigrationId, partition: PartitionId, epoch: Epoch) {
        self.copies.push(Copy {
            migration,
            partition,
            epoch,
            state: State::Filling,
            has_keys: false,
            acknowledged: 1,
        });
    }

    /// All copies have begun: the source may send.
    pub(super) fn accept(&mut self, cx: &mut Cx<'_>) {
        self.link.send(self.batch, Mail::Accepted, cx.sockets);
        self.link.flush(&cx.core.node);
    }

    pub(super) fn has(&self, migration: MigrationId) -> bool {
        self.copies.iter().any(|copy| copy.migration == migration)
    }

    pub(super) fn deliver(&mut self, messages: Vec<(MigrationId, Mail)>, now: Instant) {
        self.link.deliver(messages, now);
    }

    /// Whether something has arrived that can be taken now.
    pub(super) fn may_import(&mut self, cx: &mut Cx<'_>) -> bool {
        self.takes_records(cx) && !matches!(self.link.front(cx.sockets), Ok(None))
    }

    fn takes_records(&self, cx: &Cx<'_>) -> bool {
        self.is_filling() && !cx.core.admission.log_room.is_behind()
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
        if !self.is_filling() {
            return Ok(false);
        }
        let (migration, message) = match self.link.front(cx.sockets).map_err(Broken::here)? {
            None => return Ok(false),
            Some((_, Message::End(reason))) => return Err(Broken::said(reason)),
            Some(message) => message,
        };
        // A source that only says that it is there asks for nothing.
        if !matches!(message, Message::Data([])) {
            if cx.core.node.disk.is_full() {
                return Err(Broken::here("the target's disk is full"));
            }
            if cx.core.node.is_memory_full() {
                return Err(Broken::here("the target's memory is full"));
            }
        }
        let is_it = |copy: &&mut Copy| copy.migration == migration && copy.state == State::Filling;
        let Some(copy) = self.copies.iter_mut().find(is_it) else {
            return Err(Broken::here("the source has sent what no copy waits for"));
        };
        let (keyspace, partition) = (&mut cx.core.keyspace, copy.partition);
        match message {
            Message::Keys(count) => {
                if std::mem::replace(&mut copy.has_keys, true) {
                    return Err(Broken::here("the source has sent KEYS twice"));
                }
                keyspace.expect_keys(partition, count);
            }
            Message::Data(records) => {
                let taken = keyspace
                    .import(partition, records, self.taken, more)
                    .map_err(Broken::here)?;
                if taken < records.len() {
                    self.taken = taken;
                    return Ok(false);
                }
                self.taken = 0;
            }
            Message::Final(last) => {
                keyspace.prepare(partition, &last).map_err(Broken::here)?;
                copy.state = State::Preparing;
            }
            _ => return Err(Broken::here("the source has sent what only a target sends")),
        }
        self.link.consume(cx.sockets);
        Ok(true)
    }

    /// Takes what is no record, which costs nothing.
    pub(super) fn take(&mut self, cx: &mut Cx<'_>) -> Fate {
        let is_word = |message: &Message<'_>| !matches!(message, Message::Data(_));
        while self.takes_records(cx)
            && matches!(self.link.front(cx.sockets), Ok(Some((_, message))) if is_word(&message))
        {
            if let Err(reason) = self.take_message(cx, &mut || false) {
                return self.broke(cx, &reason);
            }
        }
        // The table decides what becomes of prepared copies, whatever becomes of their stream.
        while !self.is_filling() && !matches!(self.link.front(cx.sockets), Ok(None)) {
            if self.link.front(cx.sockets).is_ok() {
                self.link.consume(cx.sockets);
            } else if cx.core.keyspace.planted.has(Bug::PreparedWiped) {
                return self.broke(cx, &Broken::here("the stream is over"));
            } else {
                break;
            }
        }
        Fate::GoesOn
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

    /// Whether part of a copy may still have to come.
    pub(super) fn is_filling(&self) -> bool {
        self.copies.iter().any(|copy| copy.state == State::Filling)
    }

    fn advance(&mut self, cx: &mut Cx<'_>, credit: usize) -> Result<(), Broken> {
        let log = &cx.core.keyspace.log;
        let (committed, durable) = (log.committed(), log.durable());
        let has_changed = (credit == 0) != (self.told_credit == 0);
        let mut is_due = has_changed || cx.now.saturating_duration_since(self.spoke) >= ALIVE_EVERY;
        let mut said = Vec::new();
        for copy in &mut self.copies {
            let keyspace = &mut cx.core.keyspace;
            let incoming = keyspace.incoming_mut(copy.partition);
            let incoming = incoming.ok_or_else(|| Broken::here("the copy is gone"))?;
            let acknowledged = incoming.acknowledge(committed);
            if let Some(seq) = acknowledged {
                copy.acknowledged = seq;
            }
            let is_filling = copy.state == State::Filling;
            if acknowledged.is_some() || is_filling && is_due {
                // What has changed for all of them is said once.
                is_due = false;
                let (seq, credit) = (copy.acknowledged, credit as u64);
                said.push((copy.migration, Mail::Window { seq, credit }));
            }
            if copy.state == State::Preparing
                && let Some(held) = incoming.confirmed(durable)
            {
                copy.state = State::Prepared;
                said.push((copy.migration, Mail::Prepared(held)));
            }
        }
        if !said.is_empty() {
            self.spoke = cx.now;
            self.told_credit = credit;
        }
        for (migration, mail) in said {
            self.link.send(migration, mail, cx.sockets);
        }
        if self.is_filling()
            && let Some(heard) = self.link.heard(cx.sockets)
            && cx.now.saturating_duration_since(heard) >= SILENCE_MAX
        {
            let seconds = SILENCE_MAX.as_secs();
            return Err(Broken::here(format!(
                "the source has been silent for {seconds} s"
            )));
        }
        Ok(())
    }

    /// The stream is over before its end.
    fn broke(&mut self, cx: &mut Cx<'_>, why: &Broken) -> Fate {
        let reason = if why.is_ours { &why.reason[..] } else { "" };
        self.end(cx, Mail::End(reason.to_owned()), reason);
        Fate::Over
    }

    /// Ends the stream: its copies go, unless they are prepared.
    pub(super) fn end(&mut self, cx: &mut Cx<'_>, farewell: Mail, reason: &str) {
        let node = &cx.core.node;
        self.link.close(farewell, cx.sockets, node, cx.now);
        for copy in &self.copies {
            match cx.core.keyspace.stream_broken(copy.partition) {
                AfterBreak::Wiped(lsn) => {
                    let report = Report::Wiped {
                        migration: copy.migration,
                        partition: copy.partition,
                        epoch: copy.epoch,
                        reason: reason.to_owned(),
                    };
                    cx.reports.once_durable(lsn, report);
                }
                AfterBreak::Kept(_) | AfterBreak::Nothing => {}
            }
        }
    }

    /// Whether the source waits for the log to be durable.
    pub(super) fn is_preparing(&self) -> bool {
        let mut copies = self.copies.iter();
        copies.any(|copy| copy.state == State::Preparing)
    }

    /// When to look at the batch again although nothing happens.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.is_filling().then_some(self.spoke + ALIVE_EVERY)
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
