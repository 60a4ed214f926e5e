//! Decides what to write next; performs no I/O and knows no clock.
//!
//! ```text
//! append -> open group -> (full) sealed groups -> next_write -> in flight -> complete -> committed
//!               \-> publish -> committed, if the group is mapped (relaxed durability)
//! ```
//!
//! Groups are issued in order, may complete in any order, and become committed in order.

use std::collections::VecDeque;
use std::io;

use bytemuck::Zeroable;
use ephesus_wire::Lsn;

use crate::aligned::{AlignedBuf, align_up};
use crate::error::WalError;
use crate::group::{
    FLAG_OPENING, FLAG_RELAXED, GroupHeader, HEADER_BYTES, MAGIC, RECORD_PREFIX_BYTES, VERSION,
};
use crate::mapped::{MappedGroups, Published};
use crate::options::{Durability, LogOptions};
use crate::planted::Bug;
use crate::segment::{SegmentId, SegmentInfo, SegmentSummary};

mod pending;
mod segments;

#[cfg(test)]
mod rewrite;
#[cfg(test)]
mod tests;

use pending::PendingGroup;
use segments::{Current, LiveSegment};

/// One log's writer.
#[derive(Debug)]
pub struct LogWriter {
    opts: LogOptions,
    origin: Origin,
    next_lsn: u64,
    committed: Lsn,
    /// Every record up to this LSN is in a write that has completed.
    written: Lsn,
    durable: Lsn,
    /// Highest durable LSN that a group has claimed on disk or will.
    claimed: Lsn,
    open: Option<PendingGroup>,
    sealed: VecDeque<PendingGroup>,
    in_flight: VecDeque<InFlight>,
    pool: Vec<AlignedBuf>,
    mapped: Option<MappedGroups>,
    /// Groups with records that are neither mapped nor written.
    unmapped: usize,
    unwritten_bytes: usize,
    live: VecDeque<LiveSegment>,
    current: Option<Current>,
    ready: VecDeque<SegmentInfo>,
    next_segment: u64,
    last_group: u64,
    written_group: u64,
    durable_group: u64,
    wall_clock_ms: u64,
    mark_wanted: bool,
    poisoned: bool,
    #[cfg(test)]
    tail: Option<rewrite::Tail>,
}

/// How an incarnation begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) incarnation: u64,
    pub(crate) prev_end: Lsn,
    pub(crate) first_lsn: Lsn,
    pub(crate) wall_clock_ms: u64,
}

/// A write to issue: all of `buf` at `offset` of `segment`, then [`LogWriter::complete`].
#[derive(Debug)]
#[must_use = "a write that is never issued stops the log"]
pub struct WriteOp {
    /// Counts the writes of this writer from 1.
    pub id: u64,
    /// The file.
    pub segment: SegmentId,
    /// Where in it, a multiple of 4 KiB.
    pub offset: u64,
    /// What; must stay alive until the write has completed.
    pub buf: AlignedBuf,
}

/// Everything that had completed when it was taken: sync `segments`, then [`LogWriter::synced`].
#[derive(Clone, Debug)]
#[must_use = "taking a sync point syncs nothing"]
pub struct SyncPoint {
    /// Durable once the segments are synced.
    pub lsn: Lsn,
    /// The segments written to since the last sync.
    pub segments: Vec<SegmentId>,
    group: u64,
}

#[derive(Debug)]
struct InFlight {
    id: u64,
    last_lsn: Lsn,
    /// All of it is published, or there is nothing in it.
    is_published: bool,
    payload_bytes: usize,
    /// Its memory, once its write has completed.
    completed: Option<AlignedBuf>,
}

