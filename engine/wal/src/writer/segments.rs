//! The segments that a writer goes through, in the order of their numbers.
//!
//! ```text
//! allocate_segment -> (is prepared) -> add_segment -> reserve -> (is written to) -> truncate_before
//! ```

use ephesus_wire::Lsn;

use super::LogWriter;
use crate::error::WalError;
use crate::files;
use crate::planted::Bug;
use crate::segment::{SegmentId, SegmentInfo, SegmentSummary};

/// A segment that has groups which are needed.
#[derive(Debug)]
pub(super) struct LiveSegment {
    pub(super) summary: SegmentSummary,
    /// Of this writer's, as [`WriteOp::id`](super::WriteOp::id) counts them; 0: of earlier incarnations.
    pub(super) first_group: u64,
    pub(super) last_group: u64,
}

/// The segment that is written to; the last of those that are live.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    pub(super) info: SegmentInfo,
    /// The segment before it; 0: none.
    pub(super) prev: u64,
    /// Bytes that have been issued in it.
    pub(super) end: u64,
}

impl LogWriter {
    /// The number for the next segment to prepare or recycle; never given out again.
    pub fn allocate_segment(&mut self) -> SegmentId {
        let id = SegmentId(self.next_segment);
        self.next_segment += 1;
        id
    }

    /// Adds a prepared segment, to be used after all earlier ones. Prepare one at a time: numbers
    /// must ascend.
    ///
    /// # Errors
    /// [`WalError::SegmentSize`] and [`WalError::SegmentOrder`].
    pub fn add_segment(&mut self, segment: SegmentInfo) -> Result<(), WalError> {
        let last = self
            .ready
            .back()
            .map(|s| s.id)
            .or(self.live.back().map(|s| s.summary.id));
        if let Some(last) = last.filter(|last| *last >= segment.id) {
            let id = segment.id;
            return Err(WalError::SegmentOrder { id, last });
        }
        files::check_size(&self.opts, segment)?;
        self.next_segment = self.next_segment.max(segment.id.0 + 1);
        self.ready.push_back(segment);
        Ok(())
    }

    /// The segment of the opening, which may be smaller than others: see [`crate::LogOptions::opening_bytes_min`].
    pub(crate) fn begin_in(&mut self, segment: SegmentInfo) {
        self.next_segment = self.next_segment.max(segment.id.0 + 1);
        self.ready.push_back(segment);
    }

    /// Whether a segment that was given back can become one of the next; if not it has to be removed.
    #[must_use]
    pub fn is_reusable(&self, old: SegmentInfo) -> bool {
        files::is_reusable(&self.opts, old)
    }

    /// Bytes of prepared segments that are not in use yet.
    #[must_use]
    pub fn ready_bytes(&self) -> u64 {
        self.ready.iter().map(|segment| segment.bytes).sum()
    }

    /// Whether a segment is or will be written to, or has writes that are not durable: its file is still needed.
    #[must_use]
    pub fn is_in_use(&self, id: SegmentId) -> bool {
        let is_live = |segment: &LiveSegment| segment.summary.id == id;
        match self.live.iter().rposition(is_live) {
            Some(at) => {
                let is_last = at + 1 == self.live.len();
                let live = self.live.get(at);
                is_last || live.is_some_and(|live| live.last_group > self.durable_group)
            }
            None => self.live.back().is_none_or(|last| last.summary.id < id),
        }
    }

    /// How many segments should be prepared to have [`LogOptions::spare_segments`] ahead.
    #[must_use]
    pub fn wants_segments(&self) -> usize {
        let least = usize::from(self.current.is_none());
        self.opts
            .spare_segments
            .max(least)
            .saturating_sub(self.ready.len())
    }

    /// Gives back the oldest segments whose records are all below `lsn`, oldest first; recycle or
    /// remove them in this order, one after the other.
    ///
    /// A segment stays until the durable prefix has reached a later one, so call again later.
    pub fn truncate_before(&mut self, lsn: Lsn) -> Vec<SegmentInfo> {
        let mut given_back = Vec::new();
        let too_much = self.opts.planted(Bug::TruncateTooMuch);
        while let [oldest, next, ..] = self.live.make_contiguous() {
            let unneeded = oldest.summary.last_lsn < lsn || too_much;
            if !unneeded || next.first_group > self.durable_group {
                break;
            }
            given_back.push(SegmentInfo {
                id: oldest.summary.id,
                bytes: oldest.summary.bytes,
            });
            self.live.pop_front();
        }
        given_back
    }

    /// The live segments, oldest first; the last one is being written to.
    pub fn segments(&self) -> impl Iterator<Item = SegmentSummary> + '_ {
        self.live.iter().map(|segment| segment.summary)
    }

    /// Bytes of all live segments.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.live.iter().map(|segment| segment.summary.bytes).sum()
    }

    /// Bytes of the segment that is written to which have not been issued.
    #[must_use]
    pub fn unused_bytes(&self) -> u64 {
        self.current.map_or(0, |c| c.info.bytes - c.end)
    }

    /// Finds room for `bytes`, in the next segment if need be.
    pub(super) fn reserve(&mut self, bytes: u64) -> Option<u64> {
        if let Some(current) = &mut self.current
            && current.end + bytes <= current.info.bytes
        {
            current.end += bytes;
            return Some(current.end - bytes);
        }
        let info = self.ready.pop_front()?;
        let prev = self.live.back().map_or(0, |segment| segment.summary.id.0);
        self.current = Some(Current {
            info,
            prev,
            end: bytes,
        });
        let first_lsn = self
            .sealed
            .front()
            .or(self.open.as_ref())
            .map(|group| group.first_lsn);
        let first_lsn = Lsn(first_lsn.unwrap_or(self.next_lsn));
        let last_lsn = Lsn(first_lsn.0 - 1);
        self.live.push_back(LiveSegment {
            summary: SegmentSummary {
                id: info.id,
                bytes: info.bytes,
                first_lsn,
                last_lsn,
            },
            first_group: self.last_group + 1,
            last_group: self.last_group,
        });
        Some(0)
    }
}
