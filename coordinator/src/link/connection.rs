//! An open link: a queue that one task writes, and frames for whoever reads.
//!
//! ```text
//! open -> leaving -> over     dropped: what is queued is written, then the peer's end is awaited
//! open ------------> over     closed by the peer, because of an error, or handed over
//! ```

pub(super) mod held;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ephesus_wire::frame::Frame;
use ephesus_wire::handshake::{HANDSHAKE_KIND_MIN, Opened};
use ephesus_wire::limits::FRAME_PAYLOAD_BYTES_MAX;
use ephesus_wire::seal::{Sealer, Seals};
use glommio::timer::Timer;

use super::counters::Counters;
use super::error::LinkError;
use super::inbound::Inbound;
use super::outbound::{Outbound, SharedFrame};
use super::peer_stream::PeerStream;
use super::socket::Socket;
use super::{LINGER, LinkOptions, Message};

/// Looks at the link within one idle timeout.
const TICKS_PER_IDLE: u32 = 4;

/// Bytes written before other tasks get a turn.
const WRITE_BYTES_PER_TURN: usize = 1 << 20;

/// Reads of what nobody wants any more before other tasks get a turn.
const UNWANTED_READS_PER_TURN: u32 = 16;

/// Messages read before other tasks get a turn.
const MESSAGES_PER_TURN: u32 = 64;

/// An open link; dropping it closes it after writing what is queued.
#[derive(Debug)]
pub struct Link {
    shared: Rc<Shared>,
    /// Messages read since the last look whether others wait for a turn.
    taken: u32,
}

/// Sends over a link that something else reads and owns.
#[derive(Clone, Debug)]
pub struct Sender {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    opened: Opened,
    address: SocketAddr,
    options: LinkOptions,
    counters: Arc<Counters>,
    /// There until the link is over.
    socket: RefCell<Option<Socket>>,
    inbound: RefCell<Inbound>,
    outbound: RefCell<Outbound>,
    life: RefCell<Life>,
    /// Bytes that were counted last.
    held: Cell<usize>,
    /// Whether anything came in since the last tick.
    heard: Cell<bool>,
    reader: RefCell<Option<Waker>>,
    driver: RefCell<Option<Waker>>,
}

#[derive(Clone, Debug)]
enum Life {
    Open,
    Leaving,
    Over(LinkError),
}

impl Link {
    /// Starts the link's task; the handshake has left the first frames in `inbound`.
    pub(super) fn start(
        socket: Socket,
        inbound: Inbound,
        (opened, sealer): (Opened, Option<Sealer>),
        options: LinkOptions,
        counters: Arc<Counters>,
    ) -> Result<Link, LinkError> {
        let address = socket.peer_addr()?;
        counters.add_opened();
        let shared = Rc::new(Shared {
            opened,
            address,
            options,
            counters,
            socket: RefCell::new(Some(socket)),
            inbound: RefCell::new(inbound),
            outbound: RefCell::new(Outbound::sealed(sealer)),
            life: RefCell::new(Life::Open),
            held: Cell::new(0),
            heard: Cell::new(false),
            reader: RefCell::default(),
            driver: RefCell::default(),
        });
        held::enter(&shared);
        let mut driver = Driver::new(Rc::clone(&shared));
        glommio::spawn_local(async move { poll_fn(|cx| driver.poll(cx)).await }).detach();
        Ok(Link { shared, taken: 0 })
    }

    /// What the handshake has agreed on, and who the peer is.
    #[must_use]
    pub fn opened(&self) -> &Opened {
        &self.shared.opened
    }

