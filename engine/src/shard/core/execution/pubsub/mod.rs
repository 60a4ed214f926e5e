//! Pub/Sub: what clients of this shard have subscribed to, and the messages they get.
//!
//! A message goes to every shard that has subscribers, behind what its publisher has sent before, and each of them
//! delivers it to its own: in the order of each publisher, and at most once. PUBLISH's reply is the sum of what they
//! answer. Other nodes of the cluster get it as well ([`exchange`](crate::node::exchange)), and are not counted; what is
//! told of keys, and what goes to a channel of a slot, stays on its node.
//!
//! Messages join the outbox of their subscriber. One that does not read is closed by the rules for all clients, and
//! beyond [`UNREAD_BYTES_MAX`]; nobody waits for it.

pub(crate) mod delivery;
mod monitor;
mod outgoing;
pub mod subscriptions;

use std::collections::BTreeSet;

use ephesus_wire::glob::Pattern;
use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::{Lsn, Slot, slot_of};

use self::delivery::{Audience, Deliveries, Delivery};
use self::outgoing::{Outgoing, Waiting};
use self::subscriptions::{Directory, Kind, Subscriptions};
use crate::command::error::{ClientError, Quoted};
use crate::command::parse::{self, ArgList, Request};
use crate::command::spec::Cmd;
use crate::net::{ConnToken, ListenerKind};
use crate::shard::connection::Connection;
use crate::shard::core::routing::relay::Place;
use crate::shard::core::{Asker, Core, Step};
use crate::shard::mesh::Scope;
use crate::shard::seldom::Seldom;

/// Bytes that a subscriber may be owed: Redis's `client-output-buffer-limit pubsub`.
const UNREAD_BYTES_MAX: usize = 32 << 20;

/// Bytes that are delivered in one turn.
pub(crate) const TURN_BYTES_MAX: usize = 1 << 20;

/// What events of keys are compared with in one turn, patterns times bytes.
const EVENTS_TURN_BYTES: usize = 8 << 20;

/// Patterns of a shard: each message is compared with all of them.
const PATTERNS_MAX: usize = 10_000;

/// What delivering one message to one subscriber counts as, besides the message, in bytes of input.
const DELIVERY_BYTES: usize = 64;

/// Steps that it may take PUBSUB to compare a pattern with the channels of a shard, as [`Pattern::cost`] counts them.
const STEPS_MAX: usize = 1 << 26;

/// Longest name of a channel: that, too, bounds what comparing takes.
pub(crate) const CHANNEL_BYTES_MAX: usize = 1 << 10;

/// The subscriptions of a shard's connections.
#[derive(Default)]
pub(crate) struct PubSub {
    directory: Directory,
    pub(crate) deliveries: Deliveries,
    outgoing: Outgoing,
    /// Events of keys and messages of other nodes, of which there may be more than one turn sends.
    events: Outgoing,
    /// The turn in which some were sent last, and what that has taken.
    events_spent: (u64, usize),
    monitors: BTreeSet<ConnToken>,
    told: Seldom,
}

impl PubSub {
    /// Memory of messages that wait to be delivered.
    pub(crate) fn held_bytes(&self) -> usize {
        self.deliveries.held_bytes + self.outgoing.held_bytes + self.events.held_bytes
    }

    /// What comparing a message with all patterns takes, as bytes of input that take as long.
    fn comparing_bytes(&self, channel: &[u8]) -> usize {
        self.directory.patterns() * (channel.len() + DELIVERY_BYTES)
    }

    /// The next event that is committed, if this turn sends more.
    fn next_event(&mut self, committed: Lsn, turn: u64) -> Option<Waiting> {
        if self.events_spent.0 != turn {
            self.events_spent = (turn, 0);
        }
        if self.events_spent.1 >= EVENTS_TURN_BYTES {
            return None;
        }
        let event = self.events.pop(committed)?;
        self.events_spent.1 += event.held_bytes() + self.comparing_bytes(&event.channel);
        Some(event)
    }
}

