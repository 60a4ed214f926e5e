//! The shard's log: its writes, syncs and segments.

use std::fmt::Display;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use ephesus_wal::disk::std::StdFile;
use ephesus_wal::{Durability, is_no_room, passes};

use super::timers::{MARK_AFTER, SYNC_EVERY};
use super::{Shard, fatal};

/// A write that takes longer is not waited for with a sync that is due.
const SLOW_WRITE: Duration = Duration::from_millis(200);

impl Shard {
    #[expect(
        clippy::expect_used,
        clippy::indexing_slicing,
        reason = "a write completes once"
    )]
    pub(super) fn log_written(&mut self, write: u64, result: io::Result<usize>) {
        let place = self.writes.iter().position(|(op, _)| op.id == write);
        let place = place.expect("a write completes once");
        let bytes = self.writes[place].0.buf.len();
        // A part of it is written where there was no room for the rest.
        let is_short = result.as_ref().is_ok_and(|&written| written < bytes);
        if is_short || result.as_ref().is_err_and(passes) {
            self.refused_writes.refused(write, self.now);
            let error = result.err().unwrap_or(io::ErrorKind::WriteZero.into());
            self.note_lack(&error, is_no_room(&error));
            return;
        }
        self.refused_writes.written(write);
        let (op, issued) = self.writes.swap_remove(place);
        let took = self.now.saturating_duration_since(issued);
        self.write_usec
            .saturating_record((took.as_micros() as u64).max(1));
        match self.core.keyspace.log.complete(op, result) {
            Ok(_) => self.core.committed(),
            Err(error) => fatal("log", &error),
        }
    }

    /// The log waits for what the system lacks.
    fn note_lack(&mut self, error: &impl Display, is_out_of_space: bool) {
        if !self.log_waits {
            tracing::error!(%error, "the log's files wait for what the system lacks");
        }
        self.log_waits = true;
        self.log_lacks_space = is_out_of_space;
    }

    pub(super) fn log_synced(&mut self, result: io::Result<()>) {
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
    pub(super) fn is_unsynced(&self) -> bool {
        let log = &self.core.keyspace.log;
        log.options().durability == Durability::Relaxed && log.durable() < log.written()
    }

    /// Whether relaxed durability has committed something that is not written yet.
    pub(super) fn is_unwritten(&self) -> bool {
        let log = &self.core.keyspace.log;
        self.mapped.is_some() && log.written() < log.committed()
    }

    /// The file that has what was committed and not written, if the log does not get on with writing it: the device
    /// is to have that in time all the same.
    fn unwritten_file(&self) -> Option<&StdFile> {
        let is_slow = |issued: &Instant| self.now.saturating_duration_since(*issued) > SLOW_WRITE;
        let oldest = self.writes.iter().map(|(_, issued)| issued).min();
        let is_stuck = self.core.keyspace.log.is_starved() || oldest.is_some_and(is_slow);
        let is_needed = self.is_unwritten() && is_stuck;
        self.mapped.as_ref().filter(|_| is_needed)
    }

    /// Prepared segments, marks, syncs, truncation.
    pub(super) fn tend_log(&mut self) {
        let now = self.now;
        let log = &mut self.core.keyspace.log;
        if let Err(error) = self.segments.tend(log, now) {
            if !error.passes() {
                fatal("log", &error);
            }
            self.note_lack(&error, error.is_out_of_space());
        }
        self.log_waits &= self.segments.waits() || self.refused_writes.are_there();
        self.log_lacks_space &= self.log_waits;
        let log = &self.core.keyspace.log;
        self.checkpointer.spare_bytes = self.segments.spare_bytes(log);
        let is_over_budget = self.checkpointer.is_over_budget(&self.core.keyspace);
        // On a full disk no image makes room: writes are refused, and must not wait before.
        self.core
            .note_log(is_over_budget && !self.core.node.disk.is_full());
        self.core.admission.log_room.has_room_for_moves =
            !self.migrations.are_filling() || self.checkpointer.has_room_for_moves();
        let log = &mut self.core.keyspace.log;
        let idle = now.saturating_duration_since(self.timers.last_append) >= MARK_AFTER;
        if !self.timers.marked && idle {
            self.timers.marked = true;
            log.mark();
        }
        self.log_is_awaited = self.stopping.is_some()
            || self.checkpointer.waits_for_log(&self.core.keyspace)
            || self.migrations.wait_for_sync(&self.core)
            || self.core.awaits_device();
        let due = now.saturating_duration_since(self.timers.sync) >= SYNC_EVERY;
        let due = due || self.log_is_awaited;
        let is_behind = self.is_unsynced() || self.unwritten_file().is_some();
        if self.syncing.is_none() && due && is_behind {
            self.begin_sync();
        }
    }

    pub(super) fn begin_sync(&mut self) {
        self.timers.sync = self.now;
        let point = self.core.keyspace.log.sync_point();
        let segments = point
            .segments
            .iter()
            .map(|&id| self.segments.descriptor(id));
        let unwritten = self.unwritten_file().map(AsRawFd::as_raw_fd);
        let files: Vec<RawFd> = segments.chain(unwritten).collect();
        if files.is_empty() {
            return;
        }
        for &file in &files {
            self.ring.sync_log(file);
        }
        let missing = files.len();
        self.syncing = Some((point, missing));
    }

    /// Issues again what is due of the writes that were refused.
    #[expect(clippy::expect_used, reason = "what was refused is not written")]
    fn write_refused(&mut self) {
        while let Some(write) = self.refused_writes.take_due(self.now) {
            let mut writes = self.writes.iter().map(|(op, _)| op);
            let op = writes.find(|op| op.id == write).expect("not written");
            let fd = self.segments.descriptor(op.segment);
            // SAFETY: as in `write_log`.
            unsafe {
                self.ring.write_log(op.id, fd, &op.buf, op.offset);
            }
        }
    }

    /// Issues what the log wants written and does not wait for more.
    pub(super) fn write_log(&mut self) {
        self.write_refused();
        let may_wait = self.core.keyspace.log.may_wait() && !self.log_is_awaited;
        if self.write_delay.delays(may_wait, self.now) {
            return;
        }
        let now_ms = self.core.keyspace.now_ms();
        while let Some(op) = self.core.keyspace.log.next_write(now_ms) {
            let fd = self.segments.descriptor(op.segment);
            let stats = self.core.stats();
            stats.wal_groups.add(1);
            self.write_delay.written();
            stats.wal_bytes_written.add(op.buf.len() as u64);
            // SAFETY: the buffer belongs to `op`, which is kept in `writes` until the write has
            // completed; moving `op` does not move the buffer.
            unsafe {
                self.ring.write_log(op.id, fd, &op.buf, op.offset);
            }
            if self.timers.marked && self.core.keyspace.log.unwritten_bytes() > 0 {
                self.timers.marked = false;
            }
            self.timers.last_append = self.now;
            self.writes.push((op, self.now));
        }
    }
}
