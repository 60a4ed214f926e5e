//! The links to other nodes, on an executor of their own: the port that takes them, and the dialling.
//!
//! Who opens a link has to prove to be a node of this cluster; everybody else is closed, counted and
//! named on the log once in a while. A link carries the streams of migrations between two shards: its first
//! messages are their OPEN, and then its connection is handed to the node, which knows whether they are due and
//! which shard they are for. Or it carries what the node at the other end publishes ([`messages`]).

mod messages;

use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ephesus_coordinator::command::ClusterId;
use ephesus_coordinator::link::{
    Counters, Dialer, Faults, Link, LinkError, LinkOptions, ListenOptions, Listener, PeerStream,
    SharedFrame,
};
use ephesus_coordinator::protocol::{self, kind};
use ephesus_coordinator::scheduling::keep_awake;
use ephesus_wire::frame::Frame;
use ephesus_wire::handshake::{Identity, LinkRole, Secret};
use ephesus_wire::published;
use ephesus_wire::stream::Message;
use ephesus_wire::{MigrationId, NodeId};
use glommio::{LocalExecutorBuilder, Placement};

use self::messages::Places;
use super::error::StartError;
use super::exchange::Exchange;
use super::executor;
use crate::migration::Batch;

/// What it is, for messages.
const WHAT: &str = "the port for other nodes";

/// Memory that glommio registers for the executor's file I/O, of which there is none.
const IO_BYTES: usize = 128 << 10;

const RING_DEPTH: usize = 128;

/// Longest time that ready tasks may be overlooked.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// How long whoever opens a link may take to say what it is for.
const OPEN_LIMIT: Duration = Duration::from_secs(3);

/// A connection for a batch, to be opened to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// What OPEN is to say.
    pub batch: Batch,
    /// The node that has to answer.
    pub target: NodeId,
    /// Where it takes links, as `host:port`.
    pub address: String,
}

/// A connection for a batch that another node has opened.
#[derive(Debug)]
pub struct Offer {
    /// What OPEN says.
    pub batch: Batch,
    /// The node at the other end.
    pub from: NodeId,
    /// The connection, non-blocking. OPEN was frame 0; nothing was said in the other direction.
    pub stream: PeerStream,
}

/// What the thread is asked to do.
#[derive(Debug)]
enum Order {
    Dial(Dial),
    /// Keep a link for messages to each of these nodes.
    Follow(Vec<(NodeId, String)>),
}

/// What a link is for that another node has opened.
enum Purpose {
    Batch(Offer),
    Messages(Link),
}

/// What has happened.
#[derive(Debug)]
pub enum PeerEvent {
    /// A connection is there, OPEN was said as frame 0, and nothing was read; or why there is none.
    Dialled {
        /// What it was dialled for.
        batch: MigrationId,
        /// The connection, non-blocking.
        result: Result<PeerStream, String>,
    },
    /// Another node wants to send.
    Offered(Offer),
}

/// The open port; closed when stopped.
#[derive(Debug)]
pub struct PeerPort {
    orders: flume::Sender<Order>,
    exchange: Arc<Exchange>,
    events: flume::Receiver<PeerEvent>,
    thread: JoinHandle<()>,
}

impl PeerPort {
    /// Takes links of nodes of `cluster` at `port`, and counts those that are none.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        port: TcpListener,
        node: NodeId,
        cluster: ClusterId,
        secret: Option<Secret>,
        counters: Arc<Counters>,
    ) -> Result<PeerPort, StartError> {
        let (exchange, queued) = Exchange::new();
        let exchange = Arc::new(exchange);
        let served = Arc::clone(&exchange);
        let identity = Identity {
            cluster: Some(cluster.0),
            ..protocol::identity(LinkRole::Node, node)
        };
        let (orders, ordered) = flume::unbounded();
        let (told, events) = flume::unbounded();
        let builder = LocalExecutorBuilder::new(Placement::Unbound)
            .name("peers")
            .io_memory(IO_BYTES)
            .ring_depth(RING_DEPTH);
        let run = move |report: executor::Report<()>| async move {
            let dialer = Dialer::new(
                identity,
                secret.clone(),
                LinkOptions::default(),
                Arc::default(),
            );
            let options = ListenOptions::default();
            match Listener::new(port, identity, secret, options, counters) {
                Ok(listener) => {
                    let _ = report.send(Ok(()));
                    serve(listener, dialer, (ordered, told), (queued, served)).await;
                }
                Err(source) => drop(report.send(Err(StartError::thread(WHAT)(source)))),
            }
        };
        let (thread, ()) = executor::spawn(("peers", WHAT), builder, run)?.ready()?;
        Ok(PeerPort {
            orders,
            exchange,
            events,
            thread,
        })
    }

    /// Opens a connection, within a few seconds; what becomes of it is an event.
    pub fn dial(&self, dial: Dial) {
        // The thread lives as long as this.
        let _ = self.orders.send(Order::Dial(dial));
    }

    /// Sends what shards publish to these nodes, at these addresses, from now on.
    pub fn follow(&self, others: Vec<(NodeId, String)>) {
        self.exchange.set_has_others(!others.is_empty());
        let _ = self.orders.send(Order::Follow(others));
    }

    /// What shards publish goes there, and what others publish comes from there.
    #[must_use]
    pub fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// What happens; wait on it.
    #[must_use]
    pub fn events(&self) -> &flume::Receiver<PeerEvent> {
        &self.events
    }

    /// Closes the port and its links; connections that were handed over stay.
    pub fn stop(self) {
        drop(self.orders);
        if self.thread.join().is_err() {
            tracing::error!("{WHAT} ended in a panic");
        }
    }
}

