//! Sockets that carry streams, on the shard's own ring: one receive and one send of each are under way
//! at most, and both buffers outlive them.
//!
//! A batch has one: what is in flight lies in one connection and one buffer, and both stay in the caches.
//!
//! ```text
//! open -> (broken) -> closing: the farewell leaves, what comes is thrown away -> shut -> gone
//!   ^ a receive only when no whole frame is left      ^ nothing outstanding any more
//! ```

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use ephesus_coordinator::link::PeerStream;
use ephesus_wire::WireError;
use ephesus_wire::frame::Frame;
use ephesus_wire::seal::{RECORD_BYTES_MAX, RECORD_OVERHEAD_BYTES, SealError, Sealer, Seals};

use super::input::Input;
use super::mail::FrameParts;
use crate::net::{StreamId, StreamIo};

/// Frames of one send: of what is said of all partitions of a batch, nothing is to wait for another turn.
const FRAMES_PER_SEND: usize = 64;

/// Bytes after which a send takes no further frame, and a turn issues no further send: the kernel copies
/// them while the shard waits.
const SEND_BYTES: usize = 256 << 10;

/// Receive buffer of a target: what one receive takes from the kernel.
const BUFFER_BYTES: usize = 256 << 10;

/// Buffers that are kept for the next streams.
const BUFFERS_KEPT: usize = 8;

/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// All streams of a shard over sockets.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    sockets: Vec<Socket>,
    /// The first one to send in the next turn.
    first: usize,
    next: u64,
    /// Of streams that are closed. Their memory is touched already, which costs a short move more than
    /// what it moves.
    buffers: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Socket {
    id: StreamId,
    stream: TcpStream,
    sealed: Option<Sealed>,
    input: Input,
    is_receiving: bool,
    queue: VecDeque<FrameParts>,
    sending: Option<Box<Sending>>,
    /// When something came last, or the receive that is under way was issued.
    heard: Instant,
    broken: Option<String>,
    /// Until when a closed one may still send.
    closing: Option<Instant>,
    /// Nothing will be sent or received any more.
    is_shut: bool,
    /// The sending direction is ended.
    has_said_all: bool,
}

/// What of a sealed stream has come and is not opened, and what seals it.
#[derive(Debug)]
struct Sealed {
    seals: Box<Seals>,
    /// What the kernel receives into; records that have come as a whole leave at once.
    buf: Vec<u8>,
    end: usize,
}

impl Sealed {
    fn new(seals: Box<Seals>, bytes: usize) -> Sealed {
        Sealed {
            seals,
            buf: vec![0; bytes + RECORD_BYTES_MAX + RECORD_OVERHEAD_BYTES],
            end: 0,
        }
    }

    /// Room for what comes next.
    fn room(&mut self) -> &mut [u8] {
        self.buf.get_mut(self.end..).unwrap_or_default()
    }

    /// So many bytes have come into the room: what they say goes into `input`.
    fn filled(&mut self, bytes: usize, input: &mut Input) -> Result<(), SealError> {
        self.end += bytes;
        let mut at = 0;
        loop {
            let rest = self.buf.get_mut(at..self.end).unwrap_or_default();
            let Some((plain, len)) = self.seals.opener.open(rest)? else {
                break;
            };
            input.push(rest.get(plain).unwrap_or_default());
            at += len;
        }
        self.buf.copy_within(at..self.end, 0);
        self.end -= at;
        Ok(())
    }
}

/// What a send is made of; at a fixed place until it has completed.
struct Sending {
    frames: Vec<FrameParts>,
    /// The same, sealed: then it is what is sent.
    sealed: Vec<u8>,
    parts: Vec<libc::iovec>,
    message: libc::msghdr,
    bytes: usize,
}

impl std::fmt::Debug for Sending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sending({} frames)", self.frames.len())
    }
}

impl Sending {
    /// Of these frames, sealed if the stream is.
    fn new(frames: Vec<FrameParts>, sealer: Option<&mut Sealer>) -> Box<Sending> {
        // SAFETY: a message header of zeroes is a valid one without anything.
        let message = unsafe { std::mem::zeroed() };
        let mut sending = Box::new(Sending {
            bytes: frames.iter().map(FrameParts::bytes).sum(),
            parts: Vec::with_capacity(2 * frames.len()),
            frames,
            sealed: Vec::new(),
            message,
        });
        if let Some(sealer) = sealer {
            sending.seal(sealer);
        }
        let Sending {
            frames,
            sealed,
            parts,
            message,
            ..
        } = &mut *sending;
        let part = |bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        if !sealed.is_empty() {
            parts.push(part(sealed));
        }
        for frame in frames {
            parts.push(part(&frame.header));
            if !frame.rest.is_empty() {
                parts.push(part(&frame.rest));
            }
        }
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        sending
    }

