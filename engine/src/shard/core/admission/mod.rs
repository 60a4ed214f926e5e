//! When commands may be executed: what they wait for, and what of them may wait.

pub(crate) mod backlog;
pub(crate) mod blocked;
pub(crate) mod client_budget;
pub(crate) mod deferred;
pub(crate) mod holds;
pub(crate) mod log_room;
pub(crate) mod unread;
pub(crate) mod users;
pub(crate) mod waiting;

use self::backlog::Backlog;
use self::blocked::BlockedConnections;
use self::client_budget::ClientBudget;
use self::deferred::Deferred;
use self::holds::Holds;
use self::log_room::LogRoom;
use self::unread::UnreadClients;
use crate::command::client::Pause;
use crate::node::NodeShared;

/// What keeps commands back.
pub(crate) struct Admission {
    /// The decision about a migration.
    pub holds: Holds,
    /// Commands of other shards that have to wait, by client.
    pub deferred: Deferred,
    /// Commands of other shards before them.
    pub backlog: Backlog,
    pub blocked: BlockedConnections,
    /// Clients that have to read first.
    pub unread: UnreadClients,
    pub log_room: LogRoom,
    pub client_budget: ClientBudget,
    /// Clients have to wait, as CLIENT PAUSE says.
    pub pause: Option<Pause>,
    /// What scripts and transactions of connections have taken of a turn.
    pub long_turn: LongTurn,
    /// Of the users whose connections are here.
    pub users_version: u64,
}

/// Work of scripts and transactions after which a turn begins no more of them for connections.
pub(crate) const LONG_TURN_BYTES: usize = 256 << 10;

/// Work of one turn.
#[derive(Default)]
pub(crate) struct LongTurn {
    turn: u64,
    work: usize,
}

impl LongTurn {
    pub fn add(&mut self, turn: u64, work: usize) {
        if self.turn != turn {
            *self = LongTurn { turn, work: 0 };
        }
        self.work = self.work.saturating_add(work);
    }

    pub fn is_over(&self, turn: u64) -> bool {
        self.turn == turn && self.work >= LONG_TURN_BYTES
    }
}

impl Admission {
    pub fn new(node: &NodeShared) -> Admission {
        Admission {
            holds: Holds::default(),
            deferred: Deferred::default(),
            backlog: Backlog::default(),
            blocked: BlockedConnections::default(),
            unread: UnreadClients::new(node.started),
            log_room: LogRoom::default(),
            client_budget: ClientBudget::new(node),
            pause: None,
            long_turn: LongTurn::default(),
            users_version: 0,
        }
    }

    /// Commands that wait now; of a connection's only the first is counted.
    #[must_use]
    pub(crate) fn held_commands(&self) -> u64 {
        (self.holds.waiting.len() + self.deferred.held()) as u64
    }

    /// Whether something may go on that waited: the turn should not be the last before a sleep.
    #[must_use]
    pub fn has_released(&self) -> bool {
        self.holds.changed && !(self.holds.waiting.is_empty() && self.deferred.is_empty())
    }

    /// Whether anything waits for a decision.
    #[must_use]
    pub(crate) fn has_held(&self) -> bool {
        !self.holds.waiting.is_empty() || self.deferred.needs_looks()
    }
}
