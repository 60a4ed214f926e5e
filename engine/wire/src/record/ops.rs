//! A list of operations that happen together: whole records one after another in one body.

use super::write::{header, write_delete, write_put, write_set_expiry};
use super::{
    RECORD_HEADER_BYTES, Record, RecordMeta, decode, delete_len, kind, put_len, set_expiry_len,
};
use crate::error::WireError;
use crate::limits::{BUFFER_KEPT_BYTES, RECORD_BYTES_MAX};

/// The operations of a list, in order; checked when the list was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpsIter<'a> {
    rest: &'a [u8],
}

impl<'a> OpsIter<'a> {
    #[expect(
        clippy::indexing_slicing,
        reason = "a decoder answers a length within its buffer"
    )]
    pub(super) fn checked(body: &'a [u8]) -> Result<Self, WireError> {
        let mut rest = body;
        while !rest.is_empty() {
            // A nested list is refused before it is decoded, so this never recurses.
            match rest.get(4) {
                Some(&(kind::PUT | kind::DELETE | kind::SET_EXPIRY | kind::FLUSH)) => {}
                _ => {
                    return Err(WireError::Malformed(
                        "not an operation that a list can hold",
                    ));
                }
            }
            let Some((_, _, length)) = decode(rest)? else {
                return Err(WireError::Malformed(
                    "the last operation of a list is cut off",
                ));
            };
            rest = &rest[length..];
        }
        Ok(Self { rest: body })
    }

    /// The operations that are left, as encoded.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for OpsIter<'a> {
    type Item = (RecordMeta, Record<'a>);

    #[expect(
        clippy::indexing_slicing,
        reason = "a decoder answers a length within its buffer"
    )]
    fn next(&mut self) -> Option<Self::Item> {
        let (meta, record, length) = decode(self.rest).ok().flatten()?;
        self.rest = &self.rest[length..];
        Some((meta, record))
    }
}

/// A place in a list that is being collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpsEnd {
    bytes: usize,
    count: usize,
}

/// Collects the effects of one command into one record; reused from command to command.
#[derive(Clone, Debug, Default)]
pub struct OpsBuilder {
    /// The list's header, still zero, then the operations.
    buf: Vec<u8>,
    count: usize,
}

impl OpsBuilder {
    /// An empty list, nothing allocated.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            buf: Vec::new(),
            count: 0,
        }
    }

    /// Forgets the operations and keeps the memory, up to [`BUFFER_KEPT_BYTES`].
    pub fn clear(&mut self) {
        self.buf.clear();
        self.buf.shrink_to(BUFFER_KEPT_BYTES);
        self.count = 0;
    }

    /// The number of operations.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether nothing was added yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The length the record would have now; keep it within [`RECORD_BYTES_MAX`].
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self.count {
            0 => 0,
            1 => self.buf.len() - RECORD_HEADER_BYTES,
            _ => self.buf.len(),
        }
    }

    /// Adds a put.
    pub fn put(&mut self, meta: RecordMeta, key: &[u8], value: &[u8], expire_at_ms: u64) {
        write_put(
            self.grow(put_len(key, value)),
            meta,
            key,
            value,
            expire_at_ms,
        );
    }

    /// Adds a delete.
    pub fn delete(&mut self, meta: RecordMeta, key: &[u8]) {
        write_delete(self.grow(delete_len(key)), meta, key);
    }

    /// Adds a set-expiry.
    pub fn set_expiry(&mut self, meta: RecordMeta, key: &[u8], expire_at_ms: u64) {
        write_set_expiry(self.grow(set_expiry_len(key)), meta, key, expire_at_ms);
    }

    /// Adds the removal of all keys of a partition.
    pub fn flush(&mut self, meta: RecordMeta) {
        Record::Flush.encode_into(meta, self.grow(RECORD_HEADER_BYTES));
    }

    /// Where the next operation will be.
    #[must_use]
    pub fn end(&self) -> OpsEnd {
        OpsEnd {
            bytes: self.buf.len(),
            count: self.count,
        }
    }

    /// The operations from one that was, or will be, added at `start`.
    #[must_use]
    pub fn since(&self, start: OpsEnd) -> OpsIter<'_> {
        let start = start.bytes.max(RECORD_HEADER_BYTES);
        let rest = self.buf.get(start..).unwrap_or_default();
        OpsIter { rest }
    }

    /// Forgets the operations from one that was added at `start`.
    pub fn cut(&mut self, start: OpsEnd) {
        self.buf.truncate(start.bytes);
        self.count = self.count.min(start.count);
        if self.count == 0 {
            self.clear();
        }
    }

    /// The record: a list, or the operation itself when there is only one.
    ///
    /// # Panics
    /// When there is no operation, or more than a record can hold.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "with an operation there is the list's header"
    )]
    pub fn finish(&mut self) -> &[u8] {
        assert!(self.count > 0, "a record without an operation");
        assert!(
            self.buf.len() <= RECORD_BYTES_MAX,
            "record of {} bytes",
            self.buf.len()
        );
        if self.count == 1 {
            return &self.buf[RECORD_HEADER_BYTES..];
        }
        let header = header(self.buf.len(), kind::OPS, RecordMeta::default(), 0, 0);
        self.buf[..RECORD_HEADER_BYTES].copy_from_slice(bytemuck::bytes_of(&header));
        &self.buf
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the buffer has just been made longer"
    )]
    fn grow(&mut self, len: usize) -> &mut [u8] {
        if self.buf.is_empty() {
            self.buf.resize(RECORD_HEADER_BYTES, 0);
        }
        let start = self.buf.len();
        self.buf.resize(start + len, 0);
        self.count += 1;
        &mut self.buf[start..]
    }
}
