//! What a shard decides: commands in, effects on the keyspace and replies out. No I/O happens here;
//! [`super::Shard`] moves the bytes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::resp::request::{self, Args, Parsed, RequestLimits};
use ephesus_wire::{Lsn, ShardId};

use super::batch::{Batch, Behind};
use super::cluster::ClusterReplies;
use super::connection::{Connection, Connections, Life};
use super::holds::Holds;
use super::mesh::{Answered, Forwarded, Origin, PeerQueue, Replies, Requests, Scope};
use super::stats::ShardStats;
use crate::command::error::ClientError;
use crate::command::parse::Request;
use crate::command::spec::{self, Spec};
use crate::keyspace::{Keyspace, Reply, Walk};
use crate::net::{ConnToken, ListenerKind};
use crate::node::{NodeShared, Routes};

/// Something that waits for the log.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Gated {
    Connection(ConnToken),
    /// Index into `held`.
    Replies(usize),
}

/// Replies for a peer that wait for the log.
struct Held {
    to: ShardId,
    replies: Replies,
}

/// A walk of a command, and who waits for it.
pub(super) struct PendingWalk {
    pub(super) origin: Origin,
    request_len: Option<usize>,
    walk: Walk,
}

/// Who asked for a command.
pub(super) enum Asker<'a> {
    Connection(&'a mut Connection),
    Peer {
        forwarded: &'a Forwarded,
        out: &'a mut Vec<u8>,
        gate: &'a mut Lsn,
    },
}

/// Whether the reply is there already.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Written,
    /// It will be delivered by ticket.
    Later,
}

/// One shard without its I/O.
pub struct Core {
    pub id: ShardId,
    pub node: Arc<NodeShared>,
    /// Where keys lead; replaced when the table changes.
    pub(super) routes: Arc<Routes>,
    pub(super) cluster_replies: ClusterReplies,
    /// The lease held when the turn began.
    pub(super) serving: bool,
    pub keyspace: Keyspace,
    pub connections: Connections,
    pub(super) peers: Vec<PeerQueue>,
    gates: BinaryHeap<Reverse<(Lsn, Gated)>>,
    held: Vec<Option<Held>>,
    pub(super) walks: VecDeque<PendingWalk>,
    /// Connections with something to send or to do at the end of the turn.
    pub listed: Vec<ConnToken>,
    /// Connections that execute nothing until something is over.
    pub(super) blocked: Vec<ConnToken>,
    args: Args,
    batch: Batch,
    pub(super) turn: u64,
    next_connection_id: u64,
    pub(super) random: u64,
    /// The log is over its budget or has too much that is not committed: writes wait.
    pub(super) log_behind: bool,
    pub(super) holds: Holds,
    commands: u64,
}

impl Core {
    #[must_use]
    pub fn new(
        id: ShardId,
        node: Arc<NodeShared>,
        routes: Arc<Routes>,
        keyspace: Keyspace,
    ) -> Core {
        let peers = node.peers.iter().cloned().map(PeerQueue::new).collect();
        let random = keyspace.key(&id.0.to_le_bytes()).hash | 1;
        Core {
            id,
            node,
            routes,
            cluster_replies: ClusterReplies::default(),
            serving: false,
            keyspace,
            connections: Connections::default(),
            peers,
            gates: BinaryHeap::new(),
            held: Vec::new(),
            walks: VecDeque::new(),
            listed: Vec::new(),
            blocked: Vec::new(),
            args: Args::new(),
            batch: Batch::default(),
            turn: 0,
            next_connection_id: 1 + u64::from(id.0),
            random,
            log_behind: false,
            holds: Holds::default(),
            commands: 0,
        }
    }

    #[must_use]
    pub fn stats(&self) -> &ShardStats {
        &self.node.stats[usize::from(self.id.0)]
    }

    /// Ids of connections are unique within the node.
    pub fn next_connection_id(&mut self) -> u64 {
        let id = self.next_connection_id;
        self.next_connection_id += u64::from(self.node.shards());
        id
    }

