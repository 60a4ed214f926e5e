//! What a migration of simulated nodes consists of. Walks, captured writes, imports, digests and what the logs say are
//! the engine's own (`store`); what is modelled is when each node does what, and the stream between them.
//!
//! ```text
//! source   beginning -> dialling -> walking -> held -> committing -> overdue
//!              |            |          |        |
//!              +------------+----------+--------+----> giving up
//! target   staging -> prepared -> (the copy that is served, or nothing)
//!             |
//!             +-> (wiped by any break of the stream, and by a restart)
//! ```
//!
//! From `held` on the source executes nothing on the partition. Until it has said commit it may give
//! up alone; afterwards only the replicated log decides.

use std::collections::BTreeMap;

use ephesus_coordinator::migration::{Confirmation, Step};
use ephesus_wire::stream::{Final, Held};
use ephesus_wire::{Epoch, PartitionId};

use crate::store::Store;

/// Keys of every partition that clients use.
pub(crate) const KEYS: u64 = 8;

/// What clients have written: a value that is never written twice, by key.
pub(crate) type Keys = BTreeMap<u8, u64>;

/// One command of a client: writes a value, or deletes the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) key: u8,
    pub(crate) value: Option<u64>,
}

impl Write {
    pub(crate) fn execute(self, keys: &mut Keys) {
        match self.value {
            Some(value) => drop(keys.insert(self.key, value)),
            None => drop(keys.remove(&self.key)),
        }
    }
}

/// What travels between the ends, in order within one direction of one stream.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// To the target: open a staging copy.
    Open { partition: PartitionId },
    /// To the source: it is there, and empty.
    Opened,
    /// To the target: entries of the walk, and captured writes.
    Data(Vec<u8>),
    /// To the target: that was all, and this is what it has to be.
    Final(Final),
    /// To the source: records up to this one are durable.
    Ack(u64),
    /// To the source: all of it is durable.
    Prepared(Held),
}

/// How far a source is with a migration; gone with its process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Beginning,
    Dialling {
        stream: u64,
        attempts: u32,
    },
    Walking {
        stream: u64,
    },
    /// Everything was sent.
    Held {
        stream: u64,
        since: u64,
    },
    /// It has said commit.
    Committing {
        since: u64,
        confirmation: Confirmation,
    },
    /// It has said commit, and now says abort: the first in the log wins.
    Overdue,
    GivingUp,
}

impl Source {
    /// Whether its stream has begun, and it has not given up.
    pub(crate) fn moves(&self) -> bool {
        matches!(self, Source::Walking { .. }) || self.holds()
    }

    /// Whether commands of the partition wait.
    pub(crate) fn holds(&self) -> bool {
        matches!(
            self,
            Source::Held { .. } | Source::Committing { .. } | Source::Overdue
        )
    }

    /// Whether a broken stream ends it.
    pub(crate) fn needs(&self, broken: u64) -> bool {
        match self {
            Source::Dialling { stream, .. }
            | Source::Walking { stream }
            | Source::Held { stream, .. } => *stream == broken,
            _ => false,
        }
    }

    /// What it wants to have decided.
    pub(crate) fn step(&self) -> Option<Step> {
        match self {
            Source::Beginning => Some(Step::Begin),
            Source::Dialling { .. } | Source::Walking { .. } | Source::Held { .. } => None,
            Source::Committing { confirmation, .. } => Some(Step::Commit(*confirmation)),
            Source::Overdue => Some(Step::Abort("not decided in time".to_owned())),
            Source::GivingUp => Some(Step::Abort("the stream broke".to_owned())),
        }
    }
}

/// One node's data of a partition.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) epoch: Epoch,
    pub(crate) store: Store,
}

/// A copy that is being made, as the target's disk has it.
#[derive(Debug)]
pub(crate) struct Staging {
    pub(crate) partition: PartitionId,
    pub(crate) store: Store,
}

/// A connection between the ends of a migration.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) migration: ephesus_wire::MigrationId,
    /// Source and target, each with its life.
    pub(crate) ends: [(usize, u64); 2],
    /// When the last message towards each end arrives.
    pub(crate) arrives: [u64; 2],
    pub(crate) is_broken: bool,
}

pub(crate) const SOURCE: usize = 0;
pub(crate) const TARGET: usize = 1;

/// A moment in a migration's life at which somebody may die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The source sees the plan.
    Planned,
    /// The source says that it begins.
    Begun,
    /// The source sees that this is decided, and dials.
    Dialled,
    /// The target has an empty staging copy.
    Staged,
    /// The target has its first entries.
    Filled,
    /// The source has walked part of the table.
    HalfWalked,
    /// The source holds, and has sent everything.
    Held,
    /// The target has prepared.
    Prepared,
    /// The source has said commit.
    Confirmed,
    /// The source sees that it has committed, and gives its copy up.
    GivenUp,
    /// The target sees it, and serves.
    Activated,
}

impl Moment {
    pub(crate) const ALL: [Moment; 11] = [
        Moment::Planned,
        Moment::Begun,
        Moment::Dialled,
        Moment::Staged,
        Moment::Filled,
        Moment::HalfWalked,
        Moment::Held,
        Moment::Prepared,
        Moment::Confirmed,
        Moment::GivenUp,
        Moment::Activated,
    ];
}

/// A deliberate mistake of nodes that the same runs have to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// Writes of the turn that begins the walk do not join the stream.
    LateCapture,
    /// The source deletes its copy when it says commit.
    EarlyDelete,
    /// A staging copy that is not prepared outlives its stream, and is filled on.
    StagingSurvives,
    /// A prepared copy is wiped like any other when its stream breaks or its node starts again.
    PreparedWiped,
    /// The source serves again when its deadline passes, though it has said commit.
    Resumes,
    /// Who owns a partition is looked at when a command arrives, not when it is executed.
    NoCheckAtExecution,
}
