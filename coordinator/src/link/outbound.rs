//! Frames that wait to be written, as the bytes they will be.

use std::collections::VecDeque;
use std::sync::Arc;

use ephesus_wire::frame::Frame;
use ephesus_wire::seal::{RECORD_BYTES_MAX, Sealer};

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

    /// Its bytes, with the frame's header.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no frame is empty")]
    pub fn len(&self) -> usize {
        self.0.len()
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
    sealing: Option<Sealing>,
}

/// What is sealed of a queue, a record at a time.
#[derive(Debug)]
struct Sealing {
    sealer: Sealer,
    /// The record that is being written.
    record: Vec<u8>,
    written: usize,
}

impl Outbound {
    /// A queue whose bytes leave sealed.
    pub(super) fn sealed(sealer: Option<Sealer>) -> Outbound {
        Outbound {
            sealing: sealer.map(|sealer| Sealing {
                sealer,
                record: Vec::new(),
                written: 0,
            }),
            ..Outbound::default()
        }
    }

    /// What seals that which is said, for somebody else; nothing waits here.
    pub(super) fn take_sealer(&mut self) -> Option<Sealer> {
        Some(self.sealing.take()?.sealer)
    }

    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        let sealing = self.sealing.as_ref();
        let sealed = sealing.map_or(0, |sealing| sealing.record.len() - sealing.written);
        self.bytes - self.written + sealed
    }

    /// Bytes that no other queue has, of pieces that wait.
    pub(super) fn own_bytes(&self) -> usize {
        let sealing = self.sealing.as_ref();
        self.own_bytes + sealing.map_or(0, |sealing| sealing.record.capacity())
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
        let Some(mut sealing) = self.sealing.take() else {
            return self.next_plain();
        };
        if sealing.written == sealing.record.len() {
            (sealing.record, sealing.written) = (Vec::new(), 0);
            let plain = self.next_plain();
            let plain = plain.get(..RECORD_BYTES_MAX).unwrap_or(plain);
            let len = plain.len();
            sealing.sealer.seal(plain, &mut sealing.record);
            self.written += len;
        }
        let sealing = self.sealing.insert(sealing);
        sealing.record.get(sealing.written..).unwrap_or_default()
    }

    fn next_plain(&mut self) -> &[u8] {
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
        match &mut self.sealing {
            Some(sealing) => sealing.written += len,
            None => self.written += len,
        }
    }
}

#[cfg(test)]
mod tests {
    use ephesus_wire::seal::{KEY_BYTES, Seals};

    use super::*;
    use crate::link::inbound::Inbound;

    /// What seals both ends of a link.
    fn seals() -> [Seals; 2] {
        let [a, b] = [[1; KEY_BYTES], [2; KEY_BYTES]];
        [(a, b), (b, a)].map(|(own, others)| Seals::new(own.into(), others.into()))
    }

    #[test]
    fn what_is_sealed_is_opened_whatever_the_pieces_and_a_changed_bit_ends_it() {
        for changes in [false, true] {
            let [a, b] = seals();
            let mut outbound = Outbound::sealed(Some(a.sealer));
            let mut inbound = Inbound::default();
            // Of the handshake, with what has come behind it.
            inbound.push(b"handshake");
            let first = Frame {
                kind: 3,
                stream: 0,
                sequence: 0,
                payload: b"first",
            };
            outbound.push(&first);
            let (early, rest) = outbound.next().split_at(11);
            let (early, rest) = (early.to_vec(), rest.to_vec());
            outbound.wrote(early.len() + rest.len());
            inbound.push(&early);
            inbound.consume(b"handshake".len());
            inbound.seal(b.opener);
            inbound.push(&rest);
            let mut taken = vec![];
            let mut piece = 1;
            for round in 0..60_usize {
                let payload = vec![round as u8; round * round * 40];
                outbound.push(&Frame {
                    kind: 1,
                    stream: 7,
                    sequence: round as u64,
                    payload: &payload,
                });
                while !outbound.next().is_empty() {
                    let next = outbound.next();
                    let len = piece.min(next.len());
                    let mut bytes = next[..len].to_vec();
                    if changes && round == 50 {
                        bytes[0] ^= 1;
                    }
                    outbound.wrote(len);
                    inbound.push(&bytes);
                    piece = piece * 7 % 60_001 + 1;
                }
                assert_eq!(outbound.len(), 0);
                while let Ok(Some((frame, len))) = inbound.first(1 << 20) {
                    let payload = frame.payload.to_vec();
                    inbound.consume(len);
                    taken.push(payload);
                }
            }
            if changes {
                assert!(inbound.first(1 << 20).is_err() && !inbound.is_empty());
                assert_eq!(taken.len(), 51, "the first, and those before the change");
            } else {
                assert!(inbound.is_empty());
                assert_eq!(taken.len(), 61);
                assert!((1..61).all(|n| taken[n].len() == (n - 1) * (n - 1) * 40));
            }
            assert_eq!(taken[0], b"first");
        }
    }

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
