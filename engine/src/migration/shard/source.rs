//! The source's side of one migration: walks, sends, holds commands and waits for the decision.
//!
//! ```text
//! Opening -> Copying -> Finishing -> Confirmed -> (over: committed or aborted)
//!         ^ ACCEPTED  ^ held, FINAL ^ PREPARED
//! Opening | Copying | Finishing -> (over: gave up, serves as before)
//! ```
//!
//! *Invariant:* up to `Finishing` the source may roll back alone, since only it proposes to commit, and
//! only after [`Report::Confirmed`]. From then on nothing but the table's word ends the hold.

use std::time::{Duration, Instant};

use ephesus_wire::stream::{Message, Open};
use ephesus_wire::{MigrationId, NodeId, PartitionId};

use super::group::{Group, Groups, Standing};
use super::link::Link;
use super::mail::Mail;
use super::window::Peer;
use super::{Cx, SILENCE_MAX};
use crate::migration::{Outbound, Outgoing, Report, Stage};
use crate::planted::Bug;

/// How long writes may keep the backlog from becoming small once the walk is over.
const CATCH_UP_MAX: Duration = Duration::from_secs(30);

/// How long commands are held before the target has confirmed: giving up sooner would only mean to hold
/// them again at the next attempt.
pub(super) const HOLD_MAX: Duration = Duration::from_millis(300);

/// How long commands are held before the source asks to abort what it has confirmed.
pub(super) const OVERDUE_AFTER: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
enum State {
    Opening,
    /// Since when the walk is over.
    Copying(Option<Instant>),
    Finishing {
        held_since: Instant,
    },
    Confirmed {
        held_since: Instant,
        is_overdue: bool,
    },
}

/// One migration away from this shard.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) migration: MigrationId,
    /// Of those that hold commands together.
    pub(super) group: u64,
    open: Open,
    /// The shard that it goes to.
    to: Peer,
    link: Link,
    state: State,
    /// Where the removal of expired keys is, which is over before the stream ends; `None`: there are none.
    clearing: Option<usize>,
    /// What was reported last.
    keys: u64,
    bytes: u64,
}

/// What a look at a migration has led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    GoesOn,
    Over,
}

impl Source {
    pub(super) fn new(
        (migration, group): (MigrationId, u64),
        open: Open,
        to: NodeId,
        link: Link,
    ) -> Source {
        Source {
            to: (to, open.target_shard),
            migration,
            group,
            open,
            link,
            state: State::Opening,
            clearing: None,
            keys: 0,
            bytes: 0,
        }
    }

    pub(super) fn partition(&self) -> PartitionId {
        self.open.partition
    }

    pub(super) fn deliver(&mut self, messages: Vec<Mail>, now: Instant) {
        self.link.deliver(messages, now);
    }

    fn outgoing<'a>(&self, cx: &'a mut Cx<'_>) -> Option<&'a mut Outgoing> {
        let outgoing = cx.core.keyspace.outgoing_mut(self.partition())?;
        (outgoing.migration == self.migration).then_some(outgoing)
    }

    /// Whether the walk would get on, and neither its target nor a limit keeps it from that.
    pub(super) fn may_walk(&self, cx: &mut Cx<'_>) -> bool {
        cx.windows.has_room(self.to)
            && cx.limit.permits(cx.now)
            && self
                .outgoing(cx)
                .is_some_and(|outgoing| outgoing.may_walk())
    }

    /// Whether part of the copy is still to be walked, and its target takes it.
    pub(super) fn is_walking(&self, cx: &mut Cx<'_>) -> bool {
        cx.windows.is_open(self.to)
            && self
                .outgoing(cx)
                .is_some_and(|outgoing| outgoing.stage() == Stage::Walking)
    }

    /// The shard that it goes to, and what is under way there.
    pub(super) fn in_flight(&self, cx: &mut Cx<'_>) -> (Peer, usize) {
        let outgoing = self.outgoing(cx);
        (
            self.to,
            outgoing.map_or(0, |outgoing| outgoing.in_flight_bytes()),
        )
    }

