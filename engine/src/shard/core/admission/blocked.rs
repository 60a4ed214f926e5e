//! The connections that execute nothing until something is over, but for those whose next command is held
//! ([`holds`](super::holds)) and those whose clients have to read ([`unread`](super::unread)).

use crate::net::ConnToken;
use crate::shard::connection::{Blocked, Connection};

/// In the order in which they have stopped.
#[derive(Default)]
pub(crate) struct BlockedConnections {
    tokens: Vec<ConnToken>,
    /// Some of them go on in the next turn, whatever else happens.
    has_next_turns: bool,
    /// Of some the next command is a script or a transaction, which others shall not overtake again and again.
    has_long: bool,
}

impl BlockedConnections {
    pub fn block(&mut self, connection: &mut Connection, why: Blocked) {
        connection.blocked = Some(why);
        self.tokens.push(connection.token);
        self.note(why);
    }

    fn note(&mut self, why: Blocked) {
        self.has_next_turns |= matches!(why, Blocked::NextTurn | Blocked::LongTurn);
        self.has_long |= why == Blocked::LongTurn;
    }

    /// Takes all of them, to see which go on.
    pub fn take(&mut self) -> Vec<ConnToken> {
        (self.has_next_turns, self.has_long) = (false, false);
        std::mem::take(&mut self.tokens)
    }

    /// Those that still wait, and why; who has just gone on and waits again comes behind all of them.
    pub fn put_back(&mut self, waiting: Vec<(ConnToken, Blocked)>) {
        waiting.iter().for_each(|(_, why)| self.note(*why));
        let mut tokens: Vec<ConnToken> = waiting.into_iter().map(|(token, _)| token).collect();
        tokens.append(&mut self.tokens);
        self.tokens = tokens;
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    pub fn has_next_turns(&self) -> bool {
        self.has_next_turns
    }

    pub fn has_long(&self) -> bool {
        self.has_long
    }
}