    /// Replaces the frames by what seals them.
    fn seal(&mut self, sealer: &mut Sealer) {
        let mut plain = Vec::with_capacity(self.bytes);
        for frame in self.frames.drain(..) {
            plain.extend_from_slice(&frame.header);
            plain.extend_from_slice(&frame.rest);
        }
        let records = plain.len().div_ceil(RECORD_BYTES_MAX);
        self.sealed = Vec::with_capacity(plain.len() + records * RECORD_OVERHEAD_BYTES);
        sealer.seal(&plain, &mut self.sealed);
        self.bytes = self.sealed.len();
    }
}

impl Sockets {
    /// Takes a connection over, which receives into `input`.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn open(
        &mut self,
        stream: PeerStream,
        input: Input,
        now: Instant,
    ) -> io::Result<StreamId> {
        let PeerStream { tcp: stream, seals } = stream;
        let sealed = seals.map(|seals| Sealed::new(seals, input.len()));
        // The ring waits for blocking sockets only.
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        self.next += 1;
        let id = StreamId(self.next);
        self.sockets.push(Socket {
            id,
            stream,
            sealed,
            input,
            is_receiving: false,
            queue: VecDeque::new(),
            sending: None,
            heard: now,
            broken: None,
            closing: None,
            is_shut: false,
            has_said_all: false,
        });
        Ok(id)
    }

    /// A buffer for what a target receives; what is in it means nothing.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        let kept = self.buffers.pop();
        kept.unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    /// Keeps the buffer of a closed stream for the next one, as long as there are others.
    fn keep(&mut self, buffer: Vec<u8>) {
        if buffer.len() == BUFFER_BYTES && self.buffers.len() < BUFFERS_KEPT {
            self.buffers.push(buffer);
        }
        if self.sockets.is_empty() {
            self.buffers.clear();
        }
    }

    fn find(&mut self, id: StreamId) -> Option<&mut Socket> {
        self.sockets.iter_mut().find(|socket| socket.id == id)
    }

    /// Queues a frame; dropped when the socket is closing.
    pub(super) fn send(&mut self, id: StreamId, frame: FrameParts) {
        if let Some(socket) = self.find(id)
            && socket.closing.is_none()
        {
            socket.queue.push_back(frame);
        }
    }

    /// The first frame that has arrived and was not consumed.
    ///
    /// # Errors
    /// Why there will be no more, for people; frames that came before are shown first.
    pub(super) fn front(&mut self, id: StreamId) -> Result<Option<Frame<'_>>, String> {
        let Some(socket) = self.find(id) else {
            return Err("the stream is closed".into());
        };
        match socket.input.front() {
            Ok(None) => match &socket.broken {
                Some(reason) => Err(reason.clone()),
                None => Ok(None),
            },
            Ok(frame) => Ok(frame),
            Err(error) => Err(broken_framing(&error)),
        }
    }

    /// Lets go of the frame that [`Sockets::front`] has shown.
    pub(super) fn consume(&mut self, id: StreamId) {
        if let Some(socket) = self.find(id) {
            socket.input.consume();
        }
    }

    /// Whether a frame waits, or has not left.
    pub(super) fn has_unsent(&mut self, id: StreamId) -> bool {
        let socket = self.find(id);
        socket.is_some_and(|socket| socket.sending.is_some() || !socket.queue.is_empty())
    }

    /// Since when nothing has come, if more is waited for.
    pub(super) fn heard(&mut self, id: StreamId) -> Option<Instant> {
        let socket = self.find(id)?;
        socket.is_receiving.then_some(socket.heard)
    }

    /// Sends `farewell` instead of what is not under way yet, and closes.
    pub(super) fn close(&mut self, id: StreamId, farewell: FrameParts, now: Instant) {
        if let Some(socket) = self.find(id)
            && socket.closing.is_none()
        {
            socket.queue.clear();
            socket.queue.push_back(farewell);
            socket.input.clear();
            socket.closing = Some(now + FAREWELL);
        }
    }

    /// Closes everything without a farewell.
    pub(super) fn shut_all(&mut self, now: Instant) {
        for socket in &mut self.sockets {
            socket.queue.clear();
            socket.closing.get_or_insert(now);
            socket.shut();
        }
    }

    /// The sockets in which nothing is sent any more, and whether nothing is received either.
    #[cfg(feature = "planted")]
    pub(super) fn ended(&self) -> impl Iterator<Item = (StreamId, bool)> + '_ {
        let ended = self.sockets.iter().filter(|s| s.is_shut || s.has_said_all);
        ended.map(|socket| (socket.id, socket.is_shut))
    }

    /// Whether nothing is open or under way.
    pub(super) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Issues what can be sent and received, and forgets what is closed.
    #[expect(
        clippy::indexing_slicing,
        reason = "the loop ends with the last socket"
    )]
    pub(super) fn pump(&mut self, ring: &mut impl StreamIo, now: Instant) {
        // Those that had no room in one turn are the first ones in the next.
        let first = std::mem::take(&mut self.first).min(self.sockets.len());
        self.sockets.rotate_left(first);
        let (mut at, mut room) = (0, SEND_BYTES);
        while at < self.sockets.len() {
            let socket = &mut self.sockets[at];
            let sent = socket.pump(ring, now, room > 0);
            room = room.saturating_sub(sent);
            if sent > 0 && room == 0 {
                self.first = at + 1;
            }
            if socket.is_shut && !socket.has_outstanding() {
                let closed = self.sockets.swap_remove(at);
                self.keep(closed.input.into_buf());
            } else {
                at += 1;
            }
        }
    }

    /// When a farewell has taken too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let closing = self.sockets.iter().filter(|socket| !socket.is_shut);
        closing.filter_map(|socket| socket.closing).min()
    }

    pub(super) fn received(&mut self, id: StreamId, result: io::Result<usize>) {
        let Some(socket) = self.find(id) else { return };
        socket.is_receiving = false;
        match result {
            Ok(0) => socket.end("the other node has closed the stream"),
            Ok(bytes) => {
                if socket.closing.is_none()
                    && let Err(error) = socket.filled(bytes)
                {
                    socket.end(&error.to_string());
                }
            }
            Err(error) if is_transient(&error) => {}
            Err(error) => socket.end(&error.to_string()),
        }
    }

    pub(super) fn sent(&mut self, id: StreamId, result: io::Result<usize>) {
        let Some(socket) = self.find(id) else { return };
        let sending = socket.sending.take();
        let expected = sending.as_ref().map_or(0, |sending| sending.bytes);
        match result {
            Ok(bytes) if bytes == expected => {}
            Ok(_) => socket.end("the other node has closed the stream"),
            Err(error) => socket.end(&error.to_string()),
        }
    }
}

