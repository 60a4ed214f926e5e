//! What a shard decides: commands in, effects on the keyspace and replies out. No I/O happens here;
//! [`super::Shard`] moves the bytes.
//!
//! [`Core::received`] takes what a client has sent, and [`Core::command`] leads each command through four parts;
//! [`Core::forwarded`] leads those of other shards through the last three, and keeps what has to wait in
//! [`admission::deferred`]:
//!
//! 1. [`admission`]: whether it may be executed now, or its connection waits ([`Core::must_wait`]).
//! 2. [`routing`]: whether its keys are here, at another shard of the node, or to be redirected ([`Core::keyed`]); or
//!    that is being decided, and it waits after all ([`admission::holds`]).
//! 3. [`execution`]: what it does to the keyspace, which appends writes to the log ([`Core::execute_here`],
//!    [`Core::keyless`]). Writes are refused here for which disk or memory have no room, and replies wait for room.
//! 4. [`replies`]: its reply lies in the connection's outbox until the log has committed what it tells of
//!    ([`Core::list_once_committed`], [`Core::committed`]).

pub(crate) mod admission;
pub(crate) mod execution;
pub(crate) mod replies;
pub(crate) mod routing;

use std::sync::Arc;
use std::time::Instant;

use ephesus_wire::limits::QUERY_BYTES_MAX;
use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::resp::request::{self, Args, Parsed, RequestLimits};
use ephesus_wire::{Database, Lsn, ShardId};

use self::admission::Admission;
use self::execution::Execution;
use self::replies::PendingReplies;
use self::routing::Router;
use crate::command::error::ClientError;
use crate::command::parse::{ArgList, Request};
use crate::command::spec::{self, Cmd, Spec};
use crate::keyspace::large_replies::ReplyRoom;
use crate::keyspace::{Keyspace, Reply};
use crate::net::ConnToken;
use crate::node::{NodeShared, Routes};
use crate::shard::connection::{Blocked, Connection, KEYLESS_BYTES, Life};
use crate::shard::connections::Connections;
use crate::shard::core::execution::batch::{Batch, Tail};
use crate::shard::core::execution::pubsub::is_allowed_to_subscribers;
use crate::shard::core::execution::timed::Asking;
use crate::shard::core::execution::tracking;
use crate::shard::core::execution::walks::Presence;
use crate::shard::core::replies::log_gates::Committed;
use crate::shard::core::replies::outbox::Mute;
use crate::shard::core::routing::databases;
use crate::shard::mesh::{Client, Forwarded};
use crate::shard::seldom::Seldom;
use crate::shard::stats::ShardStats;
use crate::table::Prefetch;

/// Who asked for a command.
pub(crate) enum Asker<'a> {
    Connection(&'a mut Connection),
    Peer {
        forwarded: &'a Forwarded,
        out: &'a mut Vec<u8>,
        gate: &'a mut Lsn,
    },
    /// A client of this shard, or of another one, whose commands are executed together.
    Transaction {
        connection: Option<&'a mut Connection>,
        client: Client,
        protocol: Protocol,
        /// The client may cache the keys that it reads.
        tracks: bool,
        out: &'a mut Vec<u8>,
        gate: &'a mut Lsn,
    },
}

impl Asker<'_> {
    /// How replies are written.
    pub(crate) fn protocol(&self) -> Protocol {
        match self {
            Asker::Connection(connection) => connection.protocol,
            Asker::Peer { forwarded, .. } => forwarded.protocol,
            Asker::Transaction { protocol, .. } => *protocol,
        }
    }

    /// Who that is, for the shard `here`.
    pub(crate) fn client(&self, here: ShardId) -> Client {
        match self {
            Asker::Connection(connection) => (here, connection.token),
            Asker::Peer { forwarded, .. } => forwarded.client,
            Asker::Transaction { client, .. } => *client,
        }
    }

    /// Whether the client may cache the keys that it reads.
    #[inline]
    pub(crate) fn tracks_reads(&self) -> bool {
        match self {
            Asker::Connection(connection) => connection.tracks_reads(),
            Asker::Peer { forwarded, .. } => forwarded.tracks,
            Asker::Transaction { tracks, .. } => *tracks,
        }
    }

    /// Of which keys a command is that names none.
    pub(crate) fn database(&self) -> Database {
        match self {
            Asker::Connection(connection) => connection.database,
            Asker::Peer { forwarded, .. } => forwarded.database,
            Asker::Transaction { connection, .. } => {
                let connection = connection.as_deref();
                connection.map_or(Database::ZERO, |connection| connection.database)
            }
        }
    }
}

