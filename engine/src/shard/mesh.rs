//! What shards of one node send each other: batches of requests and of replies, one per peer and
//! turn.

use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ephesus_wire::resp::reply::Protocol;
use ephesus_wire::{Database, Epoch, MigrationId, PartitionId, ShardId};

use crate::by_shard::ByShard;
use crate::keyspace::large_replies::Room;
use crate::migration::Order;
use crate::migration::shard::{End, Mail};
use crate::net::{ConnToken, Waker};
use crate::node::Routes;
use crate::node::copying::Outcome;
use crate::node::exchange::Incoming;
use crate::node::slow::SlowCommand;
use crate::shard::core::execution::walks::Presence;
use crate::shard::core::replies::outbox::Ticket;

/// Forwarded bytes that may be unanswered per peer; then the connection that wants more waits.
pub const UNANSWERED_BYTES_MAX: usize = 1 << 20;

/// Bytes of one request that count there: a large one does not stop everybody else.
const COUNTED_BYTES_MAX: usize = 64 << 10;

/// Bytes of replies that may be on their way to one shard; then no more commands are executed for it.
const REPLIES_BYTES_MAX: usize = 4 << 20;

/// Bytes of other nodes' messages that may wait for one shard; more are lost.
const PUBLISHED_BYTES_MAX: usize = 8 << 20;

/// What one shard tells another one about its clients in one turn; more is lost.
const NOTES_MAX: usize = 1024;

/// Bytes that count for every forwarded command on top of its own.
pub const REQUEST_OVERHEAD_BYTES: usize = 64;

/// Which keys a command covers that names none, and what happens to a key of another shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The node, through the entry port: other shards' keys are forwarded.
    Node,
    /// The shard, through its direct port: other shards' keys get MOVED.
    Shard,
    /// On behalf of another shard's entry connection: it has split the keys already.
    Part,
}

/// Where a reply goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// Shard whose connection asked.
    pub shard: ShardId,
    pub conn: ConnToken,
    pub ticket: Ticket,
    /// Which part of a gathered reply; 0 for a reply of its own.
    pub part: u16,
}

/// A client of the node: the shard of its connection, and its place there.
pub type Client = (ShardId, ConnToken);

/// What a shard does with a request of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Executes it.
    Command,
    /// Executes it; it is a script, of the user of that id, who may not do everything.
    CommandOf(u64),
    /// Executes its arguments from the second on; all or none of them. Each is a command, or a script of a user who may
    /// not do everything ([`AS_USER`], its id, a line break, the command), or `=2` or `=3`, which is the client's
    /// protocol from then on, and a reply. The first argument is [`WATCHES`] if nothing is to be done unless what the
    /// client watches is as it was.
    Transaction,
    /// Shows its only argument to those that monitor.
    Monitored,
    /// Tells clients of the shard of keys that they may have cached.
    Tracking,
    /// Notes that the connection whose id is its second argument is told for one of another shard.
    Redirect,
    /// Watches its keys for the client.
    Watch,
    /// Forgets what the client watches; the first argument is the reply.
    Unwatch,
}

/// See [`Kind::Transaction`].
pub const WATCHES: &[u8] = b"w";

/// See [`Kind::Transaction`].
pub const AS_USER: u8 = b'@';

/// One command of a [`Requests`] batch.
#[derive(Clone, Copy, Debug)]
pub struct Forwarded {
    pub origin: Origin,
    /// Whose command it is, or part of one: it must not overtake what that client has sent before.
    pub client: Client,
    pub kind: Kind,
    /// The client may cache the keys that it reads.
    pub tracks: bool,
    pub protocol: Protocol,
    /// Of which keys it is, if it names none.
    pub database: Database,
    /// Bytes of the request in the batch.
    pub len: usize,
    /// The shard that was asked first: it owes the answer, also when others led the command on.
    pub asked: ShardId,
    /// How often it was passed on.
    pub hops: u8,
}

impl Forwarded {
    /// Its answer, of `len` bytes.
    #[must_use]
    pub fn answered(&self, len: usize) -> Answered {
        Answered {
            origin: self.origin,
            len,
            request_len: self.len,
            asked: self.asked,
            is_late: false,
        }
    }
}

/// Commands for another shard, in the order of their connections.
#[derive(Debug, Default)]
pub struct Requests {
    pub bytes: Vec<u8>,
    pub commands: Vec<Forwarded>,
    /// Clients of the shard that have left; their commands came before.
    pub leaving: Vec<(Client, Presence)>,
    /// Clients that were stopped and have read: their commands go on.
    pub resumed: Vec<Client>,
}

/// One reply of a [`Replies`] batch.
#[derive(Debug)]
pub struct Answered {
    pub origin: Origin,
    /// Bytes of the reply in the batch.
    pub len: usize,
    /// Bytes of the request that is answered.
    pub request_len: usize,
    /// The shard that owed the answer.
    pub asked: ShardId,
    /// The lease may have been over when the command was executed: the client is told nothing.
    pub is_late: bool,
}

