//! A connection's replies, in order, each piece with what it has to wait for.

use std::collections::VecDeque;

use ephesus_wire::Lsn;

use crate::planted::{Bug, Planted};
use crate::shard::core::replies::gather::Gather;

/// Largest buffer that is kept for the next replies, so that an idle connection stays small.
const SPARE_BYTES_MAX: usize = 1 << 10;

/// Most bytes that are set aside for the next replies because the last ones took as much.
const EXPECTED_BYTES_MAX: usize = 16 << 10;

/// Replies of later turns are appended to a piece whose gate is open up to this size, so that many small
/// replies that are not read do not cost a piece each.
const APPENDED_BYTES_MAX: usize = 16 << 10;

/// From this size on a piece is sent by itself instead of being copied behind another one.
const MOVED_BYTES_MIN: usize = 64 << 10;

/// Bytes of pieces that are sent together.
const TAKEN_BYTES_MAX: usize = 256 << 10;

/// Pieces whose places stay allocated.
const PIECES_KEPT: usize = 4;

/// Names the place of a reply that comes from elsewhere.
pub type Ticket = u64;

/// What was said last: the next ticket, and how long the piece before it is.
pub type End = (Ticket, usize);

/// The replies of one connection that were not handed to the kernel yet.
#[derive(Default)]
pub struct Outbox {
    pieces: VecDeque<Piece>,
    /// Ticket of the first piece.
    first: Ticket,
    bytes: usize,
    /// Memory of the bytes and of what is gathered.
    held_bytes: usize,
    awaited: usize,
    /// What the log had committed when the outbox was last looked at.
    committed: Lsn,
    /// An empty buffer for the next piece.
    spare: Vec<u8>,
    /// Bytes of the last piece.
    expected: usize,
    /// Whether replies are left out from now on.
    mute: Mute,
    pub(crate) planted: Planted,
}

enum Piece {
    /// Bytes of `turn`, the last one that wrote to it; may leave once the log has committed `gate`.
    Ready {
        bytes: Vec<u8>,
        gate: Lsn,
        turn: u64,
    },
    /// Another shard, or a walk, will answer.
    Awaited {
        gather: Option<Box<Gather>>,
        /// The client is told nothing of it.
        is_muted: bool,
    },
}

/// Whether replies are left out, as CLIENT REPLY says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mute {
    #[default]
    No,
    /// From the next command on, for that one.
    Next,
    /// That of the command that is executed now.
    Once,
    All,
}

/// The turn of delivered pieces: no turn has this number, so nothing is appended to them.
const DELIVERED: u64 = u64::MAX;

impl Piece {
    fn held_bytes(&self) -> usize {
        match self {
            Piece::Ready { bytes, .. } => bytes.capacity(),
            Piece::Awaited { gather, .. } => {
                gather.as_ref().map_or(0, |gather| gather.held_bytes())
            }
        }
    }
}

/// What has become of a reply, or a part of one.
#[derive(Debug, PartialEq, Eq)]
pub enum Delivered {
    /// It is in its place, or nobody waits for it any more.
    Kept,
    /// It was the last part of what is gathered there: [`Outbox::fill`] the place.
    Complete,
}

/// What the front of an outbox allows.
#[derive(Debug, PartialEq, Eq)]
pub enum Front {
    Empty,
    /// Waits for this LSN.
    Gated(Lsn),
    /// Waits for another shard or a walk.
    Awaited,
    /// Bytes were moved out.
    Taken,
}

