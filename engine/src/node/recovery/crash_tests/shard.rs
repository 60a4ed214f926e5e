//! One shard with everything but sockets: its keyspace, log, checkpointer and clients.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use ephesus_wal::disk::fault::FaultFile;
use ephesus_wal::{
    DiskFile, Durability, FaultDisk, LogFiles, SegmentId, SegmentInfo, WalError, WriteOp,
};
use ephesus_wire::resp::reply::Protocol;
use ephesus_wire::slot::slot_of;
use ephesus_wire::{Database, Lsn};
use futures_lite::future::block_on;

use super::history::{Effect, History, apply};
use super::store::{SimLink, SimStore};
use super::workload::Command;
use crate::command::spec::lookup;
use crate::image::ReadError;
use crate::keyspace::{Keyspace, Reply};
use crate::shard::{Checkpointer, Outbox};
use ephesus_wire::rng::Rng;

type Writing = Pin<Box<dyn Future<Output = (WriteOp, io::Result<usize>)>>>;

/// Why a life ends.
pub(super) enum End {
    /// A disk or store failed: the process ends.
    Failed,
    Violation(String),
}

impl From<WalError> for End {
    fn from(error: WalError) -> End {
        match error {
            WalError::Io { .. } | WalError::Unsynced { .. } | WalError::Poisoned => End::Failed,
            other => End::Violation(format!("unexpected: {other}")),
        }
    }
}

#[derive(Default)]
pub(super) struct Client {
    pub(super) outbox: Outbox,
    /// Bytes of each reply, and what the client knows once it has read it.
    unread: VecDeque<(usize, usize)>,
    partly_read: usize,
}

pub(super) struct SimShard {
    pub(super) keyspace: Keyspace,
    pub(super) checkpointer: Checkpointer<SimLink>,
    pub(super) disk: FaultDisk,
    pub(super) log_files: LogFiles<FaultDisk>,
    pub(super) files: BTreeMap<SegmentId, Rc<FaultFile>>,
    pub(super) writing: Vec<Writing>,
    pub(super) retired: VecDeque<SegmentInfo>,
    pub(super) shelved: Vec<SegmentInfo>,
    pub(super) clients: Vec<Client>,
    pub(super) keys: Vec<Vec<u8>>,
    /// A partition moves here or from here: no command is about all keys.
    pub(super) is_moving: bool,
    pub(super) history: History,
    pub(super) turn: u64,
    pub(super) start: Instant,
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

impl SimShard {
    pub(super) fn step(
        &mut self,
        stores: &[Rc<RefCell<SimStore>>],
        now_ms: u64,
        rng: &mut Rng,
        unique: &mut u64,
    ) -> Result<(), End> {
        self.keyspace.set_now(now_ms);
        match rng.below(32) {
            0..=7 if !self.keys.is_empty() => self.command(rng, unique)?,
            8 if !self.keys.is_empty() => self.section(rng, unique)?,
            9 => self.whole(rng),
            10..=15 => self.issue()?,
            16..=20 => self.complete_one(rng)?,
            21 => self.tend_segments()?,
            22..=25 => self.image()?,
            26..=28 => {
                let store = &stores[rng.below(stores.len() as u64) as usize];
                let worked = store.borrow_mut().work();
                worked.map_err(|error| match error {
                    ReadError::Store(_) => End::Failed,
                    error => End::Violation(error.to_string()),
                })?;
            }
            29 => {
                self.keyspace.remove_lapsed(true);
                self.keyspace.sweep_slice();
                self.keyspace.free_slice(16);
            }
            30 => self.keyspace.log.mark(),
            _ => self.sync()?,
        }
        self.turn += rng.below(2);
        self.deliver();
        Ok(())
    }

