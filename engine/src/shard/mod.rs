//! A shard: one pinned executor that owns its partitions, sockets and log.
//!
//! [`Shard::run`] is the only loop. A turn takes what has completed, executes it in [`Core`], issues
//! the log's next write and the replies that may leave, and then waits for the next completion; all
//! of a turn's I/O is one system call.

mod checkpoint;
pub mod connection;
pub mod core;
mod gather;
mod keyed;
mod keyless;
pub mod mesh;
mod outbox;
pub mod segments;
mod snapshot;
mod stats;

pub use checkpoint::{Checkpointer, StoreLink};
pub use core::Core;
pub use outbox::Outbox;
pub use segments::Segments;
pub use stats::ShardStats;

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ephesus_wal::{Durability, SyncPoint, WriteOp};
use ephesus_wire::ShardId;
use hdrhistogram::Histogram;

use crate::net::{Completion, ConnToken, ListenerKind, Ring, Waker};
use connection::{Connection, Life};
use mesh::Message;
use outbox::Front;

/// After this long without a write, a mark makes everything before it durable for recovery.
const MARK_AFTER: Duration = Duration::from_millis(50);

/// With relaxed durability the device is synced this often.
const SYNC_EVERY: Duration = Duration::from_millis(900);

/// How often expired keys are swept while there are any with an expiry.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// How often counters that cost something are published, at most.
const PUBLISH_EVERY: Duration = Duration::from_millis(20);

/// Background work gets one part of the core for this many parts of requests.
const REQUESTS_PER_BACKGROUND: u32 = 4;

/// Longest time the shard waits for company once something may have happened already.
const COALESCE: Duration = Duration::from_micros(15);

/// It waits for half as many completions as the last turn had, from this many on.
const COALESCE_FROM: usize = 3;

const COALESCE_UP_TO: usize = 24;

/// How long clients get to read their last replies when the node stops.
const DRAIN: Duration = Duration::from_secs(3);

/// What a shard is started with.
pub struct Start {
    pub core: Core,
    pub segments: Segments,
    pub checkpointer: Checkpointer,
    pub inbox: flume::Receiver<Message>,
    pub waker: Arc<Waker>,
    pub entry: TcpListener,
    pub direct: TcpListener,
}

/// One shard with its I/O.
pub struct Shard {
    core: Core,
    ring: Ring,
    segments: Segments,
    checkpointer: Checkpointer,
    inbox: flume::Receiver<Message>,
    waker: Arc<Waker>,
    listeners: [(ListenerKind, TcpListener); 2],
    completions: Vec<Completion>,
    /// Completions of the last turn.
    events: usize,
    writes: Vec<(WriteOp, Instant)>,
    write_usec: Histogram<u64>,
    syncing: Option<(SyncPoint, usize)>,
    timers: Timers,
    now: Instant,
    /// Background work may run again from then on, however busy the shard is.
    background_after: Instant,
    stopping: Option<Instant>,
    refused_disk: bool,
}

/// When periodic work is due.
struct Timers {
    last_append: Instant,
    marked: bool,
    sync: Instant,
    sweep: Instant,
    sweeping: bool,
    publish: Instant,
    unpublished: bool,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the shard's loop is where time enters"
)]
fn clock() -> Instant {
    Instant::now()
}

