//! Invalidations on their way: once what they tell of is committed, to the shards of their clients, and to these.

use std::collections::BTreeMap;

use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::{Lsn, ShardId};

use super::invalidation::{
    Invalidation, decode_client, decode_tokens, encode_client, encode_token, push_of_all,
    push_of_keys, redirected,
};
use crate::command::parse::{ArgList, Request};
use crate::keyspace::{Invalid, InvalidKey};
use crate::net::{ConnToken, ListenerKind};
use crate::shard::connection::{Connection, Life};
use crate::shard::core::Core;
use crate::shard::core::execution::pubsub::TURN_BYTES_MAX;
use crate::shard::core::execution::pubsub::delivery::{Audience, Delivery};
use crate::shard::mesh::{Client, Kind};

/// Bytes of one message to another shard, and of the keys of one push, about.
const MESSAGE_BYTES: usize = 16 << 10;

/// What a shard tells another one of ([`Kind::Tracking`]): the first argument.
const KEYS: &[u8] = b"keys";
const PREFIX: &[u8] = b"prefix";
const ALL: &[u8] = b"all";
const PREFIXES: &[u8] = b"prefixes";
const REDIRECTED: &[u8] = b"redirected";
const BROKEN: &[u8] = b"broken";

/// Keys that have changed, and by whose command each last.
type Changed<'a> = Vec<(&'a [u8], Option<Client>)>;

/// Messages for other shards.
#[derive(Default)]
struct Outgoing {
    by_shard: BTreeMap<ShardId, (Vec<Vec<u8>>, usize)>,
}

impl Outgoing {
    /// Adds arguments to the message about keys; answers the message if it is long enough.
    fn add(&mut self, shard: ShardId, args: [Vec<u8>; 3]) -> Option<Vec<Vec<u8>>> {
        let entry = self.by_shard.entry(shard);
        let (all, bytes) = entry.or_insert_with(|| (vec![KEYS.to_vec()], 0));
        *bytes += args.iter().map(Vec::len).sum::<usize>();
        all.extend(args);
        if *bytes < MESSAGE_BYTES {
            return None;
        }
        self.by_shard.remove(&shard).map(|(all, _)| all)
    }
}

impl Core {
    /// Takes what this turn has made invalid, which is told once all that was logged so far is committed, and tells what
    /// is committed.
    pub(crate) fn send_invalid(&mut self) {
        if let Some(invalid) = self.keyspace.take_invalid() {
            let gate = self.keyspace.log.appended();
            let tracking = &mut self.execution.tracking;
            tracking.waiting_bytes += invalid.held_bytes();
            tracking.waiting.push_back((gate, invalid));
            if tracking.waiting_bytes > self.admission.client_budget.queue_bytes_max {
                self.tell_all_instead();
            }
        }
        if self.has_invalid_due() {
            self.send_due();
            self.go_on_delivering(None);
        }
    }

    /// Whether something can be told by now.
    pub(crate) fn has_invalid_due(&self) -> bool {
        let tracking = &self.execution.tracking;
        let committed = self.keyspace.log.committed();
        let first = tracking.waiting.front();
        let is_due = first.is_some_and(|(gate, _)| *gate <= committed);
        let has_lost =
            tracking.has_lost || !tracking.lost.is_empty() || !tracking.lost_targets.is_empty();
        (is_due || has_lost) && self.has_room_to_tell()
    }

    /// Instead of what waits clients are told that all has changed.
    #[cold]
    fn tell_all_instead(&mut self) {
        self.keyspace.invalidate_all();
        let Some(all) = self.keyspace.take_invalid() else {
            return;
        };
        let gate = self.keyspace.log.appended();
        let tracking = &mut self.execution.tracking;
        for (_, invalid) in tracking.waiting.drain(..) {
            self.keyspace.discard_invalid(invalid);
        }
        tracking.waiting_bytes = all.held_bytes();
        tracking.waiting.push_back((gate, all));
    }

    fn send_due(&mut self) {
        self.tell_who_has_lost();
        let committed = self.keyspace.log.committed();
        let mut outgoing = Outgoing::default();
        while self.may_send()
            && let Some((gate, mut invalid)) = self.execution.tracking.waiting.pop_front()
        {
            if gate > committed {
                self.execution.tracking.waiting.push_front((gate, invalid));
                break;
            }
            let held_bytes = invalid.held_bytes();
            let is_done = self.send_one(&mut invalid, &mut outgoing);
            let tracking = &mut self.execution.tracking;
            tracking.waiting_bytes -= held_bytes;
            if !is_done {
                tracking.waiting_bytes += invalid.held_bytes();
                tracking.waiting.push_front((gate, invalid));
            }
        }
        for (shard, (args, _)) in outgoing.by_shard {
            self.tell_shard(shard, &args);
        }
    }