    /// Where the peer is connected from or listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// A handle that only sends.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender {
            shared: Rc::clone(&self.shared),
        }
    }

    /// As [`Sender::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&self, kind: u16, payload: &[u8]) -> Result<(), LinkError> {
        self.shared.send(kind, 0, payload)
    }

    /// As [`Sender::send_on`].
    ///
    /// # Errors
    /// As there.
    pub fn send_on(&self, kind: u16, stream: u64, payload: &[u8]) -> Result<(), LinkError> {
        self.shared.send(kind, stream, payload)
    }

    /// The next message; nothing is lost when the future is dropped. Somebody has to await it all the
    /// time: that is how the end of the link is noticed at once.
    ///
    /// # Errors
    /// Why the link is over; the same from then on.
    pub async fn recv(&mut self) -> Result<Message, LinkError> {
        self.taken += 1;
        if self.taken >= MESSAGES_PER_TURN {
            self.taken = 0;
            glommio::yield_if_needed().await;
        }
        poll_fn(|cx| self.shared.poll_recv(cx)).await
    }

    /// Ends the link but not its connection, and answers that, non-blocking, with what seals it, for somebody who goes on
    /// with frames elsewhere. Its place at the listener is free.
    ///
    /// # Errors
    /// [`LinkError::Unread`] when the peer has said more than was taken, or why the link is over.
    ///
    /// # Panics
    /// When something is queued: it would be lost.
    pub fn into_stream(self) -> Result<PeerStream, LinkError> {
        self.shared.hand_over()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

impl Sender {
    /// Queues a message of stream 0; it leaves together with what else is queued in this turn.
    ///
    /// # Errors
    /// [`LinkError::TooLong`], which leaves the link as it is; [`LinkError::Overflow`], which ends
    /// it; or why it is over already.
    ///
    /// # Panics
    /// When `kind` is one of the handshake.
    pub fn send(&self, kind: u16, payload: &[u8]) -> Result<(), LinkError> {
        self.shared.send(kind, 0, payload)
    }

    /// As [`Sender::send`], with the number of the request that the message belongs to.
    ///
    /// # Errors
    /// As there.
    pub fn send_on(&self, kind: u16, stream: u64, payload: &[u8]) -> Result<(), LinkError> {
        self.shared.send(kind, stream, payload)
    }

    /// As [`Sender::send`], of a frame that others send, too.
    ///
    /// # Errors
    /// As there.
    pub fn send_shared(&self, frame: &SharedFrame) -> Result<(), LinkError> {
        let queued = self.shared.make_room(frame.0.len())?;
        self.shared.outbound.borrow_mut().push_shared(frame.clone());
        self.shared.wake_for(queued);
        Ok(())
    }

    /// Bytes that wait to be written.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.shared.outbound.borrow().len()
    }

    /// Closes the link after writing what is queued; who awaits [`Link::recv`] learns of it.
    pub fn close(&self) {
        self.shared.leave();
    }
}

impl Shared {
    fn send(&self, kind: u16, stream: u64, payload: &[u8]) -> Result<(), LinkError> {
        assert!(
            kind < HANDSHAKE_KIND_MIN,
            "message {kind:#06x} is only for handshakes"
        );
        let bytes = payload.len();
        if bytes > FRAME_PAYLOAD_BYTES_MAX {
            return Err(LinkError::TooLong { bytes });
        }
        let frame = Frame {
            kind,
            stream,
            sequence: 0,
            payload,
        };
        let queued = self.make_room(frame.encoded_len())?;
        self.outbound.borrow_mut().push(&frame);
        self.wake_for(queued);
        self.count();
        match &*self.life.borrow() {
            Life::Over(error) => Err(error.clone()),
            Life::Open | Life::Leaving => Ok(()),
        }
    }

    /// How many bytes are queued, if so many more may be.
    fn make_room(&self, bytes: usize) -> Result<usize, LinkError> {
        match &*self.life.borrow() {
            Life::Open => {}
            Life::Leaving => return Err(LinkError::Local),
            Life::Over(error) => return Err(error.clone()),
        }
        let queued = self.outbound.borrow().len();
        let max = self.options.queue_bytes_max;
        if queued + bytes > max {
            let error = LinkError::Overflow { max };
            self.end(error.clone());
            return Err(error);
        }
        Ok(queued)
    }

