//! One client's connection: what it has sent, what it is owed, and how far it is closed.

pub mod session;

use std::net::SocketAddr;
use std::os::fd::RawFd;

use ephesus_wire::limits::{INPUT_BYTES_MAX, PREAUTH_QUERY_BYTES_MAX};
use ephesus_wire::resp::reply::Protocol;
use ephesus_wire::resp::request::Args;
use ephesus_wire::{Database, ShardId};

use self::session::Session;
use super::input::{Input, KEPT_BYTES};
use super::transaction::Transaction;
use crate::acl::Identity;
use crate::command::client::ClientInfo;
use crate::command::spec::Cmd;
use crate::command::tracking::Tracker;
use crate::keyspace::large_replies::Room;
use crate::net::{ConnToken, ListenerKind};
use crate::shard::core::admission::unread::Unread;
use crate::shard::core::execution::pubsub::subscriptions::{Kind, Subscriptions};
use crate::shard::core::execution::walks::Presence;
use crate::shard::core::replies::outbox::{End, Outbox, Ticket};
use crate::shard::mesh::Scope;
use crate::tls::Session as TlsSession;

/// Bytes of unexecuted input from which on a blocked connection's socket is not read.
pub const BLOCKED_INPUT_BYTES: usize = 64 * 1024;

/// Bytes of replies that are not sent from which on a connection's next command waits; before its password
/// [`PREAUTH_QUERY_BYTES_MAX`].
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Bytes of replies that are not sent from which on it is looked at whether the client takes them.
const UNREAD_BYTES_MIN: usize = 64 << 10;

/// Bytes of commands that other shards may owe a connection answers to; then its next one waits.
pub const ASKED_BYTES_MAX: usize = 256 << 10;

/// Input of one connection after which others have their turn, and its replies leave.
pub const TURN_BYTES: usize = 64 << 10;

/// Input that a command without keys counts as beside its own: it may look at a lot, whatever it says.
pub const KEYLESS_BYTES: usize = 1 << 10;

/// Bytes that are handed to the kernel at once: each time it has taken them, the client has made progress.
const SEND_BYTES: usize = 256 << 10;

/// Why a connection executes nothing for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// That shard owes too many answers.
    Peer(ShardId),
    /// The next command's keys are held.
    Hold,
    /// Replies are owed that the next command must not overtake.
    Settling,
    /// What was executed for it before has to be committed: the next command tells others of it.
    Commit,
    /// The client has to read first.
    Output,
    /// It has had its share of this turn.
    NextTurn,
    /// The next one is a script or a transaction, and such have had their share of this turn, or wait before it.
    LongTurn,
    /// There is no room for the next command's large reply.
    ReplyRoom,
    /// That shard's log has too much that is not committed, or is over its budget.
    Log(ShardId),
    /// Clients are paused; or those are that write, as the next command does.
    Pause { writes: bool },
}

/// How far a connection is closed.
///
/// ```text
/// Open -> Draining (QUIT, end of input, protocol error: replies still leave) -> Dead
/// Open | Draining -> Dead (reset, over a limit, shutdown)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Open,
    Draining,
    Dead,
}