    /// Tells of what was made invalid in one turn; false when there is no room for the rest.
    fn send_one(&mut self, invalid: &mut Invalid, outgoing: &mut Outgoing) -> bool {
        while let Some(key) = invalid.next_key() {
            self.send_key(&key, outgoing);
            if !self.may_send() {
                return false;
            }
        }
        loop {
            let keys = invalid.next_broadcast(MESSAGE_BYTES);
            if keys.is_empty() {
                break;
            }
            if !self.broadcast(keys.iter().map(|(key, writer)| (&**key, *writer))) {
                invalid.broadcasts_all = true;
            }
            if !self.may_send() {
                return false;
            }
        }
        if std::mem::take(&mut invalid.broadcasts_all) {
            let is_own = true;
            self.send_all(PREFIXES, Invalidation::Prefixes { is_own });
        }
        if std::mem::take(&mut invalid.all) {
            let is_own = true;
            self.send_all(ALL, Invalidation::All { is_own });
        }
        true
    }

    /// Whether clients of this shard, and others, take more.
    fn has_room_to_tell(&self) -> bool {
        !self.has_enough_deliveries() && !self.router.peers.is_any_full()
    }

    /// Whether this turn tells more.
    fn may_send(&mut self) -> bool {
        let turn = self.turn;
        let spent = &mut self.execution.tracking.spent;
        if spent.0 != turn {
            *spent = (turn, 0);
        }
        spent.1 < TURN_BYTES_MAX && self.has_room_to_tell()
    }

    /// Tells those that all has changed who were not told of something.
    fn tell_who_has_lost(&mut self) {
        let tracking = &mut self.execution.tracking;
        let has_lost = std::mem::take(&mut tracking.has_lost);
        let lost = std::mem::take(&mut tracking.lost);
        let targets = std::mem::take(&mut tracking.lost_targets);
        let all = Invalidation::All { is_own: true };
        match has_lost {
            true => self.deliver_to_all(all),
            false => self.deliver_push(all, push_of_all(), lost.into_iter().collect()),
        }
        let (resp2, _) = redirected(&push_of_all(), Protocol::Resp2);
        let messages = (resp2, push_of_all());
        self.deliver_as(
            Audience::Redirected,
            messages,
            targets.into_iter().collect(),
        );
    }

    fn send_key(&mut self, key: &InvalidKey, outgoing: &mut Outgoing) {
        let mut own = Vec::new();
        let mut others: BTreeMap<ShardId, Vec<u8>> = BTreeMap::new();
        for (shard, token) in key.clients.iter() {
            match shard == self.id {
                true => own.push(token),
                false => encode_token(others.entry(shard).or_default(), token),
            }
        }
        if !own.is_empty() {
            self.deliver_key(&key.name, key.writer, own);
        }
        for (shard, tokens) in others {
            let args = [key.name.to_vec(), encode_client(key.writer), tokens];
            if let Some(args) = outgoing.add(shard, args) {
                self.tell_shard(shard, &args);
            }
        }
    }

    fn send_all(&mut self, name: &[u8], invalidation: Invalidation) {
        self.deliver_to_all(invalidation);
        for shard in (0..self.node.shards()).map(ShardId) {
            if shard != self.id && self.node.stats[shard].tracking_clients.get() > 0 {
                self.tell_shard(shard, &[name.to_vec()]);
            }
        }
    }

