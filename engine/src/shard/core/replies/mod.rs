//! Where replies wait: for their place in a connection's order, for the log, or for their other parts.

pub(crate) mod gather;
pub(crate) mod late;
pub(crate) mod log_gates;
pub(crate) mod outbox;
pub(crate) mod promised;

use self::log_gates::LogGates;
use super::Core;
use super::routing::relay::Relays;
use crate::shard::connection::Connection;
use crate::shard::mesh::Origin;

/// Replies that are not complete, or may not leave yet; those in order lie in their connections' outboxes.
#[derive(Default)]
pub(crate) struct PendingReplies {
    pub gates: LogGates,
    pub relays: Relays,
    /// Gathered replies that are complete, and wait for room to be put together.
    pub complete: Vec<Origin>,
}

impl Core {
    /// Where a thread of the node puts its reply to a connection's command. One at a time: until then nothing more of
    /// the connection is executed, so that none keeps others' from the thread's queue.
    pub(crate) fn await_thread(&self, connection: &mut Connection) -> Origin {
        connection.settling = true;
        Origin {
            shard: self.id,
            conn: connection.token,
            ticket: connection.outbox.await_reply(None),
            part: 0,
        }
    }
}
