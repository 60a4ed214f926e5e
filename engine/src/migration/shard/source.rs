//! The source's side of a batch: walks, sends, holds commands and waits for the decision.
//!
//! ```text
//! Opening -> Copying -> Finishing -> Confirmed -> (over: committed or aborted)
//!         ^ ACCEPTED  ^ held, FINAL ^ PREPARED
//! Opening | Copying | Finishing -> (over: rolled back, serves as before)
//! ```
//!
//! Its partitions are walked one after the other, then held in one turn, and all of them are confirmed, or none.
//!
//! *Invariant:* up to `Finishing` the source may roll back alone, since only it proposes to commit, and
//! only after [`Report::Confirmed`]. From then on nothing but the table's word ends the hold.

use std::time::{Duration, Instant};

use ephesus_wire::stream::{Contents, Message, Open};
use ephesus_wire::{MigrationId, NodeId, PartitionId};

use super::link::Link;
use super::mail::Mail;
use super::window::Peer;
use super::{ALIVE_EVERY, Cx, SILENCE_MAX};
use crate::migration::{Batch, Outbound, Outgoing, Records, Report, Stage};
use crate::planted::Bug;

/// What of a batch may be unacknowledged when its commands are held: they wait until the target has it, and a disk takes
/// a millisecond for that.
const HANDOFF_BACKLOG_BYTES: usize = 64 << 10;

/// How long a batch waits for that once its walk is over. Then it may be as much for each of its partitions: writes to all
/// of them may be more than the target keeps up with.
const HANDOFF_PATIENCE: Duration = Duration::from_secs(1);

/// Captured writes of all sources of a shard that may wait to be sent; above it the one fails that has most.
pub(super) const BACKLOG_BYTES_MAX: usize = 32 << 20;

/// Time between the beginnings of two handoffs of a shard, if the first is not decided sooner without a command that has
/// waited: what waits in one is over, with what queues behind it, long before the next.
pub(super) const HANDOFF_INTERVAL_MS: u64 = 100;

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

/// A batch that goes away from this shard.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) batch: MigrationId,
    moves: Vec<Move>,
    /// The shard that it goes to.
    to: Peer,
    link: Link,
    spoke: Instant,
    state: State,
    /// Which move's expired keys are being removed, and where that is; all are before the stream ends.
    clearing: Option<(usize, usize)>,
}

/// One partition of a batch.
#[derive(Debug)]
struct Move {
    migration: MigrationId,
    open: Open,
    /// What the target has prepared.
    contents: Option<Contents>,
    /// What was reported last.
    keys: u64,
    bytes: u64,
}

/// What a look at a batch has led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    GoesOn,
    Over,
}

/// The unsent bytes with which a source fails, of those of all sources of a shard; none while they may wait.
pub(super) fn gives_up_from(unsent: impl Iterator<Item = usize>) -> Option<usize> {
    let (all, most) = unsent.fold((0, 0), |(all, most), one| (all + one, one.max(most)));
    (all > BACKLOG_BYTES_MAX).then_some(most)
}

/// What may be unacknowledged of a batch of so many partitions whose walk was over so long ago, for it to be held.
fn handoff_backlog_bytes(waited: Duration, moves: usize) -> usize {
    match waited < HANDOFF_PATIENCE {
        true => HANDOFF_BACKLOG_BYTES,
        false => HANDOFF_BACKLOG_BYTES * moves,
    }
}

impl Move {
    fn outgoing<'a>(&self, cx: &'a mut Cx<'_>) -> Option<&'a mut Outgoing> {
        let outgoing = cx.core.keyspace.outgoing_mut(self.open.partition)?;
        (outgoing.migration == self.migration).then_some(outgoing)
    }

    /// Serves as before.
    fn roll_back(&self, cx: &mut Cx<'_>, is_held: bool) {
        if self.outgoing(cx).is_some() {
            cx.core.keyspace.end_outgoing(self.open.partition);
        }
        if is_held {
            cx.core.resume(self.open.partition);
        }
    }
}

