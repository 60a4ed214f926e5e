//! Where a transaction is executed: by the shard of its keys, and as a whole.
//!
//! That shard is asked with one request ([`Kind::Transaction`]), which waits as a whole for what any of its partitions
//! waits for. What a client watches is known to the shard that served the keys when they were watched. If it is not the
//! one that executes the transaction, or a partition has left it since, nobody knows whether the keys have changed: they
//! have, as the client is told.

use std::borrow::Cow;
use std::collections::HashSet;

use ephesus_wire::limits::QUERY_BYTES_MAX;
use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::resp::request::{self, Args, Parsed, RequestLimits};
use ephesus_wire::{ShardId, Slot, slot_of};

use super::relay::{Lead, Place};
use super::route::Route;
use crate::command::error::ClientError;
use crate::command::parse::{ArgList, Request};
use crate::command::spec::{self, Spec};
use crate::node::routes::Owner;
use crate::shard::connection::{Blocked, Connection};
use crate::shard::core::execution::pubsub::is_published;
use crate::shard::core::execution::together::{Part, Together};
use crate::shard::core::{Answer, Asker, Core, Step};
use crate::shard::mesh::{AS_USER, Client, Forwarded, Kind, Scope, WATCHES};
use crate::shard::transaction::{self, Slots, Transaction, WATCHED_MAX};

/// How far EXEC has come.
enum Exec {
    Executed,
    /// Another shard does.
    Forwarded,
    /// It is not executed, and this is the reply.
    Answered(Vec<u8>),
    /// The same, and the client is to go there instead.
    Redirected(Vec<u8>),
    Held,
    Waits(Blocked),
}

/// Where a connection's transaction goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Here,
    Held,
    Shard(ShardId),
    Moved(Owner),
}

/// What is known about keys that are watched.
enum Seen {
    Unchanged,
    /// Or nobody knows.
    Changed,
    Held,
}

/// The reply to EXEC if what was watched has changed.
fn nothing_done(protocol: Protocol) -> Vec<u8> {
    let mut out = Vec::new();
    reply::null_array(&mut out, protocol);
    out
}

/// What is in front of a reply in [`Kind::Transaction`].
fn marks(protocol: Protocol) -> &'static [u8] {
    match protocol {
        Protocol::Resp2 => b"=2",
        Protocol::Resp3 => b"=3",
    }
}

/// The user of a part of [`Kind::Transaction`], if it has one, and the rest.
fn of_user(part: &[u8]) -> (Option<u64>, &[u8]) {
    let Some(rest) = part.strip_prefix(&[AS_USER]) else {
        return (None, part);
    };
    let end = rest.iter().position(|&byte| byte == b'\n');
    let (id, command) = rest.split_at(end.unwrap_or(rest.len()));
    let id = request::integer(id).map(i64::cast_unsigned);
    (id, command.get(1..).unwrap_or_default())
}

impl Core {
    /// EXEC behind MULTI; false when it has to wait and be tried again.
    pub(crate) fn exec(&mut self, connection: &mut Connection) -> bool {
        let Some(mut transaction) = connection.transaction.take() else {
            return true;
        };
        let exec = self.try_exec(connection, &mut transaction);
        self.note_long(connection);
        let exec = match exec {
            Err(ClientError::LargeReplies) => Ok(Exec::Waits(Blocked::ReplyRoom)),
            Ok(Exec::Held) => match self.admission.holds.step_of_held() {
                Ok(_) => Ok(Exec::Held),
                Err(error) => Err(error),
            },
            exec => exec,
        };
        match exec {
            Ok(Exec::Executed) => {
                if transaction.watched_at.is_some() {
                    self.keyspace.unwatch((self.id, connection.token));
                }
                self.keep_transaction(transaction);
            }
            Ok(Exec::Forwarded) => self.keep_transaction(transaction),
            Ok(Exec::Answered(answer)) => {
                connection.transaction = Some(transaction);
                self.end_transaction(connection, &answer);
            }
            Ok(Exec::Redirected(answer)) => {
                connection.transaction = Some(transaction);
                self.end_transaction(connection, &answer);
                self.stats().count_redirection(spec::Cmd::Exec);
                return true;
            }
            Err(error) => {
                connection.transaction = Some(transaction);
                self.refuse_exec(connection, &error);
            }
            Ok(Exec::Held) => {
                connection.transaction = Some(transaction);
                self.wait_for_decision(connection);
                return false;
            }
            Ok(Exec::Waits(why)) => {
                connection.transaction = Some(transaction);
                self.admission.blocked.block(connection, why);
                return false;
            }
        }
        self.execution.commands += 1;
        self.stats().of(spec::Cmd::Exec).calls.add(1);
        true
    }

