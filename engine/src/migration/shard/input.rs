//! What has arrived of a stream: a buffer that the kernel fills, and the frames in it.
//!
//! ```text
//! 0        start              end            len
//! |  taken  |  frame | frame.. | free         |
//!            ^ cut: checked, stays until consumed
//! ```

use ephesus_wire::WireError;
use ephesus_wire::frame::{FRAME_HEADER_BYTES, Frame, decode_limited};

/// A receive buffer; grows only when a single frame is longer.
#[derive(Debug)]
pub(super) struct Input {
    buf: Vec<u8>,
    start: usize,
    end: usize,
    payload_bytes_max: usize,
    /// The frame at `start`, once all of it is there and was checked.
    cut: Option<Cut>,
}

#[derive(Clone, Copy, Debug)]
struct Cut {
    kind: u16,
    stream: u64,
    sequence: u64,
    payload_bytes: usize,
}

impl Input {
    /// A buffer for frames whose payload is at most `payload_bytes_max` long.
    pub(super) fn new(buf: Vec<u8>, payload_bytes_max: usize) -> Input {
        Input {
            buf,
            start: 0,
            end: 0,
            payload_bytes_max,
            cut: None,
        }
    }

    /// How long the buffer is.
    pub(super) fn len(&self) -> usize {
        self.buf.len()
    }

    /// The first frame; it stays until [`Input::consume`]. `None` while it is incomplete.
    ///
    /// # Errors
    /// When the bytes are no frame: end the connection.
    #[expect(
        clippy::indexing_slicing,
        reason = "what has arrived and what is cut of it lie in the buffer"
    )]
    pub(super) fn front(&mut self) -> Result<Option<Frame<'_>>, WireError> {
        if self.cut.is_none() {
            let bytes = &self.buf[self.start..self.end];
            self.cut = decode_limited(bytes, self.payload_bytes_max)?.map(|(frame, _)| Cut {
                kind: frame.kind,
                stream: frame.stream,
                sequence: frame.sequence,
                payload_bytes: frame.payload.len(),
            });
        }
        let first = self.start + FRAME_HEADER_BYTES;
        Ok(self.cut.map(|cut| Frame {
            kind: cut.kind,
            stream: cut.stream,
            sequence: cut.sequence,
            payload: &self.buf[first..first + cut.payload_bytes],
        }))
    }

    /// Lets go of the first frame, which [`Input::front`] has shown.
    pub(super) fn consume(&mut self) {
        let Some(cut) = self.cut.take() else {
            return;
        };
        self.start += FRAME_HEADER_BYTES + cut.payload_bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// The buffer, to be used again.
    pub(super) fn into_buf(self) -> Vec<u8> {
        self.buf
    }

    /// Lets go of everything.
    pub(super) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
        self.cut = None;
    }

    /// Room for what comes next; moves what there is of a frame to the front, so call it when no whole
    /// frame is left.
    #[expect(
        clippy::indexing_slicing,
        reason = "what has arrived lies in the buffer"
    )]
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buf.len() {
            let longest = FRAME_HEADER_BYTES + self.payload_bytes_max;
            let len = (2 * self.buf.len()).min(longest.max(self.buf.len() + 1));
            self.buf.resize(len, 0);
        }
        &mut self.buf[self.end..]
    }

    /// These bytes have come, from elsewhere than the kernel: a record of a sealed stream.
    #[expect(clippy::indexing_slicing, reason = "there is room")]
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.buf.len() - self.end < bytes.len() {
            let end = self.end;
            self.buf.copy_within(self.start..end, 0);
            (self.start, self.end) = (0, end - self.start);
            let needed = self.end + bytes.len();
            if needed > self.buf.len() {
                self.buf.resize(needed, 0);
            }
        }
        self.buf[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// That many bytes have come into the room.
    pub(super) fn filled(&mut self, bytes: usize) {
        self.end += bytes;
        assert!(self.end <= self.buf.len(), "no more than there was room");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(lens: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (sequence, len) in (0..).zip(lens) {
            let payload = vec![sequence as u8; *len];
            let (kind, stream, payload) = (4, 9, &payload[..]);
            Frame {
                kind,
                stream,
                sequence,
                payload,
            }
            .encode(&mut bytes);
        }
        bytes
    }

    /// Feeds bytes in pieces and answers the payload lengths of the frames that come out.
    fn feed(input: &mut Input, mut bytes: &[u8], piece: usize) -> Vec<usize> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let room = input.room();
            let len = room.len().min(piece).min(bytes.len());
            room[..len].copy_from_slice(&bytes[..len]);
            input.filled(len);
            bytes = &bytes[len..];
            while let Some(frame) = input.front().expect("good frames") {
                assert_eq!(frame.sequence, found.len() as u64);
                assert!(frame.payload.iter().all(|b| *b == found.len() as u8));
                found.push(frame.payload.len());
                input.consume();
            }
        }
        found
    }

    #[test]
    fn frames_come_out_whole_whatever_the_pieces() {
        let lens = [0, 100, 5_000, 1, 70_000, 0, 64];
        let bytes = frames(&lens);
        for piece in [1, 31, 33, 4_096, 1 << 20] {
            let mut input = Input::new(vec![0; 4_096], 1 << 20);
            assert_eq!(feed(&mut input, &bytes, piece), lens, "{piece}");
        }
    }

    #[test]
    fn it_grows_no_further_than_the_longest_frame() {
        let mut input = Input::new(vec![0; 4_096], 10_000);
        assert_eq!(feed(&mut input, &frames(&[10_000]), 1 << 20), [10_000]);
        assert!(input.buf.len() <= 10_000 + FRAME_HEADER_BYTES);
        let bytes = frames(&[10_001]);
        input.room()[..64].copy_from_slice(&bytes[..64]);
        input.filled(64);
        assert!(matches!(input.front(), Err(WireError::Length { .. })));
    }

    #[test]
    fn a_flipped_bit_is_an_error() {
        let mut bytes = frames(&[500]);
        bytes[300] ^= 1;
        let mut input = Input::new(vec![0; 4_096], 10_000);
        input.room()[..bytes.len()].copy_from_slice(&bytes);
        input.filled(bytes.len());
        assert!(matches!(input.front(), Err(WireError::Checksum { .. })));
    }
}
