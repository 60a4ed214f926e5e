//! Bytes that have come in, and the frames in them.

use ephesus_wire::WireError;
use ephesus_wire::frame::{self, Frame};

/// An empty buffer larger than this gives its memory back.
const KEEP_BYTES: usize = 16 << 10;

/// Bytes that have come in and are not taken yet; grows with what has come, not with what was
/// announced.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    bytes: Vec<u8>,
    start: usize,
}

impl Inbound {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The first frame and its length, if it is complete.
    pub(super) fn first(
        &self,
        payload_bytes_max: usize,
    ) -> Result<Option<(Frame<'_>, usize)>, WireError> {
        let bytes = self.bytes.get(self.start..).unwrap_or_default();
        frame::decode_limited(bytes, payload_bytes_max)
    }

    pub(super) fn consume(&mut self, len: usize) {
        self.start += len;
        if self.start == self.bytes.len() {
            self.start = 0;
            if self.bytes.capacity() > KEEP_BYTES {
                self.bytes = Vec::new();
            } else {
                self.bytes.clear();
            }
        }
    }

    /// Memory of it.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }
}
