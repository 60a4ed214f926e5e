//! Replies that come later than their commands' turn, from this shard.

use ephesus_wire::Lsn;

use crate::keyspace::large_replies::Room;
use crate::shard::core::routing::forwarding::Answers;
use crate::shard::core::{Asker, Core};
use crate::shard::mesh::{Client, Forwarded, Origin};

/// Where a reply goes that comes later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promised {
    origin: Origin,
    /// The command, if another shard has forwarded it, or this one has to itself.
    forwarded: Option<Forwarded>,
}

impl Promised {
    /// Whose command it is.
    pub(crate) fn client(&self) -> Client {
        let own = (self.origin.shard, self.origin.conn);
        self.forwarded.map_or(own, |forwarded| forwarded.client)
    }

    /// Whether the reply is a part of the client's, or may be.
    pub(crate) fn is_part(&self) -> bool {
        self.forwarded.is_some()
    }
}

impl Core {
    /// Reserves the place of a reply, which has to come; `None` in a transaction, which has one reply. The connection
    /// executes nothing before: or it could have any number of them.
    pub(crate) fn promise(&self, asker: &mut Asker<'_>) -> Option<Promised> {
        let promised = match asker {
            Asker::Transaction { .. } => return None,
            Asker::Connection(connection) => {
                let ticket = connection.outbox.await_reply(None);
                connection.settling = true;
                let origin = Origin {
                    shard: self.id,
                    conn: connection.token,
                    ticket,
                    part: 0,
                };
                Promised {
                    origin,
                    forwarded: None,
                }
            }
            Asker::Peer { forwarded, .. } => Promised {
                origin: forwarded.origin,
                forwarded: Some(**forwarded),
            },
        };
        Some(promised)
    }

    /// Answers what was promised, once the log has committed `gate`; `room` is what a large reply has taken.
    pub(crate) fn keep_promise(
        &mut self,
        promised: &Promised,
        bytes: Vec<u8>,
        gate: Lsn,
        room: Room,
    ) {
        match &promised.forwarded {
            None => {
                self.admission.client_budget.arrived.join(room);
                self.deliver(promised.origin, bytes, gate);
            }
            Some(forwarded) => {
                let answers = Answers::of(forwarded, bytes, gate).in_room(room);
                self.answer_once_committed(forwarded.origin.shard, answers);
            }
        }
    }
}