/// Wall clock, Unix milliseconds.
#[expect(
    clippy::disallowed_methods,
    reason = "the shard's loop is where time enters"
)]
#[must_use]
pub fn wall_clock_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
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
            checkpointer: start.checkpointer,
            inbox: start.inbox,
            waker: start.waker,
            listeners: [
                (ListenerKind::Entry, start.entry),
                (ListenerKind::Direct, start.direct),
            ],
            completions: Vec::new(),
            events: 0,
            writes: Vec::new(),
            write_usec: Histogram::new_with_bounds(1, 60_000_000, 2).expect("valid bounds"),
            syncing: None,
            timers: Timers {
                last_append: now,
                marked: true,
                sync: now,
                sweep: now,
                sweeping: false,
                publish: now,
                unpublished: true,
            },
            now,
            background_after: now,
            stopping: None,
            refused_disk: false,
        };
        for (kind, listener) in &shard.listeners {
            shard.ring.accept(listener.as_raw_fd(), *kind);
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
            self.wait()
        } else {
            self.ring.poll()
        };
        self.waker.awake();
        result
    }

    /// Waits in the ring. While many connections are active it waits a moment longer, for several
    /// completions: waking up costs about as much as a request.
    fn wait(&mut self) -> io::Result<()> {
        let timeout = self.next_timer();
        let wanted = self.events / 2;
        if wanted >= COALESCE_FROM && timeout.is_none_or(|timeout| timeout > COALESCE) {
            let wanted = wanted.min(COALESCE_UP_TO);
            if self.ring.wait_for_several(wanted, COALESCE)? {
                return Ok(());
            }
        }
        self.ring.wait(timeout)
    }

    /// Whether another thread has left something that was not looked at yet.
    fn has_mail(&self) -> bool {
        !self.inbox.is_empty() || self.checkpointer.has_replies() || self.segments.has_answer()
    }

    fn next_timer(&self) -> Option<Duration> {
        let timers = &self.timers;
        let until = |at: Instant| at.saturating_duration_since(self.now);
        let mut next: Option<Duration> = None;
        let mut consider = |after: Duration| next = Some(next.map_or(after, |n| n.min(after)));
        if !timers.marked {
            consider(until(timers.last_append + MARK_AFTER));
        }
        if self.is_unsynced() {
            consider(until(timers.sync + SYNC_EVERY));
        }
        if timers.sweeping {
            consider(until(timers.sweep + SWEEP_EVERY));
        }
        if let Some(deadline) = self.checkpointer.deadline() {
            consider(until(deadline));
        }
        if timers.unpublished {
            consider(until(timers.publish + PUBLISH_EVERY));
        }
        if self.stopping.is_some() || self.core.has_blocked() || self.refused_disk {
            consider(PUBLISH_EVERY);
        }
        next
    }

    /// One turn; true when anything had happened.
    fn turn(&mut self) -> bool {
        self.now = clock();
        self.core.begin_turn(wall_clock_ms());
        let mut had_events = self.take_messages();
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.collect(&mut completions);
        had_events |= !completions.is_empty();
        self.events = completions.len();
        for completion in completions.drain(..) {
            self.completed(completion);
        }
        self.completions = completions;
        let taken = self
            .checkpointer
            .take_replies(&mut self.core.keyspace, self.now);
        match taken {
            Ok(freed) => self.segments.give_back(freed),
            Err(error) => fatal("image store", &error),
        }
        self.tend_log();
        self.core.unblock();
        self.service_listed();
        self.core.end_turn();
        self.write_log();
        self.publish();
        had_events
    }

    fn take_messages(&mut self) -> bool {
        let mut any = false;
        while let Ok(message) = self.inbox.try_recv() {
            any = true;
            match message {
                Message::Requests(requests) => self.core.requested(requests),
                Message::Replies { from, replies } => self.core.answered(from, &replies),
                Message::Stop => self.begin_stop(),
            }
        }
        any
    }

    fn completed(&mut self, completion: Completion) {
        match completion {
            Completion::Received { conn, result, more } => self.received(conn, result, more),
            Completion::Sent { conn, result } => self.sent(conn, result),
            Completion::LogWritten { write, result } => self.log_written(write, result),
            Completion::LogSynced { result } => self.log_synced(result),
            Completion::Accepted {
                listener,
                result,
                more,
            } => {
                self.accepted(listener, result, more);
            }
            Completion::Woken => self.ring.await_wake(self.waker.as_raw_fd()),
        }
    }

    fn accepted(&mut self, kind: ListenerKind, result: io::Result<RawFd>, more: bool) {
        match result {
            Ok(fd) => self.admit(kind, fd),
            Err(_) if self.stopping.is_some() => {}
            Err(error) => tracing::warn!(%error, "a connection could not be accepted"),
        }
        if !more && self.stopping.is_none() {
            let place = self.listeners.iter().find(|(k, _)| *k == kind);
            let (_, listener) = place.expect("both kinds have a listener");
            self.ring.accept(listener.as_raw_fd(), kind);
        }
    }

    fn admit(&mut self, kind: ListenerKind, fd: RawFd) {
        // SAFETY: the kernel has just given us this descriptor and nobody else knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let stats = self.core.stats();
        stats.connections_received.add(1);
        let stream = std::net::TcpStream::from(socket);
        let addresses = stream
            .peer_addr()
            .and_then(|peer| Ok((peer, stream.local_addr()?)));
        let Ok(addresses) = addresses else { return };
        if self.core.connections.len() >= self.core.node.settings.max_clients {
            stats.connections_rejected.add(1);
            refuse(&stream);
            return;
        }
        let _ = stream.set_nodelay(true);
        let fd = stream.into_raw_fd();
        let (id, now_ms) = (self.core.next_connection_id(), self.core.keyspace.now_ms());
        let make = |token| Connection::new(token, id, fd, kind, addresses, now_ms);
        let token = self.core.connections.insert(make);
        self.core.list(token);
    }

    fn received(
        &mut self,
        token: ConnToken,
        result: io::Result<Option<crate::net::Received>>,
        more: bool,
    ) {
        let Some(connection) = self.core.connections.get_mut(token) else {
            if let Ok(Some(received)) = result {
                self.ring.release(received);
            }
            return;
        };
        connection.receiving = more;
        if !more {
            connection.receive_stopping = false;
        }
        match result {
            Ok(Some(received)) if received.len > 0 => {
                self.core.received(token, self.ring.received(received));
                self.ring.release(received);
            }
            Ok(received) => {
                if let Some(received) = received {
                    self.ring.release(received);
                }
                connection.drain();
            }
            Err(error) => match error.raw_os_error() {
                // All buffers were in use, or the receive was told to end: it begins again.
                Some(libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN) => {}
                _ => connection.kill(),
            },
        }
        self.core.list(token);
    }

    fn sent(&mut self, token: ConnToken, result: io::Result<usize>) {
        let Some(connection) = self.core.connections.get_mut(token) else {
            return;
        };
        let expected = connection.sending.len();
        connection.sent();
        match result {
            Ok(sent) if sent == expected => self.core.stats().net_output_bytes.add(sent as u64),
            _ => connection.kill(),
        }
        // The outbox is looked at again at the end of the turn.
        self.core.list(token);
    }

    fn log_written(&mut self, write: u64, result: io::Result<usize>) {
        let place = self.writes.iter().position(|(op, _)| op.id == write);
        let (op, issued) = self
            .writes
            .swap_remove(place.expect("a write completes once"));
        let usec = self.now.saturating_duration_since(issued).as_micros() as u64;
        self.write_usec.saturating_record(usec.max(1));
        match self.core.keyspace.log.complete(op, result) {
            Ok(_) => self.core.committed(),
            Err(error) => fatal("log", &error),
        }
    }

    fn log_synced(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            fatal("log sync", &error);
        }
        if let Some((point, missing)) = &mut self.syncing {
            *missing -= 1;
            if *missing == 0 {
                self.core.keyspace.log.synced(point);
                self.syncing = None;
                self.timers.marked = false;
            }
        }
    }

    /// Whether relaxed durability has written something that the device may not have yet.
    fn is_unsynced(&self) -> bool {
        let log = &self.core.keyspace.log;
        log.options().durability == Durability::Relaxed && log.durable() < log.appended()
    }

    /// Prepared segments, marks, syncs, truncation.
    fn tend_log(&mut self) {
        let now = self.now;
        let log = &mut self.core.keyspace.log;
        match self.segments.tend(log) {
            Ok(()) => self.refused_disk = false,
            Err(error) => {
                if !self.refused_disk {
                    tracing::error!(%error, "no log segment can be prepared; writes wait");
                }
                self.refused_disk = true;
            }
        }
        self.checkpointer.spare_bytes = self.segments.spare_bytes(log);
        let log_bytes = log.log_bytes() + self.checkpointer.spare_bytes;
        self.core.log_over_budget = self.checkpointer.is_over_budget(log_bytes);
        let idle = now.saturating_duration_since(self.timers.last_append) >= MARK_AFTER;
        if !self.timers.marked && idle {
            self.timers.marked = true;
            log.mark();
        }
        let due = now.saturating_duration_since(self.timers.sync) >= SYNC_EVERY
            || self.stopping.is_some()
            || self.checkpointer.waits_for_log(&self.core.keyspace);
        if self.syncing.is_none() && due && self.is_unsynced() {
            self.begin_sync();
        }
    }

    fn begin_sync(&mut self) {
        self.timers.sync = self.now;
        let point = self.core.keyspace.log.sync_point();
        if point.segments.is_empty() {
            return;
        }
        for &segment in &point.segments {
            self.ring.sync_log(self.segments.descriptor(segment));
        }
        let missing = point.segments.len();
        self.syncing = Some((point, missing));
    }

    /// Issues what the log wants written.
    fn write_log(&mut self) {
        let now_ms = self.core.keyspace.now_ms();
        while let Some(op) = self.core.keyspace.log.next_write(now_ms) {
            let fd = self.segments.descriptor(op.segment);
            let stats = self.core.stats();
            stats.wal_groups.add(1);
            stats.wal_bytes_written.add(op.buf.len() as u64);
            // SAFETY: the buffer belongs to `op`, which is kept in `writes` until the write has
            // completed; moving `op` does not move the buffer.
            unsafe {
                self.ring.write_log(op.id, fd, &op.buf, op.offset);
            }
            if self.timers.marked && self.core.keyspace.log.uncommitted_bytes() > 0 {
                self.timers.marked = false;
            }
            self.timers.last_append = self.now;
            self.writes.push((op, self.now));
        }
    }

    /// Looks after every connection that something happened to.
    fn service_listed(&mut self) {
        let listed = std::mem::take(&mut self.core.listed);
        for &token in &listed {
            self.service(token);
        }
        // What was listed meanwhile has its turn next time.
        let mut listed = listed;
        listed.clear();
        listed.append(&mut self.core.listed);
        self.core.listed = listed;
    }

    fn service(&mut self, token: ConnToken) {
        let committed = self.core.keyspace.log.committed();
        let Some(connection) = self.core.connections.get_mut(token) else {
            return;
        };
        connection.listed = false;
        let mut gate = None;
        if connection.life != Life::Dead && connection.sending.is_empty() {
            match connection
                .outbox
                .take_ready(committed, &mut connection.sending)
            {
                Front::Taken => {
                    // SAFETY: `sending` is not touched until the `Sent` completion, and the
                    // connection is not dropped before (`is_finished`).
                    unsafe {
                        self.ring.send(token, connection.fd, &connection.sending);
                    }
                }
                Front::Gated(lsn) => gate = Some(lsn),
                Front::Empty if connection.life == Life::Draining => connection.kill(),
                Front::Empty | Front::Awaited => {}
            }
        }
        if connection.wants_input() {
            if !connection.receiving {
                connection.receiving = true;
                self.ring.receive(token, connection.fd);
            }
        } else if connection.receiving
            && !connection.receive_stopping
            && connection.life == Life::Open
        {
            connection.receive_stopping = true;
            self.ring.stop_receiving(token);
        }
        if connection.is_finished() {
            // SAFETY: the connection owned the descriptor, and the ring has nothing outstanding
            // for it.
            drop(unsafe { OwnedFd::from_raw_fd(connection.fd) });
            self.core.connections.remove(token);
        } else if let Some(lsn) = gate {
            self.core.wait_for(token, lsn);
        }
    }

    /// Gives background work its share; true when there is more of it to do at once.
    fn background(&mut self, had_events: bool) -> bool {
        if had_events && self.now < self.background_after {
            return self.has_background() || !self.core.listed.is_empty();
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
        let took = started.elapsed();
        let urgent = self
            .checkpointer
            .is_urgent(self.core.keyspace.log.log_bytes() + self.checkpointer.spare_bytes);
        let parts = if urgent { 1 } else { REQUESTS_PER_BACKGROUND };
        self.background_after = started + took * (parts + 1);
        runnable | !self.core.listed.is_empty()
    }

    /// Whether a postponed slice has something to do.
    fn has_background(&self) -> bool {
        self.checkpointer.is_active() || !self.core.walks.is_empty() || self.timers.sweeping
    }

    fn sweep(&mut self) -> bool {
        if self.now.saturating_duration_since(self.timers.sweep) < SWEEP_EVERY {
            return false;
        }
        if self.core.keyspace.sweep_slice() {
            self.timers.sweep = self.now;
            self.timers.sweeping = self.core.keyspace.has_expiring();
            return false;
        }
        true
    }

    fn publish(&mut self) {
        self.timers.unpublished = true;
        if self.now.saturating_duration_since(self.timers.publish) < PUBLISH_EVERY {
            return;
        }
        self.timers.publish = self.now;
        self.timers.unpublished = false;
        let (keyspace, stats) = (&self.core.keyspace, self.core.stats());
        stats.connections.set(self.core.connections.len() as u64);
        let expiring: usize = keyspace.partitions().map(|p| p.table.expiring()).sum();
        stats.expires.set(expiring as u64);
        stats.hits.set(keyspace.counters.hits);
        stats.misses.set(keyspace.counters.misses);
        stats.expired.set(keyspace.counters.expired);
        stats.memory_bytes.set(keyspace.memory_bytes());
        stats
            .wal_bytes
            .set(keyspace.log.log_bytes() + self.checkpointer.spare_bytes);
        stats
            .wal_segments
            .set(keyspace.log.segments().count() as u64);
        stats.wal_user_bytes.set(keyspace.counters.user_bytes);
        stats.wal_appended.set(keyspace.log.appended().0);
        stats.wal_committed.set(keyspace.log.committed().0);
        stats
            .wal_sync_p50_usec
            .set(self.write_usec.value_at_quantile(0.5));
        stats
            .wal_sync_p99_usec
            .set(self.write_usec.value_at_quantile(0.99));
        stats.images_written.set(self.checkpointer.written);
        stats
            .image_in_progress
            .set(u64::from(self.checkpointer.is_active()));
        stats
            .image_last_time_s
            .set(self.checkpointer.last_ms / 1000);
        self.timers.sweeping |= expiring > 0;
    }

    fn begin_stop(&mut self) {
        self.stopping = Some(self.now);
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
        let drained = self.core.connections.is_empty() || overdue;
        let log = &self.core.keyspace.log;
        drained
            && self.writes.is_empty()
            && self.syncing.is_none()
            && log.durable() == log.appended()
    }

    /// The shard's number.
    #[must_use]
    pub fn id(&self) -> ShardId {
        self.core.id
    }
}

/// Tells a client that there is no room for it.
fn refuse(stream: &std::net::TcpStream) {
    let mut text = Vec::new();
    crate::command::error::ClientError::TooManyClients.write(&mut text);
    let _ = stream.set_nonblocking(true);
    let _ = io::Write::write(&mut &*stream, &text);
}