/// Commands of this module that clients send on their own connection.
pub(crate) fn is_about_subscriptions(cmd: Cmd) -> bool {
    matches!(
        cmd,
        Cmd::Subscribe
            | Cmd::Unsubscribe
            | Cmd::Psubscribe
            | Cmd::Punsubscribe
            | Cmd::Ssubscribe
            | Cmd::Sunsubscribe
    )
}

/// Whether it sends a message.
pub(crate) fn is_published(cmd: Cmd) -> bool {
    matches!(cmd, Cmd::Publish | Cmd::Spublish)
}

/// Whether a client that has subscribed may send the command under RESP2.
pub(crate) fn is_allowed_to_subscribers(cmd: Cmd) -> bool {
    is_about_subscriptions(cmd) || matches!(cmd, Cmd::Ping | Cmd::Quit | Cmd::Reset)
}

fn kind_of(cmd: Cmd) -> Kind {
    match cmd {
        Cmd::Psubscribe | Cmd::Punsubscribe => Kind::Pattern,
        Cmd::Ssubscribe
        | Cmd::Sunsubscribe
        | Cmd::Spublish
        | Cmd::PubsubShardchannels
        | Cmd::PubsubShardnumsub => Kind::Sharded,
        _ => Kind::Channel,
    }
}

/// The word in front of a reply or a message.
fn word(cmd: Cmd) -> &'static [u8] {
    match cmd {
        Cmd::Subscribe => b"subscribe",
        Cmd::Unsubscribe => b"unsubscribe",
        Cmd::Psubscribe => b"psubscribe",
        Cmd::Punsubscribe => b"punsubscribe",
        Cmd::Ssubscribe => b"ssubscribe",
        _ => b"sunsubscribe",
    }
}

/// Appends what a client is told of one subscription; no name: it had none.
fn write_told(
    out: &mut Vec<u8>,
    protocol: Protocol,
    word: &[u8],
    name: Option<&[u8]>,
    count: usize,
) {
    reply::push(out, protocol, 3);
    reply::bulk(out, word);
    match name {
        Some(name) => reply::bulk(out, name),
        None => reply::null(out, protocol),
    }
    reply::integer(out, count as i64);
}

/// One message, as its subscribers get it.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    pub kind: Kind,
    pub channel: &'a [u8],
    pub payload: &'a [u8],
}

impl Message<'_> {
    /// Appends it for those who have subscribed to its channel, or to a pattern.
    fn write(&self, out: &mut Vec<u8>, protocol: Protocol, pattern: Option<&[u8]>) {
        match (self.kind, pattern) {
            (_, Some(pattern)) => {
                reply::push(out, protocol, 4);
                reply::bulk(out, b"pmessage");
                reply::bulk(out, pattern);
            }
            (Kind::Sharded, None) => {
                reply::push(out, protocol, 3);
                reply::bulk(out, b"smessage");
            }
            (_, None) => {
                reply::push(out, protocol, 3);
                reply::bulk(out, b"message");
            }
        }
        reply::bulk(out, self.channel);
        reply::bulk(out, self.payload);
    }
}

impl Core {
    /// SUBSCRIBE, UNSUBSCRIBE and the like.
    ///
    /// # Errors
    /// What is wrong with the request; nothing has changed.
    pub(crate) fn change_subscriptions(
        &mut self,
        connection: &mut Connection,
        cmd: Cmd,
        request: &Request<'_>,
    ) -> Result<Step, ClientError> {
        let is_sharded = kind_of(cmd) == Kind::Sharded;
        let names_any = request.len() > 1;
        if is_sharded && names_any && self.leads_channels_away(connection, request)? {
            return Ok(Step::Redirected);
        }
        let mut told = self.changed_subscriptions(connection, cmd, request)?;
        // As pushes they leave whatever CLIENT REPLY says.
        connection.outbox.push(self.turn, |out| {
            out.append(&mut told);
            Lsn::ZERO
        });
        Ok(Step::Done)
    }

