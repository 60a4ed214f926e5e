//! CLIENT TRACKING: which of this shard's clients cache keys, and how they are told that a key has changed.
//!
//! ```text
//! a read of a client that tracks      keyspace: the key, by whom (keyspace/tracked.rs)
//! a change of the key                 keyspace: what is invalid, in this turn
//! the change is committed             this shard: a delivery; other shards: a message for their clients
//! the shard of the client             a push behind all that the client was or will be answered so far, or one to the
//!                                     connection that it has named instead
//! ```
//!
//! A push comes behind the replies of all reads that it is about: their places were taken before the reads were executed,
//! here or elsewhere. Nobody waits for it, and none is lost: where too many wait, clients are told that all has changed.

pub(crate) mod invalidation;
mod sending;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ephesus_wire::resp::reply;
use ephesus_wire::{Lsn, ShardId};

use crate::command::error::ClientError;
use crate::command::parse::{ArgList, Request};
use crate::command::spec::Spec;
use crate::command::tracking::{Options, Tracker, TrackingError};
use crate::keyspace::{Invalid, TrackedLimits};
use crate::net::ConnToken;
use crate::node::NodeShared;
use crate::shard::connection::{Connection, Life};
use crate::shard::core::admission::client_budget::queue_bytes_max;
use crate::shard::core::replies::outbox::Ticket;
use crate::shard::core::{Asker, Core, Step};
use crate::shard::mesh::Kind;

/// Keys that clients of a node may have cached, as Redis's `tracking-table-max-keys`.
pub(crate) const TABLE_KEYS_MAX: usize = 1_000_000;

/// Memory of them, which is besides no more than this part of what clients may make the node hold.
const TABLE_BYTES_MAX: usize = 256 << 20;
const TABLE_PART: u64 = 8;

/// Different prefixes of all clients of a shard.
const PREFIXES_MAX: usize = 4096;

/// What a shard does for clients that cache keys.
#[derive(Default)]
pub(crate) struct Tracking {
    /// The shard's clients that are told.
    clients: BTreeSet<ConnToken>,
    /// Those that are told of all keys with a prefix.
    by_prefix: BTreeMap<Box<[u8]>, BTreeSet<ConnToken>>,
    /// Those that the other shards have to know of: there are clients for them by now, or none any more.
    changed_prefixes: BTreeSet<Box<[u8]>>,
    /// Connections that are told for others, by their ids.
    targets: BTreeMap<u64, ConnToken>,
    /// What has changed, and when it is committed.
    waiting: VecDeque<(Lsn, Invalid)>,
    waiting_bytes: usize,
    /// The turn in which something was told last, and how many bytes.
    spent: (u64, usize),
    /// For want of room something was not told to all clients of this shard, to these, or to connections that are told for
    /// others: they are told that all has changed.
    has_lost: bool,
    lost: BTreeSet<ConnToken>,
    lost_targets: BTreeSet<ConnToken>,
}

impl Tracking {
    /// Memory of what waits.
    pub(crate) fn held_bytes(&self) -> usize {
        self.waiting_bytes
    }
}

/// What the table of each shard may hold.
pub(crate) fn limits(node: &NodeShared) -> TrackedLimits {
    let part = usize::try_from(node.settings.max_client_memory / TABLE_PART).unwrap_or(usize::MAX);
    let shards = usize::from(node.shards());
    TrackedLimits {
        keys: TABLE_KEYS_MAX / shards,
        bytes: TABLE_BYTES_MAX.min(part) / shards,
        invalid_bytes: queue_bytes_max(node),
    }
}

impl Core {
    /// Has changes noted of keys with the newest prefixes: before anything is read of which their clients have to be told.
    #[inline]
    pub(crate) fn review_prefixes(&mut self) {
        if self.node.prefixes.version() != self.keyspace.prefixes().version() {
            self.keyspace.set_prefixes(self.node.prefixes.newest());
        }
    }

