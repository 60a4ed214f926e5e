//! What operators are told about moves and migrations.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::migration::AbortReason;

/// A move that was planned, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRow {
    /// What moves.
    pub partition: u16,
    /// The migration that moves it; none: it was not planned.
    pub migration: Option<u64>,
    /// Name of the node that has it; none: nobody has.
    pub from_node: Option<String>,
    /// The shard that has it.
    pub from_shard: Option<u16>,
    /// Name of the node that gets it.
    pub to_node: String,
    /// The shard that gets it.
    pub to_shard: u16,
    /// Why it was not planned, in a sentence; none: it was, or this is only what would be.
    pub refusal: Option<String>,
}

/// To [`Query::Migrations`](crate::report::Query::Migrations).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationsReport {
    /// Those under way and the last that have ended, by id.
    pub migrations: Vec<MigrationRow>,
    /// Nodes that are to be emptied, by name.
    pub draining: Vec<DrainingRow>,
    /// What each node sends at most, in 1,000,000 bytes per second; 0: as much as it can.
    pub limit_mb_s: u32,
}

/// A node that is to be emptied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DrainingRow {
    /// Its name.
    pub node: String,
    /// Partitions it still owns.
    pub partitions: u64,
}

/// How far a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigrationState {
    /// Not begun by its source.
    Planned,
    /// The source copies the partition, or holds its commands.
    Copying,
    /// The target owns the partition.
    Committed,
    /// It was given up; the source owns the partition.
    Aborted,
    /// Its turn has not come.
    Waiting,
}

impl MigrationState {
    /// Whether it is not over.
    #[must_use]
    pub fn is_active(self) -> bool {
        matches!(
            self,
            MigrationState::Waiting | MigrationState::Planned | MigrationState::Copying
        )
    }
}

impl fmt::Display for MigrationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MigrationState::Planned => "planned",
            MigrationState::Copying => "copying",
            MigrationState::Committed => "committed",
            MigrationState::Aborted => "aborted",
            MigrationState::Waiting => "waiting",
        })
    }
}

/// One migration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationRow {
    /// Its id.
    pub id: u64,
    /// What moves.
    pub partition: u16,
    /// How far it is.
    pub state: MigrationState,
    /// Name of the node it moves from; its UUID, hex, if it is no member any more.
    pub from_node: String,
    /// The shard it moves from.
    pub from_shard: u16,
    /// Name of the node it moves to, likewise.
    pub to_node: String,
    /// The shard it moves to.
    pub to_shard: u16,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// Whether it was aborted and is going to be tried again.
    pub will_retry: bool,
    /// Keys sent, as the source last said to this leader; when committed, those of the copy.
    pub keys: u64,
    /// Bytes sent, as the source last said to this leader.
    pub bytes: u64,
    /// Keys per second between the last two times the source said so.
    pub keys_per_s: u64,
    /// Bytes per second likewise.
    pub bytes_per_s: u64,
    /// How long commands were held, us; 0: not yet.
    pub hold_us: u64,
    /// Why it was aborted, or what the source said went wrong last; may be empty.
    pub last_error: String,
    /// The kind of reason for which it was aborted.
    pub abort_reason: Option<AbortReason>,
}
