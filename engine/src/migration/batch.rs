//! Migrations that are begun, streamed, held and decided together.

/// The most migrations of a batch: what a handoff costs, syncs, tables and layouts, is there once for all of them.
pub use ephesus_coordinator::migration::BATCH_MIGRATIONS_MAX;
use ephesus_wire::stream::Open;
use ephesus_wire::{MigrationId, PartitionId};

/// The most bytes of a batch, as its shard has published them; a partition above it is a batch of its own. Whatever
/// ends one migration of a batch ends all, and what was sent of them was sent in vain.
pub const BATCH_BYTES_MAX: u64 = 4 << 20;

/// At least one migration, all from one shard to one other. Its name is that of its first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    id: MigrationId,
    moves: Vec<(MigrationId, Open)>,
}

impl Batch {
    /// These migrations, and what OPEN says of each; none when they are not a batch.
    #[must_use]
    pub fn new(moves: Vec<(MigrationId, Open)>) -> Option<Batch> {
        let (id, first) = *moves.first()?;
        let shards = |open: &Open| (open.source, open.source_shard, open.target_shard);
        let mut moved: Vec<PartitionId> = moves.iter().map(|(_, open)| open.partition).collect();
        moved.sort_unstable();
        moved.dedup();
        let is_batch = moved.len() == moves.len()
            && moves.iter().all(|(_, open)| shards(open) == shards(&first))
            && moves.is_sorted_by(|(a, _), (b, _)| a < b);
        is_batch.then_some(Batch { id, moves })
    }

    /// The id of its first migration.
    #[must_use]
    pub fn id(&self) -> MigrationId {
        self.id
    }

    /// The migrations by ascending id, and what OPEN says of each.
    #[must_use]
    pub fn moves(&self) -> &[(MigrationId, Open)] {
        &self.moves
    }

    /// What OPEN says of the first one: the shards are those of all.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "a batch is not empty")]
    pub fn first(&self) -> &Open {
        &self.moves[0].1
    }
}

#[cfg(test)]
mod tests {
    use ephesus_wire::{Epoch, NodeId, ShardId};

    use super::*;

    #[test]
    fn a_batch_has_one_source_one_target_and_no_partition_twice() {
        let open = |partition, target_shard| Open {
            partition: PartitionId(partition),
            epoch: Epoch(2),
            source: NodeId([1; 16]),
            source_shard: ShardId(0),
            target_shard: ShardId(target_shard),
        };
        let of = |moves: &[(u64, Open)]| {
            let moves = moves.iter().map(|(id, open)| (MigrationId(*id), *open));
            Batch::new(moves.collect())
        };
        assert!(of(&[(1, open(0, 1)), (2, open(1, 1))]).is_some());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(1, open(0, 1)), (2, open(1, 2))]), None, "two targets");
        assert_eq!(of(&[(1, open(0, 1)), (2, open(0, 1))]), None, "one twice");
        assert_eq!(of(&[(1, open(0, 1)), (1, open(1, 1))]), None, "one id");
    }
}