    fn try_exec(
        &mut self,
        connection: &mut Connection,
        transaction: &mut Transaction,
    ) -> Result<Exec, ClientError> {
        if transaction.is_refused() {
            return Err(ClientError::ExecAborted);
        }
        if connection.settling && connection.outbox.awaited() > 0 {
            return Ok(Exec::Waits(Blocked::Settling));
        }
        if transaction.publishes && self.has_uncommitted(connection) {
            return Ok(Exec::Waits(Blocked::Commit));
        }
        self.refuse_transaction_if_full(transaction.writes, transaction.is_denied_on_oom)?;
        if !transaction.slots.is_empty() || transaction.is_over_all {
            self.router.check_serving()?;
        }
        let scope = connection.scope();
        let slots = transaction.slots.all();
        if scope == Scope::Shard && slots.len() > 1 {
            return Err(ClientError::CrossSlot);
        }
        if transaction.flushes && self.admission.holds.holds_any() {
            return Ok(Exec::Held);
        }
        let at = match slots.first() {
            None => transaction.watched_at.unwrap_or(self.id),
            Some(&first) => match self.way_of(scope, slots)? {
                Way::Here => self.id,
                Way::Shard(shard) => shard,
                Way::Held => return Ok(Exec::Held),
                Way::Moved(owner) => {
                    return Ok(Exec::Redirected(self.moved(connection, first, owner)?));
                }
            },
        };
        let watches = transaction.watched_at.is_some();
        if transaction.watched_at.is_some_and(|shard| shard != at) {
            return Ok(Exec::Answered(nothing_done(connection.protocol)));
        }
        if watches && at == self.id {
            match self.seen((self.id, connection.token)) {
                Seen::Unchanged => {}
                Seen::Changed => return Ok(Exec::Answered(nothing_done(connection.protocol))),
                Seen::Held => return Ok(Exec::Held),
            }
        }
        if transaction.may_write && self.is_log_behind(at) {
            return Ok(Exec::Waits(Blocked::Log(at)));
        }
        if at == self.id {
            self.execute_queued(connection, transaction)?;
            return Ok(Exec::Executed);
        }
        if self.must_not_forward(connection, at) {
            return Ok(Exec::Waits(Blocked::Peer(at)));
        }
        self.forward_transaction(connection, transaction, at)?;
        Ok(Exec::Forwarded)
    }

    /// Where a connection's transaction on keys of these slots goes: by the routes, as its other commands do, which it
    /// must not overtake.
    fn way_of(&self, scope: Scope, slots: &[Slot]) -> Result<Way, ClientError> {
        let mut ways = slots.iter().map(|slot| {
            let owner = self.router.routes.owner(*slot);
            let partition = self.router.routes.partitioning().partition_of(*slot);
            let is_idle = self.admission.holds.is_idle();
            match owner.local() {
                _ if owner.is(self.id) && !is_idle && self.is_waited_for(partition) => Way::Held,
                _ if owner.is(self.id) => Way::Here,
                Some(shard) if scope == Scope::Node => Way::Shard(shard),
                _ => match self.place(*slot) {
                    Place::Here => Way::Here,
                    Place::Held => Way::Held,
                    Place::Shard(shard) if scope == Scope::Node => Way::Shard(shard),
                    Place::Shard(_) | Place::Away(_) => Way::Moved(owner),
                },
            }
        });
        let first = ways.next().unwrap_or(Way::Here);
        let mut others = ways.filter(|way| *way != first);
        let Some(other) = others.next() else {
            return Ok(first);
        };
        // What is held may yet be where the others are.
        let is_held = |way| way == Way::Held;
        if is_held(first) || is_held(other) || others.any(is_held) {
            return Ok(Way::Held);
        }
        Err(ClientError::TransactionOfShards)
    }