    fn command(&mut self, rng: &mut Rng, unique: &mut u64) -> Result<(), End> {
        let now_ms = self.keyspace.now_ms();
        let Command {
            args,
            effect,
            looked_at,
            reply: expected,
        } = Command::random(&self.keys, &self.history.now, now_ms, rng, unique);
        let spec = lookup(&args[0]).expect("a command");
        let at = rng.below(self.clients.len() as u64) as usize;
        let keyspace = &mut self.keyspace;
        let mut answer = Vec::new();
        self.clients[at].outbox.write(self.turn, |out| {
            let before = out.len();
            let mut reply = reply_to(out);
            let executed = keyspace.execute(spec, &args[..], slot_of(&args[1]), &mut reply);
            let gate = reply.gate;
            if let Err(error) = executed {
                error.write(out);
            }
            answer.extend_from_slice(&out[before..]);
            gate
        });
        if expected.is_some_and(|expected| expected != answer) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let command: Vec<_> = args.iter().map(|arg| text(arg)).collect();
            return Err(End::Violation(format!(
                "{command:?} is answered with {:?}",
                text(&answer)
            )));
        }
        let lsn = self.keyspace.log.appended();
        let knows = self.history.execute(effect, lsn, &looked_at);
        self.clients[at].unread.push_back((answer.len(), knows));
        Ok(())
    }

    /// Some commands that are one record, or none at all.
    fn section(&mut self, rng: &mut Rng, unique: &mut u64) -> Result<(), End> {
        let now_ms = self.keyspace.now_ms();
        let mut now = self.history.now.clone();
        let (mut effects, mut looked_at) = (Vec::new(), Vec::new());
        self.keyspace.begin_atomic(usize::MAX);
        let mut answer = Vec::new();
        let mut gate = Lsn::ZERO;
        for _ in 0..1 + rng.below(6) {
            let command = Command::random(&self.keys, &now, now_ms, rng, unique);
            let spec = lookup(&command.args[0]).expect("a command");
            let mut reply = reply_to(&mut answer);
            let slot = slot_of(&command.args[1]);
            let executed = self
                .keyspace
                .execute(spec, &command.args[..], slot, &mut reply);
            gate = gate.max(reply.gate);
            if let Err(error) = executed {
                error.write(&mut answer);
            }
            apply(&command.effect, &mut now);
            if let Effect::Keys(keys) = command.effect {
                effects.extend(keys);
            }
            looked_at.extend(command.looked_at);
        }
        if rng.one_in(3) {
            self.keyspace.roll_back_atomic();
            return Ok(());
        }
        let mut reply = reply_to(&mut answer);
        let committed = self.keyspace.commit_atomic(&mut reply);
        committed.map_err(|error| End::Violation(error.to_string()))?;
        let gate = gate.max(reply.gate);
        let at = rng.below(self.clients.len() as u64) as usize;
        self.clients[at].outbox.write(self.turn, |out| {
            out.extend_from_slice(&answer);
            gate
        });
        let effect = match effects.is_empty() {
            true => Effect::None,
            false => Effect::Keys(effects),
        };
        let lsn = self.keyspace.log.appended();
        let knows = self.history.execute(effect, lsn, &looked_at);
        self.clients[at].unread.push_back((answer.len(), knows));
        Ok(())
    }

    /// FLUSHALL, rarely, or DBSIZE.
    fn whole(&mut self, rng: &mut Rng) {
        let flushes = rng.one_in(6) && !self.is_moving;
        let at = rng.below(self.clients.len() as u64) as usize;
        let was_empty = self.keyspace.is_empty();
        let keyspace = &mut self.keyspace;
        let mut len = 0;
        self.clients[at].outbox.write(self.turn, |out| {
            let before = out.len();
            let mut reply = reply_to(out);
            if flushes {
                keyspace.flush(&mut reply);
                reply.out.extend_from_slice(b"+OK\r\n");
            } else {
                keyspace.dbsize(Database::ZERO, &mut reply);
            }
            len = reply.out.len() - before;
            reply.gate
        });
        if flushes && !was_empty {
            let lsn = self.keyspace.log.appended();
            self.history.execute(Effect::Flush, lsn, &[]);
        }
        let knows = self.history.len();
        self.clients[at].unread.push_back((len, knows));
    }

