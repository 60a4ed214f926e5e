//! Messages that nobody waits for: those of transactions and scripts, and what is told of keys. They are sent once what
//! they tell of is committed. And messages of other nodes, which are only delivered.

use std::collections::VecDeque;

use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::{Database, Lsn, ShardId, slot_of};

use super::subscriptions::Kind;
use super::{Message, PubSub, check_channel, kind_of};
use crate::command::error::ClientError;
use crate::command::parse::ArgList;
use crate::command::spec::Cmd;
use crate::keyspace::events::Event;
use crate::node::exchange::Incoming;
use crate::shard::core::Core;
use crate::shard::core::routing::relay::{RELAY, TRACKING};
use crate::shard::mesh::{self, Forwarded, Origin, Scope};

/// Who gets a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Clients of this shard.
    Shard,
    /// Of all shards of the node.
    Node,
    /// Of all nodes.
    Cluster,
}

/// A message that waits until what it tells of is committed.
pub(super) struct Waiting {
    kind: Kind,
    reach: Reach,
    pub(super) channel: Box<[u8]>,
    payload: Box<[u8]>,
    gate: Lsn,
}

impl Waiting {
    pub(super) fn held_bytes(&self) -> usize {
        size_of::<Waiting>() + self.channel.len() + self.payload.len()
    }
}

/// Messages of transactions and of scripts, which nobody waits for.
#[derive(Default)]
pub(super) struct Outgoing {
    /// In order of their gates.
    pub(super) queue: VecDeque<Waiting>,
    /// How many of the last ones are of what is executed now, and may come to nothing.
    undecided: usize,
    pub(super) held_bytes: usize,
}

impl Outgoing {
    /// Whether there was room, of so many bytes.
    fn push(&mut self, message: &Message<'_>, gate: Lsn, reach: Reach, bytes_max: usize) -> bool {
        let has_room = self.held_bytes < bytes_max;
        if has_room {
            let waiting = Waiting {
                kind: message.kind,
                reach,
                channel: message.channel.into(),
                payload: message.payload.into(),
                gate,
            };
            self.held_bytes += waiting.held_bytes();
            self.queue.push_back(waiting);
        }
        has_room
    }

    /// What was undecided is committed with this LSN.
    fn decide(&mut self, gate: Lsn) {
        let from = self.queue.len() - std::mem::take(&mut self.undecided);
        let undecided = self.queue.range_mut(from..);
        undecided.for_each(|waiting| waiting.gate = gate);
    }

    /// Of what is undecided only so many stay.
    fn keep_undecided(&mut self, kept: usize) {
        while self.undecided > kept
            && let Some(waiting) = self.queue.pop_back()
        {
            self.undecided -= 1;
            self.held_bytes -= waiting.held_bytes();
        }
    }

    /// Whether the next one is committed.
    pub(super) fn is_due(&self, committed: Lsn) -> bool {
        let decided = self.queue.len() - self.undecided;
        let first = self.queue.front().filter(|_| decided > 0);
        first.is_some_and(|first| first.gate <= committed)
    }

    /// The next one that is committed.
    pub(super) fn pop(&mut self, committed: Lsn) -> Option<Waiting> {
        if !self.is_due(committed) {
            return None;
        }
        let waiting = self.queue.pop_front()?;
        self.held_bytes -= waiting.held_bytes();
        Some(waiting)
    }
}

impl Core {
    /// Keeps a message of several commands that are executed together until it is decided whether they happen; how many
    /// subscribers this shard has for it. Those of other shards are not counted.
    pub(crate) fn publish_together(&mut self, message: &Message<'_>) -> usize {
        let PubSub {
            directory,
            outgoing,
            ..
        } = &mut self.execution.pubsub;
        let reach = match message.kind {
            Kind::Channel => Reach::Cluster,
            Kind::Sharded | Kind::Pattern => Reach::Node,
        };
        let bytes_max = self.admission.client_budget.queue_bytes_max;
        if outgoing.push(message, Lsn::ZERO, reach, bytes_max) {
            outgoing.undecided += 1;
        }
        let by_pattern = directory.of_patterns(message.channel);
        let by_pattern = by_pattern.iter().map(|(_, subscribers)| subscribers.len());
        let by_pattern = match message.kind {
            Kind::Sharded => 0,
            Kind::Channel | Kind::Pattern => by_pattern.sum(),
        };
        directory.count(message.kind, message.channel) + by_pattern
    }

    /// PUBLISH or SPUBLISH that a script calls, whose effects are not decided yet.
    ///
    /// # Errors
    /// The channel's name is too long, or other nodes have its slot.
    pub(crate) fn publish_in_script(
        &mut self,
        cmd: Cmd,
        args: &[&[u8]],
    ) -> Result<usize, ClientError> {
        let (channel, payload) = (args.arg(1), args.arg(2));
        check_channel(channel)?;
        if cmd == Cmd::Spublish && !self.has_channels_of(Scope::Node, slot_of(channel)) {
            return Err(ClientError::ScriptChannel);
        }
        let message = Message {
            kind: kind_of(cmd),
            channel,
            payload,
        };
        let work = self.execution.pubsub.comparing_bytes(channel);
        self.keyspace.add_work(work);
        Ok(self.publish_together(&message))
    }