impl Offer {
    /// Says that there will be no copies, and closes.
    pub fn refuse(mut self, reason: &str) {
        let mut bytes = Vec::new();
        Message::Refused(reason).encode(self.batch.id(), 0, &mut bytes);
        // It is the first thing that is written: there is room for it. Nothing is unread, so that it
        // arrives; and whoever has gone meanwhile does not miss it.
        let _ = self.stream.say(&bytes);
    }
}

/// Serves until nobody can dial any more.
async fn serve(
    listener: Listener,
    dialer: Dialer,
    (orders, events): (flume::Receiver<Order>, flume::Sender<PeerEvent>),
    (queued, exchange): (flume::Receiver<SharedFrame>, Arc<Exchange>),
) {
    let awake = keep_awake(HEARTBEAT);
    let (told, delivers) = (events.clone(), Arc::clone(&exchange));
    let accepting = glommio::spawn_local(async move {
        loop {
            let link = listener.accept().await;
            let (told, delivers) = (told.clone(), Arc::clone(&delivers));
            glommio::spawn_local(attend(link, listener.faults(), told, delivers)).detach();
        }
    });
    let dialer = Rc::new(dialer);
    let places = Rc::new(Places::default());
    let sends = Rc::clone(&places);
    let sending = glommio::spawn_local(async move { sends.send(queued, exchange).await });
    while let Ok(order) = orders.recv_async().await {
        let dial = match order {
            Order::Dial(dial) => dial,
            Order::Follow(others) => {
                places.follow(&others, &dialer);
                continue;
            }
        };
        let (dialer, events) = (Rc::clone(&dialer), events.clone());
        glommio::spawn_local(async move {
            let batch = dial.batch.id();
            let result = open(&dialer, dial).await;
            // The node may have let go.
            let _ = events.send(PeerEvent::Dialled { batch, result });
        })
        .detach();
    }
    places.follow(&[], &dialer);
    sending.cancel().await;
    accepting.cancel().await;
    awake.cancel().await;
}

/// Opens a link and says what for.
async fn open(dialer: &Dialer, dial: Dial) -> Result<PeerStream, String> {
    let link = dialer.dial(&dial.address).await;
    let link = link.map_err(|error| error.to_string())?;
    let peer = link.opened().peer;
    if (peer.role, peer.node) != (LinkRole::Node, dial.target) {
        return Err(format!("{} is node {}", dial.address, peer.node));
    }
    let mut stream = link.into_stream().map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let moves = dial.batch.moves();
    if moves.len() > 1 {
        Message::Opens(moves.len() as u64).encode(dial.batch.id(), 0, &mut bytes);
    }
    for (migration, open) in moves {
        Message::Open(*open).encode(*migration, 0, &mut bytes);
    }
    // All that the handshake has written is gone: there is room for it.
    let written = stream.say(&bytes);
    written.map_err(|error| format!("{}: {error}", dial.address))?;
    Ok(stream)
}

/// Takes a link's first message, and gives its connection to the node.
async fn attend(
    link: Link,
    faults: Faults,
    events: flume::Sender<PeerEvent>,
    exchange: Arc<Exchange>,
) {
    let address = link.address();
    let role = link.opened().peer.role;
    if role != LinkRole::Node {
        faults.note(
            address,
            &format_args!("only nodes have a place here, not a {role:?}"),
        );
        return;
    }
    let late = async {
        glommio::timer::sleep(OPEN_LIMIT).await;
        faults.note(address, &"it does not say what it is for");
        None
    };
    match futures_lite::future::or(offered(link, &faults), late).await {
        Some(Purpose::Batch(offer)) => {
            // The node may have let go.
            let _ = events.send(PeerEvent::Offered(offer));
        }
        Some(Purpose::Messages(link)) => messages::receive(link, &faults, &exchange).await,
        None => {}
    }
}

/// What a link is for; none when it ends before it says so, or is noted as a fault and then closed.
async fn offered(mut link: Link, faults: &Faults) -> Option<Purpose> {
    let (address, from) = (link.address(), link.opened().peer.node);
    let (mut opens, mut count) = (Vec::new(), None);
    while opens.len() as u64 != count.unwrap_or(1) {
        let said = match link.recv().await {
            Ok(message) if message.kind == kind::ALIVE => continue,
            Ok(message) => message,
            Err(error) => return ended(address, &error),
        };
        if said.kind == published::BEGIN && opens.is_empty() && count.is_none() {
            return Some(Purpose::Messages(link));
        }
        let frame = Frame {
            kind: said.kind,
            stream: said.stream,
            sequence: 0,
            payload: &said.payload,
        };
        let fault = match Message::decode(&frame) {
            Ok((_, Message::Opens(some))) if count.is_none() && opens.is_empty() => {
                count = Some(some);
                continue;
            }
            Ok((migration, Message::Open(open))) => {
                opens.push((migration, open));
                continue;
            }
            Ok(_) => format!("a message of kind {}", said.kind),
            Err(error) => error.to_string(),
        };
        faults.note(address, &fault);
        return None;
    }
    let Some(batch) = Batch::new(opens) else {
        faults.note(address, &"its migrations are no batch");
        return None;
    };
    match link.into_stream() {
        Ok(stream) => Some(Purpose::Batch(Offer {
            batch,
            from,
            stream,
        })),
        Err(error) => ended(address, &error),
    }
}

/// A link is over; it was counted already.
fn ended<T>(address: SocketAddr, error: &LinkError) -> Option<T> {
    tracing::debug!(%address, %error, "link ended");
    None
}

#[cfg(test)]
mod tests;