    /// Begins a turn at the wall clock `now_ms`.
    pub fn begin_turn(&mut self, now_ms: u64) {
        self.turn += 1;
        self.serving = self.node.lease.holds();
        self.keyspace.set_now(now_ms);
    }

    pub fn list(&mut self, token: ConnToken) {
        if let Some(connection) = self.connections.get_mut(token)
            && !connection.listed
        {
            connection.listed = true;
            self.listed.push(token);
        }
    }

    /// Executes what a connection has sent.
    pub fn received(&mut self, token: ConnToken, bytes: &[u8]) {
        let Some(mut connection) = self.connections.take(token) else {
            return;
        };
        self.stats().net_input_bytes.add(bytes.len() as u64);
        connection.active_ms = self.keyspace.now_ms();
        if connection.life == Life::Open {
            if connection.input.is_empty() && connection.blocked.is_none() {
                let executed = self.execute_all(&mut connection, bytes);
                if connection.life == Life::Open {
                    connection.input.extend_from_slice(&bytes[executed..]);
                }
            } else {
                connection.input.extend_from_slice(bytes);
                self.execute_input(&mut connection);
            }
        }
        self.connections.put_back(connection);
        self.list(token);
    }

    /// The client has sent its last byte: what it has sent before is still executed.
    pub fn input_ended(&mut self, token: ConnToken) {
        if let Some(connection) = self.connections.get_mut(token) {
            connection.ended = true;
            connection.drain_if_ended();
        }
    }

    /// Executes what a connection has kept, if it may and enough of it is there.
    pub(super) fn execute_input(&mut self, connection: &mut Connection) {
        if connection.executes() && connection.input.len() >= connection.needed {
            let input = std::mem::take(&mut connection.input);
            let executed = self.execute_all(connection, &input);
            connection.keep_rest(input, executed);
        }
    }

    /// Executes the complete commands at the start of `bytes` and answers their length.
    fn execute_all(&mut self, connection: &mut Connection, bytes: &[u8]) -> usize {
        let mut batch = std::mem::take(&mut self.batch);
        let mut at = 0;
        connection.needed = 1;
        while at < bytes.len() && connection.executes() {
            let rest = &bytes[at..];
            let behind = batch.parse(rest);
            self.prefetch(&mut batch, rest);
            let mut all = true;
            for (index, (args, source)) in batch.commands(rest).enumerate() {
                let located = batch.located().get(index).copied().flatten();
                let request = Request::new(args, source).with_located(located);
                all = connection.executes()
                    && (args.is_empty() || self.command(connection, &request, source));
                if !all {
                    break;
                }
                at += source.len();
            }
            if !all || !connection.executes() {
                break;
            }
            match behind {
                Behind::Unread => {}
                Behind::Incomplete { needed } => {
                    connection.needed = needed;
                    break;
                }
                Behind::Broken(error) => {
                    let text = format!("ERR {error}");
                    connection.outbox.write(self.turn, |out| {
                        reply::error(out, &text);
                        Lsn::ZERO
                    });
                    self.stats().error_replies.add(1);
                    connection.drain();
                }
            }
        }
        self.batch = batch;
        at
    }

    /// Starts loading the keys of pipelined commands, so that their cache misses overlap.
    fn prefetch(&self, batch: &mut Batch, bytes: &[u8]) {
        if batch.len() > 1 {
            batch.locate(bytes, |key| self.keyspace.locate(key));
            self.keyspace
                .prefetch(batch.located().iter().flatten().copied());
        }
    }

    /// Executes one command of a connection; false when it has to wait and be tried again.
    fn command(
        &mut self,
        connection: &mut Connection,
        request: &Request<'_>,
        source: &[u8],
    ) -> bool {
        let spec = match spec::resolve(request) {
            Ok(spec) => spec,
            Err(error) => {
                self.refuse(connection, &error);
                return true;
            }
        };
        if let Some(why) = self.must_wait(connection, spec, request) {
            connection.blocked = Some(why);
            self.blocked.push(connection.token);
            return false;
        }
        self.commands += 1;
        self.stats().calls[spec.cmd as usize].add(1);
        connection.last_command = Some(spec.cmd);
        let scope = match connection.kind {
            ListenerKind::Entry => Scope::Node,
            ListenerKind::Direct => Scope::Shard,
        };
        let answer = if spec.first_key > 0 {
            self.keyed(connection, scope, spec, request, source)
        } else {
            self.keyless(connection, scope, spec, request)
        };
        if let Err(error) = answer {
            self.refuse(connection, &error);
        }
        connection.check_output();
        true
    }

