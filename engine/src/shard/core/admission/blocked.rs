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
}

impl BlockedConnections {
    pub fn block(&mut self, connection: &mut Connection, why: Blocked) {
        connection.blocked = Some(why);
        self.tokens.push(connection.token);
        self.has_next_turns |= why == Blocked::NextTurn;
    }

    /// Takes all of them, to see which go on.
    pub fn take(&mut self) -> Vec<ConnToken> {
        self.has_next_turns = false;
        std::mem::take(&mut self.tokens)
    }

    /// Those that still wait; who has just gone on and waits again comes behind all of them.
    pub fn put_back(&mut self, mut tokens: Vec<ConnToken>, has_next_turns: bool) {
        tokens.append(&mut self.tokens);
        self.tokens = tokens;
        self.has_next_turns |= has_next_turns;
    }

    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    pub fn has_next_turns(&self) -> bool {
        self.has_next_turns
    }
}
