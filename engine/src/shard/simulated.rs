//! A shard under a simulated clock, for the simulator: [`Core`] and [`ShardMigrations`] as they are, in the order of
//! [`Shard::turn`](super::Shard), with what the ring would do left to whoever drives it.
//!
//! A turn has three parts, between which its process may be stopped: [`Shard::begin`], [`Shard::execute`] and
//! [`Shard::finish`].

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ephesus_wal::disk::fault::FaultFile;
use ephesus_wal::{DiskFile, FaultDisk, LogFiles, SegmentId, WriteOp};
use ephesus_wire::{Epoch, MigrationId, PartitionId, ShardId, Slot, slot_of};
use futures_lite::future::block_on;

use super::connection::{Connection, Life};
use super::mesh::Message;
use super::take_message;
use crate::command::spec::lookup;
use crate::keyspace::{Keyspace, Partition, Reply};
use crate::migration::shard::ShardMigrations;
use crate::migration::{Incoming, Report, Stage, StagingState};
use crate::net::{ConnToken, ListenerKind, StreamId, StreamIo};
use crate::node::recovery::RecoveredShard;
use crate::node::{NodeShared, Routes};
use crate::planted::Bug;
use crate::shard::core::Core;
use crate::shard::core::replies::outbox::Front;
use crate::shard::core::routing::relay::Place;
use crate::table::KeyHasher;

/// What one look at the clock takes within a slice.
const LOOK: Duration = Duration::from_micros(70);

thread_local! {
    /// What [`slice_clock`] shows next.
    static SLICE_CLOCK: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A clock that goes on with each look.
fn slice_clock() -> Instant {
    SLICE_CLOCK.with(|clock| {
        let now = clock.get().expect("set before a slice");
        clock.set(Some(now + LOOK));
        now
    })
}

/// What a shard has to do with one partition.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub shard: ShardId,
    pub epoch: Epoch,
    /// A command would be executed on it at this moment, if there is a lease.
    pub executes: bool,
    /// Commands wait.
    pub is_held: bool,
    /// The migration that it moves away by.
    pub outgoing: Option<(MigrationId, Stage)>,
    /// The migration that fills it, its last record, and whether it is prepared.
    pub incoming: Option<(MigrationId, u64, bool)>,
    /// Keys of a staging copy that counts as wiped.
    pub left_keys: usize,
}

/// What leaves through a socket of a stream.
#[derive(Clone, Debug)]
pub enum Sent {
    Bytes(Vec<u8>),
    /// Nothing more will come.
    End,
}

type Writing = Pin<Box<dyn Future<Output = (WriteOp, io::Result<usize>)>>>;

/// A shard's log with the files of a simulated disk.
struct Log {
    log_files: LogFiles<FaultDisk>,
    files: BTreeMap<SegmentId, Rc<FaultFile>>,
    /// Each with when it completes, ms.
    writing: Vec<(u64, Writing)>,
}

/// What a ring would have under way for streams.
#[derive(Default)]
struct Io {
    receiving: BTreeMap<StreamId, (RawFd, *mut u8, usize)>,
    sent: Vec<(StreamId, RawFd, Vec<u8>)>,
    /// By stream, the descriptor.
    sockets: BTreeMap<StreamId, RawFd>,
}

impl StreamIo for Io {
    unsafe fn receive_stream(&mut self, stream: StreamId, fd: RawFd, into: &mut [u8]) {
        self.sockets.insert(stream, fd);
        let place = (fd, into.as_mut_ptr(), into.len());
        self.receiving.insert(stream, place);
    }

    unsafe fn send_stream(&mut self, stream: StreamId, fd: RawFd, message: *const libc::msghdr) {
        self.sockets.insert(stream, fd);
        let mut bytes = Vec::new();
        // SAFETY: the caller keeps the message and all that it points to.
        unsafe {
            let message = &*message;
            for at in 0..message.msg_iovlen {
                let part = &*message.msg_iov.add(at);
                let part = std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len);
                bytes.extend_from_slice(part);
            }
        }
        self.sent.push((stream, fd, bytes));
    }
}

/// What has come for a socket.
#[derive(Debug, Default)]
pub struct Arrived {
    pub bytes: Vec<u8>,
    pub is_ended: bool,
}

