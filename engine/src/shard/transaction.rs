//! What a client has queued behind MULTI, and what it watches.
//!
//! The queue is the body of the one request as which another shard gets the whole transaction: each command is an
//! argument of it.
//!
//! ```text
//! $<length>\r\n *<args>\r\n...command...\r\n \r\n
//! ```

use std::collections::HashSet;

use ephesus_wire::limits::{ARGS_MAX, BUFFER_KEPT_BYTES, QUERY_BYTES_MAX};
use ephesus_wire::resp::reply;
use ephesus_wire::{Database, ShardId, Slot};

use crate::command::error::ClientError;
use crate::command::parse::{ArgList, Located, Request};
use crate::command::spec::{Cmd, Spec};
use crate::shard::connection::session::changes_session;
use crate::shard::core::admission::waiting::covers_shards;
use crate::shard::core::execution::pubsub::is_published;

/// What one queue may take: it fits a request with some bytes more.
pub const QUEUE_BYTES_MAX: usize = QUERY_BYTES_MAX - 4096;

/// Commands of one transaction.
pub const QUEUED_MAX: usize = ARGS_MAX / 2;

/// Keys that a client watches at once.
pub const WATCHED_MAX: usize = 1 << 14;

/// What a watched key takes at the shard where it is watched, about.
const WATCHED_BYTES: usize = 128;

/// Slots from which on those that were noted twice are looked for.
const SLOTS_REVIEWED: usize = 256;

/// A connection's transaction, from WATCH or MULTI on.
#[derive(Debug, Default)]
pub struct Transaction {
    /// Commands are queued.
    pub is_open: bool,
    /// The turn of MULTI.
    pub turn: u64,
    /// One of them was refused: EXEC will be.
    is_refused: bool,
    queue: Vec<u8>,
    commands: Vec<Queued>,
    pub slots: Slots,
    pub writes: bool,
    /// One of them may write by what it carries out.
    pub may_write: bool,
    /// Messages are sent by one of them.
    pub publishes: bool,
    pub is_denied_on_oom: bool,
    /// CLIENT PAUSE WRITE holds one of them back.
    pub is_paused_with_writes: bool,
    /// A command is about all keys of the shard, or removes them.
    pub is_over_all: bool,
    pub flushes: bool,
    /// A command changes what its connection is.
    pub changes_session: bool,
    /// What a queued SELECT will select.
    pub database: Option<Database>,
    /// Keys that are watched, by their hashes, and where.
    pub watched: HashSet<u64, ahash::RandomState>,
    pub watched_at: Option<ShardId>,
}

/// A queued command: where it is in the queue, and what it asks for.
#[derive(Clone, Copy, Debug)]
pub struct Queued {
    start: u32,
    len: u32,
    pub spec: &'static Spec,
    pub located: Option<Located>,
}

impl Transaction {
    /// Memory that it takes, here and where keys are watched.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Transaction>()
            + self.queue.capacity()
            + self.commands.capacity() * size_of::<Queued>()
            + self.slots.slots.capacity() * size_of::<Slot>()
            + self.watched.len() * WATCHED_BYTES
    }

    /// Memory of the queue.
    #[must_use]
    pub fn queue_bytes(&self) -> usize {
        self.queue.capacity() + self.commands.capacity() * size_of::<Queued>()
    }

    /// Commands that are queued; `None` without MULTI.
    #[must_use]
    pub fn queued(&self) -> Option<usize> {
        self.is_open.then_some(self.commands.len())
    }

    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// A command was refused while commands are queued: none of them will be executed.
    pub fn refuse(&mut self) {
        self.is_refused = self.is_open;
        self.queue = Vec::new();
        self.commands = Vec::new();
    }

    /// Queues a command.
    ///
    /// # Errors
    /// [`ClientError::TransactionTooLarge`].
    pub fn push(
        &mut self,
        spec: &'static Spec,
        request: &Request<'_>,
        source: &[u8],
    ) -> Result<(), ClientError> {
        if self.is_refused {
            return Ok(());
        }
        let command = request.as_array(source);
        if self.queue.len() + command.len() > QUEUE_BYTES_MAX - 32
            || self.commands.len() >= QUEUED_MAX
        {
            return Err(ClientError::TransactionTooLarge(QUEUE_BYTES_MAX));
        }
        reply::bulk(&mut self.queue, &command);
        self.commands.push(Queued {
            start: (self.queue.len() - command.len() - 2) as u32,
            len: command.len() as u32,
            spec,
            located: request.located().filter(|_| spec.first_key() == 1),
        });
        self.writes |= spec.is_write();
        self.may_write |= spec.may_write();
        self.publishes |= is_published(spec.cmd);
        self.is_denied_on_oom |= spec.is_denied_on_oom();
        self.is_paused_with_writes |= spec.is_paused_with_writes();
        self.is_over_all |= covers_shards(spec.cmd);
        self.flushes |= matches!(spec.cmd, Cmd::Flushall | Cmd::Flushdb);
        self.changes_session |= changes_session(spec.cmd);
        Ok(())
    }

    /// The commands in order, with their bytes.
    pub fn commands(&self) -> impl ExactSizeIterator<Item = (&Queued, &[u8])> {
        self.commands.iter().map(|queued| {
            let start = queued.start as usize;
            let command = self.queue.get(start..start + queued.len as usize);
            (queued, command.unwrap_or_default())
        })
    }

    /// All of it as one request of another shard, `flags` before the commands.
    #[must_use]
    pub fn request(&self, name: &[u8], flags: &[u8]) -> Vec<u8> {
        let mut request = begin_request(name, flags, self.commands.len());
        request.extend_from_slice(&self.queue);
        request
    }

    /// Ready for another MULTI, with some of its room.
    pub fn clear(&mut self) {
        let Transaction {
            queue,
            commands,
            slots: Slots { slots },
            ..
        } = self;
        queue.clear();
        queue.shrink_to(BUFFER_KEPT_BYTES);
        commands.clear();
        commands.shrink_to(BUFFER_KEPT_BYTES / size_of::<Queued>());
        slots.clear();
        *self = Transaction {
            queue: std::mem::take(queue),
            commands: std::mem::take(commands),
            slots: Slots {
                slots: std::mem::take(slots),
            },
            ..Transaction::default()
        };
    }
}

/// The beginning of a request of another shard, in front of `count` arguments.
#[must_use]
pub fn begin_request(name: &[u8], flags: &[u8], count: usize) -> Vec<u8> {
    let mut request = Vec::new();
    reply::array(&mut request, count + 2);
    reply::bulk(&mut request, name);
    reply::bulk(&mut request, flags);
    request
}

/// The slots of a transaction's keys.
#[derive(Debug, Default)]
pub struct Slots {
    slots: Vec<Slot>,
}

impl Slots {
    pub fn add(&mut self, slot: Slot) {
        if self.slots.last() == Some(&slot) {
            return;
        }
        self.slots.push(slot);
        if self.slots.len() >= SLOTS_REVIEWED && self.slots.len().is_power_of_two() {
            self.review();
        }
    }

    fn review(&mut self) {
        self.slots.sort_unstable_by_key(|slot| slot.0);
        self.slots.dedup();
    }

    /// Each of them once.
    pub fn all(&mut self) -> &[Slot] {
        self.review();
        &self.slots
    }

    #[must_use]
    pub fn first(&self) -> Option<Slot> {
        self.slots.first().copied()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}