    /// Whether captured writes may wait for each other: the walk is over.
    pub(super) fn gathers(&self) -> bool {
        matches!(self.state, State::Copying(Some(_)))
    }

    /// Its group, and how far it is; none when it holds commands.
    pub(super) fn standing(&self, cx: &mut Cx<'_>) -> Option<(u64, Standing)> {
        if self.held_since().is_some() {
            return None;
        }
        let outgoing = self.outgoing(cx);
        let standing = Standing {
            backlog_bytes: outgoing.as_ref().map_or(0, |o| o.backlog_bytes()),
            is_walked: outgoing.is_some_and(|o| o.stage() != Stage::Walking),
        };
        Some((self.group, standing))
    }

    /// Walks on while `more`; with a limit one step, a few entries. Writes that are made meanwhile are sent
    /// whatever the limit is, or the move might never end.
    pub(super) fn walk(&mut self, cx: &mut Cx<'_>, mut more: impl FnMut() -> bool) {
        let partition = self.partition();
        let is_limited = cx.limit.is_set();
        let bytes = |cx: &mut Cx<'_>| self.outgoing(cx).map_or(0, |outgoing| outgoing.bytes());
        let before = bytes(cx);
        let more = || !is_limited && more();
        if self.outgoing(cx).is_some() {
            cx.core.keyspace.outgoing_slice(partition, more);
        }
        let walked = bytes(cx) - before;
        cx.limit.spend(walked as usize);
        self.send(cx);
    }

    /// Takes what has come up to now.
    pub(super) fn take(&mut self, cx: &mut Cx<'_>) -> Fate {
        let was_confirmed = self.is_confirmed();
        match self.take_messages(cx) {
            Ok(()) => Fate::GoesOn,
            Err(reason) => {
                let is_stale = was_confirmed != self.is_confirmed();
                assert!(
                    !(is_stale && cx.core.keyspace.planted.has(Bug::StaleConfirmed)),
                    "what was confirmed is not taken back"
                );
                self.fail(cx, &reason)
            }
        }
    }

    /// Goes on where what has come, which was [taken](Source::take), and its group permit it, and looks at the clock.
    pub(super) fn tend(&mut self, cx: &mut Cx<'_>, groups: &Groups) -> Fate {
        match self.advance(cx, groups) {
            Ok(()) => {
                self.send(cx);
                self.report(cx, false);
                Fate::GoesOn
            }
            Err(reason) => self.fail(cx, &reason),
        }
    }

    fn take_messages(&mut self, cx: &mut Cx<'_>) -> Result<(), String> {
        while let Some(message) = self.link.front(cx.sockets)? {
            let mail = match message {
                Message::Accepted => Mail::Accepted,
                Message::Window { seq, credit } => Mail::Window { seq, credit },
                Message::Prepared(held) => Mail::Prepared(held),
                Message::Refused(reason) | Message::End(reason) => {
                    return Err(format!("the target: {reason}"));
                }
                _ => return Err("the target has sent what only a source sends".into()),
            };
            self.link.consume(cx.sockets);
            self.message(cx, mail)?;
        }
        Ok(())
    }

    fn message(&mut self, cx: &mut Cx<'_>, mail: Mail) -> Result<(), String> {
        let (partition, migration) = (self.partition(), self.migration);
        match (mail, self.state) {
            (Mail::Accepted, State::Opening) => {
                let keyspace = &mut cx.core.keyspace;
                let began = keyspace.begin_outgoing(partition, migration, self.open.epoch);
                began.map_err(|error| error.to_string())?;
                let copy = keyspace.partition(partition);
                let keys = copy.map_or(0, |copy| copy.table.len());
                self.link.send(Mail::Keys(keys as u64), cx.sockets);
                self.state = State::Copying(None);
                Ok(())
            }
            (Mail::Window { seq, credit }, _) => {
                let outgoing = self.outgoing(cx);
                let outgoing = outgoing.ok_or("the target has acknowledged what was not sent")?;
                outgoing.acknowledged(seq).map_err(|e| e.to_string())?;
                cx.windows.granted(self.to, credit);
                Ok(())
            }
            (Mail::Prepared(held), State::Finishing { held_since }) => {
                let outgoing = self.outgoing(cx).ok_or("nothing moves any more")?;
                outgoing.prepared(held).map_err(|e| e.to_string())?;
                self.state = State::Confirmed {
                    held_since,
                    is_overdue: false,
                };
                if cx.core.keyspace.planted.has(Bug::EarlyDelete) {
                    cx.core.keyspace.drop_copy(self.partition());
                }
                self.report(cx, true);
                cx.reports.tell(Report::Confirmed { migration, held });
                Ok(())
            }
            (mail, state) => Err(format!("the target has sent {mail:?} while {state:?}")),
        }
    }

