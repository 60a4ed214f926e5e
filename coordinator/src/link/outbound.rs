//! Frames that wait to be written, as the bytes they will be.

use std::collections::VecDeque;
use std::sync::Arc;

use ephesus_wire::frame::Frame;

/// An empty buffer larger than this gives its memory back.
const KEEP_BYTES: usize = 16 << 10;

/// A frame of stream 0 that many links write: encoded once, and kept once however many queues it is in.
#[derive(Clone, Debug)]
pub struct SharedFrame(pub(super) Arc<[u8]>);

impl SharedFrame {
    /// The frame of a message, whose payload fits.
    #[must_use]
    pub fn new(kind: u16, payload: &[u8]) -> SharedFrame {
        let frame = Frame {
            kind,
            stream: 0,
            sequence: 0,
            payload,
        };
        let mut bytes = Vec::with_capacity(frame.encoded_len());
        frame.encode(&mut bytes);
        SharedFrame(bytes.into())
    }
}

#[derive(Debug)]
enum Piece {
    Own(Vec<u8>),
    Shared(SharedFrame),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Own(bytes) => bytes,
            Piece::Shared(frame) => &frame.0,
        }
    }
}

/// A queue of frames: the first piece is being written, and what comes meanwhile is written together.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    pieces: VecDeque<Piece>,
    /// Of the first piece.
    written: usize,
    bytes: usize,
    /// Those that no other queue has.
    own_bytes: usize,
    /// An empty buffer.
    spare: Vec<u8>,
}

impl Outbound {
    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.bytes - self.written
    }

    /// Bytes that no other queue has, of pieces that wait.
    pub(super) fn own_bytes(&self) -> usize {
        self.own_bytes
    }

    pub(super) fn push(&mut self, frame: &Frame<'_>) {
        let is_untouched = self.pieces.len() > 1 || self.written == 0;
        self.bytes += frame.encoded_len();
        self.own_bytes += frame.encoded_len();
        match self.pieces.back_mut() {
            Some(Piece::Own(bytes)) if is_untouched => frame.encode(bytes),
            _ => {
                let mut bytes = std::mem::take(&mut self.spare);
                frame.encode(&mut bytes);
                self.pieces.push_back(Piece::Own(bytes));
            }
        }
    }

    pub(super) fn push_shared(&mut self, frame: SharedFrame) {
        self.bytes += frame.0.len();
        self.pieces.push_back(Piece::Shared(frame));
    }

    /// What is next to write; empty when nothing waits.
    pub(super) fn next(&mut self) -> &[u8] {
        let first = self.pieces.front();
        if first.is_some_and(|piece| piece.bytes().len() == self.written)
            && let Some(piece) = self.pieces.pop_front()
        {
            self.bytes -= self.written;
            self.written = 0;
            if let Piece::Own(mut bytes) = piece {
                self.own_bytes -= bytes.len();
                if bytes.capacity() <= KEEP_BYTES {
                    bytes.clear();
                    self.spare = bytes;
                }
            }
        }
        let first = self.pieces.front();
        first.map_or(&[], |piece| {
            piece.bytes().get(self.written..).unwrap_or_default()
        })
    }

    /// So many bytes of [`Outbound::next`] are written.
    pub(super) fn wrote(&mut self, len: usize) {
        self.written += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_and_shared_frames_leave_in_order_and_shared_bytes_are_kept_once() {
        let (mut outbound, mut expected, mut left) = (Outbound::default(), Vec::new(), Vec::new());
        let shared = SharedFrame::new(7, &[5; 1000]);
        for round in 0..40_usize {
            let payload = vec![round as u8; round * 3];
            let frame = Frame {
                kind: 1,
                stream: 0,
                sequence: 0,
                payload: &payload,
            };
            outbound.push(&frame);
            frame.encode(&mut expected);
            if round % 3 == 0 {
                outbound.push_shared(shared.clone());
                expected.extend_from_slice(&shared.0);
            }
            // A socket that takes a part now and then.
            let next = outbound.next();
            let taken = next.len().min(round * 7 % 100);
            left.extend_from_slice(&next[..taken]);
            outbound.wrote(taken);
            assert_eq!(outbound.len(), expected.len() - left.len());
        }
        assert!(Arc::strong_count(&shared.0) > 5);
        loop {
            let next = outbound.next().to_vec();
            if next.is_empty() {
                break;
            }
            outbound.wrote(next.len());
            left.extend(next);
        }
        assert!(left == expected && outbound.len() == 0);
        assert_eq!(Arc::strong_count(&shared.0), 1);
    }
}