    fn refuse(&mut self, connection: &mut Connection, error: &ClientError) {
        self.stats().error_replies.add(1);
        connection.outbox.write(self.turn, |out| {
            error.write(out);
            Lsn::ZERO
        });
    }

    /// Refuses a write that memory or disk have no room for.
    pub(super) fn check_room(&self, spec: &Spec) -> Result<(), ClientError> {
        if spec.is_write() {
            if self.node.is_disk_full() {
                return Err(ClientError::DiskFull);
            }
            if spec.is_denied_on_oom() && self.node.is_memory_full() {
                return Err(ClientError::OutOfMemory);
            }
        }
        Ok(())
    }

    /// Executes what another shard has forwarded.
    pub fn requested(&mut self, requests: Requests) {
        let mut args = std::mem::take(&mut self.args);
        let mut replies = Replies::default();
        let mut gate = Lsn::ZERO;
        let mut at = 0;
        let mut from = None;
        for forwarded in &requests.commands {
            let source = &requests.bytes[at..at + forwarded.len];
            at += forwarded.len;
            from = Some(forwarded.origin.shard);
            match request::parse(source, &RequestLimits::DEFAULT, &mut args) {
                Ok(Parsed::Command { consumed }) if consumed == source.len() => {}
                other => unreachable!("a peer forwarded {other:?}, not one command"),
            }
            let before = replies.bytes.len();
            let request = Request::new(&args, source);
            let answer = self.forwarded(forwarded, &request, &mut replies.bytes, &mut gate);
            if answer == Answer::Written {
                replies.answers.push(Answered {
                    origin: forwarded.origin,
                    len: replies.bytes.len() - before,
                    request_len: forwarded.len,
                });
            }
        }
        self.args = args;
        if let Some(from) = from {
            self.answer_peer(from, replies, gate);
        }
    }

    fn forwarded(
        &mut self,
        forwarded: &Forwarded,
        request: &Request<'_>,
        out: &mut Vec<u8>,
        gate: &mut Lsn,
    ) -> Answer {
        let outcome = spec::resolve(request).and_then(|spec| {
            let mut asker = Asker::Peer {
                forwarded,
                out,
                gate,
            };
            if spec.first_key > 0 {
                self.keyed_here(&mut asker, spec, request)
                    .map(|()| Answer::Written)
            } else {
                self.whole_keyspace(&mut asker, Scope::Part, spec, request)
            }
        });
        outcome.unwrap_or_else(|error| {
            error.write(out);
            Answer::Written
        })
    }

