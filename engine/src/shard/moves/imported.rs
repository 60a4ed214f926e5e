//! What imports have added to the log that is not written yet.

use std::collections::VecDeque;

use ephesus_wire::Lsn;

/// Records of imports that the log has not written, by when they were appended.
#[derive(Debug, Default)]
pub(super) struct Imported {
    slices: VecDeque<(Lsn, usize)>,
    bytes: usize,
}

impl Imported {
    /// A slice has appended records of so many bytes, up to this one.
    pub(super) fn appended(&mut self, last: Lsn, bytes: usize) {
        if bytes > 0 {
            self.slices.push_back((last, bytes));
            self.bytes += bytes;
        }
    }

    /// Bytes that are not written, now that the log has written all up to this record.
    pub(super) fn unwritten(&mut self, last: Lsn) -> usize {
        while let Some(&(lsn, bytes)) = self.slices.front()
            && lsn <= last
        {
            self.slices.pop_front();
            self.bytes -= bytes;
        }
        self.bytes
    }
}
