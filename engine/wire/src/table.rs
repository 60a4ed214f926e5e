//! The partition table: who owns what, as the coordinator decides and every node caches it.

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, NodeId, PartitionId, ShardId, Slot};
use crate::slot::{PartitionCountError, Partitioning};

/// Partition to owner, for all partitions; immutable, replaced as a whole when it changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionTable {
    /// Grows with every change.
    pub version: u64,
    /// Indexed by partition.
    pub entries: Vec<PartitionEntry>,
}

/// One partition's ownership.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionEntry {
    /// Grows with every change of node or shard.
    pub epoch: Epoch,
    /// Where the partition is in its life.
    pub status: PartitionStatus,
    /// The copies; the primary serves.
    pub replicas: Vec<Replica>,
}

/// Where a partition is in its life.
///
/// ```text
/// unassigned -> assigned -> online <-> migrating
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PartitionStatus {
    /// Nobody owns it yet.
    #[default]
    Unassigned,
    /// It has an owner that has not confirmed hosting it.
    Assigned,
    /// Its owner serves it.
    Online,
    /// Its owner serves it and sends it to another.
    Migrating,
}

/// One copy of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Replica {
    /// The node that holds it.
    pub node: NodeId,
    /// The shard of that node.
    pub shard: ShardId,
    /// Whether it serves.
    pub role: Role,
    /// Whether it has everything the primary has answered.
    pub in_sync: bool,
}

/// What a copy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Serves reads and writes.
    Primary,
    /// Follows the primary.
    Backup,
}

/// Where a command for a slot belongs, seen from one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// This shard owns it.
    Here,
    /// Another shard of this node.
    Shard(ShardId),
    /// Another node.
    Node(NodeId),
    /// Nobody owns it yet: the slot is not served.
    Unowned,
}

impl PartitionEntry {
    /// The copy that serves.
    #[must_use]
    pub fn primary(&self) -> Option<&Replica> {
        self.replicas
            .iter()
            .find(|replica| replica.role == Role::Primary)
    }
}

impl PartitionTable {
    /// A table of version 0 in which nobody owns anything.
    #[must_use]
    pub fn unassigned(partitioning: Partitioning) -> Self {
        let entries = vec![PartitionEntry::default(); usize::from(partitioning.count())];
        Self {
            version: 0,
            entries,
        }
    }

    /// How the slots are divided; check a table that came from elsewhere with this first.
    ///
    /// # Errors
    /// When the number of entries is no number of partitions.
    pub fn partitioning(&self) -> Result<Partitioning, PartitionCountError> {
        Partitioning::new(u16::try_from(self.entries.len()).unwrap_or(u16::MAX))
    }

    /// The entry of a partition.
    #[must_use]
    pub fn entry(&self, partition: PartitionId) -> Option<&PartitionEntry> {
        self.entries.get(usize::from(partition.0))
    }
}

/// Where a command for `slot` belongs, seen from one shard of one node.
#[must_use]
pub fn route(slot: Slot, table: &PartitionTable, node: NodeId, shard: ShardId) -> Route {
    let primary = table
        .partitioning()
        .ok()
        .and_then(|partitioning| table.entry(partitioning.partition_of(slot)))
        .and_then(PartitionEntry::primary);
    match primary {
        None => Route::Unowned,
        Some(owner) if owner.node != node => Route::Node(owner.node),
        Some(owner) if owner.shard != shard => Route::Shard(owner.shard),
        Some(_) => Route::Here,
    }
}

/// The node id by which Redis Cluster clients know a shard: the node's 32 hex digits, then the
/// shard's eight; stable as long as the data directory is.
#[must_use]
#[expect(
    clippy::indexing_slicing,
    reason = "half a byte is an index of 16 digits, and pairs have two places"
)]
pub fn shard_id_hex(node: &NodeId, shard: ShardId) -> [u8; 40] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut bytes = [0; 20];
    bytes[..16].copy_from_slice(&node.0);
    bytes[16..].copy_from_slice(&u32::from(shard.0).to_be_bytes());
    let mut hex = [0; 40];
    for (pair, byte) in hex.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 0xF)];
    }
    hex
}

#[cfg(test)]
mod tests;
