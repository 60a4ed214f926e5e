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

mod beat;
mod group;
mod imported;
mod input;
mod link;
mod mail;
mod orders;
mod reports;
mod share;
mod socket;
mod source;
mod target;

pub use mail::{End, Mail};

use std::io;
use std::time::{Duration, Instant};

use ephesus_wal::LogWriter;
use ephesus_wire::{Epoch, Lsn, MigrationId, PartitionId};

use super::core::Core;
use super::segments::Clients;
use crate::migration::Report;
use crate::net::{StreamId, StreamIo};
use beat::Beat;
use group::Groups;
use imported::Imported;
use reports::Reports;
use share::{Limit, Share};
use socket::Sockets;
use source::{Fate, Source};
use target::Target;

/// A stream of which nothing comes for so long, although the other end owes something, is broken.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Copies that are walked at a time: each may have some MB under way, and streams of small copies are not
/// to wait for a large one.
const WALKING_MAX: usize = 4;

/// What imports have added to the log and is not written, above which nothing is imported while clients wait for the
/// log, here or at the source: their writes, and the end of a stream, come behind it on the device. What they write
/// themselves does not count, or they could keep moves from going on.
const IMPORTED_BYTES_MAX: usize = 512 << 10;

/// The same for all that is not written, while no client waits: as much as keeps the log's writes going. More would
/// only be in front of the end of streams.
const UNWRITTEN_BYTES_MAX: usize = 8 << 20;

/// How long nothing is walked and imported at either end once commands of clients are held, unless it is decided
/// before: what leads to the decision, at the target, at the coordinators and here, would wait for CPUs and disks
/// behind it.
const PAUSED_MAX: Duration = Duration::from_millis(50);

/// Least time between the beginnings of two handoffs of a shard, if commands have waited for the first: what waits in
/// one is over, with what queues behind it, long before the next.
const HANDOFF_INTERVAL_MS: u64 = 100;

/// How often captured writes leave while there are clients, those of all copies together, if their messages are
/// not full before. Nobody waits for them before commands are held, and sent one by one each costs both ends a
/// system call, a wake-up and an acknowledgement, and the target a synced write of its log: as much as its
/// client's own.
const GATHERED_EVERY: Duration = Duration::from_millis(20);

/// How often the node is told how far the moves are: all together, for its thread and the coordinator's have to
/// wake up each time.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// All migrations of one shard.
#[derive(Debug)]
pub struct Moves {
    sources: Vec<Source>,
    targets: Vec<Target>,
    groups: Groups,
    sockets: Sockets,
    reports: Reports,
    limit: Limit,
    share: Share,
    /// No hold begins before.
    next_handoff: Instant,
    gathered: Beat,
    progress: Beat,
    imported: Imported,
    /// Copies that the checkpointer has to remove.
    leaving: Vec<(PartitionId, Epoch)>,
    /// Counts slices, so that streams take turns.
    turn: usize,
    /// When something has to be looked at although nothing happens.
    next_look: Option<Instant>,
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
    has_clients: bool,
}

/// What a driver works with.
struct Cx<'a> {
    core: &'a mut Core,
    sockets: &'a mut Sockets,
    reports: &'a mut Reports,
    limit: &'a mut Limit,
    next_handoff: &'a mut Instant,
    /// Clients use this shard.
    has_clients: bool,
    /// Captured writes wait for others in this turn.
    gathers: bool,
    /// Each move tells in this turn how far it is.
    tells_progress: bool,
    now: Instant,
}

