//! A log whose writes are taken down instead of written: what tests of its users need of a disk that has no faults.

#![expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a test's equipment"
)]

use ephesus_wire::Lsn;

use crate::group::{GroupHeader, HEADER_BYTES};
use crate::segment::SegmentInfo;
use crate::writer::LogWriter;

/// Records, and the LSN of each.
pub type Records = Vec<(Lsn, Vec<u8>)>;

/// Completes everything that a log wants written, and takes down its records.
pub fn take_down(log: &mut LogWriter, records: &mut Records) {
    complete(log, |group| read(group, records));
}

/// Completes everything that a log wants written, and shows each group.
///
/// # Panics
/// When the log takes no more.
pub fn complete(log: &mut LogWriter, mut see: impl FnMut(&[u8])) {
    loop {
        while let Some(op) = log.next_write(0) {
            see(&op.buf);
            let len = op.buf.len();
            log.complete(op, Ok(len)).expect("a write that succeeded");
        }
        if !log.is_starved() {
            return;
        }
        let segment = SegmentInfo {
            id: log.allocate_segment(),
            bytes: log.options().segment_bytes,
        };
        let added = log.add_segment(segment);
        added.expect("a segment of the log's size");
    }
}

fn read(group: &[u8], records: &mut Records) {
    let header: GroupHeader = bytemuck::pod_read_unaligned(&group[..HEADER_BYTES]);
    let mut rest = &group[HEADER_BYTES..];
    for at in 0..u64::from(header.record_count) {
        let (len, behind) = rest.split_first_chunk::<4>().expect("a length");
        let (record, behind) = behind.split_at(u32::from_le_bytes(*len) as usize);
        records.push((Lsn(header.first_lsn + at), record.to_vec()));
        rest = behind;
    }
}
