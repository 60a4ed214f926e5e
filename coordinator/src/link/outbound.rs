//! Frames that wait to be written, as the bytes they will be.

use ephesus_wire::frame::Frame;

/// An empty buffer larger than this gives its memory back.
const KEEP_BYTES: usize = 256 << 10;

/// A queue of frames: those that are being written, and those that have come meanwhile and will be
/// written together.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    writing: Vec<u8>,
    written: usize,
    filling: Vec<u8>,
}

impl Outbound {
    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.writing.len() - self.written + self.filling.len()
    }

    pub(super) fn push(&mut self, frame: &Frame<'_>) {
        frame.encode(&mut self.filling);
    }

    /// What is next to write; empty when nothing waits.
    pub(super) fn next(&mut self) -> &[u8] {
        if self.written == self.writing.len() {
            self.written = 0;
            if self.writing.capacity() > KEEP_BYTES {
                self.writing = Vec::new();
            } else {
                self.writing.clear();
            }
            std::mem::swap(&mut self.writing, &mut self.filling);
        }
        &self.writing[self.written..]
    }

    /// So many bytes of [`Outbound::next`] are written.
    pub(super) fn wrote(&mut self, len: usize) {
        self.written += len;
    }
}