    /// Goes on to what can be done now.
    fn advance(&mut self, cx: &mut Cx<'_>, groups: &Groups) -> Result<(), String> {
        let (now, partition) = (cx.now, self.partition());
        match self.state {
            State::Opening => self.watch(cx),
            State::Copying(since) => {
                let outgoing = self.outgoing(cx).ok_or("the copy does not move any more")?;
                let (stage, backlog) = (outgoing.stage(), outgoing.backlog_bytes());
                if groups.gives_up(backlog) {
                    return Err(format!(
                        "writes come faster than they can be sent: {backlog} bytes wait"
                    ));
                }
                self.watch(cx)?;
                if stage == Stage::Walking {
                    return Ok(());
                }
                let since = since.unwrap_or(now);
                self.state = State::Copying(Some(since));
                let waited = now.saturating_duration_since(since);
                if waited > CATCH_UP_MAX {
                    let seconds = CATCH_UP_MAX.as_secs();
                    return Err(format!(
                        "writes did not let the target catch up within {seconds} s"
                    ));
                }
                let mut at = self.clearing.unwrap_or(0);
                let is_clear = cx.core.keyspace.remove_expired_slice(partition, &mut at);
                self.clearing = (!is_clear).then_some(at);
                if !is_clear {
                    return Ok(());
                }
                if cx.handoff.may_begin(self.group, now)
                    && groups.get(self.group).is_ready(waited, backlog)
                {
                    self.finish(cx, partition)?;
                }
                Ok(())
            }
            State::Finishing { held_since } => {
                if now.saturating_duration_since(held_since) >= HOLD_MAX {
                    let ms = HOLD_MAX.as_millis();
                    return Err(format!("the target has not confirmed within {ms} ms"));
                }
                Ok(())
            }
            State::Confirmed {
                held_since,
                is_overdue,
            } => {
                if !is_overdue && now.saturating_duration_since(held_since) >= OVERDUE_AFTER {
                    self.state = State::Confirmed {
                        held_since,
                        is_overdue: true,
                    };
                    let migration = self.migration;
                    cx.reports.tell(Report::Overdue { migration });
                    if cx.core.keyspace.planted.has(Bug::Resumes) {
                        cx.core.resume(partition);
                    }
                }
                Ok(())
            }
        }
    }

