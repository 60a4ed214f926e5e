//! Takes connections, lets those in that pass the handshake, and counts the others.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use ephesus_wire::handshake::{Handshake, Identity, Opened, Secret};
use ephesus_wire::seal::Sealer;
use glommio::net::{TcpListener, TcpStream};
use socket2::Socket as RawSocket;

use super::connection::Link;
use super::counters::{Counters, Reason};
use super::error::LinkError;
use super::inbound::Inbound;
use super::socket::{Permit, Socket, within};
use super::{LinkOptions, opening};

/// Wait after a connection could not be accepted, mostly because too many files are open.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Connections that the system keeps until they are accepted, as far as its own limit allows: one for which there is
/// no room is tried again by its system after a second, which is as long as a lease.
const BACKLOG: i32 = 4096;

/// The log gets one line about refusals for the same reason in this time.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Open links; more are refused.
    pub links_max: usize,
    /// Connections whose handshake is under way; a new one takes the place of the oldest.
    pub handshakes_max: usize,
    /// Bounds of each link.
    pub link: LinkOptions,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions {
            links_max: 1024,
            handshakes_max: 256,
            link: LinkOptions::default(),
        }
    }
}

/// A listening port; dropping it closes the port, links stay.
#[derive(Debug)]
pub struct Listener {
    shared: Rc<Shared>,
    /// The port once more: shutting it down ends the accept that is under way.
    port: RawSocket,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    identity: Cell<Identity>,
    secret: Option<Secret>,
    options: ListenOptions,
    counters: Arc<Counters>,
    /// Places of open links that are taken.
    links: Rc<Cell<usize>>,
    /// In the order in which they came.
    handshakes: RefCell<BTreeMap<u64, Rc<Eviction>>>,
    ready: RefCell<VecDeque<Link>>,
    waiting: RefCell<Option<Waker>>,
    refusals: RefCell<RefusalLog>,
    closed: Cell<bool>,
}

impl Listener {
    /// Takes connections from now on. `port` comes from [`std::net::TcpListener::bind`], which unlike
    /// glommio's does not share the port with another process.
    ///
    /// # Errors
    /// When the operating system gives no second handle to the port, or refuses to listen.
    pub fn new(
        port: std::net::TcpListener,
        identity: Identity,
        secret: Option<Secret>,
        options: ListenOptions,
        counters: Arc<Counters>,
    ) -> io::Result<Listener> {
        let address = port.local_addr()?;
        let second = RawSocket::from(port.try_clone()?);
        second.listen(BACKLOG)?;
        // SAFETY: the descriptor is a listening socket, and nobody else owns it any more.
        let port = unsafe { TcpListener::from_raw_fd(port.into_raw_fd()) };
        let shared = Rc::new(Shared {
            identity: Cell::new(identity),
            secret,
            options,
            counters,
            links: Rc::default(),
            handshakes: RefCell::default(),
            ready: RefCell::default(),
            waiting: RefCell::default(),
            refusals: RefCell::default(),
            closed: Cell::new(false),
        });
        glommio::spawn_local(accept_all(port, Rc::clone(&shared))).detach();
        Ok(Listener {
            shared,
            port: second,
            address,
        })
    }

