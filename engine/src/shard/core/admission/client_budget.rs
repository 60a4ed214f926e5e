//! The memory that clients make a node hold, within `--max-client-memory`.
//!
//! Each connection is counted by [`Connection::held_bytes`](crate::shard::connection::Connection::held_bytes) whenever
//! something has happened to it, each shard publishes its sum, and whoever finds the sum of all above the budget
//! closes its largest connection, or wakes the shard that has a larger one.

use std::time::{Duration, Instant};

use ephesus_wire::ShardId;

use crate::keyspace::large_replies::Room;
use crate::net::ConnToken;
use crate::node::NodeShared;
use crate::shard::core::Core;
use crate::shard::seldom::Seldom;

/// What other shards hold is looked up so often.
const REVIEW_EVERY: Duration = Duration::from_millis(1);

/// Bytes of commands of clients that have gone which other shards may have; then connections wait that forward more.
const ASKED_BY_GONE_MAX: usize = 1 << 20;

/// Bytes that wait in one queue beside the connections of a shard, which is besides no more than this part of what clients
/// may make the node hold.
const QUEUE_BYTES_MAX: usize = 32 << 20;
const QUEUE_PART: u64 = 16;

/// Bytes beyond which each queue of a shard takes no more that no connection gives back when it is closed: what has changed
/// in a turn and what of it is not told yet (CLIENT TRACKING), messages that are not committed, events, and deliveries
/// (Pub/Sub). All five of all shards are five sixteenths of the budget, and the tables of tracked keys an eighth: with less
/// than half of it, but for the last message of each queue, they alone never have all clients closed.
pub(crate) fn queue_bytes_max(node: &NodeShared) -> usize {
    let part = usize::try_from(node.settings.max_client_memory / QUEUE_PART).unwrap_or(usize::MAX);
    QUEUE_BYTES_MAX.min(part / usize::from(node.shards()))
}

/// One shard's part in the node's budget.
#[derive(Debug)]
pub(crate) struct ClientBudget {
    /// Bytes that this shard holds for clients beside what their connections do: walks.
    pub(crate) held_beside: usize,
    /// The room of replies that have reached their connections, and are not counted yet or pass the budget.
    pub(crate) arrived: Room,
    /// Bytes of commands that other shards owe answers to, and whose clients have gone.
    pub(crate) asked_by_gone: usize,
    /// See [`queue_bytes_max`].
    pub(crate) queue_bytes_max: usize,
    /// What the other shards have published.
    elsewhere: u64,
    reviewed: Instant,
    told: Seldom,
    /// The most that was held when it was looked at.
    #[cfg(test)]
    pub(crate) most: u64,
}

impl ClientBudget {
    pub(crate) fn new(node: &NodeShared) -> ClientBudget {
        ClientBudget {
            held_beside: 0,
            arrived: Room::default(),
            asked_by_gone: 0,
            queue_bytes_max: queue_bytes_max(node),
            elsewhere: 0,
            reviewed: node.started,
            told: Seldom::default(),
            #[cfg(test)]
            most: 0,
        }
    }

    /// Whether other shards have much of clients that have gone: nobody is left to close for it, so nothing more is
    /// forwarded.
    pub(crate) fn is_much_asked_by_gone(&self) -> bool {
        self.asked_by_gone >= ASKED_BY_GONE_MAX
    }
}

impl Core {
    /// Bytes that clients make this shard hold. Replies on their way here are counted once they reach their
    /// connection: until then nobody that is closed would give them back, and they have a bound of their own.
    pub(crate) fn client_bytes(&self) -> u64 {
        let beside = self.admission.client_budget.held_beside
            + self.replies.relays.held_bytes()
            + self.execution.pubsub.held_bytes()
            + self.execution.tracking.held_bytes()
            + self.keyspace.tracked_bytes();
        (self.connections.held_bytes() + beside) as u64
    }

    /// Forgets a connection, and tells those who do or keep something for its client; what other shards were asked for
    /// it is theirs until they have answered.
    pub(crate) fn remove_connection(&mut self, token: ConnToken) {
        self.note_presence(token);
        if let Some(connection) = self.connections.get_mut(token) {
            self.admission.client_budget.asked_by_gone += connection.asked_bytes;
            if let Some(subscriptions) = connection.subscriptions.take() {
                self.end_subscriptions(token, &subscriptions);
            }
            self.end_monitoring(token);
            self.end_tracking(token);
        }
        self.connections.remove(token);
    }