/// One shard.
pub struct Shard {
    core: Core,
    migrations: ShardMigrations,
    io: Io,
    log: Log,
    inbox: flume::Receiver<Message>,
    input: Vec<(ConnToken, Vec<u8>)>,
    now: Instant,
    now_ms: u64,
    had_requests: bool,
    /// What was said to the other ends.
    outgoing: Vec<(RawFd, Sent)>,
    /// Streams whose end was said.
    ended: Vec<StreamId>,
    /// A send has completed, and there may be more to send.
    has_sent: bool,
}

/// What a turn has answered.
#[derive(Debug)]
pub struct Answered {
    pub to: ConnToken,
    pub bytes: Vec<u8>,
    /// There will be no more.
    pub is_closed: bool,
}

impl Shard {
    /// A shard with what was recovered of its log.
    #[must_use]
    pub fn new(
        (id, node, routes): (ShardId, Arc<NodeShared>, Arc<Routes>),
        recovered: RecoveredShard<FaultDisk>,
        hasher: KeyHasher,
        inbox: flume::Receiver<Message>,
        reports: flume::Sender<Vec<Report>>,
        bug: Option<Bug>,
    ) -> Shard {
        let RecoveredShard {
            partitions,
            writer,
            segment,
            mapped: _,
            files,
            wall_clock_ms,
        } = recovered;
        let mut keyspace =
            Keyspace::new(node.partitioning, partitions, hasher, writer, wall_clock_ms);
        if let Some(bug) = bug {
            keyspace.plant(bug);
        }
        let now = node.started;
        Shard {
            core: Core::new(id, node, routes, keyspace),
            migrations: ShardMigrations::new(reports, now),
            io: Io::default(),
            log: Log {
                log_files: files,
                files: BTreeMap::from([(segment.info.id, Rc::new(segment.file))]),
                writing: Vec::new(),
            },
            inbox,
            input: Vec::new(),
            now,
            now_ms: 0,
            had_requests: false,
            outgoing: Vec::new(),
            ended: Vec::new(),
            has_sent: false,
        }
    }

    /// A client of one of its two ports.
    pub fn connect(&mut self, kind: ListenerKind) -> ConnToken {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let id = self.core.next_connection_id();
        let make = |token| Connection::new(token, id, -1, kind, (address, address), 0);
        self.core.connections.insert(make)
    }

    /// Bytes of a client have come.
    pub fn receive(&mut self, from: ConnToken, bytes: Vec<u8>) {
        self.input.push((from, bytes));
    }