impl Source {
    pub(super) fn new(batch: &Batch, to: NodeId, link: Link, now: Instant) -> Source {
        let moves = batch.moves().iter().map(|(migration, open)| Move {
            migration: *migration,
            open: *open,
            contents: None,
            keys: 0,
            bytes: 0,
        });
        Source {
            batch: batch.id(),
            moves: moves.collect(),
            to: (to, batch.first().target_shard),
            link,
            spoke: now,
            state: State::Opening,
            clearing: None,
        }
    }

    pub(super) fn deliver(&mut self, messages: Vec<(MigrationId, Mail)>, now: Instant) {
        self.link.deliver(messages, now);
    }

    /// The sum of what `of` finds, over all partitions that move.
    fn sum(&self, cx: &mut Cx<'_>, of: impl Fn(&Outgoing) -> usize) -> usize {
        let moves = self.moves.iter();
        moves
            .map(|one| one.outgoing(cx).map_or(0, |outgoing| of(outgoing)))
            .sum()
    }

    /// The partition that is being walked.
    fn walking(&self, cx: &mut Cx<'_>) -> Option<&Move> {
        let is_walking = |outgoing: &mut Outgoing| outgoing.stage() == Stage::Walking;
        let mut moves = self.moves.iter();
        moves.find(|one| one.outgoing(cx).is_some_and(is_walking))
    }

    /// Whether the walk would get on, and neither its target nor a limit keeps it from that.
    pub(super) fn may_walk(&self, cx: &mut Cx<'_>) -> bool {
        cx.windows.has_room(self.to)
            && cx.limit.permits(cx.now)
            && self
                .walking(cx)
                .and_then(|one| one.outgoing(cx))
                .is_some_and(|outgoing| outgoing.may_walk())
    }

    /// Whether something is still to be walked, and its target takes it now.
    pub(super) fn is_walking(&self, cx: &mut Cx<'_>) -> bool {
        cx.windows.has_room(self.to) && self.walking(cx).is_some()
    }

    /// The shard that it goes to, and what is under way there.
    pub(super) fn in_flight(&self, cx: &mut Cx<'_>) -> (Peer, usize) {
        (self.to, self.sum(cx, Outgoing::in_flight_bytes))
    }

    /// What waits to be sent while no commands are held.
    pub(super) fn unsent(&self, cx: &mut Cx<'_>) -> usize {
        match self.held_since() {
            Some(_) => 0,
            None => self.sum(cx, Outgoing::unsent_bytes),
        }
    }

    /// Whether captured writes may wait for each other: a walk is over.
    pub(super) fn gathers(&self) -> bool {
        matches!(self.state, State::Copying(_))
    }