    /// The next link; nothing is lost when the future is dropped.
    pub async fn accept(&self) -> Link {
        poll_fn(|cx| match self.shared.ready.borrow_mut().pop_front() {
            Some(link) => Poll::Ready(link),
            None => {
                *self.shared.waiting.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what the next handshakes say, for example once the cluster is known.
    pub fn set_identity(&self, identity: Identity) {
        self.shared.identity.set(identity);
    }

    /// Where faults of open links are noted; it does not keep the port open.
    #[must_use]
    pub fn faults(&self) -> Faults {
        Faults(Rc::clone(&self.shared))
    }

    /// Links that are open, those not yet accepted included.
    #[must_use]
    pub fn links(&self) -> usize {
        self.shared.links.get()
    }

    /// Connections whose handshake is under way.
    #[must_use]
    pub fn handshakes(&self) -> usize {
        self.shared.handshakes.borrow().len()
    }
}

/// Notes links that were closed for what came over them.
#[derive(Clone, Debug)]
pub struct Faults(Rc<Shared>);

impl Faults {
    /// Counts one, and tells the log once in a while.
    pub fn note(&self, peer: SocketAddr, fault: &dyn Display) {
        self.0.note(Some(peer), Reason::Framing, fault);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.closed.set(true);
        self.shared.ready.take();
        // The only error is that it is closed already.
        let _ = self.port.shutdown(Shutdown::Both);
    }
}

/// Accepts until the listener is dropped. An accept is never cancelled: it could lose a connection.
async fn accept_all(port: TcpListener, shared: Rc<Shared>) {
    let mut number = 0;
    loop {
        let accepted = port.accept().await;
        if shared.closed.get() {
            return;
        }
        match accepted {
            Ok(stream) => {
                let eviction = shared.admit(number);
                let shared = Rc::clone(&shared);
                glommio::spawn_local(async move {
                    shared.receive(stream, &eviction).await;
                    shared.handshakes.borrow_mut().remove(&number);
                })
                .detach();
                number += 1;
            }
            Err(error) => {
                shared.refuse(None, &LinkError::from(io::Error::from(error)));
                glommio::timer::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

impl Shared {
    /// Enters a handshake, in the place of the oldest when there are too many.
    fn admit(&self, number: u64) -> Rc<Eviction> {
        let mut handshakes = self.handshakes.borrow_mut();
        if handshakes.len() >= self.options.handshakes_max
            && let Some((_, oldest)) = handshakes.pop_first()
        {
            oldest.evict();
        }
        let eviction = Rc::new(Eviction::default());
        handshakes.insert(number, Rc::clone(&eviction));
        eviction
    }

    /// Lets a connection in, or counts it and then closes it: whoever sees the end finds it counted.
    async fn receive(&self, stream: TcpStream, eviction: &Eviction) {
        let address = stream.peer_addr().ok();
        let mut socket = match Socket::new(stream) {
            Ok(socket) => socket,
            Err(error) => return self.refuse(address, &error.into()),
        };
        let shaken = within(self.options.link.handshake_timeout, self.shake(&mut socket));
        let evicted = async {
            eviction.evicted().await;
            Some(Err(LinkError::Evicted))
        };
        let result = futures_lite::future::or(shaken, evicted).await;
        match result.unwrap_or(Err(LinkError::HandshakeTimeout)) {
            Ok((inbound, opened)) if !self.closed.get() => {
                let entered = self.enter(socket, inbound, opened);
                entered.unwrap_or_else(|error| self.refuse(address, &error));
            }
            Ok(_) => {}
            Err(error) => self.refuse(address, &error),
        }
    }

    async fn shake(
        &self,
        socket: &mut Socket,
    ) -> Result<(Inbound, (Opened, Option<Sealer>)), LinkError> {
        let hello = opening::hello(self.identity.get());
        let handshake = Handshake::accept(hello, self.secret.clone());
        let mut inbound = Inbound::default();
        let opened = opening::open(socket, &mut inbound, handshake, &[]).await?;
        let permit = Permit::take(&self.links, self.options.links_max).ok_or(LinkError::TooMany)?;
        socket.set_permit(permit);
        Ok((inbound, opened))
    }

    fn enter(
        &self,
        socket: Socket,
        inbound: Inbound,
        opened: (Opened, Option<Sealer>),
    ) -> Result<(), LinkError> {
        let counters = Arc::clone(&self.counters);
        let link = Link::start(socket, inbound, opened, self.options.link, counters)?;
        self.ready.borrow_mut().push_back(link);
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
        Ok(())
    }

    fn refuse(&self, peer: Option<SocketAddr>, error: &LinkError) {
        self.note(peer, error.reason(), error);
    }

    fn note(&self, peer: Option<SocketAddr>, reason: Reason, error: &dyn Display) {
        self.counters.add(reason);
        let Some(refused) = self.refusals.borrow_mut().note(reason, now()) else {
            return;
        };
        let peer = peer.map_or_else(|| "?".to_owned(), |peer| peer.to_string());
        tracing::warn!(
            %peer,
            reason = reason.label(),
            refused,
            "connection closed: {error}"
        );
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a shell: only the log's rhythm depends on it"
)]
fn now() -> Instant {
    Instant::now()
}

/// Tells one handshake that its place is needed.
#[derive(Debug, Default)]
struct Eviction {
    evicted: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Eviction {
    fn evict(&self) {
        self.evicted.set(true);
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
    }

    async fn evicted(&self) {
        poll_fn(|cx| {
            if self.evicted.get() {
                return Poll::Ready(());
            }
            *self.waiting.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Which refusals the log has heard of.
#[derive(Debug, Default)]
struct RefusalLog {
    last: BTreeMap<Reason, Instant>,
    unsaid: BTreeMap<Reason, u64>,
}

impl RefusalLog {
    /// When a line is due, how many refusals it stands for.
    fn note(&mut self, reason: Reason, now: Instant) -> Option<u64> {
        let unsaid = self.unsaid.entry(reason).or_default();
        *unsaid += 1;
        let last = self.last.get(&reason);
        if last.is_some_and(|last| now.saturating_duration_since(*last) < LOG_EVERY) {
            return None;
        }
        self.last.insert(reason, now);
        Some(std::mem::take(unsaid))
    }
}

#[cfg(test)]
mod tests;