/// A connection of this shard.
pub struct Connection {
    pub token: ConnToken,
    pub id: u64,
    pub fd: RawFd,
    pub kind: ListenerKind,
    pub remote: SocketAddr,
    pub local: SocketAddr,
    pub accepted_ms: u64,
    pub active_ms: u64,
    /// Bytes that no complete command has been made of yet.
    pub input: Input,
    /// What was parsed of the large request that `input` begins with.
    pub begun: Option<Box<Args>>,
    /// Length of `input` from which on another look is worth it.
    pub needed: usize,
    pub outbox: Outbox,
    /// Bytes of commands that other shards owe answers to.
    pub asked_bytes: usize,
    /// Shards that execute no more of the client's commands until it has read, and the first reply that they
    /// have not made.
    pub stopped: Vec<(ShardId, Ticket)>,
    /// Bytes that leave next; must not change while the kernel is `sending_now`.
    pub sending: Vec<u8>,
    /// Room of them once the connection is cut off.
    pub last_sent: Room,
    /// How many of them the kernel has taken.
    pub sent: usize,
    /// A send is outstanding in the ring.
    pub sending_now: bool,
    /// Whether the client takes its replies, as far as that matters.
    pub unread: Unread,
    /// The last turn in which input was executed, and how much of it.
    executed: (u64, usize),
    pub life: Life,
    pub blocked: Option<Blocked>,
    /// Nothing is executed until what is owed now has come.
    pub settling: bool,
    /// What is executed has come together with other commands.
    pub is_pipelining: bool,
    /// It has asked for a walk: shards are told when its client leaves.
    pub walks: bool,
    /// It has watched keys, or keys that it has read are noted: shards are told when its client leaves, too.
    pub is_remembered: bool,
    /// What they were told.
    pub presence_told: Presence,
    /// The client has sent its last byte.
    pub ended: bool,
    /// A receive is outstanding in the ring.
    pub receiving: bool,
    /// The outstanding receive was told to end.
    pub receive_stopping: bool,
    /// The connection is in this turn's list of those to look at.
    pub listed: bool,
    /// The connection waits among the gates.
    pub gated: bool,
    pub protocol: Protocol,
    pub identity: Identity,
    pub database: Database,
    pub readonly: bool,
    /// Others are closed first when clients hold too much.
    pub no_evict: bool,
    pub no_touch: bool,
    /// It sees what clients send.
    pub is_monitor: bool,
    pub last_command: Option<Cmd>,
    /// Between the socket and everything else; none on plain ports.
    pub tls: Option<Box<TlsSession>>,
    /// None at all: nothing.
    pub subscriptions: Option<Box<Subscriptions>>,
    pub attributes: Option<Box<Attributes>>,
    /// What it has said of keys that it may cache; none: nothing.
    pub tracker: Option<Box<Tracker>>,
    /// The end of the outbox when it was told last that nothing of what it has is so any more.
    pub flushed_at: Option<End>,
    /// Another shard is asked whether there is a connection that is told instead; its reply, and what holds if there is.
    pub redirecting: Option<Box<(Ticket, Option<Tracker>)>>,
    /// What is queued behind MULTI, or watched.
    pub transaction: Option<Box<Transaction>>,
    /// Another shard decides whether EXEC has happened: its reply, and what is taken back if it has not.
    pub undecided: Option<Box<(Ticket, Session)>>,
}

/// What few clients set.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    pub name: String,
    pub library_name: String,
    pub library_version: String,
}

impl Attributes {
    /// Bytes that are allocated for them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Attributes>()
            + self.name.capacity()
            + self.library_name.capacity()
            + self.library_version.capacity()
    }
}

impl Connection {
    #[must_use]
    pub fn new(
        token: ConnToken,
        id: u64,
        fd: RawFd,
        kind: ListenerKind,
        addresses: (SocketAddr, SocketAddr),
        now_ms: u64,
    ) -> Connection {
        Connection {
            token,
            id,
            fd,
            kind,
            remote: addresses.0,
            local: addresses.1,
            accepted_ms: now_ms,
            active_ms: now_ms,
            input: Input::default(),
            begun: None,
            needed: 1,
            outbox: Outbox::default(),
            asked_bytes: 0,
            stopped: Vec::new(),
            sending: Vec::new(),
            last_sent: Room::default(),
            sent: 0,
            sending_now: false,
            unread: Unread::default(),
            executed: (0, 0),
            life: Life::Open,
            blocked: None,
            settling: false,
            is_pipelining: false,
            walks: false,
            is_remembered: false,
            presence_told: Presence::Here,
            ended: false,
            receiving: false,
            receive_stopping: false,
            listed: false,
            gated: false,
            protocol: Protocol::Resp2,
            identity: Identity::default(),
            database: Database::ZERO,
            readonly: false,
            no_evict: false,
            no_touch: false,
            is_monitor: false,
            last_command: None,
            tls: None,
            subscriptions: None,
            attributes: None,
            tracker: None,
            flushed_at: None,
            redirecting: None,
            transaction: None,
            undecided: None,
        }
    }

