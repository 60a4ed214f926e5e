//! Replies that would be late: the lease may have been over when their commands were executed.
//!
//! Whether the node holds its lease is asked when a turn begins. A process that stands still behind that, or a turn
//! that takes very long, goes on executing when somebody else may have the partitions already. So it is asked
//! again at the end of the turn, before anything of the turn leaves the shard. What was executed cannot be taken
//! back, and nobody knows whether it counts: its clients are told nothing, their connections are closed. That is
//! what a client sees of a node that dies.

use crate::planted::Bug;
use crate::shard::core::Core;
use crate::shard::mesh::{Origin, Replies};

impl Core {
    /// Lets nothing of this turn leave if the lease has run out in it. Call it before replies are sent.
    pub fn hold_back_late(&mut self) {
        if !self.router.serving
            || self.node.lease.holds()
            || self.keyspace.planted.has(Bug::LeaseAtBegin)
        {
            return;
        }
        self.router.serving = false;
        let turn = self.turn;
        let mut closed = Vec::new();
        for connection in self.connections.iter_mut() {
            if !connection.has_turn(turn) {
                connection.kill();
                closed.push(connection.token);
            }
        }
        tracing::warn!(
            connections = closed.len(),
            "the lease has run out in the middle of a turn: its clients are not answered"
        );
        for token in closed {
            self.list(token);
        }
        for peer in self.router.peers.iter_mut() {
            peer.make_late();
        }
        self.replies
            .gates
            .replies_of(turn)
            .for_each(Replies::make_late);
        self.give_up_relays();
    }

    /// Another shard has executed a command, or part of one, too late.
    pub(crate) fn deliver_late(&mut self, origin: Origin) {
        match self.connections.get_mut(origin.conn) {
            Some(connection) => {
                connection.kill();
                self.list(origin.conn);
            }
            None => self.relay_late(origin),
        }
    }
}

#[cfg(test)]
mod tests;
