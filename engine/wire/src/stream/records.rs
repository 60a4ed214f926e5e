//! The records of a DATA message.

use crate::error::WireError;
use crate::record::{RECORD_HEADER_BYTES, Record, RecordMeta, decode};

use super::DATA_ALIGN_BYTES;

const _: () = assert!(
    DATA_ALIGN_BYTES <= RECORD_HEADER_BYTES,
    "no record is padding"
);

/// Takes a DATA message apart, without the zero bytes behind its records; ends after the first error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// The records of `payload`.
    #[must_use]
    pub fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }

    /// The first record, and its bytes as they came.
    #[expect(
        clippy::indexing_slicing,
        reason = "a decoder answers a length within its buffer"
    )]
    fn first(&self) -> Result<(RecordMeta, Record<'a>, &'a [u8]), WireError> {
        let Some((meta, record, len)) = decode(self.rest)? else {
            return Err(WireError::Malformed("the last record of a message is cut"));
        };
        match record {
            Record::Put { .. }
            | Record::Delete { .. }
            | Record::SetExpiry { .. }
            | Record::Flush
            | Record::Block(_) => Ok((meta, record, &self.rest[..len])),
            _ => Err(WireError::Malformed("not a record that a stream carries")),
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(RecordMeta, Record<'a>, &'a [u8]), WireError>;

    #[expect(
        clippy::indexing_slicing,
        reason = "the record was taken from the front of the rest"
    )]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.len() < DATA_ALIGN_BYTES && self.rest.iter().all(|byte| *byte == 0) {
            return None;
        }
        let first = self.first();
        self.rest = match &first {
            Ok((_, _, bytes)) => &self.rest[bytes.len()..],
            Err(_) => &[],
        };
        Some(first)
    }
}