impl Moves {
    /// A shard without migrations, which reports to its node through `reports`.
    #[must_use]
    pub fn new(reports: flume::Sender<Vec<Report>>, now: Instant) -> Moves {
        Moves {
            sources: Vec::new(),
            targets: Vec::new(),
            groups: Groups::default(),
            sockets: Sockets::default(),
            reports: Reports::new(reports),
            limit: Limit::none(now),
            share: Share::new(now),
            next_handoff: now,
            gathered: Beat::new(GATHERED_EVERY, now),
            progress: Beat::new(PROGRESS_EVERY, now),
            imported: Imported::default(),
            leaving: Vec::new(),
            turn: 0,
            next_look: None,
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
        let has_clients = self.has_clients(now);
        let mut cx = Cx {
            core,
            sockets: &mut self.sockets,
            reports: &mut self.reports,
            limit: &mut self.limit,
            next_handoff: &mut self.next_handoff,
            has_clients,
            gathers: has_clients && !self.gathered.is_due(),
            tells_progress: self.progress.is_due(),
            now,
        };
        f(&mut self.sources, &mut self.targets, &mut cx)
    }

    /// Whether clients use the shard, also if not at this moment.
    #[must_use]
    pub fn has_clients(&self, now: Instant) -> bool {
        self.share.has_clients(now)
    }

    /// Which clients wait for the shard's log.
    #[must_use]
    pub fn clients(&self, now: Instant) -> Clients {
        if self.has_clients(now) {
            Clients::Own
        } else if self.targets.iter().any(Target::source_has_clients) {
            Clients::OfSources
        } else {
            Clients::None
        }
    }

    /// Takes messages of another shard of this node; those of a migration that is over are dropped.
    pub fn deliver(&mut self, migration: MigrationId, to: End, messages: Vec<Mail>, now: Instant) {
        self.is_touched = true;
        match to {
            End::Source => {
                let mut sources = self.sources.iter_mut();
                if let Some(source) = sources.find(|source| source.migration == migration) {
                    source.deliver(messages, now);
                }
            }
            End::Target => {
                let mut targets = self.targets.iter_mut();
                if let Some(target) = targets.find(|target| target.migration == migration) {
                    target.deliver(messages, now);
                }
            }
        }
    }

    pub fn received(&mut self, stream: StreamId, result: io::Result<usize>, now: Instant) {
        self.is_touched = true;
        self.sockets.received(stream, result, now);
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
        if self.sources.is_empty() && self.targets.is_empty() {
            self.next_look = None;
        } else {
            self.with(core, now, take_in_order);
            let pauses = self.pauses(now);
            let is_log_clear = self.imported.unwritten(core.keyspace.log.written()) == 0;
            let mut groups = std::mem::take(&mut self.groups);
            self.with(core, now, |sources, targets, cx| {
                let holds = sources.iter();
                let holds = holds.filter_map(|source| Some((source.held_since()?, source.group)));
                let standings = sources.iter().filter_map(|source| source.standing(cx));
                groups.count(standings, holds);
                sources.retain_mut(|source| source.tend(cx, &groups) == Fate::GoesOn);
                let_hold(targets, is_log_clear, cx);
                targets.retain_mut(|target| target.tend(cx, pauses) == Fate::GoesOn);
            });
            self.groups = groups;
            let sources = self.sources.iter();
            let sources = sources.filter_map(|source| source.next_look(now));
            let targets = self.targets.iter().filter_map(Target::next_look);
            let is_source = !self.sources.is_empty();
            let others = [
                self.pauses_until(now),
                self.limit.next(),
                Some(self.next_handoff).filter(|next| *next > now),
                (is_source && self.has_clients(now)).then(|| self.gathered.next()),
                is_source.then(|| self.progress.next()),
            ];
            let others = others.into_iter().flatten();
            self.next_look = sources.chain(targets).chain(others).min();
        }
        self.reports.send(&core.keyspace.log);
        self.sockets.pump(ring, now);
    }

    /// Whether there may be anything to do for a move. Clients' writes alone are nothing: they leave together,
    /// when the next look is due.
    fn has_news(&mut self, core: &Core, now: Instant) -> bool {
        let log = &core.keyspace.log;
        let seen = Seen {
            committed: log.committed(),
            durable: log.durable(),
            log_behind: core.log_behind,
            log_has_room: core.log_has_room,
            has_clients: self.has_clients(now),
        };
        let is_due = self.next_look().is_none_or(|at| now >= at);
        let is_touched = std::mem::take(&mut self.is_touched);
        let has_changed = std::mem::replace(&mut self.seen, seen) != seen;
        is_touched || has_changed || is_due || !seen.has_clients
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
                self.share.requested(now, now);
            }
            return false;
        }
        let started = clock();
        if had_requests {
            self.share.requested(now, started);
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
        let socket_bytes = self.sockets.take_moved_bytes();
        self.share.took(started, took, socket_bytes, is_urgent);
        // Also what was just logged or queued needs another turn.
        true
    }

