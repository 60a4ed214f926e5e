//! A group that is not issued yet.

use ephesus_wire::{Lsn, copy};

use crate::aligned::AlignedBuf;
use crate::group::{GroupHeader, RECORD_PREFIX_BYTES, encode_header, encode_header_over};
use crate::mapped::{MappedGroups, Published};

/// Records that will be written together; the open group, or one that is full.
#[derive(Debug)]
pub(super) struct PendingGroup {
    pub(super) buf: AlignedBuf,
    pub(super) len: usize,
    pub(super) first_lsn: u64,
    pub(super) record_count: u32,
    /// How far it is published, if its memory is a mapped slot's.
    pub(super) published: Published,
}

impl PendingGroup {
    /// Adds a record of `len` bytes, which `fill` writes; there has to be room for it.
    #[expect(
        clippy::indexing_slicing,
        clippy::expect_used,
        reason = "there is room, says the caller"
    )]
    #[inline]
    pub(super) fn push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        let need = RECORD_PREFIX_BYTES + len;
        let (prefix, payload) = self.buf[self.len..self.len + need]
            .split_first_chunk_mut::<RECORD_PREFIX_BYTES>()
            .expect("longer than the prefix");
        *prefix = (len as u32).to_le_bytes();
        fill(payload);
        self.len += need;
        self.record_count += 1;
    }

    /// Adds a copy of `record`; there has to be room for it.
    #[inline]
    pub(super) fn push_copy(&mut self, record: &[u8]) {
        self.push(record.len(), |payload| copy::copy(payload, record));
    }

    /// Writes the header, with the checksum of all of it.
    #[expect(clippy::indexing_slicing, reason = "our own group")]
    pub(super) fn seal(&mut self, header: GroupHeader) {
        let is_mapped = self.buf.is_mapped();
        let group = &mut self.buf[..self.len];
        if is_mapped {
            encode_header_over(header, self.published.summed(), group);
        } else {
            encode_header(header, group);
        }
    }

    pub(super) fn publish(&mut self, mapped: &mut MappedGroups, wall_clock_ms: u64) {
        if self.buf.is_mapped() {
            let records = (self.first_lsn, self.record_count);
            let published = &mut self.published;
            mapped.publish(&self.buf, published, records, self.len, wall_clock_ms);
        }
    }

    /// Whether all of it is published, or there is nothing in it.
    pub(super) fn is_published(&self) -> bool {
        self.published.len() == self.len
    }

    /// LSN of its last record; the one before `first_lsn` if there is none.
    pub(super) fn last_lsn(&self) -> Lsn {
        Lsn(self.first_lsn + u64::from(self.record_count) - 1)
    }
}