impl LogWriter {
    /// A writer whose first write is the opening group with the records `published`; `live` are the
    /// segments of earlier incarnations.
    pub(crate) fn start(
        opts: LogOptions,
        origin: Origin,
        live: impl IntoIterator<Item = SegmentSummary>,
        published: &[Box<[u8]>],
    ) -> LogWriter {
        opts.assert_valid();
        let before = Lsn(origin.first_lsn.0 - 1);
        let live = live.into_iter().map(|summary| LiveSegment {
            summary,
            first_group: 0,
            last_group: 0,
        });
        let mut writer = LogWriter {
            origin,
            next_lsn: origin.first_lsn.0,
            committed: before,
            written: before,
            durable: before,
            claimed: before,
            open: None,
            sealed: VecDeque::new(),
            in_flight: VecDeque::with_capacity(opts.in_flight_max),
            pool: Vec::new(),
            mapped: None,
            unmapped: 0,
            unwritten_bytes: 0,
            live: live.collect(),
            current: None,
            ready: VecDeque::new(),
            next_segment: origin.incarnation,
            last_group: 0,
            written_group: 0,
            durable_group: 0,
            wall_clock_ms: origin.wall_clock_ms,
            mark_wanted: false,
            poisoned: false,
            #[cfg(test)]
            tail: None,
            opts,
        };
        writer.open_with(published);
        writer
    }

    /// Makes the open group the opening: all of `records` in one group, whatever its size.
    fn open_with(&mut self, records: &[Box<[u8]>]) {
        let needed = |record: &[u8]| RECORD_PREFIX_BYTES + record.len();
        let bytes: usize = records.iter().map(|record| needed(record)).sum();
        let bytes = HEADER_BYTES + bytes;
        let mut group = self.heap_group(align_up(bytes));
        for record in records {
            group.push(record.len(), |payload| payload.copy_from_slice(record));
            self.unwritten_bytes += needed(record);
            self.next_lsn += 1;
        }
        self.unmapped += usize::from(!records.is_empty());
        self.sealed.push_back(group);
    }

    /// Has the groups to come lie in `mapped`.
    pub(crate) fn map(&mut self, mapped: MappedGroups) {
        self.mapped = Some(mapped);
    }

    /// Appends a record of `len` bytes, which `fill` writes; it must overwrite all of them (they
    /// hold bytes of earlier groups). Check lengths that are not bounded elsewhere with
    /// [`LogWriter::check_record`] first.
    ///
    /// # Panics
    /// If `len` is above [`LogWriter::max_record_bytes`].
    #[inline]
    pub fn append_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Lsn {
        self.push(len, |group| group.push(len, fill))
    }

    /// Has `push` add a record of `len` bytes to the open group.
    #[expect(clippy::expect_used, reason = "a group was opened, if none was")]
    #[inline]
    fn push(&mut self, len: usize, push: impl FnOnce(&mut PendingGroup)) -> Lsn {
        assert!(
            len <= self.max_record_bytes(),
            "record of {len} bytes was not checked"
        );
        let need = RECORD_PREFIX_BYTES + len;
        if self
            .open
            .as_ref()
            .is_none_or(|g| g.len + need > g.buf.capacity().min(self.opts.group_bytes_max))
        {
            self.turn_group(need);
        }
        let lsn = Lsn(self.next_lsn);
        let group = self.open.as_mut().expect("just made");
        push(group);
        self.next_lsn += 1;
        self.unwritten_bytes += need;
        self.mark_wanted = false;
        lsn
    }

    /// Appends a copy of `record`; see [`LogWriter::append_with`].
    pub fn append(&mut self, record: &[u8]) -> Lsn {
        self.push(record.len(), |group| group.push_copy(record))
    }

    /// Largest record, bytes: it has to fit one segment together with its group's header.
    #[must_use]
    pub fn max_record_bytes(&self) -> usize {
        self.opts.segment_bytes as usize - HEADER_BYTES - RECORD_PREFIX_BYTES
    }

    /// Whether a record of `len` bytes can be appended.
    ///
    /// # Errors
    /// [`WalError::RecordTooLarge`].
    pub fn check_record(&self, len: usize) -> Result<(), WalError> {
        let max = self.max_record_bytes();
        if len > max {
            Err(WalError::RecordTooLarge { bytes: len, max })
        } else {
            Ok(())
        }
    }

    /// LSN of the last record appended.
    #[must_use]
    pub fn appended(&self) -> Lsn {
        Lsn(self.next_lsn - 1)
    }

