//! A shard: one pinned executor that owns its partitions, sockets and log.
//!
//! [`Shard::run`] is the only loop. A turn takes what has completed, executes it in [`Core`], issues
//! the log's next write and the replies that may leave, and then waits for the next completion; all
//! of a turn's I/O is one system call.

#[cfg(test)]
pub(crate) mod bed;
mod checkpoint;
mod client_io;
pub mod connection;
mod connections;
pub mod core;
mod input;
#[cfg(test)]
mod large_replies_tests;
mod log_io;
pub mod mesh;
mod publish;
mod refused_writes;
pub mod segments;
mod seldom;
#[cfg(feature = "planted")]
#[expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a test's equipment"
)]
pub mod simulated;
mod snapshot;
pub mod stats;
mod timers;
pub mod timing;
mod tls_clients;
mod transaction;
mod write_delay;

pub use checkpoint::{Checkpointer, StoreLink};
pub use core::Core;

#[doc(hidden)]
pub use core::replies::log_gates::{Committed, LogGates};
pub use core::replies::outbox::Outbox;
pub use segments::Segments;
pub use stats::ShardStats;

use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ephesus_wal::disk::std::StdFile;
use ephesus_wal::{SyncPoint, WriteOp};
use ephesus_wire::Lsn;
use hdrhistogram::Histogram;

use crate::command::error::ClientError;
use crate::migration::Report;
use crate::migration::shard::ShardMigrations;
use crate::net::{Completion, ConnToken, Port, Ring, Waker};
use crate::node::process;
use mesh::Message;
use refused_writes::RefusedWrites;
use seldom::Seldom;
use timers::{SWEEP_EVERY, Timers};
use tls_clients::TlsClients;
use write_delay::WriteDelay;

/// Background work gets one part of the core for this many parts of requests.
const REQUESTS_PER_BACKGROUND: u32 = 4;

/// How long clients get to read their last replies when the node stops.
const DRAIN: Duration = Duration::from_secs(3);

/// How long a stop waits for a log that cannot go on, as on a full disk.
const STOP_MAX: Duration = Duration::from_secs(20);

/// What a shard is started with.
pub struct Start {
    pub core: Core,
    pub segments: Segments,
    /// Where relaxed groups lie until they are written, if they do.
    pub mapped: Option<StdFile>,
    pub checkpointer: Checkpointer,
    pub inbox: flume::Receiver<Message>,
    pub waker: Arc<Waker>,
    pub listeners: Vec<(Port, TcpListener)>,
    /// What the shard has to say about migrations.
    pub reports: flume::Sender<Vec<Report>>,
}

/// One shard with its I/O.
pub struct Shard {
    core: Core,
    ring: Ring,
    segments: Segments,
    mapped: Option<StdFile>,
    checkpointer: Checkpointer,
    migrations: ShardMigrations,
    inbox: flume::Receiver<Message>,
    waker: Arc<Waker>,
    listeners: Vec<(Port, TcpListener)>,
    /// Listeners at which accepting has failed, and when it is tried again.
    refused_accepts: Vec<(Port, Instant)>,
    /// The last accept has failed, and the log knows.
    accept_failures: Seldom,
    tls_clients: TlsClients,
    /// Connections whose receive has ended because all buffers were in use.
    without_buffer: Vec<ConnToken>,
    completions: Vec<Completion>,
    /// Commands were executed in the last turn.
    had_requests: bool,
    writes: Vec<(WriteOp, Instant)>,
    refused_writes: RefusedWrites,
    write_delay: WriteDelay,
    /// Something waits for the log to be durable.
    log_is_awaited: bool,
    write_usec: Histogram<u64>,
    syncing: Option<(SyncPoint, usize)>,
    timers: Timers,
    now: Instant,
    /// Background work may run again from then on, however busy the shard is.
    background_after: Instant,
    /// What the shard's thread has taken by the last time that was published, and background work since.
    cpu: Duration,
    background: Duration,
    stopping: Option<Instant>,
    /// The system lacks what the log's next file needs, and the operator knows.
    log_waits: bool,
    /// And that is space.
    log_lacks_space: bool,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the shard's loop is where time enters"
)]
fn clock() -> Instant {
    Instant::now()
}

/// Takes a message of another thread, but for [`Message::Stop`].
fn take_message(core: &mut Core, migrations: &mut ShardMigrations, message: Message, now: Instant) {
    match message {
        Message::Requests(requests) => core.requested(requests),
        Message::Replies(replies) => core.answered(replies),
        Message::Host(copies) => {
            for (partition, epoch) in copies {
                core.keyspace.adopt(partition, epoch);
            }
        }
        Message::Routes(routes) => core.set_routes(routes),
        Message::Reply { origin, bytes } => core.deliver(origin, bytes, Lsn::ZERO),
        Message::Copied(id, outcome) => core.copied(id, outcome),
        Message::Published(incoming) => core.published(&incoming),
        Message::Migrate(orders) => {
            for order in orders {
                migrations.order(core, order, now);
            }
        }
        Message::Stream {
            batch,
            to,
            messages,
        } => migrations.deliver(batch, to, messages, now),
        Message::Stop => {}
    }
}