/// Whether the reply is there already.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Written,
    /// It will be delivered by ticket.
    Later,
    /// The command was not executed: it has to wait until it is decided where.
    Held,
    /// It was not executed, as too much waits for the log.
    LogBehind,
    /// It was not executed, as there is no room for its reply.
    NoRoom,
}

/// How far a connection's command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is answered, or its reply has a place.
    Done,
    /// Nothing has happened: it has to wait until it is decided who executes it.
    Held,
    /// Nothing has happened: its client was told who executes it.
    Redirected,
}

/// One shard without its I/O.
pub struct Core {
    pub id: ShardId,
    pub node: Arc<NodeShared>,
    pub keyspace: Keyspace,
    pub connections: Connections,
    /// Connections with something to send or to do at the end of the turn.
    pub listed: Vec<ConnToken>,
    /// Clients that have left this turn, and for which shards may be walking.
    leaving: Vec<(Client, Presence)>,
    next_connection_id: u64,
    pub(crate) turn: u64,
    /// When the turn began.
    now: Instant,
    pub(crate) router: Router,
    pub(crate) admission: Admission,
    pub(crate) execution: Execution,
    pub(crate) replies: PendingReplies,
    /// Some client of the node sees what others send.
    has_monitors: bool,
    told_http: Seldom,
    told_torn: Seldom,
    told_script: Seldom,
}

impl Core {
    #[must_use]
    pub fn new(
        id: ShardId,
        node: Arc<NodeShared>,
        routes: Arc<Routes>,
        mut keyspace: Keyspace,
    ) -> Core {
        keyspace.reply_bytes_max = node.reply_bytes_max();
        keyspace.databases = node.settings.databases;
        keyspace.room = ReplyRoom::new(Arc::clone(&node.large_replies));
        keyspace.set_tracked_limits(tracking::limits(&node));
        let seed = keyspace.key(&id.0.to_le_bytes()).hash;
        let now = node.started;
        let mut core = Core {
            id,
            router: Router::new(&node, routes),
            admission: Admission::new(&node),
            node,
            keyspace,
            connections: Connections::default(),
            listed: Vec::new(),
            leaving: Vec::new(),
            next_connection_id: 1 + u64::from(id.0),
            turn: 0,
            now,
            execution: Execution::new(seed),
            replies: PendingReplies::default(),
            has_monitors: false,
            told_http: Seldom::default(),
            told_torn: Seldom::default(),
            told_script: Seldom::default(),
        };
        core.review_unserved();
        core.node.lease.acts_on(id, core.router.routes.version());
        core
    }

    #[must_use]
    pub fn stats(&self) -> &ShardStats {
        &self.node.stats[self.id]
    }

    /// Ids of connections are unique within the node.
    pub fn next_connection_id(&mut self) -> u64 {
        let id = self.next_connection_id;
        self.next_connection_id += u64::from(self.node.shards());
        id
    }

