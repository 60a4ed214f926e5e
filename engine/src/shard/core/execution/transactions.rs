//! Transactions on the shard of their connection: what is queued behind MULTI, and how it is executed.
//!
//! ```text
//! FROM       TO         [by]
//! -          watching   [WATCH]
//! any        queueing   [MULTI]
//! queueing   refused    [a command that is unknown, has a wrong number of arguments, is MOVED, ...]
//! any        -          [EXEC, DISCARD, UNWATCH without MULTI, RESET, the client leaves]
//! ```
//!
//! Where it is executed, [`routing::transactions`](crate::shard::core::routing::transactions) finds out. There its
//! commands are one atomic section: one record of the log, and one reply behind one gate.

use std::borrow::Cow;

use ephesus_wire::limits::BUFFER_KEPT_BYTES;
use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::resp::request::{self, Args, Parsed, RequestLimits};
use ephesus_wire::{Lsn, slot_of};

use crate::command::error::ClientError;
use crate::command::parse::{self, ArgList, Located, Request};
use crate::command::spec::{self, Cmd, Spec};
use crate::keyspace::Reply;
use crate::keyspace::large_replies::LARGE_REPLY_BYTES;
use crate::shard::connection::{Blocked, Connection};
use crate::shard::core::admission::waiting::covers_shards;
use crate::shard::core::execution::pubsub::{is_about_subscriptions, is_published};
use crate::shard::core::routing::route::{Route, check_pairs};
use crate::shard::core::{Asker, Core, Step};
use crate::shard::mesh::{Kind, Scope};
use crate::shard::transaction::{self, Queued, Transaction};
use crate::table::Prefetch;

/// The reply to a command that is queued.
const QUEUED: &[u8] = b"+QUEUED\r\n";

/// Commands whose keys are loaded at the same time.
const LOADED_COMMANDS: usize = 32;

/// What is executed together with others.
pub(crate) enum Part<'a> {
    Command {
        /// If that is known.
        spec: Option<&'static Spec>,
        located: Option<Located>,
        source: &'a [u8],
    },
    /// What another shard has answered already, and the protocol from then on.
    Reply(&'a [u8], Protocol),
}

/// Who has what is executed together.
pub(crate) struct Together<'a> {
    pub connection: Option<&'a mut Connection>,
    pub protocol: Protocol,
}

impl Core {
    /// MULTI, WATCH and what ends both, but for EXEC behind MULTI.
    pub(crate) fn about_transaction(
        &mut self,
        connection: &mut Connection,
        scope: Scope,
        spec: &'static Spec,
        request: &Request<'_>,
    ) -> Result<Step, ClientError> {
        match spec.cmd {
            Cmd::Multi if connection.is_in_transaction() => return Err(ClientError::NestedMulti),
            Cmd::Multi => {
                let turn = self.turn;
                let transaction = self.transaction_of(connection);
                transaction.is_open = true;
                transaction.turn = turn;
                connection.outbox.write(self.turn, |out| {
                    out.extend_from_slice(reply::OK);
                    Lsn::ZERO
                });
            }
            Cmd::Watch if connection.is_in_transaction() => return Err(ClientError::WatchInMulti),
            Cmd::Watch => return self.watch(connection, scope, spec, request),
            Cmd::Exec => return Err(ClientError::ExecWithoutMulti),
            Cmd::Discard if !connection.is_in_transaction() => {
                return Err(ClientError::DiscardWithoutMulti);
            }
            _ => self.end_transaction(connection, reply::OK),
        }
        Ok(Step::Done)
    }

