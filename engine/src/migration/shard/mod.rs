//! Migrations as one shard carries them out: the streams, both ends' drivers, and the node's orders.
//!
//! ```text
//! node -- Order --> orders.rs -> Source | Target -> Keyspace, holds
//!      <- Report --                  |
//!                                  Link -> Sockets (the shard's ring) | inbox of a shard of this node
//! ```
//!
//! Everything happens in the shard's loop: messages and deadlines in its turn, walking and importing in
//! slices between turns, as [`share`] permits. A source's and a target's drivers forget a migration once
//! it is decided; what is left to be done is found by the state of the copy, which a restart keeps.

mod input;
mod interval;
mod link;
mod mail;
mod orders;
mod reports;
mod share;
mod socket;
mod source;
mod target;
mod window;

pub use mail::{End, Mail};

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use ephesus_wire::{Epoch, Lsn, MigrationId, PartitionId};

use crate::migration::Report;
use crate::net::{StreamId, StreamIo};
use crate::shard::core::Core;
use interval::Interval;
use reports::Reports;
use share::{Limit, Share};
use socket::Sockets;
use source::{Fate, Source, gives_up_from};
use target::Target;
use window::{Imported, Peer, Windows, credit};

/// A stream of which nothing comes for so long is broken.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How often an end that has nothing else to say says that it is still there.
const ALIVE_EVERY: Duration = Duration::from_secs(2);

/// Batches that are walked at a time, of those whose targets have room: with fewer a small one waits more often behind large ones, with more there are
/// more writes to capture, which are sent twice. The others wait for their turn.
const WALKING_MAX: usize = 4;

/// How often captured writes leave, those of all copies together, if their messages are not full before. Nobody waits for
/// them before commands are held, and sent one by one each costs both ends a system call, a wake-up and an
/// acknowledgement, and the target a synced write of its log: as much as its client's own.
const GATHER_INTERVAL: Duration = Duration::from_millis(20);

/// How often the node is told how far the moves are: all together, for its thread and the coordinator's have to
/// wake up each time.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// All migrations of one shard.
#[derive(Debug)]
pub struct ShardMigrations {
    sources: Vec<Source>,
    targets: Vec<Target>,
    sockets: Sockets,
    reports: Reports,
    limit: Limit,
    share: Share,
    /// No handoff begins before.
    handoff: Instant,
    gathered: Interval,
    progress: Interval,
    windows: Windows,
    imported: Imported,
    /// Copies that the checkpointer has to remove.
    leaving: Vec<(PartitionId, Epoch)>,
    /// Counts slices, so that streams take turns.
    turn: usize,
    /// When something has to be looked at although nothing happens.
    next_look: Option<Instant>,
    /// Time that slices have taken since it was asked for.
    took: Duration,
    /// What the last look at all moves has found.
    seen: Seen,
    /// Something has come for a move, or was done for one, since then.
    is_touched: bool,
}

/// What moves wait for in their shard, beside what comes for them and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    committed: Lsn,
    durable: Lsn,
    log_behind: bool,
    log_has_room: bool,
}

/// What a driver works with.
struct Cx<'a> {
    core: &'a mut Core,
    sockets: &'a mut Sockets,
    reports: &'a mut Reports,
    limit: &'a mut Limit,
    handoff: &'a mut Instant,
    windows: &'a mut Windows,
    /// Captured writes wait for others in this turn.
    gathers: bool,
    /// Each move tells in this turn how far it is.
    tells_progress: bool,
    now: Instant,
}

impl ShardMigrations {
    /// A shard without migrations, which reports to its node through `reports`.
    #[must_use]
    pub fn new(reports: flume::Sender<Vec<Report>>, now: Instant) -> ShardMigrations {
        ShardMigrations {
            sources: Vec::new(),
            targets: Vec::new(),
            sockets: Sockets::default(),
            reports: Reports::new(reports),
            limit: Limit::none(now),
            share: Share::new(now),
            handoff: now,
            gathered: Interval::new(GATHER_INTERVAL, now),
            progress: Interval::new(PROGRESS_EVERY, now),
            windows: Windows::default(),
            imported: Imported::default(),
            leaving: Vec::new(),
            turn: 0,
            next_look: None,
            took: Duration::ZERO,
            seen: Seen::default(),
            is_touched: false,
        }
    }

