//! A migration as the replicated log knows it: one partition's move from one shard to another.
//!
//! ```text
//! waiting <-> planned -> copying -> committed
//!    |           |          |
//!    +-----------+----------+-----> aborted -> (a rebalance plans it again, under another id)
//! ```
//!
//! What may follow what, and who says so, is in `state/migrations.rs`, with plans and steps beside it: they alone change
//! the replicated state. `coordinator/migrations.rs` is what a leader does of its own accord and answers operators.

pub(crate) mod report;

use std::collections::BTreeMap;
use std::fmt;

use ephesus_wire::{Epoch, MigrationId, PartitionId};
use serde::{Deserialize, Serialize};

use crate::placement::Place;

/// Longest text about why a migration ended, bytes.
pub const TEXT_BYTES_MAX: usize = 256;

/// Attempts of a move that is part of a rebalance.
pub const ATTEMPTS_MAX: u32 = 5;

/// The most migrations that a source makes one batch of, all from one shard to one other.
pub const BATCH_MIGRATIONS_MAX: usize = 16;

/// One attempt to move one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// What moves.
    pub partition: PartitionId,
    /// Epoch of the copy it moves from; that of the copy it makes is the next one.
    pub epoch: Epoch,
    /// Who has the partition.
    pub source: Place,
    /// Who gets it.
    pub target: Place,
    /// Where it is in its life.
    pub phase: Phase,
    /// 1 for the first one, larger when earlier ones were aborted.
    pub attempt: u32,
    /// What it is part of.
    pub purpose: Purpose,
}

/// Where a migration is in its life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The source has not begun.
    Planned,
    /// The source has begun; the target may have prepared.
    Copying,
    /// The target owns the partition.
    Committed(Confirmation),
    /// The source keeps the partition.
    Aborted(Abort),
    /// As planned, but its turn has not come: as many others are under way as may be at a time, or a node of its own
    /// does not serve.
    Waiting,
}

/// What a target has made durable, as it confirmed to the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmation {
    /// Its number of keys.
    pub count: u64,
    /// The digest of its entries in words, the low half first (`ephesus_wire::digest`).
    pub digest: [u64; 2],
}

/// Why a migration was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abort {
    /// The kind of reason.
    pub reason: AbortReason,
    /// What whoever gave it up says, at most [`TEXT_BYTES_MAX`] bytes; may be empty.
    pub text: String,
}

/// Why a migration was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbortReason {
    /// The source says so.
    Source,
    /// The target says so.
    Target,
    /// The target has failed.
    TargetFailed,
    /// An operator says so.
    Cancelled,
    /// The source or the target is no member any more.
    Removed,
    /// The source or the target has come back with another number of shards.
    Resharded,
    /// The target is being drained.
    Draining,
    /// The source has failed, and was waited for.
    SourceFailed,
    /// The nodes of its next attempt did not come back.
    GivenUp,
}

/// What a migration is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Purpose {
    /// An operator wants just this: one attempt.
    Move,
    /// A rebalance or a drain: it is tried again, up to [`ATTEMPTS_MAX`] times.
    Rebalance,
}

/// What a node wants to have decided about a migration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// From the source: it is about to copy.
    Begin,
    /// From the source, said of the first migration of a batch: the target has prepared all of these. Until this was sent
    /// the source may give up alone.
    Commit(
        #[serde(deserialize_with = "crate::protocol::bounded::by_stream")]
        Vec<(MigrationId, Confirmation)>,
    ),
    /// From either: it goes no further, and why.
    Abort(String),
}

/// How far a migration is, as its source says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Keys sent.
    pub keys: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// How long commands were held, us; 0: not yet.
    pub hold_us: u64,
    /// What went wrong last, at most [`TEXT_BYTES_MAX`] bytes; may be empty.
    pub last_error: String,
}

impl AbortReason {
    /// Whether another attempt may go better.
    #[must_use]
    pub fn is_passing(self) -> bool {
        match self {
            AbortReason::Source
            | AbortReason::Target
            | AbortReason::TargetFailed
            | AbortReason::SourceFailed
            | AbortReason::Resharded => true,
            AbortReason::Cancelled
            | AbortReason::Removed
            | AbortReason::Draining
            | AbortReason::GivenUp => false,
        }
    }
}

impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AbortReason::Source => "the source gave up",
            AbortReason::Target => "the target gave up",
            AbortReason::TargetFailed => "the target has failed",
            AbortReason::Cancelled => "cancelled",
            AbortReason::Removed => "its node was removed",
            AbortReason::Resharded => "its node has another number of shards",
            AbortReason::Draining => "the target is being drained",
            AbortReason::SourceFailed => "the source has failed",
            AbortReason::GivenUp => "its nodes did not come back",
        })
    }
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text.as_str() {
            "" => self.reason.fmt(f),
            text => write!(f, "{}: {text}", self.reason),
        }
    }
}

/// What nodes know of migrations; part of every view.
///
/// 1. A migration that is not active, with an id up to `last`, has ended for ever.
/// 2. A staging copy that a node still holds was committed if and only if its migration is the partition's
///    arrival.
/// 3. A copy of an epoch below that of the arrival is void, whichever migration that was, also on the node
///    that owns the partition now: it may have been away while the partition was elsewhere.
///
/// The two ends of a migration ask differently. A target asks by its migration's id: nobody else has the copy
/// that it has made. A source asks by the epoch of its copy: the partition may have moved on without it, by
/// migrations it knows nothing of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationTable {
    /// The last id that was given out; 0: none.
    pub last: MigrationId,
    /// Those planned or copying.
    pub active: BTreeMap<MigrationId, Migration>,
    /// By partition that has an owner, how that got it.
    pub arrivals: BTreeMap<PartitionId, Arrival>,
    /// What each node copies at most for all migrations that it is the source of, in 1,000,000 bytes
    /// per second, writes that are made meanwhile not counted; 0: as much as it can.
    pub limit_mb_s: u32,
}

/// How the owner of a partition got it: which of the copies that it may hold the table means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Arrival {
    /// The migration that made the copy; 0: it began empty, and what was there before is given up. Of copies that
    /// began empty before a coordinator was forced it is an id that no migration has.
    pub migration: MigrationId,
    /// The epoch under which it was made; larger ones since are other numbers of shards.
    pub epoch: Epoch,
}

/// What a node that was part of a migration has to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Go on, or wait: it is active, or newer than this table.
    Open,
    /// The target's copy is the partition's, or was; the source's is void.
    Committed,
    /// The target's copy is nobody's; the source's is as it was.
    Aborted,
}

impl MigrationTable {
    /// What became of a migration of `partition`, for the target, which still holds the staging copy that it
    /// has made.
    ///
    /// A partition that has moved on since then had first been activated by that node, unless the
    /// migration was aborted: so only the last arrival counts.
    #[must_use]
    pub fn decision_for_target(&self, id: MigrationId, partition: PartitionId) -> Decision {
        if self.is_open(id) {
            return Decision::Open;
        }
        let arrival = self.arrivals.get(&partition);
        if arrival.is_some_and(|arrival| arrival.migration == id) {
            return Decision::Committed;
        }
        Decision::Aborted
    }

    /// What became of a migration of `partition`, for the source, whose copy has this `epoch`.
    ///
    /// The partition may have moved on since then without the source.
    #[must_use]
    pub fn decision_for_source(
        &self,
        id: MigrationId,
        partition: PartitionId,
        epoch: Epoch,
    ) -> Decision {
        match () {
            () if self.is_open(id) => Decision::Open,
            () if self.is_void(partition, epoch) => Decision::Committed,
            () => Decision::Aborted,
        }
    }

    fn is_open(&self, id: MigrationId) -> bool {
        id > self.last || self.active.contains_key(&id)
    }

    /// Whether the partition has arrived somewhere since a copy of this epoch was made: the copy lacks what was
    /// written since then, or was given up.
    #[must_use]
    pub fn is_void(&self, partition: PartitionId, epoch: Epoch) -> bool {
        let arrival = self.arrivals.get(&partition);
        arrival.is_some_and(|arrival| epoch < arrival.epoch)
    }

    /// Whether an activated copy of this epoch, on the node that owns the partition now, has what was
    /// written since; otherwise it is void.
    #[must_use]
    pub fn is_current(&self, partition: PartitionId, epoch: Epoch) -> bool {
        let arrival = self.arrivals.get(&partition);
        arrival.is_some_and(|arrival| epoch >= arrival.epoch)
    }
}

/// The first [`TEXT_BYTES_MAX`] bytes, or a little less so as not to split a character.
#[must_use]
pub fn bounded(text: &str) -> String {
    let mut ends = (0..=text.len().min(TEXT_BYTES_MAX)).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests;