impl Outbox {
    /// Bytes waiting here.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory that is allocated here.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes + self.spare.capacity() + self.pieces.capacity() * size_of::<Piece>()
    }

    /// Replies that are to come from elsewhere.
    #[must_use]
    pub fn awaited(&self) -> usize {
        self.awaited
    }

    /// Bytes that may leave before a reply that has yet to come, and which one that is.
    #[must_use]
    pub fn due(&self) -> (usize, Option<Ticket>) {
        let mut bytes = 0;
        for (ticket, piece) in (self.first..).zip(&self.pieces) {
            match piece {
                Piece::Ready { bytes: ready, .. } => bytes += ready.len(),
                Piece::Awaited { .. } => return (bytes, Some(ticket)),
            }
        }
        (bytes, None)
    }

    /// Whether all replies are there, and the log has committed what they tell of.
    #[must_use]
    pub fn is_committed(&self, committed: Lsn) -> bool {
        let is_open =
            |piece: &Piece| matches!(piece, Piece::Ready { gate, .. } if *gate <= committed);
        self.awaited == 0 && self.pieces.iter().all(is_open)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// What was said last.
    #[must_use]
    pub fn end(&self) -> End {
        let last = match self.pieces.back() {
            Some(Piece::Ready { bytes, .. }) => bytes.len(),
            Some(Piece::Awaited { .. }) | None => 0,
        };
        (self.first + self.pieces.len() as u64, last)
    }

    /// Whether nothing was said since `end`.
    #[must_use]
    pub fn ends_at(&self, end: End) -> bool {
        let now = self.end();
        now == end || (self.pieces.is_empty() && now.0 == end.0)
    }

    /// Runs `write` on the buffer of this turn's last piece; it returns the LSN to wait for.
    #[inline]
    pub fn write(&mut self, turn: u64, write: impl FnOnce(&mut Vec<u8>) -> Lsn) {
        if !self
            .pieces
            .back()
            .is_some_and(|piece| self.is_open(piece, turn))
        {
            let mut bytes = std::mem::take(&mut self.spare);
            if self.pieces.is_empty() {
                bytes.reserve(self.expected);
            }
            self.held_bytes += bytes.capacity();
            self.pieces.push_back(Piece::Ready {
                bytes,
                gate: Lsn::ZERO,
                turn,
            });
        }
        if let Some(Piece::Ready {
            bytes,
            gate,
            turn: last,
        }) = self.pieces.back_mut()
        {
            let (len, capacity) = (bytes.len(), bytes.capacity());
            let lsn = write(bytes);
            if self.mute != Mute::No {
                leave_out(bytes, len, self.mute);
            }
            *gate = lsn.max(*gate);
            *last = turn;
            self.bytes += bytes.len() - len;
            self.held_bytes += bytes.capacity() - capacity;
            if bytes.is_empty() {
                self.drop_last();
            }
        }
    }

    /// The command was not executed: there is no piece of it.
    #[cold]
    fn drop_last(&mut self) {
        let last = self.pieces.pop_back();
        self.held_bytes -= last.map_or(0, |piece| piece.held_bytes());
    }

    /// [`Outbox::write`] of what the client gets whatever it has said about replies.
    pub fn push(&mut self, turn: u64, write: impl FnOnce(&mut Vec<u8>) -> Lsn) {
        let mute = std::mem::take(&mut self.mute);
        self.write(turn, write);
        self.mute = mute;
    }

    /// Whether replies of this turn are appended to the piece.
    #[inline]
    fn is_open(&self, piece: &Piece, turn: u64) -> bool {
        match piece {
            Piece::Ready {
                bytes,
                gate,
                turn: last,
            } => {
                *last == turn
                    || (*last != DELIVERED
                        && *gate <= self.committed
                        && bytes.len() <= APPENDED_BYTES_MAX)
            }
            Piece::Awaited { .. } => false,
        }
    }

    /// Reserves the next place for a reply that comes later.
    pub fn await_reply(&mut self, gather: Option<Box<Gather>>) -> Ticket {
        self.held_bytes += gather.as_ref().map_or(0, |gather| gather.held_bytes());
        let is_muted = matches!(self.mute, Mute::Once | Mute::All);
        self.pieces.push_back(Piece::Awaited { gather, is_muted });
        self.awaited += 1;
        self.first + self.pieces.len() as u64 - 1
    }

    /// Fills a reserved place, or a part of it.
    pub fn deliver(&mut self, ticket: Ticket, part: u16, bytes: Vec<u8>, gate: Lsn) -> Delivered {
        if let Some(gather) = self.gather(ticket) {
            let held_before = gather.held_bytes();
            let is_complete = gather.add(part, bytes, gate);
            let held = gather.held_bytes();
            self.held_bytes = self.held_bytes + held - held_before;
            if is_complete {
                return Delivered::Complete;
            }
        } else {
            self.fill(ticket, bytes, gate);
        }
        Delivered::Kept
    }

    /// What is gathered for a reserved place.
    pub fn gather(&mut self, ticket: Ticket) -> Option<&mut Gather> {
        match self.awaited_piece(ticket) {
            Some(Piece::Awaited { gather, .. }) => gather.as_deref_mut(),
            _ => None,
        }
    }

    /// See [`Gather::begin_again`].
    pub fn gather_again(&mut self, ticket: Ticket, role_changes: u64) -> Option<Vec<u8>> {
        let gather = self.gather(ticket)?;
        let held_before = gather.held_bytes();
        let request = gather.begin_again(role_changes);
        let held = gather.held_bytes();
        self.held_bytes = self.held_bytes + held - held_before;
        request
    }

    /// Fills a reserved place as a whole.
    pub fn fill(&mut self, ticket: Ticket, bytes: Vec<u8>, gate: Lsn) {
        let Some(piece @ Piece::Awaited { .. }) = self.awaited_piece(ticket) else {
            return;
        };
        let is_muted = matches!(piece, Piece::Awaited { is_muted: true, .. });
        let bytes = if is_muted { Vec::new() } else { bytes };
        let (len, capacity) = (bytes.len(), bytes.capacity());
        let turn = DELIVERED;
        let before = std::mem::replace(piece, Piece::Ready { bytes, gate, turn });
        self.bytes += len;
        self.held_bytes = self.held_bytes + capacity - before.held_bytes();
        self.awaited -= 1;
    }

    /// Takes back a reserved place, with everything behind it: nothing more will be said.
    pub fn cut(&mut self, ticket: Ticket) {
        let kept = ticket.saturating_sub(self.first) as usize;
        for piece in self.pieces.drain(kept.min(self.pieces.len())..) {
            self.held_bytes -= piece.held_bytes();
            match piece {
                Piece::Ready { bytes, .. } => self.bytes -= bytes.len(),
                Piece::Awaited { .. } => self.awaited -= 1,
            }
        }
    }

    fn awaited_piece(&mut self, ticket: Ticket) -> Option<&mut Piece> {
        let index = ticket.checked_sub(self.first)? as usize;
        self.pieces.get_mut(index)
    }

    /// The log has committed so much.
    pub fn note_committed(&mut self, committed: Lsn) {
        self.committed = committed;
    }

    /// Moves what may leave now to the end of `into`: all of it, or as much as is sent together.
    pub fn take_ready(&mut self, committed: Lsn, into: &mut Vec<u8>) -> Front {
        let mut front = Front::Empty;
        while let Some(piece) = self.pieces.front_mut() {
            let Piece::Ready { bytes, gate, .. } = piece else {
                return if front == Front::Taken {
                    front
                } else {
                    Front::Awaited
                };
            };
            if bytes.is_empty() {
                // Its client is told nothing.
                self.pieces.pop_front();
                self.first += 1;
                continue;
            }
            if *gate > committed && !self.planted.has(Bug::IgnoreGate) {
                return if front == Front::Taken {
                    front
                } else {
                    Front::Gated(*gate)
                };
            }
            let is_large = bytes.len() >= MOVED_BYTES_MIN || into.len() >= TAKEN_BYTES_MAX;
            if is_large && front == Front::Taken {
                return front;
            }
            self.bytes -= bytes.len();
            self.held_bytes -= bytes.capacity();
            self.expected = bytes.len().min(EXPECTED_BYTES_MAX);
            if into.is_empty() {
                std::mem::swap(into, bytes);
            } else {
                into.extend_from_slice(bytes);
            }
            if bytes.capacity() <= SPARE_BYTES_MAX {
                self.spare = std::mem::take(bytes);
                self.spare.clear();
            }
            self.pieces.pop_front();
            self.first += 1;
            front = Front::Taken;
        }
        front
    }

    /// Says whether replies are left out from now on.
    pub fn set_mute(&mut self, mute: Mute) {
        self.mute = mute;
    }

    #[inline]
    #[must_use]
    pub fn mute(&self) -> Mute {
        self.mute
    }

    /// The replies of one command are there: what was to be left out for it is.
    #[cold]
    pub fn pass_mute(&mut self) {
        self.mute = match self.mute {
            Mute::Next => Mute::Once,
            Mute::Once | Mute::No => Mute::No,
            Mute::All => Mute::All,
        };
    }

    /// Forgets everything; replies that still arrive find no place.
    pub fn clear(&mut self) {
        self.first += self.pieces.len() as u64;
        self.pieces = VecDeque::new();
        self.spare = Vec::new();
        self.bytes = 0;
        self.held_bytes = 0;
        self.awaited = 0;
    }

    /// Gives back memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        if self.pieces.is_empty() && self.pieces.capacity() > PIECES_KEPT {
            self.pieces = VecDeque::new();
        }
    }
}

/// Takes back a reply that the client is not told.
#[cold]
fn leave_out(bytes: &mut Vec<u8>, len: usize, mute: Mute) {
    if mute != Mute::Next {
        bytes.truncate(len);
    }
}

#[cfg(test)]
mod tests;