    /// Calls `f` with the sources, the targets and what they work with.
    fn with<T>(
        &mut self,
        core: &mut Core,
        now: Instant,
        f: impl FnOnce(&mut Vec<Source>, &mut Vec<Target>, &mut Cx<'_>) -> T,
    ) -> T {
        let mut cx = Cx {
            core,
            sockets: &mut self.sockets,
            reports: &mut self.reports,
            limit: &mut self.limit,
            handoff: &mut self.handoff,
            windows: &mut self.windows,
            gathers: !self.gathered.is_due(),
            tells_progress: self.progress.is_due(),
            now,
        };
        f(&mut self.sources, &mut self.targets, &mut cx)
    }

    /// Takes messages of another shard of this node; those of a batch that is over are dropped.
    pub fn deliver(
        &mut self,
        batch: MigrationId,
        to: End,
        messages: Vec<(MigrationId, Mail)>,
        now: Instant,
    ) {
        self.is_touched = true;
        match to {
            End::Source => {
                let mut sources = self.sources.iter_mut();
                if let Some(source) = sources.find(|source| source.batch == batch) {
                    source.deliver(messages, now);
                }
            }
            End::Target => {
                let mut targets = self.targets.iter_mut();
                if let Some(target) = targets.find(|target| target.batch == batch) {
                    target.deliver(messages, now);
                }
            }
        }
    }

    pub fn received(&mut self, stream: StreamId, result: io::Result<usize>) {
        self.is_touched = true;
        self.sockets.received(stream, result);
    }

    pub fn sent(&mut self, stream: StreamId, result: io::Result<usize>) {
        self.is_touched = true;
        self.sockets.sent(stream, result);
    }

    /// Takes what has come, answers what is due, and issues I/O. Once a turn, after the log's completions.
    pub fn tend(&mut self, core: &mut Core, ring: &mut impl StreamIo, now: Instant) {
        self.gathered.look(now);
        self.progress.look(now);
        if !self.has_news(core, now) {
            return;
        }
        self.limit.refill(now);
        if self.sources.is_empty() && self.targets.is_empty() {
            self.next_look = None;
        } else {
            self.with(core, now, |sources, targets, cx| {
                sources.retain_mut(|source| source.take(cx) == Fate::GoesOn);
                targets.retain_mut(|target| target.take(cx) == Fate::GoesOn);
            });
            let credit = self.credit(core);
            self.with(core, now, |sources, targets, cx| {
                let in_flight: Vec<_> = sources.iter().map(|s| s.in_flight(cx)).collect();
                cx.windows.count(in_flight.into_iter());
                let most = gives_up_from(sources.iter().map(|source| source.unsent(cx)));
                sources.retain_mut(|source| source.tend(cx, most) == Fate::GoesOn);
                targets.retain_mut(|target| target.tend(cx, credit) == Fate::GoesOn);
            });
            let sources = self.sources.iter();
            let sources = sources.filter_map(|source| source.next_look(now));
            let targets = self.targets.iter().filter_map(Target::next_look);
            let is_source = !self.sources.is_empty();
            let gathers = self.sources.iter().any(Source::gathers);
            let others = [
                self.limit.next(),
                gathers.then(|| self.gathered.next()),
                is_source.then(|| self.progress.next()),
                (is_source && self.handoff > now).then_some(self.handoff),
            ];
            let others = others.into_iter().flatten();
            self.next_look = sources.chain(targets).chain(others).min();
        }
        self.reports.send(&core.keyspace.log);
        self.sockets.pump(ring, now);
    }

    /// What each source's shard is given.
    fn credit(&self, core: &Core) -> usize {
        let filling = self.targets.iter().filter(|target| target.is_filling());
        let sources: BTreeSet<Peer> = filling.map(|target| target.from).collect();
        credit(core.admission.log_room.has_room_for_moves, sources.len())
    }

    /// Whether there may be anything to do for a move. Clients' writes alone are nothing: they leave together,
    /// when the next look is due.
    fn has_news(&mut self, core: &Core, now: Instant) -> bool {
        let log = &core.keyspace.log;
        let seen = Seen {
            committed: log.committed(),
            durable: log.durable(),
            log_behind: core.admission.log_room.is_behind(),
            log_has_room: core.admission.log_room.has_room_for_moves,
        };
        let is_due = self.next_look().is_none_or(|at| now >= at);
        let is_touched = std::mem::take(&mut self.is_touched);
        let has_changed = std::mem::replace(&mut self.seen, seen) != seen;
        is_touched || has_changed || is_due
    }

    /// Walks or imports for one stream after the other, if requests permit it, until the time for that is
    /// over; true when there is more to be done at once. Right after the turn that began at `now`, and
    /// `had_requests`; `clock` is asked for the time, `is_urgent` says that images come first.
    pub fn slice(
        &mut self,
        core: &mut Core,
        ring: &mut impl StreamIo,
        (now, had_requests): (Instant, bool),
        clock: fn() -> Instant,
        is_urgent: bool,
    ) -> bool {
        if self.sources.is_empty() && self.targets.is_empty() {
            if had_requests {
                self.share.requested(now);
            }
            return false;
        }
        let started = clock();
        if had_requests {
            self.share.requested(started);
        }
        let Some(mut at) = self.next_stream(core, now) else {
            return false;
        };
        let Some(slice) = self.share.slice(started) else {
            let next = self.share.next();
            self.next_look = Some(self.next_look.map_or(next, |look| look.min(next)));
            return false;
        };
        let more = || clock().saturating_duration_since(started) < slice;
        loop {
            self.turn = at + 1;
            let before = core.keyspace.log.unwritten_bytes();
            self.with(core, now, |sources, targets, cx| {
                if let Some(source) = sources.get_mut(at) {
                    source.walk(cx, more);
                } else {
                    let at = at - sources.len();
                    let target = targets.get_mut(at);
                    if target.is_some_and(|target| target.import(cx, more) == Fate::Over) {
                        targets.remove(at);
                    }
                }
            });
            let log = &core.keyspace.log;
            self.imported
                .appended(log.appended(), log.unwritten_bytes() - before);
            if !more() {
                break;
            }
            let Some(next) = self.next_stream(core, now) else {
                break;
            };
            at = next;
        }
        self.is_touched = true;
        self.sockets.pump(ring, now);
        let took = clock().saturating_duration_since(started);
        self.share.took(started, took, is_urgent);
        self.took += took;
        // Also what was just logged or queued needs another turn.
        true
    }

    /// The time that slices have taken since this was called last.
    pub(crate) fn take_time(&mut self) -> Duration {
        std::mem::take(&mut self.took)
    }

    /// The next stream in turn that would get on with a slice: sources first, targets behind them.
    fn next_stream(&mut self, core: &mut Core, now: Instant) -> Option<usize> {
        let first = self.turn;
        let may_import = self.imported.has_room(core.keyspace.log.written());
        self.with(core, now, |sources, targets, cx| {
            // What is captured early is sent on top of a limit.
            let at_a_time = if cx.limit.is_set() { 1 } else { WALKING_MAX };
            let walking = sources.iter().enumerate();
            let mut walking = walking.filter(|(_, source)| source.is_walking(cx));
            let walked_now = match walking.nth(at_a_time - 1) {
                Some((last, _)) => last + 1,
                None => sources.len(),
            };
            let count = sources.len() + targets.len();
            let mut in_turn = (0..count).map(|step| (first + step) % count);
            in_turn.find(|&at| match sources.get(at) {
                Some(source) => at < walked_now && source.may_walk(cx),
                None => {
                    let Some(target) = targets.get_mut(at - sources.len()) else {
                        return false;
                    };
                    may_import && target.may_import(cx)
                }
            })
        })
    }

    /// When to call [`ShardMigrations::tend`] and [`ShardMigrations::slice`] although nothing happens.
    #[must_use]
    pub fn next_look(&self) -> Option<Instant> {
        self.next_look
            .into_iter()
            .chain(self.sockets.deadline())
            .min()
    }

    /// Whether copies are on their way to this shard.
    #[must_use]
    pub fn are_filling(&self) -> bool {
        self.targets.iter().any(Target::is_filling)
    }

    /// Whether a source waits until its copy here is complete and durable.
    fn are_preparing(&self) -> bool {
        self.targets.iter().any(Target::is_preparing)
    }

    /// Whether something waits for the log to be durable that is committed: with relaxed durability it
    /// should be synced now.
    #[must_use]
    pub fn wait_for_sync(&self, core: &Core) -> bool {
        let log = &core.keyspace.log;
        self.reports.wait_for_sync(log) || (log.durable() < log.committed() && self.are_preparing())
    }

    /// Ends all streams: the node stops. What was confirmed waits for the decision at the next start.
    pub fn stop(&mut self, now: Instant) {
        self.sources.clear();
        self.targets.clear();
        self.sockets.shut_all(now);
    }

    /// The streams in which nothing is sent any more, and whether nothing is received either.
    #[cfg(feature = "planted")]
    pub fn ended_streams(&self) -> impl Iterator<Item = (StreamId, bool)> + '_ {
        self.sockets.ended()
    }

    /// Whether the ring has nothing under way for a stream.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.sockets.is_empty()
    }

    /// The copies that orders have had removed since the last call: their images go, then the copies.
    pub fn take_leaving(&mut self) -> Vec<(PartitionId, Epoch)> {
        std::mem::take(&mut self.leaving)
    }

    /// Nothing is left of a copy.
    pub fn removed(&mut self, partition: PartitionId, epoch: Epoch) {
        self.is_touched = true;
        self.reports.tell(Report::Forgotten { partition, epoch });
    }
}

#[cfg(test)]
mod tests;