    fn issue(&mut self) -> Result<(), End> {
        if self.keyspace.log.is_starved() {
            self.tend_segments()?;
        }
        while let Some(op) = self.keyspace.log.next_write(self.keyspace.now_ms()) {
            let file = Rc::clone(&self.files[&op.segment]);
            let mut writing: Writing = Box::pin(async move {
                let result = file.write_at(&op.buf, op.offset).await;
                let len = op.buf.len();
                (op, result.map(|()| len))
            });
            match poll(&mut writing) {
                Some((op, result)) => drop(self.keyspace.log.complete(op, result)?),
                None => self.writing.push(writing),
            }
        }
        Ok(())
    }

    fn complete_one(&mut self, rng: &mut Rng) -> Result<(), End> {
        if !self.writing.is_empty() {
            let at = rng.below(self.writing.len() as u64) as usize;
            let (op, result) = poll(&mut self.writing.swap_remove(at)).expect("second poll");
            self.keyspace.log.complete(op, result)?;
        }
        Ok(())
    }

    fn tend_segments(&mut self) -> Result<(), End> {
        let options = self.keyspace.log.options().clone();
        if self.keyspace.log.wants_segments() > 0 {
            let id = self.keyspace.log.allocate_segment();
            let handle = match self.retired.pop_front() {
                Some(old) => block_on(self.log_files.recycle(&options, old, id))?,
                None => match self.shelved.pop() {
                    Some(old) => block_on(self.log_files.reuse(&options, old, id))?,
                    None => block_on(self.log_files.prepare(&options, id))?,
                },
            };
            self.keyspace.log.add_segment(handle.info)?;
            self.files.insert(id, Rc::new(handle.file));
        } else if let Some(old) = self.retired.pop_front() {
            if old.id.0.is_multiple_of(2) {
                block_on(self.log_files.discard(old))?;
            } else {
                block_on(self.log_files.shelve(&options, old))?;
                self.shelved.push(old);
            }
        }
        Ok(())
    }

    fn image(&mut self) -> Result<(), End> {
        let freed = self
            .checkpointer
            .take_replies(&mut self.keyspace, self.start);
        for segment in freed.map_err(End::Violation)? {
            self.files.remove(&segment.id);
            self.retired.push_back(segment);
        }
        let slice = self.checkpointer.slice(&mut self.keyspace, self.start);
        slice.map(drop).map_err(End::Violation)
    }

    /// Writes the whole log and a mark behind it, as an idle shard does.
    pub(super) fn settle(&mut self, rng: &mut Rng) -> Result<(), End> {
        for marks in [false, true] {
            if marks {
                self.keyspace.log.mark();
            }
            loop {
                self.issue()?;
                if self.writing.is_empty() {
                    break;
                }
                while !self.writing.is_empty() {
                    self.complete_one(rng)?;
                }
            }
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), End> {
        if self.keyspace.log.options().durability == Durability::Relaxed {
            let point = self.keyspace.log.sync_point();
            for id in &point.segments {
                block_on(self.files[id].sync()).map_err(|_| End::Failed)?;
            }
            self.keyspace.log.synced(&point);
        }
        Ok(())
    }

    /// Lets clients read what may leave; every other turn what the log may commit at once is.
    pub(super) fn deliver(&mut self) {
        if self.turn.is_multiple_of(2) {
            self.keyspace.log.publish(self.keyspace.now_ms());
        }
        let committed = self.keyspace.log.committed();
        for client in &mut self.clients {
            let mut read = Vec::new();
            client.outbox.take_ready(committed, &mut read);
            client.partly_read += read.len();
            while let Some(&(bytes, knows)) = client.unread.front() {
                if client.partly_read < bytes {
                    break;
                }
                client.partly_read -= bytes;
                client.unread.pop_front();
                self.history.acknowledge(knows);
            }
        }
    }
}

fn reply_to(out: &mut Vec<u8>) -> Reply<'_> {
    Reply {
        out,
        protocol: Protocol::Resp2,
        gate: Lsn::ZERO,
    }
}
