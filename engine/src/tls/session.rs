//! One client's TLS session: what its socket says becomes what the parser sees, and replies become what its socket
//! sends.
//!
//! ```text
//! Handshaking: steps take turns, one of a shard's sessions in each -> Open -> Closing: close_notify, or an alert, leaves
//! ```
//!
//! 1. What comes while the handshake goes on waits in the session until it is its turn: a step costs up to a millisecond.
//! 2. Plaintext is encrypted when it is sent, one piece at a time; the next one follows when the kernel has taken it. So a
//!    client that does not read makes a session hold one piece, and replies wait where those of plain connections do.

use std::io::{self, Read, Write};

use rustls::ServerConnection;

/// Plaintext that is encrypted at once.
const PIECE_BYTES: usize = 64 << 10;

/// About what the library holds of a session beside its buffer: state and keys.
const STATE_BYTES: usize = 4 << 10;

/// Bytes that the library reads at once, for which its buffer has room.
const READ_BYTES: usize = 4 << 10;

/// What it keeps at most of what has not come as a whole, which is a message of a handshake.
const UNFINISHED_BYTES_MAX: usize = 64 << 10;

/// Bytes from which on an empty buffer gives its memory back.
const KEPT_BYTES: usize = 1 << 10;

/// A TLS session, as its connection has it.
pub struct Session {
    library: ServerConnection,
    /// What has come of a handshake, and waits for its turn.
    waiting: Vec<u8>,
    /// What the kernel sends.
    outgoing: Vec<u8>,
    /// How much of it the kernel has taken.
    sent: usize,
    /// Nothing more is said: the last words are in `outgoing`.
    is_closing: bool,
    /// The socket has nothing more than what waits.
    has_end: bool,
    /// Bytes that the library may keep of what has not come as a whole.
    unfinished: usize,
    /// Its buffer, as large as it may have become.
    buffer: usize,
}

/// What a client has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// There may be more.
    Open,
    /// It has said close_notify.
    All,
}

impl Session {
    #[must_use]
    pub(super) fn new(mut library: ServerConnection) -> Session {
        library.set_buffer_limit(Some(2 * PIECE_BYTES));
        Session {
            library,
            waiting: Vec::new(),
            outgoing: Vec::new(),
            sent: 0,
            is_closing: false,
            has_end: false,
            unfinished: 0,
            buffer: READ_BYTES,
        }
    }

    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.library.is_handshaking()
    }

    /// Keeps what has come of a handshake until its turn.
    pub fn wait(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
    }

    /// Whether a step of the handshake waits for its turn.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The socket has nothing more than what waits.
    pub fn wait_with_end(&mut self) {
        self.has_end = true;
    }

    /// Takes what has waited, and whether it is the end.
    #[must_use]
    pub fn take_waiting(&mut self) -> (Vec<u8>, bool) {
        (std::mem::take(&mut self.waiting), self.has_end)
    }

    /// Appends to `plain` what the client says with these bytes.
    ///
    /// # Errors
    /// Why it is not a client of this node: [`Session::close`] has it told so.
    pub fn decrypt(
        &mut self,
        mut bytes: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<Said, rustls::Error> {
        while !bytes.is_empty() {
            let failed = |error: io::Error| rustls::Error::General(error.to_string());
            let was_handshaking = self.is_handshaking();
            let read = self.library.read_tls(&mut bytes).map_err(failed)?;
            if read == 0 {
                // Nothing follows close_notify.
                return Ok(Said::All);
            }
            let state = self.library.process_new_packets()?;
            let len = state.plaintext_bytes_to_read();
            let is_progress = len > 0 || was_handshaking != self.is_handshaking();
            let before = if is_progress { 0 } else { self.unfinished };
            self.unfinished = (before + read).min(UNFINISHED_BYTES_MAX);
            self.buffer = self.buffer.max(self.unfinished + READ_BYTES);
            if len > 0 {
                let start = plain.len();
                plain.resize(start + len, 0);
                let room = plain.get_mut(start..).unwrap_or_default();
                self.library.reader().read_exact(room).map_err(failed)?;
            }
            if state.peer_has_closed() {
                return Ok(Said::All);
            }
        }
        Ok(Said::Open)
    }

    /// Encrypts what is next of `plain`, if nothing is to be sent already; answers how much of it.
    pub fn encrypt(&mut self, plain: &[u8]) -> usize {
        if !self.outgoing.is_empty() {
            return 0;
        }
        let mut taken = 0;
        if !plain.is_empty() && !self.is_closing && !self.is_handshaking() {
            let piece = plain.get(..PIECE_BYTES).unwrap_or(plain);
            // It fails only when there is no room, and there is: everything before has left.
            taken = self.library.writer().write(piece).unwrap_or(0);
        }
        self.take_outgoing();
        taken
    }

    /// The session is over: the client is told so, or why, behind what was encrypted before. Answers whether it was.
    pub fn close(&mut self) -> bool {
        if !self.is_closing {
            self.is_closing = true;
            if !self.is_handshaking() {
                self.library.send_close_notify();
            }
        }
        self.encrypt(&[]);
        self.outgoing.is_empty()
    }

    /// What is to be sent; empty when nothing is.
    #[must_use]
    pub fn outgoing(&self) -> &[u8] {
        self.outgoing.get(self.sent..).unwrap_or_default()
    }

    /// Takes what the library itself has to say: of the handshake, of keys, and at the end.
    fn take_outgoing(&mut self) {
        while self.library.wants_write() {
            // A vector takes everything.
            if self.library.write_tls(&mut self.outgoing).is_err() {
                return;
            }
        }
    }

    /// The kernel has sent so much of it.
    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent >= self.outgoing.len() {
            self.sent = 0;
            self.outgoing.clear();
            if self.outgoing.capacity() > KEPT_BYTES {
                self.outgoing = Vec::new();
            }
        }
    }

    /// Memory of it.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Session>()
            + STATE_BYTES
            + self.buffer
            + self.waiting.capacity()
            + self.outgoing.capacity()
    }
}

#[cfg(test)]
mod tests;
