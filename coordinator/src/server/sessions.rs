//! Links that others have opened: nodes, operators and coordinators.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use ephesus_wire::NodeId;
use ephesus_wire::handshake::{Identity, LinkRole};

use super::inbox::{REQUEST_BYTES_MAX, Senders};
use super::met::{Met, Side, Stranger};
use super::peers::{Doorbells, Voice};
use crate::command::RaftId;
use crate::coordinator::{Event, SessionId};
use crate::link::{Faults, Link, LinkError, Listener, Message, Sender, SharedFrame, reach};
use crate::protocol::{Answer, Coordinators, ProtocolError, Refusals, Request, decode_raft, kind};
use crate::report::{Query, Report};

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
    #[error("what another node would say, {found}, on the link of node {expected}")]
    Node { found: NodeId, expected: NodeId },
    #[error(transparent)]
    Stranger(#[from] Stranger),
    #[error("requests that wait would take more than {REQUEST_BYTES_MAX} bytes")]
    Crowded,
    #[error("the coordinator stops")]
    Stopping,
}

/// Links that others have opened.
pub(super) struct Sessions {
    events: Senders,
    senders: RefCell<BTreeMap<SessionId, Sender>>,
    last: Cell<u64>,
    doorbells: Rc<Doorbells>,
    met: Rc<Met>,
}

impl Sessions {
    /// What they say goes to `events`.
    pub(super) fn new(events: Senders, doorbells: Rc<Doorbells>, met: Rc<Met>) -> Rc<Sessions> {
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
            // Whoever reads the link learns of its end.
            Ok(payload) => drop(sender.send(kind::ANSWER, &payload)),
            Err(error) => {
                tracing::error!(%error, "an answer cannot be sent");
                sender.close();
            }
        }
    }

    /// Sends the same answer to several: it is encoded once, and all links share the bytes.
    pub(super) fn answer_all(&self, sessions: &[SessionId], answer: &Answer) {
        let senders = self.senders.borrow();
        let payload = answer.encode();
        let frame = payload.map(|payload| SharedFrame::new(kind::ANSWER, &payload));
        if let Err(error) = &frame {
            tracing::error!(%error, "an answer cannot be sent");
        }
        for sender in sessions.iter().filter_map(|id| senders.get(id)) {
            match &frame {
                // Whoever reads the link learns of its end.
                Ok(frame) => drop(sender.send_shared(frame)),
                Err(_) => sender.close(),
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
            match self.met.meet(&peer, Side::Accepted) {
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
            let fault = self.hear(&mut link, session, &peer).await;
            self.senders.borrow_mut().remove(&session);
            // The coordinator may have stopped.
            let _ = self.events.1.send(Event::Closed(session), None).await;
            fault
        };
        match fault {
            Fault::Link(_) | Fault::Crowded | Fault::Stopping => {
                tracing::debug!(%address, %fault, "link closed");
            }
            _ => faults.note(address, &fault),
        }
    }

    /// Takes what a node or operator says until its link ends.
    async fn hear(&self, link: &mut Link, session: SessionId, peer: &Identity) -> Fault {
        let role = peer.role;
        loop {
            let message = match link.recv().await {
                Ok(message) => message,
                Err(error) => return error.into(),
            };
            let Some(held) = self.events.1.hold(message.payload.len()) else {
                return Fault::Crowded;
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
            if let Some(found) = request.node().filter(|node| *node != peer.node) {
                let expected = peer.node;
                return Fault::Node { found, expected };
            }
            if let Some(unreachable) = unreachable(&request).await {
                self.answer(session, &unreachable);
                continue;
            }
            let event = Event::Request(session, request);
            if self.events.1.send(event, Some(held)).await.is_err() {
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
                Some(Ok(message)) => self.take(&message, id).await,
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

    async fn take(&self, message: &Message, id: u64) -> Result<(), Fault> {
        match message.kind {
            kind::ALIVE => return Ok(()),
            kind::RAFT => {}
            kind::REFUSALS => {
                let refusals = Refusals::decode(&message.payload)?;
                return self.tell(Event::Refused(RaftId(id), refusals)).await;
            }
            kind::COORDINATORS => {
                let coordinators = Coordinators::decode(&message.payload)?;
                return self
                    .tell(Event::Coordinators(RaftId(id), coordinators))
                    .await;
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
        self.tell(Event::Raft(Box::new(raft))).await
    }

    async fn tell(&self, event: Event) -> Result<(), Fault> {
        let sent = self.events.0.send_async(event).await;
        sent.map_err(|_| Fault::Stopping)
    }
}

/// The answer to an operator who names a place for another coordinator to which there is no way. Nobody has to
/// listen there: it is started under the number of the answer.
async fn unreachable(request: &Request) -> Option<Answer> {
    let Request::Operator {
        id,
        query: Query::AddCoordinator { address },
    } = request
    else {
        return None;
    };
    let reason = reach(address).await.err()?;
    let address = address.clone();
    let report = Report::Unreachable { address, reason };
    Some(Answer::Operator {
        id: *id,
        report: Box::new(report),
    })
}
