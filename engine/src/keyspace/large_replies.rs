//! Room for large replies that belong to no connection, of all shards of a node together.
//!
//! What a connection holds is counted, and the largest is closed when that is too much; but until a reply is in its
//! connection, nobody that is closed would give its memory back. So before a large one is made there has to be room;
//! a command that finds none was not executed, and waits. Room is given back once the reply is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::command::error::ClientError;

/// From this size on a reply is measured before it grows further, and needs room.
pub const LARGE_REPLY_BYTES: usize = 1 << 20;

/// While less is taken, one more large reply is made, whatever its size: so the first always is, and one of the
/// largest does not wait longer than others.
pub(crate) const TAKEN_BYTES_MAX: usize = 8 << 20;

/// How often a shard looks whether there is room again.
pub const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What all shards have taken.
#[derive(Debug, Default)]
pub struct LargeReplies {
    taken: AtomicUsize,
}

impl LargeReplies {
    /// Bytes of large replies that belong to no connection yet, or not any more.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// Room that was taken; dropped, it is given back.
#[derive(Debug, Default)]
pub struct Room {
    of: Option<Arc<LargeReplies>>,
    bytes: usize,
}

impl Room {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn join(&mut self, mut other: Room) {
        match self.of {
            None => *self = other,
            Some(_) => self.bytes += std::mem::take(&mut other.bytes),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(of) = &self.of {
            of.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// One shard's part.
#[derive(Debug, Default)]
pub struct ReplyRoom {
    node: Arc<LargeReplies>,
    /// For the reply that is being made.
    taken: Room,
    is_awaited: bool,
    /// What is made now is part of a reply that was begun: once it has taken room, it takes what it needs.
    is_joint: bool,
}

impl ReplyRoom {
    #[must_use]
    pub fn new(node: Arc<LargeReplies>) -> ReplyRoom {
        ReplyRoom {
            node,
            ..ReplyRoom::default()
        }
    }

    /// Whether a large reply would be made.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.node.taken() < TAKEN_BYTES_MAX
    }

    /// Takes room for a reply of so many bytes; a small one needs none.
    ///
    /// # Errors
    /// [`ClientError::LargeReplies`]: the command has to wait.
    pub fn take(&mut self, bytes: usize) -> Result<(), ClientError> {
        if bytes < LARGE_REPLY_BYTES {
            return Ok(());
        }
        if self.is_joint && !self.taken.is_empty() {
            let more = self.occupy(bytes);
            self.taken.join(more);
            return Ok(());
        }
        let add = |taken| (taken < TAKEN_BYTES_MAX).then_some(taken + bytes);
        let taken = &self.node.taken;
        match taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => {
                let of = Some(Arc::clone(&self.node));
                self.taken.join(Room { of, bytes });
                Ok(())
            }
            Err(_) => {
                self.wait();
                Err(ClientError::LargeReplies)
            }
        }
    }

    /// Begins a reply that several commands make; answers what [`ReplyRoom::end_joint`] needs. Within another such
    /// reply it is a part of that.
    pub fn begin_joint(&mut self) -> Option<Room> {
        if self.is_joint {
            return None;
        }
        self.is_joint = true;
        Some(self.hand_over())
    }

    /// Takes room for a reply that several commands make: from then on none of them has to wait for some.
    ///
    /// # Errors
    /// As [`ReplyRoom::take`].
    pub fn take_joint(&mut self) -> Result<(), ClientError> {
        match self.taken.is_empty() {
            true => self.take(LARGE_REPLY_BYTES),
            false => Ok(()),
        }
    }

    /// The reply is made, or it was given up and needs no room.
    pub fn end_joint(&mut self, before: Option<Room>, is_made: bool) {
        let Some(before) = before else {
            return;
        };
        self.is_joint = false;
        let taken = std::mem::replace(&mut self.taken, before);
        if is_made {
            self.taken.join(taken);
        }
    }

    /// Takes room for bytes that are there already.
    #[must_use]
    pub fn occupy(&self, bytes: usize) -> Room {
        self.node.taken.fetch_add(bytes, Ordering::Relaxed);
        Room {
            of: Some(Arc::clone(&self.node)),
            bytes,
        }
    }

    /// What was taken for the reply that is made now.
    pub fn hand_over(&mut self) -> Room {
        std::mem::take(&mut self.taken)
    }

    /// Whether something has waited for room since this was last asked, and there is some.
    pub fn take_ready(&mut self) -> bool {
        let is_ready = self.is_awaited && self.is_there();
        self.is_awaited &= !is_ready;
        is_ready
    }

    /// Something waits for room.
    pub fn wait(&mut self) {
        self.is_awaited = true;
    }

    /// Whether something waits for room.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }
}
