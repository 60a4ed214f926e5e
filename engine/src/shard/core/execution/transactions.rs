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
use ephesus_wire::resp::reply;
use ephesus_wire::{Lsn, Slot, slot_of};

use crate::command::error::ClientError;
use crate::command::parse::{self, ArgList, Located, Request};
use crate::command::spec::{self, Cmd, Spec};
use crate::keyspace::large_replies::LARGE_REPLY_BYTES;
use crate::node::routes::Owner;
use crate::shard::connection::session::Session;
use crate::shard::connection::{Blocked, Connection};
use crate::shard::core::admission::waiting::covers_shards;
use crate::shard::core::execution::functions::changes_functions;
use crate::shard::core::execution::pubsub::is_published;
use crate::shard::core::execution::together::{Part, Together};
use crate::shard::core::routing::route::Route;
use crate::shard::core::{Core, Step};
use crate::shard::mesh::{Kind, Scope};
use crate::shard::transaction::{self, Queued, Transaction};
use crate::table::Prefetch;

/// The reply to a command that is queued.
const QUEUED: &[u8] = b"+QUEUED\r\n";

/// Commands whose keys are loaded at the same time.
const LOADED_COMMANDS: usize = 32;

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
        // It waits for somebody else.
        if spec.cmd == Cmd::Migrate {
            return Err(ClientError::NotInTransaction);
        }
        self.refuse_if_full(spec)?;
        if self.node.is_memory_full() {
            return Err(ClientError::OutOfMemory);
        }
        if spec.acts_on_keys() || spec.keys_of(request).next().is_some() {
            self.router.check_serving()?;
            match self.route(scope, spec, request) {
                Ok(Route::Here(_) | Route::Held | Route::Shard(_)) => {}
                // As Redis, which finds it when the command is executed.
                Err(ClientError::WrongArity(_)) => {}
                Err(error) => return Err(error),
                Ok(Route::Split) => return Err(ClientError::TransactionOfShards),
                Ok(Route::Moved(slot, owner)) => {
                    return self.refuse_moved(connection, spec, slot, owner);
                }
            }
        } else {
            if spec.cmd == Cmd::Debug {
                self.check_debug(connection)?;
            }
            self.check_keyless(scope, spec)?;
        }
        let channel = (spec.cmd == Cmd::Spublish).then(|| slot_of(request.arg(1)));
        if let Some(slot) = channel
            && !self.has_channels_of(scope, slot)
        {
            let owner = self.router.routes.owner(slot);
            return self.refuse_moved(connection, spec, slot, owner);
        }
        let transaction = self.transaction_of(connection);
        let first = transaction.slots.first();
        let located = request.located().filter(|_| spec.first_key() == 1);
        for index in spec.keys_of(request) {
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
        // At the entry port messages reach all shards from any.
        if let Some(slot) = channel.filter(|_| scope == Scope::Shard) {
            transaction.slots.add(slot);
        }
        transaction.push(spec, request, source)?;
        if spec.cmd == Cmd::Select {
            let selected = parse::database(request.arg(1), self.node.settings.databases);
            transaction.database = selected.ok().or(transaction.database);
        }
        Ok(Cow::Borrowed(QUEUED))
    }

    /// Sends a client elsewhere with a command that it would queue; EXEC will be refused.
    fn refuse_moved(
        &mut self,
        connection: &mut Connection,
        spec: &Spec,
        slot: Slot,
        owner: Owner,
    ) -> Result<Cow<'static, [u8]>, ClientError> {
        let moved = self.moved(connection, slot, owner)?;
        self.stats().count_redirection(spec.cmd);
        if let Some(transaction) = &mut connection.transaction {
            transaction.refuse();
        }
        Ok(Cow::Owned(moved))
    }

    /// Refuses what cannot be executed together with other commands.
    fn check_keyless(&self, scope: Scope, spec: &Spec) -> Result<(), ClientError> {
        match spec.cmd {
            Cmd::ClusterMigrateslots
            | Cmd::ClusterGetslotmigrations
            | Cmd::ClusterCancelslotmigrations
            | Cmd::AclLoad
            | Cmd::AclSave => Err(ClientError::NotInTransaction),
            Cmd::Save | Cmd::Shutdown | Cmd::Debug | Cmd::ClientTracking => {
                Err(ClientError::NotInTransaction)
            }
            cmd if changes_functions(cmd) => Err(ClientError::NotInTransaction),
            Cmd::ModuleLoad | Cmd::ModuleLoadex | Cmd::ModuleUnload => Err(ClientError::NoModules),
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
                user: None,
            }
        });
        let before = transaction.changes_session.then(|| connection.session());
        let mut answer = std::mem::take(&mut self.execution.answer);
        let protocol = connection.protocol;
        let together = Together {
            client: (self.id, connection.token),
            connection: Some(connection),
            protocol,
            tracks: false,
        };
        let executed = self.execute_together(together, parts, &mut answer);
        if let Some(before) = before.filter(|_| executed.is_err()) {
            self.take_back(connection, before);
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

    /// What a transaction has said about its connection has not happened.
    pub(crate) fn take_back(&mut self, connection: &mut Connection, before: Session) {
        let subscriptions = connection.take_back(before);
        self.restore_subscriptions(connection, &subscriptions.unwrap_or_default());
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
}