    /// Whether commands may be executed.
    #[must_use]
    pub fn executes(&self) -> bool {
        self.life == Life::Open && self.blocked.is_none()
    }

    /// What its commands cover.
    #[must_use]
    pub fn scope(&self) -> Scope {
        match self.kind {
            ListenerKind::Entry => Scope::Node,
            ListenerKind::Direct => Scope::Shard,
        }
    }

    /// The database of the next command: behind MULTI the one that was selected there, once that is executed.
    #[inline]
    #[must_use]
    pub fn next_database(&self) -> Database {
        let transaction = self.transaction.as_ref();
        transaction
            .and_then(|transaction| transaction.database)
            .unwrap_or(self.database)
    }

    /// Whether commands are queued.
    #[inline]
    #[must_use]
    pub fn is_in_transaction(&self) -> bool {
        let transaction = self.transaction.as_ref();
        transaction.is_some_and(|transaction| transaction.is_open)
    }

    /// Whether the socket should be read.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        let input_max = match self.blocked {
            None => usize::MAX,
            Some(_) if self.identity.owes_password() => PREAUTH_QUERY_BYTES_MAX,
            // Who sends everything before it reads anything must not hang.
            Some(Blocked::Output) if self.unread.is_stuck => INPUT_BYTES_MAX,
            Some(_) => BLOCKED_INPUT_BYTES,
        };
        let is_turn_due = self.tls.as_ref().is_some_and(|tls| tls.is_waiting());
        self.life == Life::Open && !self.ended && !is_turn_due && self.input.len() < input_max
    }

    /// Input that may still be executed in this turn, bytes.
    pub fn turn_bytes_left(&mut self, turn: u64) -> usize {
        if self.executed.0 != turn {
            self.executed = (turn, 0);
        }
        TURN_BYTES.saturating_sub(self.executed.1)
    }

    /// Input was executed in the turn of the last [`Connection::turn_bytes_left`].
    pub fn note_executed(&mut self, bytes: usize) {
        self.executed.1 = self.executed.1.saturating_add(bytes);
    }

    /// Whether another command may be executed in this turn.
    #[must_use]
    pub fn has_turn(&self, turn: u64) -> bool {
        self.executed.0 != turn
    }

    /// Whether the kernel has nothing outstanding and the descriptor may be closed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.life == Life::Dead && !self.receiving && !self.sending_now
    }

    /// Nothing more is executed; what is owed still leaves.
    pub fn drain(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Draining;
            self.input = Input::default();
            self.begun = None;
        }
    }

    /// Drains once nothing more comes and every complete command is executed.
    pub fn drain_if_ended(&mut self) {
        if self.ended && self.executes() {
            self.drain();
        }
    }

    /// Everything that was owed has left: ends the connection, once the last words of a TLS session have left, too.
    pub fn finish(&mut self) {
        let has_said_all = match &mut self.tls {
            Some(tls) => tls.close(),
            None => true,
        };
        if has_said_all {
            self.kill();
        }
    }

    /// Nothing that the client says is understood any more, and nothing can be said to it but that.
    pub fn end_tls(&mut self) {
        self.drain();
        self.outbox.clear();
        self.sending = Vec::new();
        self.sent = 0;
    }

    /// Encrypts what is to be sent next, if there is none; answers how much of it.
    pub fn encrypt_next(&mut self) -> usize {
        let Some(tls) = &mut self.tls else { return 0 };
        let taken = tls.encrypt(self.sending.get(self.sent..).unwrap_or_default());
        self.sent += taken;
        if taken > 0 {
            self.forget_sent();
        }
        taken
    }

    /// Closes the connection of a client that breaks a limit: it gets a reset at once, whatever it has sent or
    /// has not read. After an ordinary close a client that still sends would hang for minutes.
    pub fn cut_off(&mut self) {
        if self.life != Life::Dead {
            let linger = libc::linger {
                l_onoff: 1,
                l_linger: 0,
            };
            // SAFETY: the descriptor is ours, and the option is plain data of this size.
            unsafe {
                libc::setsockopt(
                    self.fd,
                    libc::SOL_SOCKET,
                    libc::SO_LINGER,
                    std::ptr::from_ref(&linger).cast(),
                    size_of_val(&linger) as libc::socklen_t,
                );
            }
            self.kill();
        }
    }

    /// Nothing more is executed or sent.
    pub fn kill(&mut self) {
        if self.life != Life::Dead {
            self.life = Life::Dead;
            self.input = Input::default();
            self.begun = None;
            self.transaction = None;
            self.outbox.clear();
            if !self.sending_now {
                self.sending = Vec::new();
                self.sent = 0;
            }
            // SAFETY: the descriptor is ours and open until `is_finished`; this makes an outstanding
            // send complete.
            unsafe {
                libc::shutdown(self.fd, libc::SHUT_RDWR);
            }
        }
    }

    /// Memory that the client makes the node hold, as it is allocated. Whatever else a connection comes to keep,
    /// here or elsewhere, is counted here.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        if self.life == Life::Dead {
            // What the kernel still sends from goes with its next completion.
            return 0;
        }
        let attributes = self.attributes.as_deref().map_or(0, Attributes::bytes);
        let transaction = self.transaction.as_deref();
        let subscriptions = self.subscriptions.as_deref();
        let subscriptions = subscriptions.map_or(0, Subscriptions::held_bytes);
        let begun = self.begun.as_deref().map_or(0, Args::held_bytes);
        let undecided = self.undecided.as_deref();
        size_of::<Connection>()
            + begun
            + self.input.held_bytes()
            + self.sending.capacity()
            + self.outbox.held_bytes()
            + self.asked_bytes
            + attributes
            + transaction.map_or(0, Transaction::held_bytes)
            + undecided.map_or(0, |(_, session)| session.held_bytes())
            + self.tracker.as_deref().map_or(0, Tracker::held_bytes)
            + subscriptions
            + self.tls.as_deref().map_or(0, TlsSession::held_bytes)
    }

    /// Bytes of replies that the client has not taken.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        let encrypted = self.tls.as_deref().map_or(0, |tls| tls.outgoing().len());
        self.outbox.bytes() + self.sending.len() - self.sent + encrypted
    }

    /// Whether what is owed has to leave, or to come, before more is done for the client.
    #[inline]
    #[must_use]
    pub fn is_owed_much(&self) -> bool {
        let output_max = match self.identity.owes_password() {
            true => PREAUTH_QUERY_BYTES_MAX,
            false => OUTPUT_BYTES_MAX,
        };
        self.outbox.held_bytes() + self.sending.len() - self.sent >= output_max
            || self.asked_bytes >= ASKED_BYTES_MAX
    }

    /// Whether the client has to take something before `--client-timeout-output` is over.
    #[must_use]
    pub fn must_read(&self) -> bool {
        let is_blocked = self.blocked == Some(Blocked::Output);
        match self.life {
            Life::Open if self.output_bytes() < UNREAD_BYTES_MIN => is_blocked,
            Life::Open | Life::Draining => is_blocked || self.sending_now,
            Life::Dead => false,
        }
    }

    /// What the kernel is to send next.
    #[must_use]
    pub fn next_to_send(&self) -> &[u8] {
        if let Some(tls) = &self.tls {
            return tls.outgoing();
        }
        let rest = self.sending.get(self.sent..).unwrap_or_default();
        rest.get(..SEND_BYTES).unwrap_or(rest)
    }

    /// The kernel has sent so much of [`Connection::next_to_send`].
    pub fn sent(&mut self, bytes: usize) {
        self.unread.has_progress |= bytes > 0;
        match &mut self.tls {
            Some(tls) => tls.sent(bytes),
            None => self.sent += bytes,
        }
        self.forget_sent();
    }

    fn forget_sent(&mut self) {
        if self.sent == self.sending.len() || self.life == Life::Dead {
            self.sent = 0;
            self.sending.clear();
            if self.sending.capacity() > KEPT_BYTES {
                self.sending = Vec::new();
            }
        }
        self.outbox.shrink();
    }

    /// Removes executed input; `input` was taken out while it was executed.
    pub fn keep_rest(&mut self, mut input: Input, executed: usize) {
        if self.life == Life::Open {
            input.remove(executed);
            self.input = input;
        }
    }

    /// Whether the keys are noted that its next command reads.
    #[inline]
    #[must_use]
    pub fn tracks_reads(&self) -> bool {
        let tracker = self.tracker.as_deref();
        tracker.is_some_and(Tracker::tracks_reads)
    }

    /// A command was executed: what CLIENT CACHING has said was said for it, but for commands about clients and those that
    /// are queued.
    pub fn pass_caching(&mut self, is_about_client: bool) {
        if is_about_client || self.is_in_transaction() {
            return;
        }
        if let Some(tracker) = &mut self.tracker {
            tracker.caching = false;
        }
    }

    /// The number in replies about subscriptions of one kind.
    #[must_use]
    pub fn told_count(&self, kind: Kind) -> usize {
        let subscriptions = self.subscriptions.as_deref();
        subscriptions.map_or(0, |subscriptions| subscriptions.told_count(kind))
    }

    /// How many subscriptions of one kind it has.
    #[must_use]
    pub fn subscription_count(&self, kind: Kind) -> usize {
        let subscriptions = self.subscriptions.as_deref();
        subscriptions.map_or(0, |subscriptions| subscriptions.count(kind))
    }

    pub fn attributes_mut(&mut self) -> &mut Attributes {
        self.attributes.get_or_insert_default()
    }

    #[must_use]
    pub fn name(&self) -> &str {
        self.attributes
            .as_ref()
            .map_or("", |attributes| &attributes.name)
    }

    /// Calls `use_info` with what CLIENT LIST and CLIENT INFO show.
    pub fn with_info<T>(&self, now_ms: u64, use_info: impl FnOnce(ClientInfo<'_>) -> T) -> T {
        let (remote, local) = (self.remote.to_string(), self.local.to_string());
        let attributes = self.attributes.as_deref();
        let user = String::from_utf8_lossy(self.identity.name());
        let transaction = self.transaction.as_deref();
        let tracker = self.tracker.as_deref();
        use_info(ClientInfo {
            id: self.id,
            address: &remote,
            local_address: &local,
            fd: self.fd,
            name: self.name(),
            age_seconds: now_ms.saturating_sub(self.accepted_ms) / 1000,
            idle_seconds: now_ms.saturating_sub(self.active_ms) / 1000,
            query_bytes: self.input.len(),
            query_bytes_free: self.input.held_bytes() - self.input.len(),
            queued: transaction.and_then(Transaction::queued),
            queue_bytes: transaction.map_or(0, Transaction::queue_bytes),
            watched: transaction.map_or(0, |transaction| transaction.watched.len()),
            argument_bytes: 0,
            reply_buffer_bytes: self.sending.len() - self.sent,
            reply_pending_bytes: self.outbox.bytes(),
            total_bytes: self.held_bytes(),
            command: self.last_command.map_or("NULL", Cmd::name),
            protocol: self.protocol,
            database: self.database,
            closing: self.life != Life::Open,
            readonly: self.readonly,
            user: &user,
            subscriptions: Kind::ALL.map(|kind| self.subscription_count(kind)),
            no_evict: self.no_evict,
            no_touch: self.no_touch,
            monitors: self.is_monitor,
            tracks: tracker.map(|tracker| tracker.redirect.unwrap_or(0)),
            is_redirect_broken: tracker.is_some_and(|tracker| tracker.is_broken),
            broadcasts: tracker.is_some_and(Tracker::broadcasts),
            library_name: attributes.map_or("", |attributes| &attributes.library_name),
            library_version: attributes.map_or("", |attributes| &attributes.library_version),
        })
    }
}

#[cfg(test)]
mod tests;