    /// Walks on while `more`; with a limit one step, a few entries. Writes that are made meanwhile are sent
    /// whatever the limit is, or the move might never end.
    pub(super) fn walk(&mut self, cx: &mut Cx<'_>, mut more: impl FnMut() -> bool) {
        let is_limited = cx.limit.is_set();
        let more = || !is_limited && more();
        if let Some(one) = self.walking(cx) {
            let bytes = |cx: &mut Cx<'_>| one.outgoing(cx).map_or(0, |outgoing| outgoing.bytes());
            let before = bytes(cx);
            cx.core.keyspace.outgoing_slice(one.open.partition, more);
            let walked = bytes(cx) - before;
            cx.limit.spend(walked as usize);
        }
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

    /// Goes on where what has come, which was [taken](Source::take), permits it, and looks at the clock. To have
    /// `gives_up_from` unsent is too much.
    pub(super) fn tend(&mut self, cx: &mut Cx<'_>, gives_up_from: Option<usize>) -> Fate {
        match self.advance(cx, gives_up_from) {
            Ok(()) => {
                self.send(cx);
                self.report(cx, false);
                Fate::GoesOn
            }
            Err(reason) => self.fail(cx, &reason),
        }
    }

    fn take_messages(&mut self, cx: &mut Cx<'_>) -> Result<(), String> {
        while let Some((migration, message)) = self.link.front(cx.sockets)? {
            let mail = match message {
                Message::Accepted => Mail::Accepted,
                Message::Window { seq, credit } => Mail::Window { seq, credit },
                Message::Prepared(contents) => Mail::Prepared(contents),
                Message::Refused(reason) | Message::End(reason) => {
                    return Err(format!("the target: {reason}"));
                }
                _ => return Err("the target has sent what only a source sends".into()),
            };
            self.link.consume(cx.sockets);
            self.message(cx, migration, mail)?;
        }
        Ok(())
    }

    fn message(
        &mut self,
        cx: &mut Cx<'_>,
        migration: MigrationId,
        mail: Mail,
    ) -> Result<(), String> {
        let mut moves = self.moves.iter_mut();
        let one = moves.find(|one| one.migration == migration);
        let outgoing = one.as_ref().and_then(|one| one.outgoing(cx));
        match (mail, self.state) {
            (Mail::Accepted, State::Opening) => self.accepted(cx),
            (Mail::Window { seq, credit }, state) => {
                match (outgoing, state) {
                    (Some(outgoing), _) => {
                        outgoing.acknowledged(seq).map_err(|e| e.to_string())?;
                    }
                    // It is decided.
                    (None, State::Confirmed { .. }) => {}
                    (None, _) => return Err("the target has acknowledged what was not sent".into()),
                }
                cx.windows.granted(self.to, credit);
                Ok(())
            }
            (Mail::Prepared(contents), State::Finishing { held_since }) => {
                let outgoing = outgoing.ok_or("nothing moves any more")?;
                outgoing.prepared(contents).map_err(|e| e.to_string())?;
                if let Some(one) = one {
                    one.contents = Some(contents);
                }
                self.prepared(cx, held_since);
                Ok(())
            }
            (mail, state) => Err(format!("the target has sent {mail:?} while {state:?}")),
        }
    }

    /// The staging copies are there.
    fn accepted(&mut self, cx: &mut Cx<'_>) -> Result<(), String> {
        for Move {
            migration, open, ..
        } in &self.moves
        {
            let (keyspace, partition) = (&mut cx.core.keyspace, open.partition);
            let began = keyspace.begin_outgoing(partition, *migration, open.epoch);
            began.map_err(|error| error.to_string())?;
            let copy = keyspace.partition(partition);
            let keys = copy.map_or(0, |copy| copy.table.len());
            let keys = Mail::Keys(keys as u64);
            self.link.send(*migration, keys, cx.sockets);
        }
        self.state = State::Copying(None);
        Ok(())
    }

    /// The target has prepared one: reports all when that was the last.
    fn prepared(&mut self, cx: &mut Cx<'_>, held_since: Instant) {
        let contents = self
            .moves
            .iter()
            .map(|one| Some((one.migration, one.contents?)));
        let Some(contents) = contents.collect::<Option<Vec<_>>>() else {
            return;
        };
        self.state = State::Confirmed {
            held_since,
            is_overdue: false,
        };
        if cx.core.keyspace.planted.has(Bug::EarlyDelete) {
            for one in &self.moves {
                cx.core.keyspace.drop_copy(one.open.partition);
            }
        }
        self.report(cx, true);
        let batch = self.batch;
        cx.reports.tell(Report::Confirmed { batch, contents });
    }

    /// Goes on to what can be done now.
    fn advance(&mut self, cx: &mut Cx<'_>, gives_up_from: Option<usize>) -> Result<(), String> {
        let now = cx.now;
        let waited = |since: Instant| now.saturating_duration_since(since);
        match self.state {
            State::Opening => self.watch(cx),
            State::Copying(since) => {
                if self.moves.iter().any(|one| one.outgoing(cx).is_none()) {
                    return Err("the copy does not move any more".into());
                }
                let unsent = self.unsent(cx);
                if gives_up_from.is_some_and(|most| unsent >= most) {
                    return Err(format!(
                        "writes come faster than they can be sent: {unsent} bytes wait"
                    ));
                }
                self.watch(cx)?;
                if self.walking(cx).is_some() {
                    self.state = State::Copying(None);
                    return Ok(());
                }
                let since = since.unwrap_or(now);
                self.state = State::Copying(Some(since));
                if waited(since) > CATCH_UP_MAX {
                    let seconds = CATCH_UP_MAX.as_secs();
                    return Err(format!(
                        "writes did not let the target catch up within {seconds} s"
                    ));
                }
                let most = handoff_backlog_bytes(waited(since), self.moves.len());
                let backlog = self.sum(cx, Outgoing::backlog_bytes);
                if now < *cx.handoff || backlog > most {
                    self.clearing = None;
                    return Ok(());
                }
                match self.is_clear(cx) {
                    true => self.finish(cx),
                    false => Ok(()),
                }
            }
            State::Finishing { held_since } if waited(held_since) >= HOLD_MAX => {
                let ms = HOLD_MAX.as_millis();
                Err(format!("the target has not confirmed within {ms} ms"))
            }
            State::Confirmed {
                held_since,
                is_overdue: false,
            } if waited(held_since) >= OVERDUE_AFTER => {
                self.state = State::Confirmed {
                    held_since,
                    is_overdue: true,
                };
                let batch = self.batch;
                cx.reports.tell(Report::Overdue { batch });
                if cx.core.keyspace.planted.has(Bug::Resumes) {
                    for one in &self.moves {
                        cx.core.resume(one.open.partition);
                    }
                }
                Ok(())
            }
            State::Finishing { .. } | State::Confirmed { .. } => Ok(()),
        }
    }

    /// Removes expired keys, one slice a turn; whether there are none.
    fn is_clear(&mut self, cx: &mut Cx<'_>) -> bool {
        let (mut number, mut at) = self.clearing.take().unwrap_or_default();
        while let Some(one) = self.moves.get(number) {
            let keyspace = &mut cx.core.keyspace;
            if !keyspace.remove_expired_slice(one.open.partition, &mut at) {
                self.clearing = Some((number, at));
                return false;
            }
            number += 1;
        }
        true
    }

    /// Holds commands and ends the stream.
    fn finish(&mut self, cx: &mut Cx<'_>) -> Result<(), String> {
        *cx.handoff = cx.now + Duration::from_millis(HANDOFF_INTERVAL_MS);
        self.state = State::Finishing { held_since: cx.now };
        for one in &self.moves {
            cx.core.hold(one.open.partition);
        }
        for one in &self.moves {
            let keyspace = &mut cx.core.keyspace;
            match keyspace.try_finish(one.open.partition, usize::MAX) {
                Ok(true) => {}
                Ok(false) => return Err("the stream could not be ended".into()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
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
        for one in &self.moves {
            loop {
                let has_room = cx.windows.has_room(self.to);
                let next = |outgoing: &mut Outgoing| outgoing.next_message(gathers, has_room);
                let mail = match one.outgoing(cx).and_then(next) {
                    Some(Outbound::Data(records)) => {
                        cx.windows.sent(self.to, records.bytes.len());
                        Mail::Data(records)
                    }
                    Some(Outbound::Final(last)) => Mail::Final(last),
                    None => break,
                };
                self.link.send(one.migration, mail, cx.sockets);
                self.spoke = cx.now;
            }
        }
        if self.next_word().is_some_and(|at| cx.now >= at) {
            self.spoke = cx.now;
            self.say_alive(cx);
        }
        self.link.flush(&cx.core.node);
    }

    /// When to say that there is a source although it has nothing to send: it waits for its turn to walk, for credit, for a
    /// limit or for its handoff.
    fn next_word(&self) -> Option<Instant> {
        matches!(self.state, State::Copying(_)).then_some(self.spoke + ALIVE_EVERY)
    }

    /// A message without records, unless others are still to leave, which say it as well.
    fn say_alive(&mut self, cx: &mut Cx<'_>) {
        if let Some(first) = self.moves.first()
            && !self.link.has_unsent(cx.sockets)
        {
            let nothing = Mail::Data(Records::default());
            self.link.send(first.migration, nothing, cx.sockets);
        }
    }

    /// Tells the node how far the moves are, once in a while or `at_once`.
    fn report(&mut self, cx: &mut Cx<'_>, at_once: bool) {
        if !cx.tells_progress && !at_once {
            return;
        }
        let held = self.held_since();
        let held = held.map(|since| cx.now.saturating_duration_since(since));
        for one in &mut self.moves {
            if let Some(outgoing) = one.outgoing(cx) {
                (one.keys, one.bytes) = (outgoing.contents().count, outgoing.bytes());
            }
            cx.reports.tell(Report::Progress {
                migration: one.migration,
                keys: one.keys,
                bytes: one.bytes,
                hold_us: held.map_or(0, |held| held.as_micros().max(1) as u64),
            });
        }
    }

    /// Since when commands are held.
    fn held_since(&self) -> Option<Instant> {
        match self.state {
            State::Finishing { held_since } | State::Confirmed { held_since, .. } => {
                Some(held_since)
            }
            State::Opening | State::Copying(_) => None,
        }
    }

    fn is_confirmed(&self) -> bool {
        matches!(self.state, State::Confirmed { .. })
    }

    /// Nothing more comes of the stream. The copies are served as before, unless the batch was confirmed: from then on
    /// the table decides, whatever the target says or does, which keeps what it has prepared without a stream.
    pub(super) fn fail(&mut self, cx: &mut Cx<'_>, reason: &str) -> Fate {
        if self.is_confirmed() {
            self.close(cx, "");
            return Fate::GoesOn;
        }
        self.note_waiting(cx);
        self.close(cx, reason);
        for one in &self.moves {
            one.roll_back(cx, self.held_since().is_some());
        }
        cx.reports.tell(Report::RolledBack {
            batch: self.batch,
            reason: reason.to_owned(),
        });
        Fate::Over
    }

    /// The table has aborted one: all of the batch goes no further, unless it was confirmed.
    pub(super) fn aborted(&mut self, cx: &mut Cx<'_>, migration: MigrationId) -> Fate {
        let mut moves = self.moves.iter();
        match moves.position(|one| one.migration == migration) {
            None => Fate::GoesOn,
            Some(_) if !self.is_confirmed() => self.fail(cx, "the move was aborted"),
            Some(at) => {
                self.note_waiting(cx);
                self.moves.remove(at).roll_back(cx, true);
                self.decided(cx)
            }
        }
    }

    /// The partition has moved on: its copy is dropped by the caller.
    pub(super) fn committed(&mut self, cx: &mut Cx<'_>, partition: PartitionId) -> Fate {
        let mut moves = self.moves.iter();
        let Some(at) = moves.position(|one| one.open.partition == partition) else {
            return Fate::GoesOn;
        };
        self.report(cx, true);
        self.note_waiting(cx);
        self.moves.remove(at);
        match self.is_confirmed() || self.moves.is_empty() {
            true => self.decided(cx),
            false => self.fail(cx, "a partition of its batch has moved on"),
        }
    }

    /// One is decided: the stream ends with the last one.
    fn decided(&mut self, cx: &mut Cx<'_>) -> Fate {
        if !self.moves.is_empty() {
            return Fate::GoesOn;
        }
        self.close(cx, "");
        Fate::Over
    }

    /// The hold ends, if there is one; the next one keeps its distance if commands have waited.
    fn note_waiting(&self, cx: &mut Cx<'_>) {
        if self.held_since().is_some() && cx.core.admission.held_commands() == 0 {
            *cx.handoff = cx.now.min(*cx.handoff);
        }
    }

    fn close(&mut self, cx: &mut Cx<'_>, reason: &str) {
        let farewell = Mail::End(reason.to_owned());
        let node = &cx.core.node;
        self.link.close(farewell, cx.sockets, node, cx.now);
    }

    /// When to look at the batch again although nothing happens.
    pub(super) fn next_look(&self, now: Instant) -> Option<Instant> {
        match self.state {
            State::Finishing { held_since } => Some(held_since + HOLD_MAX),
            State::Confirmed {
                held_since,
                is_overdue: false,
            } => Some(held_since + OVERDUE_AFTER),
            State::Copying(_) if self.clearing.is_some() => Some(now),
            _ => self.next_word(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_batch_waits_for_long_for_its_partitions_to_be_quiet_at_once() {
        let before = HANDOFF_PATIENCE - Duration::from_millis(1);
        assert_eq!(handoff_backlog_bytes(before, 16), HANDOFF_BACKLOG_BYTES);
        assert_eq!(handoff_backlog_bytes(HANDOFF_PATIENCE, 16), 1 << 20);
    }

    #[test]
    fn above_the_bound_of_the_shard_the_source_gives_up_that_has_most() {
        let half = BACKLOG_BYTES_MAX / 2;
        assert_eq!(
            gives_up_from([half, half].into_iter()),
            None,
            "all may wait"
        );
        let above = gives_up_from([half, half + 1, 10].into_iter());
        assert_eq!(above, Some(half + 1), "others go on");
    }
}