    /// A command was executed whose effects or keys are noted for somebody.
    #[cold]
    pub(crate) fn note_observed(
        &mut self,
        asker: &Asker<'_>,
        spec: &Spec,
        request: &Request<'_>,
        outcome: &Result<(), ClientError>,
    ) {
        self.keyspace.set_writer(None);
        let is_executed = *outcome != Err(ClientError::LargeReplies);
        if asker.tracks_reads() && spec.is_read() && is_executed {
            self.keyspace
                .track_keys(asker.client(self.id), spec, request);
        }
    }

    /// CLIENT TRACKING, which is not behind MULTI.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn client_tracking(
        &mut self,
        connection: &mut Connection,
        request: &Request<'_>,
    ) -> Result<Step, ClientError> {
        let may_exist = |id: u64| match self.shard_of_connection(id) {
            Some(shard) if shard == self.id => id == connection.id || self.token_of(id).is_some(),
            Some(_) => true,
            None => false,
        };
        let options = Options::parse(request, may_exist)?;
        let tracker = match options.is_on {
            true => Some(options.tracker(connection.tracker.as_deref())?),
            false => None,
        };
        if let Some(tracker) = &tracker {
            self.check_prefixes(tracker)?;
        }
        let elsewhere = options.redirect.and_then(|id| self.shard_of_connection(id));
        if let Some(shard) = elsewhere.filter(|shard| *shard != self.id) {
            let ticket = connection.outbox.await_reply(None);
            connection.redirecting = Some(Box::new((ticket, tracker)));
            connection.settling = true;
            let id = options.redirect.unwrap_or_default().to_string();
            let mut encoded = Vec::new();
            reply::command(&mut encoded, &["REDIRECT", &id]);
            let (place, protocol) = ((ticket, 0), connection.protocol);
            self.forward_as(Kind::Redirect, shard, connection, place, protocol, &encoded);
            return Ok(Step::Done);
        }
        if let Some(id) = options.redirect {
            let own = (id == connection.id).then_some(connection.token);
            if let Some(target) = own.or_else(|| self.token_of(id)) {
                self.execution.tracking.targets.insert(id, target);
            }
        }
        self.set_tracker(connection, tracker);
        connection.outbox.write(self.turn, |out| {
            out.extend_from_slice(reply::OK);
            Lsn::ZERO
        });
        Ok(Step::Done)
    }

    /// Another shard asks for a connection of this one that shall be told for one of its own.
    pub(crate) fn redirect_of_peer(&mut self, request: &Request<'_>, out: &mut Vec<u8>) {
        let id = ephesus_wire::resp::request::integer(request.arg(1));
        let id = id.map(i64::cast_unsigned);
        let target = id.and_then(|id| Some((id, self.token_of(id)?)));
        match target {
            Some((id, token)) => {
                self.execution.tracking.targets.insert(id, token);
                out.extend_from_slice(reply::OK);
            }
            None => ClientError::from(TrackingError::NoTarget).write(out),
        }
    }

    fn check_prefixes(&self, tracker: &Tracker) -> Result<(), ClientError> {
        let by_prefix = &self.execution.tracking.by_prefix;
        let prefixes = tracker.prefixes.iter();
        let new = prefixes.filter(|prefix| !by_prefix.contains_key(*prefix));
        let new = new.count();
        match new > 0 && by_prefix.len() + new > PREFIXES_MAX {
            true => Err(TrackingError::TooManyPrefixesOfShard(PREFIXES_MAX).into()),
            false => Ok(()),
        }
    }

    /// From now on a connection is told as its client has said.
    pub(crate) fn set_tracker(&mut self, connection: &mut Connection, tracker: Option<Tracker>) {
        let before = connection.tracker.take();
        let prefixes_before = before.map(|before| before.prefixes).unwrap_or_default();
        let prefixes = tracker.as_ref().map(|tracker| &tracker.prefixes);
        let nothing = BTreeSet::new();
        let prefixes = prefixes.unwrap_or(&nothing);
        self.change_prefixes(connection.token, &prefixes_before, prefixes);
        let clients = &mut self.execution.tracking.clients;
        match &tracker {
            Some(_) => clients.insert(connection.token),
            None => clients.remove(&connection.token),
        };
        connection.tracker = tracker.map(Box::new);
        connection.flushed_at = None;
        self.publish_trackers();
    }

    fn change_prefixes(
        &mut self,
        token: ConnToken,
        before: &BTreeSet<Box<[u8]>>,
        after: &BTreeSet<Box<[u8]>>,
    ) {
        let Tracking {
            by_prefix,
            changed_prefixes,
            ..
        } = &mut self.execution.tracking;
        let mut has_new = false;
        for prefix in before.difference(after) {
            if let Some(clients) = by_prefix.get_mut(prefix) {
                clients.remove(&token);
                if clients.is_empty() {
                    by_prefix.remove(prefix);
                    changed_prefixes.insert(prefix.clone());
                }
            }
        }
        for prefix in after.difference(before) {
            let clients = by_prefix.entry(prefix.clone()).or_default();
            if clients.is_empty() {
                changed_prefixes.insert(prefix.clone());
                has_new = true;
            }
            clients.insert(token);
        }
        if has_new {
            self.keyspace.expect_prefixes(true);
        }
    }

    /// Shares new prefixes with the other shards, once a turn: before a client is told that they are noted, and before
    /// anything leaves that was forwarded meanwhile.
    pub(crate) fn share_prefixes(&mut self) {
        if self.execution.tracking.changed_prefixes.is_empty() {
            return;
        }
        let Tracking {
            by_prefix,
            changed_prefixes,
            ..
        } = &mut self.execution.tracking;
        let changed = std::mem::take(changed_prefixes);
        let is_there = |prefix: &&[u8]| by_prefix.contains_key(*prefix);
        let (added, removed): (Vec<&[u8]>, Vec<&[u8]>) =
            changed.iter().map(|prefix| &**prefix).partition(is_there);
        self.node.prefixes.change(self.id, added, removed);
        self.review_prefixes();
        self.keyspace.expect_prefixes(false);
    }

    /// A connection is not told any more, and not for others either: it has ended.
    pub(crate) fn end_tracking(&mut self, token: ConnToken) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let (id, tracker) = (connection.id, connection.tracker.take());
        if let Some(tracker) = tracker {
            self.execution.tracking.clients.remove(&token);
            self.change_prefixes(token, &tracker.prefixes, &BTreeSet::new());
            self.publish_trackers();
        }
        self.execution.tracking.targets.remove(&id);
        self.execution.tracking.lost.remove(&token);
        self.execution.tracking.lost_targets.remove(&token);
        self.keyspace.untrack((self.id, token));
    }

    fn publish_trackers(&self) {
        let clients = self.execution.tracking.clients.len();
        self.stats().tracking_clients.set(clients as u64);
    }

    /// The shard of the connection with that id, if there can be one.
    fn shard_of_connection(&self, id: u64) -> Option<ShardId> {
        let shard = id.checked_sub(1)? % u64::from(self.node.shards());
        u16::try_from(shard).ok().map(ShardId)
    }

    /// A connection of this shard, which is not the one whose command is executed.
    fn token_of(&self, id: u64) -> Option<ConnToken> {
        if let Some(token) = self.execution.tracking.targets.get(&id) {
            return Some(*token);
        }
        let mut connections = self.connections.iter();
        let found = connections.find(|connection| connection.id == id);
        found
            .filter(|connection| connection.life == Life::Open)
            .map(|connection| connection.token)
    }
}

/// What a connection waits for whose client has named another one: its ticket is `ticket`.
pub(crate) fn redirecting(connection: &mut Connection, ticket: Ticket) -> Option<Option<Tracker>> {
    let is_it = |redirecting: &mut Box<(Ticket, Option<Tracker>)>| redirecting.0 == ticket;
    let redirecting = connection.redirecting.take_if(is_it)?;
    Some(redirecting.1)
}

#[cfg(test)]
mod tests;