impl Socket {
    /// So many bytes have come.
    fn filled(&mut self, bytes: usize) -> Result<(), SealError> {
        match &mut self.sealed {
            Some(sealed) => sealed.filled(bytes, &mut self.input)?,
            None => self.input.filled(bytes),
        }
        Ok(())
    }

    /// The other end is gone.
    fn end(&mut self, reason: &str) {
        self.broken.get_or_insert_with(|| reason.to_owned());
        if self.closing.is_some() {
            self.shut();
        }
    }

    fn shut(&mut self) {
        if !self.is_shut {
            self.is_shut = true;
            self.queue.clear();
            // Ends what is under way; it fails only when the connection is gone already.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }

    /// Sends, if it `may`, and receives; the bytes of a send that has begun.
    fn pump(&mut self, ring: &mut impl StreamIo, now: Instant, may: bool) -> usize {
        if let Some(by) = self.closing
            && (self.broken.is_some() || now >= by)
        {
            self.shut();
        }
        if self.is_shut {
            return 0;
        }
        let mut begun = 0;
        let fd = self.stream.as_raw_fd();
        if self.sending.is_none() && self.broken.is_none() {
            // Who may not has its turn after the completion of a send that others have begun.
            if may && let Some(sending) = self.next_send() {
                begun = sending.bytes;
                let sending = self.sending.insert(sending);
                // SAFETY: `sending` is boxed and kept until the `StreamSent` completion.
                unsafe { ring.send_stream(self.id, fd, &raw const sending.message) };
            } else if self.queue.is_empty() && self.closing.is_some() && !self.has_said_all {
                self.has_said_all = true;
                let _ = self.stream.shutdown(Shutdown::Write);
            }
        }
        // Frames that wait keep the rest in the kernel, which slows the other end down.
        let wants_more = matches!(self.input.front(), Ok(None));
        if !self.is_receiving && wants_more && self.broken.is_none() {
            self.is_receiving = true;
            self.heard = now;
            let room = match &mut self.sealed {
                Some(sealed) => sealed.room(),
                None => self.input.room(),
            };
            // SAFETY: the buffer is part of `self`, which stays until the completion, and it is not
            // touched while `is_receiving`: no whole frame is in it.
            unsafe { ring.receive_stream(self.id, fd, room) };
        }
        begun
    }

    /// Whether a completion is to come.
    fn has_outstanding(&self) -> bool {
        self.is_receiving || self.sending.is_some()
    }

    fn next_send(&mut self) -> Option<Box<Sending>> {
        let mut frames = Vec::new();
        let mut bytes = 0;
        while frames.len() < FRAMES_PER_SEND
            && bytes < SEND_BYTES
            && let Some(frame) = self.queue.pop_front()
        {
            bytes += frame.bytes();
            frames.push(frame);
        }
        let sealer = self.sealed.as_mut().map(|sealed| &mut sealed.seals.sealer);
        (!frames.is_empty()).then(|| Sending::new(frames, sealer))
    }
}

impl Drop for Sockets {
    /// What the kernel may still write to stays allocated: sockets with something under way are leaked,
    /// which happens only when the process ends in a hurry.
    fn drop(&mut self) {
        for socket in self.sockets.drain(..) {
            if socket.has_outstanding() {
                std::mem::forget(socket);
            }
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::ENOBUFS)
    )
}

fn broken_framing(error: &WireError) -> String {
    format!("the stream has no frame where one should be: {error}")
}
