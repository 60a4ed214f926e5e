use std::net::SocketAddr;

use crate::error::Result;
use crate::procfs::Pid;
use crate::record::ServerRecord;
use crate::resp::Connection;

use super::slots::SlotSet;

/// How far a move is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Ordered, and nothing copied.
    Waiting,
    /// Data is copied.
    Copying,
    /// The target owns everything that was to move.
    Done,
    /// It has ended otherwise, and why.
    Failed(String),
}

/// What the servers themselves say of a move that has ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// How long writes were held, of each move.
    pub(super) holds_ms: Vec<f64>,
    /// Attempts beyond the first.
    pub(super) retries: u64,
    /// Memory of forks of the source.
    pub(super) forked_bytes: u64,
}

/// What moves from where to where.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    /// Where the source serves its keys.
    pub(super) source: SocketAddr,
    /// Where the target serves its keys.
    pub(super) target: SocketAddr,
    /// Source and target; none: they run elsewhere.
    pub(super) pids: Option<[Pid; 2]>,
    /// What the source owns.
    pub(super) owned: SlotSet,
    /// What is going to move.
    pub(super) moving: SlotSet,
}

/// Two servers of one cluster, one of which gives data to the other.
pub(super) trait Pair {
    /// What it moves from where to where.
    fn ends(&self) -> &Ends;
    /// Waits until both have done what is left to do after writes.
    fn settle(&self) -> Result<()>;
    /// Begins the move.
    fn order(&mut self) -> Result<()>;
    /// How far it is.
    fn look(&mut self) -> Result<Stage>;
    /// What there is to say after it.
    fn said(&mut self) -> Result<Said>;
    /// Has the next move bring back what this one has moved, from the target to the source, which change
    /// places; false: nobody needs that, since the servers end with the round.
    fn turn_back(&mut self) -> Result<bool> {
        Ok(false)
    }
    /// How they were started.
    fn described(&self) -> Vec<ServerRecord>;

    /// Keys of source and target.
    fn keys(&self) -> Result<[u64; 2]> {
        let count = |address| Connection::open(address)?.integer(&["DBSIZE"]);
        Ok([count(self.ends().source)?, count(self.ends().target)?])
    }
}