/// Committed replies for another shard.
#[derive(Debug, Default)]
pub struct Replies {
    pub bytes: Vec<u8>,
    pub answers: Vec<Answered>,
    pub stopped: Vec<Stopped>,
    /// What the log of its clients' shard has to be told.
    pub notes: Vec<(ConnToken, Note)>,
    /// What large ones among them have taken.
    pub room: Room,
}

/// What a shard has seen of another one's client, which alone knows who that is.
#[derive(Debug)]
pub enum Note {
    /// A slow command.
    Slow(Box<SlowCommand>),
    /// A script has tried what its user may not.
    Denied(Box<Refused>),
}

/// What a user may not do, and has tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub reason: &'static str,
    pub object: Box<[u8]>,
    pub user: Box<[u8]>,
}

/// A shard executes no more commands of a client before it is told that the client has read what it was owed.
#[derive(Clone, Copy, Debug)]
pub struct Stopped {
    pub shard: ShardId,
    pub conn: ConnToken,
    /// The first reply that waits for it; 0 if there is none, or it is not one of that connection's.
    pub ticket: Ticket,
}

impl Replies {
    /// Nothing of it is told to clients.
    pub fn make_late(&mut self) {
        for answer in &mut self.answers {
            answer.is_late = true;
        }
    }
}

/// What arrives in a shard's inbox.
#[derive(Debug)]
pub enum Message {
    Requests(Requests),
    Replies(Replies),
    /// Serve these copies, which are new and empty.
    Host(Vec<(PartitionId, Epoch)>),
    /// The table has changed. Copies of this node that it names were given to their shards before.
    Routes(Arc<Routes>),
    /// What the node answers for a shard that has asked it.
    Reply {
        origin: Origin,
        bytes: Vec<u8>,
    },
    /// What the node has this shard do about migrations, in this order.
    Migrate(Vec<Order>),
    /// A target has taken keys of a MIGRATE of this number, or not.
    Copied(u64, Outcome),
    /// A message of another node's client.
    Published(Arc<Incoming>),
    /// Messages of a batch's stream between two shards of this node, for this end of it.
    Stream {
        batch: MigrationId,
        to: End,
        messages: Vec<(MigrationId, Mail)>,
    },
    /// Accept no more connections, answer what was executed, sync and end.
    Stop,
}

/// The way to one shard.
#[derive(Clone, Debug)]
pub struct Peer {
    inbox: flume::Sender<Message>,
    waker: Arc<Waker>,
    /// Bytes of replies that were made for the shard and that it has not taken.
    replies_bytes: Arc<AtomicUsize>,
    /// Bytes of other nodes' messages that it has not taken.
    published_bytes: Arc<AtomicUsize>,
}

impl Peer {
    #[must_use]
    pub fn new(inbox: flume::Sender<Message>, waker: Arc<Waker>) -> Peer {
        Peer {
            inbox,
            waker,
            replies_bytes: Arc::default(),
            published_bytes: Arc::default(),
        }
    }

    /// Bytes of replies that are on their way to the shard.
    #[must_use]
    pub fn replies_bytes(&self) -> usize {
        self.replies_bytes.load(Ordering::Relaxed)
    }

    /// Whether the shard has to take replies before others execute more for it.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.replies_bytes() >= REPLIES_BYTES_MAX
    }

    /// Replies were made for the shard.
    pub fn add_replies(&self, bytes: usize) {
        self.replies_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The shard has taken replies; answers whether others had to wait for that.
    pub fn take_replies(&self, bytes: usize) -> bool {
        self.replies_bytes.fetch_sub(bytes, Ordering::Relaxed) >= REPLIES_BYTES_MAX
            && !self.is_behind()
    }

    /// Gives the shard a message of another node; false if too many wait there already.
    #[must_use]
    pub fn publish(&self, incoming: &Arc<Incoming>) -> bool {
        let has_room = self.published_bytes.load(Ordering::Relaxed) < PUBLISHED_BYTES_MAX;
        if has_room {
            self.published_bytes
                .fetch_add(incoming.bytes(), Ordering::Relaxed);
            self.send(Message::Published(Arc::clone(incoming)));
        }
        has_room
    }

    /// The shard has taken such a message.
    pub fn take_published(&self, incoming: &Incoming) {
        self.published_bytes
            .fetch_sub(incoming.bytes(), Ordering::Relaxed);
    }

    /// Puts a message into the shard's inbox and wakes it. A shard that has ended drops it.
    pub fn send(&self, message: Message) {
        if self.inbox.send(message).is_ok() {
            self.waker.wake();
        }
    }

    #[must_use]
    pub fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }
}

/// What this turn has for one peer, and what the peer still owes.
pub struct PeerQueue {
    peer: Peer,
    requests: Requests,
    replies: Replies,
    unanswered_bytes: usize,
}

impl PeerQueue {
    #[must_use]
    pub fn new(peer: Peer) -> PeerQueue {
        PeerQueue {
            peer,
            requests: Requests::default(),
            replies: Replies::default(),
            unanswered_bytes: 0,
        }
    }