    /// How many messages there are of which it is not decided whether they are sent.
    pub(crate) fn undecided_messages(&self) -> usize {
        self.execution.pubsub.outgoing.undecided
    }

    /// Only so many of the undecided messages may yet be sent: what has sent the others comes to nothing.
    pub(crate) fn forget_messages(&mut self, kept: usize) {
        self.execution.pubsub.outgoing.keep_undecided(kept);
    }

    /// Has messages sent of what has happened to keys, once that is committed.
    pub(crate) fn publish_events(&mut self) {
        if self.keyspace.noted_events() == 0 {
            return;
        }
        let events = self.keyspace.take_events();
        let is_anybody_there = self
            .node
            .stats
            .iter()
            .any(|stats| stats.subscriptions.get() > 0);
        if !is_anybody_there {
            return;
        }
        let bytes_max = self.admission.client_budget.queue_bytes_max;
        let gate = self.keyspace.log.appended();
        let (by_key, by_event) = self.node.live.events().channels();
        for Event {
            name,
            database,
            key,
        } in &events
        {
            let mut send = |about: &str, channel: &[u8], payload: &[u8]| {
                let prefix = format!("__{about}@{database}__:");
                let message = Message {
                    kind: Kind::Channel,
                    channel: &[prefix.as_bytes(), channel].concat(),
                    payload,
                };
                let events = &mut self.execution.pubsub.events;
                events.push(&message, gate, Reach::Node, bytes_max);
            };
            if by_key {
                send("keyspace", key, name.as_bytes());
            }
            if by_event {
                send("keyevent", name.as_bytes(), key);
            }
        }
        self.send_events();
    }

    /// What was executed together is in the log, or nothing of it has happened. Its messages are sent once that and what
    /// was executed before is committed.
    pub(crate) fn publish_joint(&mut self, has_happened: bool) {
        let outgoing = &mut self.execution.pubsub.outgoing;
        if outgoing.undecided > 0 {
            match has_happened {
                true => outgoing.decide(self.keyspace.log.appended()),
                false => outgoing.keep_undecided(0),
            }
            self.send_outgoing();
        }
    }

    /// Sends messages whose turn has come to all shards with subscribers.
    pub(crate) fn send_outgoing(&mut self) {
        let committed = self.keyspace.log.committed();
        while let Some(waiting) = self.execution.pubsub.outgoing.pop(committed) {
            self.send_waiting(&waiting);
        }
        self.send_events();
    }

    /// Sends events whose turn has come, as far as this turn has room for comparing them with patterns.
    pub(super) fn send_events(&mut self) {
        let committed = self.keyspace.log.committed();
        while let Some(event) = self.execution.pubsub.next_event(committed, self.turn) {
            self.send_waiting(&event);
        }
    }

    fn send_waiting(&mut self, waiting: &Waiting) {
        let message = Message {
            kind: waiting.kind,
            channel: &waiting.channel,
            payload: &waiting.payload,
        };
        self.deliver_message(None, &message, Lsn::ZERO);
        if waiting.reach != Reach::Shard {
            self.publish_elsewhere(&message);
        }
        if waiting.reach == Reach::Cluster {
            let exchange = &self.node.exchange;
            exchange.publish(&waiting.channel, &waiting.payload);
        }
    }

    /// Delivers a message of another node.
    pub fn published(&mut self, incoming: &Incoming) {
        self.node.peers[self.id].take_published(incoming);
        let message = Message {
            kind: Kind::Channel,
            channel: &incoming.channel,
            payload: &incoming.message,
        };
        let events = &mut self.execution.pubsub.events;
        let bytes_max = self.admission.client_budget.queue_bytes_max;
        if !events.push(&message, Lsn::ZERO, Reach::Shard, bytes_max) {
            self.node.exchange.dropped();
        }
        self.send_events();
    }

    /// Sends a message to the other shards. Nobody waits for their answers, nor for a shard that is behind.
    fn publish_elsewhere(&mut self, message: &Message<'_>) {
        let name: &[u8] = match message.kind {
            Kind::Sharded => b"SPUBLISH",
            Kind::Channel | Kind::Pattern => b"PUBLISH",
        };
        for shard in (0..self.node.shards()).map(ShardId) {
            if shard == self.id {
                continue;
            }
            let has_any = self.node.stats[shard].subscriptions.get() > 0;
            if !has_any || self.router.peers[shard].is_full() {
                continue;
            }
            let mut request = Vec::new();
            reply::command(&mut request, &[name, message.channel, message.payload]);
            self.forward_unawaited(shard, mesh::Kind::Command, &request);
        }
    }

    /// Sends another shard something whose answer nobody waits for.
    pub(crate) fn forward_unawaited(&mut self, shard: ShardId, kind: mesh::Kind, request: &[u8]) {
        let origin = Origin {
            shard: self.id,
            conn: RELAY,
            ticket: u64::MAX,
            part: 0,
        };
        // What waits behind messages that are too many may be dropped with them.
        let client = match kind {
            mesh::Kind::Tracking => TRACKING,
            _ => RELAY,
        };
        let forwarded = Forwarded {
            origin,
            client: (self.id, client),
            kind,
            tracks: false,
            protocol: Protocol::Resp2,
            database: Database::ZERO,
            len: request.len(),
            asked: shard,
            hops: 0,
        };
        self.router.peers.forward(shard, forwarded, request);
    }
}