    /// Holds commands and ends the stream.
    fn finish(&mut self, cx: &mut Cx<'_>, partition: PartitionId) -> Result<(), String> {
        cx.core.hold(partition);
        cx.handoff.begin(self.group, cx.now);
        self.state = State::Finishing { held_since: cx.now };
        let finished = cx.core.keyspace.try_finish(partition, usize::MAX);
        match finished {
            Ok(true) => Ok(()),
            Ok(false) => Err("the stream could not be ended".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Notices a target that says nothing although it should, every other second.
    fn watch(&self, cx: &mut Cx<'_>) -> Result<(), String> {
        match self.link.heard(cx.sockets) {
            Some(heard) if cx.now.saturating_duration_since(heard) >= SILENCE_MAX => {
                let seconds = SILENCE_MAX.as_secs();
                Err(format!("the target has been silent for {seconds} s"))
            }
            _ => Ok(()),
        }
    }

    /// Queues what may be sent now.
    fn send(&mut self, cx: &mut Cx<'_>) {
        let gathers = cx.gathers;
        loop {
            let has_room = cx.windows.has_room(self.to);
            let next = |outgoing: &mut Outgoing| outgoing.next_message(gathers, has_room);
            let mail = match self.outgoing(cx).and_then(next) {
                Some(Outbound::Data(records)) => {
                    cx.windows.sent(self.to, records.bytes.len());
                    Mail::Data(records)
                }
                Some(Outbound::Final(last)) => Mail::Final(last),
                None => break,
            };
            self.link.send(mail, cx.sockets);
        }
        self.link.flush(&cx.core.node);
    }

    /// Tells the node how far the move is, once in a while or `at_once`.
    fn report(&mut self, cx: &mut Cx<'_>, at_once: bool) {
        if !cx.tells_progress && !at_once {
            return;
        }
        if let Some(outgoing) = self.outgoing(cx) {
            (self.keys, self.bytes) = (outgoing.held().count, outgoing.bytes());
        }
        let held = self.held_since();
        let held = held.map(|since| cx.now.saturating_duration_since(since));
        cx.reports.tell(Report::Progress {
            migration: self.migration,
            keys: self.keys,
            bytes: self.bytes,
            hold_us: held.map_or(0, |held| held.as_micros().max(1) as u64),
        });
    }

    /// Since when commands are held.
    pub(super) fn held_since(&self) -> Option<Instant> {
        match self.state {
            State::Finishing { held_since } | State::Confirmed { held_since, .. } => {
                Some(held_since)
            }
            State::Opening | State::Copying(_) => None,
        }
    }

    pub(super) fn is_confirmed(&self) -> bool {
        matches!(self.state, State::Confirmed { .. })
    }

    /// Nothing more comes of the stream. The copy is served as before, unless the move was confirmed: from then on
    /// the table decides, whatever the target says or does, which keeps what it has prepared without a stream.
    pub(super) fn fail(&mut self, cx: &mut Cx<'_>, reason: &str) -> Fate {
        if self.is_confirmed() {
            self.close(cx, "");
            return Fate::GoesOn;
        }
        self.roll_back(cx, reason);
        cx.reports.tell(Report::RolledBack {
            migration: self.migration,
            reason: reason.to_owned(),
        });
        Fate::Over
    }

    /// Serves as before, and says so to the target.
    pub(super) fn roll_back(&mut self, cx: &mut Cx<'_>, reason: &str) {
        if self.outgoing(cx).is_some() {
            cx.core.keyspace.end_outgoing(self.partition());
        }
        self.note_waiting(cx);
        self.close(cx, reason);
        if self.held_since().is_some() {
            cx.core.resume(self.partition());
        }
    }

    /// The table has committed the move: the copy is given up by the caller.
    pub(super) fn committed(&mut self, cx: &mut Cx<'_>) {
        self.report(cx, true);
        self.note_waiting(cx);
        self.close(cx, "");
    }

    /// The hold is over, if there was one; the next one keeps its distance if commands have waited.
    fn note_waiting(&self, cx: &mut Cx<'_>) {
        if self.held_since().is_some() && cx.core.admission.held_commands() == 0 {
            cx.handoff.unnoticed(self.group, cx.now);
        }
    }

    fn close(&mut self, cx: &mut Cx<'_>, reason: &str) {
        let farewell = Mail::End(reason.to_owned());
        let node = &cx.core.node;
        self.link.close(Some(farewell), cx.sockets, node, cx.now);
    }

    /// When to look at the migration again although nothing happens.
    pub(super) fn next_look(&self, now: Instant) -> Option<Instant> {
        match self.state {
            State::Finishing { held_since } => Some(held_since + HOLD_MAX),
            State::Confirmed {
                held_since,
                is_overdue: false,
            } => Some(held_since + OVERDUE_AFTER),
            State::Copying(_) if self.clearing.is_some() => Some(now),
            State::Copying(Some(since)) => Some(Group::next(since)).filter(|next| *next > now),
            _ => None,
        }
    }
}