    /// The next stream in turn that would get on with a slice: sources first, targets behind them.
    fn next_stream(&mut self, core: &mut Core, now: Instant) -> Option<usize> {
        let first = self.turn;
        // In a pause only what is in front of ends that come.
        let ending = self.pauses(now).then(|| {
            let ending = self.targets.iter().filter(|target| target.is_ending());
            ending.map(Target::from).collect::<Vec<_>>()
        });
        if ending.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        let log_takes_imports = self.log_takes_imports(&core.keyspace.log, now);
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
                Some(source) => ending.is_none() && at < walked_now && source.may_walk(cx),
                None => {
                    let Some(target) = targets.get_mut(at - sources.len()) else {
                        return false;
                    };
                    let is_in_turn = ending.as_ref().is_none_or(|e| e.contains(&target.from()));
                    log_takes_imports && is_in_turn && target.may_import(cx)
                }
            })
        })
    }

    /// Whether clients wait for what is being decided, so that whatever may wait does.
    #[must_use]
    pub fn pauses(&self, now: Instant) -> bool {
        self.pauses_until(now).is_some()
    }

    /// Until when nothing is walked or imported at the latest, if it is not now: clients wait for what is decided.
    fn pauses_until(&self, now: Instant) -> Option<Instant> {
        if self.clients(now) == Clients::None {
            return None;
        }
        let at_sources = self.sources.iter().filter_map(Source::held_since);
        let at_targets = self.targets.iter().filter_map(Target::held_since);
        let last = at_sources.chain(at_targets).max()?;
        Some(last + PAUSED_MAX).filter(|until| *until > now)
    }

    /// Whether imports may add to the log.
    fn log_takes_imports(&mut self, log: &LogWriter, now: Instant) -> bool {
        if self.clients(now) != Clients::None {
            self.imported.unwritten(log.written()) <= IMPORTED_BYTES_MAX
        } else {
            log.unwritten_bytes() <= UNWRITTEN_BYTES_MAX
        }
    }

    /// When to call [`Moves::tend`] and [`Moves::slice`] although nothing happens.
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
    #[must_use]
    pub fn are_preparing(&self) -> bool {
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

/// Takes what sources wait for and what is urgent for targets, of all in the order in which it has come: streams
/// that share a socket are behind one another. Groups are counted behind it.
fn take_in_order(sources: &mut Vec<Source>, targets: &mut Vec<Target>, cx: &mut Cx<'_>) {
    let first_of = |sources: &[Source], cx: &mut Cx<'_>| {
        let of_source = |id| sources.iter().any(|source| source.migration == id);
        let id = cx.sockets.first_of(of_source)?;
        sources.iter().position(|source| source.migration == id)
    };
    while let Some(at) = first_of(sources, cx)
        && let Some(source) = sources.get_mut(at)
    {
        if source.take(cx) == Fate::Over {
            sources.remove(at);
        }
    }
    // And what has come from shards of this node.
    sources.retain_mut(|source| source.take(cx) == Fate::GoesOn);
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        targets.retain_mut(|target| {
            let (fate, has_taken) = target.take_urgent(cx);
            goes_on |= has_taken;
            fate == Fate::GoesOn
        });
    }
}

/// Tells the sources that are about to hold commands that they may, those of one shard at a time, once nothing that was
/// imported is in front of their ends on the way to the disk.
fn let_hold(targets: &mut [Target], is_log_clear: bool, cx: &mut Cx<'_>) {
    let asked = targets.iter();
    let asked = asked.filter_map(|target| Some((target.asked_since()?, target.from())));
    let Some((since, from)) = asked.min() else {
        return;
    };
    let is_recent = |since: Instant| cx.now.saturating_duration_since(since) < PAUSED_MAX;
    let comes_first = |target: &Target| {
        let holds = target.from() != from && target.asked_since().is_none();
        holds && target.source_has_clients() && target.held_since().is_some_and(is_recent)
    };
    if !is_log_clear && is_recent(since) || targets.iter().any(comes_first) {
        return;
    }
    for target in targets {
        if target.asked_since().is_some() && target.from() == from {
            target.let_hold(cx);
        }
    }
}

#[cfg(test)]
mod tests;