/// Says why and ends the process: after a failed write or sync nothing more is promised.
fn fatal(what: &str, error: &dyn std::fmt::Display) -> ! {
    tracing::error!("{what}: {error}; stopping, restart to recover what was acknowledged");
    std::process::exit(1);
}

impl Shard {
    /// Call on the executor that will run the shard.
    ///
    /// # Errors
    /// When the ring cannot be set up.
    pub fn new(start: Start) -> io::Result<Shard> {
        let now = clock();
        let mut shard = Shard {
            core: start.core,
            ring: Ring::new()?,
            segments: start.segments,
            mapped: start.mapped,
            checkpointer: start.checkpointer,
            migrations: ShardMigrations::new(start.reports, now),
            inbox: start.inbox,
            waker: start.waker,
            listeners: start.listeners,
            tls_clients: TlsClients::default(),
            refused_accepts: Vec::new(),
            accept_failures: Seldom::default(),
            without_buffer: Vec::new(),
            completions: Vec::new(),
            had_requests: false,
            writes: Vec::new(),
            refused_writes: RefusedWrites::default(),
            write_delay: WriteDelay::default(),
            log_is_awaited: false,
            write_usec: Histogram::new_with_bounds(1, 60_000_000, 2).map_err(io::Error::other)?,
            syncing: None,
            timers: Timers::new(now),
            now,
            background_after: now,
            cpu: process::thread_cpu(),
            background: Duration::ZERO,
            stopping: None,
            log_waits: false,
            log_lacks_space: false,
        };
        for (port, listener) in &shard.listeners {
            shard.ring.accept(listener.as_raw_fd(), *port);
        }
        shard.ring.await_wake(shard.waker.as_raw_fd());
        Ok(shard)
    }

    /// Serves until told to stop; everything acknowledged is durable when it returns.
    pub fn run(mut self) {
        loop {
            let had_events = self.turn();
            if self.is_stopped() {
                return;
            }
            let is_runnable = self.background(had_events);
            let waited = if is_runnable {
                self.ring.poll()
            } else {
                self.sleep()
            };
            if let Err(error) = waited {
                fatal("io_uring", &error);
            }
        }
    }

    /// Waits for the next completion, message or timer.
    fn sleep(&mut self) -> io::Result<()> {
        self.waker.fall_asleep();
        let result = if !self.has_mail() {
            self.ring.wait(self.until_next_timer())
        } else {
            self.ring.poll()
        };
        self.waker.awake();
        result
    }

    /// Whether another thread has left something that was not looked at yet.
    fn has_mail(&self) -> bool {
        !self.inbox.is_empty() || self.checkpointer.has_replies() || self.segments.has_answer()
    }

    /// One turn; true when anything had happened.
    fn turn(&mut self) -> bool {
        let (now, now_ms) = self.core.node.time.read();
        self.now = now;
        self.had_requests = false;
        let commands = self.core.stats().commands.get();
        self.core.begin_turn(now, now_ms);
        let mut had_events = self.take_messages();
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.collect(&mut completions);
        had_events |= !completions.is_empty();
        for completion in completions.drain(..) {
            self.completed(completion);
        }
        self.completions = completions;
        for (partition, epoch) in self.migrations.take_leaving() {
            self.checkpointer.remove_copy(partition, epoch);
        }
        let taken = self
            .checkpointer
            .take_replies(&mut self.core.keyspace, self.now);
        match taken {
            Ok(freed) => self.segments.give_back(freed),
            Err(error) => fatal("image store", &error),
        }
        for (partition, epoch) in self.checkpointer.take_removed() {
            self.migrations.removed(partition, epoch);
        }
        self.tend_saves();
        self.tend_log();
        self.accept_again();
        self.tls_clients.turn(&mut self.core, self.now);
        self.core.look_after_unread();
        self.core.unblock();
        self.migrations
            .tend(&mut self.core, &mut self.ring, self.now);
        self.core.publish();
        self.core.hold_back_late();
        self.core.publish_sums();
        self.service_listed();
        self.core.end_turn();
        self.had_requests |= self.core.stats().commands.get() != commands;
        self.write_log();
        self.publish();
        had_events
    }

    fn take_messages(&mut self) -> bool {
        let mut any = false;
        while let Ok(message) = self.inbox.try_recv() {
            any = true;
            self.had_requests |= matches!(message, Message::Requests(_));
            if matches!(message, Message::Stop) {
                self.begin_stop();
            } else {
                take_message(&mut self.core, &mut self.migrations, message, self.now);
            }
        }
        any
    }

    fn completed(&mut self, completion: Completion) {
        match completion {
            Completion::Received { conn, result, more } => self.received(conn, result, more),
            Completion::Sent { conn, result } => self.sent(conn, result),
            Completion::HungUp { conn, is_reset } => self.hung_up(conn, is_reset),
            Completion::LogWritten { write, result } => self.log_written(write, result),
            Completion::LogSynced { result } => self.log_synced(result),
            Completion::Accepted { port, result, more } => self.accepted(port, result, more),
            Completion::StreamReceived { stream, result } => {
                self.migrations.received(stream, result);
            }
            Completion::StreamSent { stream, result } => self.migrations.sent(stream, result),
            Completion::Woken => self.ring.await_wake(self.waker.as_raw_fd()),
        }
    }