    /// The connection's transaction, which begins if there is none.
    pub(crate) fn transaction_of<'a>(
        &mut self,
        connection: &'a mut Connection,
    ) -> &'a mut Transaction {
        let spare = &mut self.execution.transaction;
        let transaction = &mut connection.transaction;
        transaction.get_or_insert_with(|| spare.take().unwrap_or_default())
    }

    /// Forgets what is queued and what is watched, and answers that.
    pub(crate) fn end_transaction(&mut self, connection: &mut Connection, answer: &[u8]) {
        let transaction = connection.transaction.take();
        let watched_at = transaction.as_ref().and_then(|t| t.watched_at);
        match watched_at {
            Some(shard) if shard != self.id => {
                let ticket = connection.outbox.await_reply(None);
                let protocol = connection.protocol;
                let request = transaction::begin_request(b"UNWATCH", answer, 0);
                let place = (ticket, 0);
                self.forward_as(Kind::Unwatch, shard, connection, place, protocol, &request);
            }
            at => {
                if at.is_some() {
                    self.keyspace.unwatch((self.id, connection.token));
                }
                connection.outbox.write(self.turn, |out| {
                    out.extend_from_slice(answer);
                    Lsn::ZERO
                });
            }
        }
        if let Some(transaction) = transaction {
            self.keep_transaction(transaction);
        }
    }

    /// Keeps the memory of a transaction that is over for the next one.
    pub(crate) fn keep_transaction(&mut self, mut transaction: Box<Transaction>) {
        transaction.clear();
        self.execution.transaction = Some(transaction);
    }

    /// A request that asks for nothing which there is, or with a wrong number of arguments.
    #[cold]
    pub(crate) fn refuse_unknown(
        &mut self,
        connection: &mut Connection,
        request: &Request<'_>,
        error: ClientError,
    ) {
        let name = (!request.is_empty()).then(|| request.arg(0));
        let spec = name.and_then(spec::lookup);
        if spec.is_some_and(|spec| spec.cmd == Cmd::Exec) {
            let error = ClientError::ExecAbortedBy(Box::new(error));
            return self.refuse_exec(connection, &error);
        }
        self.refuse_queued(connection, &error);
    }

    /// Refuses EXEC.
    pub(crate) fn refuse_exec(&mut self, connection: &mut Connection, error: &ClientError) {
        self.stats().count_error(error.code());
        let mut answer = Vec::new();
        error.write(&mut answer);
        self.end_transaction(connection, &answer);
    }

    /// Refuses a command, behind MULTI with all that is queued.
    pub(crate) fn refuse_queued(&mut self, connection: &mut Connection, error: &ClientError) {
        if let Some(transaction) = &mut connection.transaction {
            transaction.refuse();
        }
        self.refuse(connection, error);
    }

    /// What becomes of a command behind MULTI: whether it is done, or has to wait; `None` if it is executed as without
    /// MULTI.
    #[inline(never)]
    pub(crate) fn in_transaction(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        request: &Request<'_>,
        source: &[u8],
    ) -> Option<bool> {
        connection.last_command = Some(spec.cmd);
        let is_write = match &connection.transaction {
            Some(transaction) if spec.cmd == Cmd::Exec => transaction.is_paused_with_writes,
            _ => spec.is_paused_with_writes(),
        };
        if let Some(pause) = &self.admission.pause
            && (pause.is_all || is_write)
        {
            let why = Blocked::Pause { writes: is_write };
            self.admission.blocked.block(connection, why);
            return Some(false);
        }
        if spec.cmd == Cmd::Exec && self.has_long_before() {
            self.admission.blocked.block(connection, Blocked::LongTurn);
            return Some(false);
        }
        match spec.cmd {
            Cmd::Multi | Cmd::Watch | Cmd::Discard | Cmd::Quit | Cmd::Reset => None,
            Cmd::Exec => Some(self.exec(connection)),
            _ => {
                match self.queue(connection, spec, request, source) {
                    Ok(answer) => connection.outbox.write(self.turn, |out| {
                        out.extend_from_slice(&answer);
                        Lsn::ZERO
                    }),
                    Err(error) => self.refuse_queued(connection, &error),
                }
                Some(true)
            }
        }
    }

    /// Queues a command; answers its reply.
    fn queue(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        request: &Request<'_>,
        source: &[u8],
    ) -> Result<Cow<'static, [u8]>, ClientError> {
        let scope = connection.scope();
        self.refuse_if_full(spec)?;
        if self.node.is_memory_full() {
            return Err(ClientError::OutOfMemory);
        }
        if spec.acts_on_keys() {
            self.router.check_serving()?;
            match self.route(scope, spec, request) {
                Ok(Route::Here(_) | Route::Held | Route::Shard(_)) => {}
                // As Redis, which finds it when the command is executed.
                Err(ClientError::WrongArity(_)) => {}
                Err(error) => return Err(error),
                Ok(Route::Split) => return Err(ClientError::TransactionOfShards),
                Ok(Route::Moved(slot, owner)) => {
                    let moved = self.moved(connection, slot, owner)?;
                    if let Some(transaction) = &mut connection.transaction {
                        transaction.refuse();
                    }
                    return Ok(Cow::Owned(moved));
                }
            }
        } else {
            self.check_keyless(scope, spec)?;
        }
        let transaction = self.transaction_of(connection);
        let first = transaction.slots.first();
        let located = request.located().filter(|_| spec.first_key() == 1);
        let keys = match spec.acts_on_keys() {
            true => spec.key_indices(request.len()),
            false => spec.key_indices(0),
        };
        for index in keys {
            let slot = match located {
                Some(located) if index == 1 => located.slot,
                _ => slot_of(request.arg(index)),
            };
            let routes = &self.router.routes;
            let owner = |slot| routes.owner(slot);
            if scope == Scope::Node && first.is_some_and(|first| owner(first) != owner(slot)) {
                return Err(ClientError::TransactionOfShards);
            }
            transaction.slots.add(slot);
        }
        transaction.push(spec, request, source)?;
        if spec.cmd == Cmd::Select {
            let selected = parse::database(request.arg(1), self.node.settings.databases);
            transaction.database = selected.ok().or(transaction.database);
        }
        Ok(Cow::Borrowed(QUEUED))
    }

    /// Refuses what cannot be executed together with other commands.
    fn check_keyless(&self, scope: Scope, spec: &Spec) -> Result<(), ClientError> {
        match spec.cmd {
            // What it may do is decided by where it is executed.
            _ if spec.counts_keys() => Err(ClientError::NotInTransaction),
            Cmd::ClusterMigrateslots
            | Cmd::ClusterGetslotmigrations
            | Cmd::ClusterCancelslotmigrations
            | Cmd::AclLoad
            | Cmd::AclSave => Err(ClientError::NotInTransaction),
            cmd if is_about_subscriptions(cmd) || cmd == Cmd::Save => {
                Err(ClientError::NotInTransaction)
            }
            cmd if is_published(cmd) => Ok(()),
            cmd if covers_shards(cmd) && scope == Scope::Node && self.router.peers.count() > 1 => {
                Err(ClientError::TransactionOverNode)
            }
            _ => Ok(()),
        }
    }

    /// Refuses a transaction with commands for which memory or disk have no room.
    pub(crate) fn refuse_transaction_if_full(
        &self,
        writes: bool,
        is_denied_on_oom: bool,
    ) -> Result<(), ClientError> {
        let refused = match () {
            () if writes && self.node.disk.is_full() => ClientError::DiskFull,
            () if is_denied_on_oom && self.node.is_memory_full() => ClientError::OutOfMemory,
            () => return Ok(()),
        };
        Err(ClientError::ExecAbortedBy(Box::new(refused)))
    }

    /// Executes what a connection of this shard has queued.
    ///
    /// # Errors
    /// See [`Core::execute_together`].
    pub(crate) fn execute_queued(
        &mut self,
        connection: &mut Connection,
        transaction: &Transaction,
    ) -> Result<(), ClientError> {
        // What came in one piece was loaded before it was queued.
        if transaction.turn != self.turn {
            self.prefetch_queued(transaction);
        }
        let parts = transaction.commands().map(|(queued, source)| {
            let Queued { spec, located, .. } = *queued;
            Part::Command {
                spec: Some(spec),
                located,
                source,
            }
        });
        let before = transaction.changes_session.then(|| connection.session());
        let mut answer = std::mem::take(&mut self.execution.answer);
        let protocol = connection.protocol;
        let together = Together {
            connection: Some(connection),
            protocol,
        };
        let executed = self.execute_together(together, parts, &mut answer);
        if let Some(before) = before.filter(|_| executed.is_err()) {
            connection.take_back(before);
        }
        if let Ok(gate) = executed {
            connection.outbox.write(self.turn, |out| {
                if out.is_empty() && answer.len() >= LARGE_REPLY_BYTES {
                    std::mem::swap(out, &mut answer);
                } else {
                    out.extend_from_slice(&answer);
                }
                gate
            });
        }
        answer.clear();
        answer.shrink_to(BUFFER_KEPT_BYTES);
        self.execution.answer = answer;
        executed.map(|_| ())
    }

    /// Starts loading the keys of queued commands, so that their cache misses overlap.
    fn prefetch_queued(&self, transaction: &Transaction) {
        let located: Vec<Located> = transaction
            .commands()
            .filter_map(|(queued, _)| queued.located)
            .take(LOADED_COMMANDS)
            .collect();
        for step in Prefetch::STEPS {
            for key in &located {
                self.keyspace.prefetch(*key, step);
            }
        }
    }

    /// Executes commands as one: their replies become an array behind `out`, which waits for the LSN that is answered.
    ///
    /// # Errors
    /// Their effects or replies are too much, or, with [`ClientError::LargeReplies`], have to wait. Nothing has happened.
    pub(crate) fn execute_together<'a>(
        &mut self,
        together: Together<'_>,
        parts: impl ExactSizeIterator<Item = Part<'a>>,
        out: &mut Vec<u8>,
    ) -> Result<Lsn, ClientError> {
        let start = out.len();
        let before = self.keyspace.room.begin_joint();
        self.keyspace.begin_atomic(usize::MAX);
        let (protocol, mut gate) = (together.protocol, Lsn::ZERO);
        self.begin_pace();
        let executed = self.execute_parts(together, parts, out, &mut gate);
        self.end_pace();
        let committed = match executed {
            Ok(()) => {
                let mut reply = Reply {
                    out: &mut *out,
                    protocol,
                    gate,
                };
                let committed = self.keyspace.commit_atomic(&mut reply);
                gate = reply.gate;
                committed
            }
            Err(error) => {
                self.keyspace.roll_back_atomic();
                Err(error)
            }
        };
        self.keyspace.room.end_joint(before, committed.is_ok());
        self.publish_joint(committed.is_ok().then_some(gate));
        if committed.is_err() {
            out.truncate(start);
        }
        committed.map(|()| gate)
    }

    fn execute_parts<'a>(
        &mut self,
        together: Together<'_>,
        parts: impl ExactSizeIterator<Item = Part<'a>>,
        out: &mut Vec<u8>,
        gate: &mut Lsn,
    ) -> Result<(), ClientError> {
        let start = out.len();
        let mut room_bytes = LARGE_REPLY_BYTES;
        let Together {
            mut connection,
            mut protocol,
        } = together;
        let mut args = std::mem::take(&mut self.execution.together_args);
        reply::array(out, parts.len());
        for part in parts {
            let before = out.len();
            // HELLO may change it.
            protocol = match (&part, &connection) {
                (Part::Reply(_, protocol), _) => *protocol,
                (_, Some(connection)) => connection.protocol,
                (_, None) => protocol,
            };
            let mut asker = Asker::Transaction {
                connection: connection.as_deref_mut(),
                protocol,
                out,
                gate,
            };
            match self.execute_one_part(&mut asker, &part, &mut args) {
                Ok(()) => {}
                Err(error @ (ClientError::LargeReplies | ClientError::TransactionTime(_))) => {
                    return Err(error);
                }
                Err(error) => {
                    self.stats().count_error(error.code());
                    out.truncate(before);
                    error.write(out);
                }
            }
            self.step()?;
            let bytes = out.len() - start;
            self.check_reply(bytes)?;
            if bytes >= room_bytes {
                self.keyspace.room.take(bytes.max(LARGE_REPLY_BYTES))?;
                room_bytes = 2 * bytes;
            }
            if let Some(error) = self.keyspace.atomic_overflow() {
                return Err(error);
            }
        }
        self.execution.together_args = args;
        Ok(())
    }

    #[expect(clippy::unreachable, reason = "what is queued was parsed before")]
    fn execute_one_part(
        &mut self,
        asker: &mut Asker<'_>,
        part: &Part<'_>,
        args: &mut Args,
    ) -> Result<(), ClientError> {
        let (spec, located, source) = match *part {
            Part::Command {
                spec,
                located,
                source,
            } => (spec, located, source),
            Part::Reply(bytes, _) => {
                if let Asker::Transaction { out, .. } = asker {
                    out.extend_from_slice(bytes);
                }
                return Ok(());
            }
        };
        match request::parse(source, &RequestLimits::DEFAULT, args) {
            Ok(Parsed::Command { consumed }) if consumed == source.len() => {}
            other => unreachable!("{other:?} was queued, not one command"),
        }
        let request = Request::new(args, source).with_located(located);
        let spec = match spec {
            Some(spec) => spec,
            None => spec::resolve(&request)?,
        };
        self.execution.commands += 1;
        self.stats().of(spec.cmd).calls.add(1);
        if !self.execution.timing.has_begun() {
            self.execution.timing.begin(self.node.time.instant());
        }
        self.execution.timing.executed(spec.cmd);
        if spec.acts_on_keys() {
            check_pairs(spec, &request)?;
            let slot = match located {
                Some(located) => located.slot,
                None => slot_of(request.arg(usize::from(spec.first_key()))),
            };
            return self.execute_here(asker, spec, &request, slot);
        }
        match spec.cmd {
            cmd if covers_shards(cmd) => {
                let scope = match asker {
                    Asker::Transaction {
                        connection: Some(connection),
                        ..
                    } => connection.scope(),
                    _ => Scope::Shard,
                };
                self.whole_keyspace(asker, scope, spec, &request)
                    .map(|_| ())
            }
            Cmd::Unwatch => {
                if let Asker::Transaction { out, .. } = asker {
                    out.extend_from_slice(reply::OK);
                }
                Ok(())
            }
            _ => match asker {
                Asker::Transaction {
                    connection: Some(connection),
                    out,
                    ..
                } => {
                    let scope = connection.scope();
                    self.about_server(connection, scope, spec, &request, out)
                }
                _ => Err(ClientError::NotInTransaction),
            },
        }
    }

    /// The reply to a queued command about the connection or the server, for another shard that executes the others.
    pub(crate) fn answer_part(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        source: &[u8],
    ) -> Vec<u8> {
        let (mut out, mut gate) = (Vec::new(), Lsn::ZERO);
        let protocol = connection.protocol;
        let part = Part::Command {
            spec: Some(spec),
            located: None,
            source,
        };
        let mut asker = Asker::Transaction {
            connection: Some(connection),
            protocol,
            out: &mut out,
            gate: &mut gate,
        };
        if let Err(error) = self.execute_one_part(&mut asker, &part, &mut Args::new()) {
            self.stats().count_error(error.code());
            out.clear();
            error.write(&mut out);
        }
        out
    }
}
