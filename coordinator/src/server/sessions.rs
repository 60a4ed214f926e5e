//! Links that others have opened: nodes, operators and coordinators.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use ephesus_wire::handshake::LinkRole;

use super::met::{Met, Stranger};
use super::peers::{Doorbells, Voice};
use crate::command::RaftId;
use crate::coordinator::{Event, SessionId};
use crate::link::{Faults, Link, LinkError, Listener, Message, Sender};
use crate::protocol::{Answer, ProtocolError, Refusals, Request, decode_raft, kind};

/// Why a link of somebody else was closed.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("a message of kind {kind} from a {role:?}")]
    Kind { kind: u16, role: LinkRole },
    #[error("a message of raft from coordinator {found} on the link of {expected}")]
    Sender { found: u64, expected: u64 },
    #[error(transparent)]
    Stranger(#[from] Stranger),
    #[error("the coordinator stops")]
    Stopping,
}

/// Links that others have opened.
pub(super) struct Sessions {
    events: flume::Sender<Event>,
    senders: RefCell<BTreeMap<SessionId, Sender>>,
    last: Cell<u64>,
    doorbells: Rc<Doorbells>,
    met: Rc<Met>,
}

impl Sessions {
    /// What they say goes to `events`.
    pub(super) fn new(
        events: flume::Sender<Event>,
        doorbells: Rc<Doorbells>,
        met: Rc<Met>,
    ) -> Rc<Sessions> {
        Rc::new(Sessions {
            met,
            events,
            senders: RefCell::default(),
            last: Cell::new(0),
            doorbells,
        })
    }

    /// Serves every link that `listener` opens.
    pub(super) async fn accept_all(self: Rc<Self>, listener: Rc<Listener>) {
        loop {
            let link = listener.accept().await;
            let serve = Rc::clone(&self).serve(link, listener.faults());
            glommio::spawn_local(serve).detach();
        }
    }

    /// Sends an answer; to a session that is gone it is lost.
    pub(super) fn answer(&self, session: SessionId, answer: &Answer) {
        let senders = self.senders.borrow();
        let Some(sender) = senders.get(&session) else {
            return;
        };
        match answer.encode() {
            Ok(payload) => {
                // Whoever reads the link learns of its end.
                let _ = sender.send(kind::ANSWER, &payload);
            }
            Err(error) => {
                tracing::error!(%error, "an answer cannot be sent");
                sender.close();
            }
        }
    }

    /// Closes a session.
    pub(super) fn close(&self, session: SessionId) {
        if let Some(sender) = self.senders.borrow().get(&session) {
            sender.close();
        }
    }

    async fn serve(self: Rc<Self>, mut link: Link, faults: Faults) {
        let (peer, address) = (link.opened().peer, link.address());
        let fault = if peer.role == LinkRole::Coordinator {
            match self.met.meet(&peer) {
                Ok(_open) => {
                    self.doorbells.ring(RaftId(peer.raft_id));
                    self.hear_coordinator(&mut link, peer.raft_id).await
                }
                Err(stranger) => stranger.into(),
            }
        } else {
            let session = SessionId(self.last.get() + 1);
            self.last.set(session.0);
            self.senders.borrow_mut().insert(session, link.sender());
            let fault = self.hear(&mut link, session, peer.role).await;
            self.senders.borrow_mut().remove(&session);
            // The coordinator may have stopped.
            let _ = self.events.send_async(Event::Closed(session)).await;
            fault
        };
        match fault {
            Fault::Link(_) | Fault::Stopping => tracing::debug!(%address, %fault, "link closed"),
            _ => faults.note(address, &fault),
        }
    }

    /// Takes what a node or operator says until its link ends.
    async fn hear(&self, link: &mut Link, session: SessionId, role: LinkRole) -> Fault {
        loop {
            let message = match link.recv().await {
                Ok(message) => message,
                Err(error) => return error.into(),
            };
            let request = match message.kind {
                kind::ALIVE => continue,
                kind::REQUEST => match Request::decode(&message.payload) {
                    Ok(request) => request,
                    Err(error) => return error.into(),
                },
                kind => return Fault::Kind { kind, role },
            };
            let is_operator = matches!(request, Request::Operator { .. });
            if is_operator != (role == LinkRole::Operator) {
                let kind = message.kind;
                return Fault::Kind { kind, role };
            }
            let event = Event::Request(session, request);
            if self.events.send_async(event).await.is_err() {
                return Fault::Stopping;
            }
        }
    }

    /// Takes what another coordinator says until its link ends.
    async fn hear_coordinator(&self, link: &mut Link, id: u64) -> Fault {
        let mut voice = Voice::new();
        loop {
            let sender = link.sender();
            let heard = async { Some(link.recv().await) };
            let silent = async {
                voice.is_due().await;
                None
            };
            let taken = match futures_lite::future::or(silent, heard).await {
                Some(Ok(message)) => self.take(&message, id),
                Some(Err(error)) => Err(error.into()),
                None => {
                    voice.speaks();
                    sender.send(kind::ALIVE, &[]).map_err(Fault::from)
                }
            };
            if let Err(fault) = taken {
                return fault;
            }
        }
    }

    fn take(&self, message: &Message, id: u64) -> Result<(), Fault> {
        match message.kind {
            kind::ALIVE => return Ok(()),
            kind::RAFT => {}
            kind::REFUSALS => {
                let refusals = Refusals::decode(&message.payload)?;
                return self.tell(Event::Refused(RaftId(id), refusals));
            }
            kind => {
                let role = LinkRole::Coordinator;
                return Err(Fault::Kind { kind, role });
            }
        }
        let raft = decode_raft(&message.payload)?;
        if raft.from != id {
            let (found, expected) = (raft.from, id);
            return Err(Fault::Sender { found, expected });
        }
        self.tell(Event::Raft(Box::new(raft)))
    }

    /// What coordinators say is said again where it is lost.
    fn tell(&self, event: Event) -> Result<(), Fault> {
        match self.events.try_send(event) {
            Ok(()) | Err(flume::TrySendError::Full(_)) => Ok(()),
            Err(flume::TrySendError::Disconnected(_)) => Err(Fault::Stopping),
        }
    }
}