    /// Has written what was queued behind so many bytes.
    fn wake_for(&self, queued: usize) {
        if queued == 0 {
            wake(&self.driver);
        }
    }

    fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Result<Message, LinkError>> {
        loop {
            match &*self.life.borrow() {
                Life::Open => {}
                Life::Leaving => return Poll::Ready(Err(LinkError::Local)),
                Life::Over(error) => return Poll::Ready(Err(error.clone())),
            }
            match self.take_message() {
                Ok(Some(message)) => return Poll::Ready(Ok(message)),
                Ok(None) => {}
                Err(error) => {
                    self.end(error);
                    continue;
                }
            }
            if self.poll_fill(cx).is_pending() {
                *self.reader.borrow_mut() = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
    }

    fn take_message(&self) -> Result<Option<Message>, LinkError> {
        let mut inbound = self.inbound.borrow_mut();
        let first = inbound.first(FRAME_PAYLOAD_BYTES_MAX);
        let Some((frame, len)) = first.map_err(LinkError::Framing)? else {
            return Ok(None);
        };
        let (kind, stream) = (frame.kind, frame.stream);
        if kind >= HANDSHAKE_KIND_MIN {
            return Err(LinkError::Kind { kind });
        }
        let payload = frame.payload.to_vec();
        inbound.consume(len);
        drop(inbound);
        self.count();
        Ok(Some(Message {
            kind,
            stream,
            payload,
        }))
    }

    /// Reads once; the end of the connection ends the link. `Pending` when there is nothing to read.
    fn poll_fill(&self, cx: &mut Context<'_>) -> Poll<()> {
        let read = {
            let mut socket = self.socket.borrow_mut();
            let Some(socket) = socket.as_mut() else {
                return Poll::Ready(());
            };
            socket.poll_fill(cx, &mut self.inbound.borrow_mut())
        };
        match read {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(0)) if self.inbound.borrow().is_empty() => self.end(LinkError::Ended),
            Poll::Ready(Ok(0)) => self.end(LinkError::Io(io::ErrorKind::UnexpectedEof)),
            Poll::Ready(Ok(_)) => {
                self.heard.set(true);
                self.count();
            }
            Poll::Ready(Err(error)) => self.end(error.into()),
        }
        Poll::Ready(())
    }

    fn hand_over(&self) -> Result<PeerStream, LinkError> {
        match &*self.life.borrow() {
            Life::Open => {}
            Life::Leaving => return Err(LinkError::Local),
            Life::Over(error) => return Err(error.clone()),
        }
        let queued = self.outbound.borrow().len();
        assert_eq!(queued, 0, "what is queued belongs to the link");
        if !self.inbound.borrow().is_empty() {
            self.end(LinkError::Unread);
            return Err(LinkError::Unread);
        }
        let socket = self.socket.take();
        let sealer = self.outbound.borrow_mut().take_sealer();
        let opener = self.inbound.borrow_mut().take_opener();
        self.end(LinkError::Local);
        let socket = socket.ok_or(LinkError::Local)?;
        let seals = sealer.zip(opener);
        Ok(PeerStream {
            tcp: socket.into_std()?,
            seals: seals.map(|(sealer, opener)| Box::new(Seals { sealer, opener })),
        })
    }

    fn leave(&self) {
        let mut life = self.life.borrow_mut();
        if matches!(*life, Life::Open) {
            *life = Life::Leaving;
            wake(&self.driver);
            wake(&self.reader);
        }
    }

    fn end(&self, error: LinkError) {
        let mut life = self.life.borrow_mut();
        if matches!(*life, Life::Over(_)) {
            return;
        }
        self.counters.add(error.reason());
        *life = Life::Over(error);
        drop(self.socket.take());
        self.outbound.take();
        self.inbound.take();
        self.count();
        wake(&self.driver);
        wake(&self.reader);
    }
}

fn wake(waker: &RefCell<Option<Waker>>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// The link's task: writes, and watches for silence.
struct Driver {
    shared: Rc<Shared>,
    timer: Timer,
    /// Ticks in a row without a sign of the peer.
    quiet: u32,
    /// Whether the last [`LINGER`] has begun.
    leaving: bool,
    /// Whether everything was written and the peer told so.
    finished: bool,
}

impl Driver {
    fn new(shared: Rc<Shared>) -> Driver {
        let timer = Timer::new(shared.options.idle_timeout / TICKS_PER_IDLE);
        Driver {
            shared,
            timer,
            quiet: 0,
            leaving: false,
            finished: false,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        *self.shared.driver.borrow_mut() = Some(cx.waker().clone());
        if !self.leaving && matches!(*self.shared.life.borrow(), Life::Leaving) {
            self.leaving = true;
            self.timer.reset(LINGER);
        }
        if self.poll_write(cx).is_ready() && self.leaving {
            self.poll_peers_end(cx);
        }
        while !self.is_over() && Pin::new(&mut self.timer).poll(cx).is_ready() {
            if self.leaving {
                self.shared.end(LinkError::Local);
            } else {
                self.tick(cx);
                self.timer
                    .reset(self.shared.options.idle_timeout / TICKS_PER_IDLE);
            }
        }
        if self.is_over() {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn is_over(&self) -> bool {
        matches!(*self.shared.life.borrow(), Life::Over(_))
    }

    /// Ready when nothing waits to be written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let written = self.poll_write_queued(cx);
        self.shared.count();
        written
    }

    fn poll_write_queued(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut budget = WRITE_BYTES_PER_TURN;
        loop {
            let mut outbound = self.shared.outbound.borrow_mut();
            let bytes = outbound.next();
            if bytes.is_empty() {
                return Poll::Ready(());
            }
            if budget == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let bytes = bytes.get(..budget).unwrap_or(bytes);
            let written = match self.shared.socket.borrow_mut().as_mut() {
                Some(socket) => socket.poll_write(cx, bytes),
                None => return Poll::Pending,
            };
            match written {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(written)) => {
                    outbound.wrote(written);
                    budget -= written;
                }
                Poll::Ready(Err(error)) => {
                    drop(outbound);
                    self.shared.end(error.into());
                    return Poll::Pending;
                }
            }
        }
    }

    /// Says that nothing more comes, and reads until the peer says the same: closing while its bytes
    /// are unread would make the kernel throw away what was just written.
    fn poll_peers_end(&mut self, cx: &mut Context<'_>) {
        let mut reads = 0;
        let ended = loop {
            let mut socket = self.shared.socket.borrow_mut();
            let Some(socket) = socket.as_mut() else {
                return;
            };
            if !self.finished {
                self.finished = true;
                socket.shut_down(Shutdown::Write);
            }
            let mut unwanted = Inbound::default();
            match socket.poll_fill(cx, &mut unwanted) {
                Poll::Pending => break false,
                Poll::Ready(Ok(0) | Err(_)) => break true,
                Poll::Ready(Ok(_)) if reads == UNWANTED_READS_PER_TURN => {
                    cx.waker().wake_by_ref();
                    break false;
                }
                Poll::Ready(Ok(_)) => reads += 1,
            }
        };
        if ended {
            self.shared.end(LinkError::Local);
        }
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.quiet += 1;
        if self.shared.heard.take() {
            self.quiet = 0;
        }
        if self.quiet < TICKS_PER_IDLE {
            return;
        }
        // The peer is not silent when only nobody has read what it sent.
        let unread = self.shared.inbound.borrow().first(FRAME_PAYLOAD_BYTES_MAX) != Ok(None);
        if unread {
            self.quiet = 0;
        } else if self.shared.poll_fill(cx).is_pending() {
            self.shared.end(LinkError::Idle);
        } else {
            // The reader's waker was replaced by this task's.
            wake(&self.shared.reader);
        }
    }
}
