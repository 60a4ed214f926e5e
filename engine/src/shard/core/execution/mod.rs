//! Commands at work on the keyspace, at once or in slices.

pub(crate) mod batch;
pub(crate) mod clients;
pub(crate) mod debug;
pub(crate) mod functions;
pub(crate) mod hotkeys;
pub(crate) mod keyed;
pub(crate) mod keyless;
pub(crate) mod migrate;
pub(crate) mod pace;
pub mod pubsub;
pub(crate) mod saves;
pub(crate) mod scripts;
pub(crate) mod server;
pub(crate) mod timed;
pub(crate) mod together;
pub(crate) mod tracking;
pub(crate) mod transactions;
pub(crate) mod walks;

use ephesus_wire::resp::request::Args;
use ephesus_wire::rng::Rng;

use self::batch::Batch;
use self::debug::Sleeps;
use self::hotkeys::HotKeys;
use self::migrate::Copies;
use self::pace::Pace;
use self::pubsub::PubSub;
use self::saves::{DurabilityWaits, Saves};
use self::tracking::Tracking;
use self::walks::Walks;
use crate::script::Scripts;
use crate::shard::timing::Timing;
use crate::shard::transaction::Transaction;

/// What commands are executed with, besides the keyspace.
pub(crate) struct Execution {
    pub walks: Walks,
    pub saves: Saves,
    pub pubsub: PubSub,
    pub tracking: Tracking,
    pub copies: Copies,
    pub sleeps: Sleeps,
    pub durability_waits: DurabilityWaits,
    /// Memory for the arguments of one forwarded command, and for the commands that a client has pipelined.
    pub args: Args,
    pub batch: Batch,
    pub random: Rng,
    /// The next transaction's, with room for its queue.
    pub transaction: Option<Box<Transaction>>,
    /// Memory for the reply of one, and for the arguments of one of its commands.
    pub answer: Vec<u8>,
    pub together_args: Args,
    /// Of the transaction that is executed now.
    pub pace: Option<Pace>,
    /// There from the first script on.
    pub scripts: Option<Box<Scripts>>,
    /// Executed in this turn.
    pub commands: u64,
    pub timing: Timing,
    pub hotkeys: HotKeys,
}

impl Execution {
    pub fn new(seed: u64) -> Execution {
        Execution {
            walks: Walks::default(),
            saves: Saves::default(),
            pubsub: PubSub::default(),
            tracking: Tracking::default(),
            copies: Copies::default(),
            sleeps: Sleeps::default(),
            durability_waits: DurabilityWaits::default(),
            args: Args::new(),
            batch: Batch::default(),
            random: Rng::new(seed),
            transaction: None,
            answer: Vec::new(),
            together_args: Args::new(),
            pace: None,
            scripts: None,
            commands: 0,
            timing: Timing::default(),
            hotkeys: HotKeys::default(),
        }
    }
}
