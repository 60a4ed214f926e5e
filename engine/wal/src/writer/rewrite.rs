//! The planted bug [`Bug::RewriteTail`]: a log that grows its last group in place.

use crate::aligned::AlignedBuf;
use crate::group::{GroupHeader, HEADER_BYTES};
use crate::planted::Bug;
use crate::segment::SegmentId;
use crate::writer::LogWriter;

/// The last group written.
#[derive(Debug)]
pub(super) struct Tail {
    segment: SegmentId,
    offset: u64,
    first_lsn: u64,
    record_count: u32,
    records: Vec<u8>,
}

impl LogWriter {
    pub(super) fn note_tail(&mut self, header: &GroupHeader, offset: u64, records: &[u8]) {
        if self.opts.planted(Bug::RewriteTail) {
            self.tail = (header.record_count > 0).then(|| Tail {
                segment: SegmentId(header.segment),
                offset,
                first_lsn: header.first_lsn,
                record_count: header.record_count,
                records: records.to_vec(),
            });
        }
    }

    /// Puts the last group's records in front of the open group's, and the end of the segment
    /// back to where that group starts.
    pub(super) fn rewrite_tail(&mut self) {
        if !self.opts.planted(Bug::RewriteTail) || !self.in_flight.is_empty() {
            return;
        }
        let Some(tail) = self.tail.take() else { return };
        let (Some(open), Some(current)) = (&mut self.open, &mut self.current) else {
            return;
        };
        let len = open.len + tail.records.len();
        let fits =
            len <= self.opts.group_bytes_max && tail.offset + len as u64 <= current.info.bytes;
        if !self.sealed.is_empty() || !fits || tail.segment != current.info.id {
            return;
        }
        let mut buf = AlignedBuf::zeroed(self.opts.group_bytes_max);
        let split = HEADER_BYTES + tail.records.len();
        buf[HEADER_BYTES..split].copy_from_slice(&tail.records);
        buf[split..len].copy_from_slice(&open.buf[HEADER_BYTES..open.len]);
        self.unwritten_bytes += tail.records.len();
        open.buf = buf;
        open.len = len;
        open.first_lsn = tail.first_lsn;
        open.record_count += tail.record_count;
        current.end = tail.offset;
    }
}