    /// Whether everything appended so far is committed, or will be by the next [`LogWriter::publish`].
    #[inline]
    #[must_use]
    pub fn publishes_all(&self) -> bool {
        self.mapped.is_some() && self.unmapped == 0
    }

    /// LSN of the last record that the log holds or will: [`LogWriter::appended`], or where the log
    /// ended before if this incarnation has none yet (LSNs in between were never given out).
    #[must_use]
    pub fn last_record(&self) -> Lsn {
        if self.next_lsn > self.origin.first_lsn.0 {
            self.appended()
        } else {
            self.origin.prev_end
        }
    }

    /// Every record up to this LSN is committed; never goes back.
    #[must_use]
    pub fn committed(&self) -> Lsn {
        self.committed
    }

    /// Every record up to this LSN is in a write that has completed; behind `committed` only if relaxed.
    #[must_use]
    pub fn written(&self) -> Lsn {
        self.written
    }

    /// Every record up to this LSN survives a power loss; behind `written` only if relaxed.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// Bytes of records that are appended and not yet written.
    #[must_use]
    pub fn unwritten_bytes(&self) -> usize {
        self.unwritten_bytes
    }

    /// Whether all that would be written next is a group that is not full and that the kernel keeps when the
    /// process dies, so that its write may wait for more.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.sealed.is_empty()
            && self
                .open
                .as_ref()
                .is_some_and(|group| group.buf.is_mapped())
    }

    /// Writes issued and not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether a write has failed: nothing will ever be committed again.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// This opening's incarnation.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.origin.incarnation
    }

    /// What the log was opened with.
    #[must_use]
    pub fn options(&self) -> &LogOptions {
        &self.opts
    }

    /// The next write to issue, if there is one; call until `None`.
    ///
    /// Seals the open group when nothing is in flight, or when it has
    /// [`LogOptions::in_flight_group_bytes`] and a slot is free. `None` also if the segment is full
    /// and no prepared one is there: see [`LogWriter::is_starved`].
    pub fn next_write(&mut self, wall_clock_ms: u64) -> Option<WriteOp> {
        if self.poisoned || self.in_flight.len() >= self.opts.in_flight_max {
            return None;
        }
        let opening = self.last_group == 0;
        let len = self.due_bytes()?;
        #[cfg(test)]
        self.rewrite_tail();
        let offset = self.reserve(align_up(len) as u64)?;
        let group = if let Some(group) = self.sealed.pop_front() {
            group
        } else if let Some(group) = self.open.take() {
            group
        } else {
            self.mark_wanted = false;
            self.heap_group(HEADER_BYTES)
        };
        self.wall_clock_ms = self.wall_clock_ms.max(wall_clock_ms);
        Some(self.issue(group, offset, if opening { FLAG_OPENING } else { 0 }))
    }

    /// Takes back a write with its result (bytes written) and returns what is committed now.
    ///
    /// # Errors
    /// [`WalError::Io`] for a failed or short write, which poisons the writer for ever;
    /// [`WalError::Poisoned`] for every completion after that. End the process.
    ///
    /// # Panics
    /// If the write was not issued by this writer, or was completed before.
    #[expect(
        clippy::expect_used,
        reason = "what a caller completes was given to it, once"
    )]
    pub fn complete(&mut self, op: WriteOp, result: io::Result<usize>) -> Result<Lsn, WalError> {
        if self.poisoned {
            return Err(WalError::Poisoned);
        }
        let written = result.and_then(|bytes| {
            if bytes == op.buf.len() {
                Ok(())
            } else {
                Err(io::ErrorKind::WriteZero.into())
            }
        });
        if let Err(source) = written
            && !self.opts.planted(Bug::IgnoreWriteError)
        {
            self.poisoned = true;
            return Err(WalError::Io {
                op: "write",
                file: op.segment.file_name(),
                source,
            });
        }
        let group = self.in_flight.iter_mut().find(|group| group.id == op.id);
        let group = group.expect("every write is completed once");
        assert!(group.completed.is_none(), "every write is completed once");
        #[cfg(test)]
        if self.opts.planted(Bug::ForgetOutOfOrder) && op.buf.is_mapped() {
            self.mapped.as_mut().expect("mapped").forget(&op.buf);
        }
        group.completed = Some(op.buf);
        if self.opts.planted(Bug::CommitOutOfOrder) {
            self.written = self.written.max(group.last_lsn);
        }
        let is_complete = |group: &InFlight| group.completed.is_some();
        while self.in_flight.front().is_some_and(is_complete) {
            let group = self.in_flight.pop_front().expect("looked at");
            // Not before: behind a torn group what is written does not count, but what is published does.
            self.give_back(group.completed.expect("looked at"));
            self.written = self.written.max(group.last_lsn);
            self.written_group = group.id;
            self.unmapped -= usize::from(!group.is_published);
            self.unwritten_bytes -= group.payload_bytes;
        }
        if self.opts.durability == Durability::Strict {
            self.durable = self.written;
            self.durable_group = self.written_group;
        }
        Ok(self.advance())
    }

    /// Commits what lies in mapped groups, and returns what is committed now: everything appended, unless
    /// one of the groups that are not written is not mapped. Does nothing with strict durability.
    pub fn publish(&mut self, wall_clock_ms: u64) -> Lsn {
        let Some(mapped) = &mut self.mapped else {
            return self.committed;
        };
        self.wall_clock_ms = self.wall_clock_ms.max(wall_clock_ms);
        for group in self.sealed.iter_mut().chain(self.open.as_mut()) {
            group.publish(mapped, self.wall_clock_ms);
        }
        self.advance()
    }

    /// Moves the committed LSN to the last record in front of the first that is neither written nor
    /// published.
    fn advance(&mut self) -> Lsn {
        let mut safe = self.written;
        let issued = self.in_flight.iter().take_while(|group| group.is_published);
        let issued = issued
            .inspect(|group| safe = safe.max(group.last_lsn))
            .count();
        if issued == self.in_flight.len() {
            for group in self.sealed.iter().chain(&self.open) {
                let is_trusted = self.opts.planted(Bug::CommitUnpublished) && group.buf.is_mapped();
                if !group.is_published() && !is_trusted {
                    break;
                }
                safe = safe.max(group.last_lsn());
            }
        }
        self.committed = self.committed.max(safe);
        self.committed
    }

    /// Poisons the writer because something else that it depends on, as a sync, has failed.
    pub fn poison(&mut self) {
        self.poisoned = true;
    }

    /// What a sync started now would make durable (with strict durability: nothing new).
    pub fn sync_point(&self) -> SyncPoint {
        let unsynced = |segment: &&LiveSegment| segment.last_group > self.durable_group;
        SyncPoint {
            lsn: self.written,
            segments: self
                .live
                .iter()
                .filter(unsynced)
                .map(|s| s.summary.id)
                .collect(),
            group: self.written_group,
        }
    }

    /// All segments of `point` have been synced without an error.
    pub fn synced(&mut self, point: &SyncPoint) {
        self.durable = self.durable.max(point.lsn);
        self.durable_group = self.durable_group.max(point.group);
    }

    /// Asks for an empty group which makes everything before it durable for the torn-tail rule:
    /// after 50 ms idle and at a clean stop. It is issued once everything appended is durable, and
    /// only if no group has claimed that yet; appending withdraws it.
    pub fn mark(&mut self) {
        self.mark_wanted = true;
    }

    /// Whether a group waits for a prepared segment.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        let fits = |len: usize| {
            self.current
                .is_some_and(|c| c.end + align_up(len) as u64 <= c.info.bytes)
        };
        self.ready.is_empty()
            && !self.poisoned
            && self.in_flight.len() < self.opts.in_flight_max
            && self.due_bytes().is_some_and(|len| !fits(len))
    }

    /// Size of the group to issue now, if one is due.
    fn due_bytes(&self) -> Option<usize> {
        if let Some(group) = self.sealed.front() {
            return Some(group.len);
        }
        let idle = self.in_flight.is_empty();
        if let Some(group) = &self.open {
            return (idle || group.len >= self.opts.in_flight_group_bytes).then_some(group.len);
        }
        let settled = idle && self.durable == self.appended();
        (self.mark_wanted && settled && self.claimed < self.durable).then_some(HEADER_BYTES)
    }

    /// Seals the open group and opens one with room for a record of `need` bytes.
    #[cold]
    fn turn_group(&mut self, need: usize) {
        self.sealed.extend(self.open.take());
        let bytes = HEADER_BYTES + need;
        let slot = self.mapped.as_mut().and_then(|mapped| mapped.take(bytes));
        self.open = Some(match slot {
            Some(buf) => self.group_in(buf),
            None => {
                self.unmapped += 1;
                self.heap_group(align_up(bytes))
            }
        });
    }

    /// A group with room for `bytes`, and for as many as a usual one.
    fn heap_group(&mut self, bytes: usize) -> PendingGroup {
        let capacity = self.opts.group_bytes_max.max(bytes);
        let pooled = if capacity == self.opts.group_bytes_max {
            self.pool.pop()
        } else {
            None
        };
        let buf = pooled.unwrap_or_else(|| AlignedBuf::zeroed(capacity));
        self.group_in(buf)
    }

    fn group_in(&self, buf: AlignedBuf) -> PendingGroup {
        PendingGroup {
            buf,
            len: HEADER_BYTES,
            first_lsn: self.next_lsn,
            record_count: 0,
            published: Published::nothing(),
        }
    }

    fn give_back(&mut self, mut buf: AlignedBuf) {
        if let Some(mapped) = &mut self.mapped
            && buf.is_mapped()
        {
            return mapped.give_back(buf);
        }
        let pooled = buf.capacity() == self.opts.group_bytes_max;
        if pooled && self.pool.len() < self.opts.in_flight_max + 2 {
            buf.set_len(buf.capacity());
            self.pool.push(buf);
        }
    }

    #[expect(
        clippy::expect_used,
        clippy::indexing_slicing,
        reason = "a place in the last live segment is reserved, which the group fits"
    )]
    fn issue(&mut self, mut group: PendingGroup, offset: u64, flags: u16) -> WriteOp {
        if let Some(mapped) = &mut self.mapped {
            group.publish(mapped, self.wall_clock_ms);
            #[cfg(test)]
            if self.opts.planted(Bug::ForgetAtIssue) && group.buf.is_mapped() {
                mapped.forget(&group.buf);
            }
        }
        let is_published = group.is_published();
        let current = self.current.expect("reserved");
        let segment = self.live.back_mut().expect("reserved");
        let relaxed = self.opts.durability == Durability::Relaxed;
        let (len, first_lsn, record_count) = (group.len, group.first_lsn, group.record_count);
        let header = GroupHeader {
            magic: MAGIC,
            version: VERSION,
            flags: flags | if relaxed { FLAG_RELAXED } else { 0 },
            log_id: self.opts.log_id.0,
            incarnation: self.origin.incarnation,
            segment: current.info.id.0,
            first_lsn,
            record_count,
            byte_len: u32::try_from(len).expect("a group fits a segment"),
            wall_clock_ms: self.wall_clock_ms,
            durable_lsn: self.durable.0,
            prev_end: self.origin.prev_end.0,
            incarnation_first: self.origin.first_lsn.0,
            prev_segment: current.prev,
            ..GroupHeader::zeroed()
        };
        self.last_group += 1;
        segment.last_group = self.last_group;
        segment.summary.last_lsn = header.last_lsn();
        let start_segment = self.live.front().expect("reserved").summary.id.0;
        let header = GroupHeader {
            start_segment,
            ..header
        };
        group.seal(header);
        let mut buf = group.buf;
        buf.set_len(align_up(len));
        buf[len..].fill(0);
        self.claimed = self.durable;
        self.in_flight.push_back(InFlight {
            id: self.last_group,
            last_lsn: header.last_lsn(),
            is_published,
            payload_bytes: len - HEADER_BYTES,
            completed: None,
        });
        if self.opts.planted(Bug::CommitAtIssue) {
            self.committed = self.committed.max(header.last_lsn());
        }
        #[cfg(test)]
        self.note_tail(&header, offset, &buf[HEADER_BYTES..len]);
        WriteOp {
            id: self.last_group,
            segment: current.info.id,
            offset,
            buf,
        }
    }
}