    /// Tells all clients with a prefix of some of these keys, which are ascending and not too many for one message. False
    /// when there is no room for what keys with many prefixes make of it: some were not told.
    fn broadcast<'a>(&mut self, keys: impl Iterator<Item = (&'a [u8], Option<Client>)>) -> bool {
        let prefixes = std::sync::Arc::clone(self.keyspace.prefixes());
        let mut by_prefix = BTreeMap::new();
        for (key, writer) in keys {
            for (prefix, shards) in prefixes.matching(key) {
                let entry = by_prefix.entry(prefix);
                let (_, changed) = entry.or_insert_with(|| (shards, Changed::new()));
                changed.push((key, writer));
            }
        }
        let mut left = usize::from(self.node.shards()) * TURN_BYTES_MAX;
        for (prefix, (shards, changed)) in by_prefix {
            let bytes: usize = changed.iter().map(|(key, _)| key.len()).sum();
            for &shard in shards {
                let is_told = match shard == self.id {
                    true => self.deliver_broadcast(prefix, &changed, true),
                    false if left < bytes => false,
                    false => {
                        left -= bytes;
                        self.tell_shard(shard, &message_of_prefix(prefix, &changed));
                        true
                    }
                };
                if !is_told {
                    return false;
                }
            }
        }
        true
    }

    fn tell_shard(&mut self, shard: ShardId, args: &[Vec<u8>]) {
        let mut request = Vec::new();
        reply::command(&mut request, args);
        self.execution.tracking.spent.1 += request.len();
        self.forward_unawaited(shard, Kind::Tracking, &request);
    }

    /// Another shard tells of keys, for clients of this one.
    pub(crate) fn told_of_keys(&mut self, request: &Request<'_>) {
        let is_full = self.has_enough_deliveries();
        match request.arg(0) {
            BROKEN => {
                decode_tokens(request.arg(1)).for_each(|token| self.redirect_is_broken(token));
            }
            REDIRECTED if is_full => {
                let id = ephesus_wire::resp::request::integer(request.arg(1));
                let targets = &self.execution.tracking.targets;
                let target = id.and_then(|id| targets.get(&id.cast_unsigned()).copied());
                self.execution.tracking.lost_targets.extend(target);
            }
            _ if is_full => self.execution.tracking.has_lost = true,
            KEYS => {
                let mut at = 1;
                while at + 2 < request.len() {
                    let tokens = decode_tokens(request.arg(at + 2)).collect();
                    let writer = decode_client(request.arg(at + 1));
                    self.deliver_key(request.arg(at), writer, tokens);
                    at += 3;
                }
            }
            PREFIX => {
                let keys = (2..request.len()).step_by(2);
                let changed = keys.map(|at| (request.arg(at), decode_client(request.arg(at + 1))));
                let changed: Changed<'_> = changed.collect();
                let are_told = self.deliver_broadcast(request.arg(1), &changed, false);
                self.execution.tracking.has_lost |= !are_told;
            }
            REDIRECTED => {
                let id = ephesus_wire::resp::request::integer(request.arg(1));
                let id = id.map_or(0, i64::cast_unsigned);
                let Some(client) = decode_client(request.arg(2)) else {
                    return;
                };
                let (resp2, resp3) = (request.arg(3).to_vec(), request.arg(4).to_vec());
                self.deliver_redirected(id, client, (resp2, resp3));
            }
            name => {
                let is_own = false;
                self.deliver_to_all(match name {
                    PREFIXES => Invalidation::Prefixes { is_own },
                    _ => Invalidation::All { is_own },
                });
            }
        }
        self.go_on_delivering(None);
    }

    fn deliver_key(&mut self, name: &[u8], writer: Option<Client>, tokens: Vec<ConnToken>) {
        let push = push_of_keys([name].into_iter());
        self.deliver_push(Invalidation::Key { writer }, push, tokens);
    }

    fn deliver_to_all(&mut self, all: Invalidation) {
        let tokens = self.execution.tracking.clients.iter().copied().collect();
        self.deliver_push(all, push_of_all(), tokens);
    }

    fn deliver_push(
        &mut self,
        invalidation: Invalidation,
        push: Vec<u8>,
        subscribers: Vec<ConnToken>,
    ) {
        self.deliver_as(
            Audience::Trackers(invalidation),
            (Vec::new(), push),
            subscribers,
        );
    }

    fn deliver_as(
        &mut self,
        audience: Audience,
        (resp2, resp3): (Vec<u8>, Vec<u8>),
        subscribers: Vec<ConnToken>,
    ) {
        if !subscribers.is_empty() {
            let turn = self.turn;
            let count = subscribers.len();
            self.execution.tracking.spent.1 += resp3.len() + count * size_of::<ConnToken>();
            self.execution.pubsub.deliveries.push(Delivery {
                audience,
                resp2,
                resp3,
                subscribers,
                done: 0,
                gate: Lsn::ZERO,
                turn,
            });
        }
    }

    /// Tells this shard's clients with that prefix of keys; those that skip what they have changed themselves, of others.
    /// False when there was no room for some.
    fn deliver_broadcast(
        &mut self,
        prefix: &[u8],
        changed: &[(&[u8], Option<Client>)],
        is_own: bool,
    ) -> bool {
        let Some(clients) = self.execution.tracking.by_prefix.get(prefix) else {
            return true;
        };
        if self.has_enough_deliveries() {
            return false;
        }
        let skips_own = |token: &ConnToken| {
            let connection = self.connections.get(*token);
            let tracker = connection.and_then(|connection| connection.tracker.as_deref());
            tracker.is_some_and(|tracker| tracker.skips_own)
        };
        let wrote = |token: &ConnToken| {
            let client = Some((self.id, *token));
            changed.iter().any(|(_, writer)| *writer == client)
        };
        let (apart, together): (Vec<_>, Vec<_>) = clients
            .iter()
            .copied()
            .partition(|token| skips_own(token) && wrote(token));
        let invalidation = Invalidation::Prefix { is_own };
        let keys = changed.iter().map(|(key, _)| *key);
        self.deliver_push(invalidation, push_of_keys(keys), together);
        for token in apart {
            if self.has_enough_deliveries() {
                return false;
            }
            let client = Some((self.id, token));
            let others = changed.iter().filter(|(_, writer)| *writer != client);
            let others: Vec<&[u8]> = others.map(|(key, _)| *key).collect();
            if !others.is_empty() {
                let push = push_of_keys(others.into_iter());
                self.deliver_push(invalidation, push, vec![token]);
            }
        }
        true
    }

    /// Has a connection told for a client, if it is there.
    fn deliver_redirected(&mut self, id: u64, client: Client, messages: (Vec<u8>, Vec<u8>)) {
        match self.execution.tracking.targets.get(&id).copied() {
            Some(token) => self.deliver_as(Audience::Redirected, messages, vec![token]),
            None if client.0 == self.id => self.redirect_is_broken(client.1),
            None => {
                let mut token = Vec::new();
                encode_token(&mut token, client.1);
                self.tell_shard(client.0, &[BROKEN.to_vec(), token]);
            }
        }
    }

    /// The connection that was to be told for this one has gone.
    fn redirect_is_broken(&mut self, token: ConnToken) {
        let turn = self.turn;
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        note_broken(connection, turn);
        self.connections.count(token);
        self.list(token);
    }

    /// Tells one client, or the connection that it has named, if it still is to be told.
    pub(crate) fn push_invalidation(
        &mut self,
        connection: &mut Connection,
        invalidation: &Invalidation,
        push: &[u8],
    ) {
        let me = (self.id, connection.token);
        let Some(tracker) = connection.tracker.as_deref() else {
            return;
        };
        let is_direct = connection.kind == ListenerKind::Direct;
        let is_told = match *invalidation {
            Invalidation::Key { writer } => {
                !(tracker.broadcasts() || tracker.skips_own && writer == Some(me))
            }
            Invalidation::Prefix { is_own } | Invalidation::Prefixes { is_own } => {
                tracker.broadcasts() && (is_own || !is_direct)
            }
            Invalidation::All { is_own } => is_own || !is_direct,
        };
        if !is_told || connection.life != Life::Open {
            return;
        }
        // Others may have read for a client that is told of prefixes.
        let is_all = matches!(invalidation, Invalidation::All { .. }) && !tracker.broadcasts();
        let flushed_at = connection.flushed_at.take();
        if is_all && flushed_at.is_some_and(|end| connection.outbox.ends_at(end)) {
            // Each shard tells of its part of one flush.
            connection.flushed_at = flushed_at;
            return;
        }
        if let Some(id) = tracker.redirect {
            if is_all && connection.outbox.awaited() == 0 {
                connection.flushed_at = Some(connection.outbox.end());
            }
            let shard = self
                .shard_of_connection(id)
                .filter(|shard| *shard != self.id);
            let is_full = match shard {
                Some(shard) => self.router.peers[shard].is_full(),
                None => self.has_enough_deliveries(),
            };
            if is_full {
                connection.flushed_at = None;
                self.execution.tracking.lost.insert(connection.token);
                return;
            }
            let (resp2, resp3) = redirected(push, connection.protocol);
            return match shard {
                Some(shard) => {
                    let id = id.to_string().into_bytes();
                    let client = encode_client(Some(me));
                    let args = [REDIRECTED.to_vec(), id, client, resp2, resp3];
                    self.tell_shard(shard, &args);
                }
                _ if self.execution.tracking.targets.contains_key(&id) => {
                    self.deliver_redirected(id, me, (resp2, resp3));
                }
                _ => note_broken(connection, self.turn),
            };
        }
        if connection.protocol == Protocol::Resp2 {
            return;
        }
        connection.outbox.push(self.turn, |out| {
            out.extend_from_slice(push);
            Lsn::ZERO
        });
        connection.flushed_at = is_all.then(|| connection.outbox.end());
    }
}

/// The connection that was to be told for this one has gone.
fn note_broken(connection: &mut Connection, turn: u64) {
    let protocol = connection.protocol;
    let Some(tracker) = connection.tracker.as_deref_mut() else {
        return;
    };
    let Some(id) = tracker.redirect else { return };
    tracker.is_broken = true;
    if protocol == Protocol::Resp3 && connection.life == Life::Open {
        connection.outbox.push(turn, |out| {
            reply::push(out, protocol, 2);
            reply::bulk(out, b"tracking-redir-broken");
            reply::integer(out, id.cast_signed());
            Lsn::ZERO
        });
    }
}

fn message_of_prefix(prefix: &[u8], changed: &[(&[u8], Option<Client>)]) -> Vec<Vec<u8>> {
    let mut args = vec![PREFIX.to_vec(), prefix.to_vec()];
    for (key, writer) in changed {
        args.extend([key.to_vec(), encode_client(*writer)]);
    }
    args
}