    /// [`Core::change_subscriptions`]; answers what the client is told.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn changed_subscriptions(
        &mut self,
        connection: &mut Connection,
        cmd: Cmd,
        request: &Request<'_>,
    ) -> Result<Vec<u8>, ClientError> {
        let kind = kind_of(cmd);
        let is_adding = matches!(cmd, Cmd::Subscribe | Cmd::Psubscribe | Cmd::Ssubscribe);
        let names = || (1..request.len()).map(|index| request.arg(index));
        if is_adding {
            for name in names() {
                match kind {
                    Kind::Pattern => drop(parse::short_pattern(name)?),
                    Kind::Channel | Kind::Sharded => check_channel(name)?,
                }
            }
        }
        let all: Vec<Box<[u8]>>;
        let names: Vec<&[u8]> = if is_adding || request.len() > 1 {
            names().collect()
        } else {
            let subscriptions = connection.subscriptions.as_deref();
            all = subscriptions.map_or_else(Vec::new, |subscriptions| subscriptions.all(kind));
            all.iter().map(AsRef::as_ref).collect()
        };
        if is_adding && kind == Kind::Pattern {
            self.check_patterns(&names)?;
        }
        let mut told = Vec::new();
        if names.is_empty() {
            let count = connection.told_count(kind);
            write_told(&mut told, connection.protocol, word(cmd), None, count);
        }
        for name in names {
            if is_adding {
                self.subscribe(connection, kind, name)?;
            } else {
                self.unsubscribe(connection, kind, name);
            }
            let count = connection.told_count(kind);
            write_told(&mut told, connection.protocol, word(cmd), Some(name), count);
        }
        self.publish_subscriptions();
        Ok(told)
    }

    /// Refuses patterns of which there would be too many.
    fn check_patterns(&self, names: &[&[u8]]) -> Result<(), ClientError> {
        let directory = &self.execution.pubsub.directory;
        let is_new = |name: &&&[u8]| directory.count(Kind::Pattern, name) == 0;
        let new: BTreeSet<_> = names.iter().filter(is_new).collect();
        match directory.patterns() + new.len() > PATTERNS_MAX {
            true => Err(ClientError::TooManySubscriptions(PATTERNS_MAX)),
            false => Ok(()),
        }
    }

    fn subscribe(
        &mut self,
        connection: &mut Connection,
        kind: Kind,
        name: &[u8],
    ) -> Result<(), ClientError> {
        let pattern = match kind {
            Kind::Pattern => Some(parse::pattern(name)?),
            Kind::Channel | Kind::Sharded => None,
        };
        let subscriptions = connection.subscriptions.get_or_insert_default();
        if subscriptions.add(kind, name) {
            let directory = &mut self.execution.pubsub.directory;
            directory.add(kind, name, pattern, connection.token);
        }
        Ok(())
    }

    fn unsubscribe(&mut self, connection: &mut Connection, kind: Kind, name: &[u8]) {
        let Some(subscriptions) = connection.subscriptions.as_deref_mut() else {
            return;
        };
        if subscriptions.remove(kind, name) {
            let directory = &mut self.execution.pubsub.directory;
            directory.remove(kind, name, connection.token);
        }
        if subscriptions.is_empty() {
            connection.subscriptions = None;
        }
    }

    /// A connection has subscribed to what it had before, and nobody is told.
    pub(crate) fn restore_subscriptions(
        &mut self,
        connection: &mut Connection,
        before: &Subscriptions,
    ) {
        for kind in Kind::ALL {
            let now = connection.subscriptions.as_deref();
            let now = now.map_or_else(Vec::new, |now| now.all(kind));
            for name in now.iter().filter(|name| !before.has(kind, name)) {
                self.unsubscribe(connection, kind, name);
            }
            for name in before.all(kind) {
                // Whoever had subscribed to it could.
                let _ = self.subscribe(connection, kind, &name);
            }
        }
        self.publish_subscriptions();
    }

    /// Ends all subscriptions of a connection without a word.
    pub(crate) fn end_subscriptions(&mut self, token: ConnToken, subscriptions: &Subscriptions) {
        for kind in Kind::ALL {
            for name in subscriptions.all(kind) {
                self.execution.pubsub.directory.remove(kind, &name, token);
            }
        }
        self.publish_subscriptions();
    }

    fn publish_subscriptions(&self) {
        let (directory, stats) = (&self.execution.pubsub.directory, self.stats());
        stats.subscriptions.set(directory.len() as u64);
        stats.subscribed_channels.set(directory.channels() as u64);
        stats.subscribed_patterns.set(directory.patterns() as u64);
    }

    /// Sends a client to the shard of the channels of its command, if that is not this one; true: it is.
    ///
    /// # Errors
    /// The channels are of several slots, or of none that is served.
    pub(crate) fn leads_channels_away(
        &mut self,
        connection: &mut Connection,
        request: &Request<'_>,
    ) -> Result<bool, ClientError> {
        let is_publish = request.arg(0).eq_ignore_ascii_case(b"spublish");
        let end = if is_publish { 2 } else { request.len() };
        let slot = slot_of(request.arg(1));
        let scope = match connection.kind {
            ListenerKind::Entry => Scope::Node,
            ListenerKind::Direct => Scope::Shard,
        };
        for index in 1..end {
            let other = slot_of(request.arg(index));
            if other != slot && scope == Scope::Shard {
                return Err(ClientError::CrossSlot);
            }
            if !self.has_channels_of(scope, other) {
                self.lead_away(connection, other)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn has_channels_of(&self, scope: Scope, slot: Slot) -> bool {
        match self.place(slot) {
            Place::Here | Place::Held => true,
            Place::Shard(_) => scope == Scope::Node,
            Place::Away(_) => false,
        }
    }

    /// Ends subscriptions to channels of slots that have left, and tells their clients.
    pub(crate) fn review_sharded_channels(&mut self) {
        let directory = &self.execution.pubsub.directory;
        let names: Vec<Box<[u8]>> = directory
            .names(Kind::Sharded)
            .into_iter()
            .filter(|name| !self.has_channels_of(Scope::Shard, slot_of(name)))
            .map(Box::from)
            .collect();
        for name in names {
            let is_of_node = self.has_channels_of(Scope::Node, slot_of(&name));
            let directory = &self.execution.pubsub.directory;
            for token in directory.of_channel(Kind::Sharded, &name) {
                let Some(mut connection) = self.connections.take(token) else {
                    continue;
                };
                if !is_of_node || connection.kind == ListenerKind::Direct {
                    self.unsubscribe(&mut connection, Kind::Sharded, &name);
                    let (protocol, count) =
                        (connection.protocol, connection.told_count(Kind::Sharded));
                    connection.outbox.push(self.turn, |out| {
                        write_told(out, protocol, b"sunsubscribe", Some(&name), count);
                        Lsn::ZERO
                    });
                }
                self.put_back(connection);
            }
        }
        self.publish_subscriptions();
    }

    /// PUBLISH or SPUBLISH to this shard's subscribers; how many got it.
    pub(crate) fn publish_here(
        &mut self,
        asker: &mut Asker<'_>,
        cmd: Cmd,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        check_channel(request.arg(1))?;
        let message = Message {
            kind: kind_of(cmd),
            channel: request.arg(1),
            payload: request.arg(2),
        };
        let work = self.execution.pubsub.comparing_bytes(message.channel);
        self.keyspace.add_work(work);
        let receivers = match asker {
            Asker::Connection(connection) => {
                self.deliver_message(Some(&mut **connection), &message, Lsn::ZERO)
            }
            Asker::Peer { .. } => self.deliver_message(None, &message, Lsn::ZERO),
            Asker::Transaction { .. } => self.publish_together(&message),
        };
        self.respond(asker, |_, reply| {
            reply::integer(reply.out, receivers as i64);
            Ok(())
        })
    }

    /// Has a message delivered to all subscribers of this shard, once the log has committed `gate`; how many there are.
    /// The connection whose command is executed is not among the shard's meanwhile.
    pub(crate) fn deliver_message(
        &mut self,
        executing: Option<&mut Connection>,
        message: &Message<'_>,
        gate: Lsn,
    ) -> usize {
        let PubSub {
            directory,
            deliveries,
            ..
        } = &mut self.execution.pubsub;
        let bytes_max = self.admission.client_budget.queue_bytes_max;
        let turn = self.turn;
        let mut receivers = 0;
        let mut deliver = |pattern: Option<&[u8]>, subscribers: Vec<ConnToken>| {
            receivers += subscribers.len();
            // Nobody waits for subscribers: what they are too slow for is lost.
            if subscribers.is_empty() || deliveries.held_bytes >= bytes_max {
                return;
            }
            let encoded = |protocol| {
                let mut bytes = Vec::new();
                message.write(&mut bytes, protocol, pattern);
                bytes
            };
            deliveries.push(Delivery {
                audience: Audience::Subscribers {
                    kind: pattern.map_or(message.kind, |_| Kind::Pattern),
                    name: pattern.unwrap_or(message.channel).into(),
                },
                resp2: encoded(Protocol::Resp2),
                resp3: encoded(Protocol::Resp3),
                subscribers,
                done: 0,
                gate,
                turn,
            });
        };
        deliver(None, directory.of_channel(message.kind, message.channel));
        if message.kind == Kind::Channel {
            for (pattern, subscribers) in directory.of_patterns(message.channel) {
                deliver(Some(&pattern), subscribers);
            }
        }
        self.go_on_delivering(executing);
        receivers
    }

    /// PUBSUB of this shard's subscribers. For a part of a reply NUMPAT answers names.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub(crate) fn about_subscribers(
        &mut self,
        asker: &mut Asker<'_>,
        scope: Scope,
        cmd: Cmd,
        request: &Request<'_>,
    ) -> Result<(), ClientError> {
        let directory = &self.execution.pubsub.directory;
        let kind = kind_of(cmd);
        let mut out = Vec::new();
        match cmd {
            Cmd::PubsubChannels | Cmd::PubsubShardchannels => {
                let mut names = directory.names(kind);
                if let Some(pattern) = channels_pattern(request)? {
                    let mut steps = STEPS_MAX;
                    let mut matching = Vec::new();
                    for name in names {
                        let matches = pattern.matches_within(name, &mut steps);
                        if matches.ok_or(ClientError::TooManyChannels)? {
                            matching.push(name);
                        }
                    }
                    names = matching;
                }
                write_names(&mut out, &names);
            }
            Cmd::PubsubNumpat if scope == Scope::Part => {
                write_names(&mut out, &directory.names(Kind::Pattern));
            }
            Cmd::PubsubNumpat => reply::integer(&mut out, directory.patterns() as i64),
            _ => {
                reply::array(&mut out, 2 * (request.len() - 2));
                for index in 2..request.len() {
                    reply::bulk(&mut out, request.arg(index));
                    let count = directory.count(kind, request.arg(index));
                    reply::integer(&mut out, count as i64);
                }
            }
        }
        self.check_reply(out.len())?;
        self.keyspace.room.take(out.len())?;
        self.respond(asker, |_, reply| {
            reply.out.append(&mut out);
            Ok(())
        })
    }
}

/// Refuses a name that nobody can subscribe to.
pub(crate) fn check_channel(name: &[u8]) -> Result<(), ClientError> {
    if name.len() > CHANNEL_BYTES_MAX {
        let what = "a channel's name";
        return Err(ClientError::ArgumentTooLong(what, CHANNEL_BYTES_MAX));
    }
    Ok(())
}

/// The pattern of `PUBSUB CHANNELS [pattern]`.
///
/// # Errors
/// Too many arguments, or a pattern that is too long.
pub(crate) fn channels_pattern(request: &Request<'_>) -> Result<Option<Pattern>, ClientError> {
    match request.len() {
        2 => Ok(None),
        3 => parse::pattern(request.arg(2)).map(Some),
        _ => Err(ClientError::SubcommandArity {
            container: "PUBSUB",
            name: Quoted::new(request.arg(1)),
        }),
    }
}

fn write_names(out: &mut Vec<u8>, names: &[&[u8]]) {
    reply::array(out, names.len());
    names.iter().for_each(|name| reply::bulk(out, name));
}

#[cfg(test)]
mod tests;
