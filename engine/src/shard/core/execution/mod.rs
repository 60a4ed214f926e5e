//! Commands at work on the keyspace, at once or in slices.

pub(crate) mod batch;
pub(crate) mod keyed;
pub(crate) mod keyless;
pub(crate) mod timed;
pub(crate) mod transactions;
pub(crate) mod walks;

use ephesus_wire::resp::request::Args;
use ephesus_wire::rng::Rng;

use self::batch::Batch;
use self::walks::Walks;
use crate::shard::timing::Timing;
use crate::shard::transaction::Transaction;

/// What commands are executed with, besides the keyspace.
pub(crate) struct Execution {
    pub walks: Walks,
    /// Memory for the arguments of one forwarded command, and for the commands that a client has pipelined.
    pub args: Args,
    pub batch: Batch,
    pub random: Rng,
    /// The next transaction's, with room for its queue.
    pub transaction: Option<Box<Transaction>>,
    /// Memory for the reply of one, and for the arguments of one of its commands.
    pub answer: Vec<u8>,
    pub together_args: Args,
    /// Executed in this turn.
    pub commands: u64,
    pub timing: Timing,
}

impl Execution {
    pub fn new(seed: u64) -> Execution {
        Execution {
            walks: Walks::default(),
            args: Args::new(),
            batch: Batch::default(),
            random: Rng::new(seed),
            transaction: None,
            answer: Vec::new(),
            together_args: Args::new(),
            commands: 0,
            timing: Timing::default(),
        }
    }
}
