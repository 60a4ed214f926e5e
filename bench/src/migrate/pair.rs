use std::net::SocketAddr;

use ephesus_wire::limits::SLOTS;
use serde::Serialize;

use crate::error::Result;
use crate::procfs::Pid;
use crate::record::ServerRecord;
use crate::resp::Connection;
use crate::server::Durability;

/// Who moves data, and how durable it is meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Contestant {
    /// Ephesus: what the target has confirmed is on its disk.
    Ephesus,
    /// Valkey in memory alone.
    Valkey,
    /// Valkey with an AOF that is synced once a second.
    ValkeyEverysec,
    /// Valkey with an AOF that is synced before replies.
    ValkeyAlways,
}

impl Contestant {
    /// Its AOF, if it is a Valkey with one.
    pub(super) fn aof(self) -> Option<Durability> {
        match self {
            Contestant::Ephesus | Contestant::Valkey => None,
            Contestant::ValkeyEverysec => Some(Durability::EverySecond),
            Contestant::ValkeyAlways => Some(Durability::Always),
        }
    }
}

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
    /// When writes were held, in seconds since the order, and for how long, ms: a pair for each part of the move.
    pub(super) holds: Vec<[f64; 2]>,
    /// Attempts beyond the first.
    pub(super) retries: u64,
    /// Memory of forks of the source.
    pub(super) forked_bytes: u64,
}

/// What moves from where to where.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    /// Where the source and the target serve.
    pub(super) entries: [SocketAddr; 2],
    /// Their processes; none: they run elsewhere.
    pub(super) pids: Option<[Pid; 2]>,
    /// By slot whether it is going to move; none: the source does not have it.
    pub(super) slots: Vec<Option<bool>>,
}

impl Ends {
    pub(super) fn new(entries: [SocketAddr; 2], pids: Option<[Pid; 2]>) -> Self {
        let slots = vec![None; usize::from(SLOTS)];
        Ends {
            entries,
            pids,
            slots,
        }
    }

    /// The source has these slots, the ends of the range included, of those that there are.
    pub(super) fn add(&mut self, first: u16, last: u16, moves: bool) {
        let slots = self.slots.get_mut(usize::from(first)..=usize::from(last));
        slots.unwrap_or_default().fill(Some(moves));
    }
}

/// Two servers of one cluster, one of which gives data to the other.
pub(super) trait Pair {
    /// What it moves from where to where.
    fn ends(&self) -> &Ends;
    /// Waits until both have done what is left to do after writes.
    fn settle(&self) -> Result<()>;
    /// Begins the move.
    fn order(&mut self) -> Result<()>;
    /// How far it is so many seconds after the order, and a number that grows from 0 in proportion to what has arrived.
    fn look(&mut self, at_s: f64) -> Result<(Stage, u64)>;
    /// What there is to say after it.
    fn said(&mut self) -> Result<Said>;
    /// Begins to bring back what has arrived; false: nobody needs that, since the servers end with the round.
    fn order_back(&mut self) -> Result<bool> {
        Ok(false)
    }
    /// How they were started.
    fn described(&self) -> Vec<ServerRecord>;

    /// Keys of source and target.
    fn keys(&self) -> Result<[u64; 2]> {
        let [source, target] = self.ends().entries;
        let count = |address| Connection::open(address)?.integer(&["DBSIZE"]);
        Ok([count(source)?, count(target)?])
    }
}