    /// Whether a connection that wants to forward more has to wait.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.unanswered_bytes >= UNANSWERED_BYTES_MAX
    }

    #[cfg(test)]
    pub(super) fn unanswered_bytes(&self) -> usize {
        self.unanswered_bytes
    }

    /// Whether its shard has to take replies first.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.peer.is_behind()
    }

    /// Replies were made that the log has not committed yet, or that are sent now.
    pub fn add_replies(&self, bytes: usize) {
        self.peer.add_replies(bytes);
    }

    /// Forwards a command of which another shard owes the answer.
    pub fn relay_on(&mut self, forwarded: Forwarded, request: &[u8]) {
        self.requests.bytes.extend_from_slice(request);
        self.requests.commands.push(forwarded);
    }

    /// What this turn has answered is not told to clients.
    pub fn make_late(&mut self) {
        self.replies.make_late();
    }

    /// Tells the peer which clients have left.
    pub fn tell_who_leaves(&mut self, leaving: &[(Client, Presence)]) {
        self.requests.leaving.extend_from_slice(leaving);
    }

    /// Tells the peer that a client has read.
    pub fn resume(&mut self, client: Client) {
        self.requests.resumed.push(client);
    }

    pub fn answer(&mut self, mut replies: Replies) {
        if self.replies.bytes.is_empty() {
            self.replies.bytes = replies.bytes;
        } else {
            self.replies.bytes.extend_from_slice(&replies.bytes);
        }
        self.replies.answers.append(&mut replies.answers);
        self.replies.room.join(replies.room);
    }

    /// Tells the peer something about what one of its clients has done.
    pub fn note(&mut self, client: ConnToken, note: Note) {
        if self.replies.notes.len() < NOTES_MAX {
            self.replies.notes.push((client, note));
        }
    }

    /// Tells the peer that no more is executed for a client.
    pub fn tell_stopped(&mut self, stopped: Stopped) {
        self.replies.stopped.push(stopped);
    }

    /// Sends what this turn has collected.
    pub fn send(&mut self) {
        let requests = &self.requests;
        let is_told = !requests.leaving.is_empty() || !requests.resumed.is_empty();
        if is_told || !requests.commands.is_empty() {
            self.peer
                .send(Message::Requests(std::mem::take(&mut self.requests)));
        }
        let replies = &self.replies;
        let has_answers = !replies.answers.is_empty() || !replies.notes.is_empty();
        if has_answers || !replies.stopped.is_empty() {
            let replies = std::mem::take(&mut self.replies);
            self.peer.send(Message::Replies(replies));
        }
    }
}

/// The ways to all shards of the node, by shard; this one's leads nowhere.
pub struct Peers {
    queues: ByShard<PeerQueue>,
    /// How many of them are full.
    full: usize,
}

impl Peers {
    #[must_use]
    pub fn new(peers: &ByShard<Peer>) -> Peers {
        Peers {
            queues: peers.iter().cloned().map(PeerQueue::new).collect(),
            full: 0,
        }
    }

    /// How many shards the node has.
    #[must_use]
    pub fn count(&self) -> usize {
        self.queues.len()
    }

    /// Whether a connection that wants to forward more to some shard has to wait.
    #[must_use]
    pub fn is_any_full(&self) -> bool {
        self.full > 0
    }

    /// Forwards a command to a shard, which owes the answer from now on.
    pub fn forward(&mut self, to: ShardId, forwarded: Forwarded, request: &[u8]) {
        let queue = &mut self.queues[to];
        let was_full = queue.is_full();
        queue.unanswered_bytes += counted_bytes(request.len());
        queue.relay_on(forwarded, request);
        self.full += usize::from(!was_full && queue.is_full());
    }

    /// A shard has answered a request of that many bytes.
    pub fn answered(&mut self, by: ShardId, request_len: usize) {
        let queue = &mut self.queues[by];
        let was_full = queue.is_full();
        queue.unanswered_bytes -= counted_bytes(request_len);
        self.full -= usize::from(was_full && !queue.is_full());
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut PeerQueue> {
        (&mut self.queues).into_iter()
    }

    #[cfg(test)]
    pub(super) fn unanswered_bytes(&self) -> usize {
        self.queues.iter().map(|queue| queue.unanswered_bytes).sum()
    }
}

impl Index<ShardId> for Peers {
    type Output = PeerQueue;

    fn index(&self, shard: ShardId) -> &PeerQueue {
        &self.queues[shard]
    }
}

impl IndexMut<ShardId> for Peers {
    fn index_mut(&mut self, shard: ShardId) -> &mut PeerQueue {
        &mut self.queues[shard]
    }
}

/// What a request counts against the bytes that a peer may owe answers to.
fn counted_bytes(request_len: usize) -> usize {
    request_len.min(COUNTED_BYTES_MAX) + REQUEST_OVERHEAD_BYTES
}