    /// Whether a turn has something to do now.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.inbox.is_empty()
            || !self.input.is_empty()
            || !self.core.listed.is_empty()
            || self.core.admission.has_released()
            || self.has_sent
    }

    /// When something is due although nothing happens.
    #[must_use]
    pub fn next_look(&self, base: Instant) -> Option<u64> {
        let at = self.migrations.next_look()?;
        Some(at.saturating_duration_since(base).as_millis() as u64 + 1)
    }

    /// When the next write of the log completes, ms.
    #[must_use]
    pub fn next_written(&self) -> Option<u64> {
        self.log.writing.first().map(|(at, _)| *at)
    }

    /// The first part of a turn: looks at the clock and at the lease.
    pub fn begin(&mut self, now: Instant, now_ms: u64, wall_ms: u64) {
        (self.now, self.now_ms) = (now, now_ms);
        (self.had_requests, self.has_sent) = (false, false);
        self.core.begin_turn(now, wall_ms);
    }

    /// The second one: takes what has come, and executes it. `arrived` is what has come for a socket; `remove` removes
    /// the images of a copy.
    pub fn execute(
        &mut self,
        arrived: &mut BTreeMap<RawFd, Arrived>,
        remove: &mut dyn FnMut(PartitionId, Epoch),
    ) {
        while let Ok(message) = self.inbox.try_recv() {
            self.had_requests |= matches!(message, Message::Requests(_));
            take_message(&mut self.core, &mut self.migrations, message, self.now);
        }
        self.complete_writes();
        for (token, bytes) in std::mem::take(&mut self.input) {
            self.had_requests = true;
            self.core.received(token, &bytes);
        }
        self.complete_streams(arrived);
        for (partition, epoch) in self.migrations.take_leaving() {
            remove(partition, epoch);
            self.remove_copy(partition, epoch);
        }
        self.tend_segments();
        self.core.note_log(false);
        self.core.unblock();
        self.migrations.tend(&mut self.core, &mut self.io, self.now);
        self.core.publish();
    }

    /// The last one: replies leave. `delay_ms` says how long each write of the log takes.
    pub fn finish(&mut self, mut delay_ms: impl FnMut() -> u64) -> Vec<Answered> {
        self.core.look_after_unread();
        self.core.hold_back_late();
        let answers = self.answer();
        self.core.end_turn();
        self.write_log(&mut delay_ms);
        self.core.publish();
        self.core.publish_sizes();
        SLICE_CLOCK.with(|clock| clock.set(Some(self.now)));
        let turn = (self.now, self.had_requests);
        let (core, io) = (&mut self.core, &mut self.io);
        self.migrations.slice(core, io, turn, slice_clock, false);
        self.core.keyspace.free_slice(256);
        self.core.walk_slice();
        self.note_sent();
        answers
    }

    /// What streams have sent.
    pub fn take_sent(&mut self) -> Vec<(RawFd, Sent)> {
        std::mem::take(&mut self.outgoing)
    }

    fn complete_writes(&mut self) {
        while let Some((at, _)) = self.log.writing.first()
            && *at <= self.now_ms
        {
            let (_, mut writing) = self.log.writing.remove(0);
            let (op, result) = poll(&mut writing).expect("a write takes two polls");
            let log = &mut self.core.keyspace.log;
            log.complete(op, result).expect("a disk without faults");
            self.core.committed();
        }
    }

    fn complete_streams(&mut self, arrived: &mut BTreeMap<RawFd, Arrived>) {
        // Those that are shut end at once.
        let ended: Vec<_> = self.migrations.ended_streams().collect();
        for (stream, _) in ended.into_iter().filter(|(_, is_shut)| *is_shut) {
            if self.io.receiving.remove(&stream).is_some() {
                self.migrations.received(stream, Ok(0));
            }
        }
        let receiving: Vec<_> = self.io.receiving.keys().copied().collect();
        for stream in receiving {
            let (fd, into, room) = self.io.receiving[&stream];
            let Some(arrived) = arrived.get_mut(&fd) else {
                continue;
            };
            let len = arrived.bytes.len().min(room);
            if len == 0 && !arrived.is_ended {
                continue;
            }
            self.io.receiving.remove(&stream);
            // SAFETY: the socket keeps this memory until the completion that follows, and does not touch it.
            unsafe { std::ptr::copy_nonoverlapping(arrived.bytes.as_ptr(), into, len) };
            arrived.bytes.drain(..len);
            self.migrations.received(stream, Ok(len));
        }
    }

    /// What the checkpointer does of a copy without images.
    fn remove_copy(&mut self, partition: PartitionId, epoch: Epoch) {
        let keyspace = &mut self.core.keyspace;
        let copy = keyspace.partition(partition).filter(|p| p.epoch == epoch);
        if copy.is_none_or(Partition::is_empty_remnant) {
            let _ = copy.is_some() && keyspace.forget(partition);
            self.migrations.removed(partition, epoch);
        }
    }

    fn tend_segments(&mut self) {
        let log = &mut self.core.keyspace.log;
        while log.wants_segments() > 0 {
            let (id, options) = (log.allocate_segment(), log.options().clone());
            let prepared = block_on(self.log.log_files.prepare(&options, id));
            let prepared = prepared.expect("a disk without faults");
            let added = log.add_segment(prepared.info);
            added.expect("a segment that the log has asked for");
            self.log.files.insert(id, Rc::new(prepared.file));
        }
    }

    fn write_log(&mut self, delay_ms: &mut dyn FnMut() -> u64) {
        let wall_ms = self.core.keyspace.now_ms();
        loop {
            while let Some(op) = self.core.keyspace.log.next_write(wall_ms) {
                let file = Rc::clone(&self.log.files[&op.segment]);
                let mut writing: Writing = Box::pin(async move {
                    let result = file.write_at(&op.buf, op.offset).await;
                    let len = op.buf.len();
                    (op, result.map(|()| len))
                });
                assert!(poll(&mut writing).is_none(), "a write takes two polls");
                let last = self.log.writing.last().map_or(0, |(at, _)| *at);
                let at = last.max(self.now_ms + delay_ms());
                self.log.writing.push((at, writing));
            }
            if !self.core.keyspace.log.is_starved() {
                return;
            }
            self.tend_segments();
        }
    }

    /// Looks after every connection that something happened to.
    fn answer(&mut self) -> Vec<Answered> {
        let core = &mut self.core;
        let committed = core.keyspace.log.committed();
        let mut answers = Vec::new();
        for token in std::mem::take(&mut core.listed) {
            let Some(connection) = core.connections.get_mut(token) else {
                continue;
            };
            connection.listed = false;
            connection.outbox.note_committed(committed);
            let mut bytes = Vec::new();
            let front = loop {
                if connection.life == Life::Dead {
                    break Front::Empty;
                }
                match connection.outbox.take_ready(committed, &mut bytes) {
                    Front::Taken => {}
                    front => break front,
                }
            };
            let is_closed = connection.life != Life::Open && matches!(front, Front::Empty);
            if !bytes.is_empty() || is_closed {
                answers.push(Answered {
                    to: token,
                    bytes,
                    is_closed,
                });
            }
            if is_closed {
                core.remove_connection(token);
                continue;
            }
            core.tend_output(token);
            if let Front::Gated(lsn) = front {
                core.list_once_committed(token, lsn);
            }
        }
        answers
    }

    /// Takes what the ring would have sent.
    fn note_sent(&mut self) {
        for (stream, fd, bytes) in std::mem::take(&mut self.io.sent) {
            let len = bytes.len();
            self.outgoing.push((fd, Sent::Bytes(bytes)));
            self.migrations.sent(stream, Ok(len));
            self.has_sent = true;
        }
        let ended: Vec<_> = self.migrations.ended_streams().collect();
        for (stream, _) in ended {
            if !self.ended.contains(&stream) {
                self.ended.push(stream);
                if let Some(fd) = self.io.sockets.get(&stream) {
                    self.outgoing.push((*fd, Sent::End));
                }
            }
        }
    }

    /// Writes keys that nobody else writes, as a client would; answers after which record they are.
    pub fn fill(&mut self, keys: impl Iterator<Item = Vec<u8>>) -> u64 {
        let spec = lookup(b"SET").expect("a command");
        for key in keys {
            let mut out = Vec::new();
            let mut reply = Reply {
                out: &mut out,
                protocol: ephesus_wire::resp::reply::Protocol::Resp2,
                gate: ephesus_wire::Lsn::ZERO,
            };
            let args: [&[u8]; 3] = [b"SET", &key, &key];
            let slot = slot_of(&key);
            let executed = self
                .core
                .keyspace
                .execute(spec, &args[..], slot, &mut reply);
            executed.expect("a valid command");
        }
        self.core.keyspace.log.appended().0
    }

    /// The last record that the log has committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.core.keyspace.log.committed().0
    }

    /// What is here of partitions.
    pub fn copies(&self) -> impl Iterator<Item = (PartitionId, Held)> + '_ {
        let copies = self.core.keyspace.partitions();
        copies.map(|copy| (copy.id, self.held(copy)))
    }

    fn held(&self, copy: &Partition) -> Held {
        let incoming = copy.incoming().map(|incoming| {
            let is_prepared = matches!(incoming.state(), StagingState::Prepared(..));
            (incoming.source().migration, copy.seq(), is_prepared)
        });
        let is_wiped = copy.incoming().map(Incoming::state) == Some(StagingState::Wiped);
        let core = &self.core;
        let leads_here = core.router.routes.owner_of(copy.id).is(core.id);
        let slots = core.node.partitioning.slots_of(copy.id);
        let is_placed = core.place(Slot(*slots.start())) == Place::Here;
        let waits = core.is_waited_for(copy.id);
        Held {
            shard: core.id,
            epoch: copy.epoch,
            executes: copy.is_serving() && !waits && (leads_here || is_placed),
            is_held: core.is_held(copy.id),
            outgoing: copy.outgoing().map(|o| (o.migration, o.stage())),
            incoming,
            left_keys: if is_wiped { copy.table.len() } else { 0 },
        }
    }

    /// The keys and values of a copy that is served.
    #[must_use]
    pub fn contents(&self, partition: PartitionId) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
        let copy = self.core.keyspace.served(partition)?;
        let mut found = BTreeMap::new();
        let mut cursor = 0;
        loop {
            cursor = copy.table.scan_values(cursor, &mut |_, entry| {
                found.insert(entry.key.to_vec(), entry.value.to_vec());
            });
            if cursor == 0 {
                return Some(found);
            }
        }
    }
}

fn poll(writing: &mut Writing) -> Option<(WriteOp, io::Result<usize>)> {
    match writing
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}