    /// Begins a turn at `now`, when the node's time is `now_ms`.
    pub fn begin_turn(&mut self, now: Instant, now_ms: u64) {
        self.turn += 1;
        self.now = now;
        self.review_clients_elsewhere();
        self.router.serving = self.node.lease.look(self.id);
        self.keyspace.set_now(now_ms);
        self.review_pause();
        self.tend_sleeps();
        self.has_monitors = self.node.has_monitors();
        self.keyspace.set_events(self.node.live.events());
        self.keyspace.count_slots(self.node.live.slot_stats());
        self.review_hotkeys();
        self.review_prefixes();
        self.review_users();
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
        self.review_prefixes();
        self.stats().net_input_bytes.add(bytes.len() as u64);
        connection.active_ms = self.keyspace.now_ms();
        if connection.life == Life::Open {
            if connection.input.is_empty() && connection.blocked.is_none() {
                let executed = self.execute_all(&mut connection, bytes);
                if connection.life == Life::Open && executed < bytes.len() {
                    connection
                        .input
                        .push(bytes.get(executed..).unwrap_or_default());
                }
            } else {
                connection.input.push(bytes);
                self.execute_input(&mut connection);
            }
        }
        self.put_back(connection);
    }

    /// Takes back a connection whose commands were executed, and looks at what clients hold before others execute theirs:
    /// one command's reply may be half of what they may.
    pub(crate) fn put_back(&mut self, connection: Box<Connection>) {
        let token = connection.token;
        self.connections.put_back(connection);
        self.list(token);
        let room = self.keyspace.room.hand_over();
        self.count_large(room);
    }

    /// The client has sent its last byte: what it has sent before is still executed.
    pub fn input_ended(&mut self, token: ConnToken) {
        if let Some(connection) = self.connections.get_mut(token) {
            connection.ended = true;
            connection.drain_if_ended();
        }
    }

    /// Executes what a connection has kept, if it may and enough of it is there.
    pub(crate) fn execute_input(&mut self, connection: &mut Connection) {
        if connection.executes() && connection.input.len() >= connection.needed {
            let input = std::mem::take(&mut connection.input);
            let executed = self.execute_all(connection, input.rest());
            connection.keep_rest(input, executed);
        }
    }

    /// Executes the complete commands at the start of `bytes` and answers their length.
    pub(crate) fn execute_all(&mut self, connection: &mut Connection, bytes: &[u8]) -> usize {
        let mut batch = std::mem::take(&mut self.execution.batch);
        let mut begun = connection.begun.take();
        let mut at = 0;
        connection.needed = 1;
        while at < bytes.len() && self.has_bytes_left(connection, at) && connection.executes() {
            let (rest, from) = (bytes.get(at..).unwrap_or_default(), at);
            self.identify(connection);
            if !connection.executes() {
                break;
            }
            let behind = match connection.identity.owes_password() {
                false => batch.parse(rest, begun.take()),
                true => batch.parse_one(rest, &RequestLimits::PREAUTH),
            };
            self.prefetch(&mut batch, rest);
            let mut all = true;
            connection.is_pipelining = batch.len() > 1;
            for (index, (args, source)) in batch.commands(rest).enumerate() {
                let located = batch.located().get(index).copied().flatten();
                let request = Request::new(args, source).with_located(located);
                all = self.has_bytes_left(connection, at)
                    && connection.executes()
                    && (args.is_empty() || self.command(connection, &request, source));
                if !all {
                    break;
                }
                if connection.outbox.mute() != Mute::No {
                    connection.outbox.pass_mute();
                }
                if connection.tracker.is_some() {
                    connection.pass_caching(is_about_client(&request));
                }
                at += source.len();
            }
            let is_first_left = at == from && connection.life == Life::Open;
            if !all || !connection.executes() {
                connection.begun = is_first_left.then(|| batch.begun()).flatten();
                break;
            }
            match behind {
                Tail::Unread => {}
                Tail::Incomplete { needed } => {
                    connection.needed = needed;
                    connection.begun = is_first_left.then(|| batch.begun()).flatten();
                    break;
                }
                Tail::Broken(error) => {
                    let text = format!("ERR {error}");
                    connection.outbox.write(self.turn, |out| {
                        reply::error(out, &text);
                        Lsn::ZERO
                    });
                    self.stats().count_error("ERR");
                    connection.drain();
                }
            }
        }
        self.execution.batch = batch;
        self.end_timing();
        self.execution.timing.stop();
        connection.note_executed(at);
        if at < bytes.len() && !self.has_bytes_left(connection, 0) && connection.executes() {
            self.block_for_turn(connection);
        }
        at
    }