    /// Closes the connection of a client that breaks a limit. What the kernel still sends from takes room until it is
    /// given back: no connection holds it any more.
    pub(crate) fn cut_off(&mut self, token: ConnToken) {
        if let Some(connection) = self.connections.get_mut(token) {
            connection.cut_off();
            let room = self.keyspace.room.occupy(connection.sending.capacity());
            connection.last_sent.join(room);
            self.connections.count(token);
            self.list(token);
        }
    }

    pub(crate) fn publish_clients(&self) {
        let bytes = self.client_bytes();
        // Whoever sees the sum has to see who has most of it, or it closes its own.
        let is_near = bytes + self.admission.client_budget.elsewhere
            > self.node.settings.max_client_memory / 2;
        if is_near {
            let largest = self.largest_client_bytes();
            self.stats().client_bytes_largest.set(largest as u64);
        }
        self.stats().client_bytes.set(bytes);
    }

    /// Memory of the connection, or the walk, that has most.
    pub(crate) fn largest_client_bytes(&self) -> usize {
        let connection = self.connections.largest().map_or(0, |(_, bytes)| bytes);
        connection.max(self.execution.walks.largest_bytes())
    }

    /// Looks up what the other shards hold, now and then.
    pub(crate) fn review_clients_elsewhere(&mut self) {
        let budget = &self.admission.client_budget;
        if self.now.saturating_duration_since(budget.reviewed) >= REVIEW_EVERY {
            self.look_up_clients_elsewhere();
        }
    }

    fn look_up_clients_elsewhere(&mut self) {
        let published = self.node.client_bytes();
        self.admission.client_budget.elsewhere =
            published.saturating_sub(self.stats().client_bytes.get());
        self.admission.client_budget.reviewed = self.now;
    }

    /// Large replies are held by connections now: looks at what clients hold, and gives back their room once that is
    /// within the budget. Another shard may have to close its largest connection first.
    pub(crate) fn count_large(&mut self, room: Room) {
        if room.is_empty() {
            return self.keep_to_client_budget();
        }
        self.look_up_clients_elsewhere();
        self.keep_to_client_budget();
        self.publish_clients();
        if self.are_clients_over_budget() {
            self.admission.client_budget.arrived.join(room);
        }
    }

    /// Closes the largest connections while clients hold more than they may.
    #[inline]
    pub(crate) fn keep_to_client_budget(&mut self) {
        #[cfg(test)]
        {
            self.admission.client_budget.most =
                self.admission.client_budget.most.max(self.client_bytes());
        }
        if self.are_clients_over_budget() {
            self.close_largest();
        }
    }

    #[inline]
    fn are_clients_over_budget(&self) -> bool {
        self.client_bytes() + self.admission.client_budget.elsewhere
            > self.node.settings.max_client_memory
    }

    #[cold]
    fn close_largest(&mut self) {
        self.look_up_clients_elsewhere();
        while self.are_clients_over_budget() {
            let walk = self.execution.walks.largest_bytes();
            let connection = self.connections.largest();
            let bytes = connection.map_or(0, |(_, bytes)| bytes).max(walk);
            if bytes == 0 {
                break;
            }
            let all = self.node.stats.iter();
            let largest = all.map(|stats| stats.client_bytes_largest.get());
            let others = (0..)
                .map(ShardId)
                .zip(largest)
                .filter(|(shard, _)| *shard != self.id);
            if let Some((shard, most)) = others.max_by_key(|(_, bytes)| *bytes)
                && most > bytes as u64
            {
                self.publish_clients();
                self.node.peers[shard].waker().wake();
                return;
            }
            if bytes == walk {
                self.give_up_largest_walk();
            } else if let Some((token, _)) = connection {
                let Some(connection) = self.connections.get(token) else {
                    // Its command is executed now: this is asked again when it is put back.
                    break;
                };
                if let Some(closed) = self.admission.client_budget.told.tell(self.now) {
                    tracing::warn!(client = %connection.remote, bytes, closed, "closed: the clients of this node hold more than --max-client-memory, and this one most");
                }
                self.stats().evicted_clients.add(1);
                self.cut_off(token);
                self.node.freed_memory.give_back();
            }
        }
        self.publish_clients();
    }
}

#[cfg(test)]
mod tests;
