//! What operators are told about moves and migrations.

use serde::{Deserialize, Serialize};

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

/// To [`Query::Migrations`](super::Query::Migrations).
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

/// One migration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationRow {
    /// Its id.
    pub id: u64,
    /// What moves.
    pub partition: u16,
    /// `planned`, `copying`, `committed` or `aborted`.
    pub state: String,
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
}