    /// Starts loading the keys of pipelined commands, so that their cache misses overlap.
    fn prefetch(&self, batch: &mut Batch, bytes: &[u8]) {
        if batch.len() > 1 {
            batch.locate(bytes, |key| self.keyspace.locate(key));
            for step in Prefetch::STEPS {
                for located in batch.located().iter().flatten() {
                    self.keyspace.prefetch(*located, step);
                }
            }
        }
    }

    /// Executes one command of a connection; false when it has to wait and be tried again.
    fn command(
        &mut self,
        connection: &mut Connection,
        request: &Request<'_>,
        source: &[u8],
    ) -> bool {
        if connection.is_owed_much() {
            self.block_for_output(connection);
            return false;
        }
        let spec = match spec::resolve(request) {
            Ok(spec) => spec,
            Err(_) if spec::is_http(request) => {
                self.close_http(connection);
                return true;
            }
            Err(error) => {
                if let ClientError::WrongArity(name) = error
                    && let Some(spec) = spec::lookup_full(name.as_bytes())
                {
                    self.stats().count_failure(spec.cmd, &error);
                }
                self.refuse_unknown(connection, request, error);
                return true;
            }
        };
        if let Err(error) = self.check_user(connection, spec, request) {
            self.stats().count_failure(spec.cmd, &error);
            self.refuse_queued(connection, &error);
            return true;
        }
        if spec.first_key() > 0 || spec.counts_keys() {
            let databases = (connection.next_database(), self.node.settings.databases);
            if let Some(stored) = databases::stored(databases, spec, request) {
                if stored.len() > QUERY_BYTES_MAX {
                    let error = ClientError::ArgumentTooLong("a request", QUERY_BYTES_MAX);
                    self.refuse_queued(connection, &error);
                    return true;
                }
                return self.command_on_stored(connection, spec, &stored);
            }
        }
        self.resolved(connection, spec, request, source)
    }

