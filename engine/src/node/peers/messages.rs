//! Links that carry messages of PUBLISH: one to each other node, which the sender dials, and those that others have
//! dialled.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ephesus_coordinator::link::{Backoff, Dialer, Faults, Link, LinkError, Sender, SharedFrame};
use ephesus_coordinator::protocol::kind;
use ephesus_wire::NodeId;
use ephesus_wire::handshake::LinkRole;
use ephesus_wire::published::{self, Published};
use futures_lite::future::or;

use crate::node::exchange::Exchange;

/// How often both ends say that they are there.
const ALIVE_EVERY: Duration = Duration::from_secs(2);

/// Bytes of messages that wait for one link.
const LINK_BYTES_MAX: usize = 8 << 20;

/// Another node, and the link to it while there is one.
#[derive(Debug)]
struct Place {
    address: String,
    sender: RefCell<Option<Sender>>,
    is_over: Cell<bool>,
}

impl Place {
    fn end(&self) {
        self.is_over.set(true);
        if let Some(sender) = self.sender.take() {
            sender.close();
        }
    }

    /// Whether the message is on its way.
    fn send(&self, frame: &SharedFrame) -> bool {
        let sender = self.sender.borrow();
        sender.as_ref().is_some_and(|sender| {
            let has_room = sender.queued_bytes() + frame.len() <= LINK_BYTES_MAX;
            has_room && sender.send_shared(frame).is_ok()
        })
    }
}

/// The other nodes.
#[derive(Debug, Default)]
pub(super) struct Places(RefCell<BTreeMap<NodeId, Rc<Place>>>);

impl Places {
    /// Keeps a link to each of these nodes, and no other.
    pub(super) fn follow(&self, others: &[(NodeId, String)], dialer: &Rc<Dialer>) {
        let mut places = self.0.borrow_mut();
        places.retain(|node, place| {
            let mut others = others.iter();
            let stays = others.any(|(other, address)| other == node && *address == place.address);
            if !stays {
                place.end();
            }
            stays
        });
        for (node, address) in others {
            if !places.contains_key(node) {
                let place = Rc::new(Place {
                    address: address.clone(),
                    sender: RefCell::default(),
                    is_over: Cell::new(false),
                });
                places.insert(*node, Rc::clone(&place));
                glommio::spawn_local(keep(*node, place, Rc::clone(dialer))).detach();
            }
        }
    }

    /// Sends what shards publish, for ever.
    pub(super) async fn send(&self, queued: flume::Receiver<SharedFrame>, exchange: Arc<Exchange>) {
        while let Ok(frame) = queued.recv_async().await {
            exchange.taken(frame.len());
            for place in self.0.borrow().values() {
                match place.send(&frame) {
                    true => {
                        exchange.counts.sent.fetch_add(1, Ordering::Relaxed);
                    }
                    false => exchange.dropped(),
                }
            }
            glommio::yield_if_needed().await;
        }
    }
}

/// Keeps a link to a node until it is not wanted any more.
async fn keep(node: NodeId, place: Rc<Place>, dialer: Rc<Dialer>) {
    let seed = node.0.iter().fold(0_u64, |seed, byte| {
        seed.wrapping_mul(257).wrapping_add(u64::from(*byte))
    });
    let mut backoff = Backoff::new(seed);
    while !place.is_over.get() {
        let address = &place.address;
        match dialer.dial(address).await {
            Ok(link) => {
                let peer = link.opened().peer;
                if (peer.role, peer.node) == (LinkRole::Node, node) {
                    backoff.reset();
                    let error = carry(link, &place).await;
                    tracing::debug!(%address, %error, "a link for messages has ended");
                }
            }
            Err(error) => tracing::debug!(%address, %error, "no link for messages"),
        }
        place.sender.take();
        glommio::timer::sleep(backoff.next_wait()).await;
    }
}

/// Lets a link carry messages until it ends; why it has.
async fn carry(mut link: Link, place: &Place) -> LinkError {
    if let Err(error) = link.send(published::BEGIN, &[]) {
        return error;
    }
    *place.sender.borrow_mut() = Some(link.sender());
    if place.is_over.get() {
        place.end();
    }
    let sender = link.sender();
    or(stay(&sender), async {
        loop {
            // The other end says that it is there, and nothing else.
            if let Err(error) = link.recv().await {
                return error;
            }
        }
    })
    .await
}

/// Says again and again that this end is there.
async fn stay(sender: &Sender) -> LinkError {
    loop {
        glommio::timer::sleep(ALIVE_EVERY).await;
        if let Err(error) = sender.send(kind::ALIVE, &[]) {
            return error;
        }
    }
}

/// Takes what another node publishes, until its link ends.
pub(super) async fn receive(mut link: Link, faults: &Faults, exchange: &Exchange) {
    let (address, sender) = (link.address(), link.sender());
    let taking = async {
        loop {
            match link.recv().await {
                Ok(said) if said.kind == kind::ALIVE => {}
                Ok(said) if said.kind == published::MESSAGE => {
                    match Published::decode(&said.payload) {
                        Some(published) => exchange.deliver(published),
                        None => {
                            faults.note(address, &"a message that is none");
                            return LinkError::Local;
                        }
                    }
                }
                Ok(said) => {
                    faults.note(address, &format_args!("a message of kind {}", said.kind));
                    return LinkError::Local;
                }
                Err(error) => return error,
            }
        }
    };
    let error = or(stay(&sender), taking).await;
    tracing::debug!(%address, %error, "a link for messages has ended");
}