    /// Has images written that clients have asked for, and tells them when they are.
    fn tend_saves(&mut self) {
        self.core.tend_durability_waits();
        if self.core.execution.saves.take_wanted() {
            self.checkpointer.ask(&self.core.keyspace);
        } else if self.core.execution.saves.is_running() {
            let lacks_room = self.checkpointer.lacks_room();
            if !lacks_room && self.checkpointer.is_asked() {
                return;
            }
            let outcome = if lacks_room {
                self.checkpointer.ask_no_more();
                Err(ClientError::SaveFailed)
            } else {
                self.checkpointer.last_ms = self.core.keyspace.now_ms();
                let seconds = self.checkpointer.last_ms / 1000;
                self.core.stats().image_last_time_s.set(seconds);
                Ok(())
            };
            self.core.saved(&outcome);
        }
    }

    /// Gives background work its share; true when there is more of it to do at once.
    fn background(&mut self, had_events: bool) -> bool {
        // When walks wait for room, the rest of what they have sent is not to wait for images as well.
        let is_urgent =
            self.checkpointer.is_urgent() && self.core.admission.log_room.has_room_for_moves;
        let turn = (self.now, self.had_requests);
        let (core, ring) = (&mut self.core, &mut self.ring);
        let is_moving = self.migrations.slice(core, ring, turn, clock, is_urgent);
        if is_moving && !self.writes.is_empty() {
            // Or the kernel's worker that completes synced writes would wait for the next tick, and so would whoever
            // else shares the CPU, with what clients of a move wait for.
            std::thread::yield_now();
        }
        self.other_background(had_events) | is_moving
    }

    /// Background work but for moves, which have a share of their own.
    fn other_background(&mut self, had_events: bool) -> bool {
        if had_events && self.now < self.background_after {
            return self.has_background() || self.has_leftovers();
        }
        let started = clock();
        let mut runnable = self.core.keyspace.free_slice(256);
        runnable |= self.core.walk_slice();
        runnable |= self.sweep();
        let (keyspace, now) = (&mut self.core.keyspace, self.now);
        match self.checkpointer.slice(keyspace, now) {
            Ok(progress) => runnable |= progress == checkpoint::Progress::Runnable,
            Err(error) => fatal("image store", &error),
        }
        // The next turn tells those that wait for room.
        runnable |= !self.core.admission.log_room.has_room_for_moves
            && self.checkpointer.has_room_for_moves();
        let took = started.elapsed();
        self.background += took;
        let parts = if self.checkpointer.is_urgent() {
            1
        } else {
            REQUESTS_PER_BACKGROUND
        };
        self.background_after = started + took * (parts + 1);
        runnable | self.has_leftovers()
    }

    /// Whether the next turn has something to do without waiting.
    fn has_leftovers(&self) -> bool {
        !self.core.listed.is_empty()
            || self.core.goes_on()
            || self.core.admission.has_released()
            || self.tls_clients.has_waiting()
    }

    /// Whether a postponed slice has something to do.
    fn has_background(&self) -> bool {
        self.checkpointer.is_active() || !self.core.execution.walks.is_empty() || self.may_sweep()
    }

    fn may_sweep(&self) -> bool {
        self.now >= self.timers.sweep && self.core.keyspace.may_have_expired()
    }

    fn sweep(&mut self) -> bool {
        if !self.may_sweep() {
            return false;
        }
        let goes_on = self.core.has_room_for_expiry() && !self.core.keyspace.sweep_slice();
        if !goes_on {
            self.timers.sweep = self.now + SWEEP_EVERY;
        }
        goes_on
    }

    fn begin_stop(&mut self) {
        self.stopping = Some(self.now);
        self.migrations.stop(self.now);
        for (_, listener) in &self.listeners {
            // SAFETY: our own descriptor; outstanding accepts end.
            unsafe {
                libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR);
            }
        }
        for token in self.core.connections.tokens() {
            if let Some(connection) = self.core.connections.get_mut(token) {
                connection.drain();
            }
            self.core.list(token);
        }
    }

    /// Whether the node stops and this shard has nothing left to do.
    fn is_stopped(&mut self) -> bool {
        let Some(since) = self.stopping else {
            return false;
        };
        let overdue = self.now.saturating_duration_since(since) > DRAIN;
        let is_empty = self.core.connections.is_empty() && self.migrations.is_quiet();
        let drained = is_empty || overdue;
        if self.now.saturating_duration_since(since) > STOP_MAX {
            tracing::error!("the log cannot be completed; what was acknowledged is durable");
            return true;
        }
        let log = &self.core.keyspace.log;
        drained
            && self.writes.is_empty()
            && self.syncing.is_none()
            && log.durable() == log.appended()
    }
}
