//! What waits for the log: replies leave once it has committed what they tell of.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use ephesus_wire::{Lsn, ShardId};

use crate::net::ConnToken;
use crate::shard::mesh::Replies;

/// Connections and replies by the position that they wait for.
#[derive(Default)]
pub struct LogGates {
    gates: BinaryHeap<Reverse<(Lsn, Gated)>>,
    /// By the order in which they were made.
    replies: BTreeMap<u64, Uncommitted>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Gated {
    Connection(ConnToken),
    /// Key of `replies`.
    Replies(u64),
}

/// Replies for another shard.
struct Uncommitted {
    to: ShardId,
    replies: Replies,
    /// When they were made.
    turn: u64,
}

/// What may leave.
pub enum Committed {
    Connection(ConnToken),
    Replies { to: ShardId, replies: Replies },
}

impl LogGates {
    pub fn add_connection(&mut self, token: ConnToken, lsn: Lsn) {
        self.gates.push(Reverse((lsn, Gated::Connection(token))));
    }

    /// `turn` is the one in which the replies were made.
    pub fn add_replies(&mut self, to: ShardId, replies: Replies, lsn: Lsn, turn: u64) {
        let last = self.replies.last_key_value();
        let number = last.map_or(0, |(number, _)| number + 1);
        self.replies
            .insert(number, Uncommitted { to, replies, turn });
        self.gates.push(Reverse((lsn, Gated::Replies(number))));
    }

    /// Takes the next that may leave once the log has committed `lsn`.
    pub fn pop(&mut self, lsn: Lsn) -> Option<Committed> {
        loop {
            let Reverse((gate, _)) = self.gates.peek()?;
            if *gate > lsn {
                return None;
            }
            let Reverse((_, gated)) = self.gates.pop()?;
            match gated {
                Gated::Connection(token) => return Some(Committed::Connection(token)),
                Gated::Replies(number) => {
                    // They leave once.
                    if let Some(Uncommitted { to, replies, .. }) = self.replies.remove(&number) {
                        return Some(Committed::Replies { to, replies });
                    }
                }
            }
        }
    }

    /// The replies that were made in that turn.
    pub fn replies_of(&mut self, turn: u64) -> impl Iterator<Item = &mut Replies> {
        let of_turn = self.replies.values_mut();
        of_turn
            .filter(move |waiting| waiting.turn == turn)
            .map(|waiting| &mut waiting.replies)
    }
}