    /// Where keys of these slots lead, of which there is one at least.
    fn lead_of_transaction(&self, slots: &[Slot]) -> Lead {
        let is_here = |slot: &Slot| self.router.routes.owner(*slot).is(self.id);
        if self.admission.holds.is_idle() && slots.iter().all(is_here) {
            return Lead::All(Place::Here);
        }
        self.lead_of_slots(slots.iter().copied())
    }

    /// What has become of the keys that a client watches here.
    fn seen(&self, client: Client) -> Seen {
        let mut is_changed = !self.keyspace.is_unchanged(client);
        for partition in self.keyspace.watched_partitions(client) {
            if self.is_waited_for(partition) {
                return Seen::Held;
            }
            is_changed |= !self.serves(partition);
        }
        match is_changed {
            true => Seen::Changed,
            false => Seen::Unchanged,
        }
    }

    /// Has another shard execute a transaction. Commands about the connection are executed before, and taken back if the
    /// others do not happen; nothing more is executed until that is known.
    ///
    /// # Errors
    /// Their replies are too much to be handed over, or take too long.
    fn forward_transaction(
        &mut self,
        connection: &mut Connection,
        transaction: &Transaction,
        to: ShardId,
    ) -> Result<(), ClientError> {
        let before = transaction.changes_session.then(|| connection.session());
        let protocol = connection.protocol;
        self.begin_pace();
        let request = self.request_of_transaction(connection, transaction);
        self.end_pace();
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                before
                    .into_iter()
                    .for_each(|before| self.take_back(connection, before));
                return Err(error);
            }
        };
        let ticket = connection.outbox.await_reply(None);
        if let Some(before) = before {
            connection.undecided = Some(Box::new((ticket, before)));
            connection.settling = true;
        }
        let kind = Kind::Transaction;
        self.forward_as(kind, to, connection, (ticket, 0), protocol, &request);
        Ok(())
    }

    /// The request as which another shard gets a transaction.
    fn request_of_transaction(
        &mut self,
        connection: &mut Connection,
        transaction: &Transaction,
    ) -> Result<Vec<u8>, ClientError> {
        let flags = match transaction.watched_at {
            Some(_) => WATCHES,
            None => b"",
        };
        // Messages leave where it is decided whether the others happen.
        let is_of_keys =
            |spec: &Spec| spec.acts_on_keys() || spec.counts_keys() || is_published(spec.cmd);
        let is_free = self.limited_user(connection).is_none();
        let mut commands = transaction.commands();
        if is_free && commands.all(|(queued, _)| is_of_keys(queued.spec)) {
            return Ok(transaction.request(b"EXEC", flags));
        }
        let commands = transaction.commands();
        let mut request = transaction::begin_request(b"EXEC", flags, commands.len());
        for (queued, source) in commands {
            let part = match is_of_keys(queued.spec) {
                true => self.part_to_forward(connection, queued.spec, source),
                false => {
                    let answer = self.answer_part(connection, queued.spec, source);
                    Cow::Owned([marks(connection.protocol), &answer].concat())
                }
            };
            reply::bulk(&mut request, &part);
            self.step()?;
            if request.len() > QUERY_BYTES_MAX {
                return Err(ClientError::TransactionTooLarge(QUERY_BYTES_MAX));
            }
        }
        Ok(request)
    }

    /// A command of a transaction as another shard gets it, or the reply that its user may not send it any more.
    fn part_to_forward<'a>(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        source: &'a [u8],
    ) -> Cow<'a, [u8]> {
        match self.may_be_forwarded(connection, spec, source) {
            Ok(None) => Cow::Borrowed(source),
            Ok(Some(user)) => {
                let head = format!("{}{user}\n", char::from(AS_USER));
                Cow::Owned([head.as_bytes(), source].concat())
            }
            Err(error) => {
                self.stats().count_error(error.code());
                let mut answer = marks(connection.protocol).to_vec();
                error.write(&mut answer);
                Cow::Owned(answer)
            }
        }
    }

    /// Whether a client still may have another shard execute a command that it has queued; the id of its user, if the
    /// command is a script that may not do everything.
    ///
    /// # Errors
    /// [`ClientError::NoPermissionAtExec`].
    #[expect(clippy::unreachable, reason = "what is queued was parsed before")]
    fn may_be_forwarded(
        &self,
        connection: &mut Connection,
        spec: &'static Spec,
        source: &[u8],
    ) -> Result<Option<u64>, ClientError> {
        let Some(user) = self.limited_user(connection) else {
            return Ok(None);
        };
        let mut args = Args::new();
        match request::parse(source, &RequestLimits::DEFAULT, &mut args) {
            Ok(Parsed::Command { .. }) => {}
            other => unreachable!("{other:?} was queued, not one command"),
        }
        self.check_queued(connection, spec, &Request::new(&args, source))?;
        Ok(spec.counts_keys().then(|| user.id()))
    }

    /// Executes a transaction of another shard's connection if all its keys are here, or leads it on.
    pub(crate) fn exec_of_peer(
        &mut self,
        asker: &mut Asker<'_>,
        forwarded: &Forwarded,
        request: &Request<'_>,
        source: &[u8],
    ) -> Result<Answer, ClientError> {
        let watches = request.arg(1) == WATCHES;
        let executed = self.try_exec_of_peer(asker, forwarded, request, source);
        let waits = matches!(
            executed,
            Ok(Answer::Held | Answer::LogBehind) | Err(ClientError::LargeReplies)
        );
        if watches && !waits {
            self.keyspace.unwatch(forwarded.client);
        }
        executed
    }

    #[expect(clippy::unreachable, reason = "what a shard forwards it has parsed")]
    fn try_exec_of_peer(
        &mut self,
        asker: &mut Asker<'_>,
        forwarded: &Forwarded,
        request: &Request<'_>,
        source: &[u8],
    ) -> Result<Answer, ClientError> {
        let Asker::Peer { out, gate, .. } = asker else {
            return Err(ClientError::ExecWithoutMulti);
        };
        let (mut slots, mut args) = (Slots::default(), Args::new());
        let (mut writes, mut may_write, mut is_denied_on_oom) = (false, false, false);
        for index in 2..request.len() {
            let (_, part) = of_user(request.arg(index));
            if part.first() == Some(&b'=') {
                continue;
            }
            match request::parse(part, &RequestLimits::DEFAULT, &mut args) {
                Ok(Parsed::Command { consumed }) if consumed == part.len() => {}
                other => unreachable!("a peer forwarded {other:?}, not one command"),
            }
            let command = Request::new(&args, part);
            let spec = spec::resolve(&command)?;
            writes |= spec.is_write();
            may_write |= spec.may_write();
            is_denied_on_oom |= spec.is_denied_on_oom();
            for key in spec.keys_of(&command) {
                slots.add(slot_of(command.arg(key)));
            }
        }
        if may_write && self.is_log_behind(self.id) {
            return Ok(Answer::LogBehind);
        }
        self.refuse_transaction_if_full(writes, is_denied_on_oom)?;
        let watches = request.arg(1) == WATCHES;
        let slots = slots.all();
        if let Some(&first) = slots.first() {
            self.router.check_serving()?;
            match self.lead_of_transaction(slots) {
                Lead::All(Place::Here) => {}
                Lead::All(Place::Held) => return Ok(Answer::Held),
                Lead::All(Place::Shard(_)) if watches => {
                    out.extend_from_slice(&nothing_done(forwarded.protocol));
                    return Ok(Answer::Written);
                }
                Lead::All(Place::Shard(shard)) => return self.relay_on(shard, forwarded, source),
                Lead::All(Place::Away(owner)) => {
                    self.write_moved_away(first, owner, out)?;
                    return Ok(Answer::Written);
                }
                Lead::Divided => return Err(ClientError::TransactionOfShards),
                Lead::Torn => return Err(ClientError::CrossSlot),
            }
        }
        if watches {
            match self.seen(forwarded.client) {
                Seen::Unchanged => {}
                Seen::Held => return Ok(Answer::Held),
                Seen::Changed => {
                    out.extend_from_slice(&nothing_done(forwarded.protocol));
                    return Ok(Answer::Written);
                }
            }
        }
        let parts = (2..request.len()).map(|index| {
            let (user, part) = of_user(request.arg(index));
            match part {
                [b'=', b'3', answer @ ..] => Part::Reply(answer, Protocol::Resp3),
                [b'=', _, answer @ ..] => Part::Reply(answer, Protocol::Resp2),
                source => Part::Command {
                    spec: None,
                    located: None,
                    source,
                    user,
                },
            }
        });
        let together = Together {
            connection: None,
            client: forwarded.client,
            protocol: forwarded.protocol,
            tracks: forwarded.tracks,
        };
        let lsn = self.execute_together(together, parts, out)?;
        **gate = lsn.max(**gate);
        Ok(Answer::Written)
    }

    /// WATCH, which is not behind MULTI.
    pub(crate) fn watch(
        &mut self,
        connection: &mut Connection,
        scope: Scope,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<Step, ClientError> {
        self.router.check_serving()?;
        let hashes = (1..request.len()).map(|index| self.keyspace.locate(request.arg(index)).hash);
        let hashes: Vec<u64> = hashes.collect();
        let transaction = connection.transaction.as_deref();
        let watched = transaction.map(|transaction| &transaction.watched);
        let is_new = |hash: &&u64| watched.is_none_or(|watched| !watched.contains(hash));
        if watched.map_or(0, HashSet::len) + hashes.iter().filter(is_new).count() > WATCHED_MAX {
            return Err(ClientError::TooManyWatched(WATCHED_MAX));
        }
        let at = match self.route(scope, spec, request)? {
            Route::Here(_) => self.id,
            Route::Shard(shard) => shard,
            Route::Held => return self.admission.holds.step_of_held(),
            Route::Split => return Err(ClientError::TransactionOfShards),
            Route::Moved(slot, owner) => {
                let moved = self.moved(connection, slot, owner)?;
                connection.outbox.write(self.turn, |out| {
                    out.extend_from_slice(&moved);
                    ephesus_wire::Lsn::ZERO
                });
                return Ok(Step::Redirected);
            }
        };
        let watched_at = transaction.and_then(|transaction| transaction.watched_at);
        if watched_at.is_some_and(|shard| shard != at) {
            return Err(ClientError::TransactionOfShards);
        }
        connection.is_remembered = true;
        let transaction = self.transaction_of(connection);
        transaction.watched.extend(hashes);
        transaction.watched_at = Some(at);
        if at == self.id {
            self.watch_here((self.id, connection.token), request);
            connection.outbox.write(self.turn, |out| {
                out.extend_from_slice(reply::OK);
                ephesus_wire::Lsn::ZERO
            });
        } else {
            let place = (connection.outbox.await_reply(None), 0);
            let (protocol, encoded) = (connection.protocol, request.encoded());
            self.forward_as(Kind::Watch, at, connection, place, protocol, &encoded);
        }
        Ok(Step::Done)
    }

    fn watch_here(&mut self, client: Client, request: &Request<'_>) {
        for index in 1..request.len() {
            let key = self.keyspace.key(request.arg(index));
            self.keyspace.watch(client, &key);
        }
    }

    /// Watches keys for the client of another shard. If they are not here any more, its next EXEC does nothing, and by the
    /// one behind it the routes have come.
    pub(crate) fn watch_of_peer(
        &mut self,
        asker: &mut Asker<'_>,
        forwarded: &Forwarded,
        request: &Request<'_>,
    ) -> Result<Answer, ClientError> {
        self.router.check_serving()?;
        match self.lead(spec::Cmd::Watch.spec(), request) {
            Lead::All(Place::Here) => self.watch_here(forwarded.client, request),
            Lead::All(Place::Held) => return Ok(Answer::Held),
            _ => self.keyspace.watch_elsewhere(forwarded.client),
        }
        if let Asker::Peer { out, .. } = asker {
            out.extend_from_slice(reply::OK);
        }
        Ok(Answer::Written)
    }

    /// Forgets what the client of another shard watches, and answers what that one says.
    pub(crate) fn unwatch_of_peer(
        &mut self,
        asker: &mut Asker<'_>,
        forwarded: &Forwarded,
        request: &Request<'_>,
    ) -> Result<Answer, ClientError> {
        self.keyspace.unwatch(forwarded.client);
        if let Asker::Peer { out, .. } = asker {
            out.extend_from_slice(request.arg(1));
        }
        Ok(Answer::Written)
    }
}

#[cfg(test)]
mod tests;