    /// Sends replies to a peer once the log has committed `gate`.
    fn answer_peer(&mut self, to: ShardId, replies: Replies, gate: Lsn) {
        if replies.answers.is_empty() {
            return;
        }
        if gate <= self.keyspace.log.committed() {
            self.peers[usize::from(to.0)].answer(replies.answers, &replies.bytes);
            return;
        }
        let free = self.held.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.held.push(None);
            self.held.len() - 1
        });
        self.held[index] = Some(Held { to, replies });
        self.gates.push(Reverse((gate, Gated::Replies(index))));
    }

    /// Another shard has answered.
    pub fn answered(&mut self, from: ShardId, replies: &Replies) {
        let mut at = 0;
        for answer in &replies.answers {
            let bytes = &replies.bytes[at..at + answer.len];
            at += answer.len;
            self.peers[usize::from(from.0)].answered(answer.request_len);
            self.deliver(answer.origin, bytes, Lsn::ZERO);
        }
    }

    /// Puts a reply into the place that was reserved for it.
    pub(super) fn deliver(&mut self, origin: Origin, bytes: &[u8], gate: Lsn) {
        if let Some(connection) = self.connections.get_mut(origin.conn) {
            connection
                .outbox
                .deliver(origin.ticket, origin.part, bytes, gate);
            connection.check_output();
            self.list(origin.conn);
        }
    }

    /// The log has committed more: what waited for it may leave.
    pub fn committed(&mut self) {
        let committed = self.keyspace.log.committed();
        while let Some(Reverse((gate, _))) = self.gates.peek()
            && *gate <= committed
        {
            let Some(Reverse((_, gated))) = self.gates.pop() else {
                break;
            };
            match gated {
                Gated::Connection(token) => {
                    if let Some(connection) = self.connections.get_mut(token) {
                        connection.gated = false;
                    }
                    self.list(token);
                }
                Gated::Replies(index) => {
                    let held = self.held[index].take().expect("held replies leave once");
                    self.peers[usize::from(held.to.0)]
                        .answer(held.replies.answers, &held.replies.bytes);
                }
            }
        }
    }

    /// Lists the connection again once the log has committed `lsn`.
    pub fn wait_for(&mut self, token: ConnToken, lsn: Lsn) {
        if let Some(connection) = self.connections.get_mut(token)
            && !connection.gated
        {
            connection.gated = true;
            self.gates.push(Reverse((lsn, Gated::Connection(token))));
        }
    }

    /// Begins a walk whose reply goes to `origin`; `request_len` when a peer has asked.
    pub(super) fn begin_walk(&mut self, origin: Origin, request_len: Option<usize>, walk: Walk) {
        self.walks.push_back(PendingWalk {
            origin,
            request_len,
            walk,
        });
    }

    /// Continues one walk by a slice; false when there is none.
    pub fn walk_slice(&mut self) -> bool {
        let Some(mut pending) = self.walks.pop_front() else {
            return false;
        };
        match self.keyspace.walk_slice(&mut pending.walk) {
            None => self.walks.push_back(pending),
            Some(gate) => {
                let mut bytes = Vec::new();
                pending.walk.finish(&mut bytes);
                let origin = pending.origin;
                match pending.request_len {
                    None => self.deliver(origin, &bytes, gate),
                    Some(request_len) => {
                        let answers = vec![Answered {
                            origin,
                            len: bytes.len(),
                            request_len,
                        }];
                        self.answer_peer(origin.shard, Replies { bytes, answers }, gate);
                    }
                }
            }
        }
        true
    }

    /// Sends what this turn has for the peers and publishes the counters.
    pub fn end_turn(&mut self) {
        self.keyspace.remove_lapsed();
        for peer in &mut self.peers {
            peer.send(self.id);
        }
        self.stats().keys.set(self.keyspace.len());
        let commands = std::mem::take(&mut self.commands);
        self.stats().commands.add(commands);
    }

    /// Writes a reply of a command that was executed here.
    #[inline]
    pub(super) fn respond(
        &mut self,
        asker: &mut Asker<'_>,
        write: impl FnOnce(&mut Keyspace, &mut Reply<'_>) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        match asker {
            Asker::Connection(connection) => {
                let protocol = connection.protocol;
                let mut outcome = Ok(());
                connection.outbox.write(self.turn, |out| {
                    let mut reply = Reply {
                        out,
                        protocol,
                        gate: Lsn::ZERO,
                    };
                    outcome = write(&mut self.keyspace, &mut reply);
                    reply.gate
                });
                outcome
            }
            Asker::Peer {
                forwarded,
                out,
                gate,
            } => {
                let mut reply = Reply {
                    out,
                    protocol: forwarded.protocol,
                    gate: Lsn::ZERO,
                };
                let outcome = write(&mut self.keyspace, &mut reply);
                **gate = reply.gate.max(**gate);
                outcome
            }
        }
    }

    /// Forwards a whole request, whose reply becomes part `part` of `ticket`.
    pub(super) fn forward(
        &mut self,
        to: ShardId,
        connection: &Connection,
        (ticket, part): (u64, u16),
        protocol: Protocol,
        request: &[u8],
    ) {
        let origin = Origin {
            shard: self.id,
            conn: connection.token,
            ticket,
            part,
        };
        self.peers[usize::from(to.0)].forward(origin, protocol, request);
    }
}
