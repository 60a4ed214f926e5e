//! Messages on their way to clients of this shard: in order, and a bounded part of them per turn.

use std::collections::VecDeque;

use ephesus_wire::Lsn;
use ephesus_wire::resp::reply::Protocol;

use super::subscriptions::Kind;
use super::{DELIVERY_BYTES, PubSub, TURN_BYTES_MAX, UNREAD_BYTES_MAX};
use crate::net::ConnToken;
use crate::shard::connection::{Connection, Life};
use crate::shard::core::Core;
use crate::shard::core::execution::tracking::invalidation::Invalidation;

/// Who gets a message.
pub(crate) enum Audience {
    /// Those who have subscribed to a name.
    Subscribers { kind: Kind, name: Box<[u8]> },
    /// Those that monitor.
    Monitors,
    /// Those that may have cached what has changed.
    Trackers(Invalidation),
    /// Who is told instead of such a client.
    Redirected,
}

/// A message on its way to several clients.
pub(crate) struct Delivery {
    pub audience: Audience,
    pub resp2: Vec<u8>,
    pub resp3: Vec<u8>,
    pub subscribers: Vec<ConnToken>,
    /// How many of them have it.
    pub done: usize,
    /// Leaves once the log has committed this.
    pub gate: Lsn,
    /// When it came: who has unsubscribed since gets nothing.
    pub turn: u64,
}

impl Delivery {
    fn bytes(&self, protocol: Protocol) -> &[u8] {
        match protocol {
            Protocol::Resp2 => &self.resp2,
            Protocol::Resp3 => &self.resp3,
        }
    }

    fn held_bytes(&self) -> usize {
        let name = match &self.audience {
            Audience::Subscribers { name, .. } => name.len(),
            Audience::Monitors | Audience::Trackers(_) | Audience::Redirected => 0,
        };
        size_of::<Delivery>()
            + name
            + self.resp2.capacity()
            + self.resp3.capacity()
            + self.subscribers.capacity() * size_of::<ConnToken>()
    }

    /// Whether it is for a client.
    fn is_for(&self, connection: &Connection, turn: u64) -> bool {
        let subscriptions = connection.subscriptions.as_deref();
        match &self.audience {
            _ if connection.life != Life::Open => false,
            Audience::Subscribers { kind, name } => {
                self.turn == turn || subscriptions.is_some_and(|all| all.has(*kind, name))
            }
            Audience::Monitors => self.turn == turn || connection.is_monitor,
            Audience::Trackers(_) => false,
            Audience::Redirected => {
                connection.protocol == Protocol::Resp3 || subscriptions.is_some()
            }
        }
    }
}

/// Messages that not all of their subscribers have yet, in order.
#[derive(Default)]
pub(crate) struct Deliveries {
    queue: VecDeque<Delivery>,
    pub(super) held_bytes: usize,
    /// The turn in which something was delivered last, and how much.
    spent: (u64, usize),
}

impl Deliveries {
    pub(crate) fn push(&mut self, delivery: Delivery) {
        self.held_bytes += delivery.held_bytes();
        self.queue.push_back(delivery);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn pop(&mut self) -> Option<Delivery> {
        let delivery = self.queue.pop_front()?;
        self.held_bytes -= delivery.held_bytes();
        Some(delivery)
    }

    fn put_back(&mut self, delivery: Delivery) {
        self.held_bytes += delivery.held_bytes();
        self.queue.push_front(delivery);
    }

    /// Whether this turn delivers more.
    fn has_turn(&mut self, turn: u64) -> bool {
        if self.spent.0 != turn {
            self.spent = (turn, 0);
        }
        self.spent.1 < TURN_BYTES_MAX
    }
}

impl Core {
    /// Whether what is to be delivered besides is lost: so much waits.
    pub(crate) fn has_enough_deliveries(&self) -> bool {
        self.execution.pubsub.deliveries.held_bytes >= self.admission.client_budget.queue_bytes_max
    }

    /// Goes on with what earlier turns have left.
    pub(crate) fn go_on_publishing(&mut self) {
        if self.has_messages() {
            self.send_events();
            self.send_invalid();
            self.go_on_delivering(None);
        }
    }

    /// Delivers messages as far as this turn has room for them, and up to one for a connection that is taken out and
    /// not the one that is `executing`: it gets it once it is back.
    pub(crate) fn go_on_delivering(&mut self, mut executing: Option<&mut Connection>) {
        let mut is_out = false;
        while !is_out
            && self.execution.pubsub.deliveries.has_turn(self.turn)
            && let Some(mut delivery) = self.execution.pubsub.deliveries.pop()
        {
            while self.execution.pubsub.deliveries.has_turn(self.turn)
                && let Some(token) = delivery.subscribers.get(delivery.done).copied()
            {
                let is_executing = |connection: &&mut Connection| connection.token == token;
                is_out =
                    self.connections.is_out(token) && !executing.as_ref().is_some_and(is_executing);
                if is_out {
                    break;
                }
                delivery.done += 1;
                let bytes = delivery.resp3.len() + DELIVERY_BYTES;
                self.execution.pubsub.deliveries.spent.1 += bytes;
                match &mut executing {
                    Some(connection) if connection.token == token => {
                        self.push(connection, &delivery);
                    }
                    _ => self.push_to(token, &delivery),
                }
            }
            if delivery.done < delivery.subscribers.len() {
                self.execution.pubsub.deliveries.put_back(delivery);
            }
        }
        self.keep_to_client_budget();
    }

    /// Whether messages are left that the next turn sends or delivers.
    pub(crate) fn has_messages(&self) -> bool {
        let PubSub {
            deliveries, events, ..
        } = &self.execution.pubsub;
        let committed = self.keyspace.log.committed();
        !deliveries.is_empty() || events.is_due(committed) || self.has_invalid_due()
    }

    fn push_to(&mut self, token: ConnToken, delivery: &Delivery) {
        let Some(mut connection) = self.connections.take(token) else {
            return;
        };
        self.push(&mut connection, delivery);
        let is_over = connection.output_bytes() > UNREAD_BYTES_MAX;
        let remote = connection.remote;
        // Counts what it holds by now.
        self.connections.put_back(connection);
        if is_over {
            if let Some(closed) = self.execution.pubsub.told.tell(self.now) {
                tracing::warn!(client = %remote, closed, "closed: it does not read the messages that it has asked for");
            }
            return self.cut_off(token);
        }
        self.list(token);
    }

    fn push(&mut self, connection: &mut Connection, delivery: &Delivery) {
        if let Audience::Trackers(invalidation) = &delivery.audience {
            return self.push_invalidation(connection, invalidation, &delivery.resp3);
        }
        if delivery.is_for(connection, self.turn) {
            let bytes = delivery.bytes(connection.protocol);
            connection.outbox.push(self.turn, |out| {
                out.extend_from_slice(bytes);
                delivery.gate
            });
        }
    }
}