    /// Executes a command whose keys are named as they are stored.
    #[cold]
    #[expect(
        clippy::unreachable,
        reason = "it was encoded here, and is not too long"
    )]
    fn command_on_stored(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        source: &[u8],
    ) -> bool {
        let mut args = Args::new();
        match request::parse(source, &RequestLimits::DEFAULT, &mut args) {
            Ok(Parsed::Command { .. }) => {}
            other => unreachable!("{other:?} of an encoded command"),
        }
        let request = Request::new(&args, source);
        self.resolved(connection, spec, &request, source)
    }

    /// Executes a command of which it is known what it is.
    fn resolved(
        &mut self,
        connection: &mut Connection,
        spec: &'static Spec,
        request: &Request<'_>,
        source: &[u8],
    ) -> bool {
        if connection.is_in_transaction()
            && let Some(is_done) = self.in_transaction(connection, spec, request, source)
        {
            if is_done && self.has_monitors {
                self.show_to_monitors(connection, spec, request);
            }
            return is_done;
        }
        if let Some(why) = self.must_wait(connection, spec, request) {
            self.admission.blocked.block(connection, why);
            return false;
        }
        connection.last_command = Some(spec.cmd);
        if connection.subscriptions.is_some() && self.refuses_subscriber(connection, spec) {
            return true;
        }
        if self.has_monitors {
            self.show_to_monitors(connection, spec, request);
        }
        let timed = self.begin_timed(spec, source, connection.is_pipelining);
        let scope = connection.scope();
        let answer = if spec.acts_on_keys() {
            self.keyed(connection, scope, spec, request, source)
        } else if spec.counts_keys() {
            self.keyed_by_count(connection, scope, spec, request, source)
        } else {
            // MULTI looks at nothing, and a client may send many.
            if spec.cmd != Cmd::Multi {
                connection.note_executed(KEYLESS_BYTES);
            }
            self.keyless(connection, scope, spec, request)
        };
        // Not that of whoever comes next.
        let work = self.keyspace.take_work();
        if work > 0 {
            connection.note_executed(work);
        }
        match answer {
            Ok(Step::Done) => {}
            Ok(Step::Held) => {
                self.wait_for_decision(connection);
                return false;
            }
            Ok(Step::Redirected) => {
                self.stats().count_redirection(spec.cmd);
                self.end_uncounted(timed);
                return true;
            }
            Err(ClientError::LargeReplies) => {
                self.admission.blocked.block(connection, Blocked::ReplyRoom);
                return false;
            }
            Err(error) => {
                self.stats().count_failure(spec.cmd, &error);
                self.refuse(connection, &error);
                if error.is_rejection() {
                    self.end_uncounted(timed);
                    return true;
                }
            }
        }
        self.end_timed(timed, Asking::Here(connection), spec, request);
        if spec.counts_keys() {
            self.note_long(connection);
        }
        self.execution.commands += 1;
        self.stats().of(spec.cmd).calls.add(1);
        true
    }

    /// Ends the connection of a client that speaks HTTP: what a web page has it send would be executed.
    #[cold]
    fn close_http(&mut self, connection: &mut Connection) {
        self.stats().http_closed.add(1);
        if let Some(closed) = self.told_http.tell(self.now) {
            tracing::warn!(client = %connection.remote, closed, "closed: it speaks HTTP; possibly a web page attacks this node through a browser");
        }
        connection.cut_off();
    }

    /// Refuses what a client that has subscribed may not send under RESP2.
    #[cold]
    fn refuses_subscriber(&mut self, connection: &mut Connection, spec: &'static Spec) -> bool {
        let is_refused =
            connection.protocol == Protocol::Resp2 && !is_allowed_to_subscribers(spec.cmd);
        if is_refused {
            self.refuse(connection, &ClientError::SubscribedContext(spec.name));
        }
        is_refused
    }

    pub(crate) fn refuse(&mut self, connection: &mut Connection, error: &ClientError) {
        self.stats().count_error(error.code());
        connection.outbox.write(self.turn, |out| {
            error.write(out);
            Lsn::ZERO
        });
    }

    /// Refuses a write that memory or disk have no room for.
    pub(crate) fn refuse_if_full(&self, spec: &Spec) -> Result<(), ClientError> {
        if spec.is_write() {
            if self.node.disk.is_full() {
                return Err(ClientError::DiskFull);
            }
            if spec.is_denied_on_oom() && self.node.is_memory_full() {
                return Err(ClientError::OutOfMemory);
            }
        }
        Ok(())
    }

    /// Whether removals of expired keys may be logged: nobody waits for them, so they respect what writes wait for.
    pub(crate) fn has_room_for_expiry(&self) -> bool {
        !self.admission.log_room.is_behind() && !self.node.disk.is_full()
    }

    /// Most bytes that the reply of one command may have.
    #[must_use]
    pub(crate) fn reply_bytes_max(&self) -> usize {
        self.node.reply_bytes_max()
    }

    /// Refuses a reply that is, or would be, longer than one may be.
    pub(crate) fn check_reply(&self, bytes: usize) -> Result<(), ClientError> {
        let bytes_max = self.reply_bytes_max();
        if bytes > bytes_max {
            Err(ClientError::ReplyTooLarge(bytes_max))
        } else {
            Ok(())
        }
    }

    /// Commits what lies in memory that the kernel keeps when the process dies: with relaxed durability no reply
    /// waits for the disk.
    pub fn publish(&mut self) {
        self.share_prefixes();
        self.send_invalid();
        let now_ms = self.keyspace.now_ms();
        let log = &mut self.keyspace.log;
        if log.committed() < log.publish(now_ms) {
            self.committed();
        }
    }

    /// Publishes the sizes of what is served here: another shard of this node may serve what is staged or left here.
    pub fn publish_sizes(&self) {
        for partition in self.keyspace.all_served() {
            let size = self.node.partition_bytes.get(usize::from(partition.id.0));
            if let Some(size) = size {
                size.set(partition.table.data_bytes());
            }
        }
    }

    /// The log has committed more: what waited for it may leave.
    pub fn committed(&mut self) {
        let committed = self.keyspace.log.committed();
        while let Some(committed) = self.replies.gates.pop(committed) {
            match committed {
                Committed::Connection(token) => {
                    if let Some(connection) = self.connections.get_mut(token) {
                        connection.gated = false;
                    }
                    self.list(token);
                }
                Committed::Replies { to, replies } => self.router.peers[to].answer(replies),
            }
        }
        self.send_outgoing();
        self.send_invalid();
        self.go_on_copying();
    }

    /// Lists the connection again once the log has committed `lsn`.
    pub fn list_once_committed(&mut self, token: ConnToken, lsn: Lsn) {
        if let Some(connection) = self.connections.get_mut(token)
            && !connection.gated
        {
            connection.gated = true;
            self.replies.gates.add_connection(token, lsn);
        }
    }

    /// Sends what this turn has for the peers and publishes the counters.
    pub fn end_turn(&mut self) {
        self.keyspace.remove_lapsed(self.has_room_for_expiry());
        self.publish_events();
        self.share_prefixes();
        self.send_invalid();
        // Before the answers that were made of these copies.
        self.stats().role_changes.set(self.own_role_changes());
        self.tell_who_leaves();
        // Nobody is answered whose keys are not counted.
        self.publish_sums();
        for peer in self.router.peers.iter_mut() {
            peer.send();
        }
        let arrived = std::mem::take(&mut self.admission.client_budget.arrived);
        self.count_large(arrived);
        self.publish_clients();
        if let Some(databases) = self.keyspace.take_changed_databases() {
            self.node.stats[self.id].set_databases(databases);
        }
        let commands = std::mem::take(&mut self.execution.commands);
        self.stats().commands.add(commands);
    }

    /// Publishes how many keys and connections there are, before any reply leaves that could tell of them.
    pub fn publish_sums(&self) {
        let staged = self.keyspace.unserved().iter();
        let staged = staged.filter_map(|id| self.keyspace.partition(*id));
        let staged: usize = staged.map(|copy| copy.table.len()).sum();
        let (stats, keys) = (self.stats(), self.keyspace.len());
        stats.keys.set(keys);
        stats.keys_held.set(keys + staged as u64);
        stats.connections.set(self.connections.len() as u64);
    }

    /// Writes a reply of a command that was executed here.
    #[inline]
    pub(crate) fn respond(
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
            } => write_reply(&mut self.keyspace, forwarded.protocol, out, gate, write),
            Asker::Transaction {
                protocol,
                out,
                gate,
                ..
            } => write_reply(&mut self.keyspace, *protocol, out, gate, write),
        }
    }
}

/// Whether a request is CLIENT and what follows it: what CLIENT CACHING has said is not said for such.
fn is_about_client(request: &Request<'_>) -> bool {
    !request.is_empty()
        && request.arg(0).eq_ignore_ascii_case(b"client")
        && spec::resolve(request).is_ok()
}

/// Has `write` append a reply to `out`, and raises the gate of what is there to what it waits for.
fn write_reply(
    keyspace: &mut Keyspace,
    protocol: Protocol,
    out: &mut Vec<u8>,
    gate: &mut Lsn,
    write: impl FnOnce(&mut Keyspace, &mut Reply<'_>) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    let mut reply = Reply {
        out,
        protocol,
        gate: Lsn::ZERO,
    };
    let outcome = write(keyspace, &mut reply);
    *gate = reply.gate.max(*gate);
    outcome
}
