//! The change of layout: who owns what next, and images that need no log.

use std::collections::BTreeMap;

use ephesus_coordinator::migration::{Decision, MigrationTable};
use ephesus_wire::block::BlockBuilder;
use ephesus_wire::digest::Digest;
use ephesus_wire::table::{PartitionEntry, PartitionTable};
use ephesus_wire::{Epoch, Lsn, NodeId, PartitionId, ShardId};

use super::RecoveryError;
use crate::image::{
    self, DbId, Generation, IMAGE_ROOM, ImageId, ImageStore, ImageWriter, Manifest, StoreError,
    check_room,
};
use crate::keyspace::Partition;
use crate::node::data_dir::{Layout, NO_COPY, Place, StagingPlace};

/// The copies that a node is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub shards: u16,
    /// By partition.
    pub copies: Vec<Place>,
    /// Which copies the table means.
    pub(super) migrations: MigrationTable,
}

impl Plan {
    /// What a table gives to a node of so many shards.
    #[must_use]
    pub fn of(table: &PartitionTable, node: NodeId, shards: u16) -> Plan {
        let copy = |entry: &PartitionEntry| match entry.primary() {
            Some(primary) if primary.node == node => (primary.shard, entry.epoch),
            _ => (ShardId(0), NO_COPY),
        };
        Plan {
            shards,
            copies: table.entries.iter().map(copy).collect(),
            migrations: MigrationTable::default(),
        }
    }

    /// With what the same version of the table knows of migrations, by which recovery tells copies that
    /// count from those that are void.
    #[must_use]
    pub fn with(self, migrations: MigrationTable) -> Plan {
        Plan { migrations, ..self }
    }

    /// The copy of a partition; none of one that the table does not have.
    pub(super) fn planned(&self, partition: PartitionId) -> Place {
        let planned = self.copies.get(usize::from(partition.0)).copied();
        planned.unwrap_or((ShardId(0), NO_COPY))
    }

    /// Checks that the node has the partitions and the shards that the table gives to it.
    pub(super) fn check(&self, layout: &Layout) -> Result<(), RecoveryError> {
        let copies = (0..).map(PartitionId).zip(&self.copies);
        let mut planned = copies.filter(|(_, (_, epoch))| *epoch != NO_COPY);
        let is_here = |partition: PartitionId, shard: ShardId| {
            usize::from(partition.0) < layout.partitions.len() && shard.0 < self.shards
        };
        match planned.find(|&(partition, &(shard, _))| !is_here(partition, shard)) {
            Some((partition, &(shard, _))) => Err(RecoveryError::Impossible { partition, shard }),
            None => Ok(()),
        }
    }

    /// Whether what is in `layout`, without void copies, can stay as it is.
    pub(super) fn keeps(&self, layout: &Layout) -> bool {
        layout.shards() == self.shards
            && self.decided(layout).all(|(partition, shard, epoch)| {
                let planned = self.planned(partition);
                planned.1 == NO_COPY || planned == (shard, epoch)
            })
    }

    /// Checks that everything in `layout`, without void copies, goes on under a later epoch.
    pub(super) fn check_succession(&self, layout: &Layout) -> Result<(), RecoveryError> {
        for staging in layout.staging() {
            let (partition, migration) = (staging.partition, staging.source.migration);
            if self.migrations.decision_for_target(migration, partition) == Decision::Open {
                return Err(RecoveryError::Undecided {
                    partition,
                    migration,
                });
            }
        }
        for (partition, _, epoch) in self.decided(layout) {
            let (_, planned) = self.planned(partition);
            if planned <= epoch {
                return Err(RecoveryError::Succession {
                    partition,
                    epoch,
                    planned,
                });
            }
        }
        Ok(())
    }

    /// The copies that are the partitions' own: those that are served, and those that will be as soon as
    /// they are activated.
    fn decided<'a>(
        &'a self,
        layout: &'a Layout,
    ) -> impl Iterator<Item = (PartitionId, ShardId, Epoch)> + 'a {
        let is_committed = |staging: &&StagingPlace| {
            let migration = staging.source.migration;
            self.migrations
                .decision_for_target(migration, staging.partition)
                == Decision::Committed
        };
        let committed = layout.staging().iter().filter(is_committed);
        let committed = committed.map(|staging| (staging.partition, staging.shard, staging.epoch));
        layout.copies().chain(committed)
    }
}

/// Removes images of copies that the layout does not name: superseded, given up, wiped or void ones, and
/// what a crash during a change of layout has left.
pub(super) fn remove_other_copies<S: ImageStore>(
    layout: &Layout,
    stores: &mut [S],
) -> Result<(), RecoveryError> {
    for store in stores {
        let mut leaving = Vec::new();
        for partition in store.partitions() {
            for manifest in image::manifests(store, partition)? {
                let epoch = manifest.image.epoch;
                if !layout.names(partition, epoch) {
                    leaving.push((partition, epoch, manifest.blocks));
                }
            }
        }
        image::drop_copies(store, &leaving)?;
    }
    Ok(())
}

/// What a change of layout does, for messages.
const WRITE_ALL: &str = "write all data anew, which another number of shards needs";

/// Writes a self-contained image of every copy under its epoch in `layout`, one thread per store.
///
/// # Errors
/// [`StoreError::NoRoom`]: what was written is removed by the next start.
#[expect(clippy::expect_used, reason = "imaging threads do not panic")]
pub(super) fn image_all<S: ImageStore>(
    partitions: Vec<Partition>,
    layout: &Layout,
    stores: &mut [S],
    now_ms: u64,
) -> Result<Vec<Partition>, RecoveryError> {
    let count = stores.len() as u16;
    let bytes = partitions.iter().map(|p| p.table.data_bytes()).sum();
    if let Some(store) = stores.first().filter(|store| !store.has_free(bytes)) {
        let db = store.db();
        let operation = WRITE_ALL;
        return Err(StoreError::NoRoom { db, operation }.into());
    }
    let mut by_store: BTreeMap<DbId, Vec<Partition>> = BTreeMap::new();
    for partition in partitions {
        by_store
            .entry(DbId::of(partition.id, count))
            .or_default()
            .push(partition);
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = stores
            .iter_mut()
            .map(|store| {
                let own = by_store.remove(&store.db()).unwrap_or_default();
                scope.spawn(move || {
                    own.into_iter()
                        .map(|partition| image_one(partition, layout, store, now_ms))
                        .collect::<Result<Vec<_>, _>>()
                })
            })
            .collect();
        let mut imaged = Vec::new();
        for thread in threads {
            imaged.extend(thread.join().expect("imaging threads do not panic")?);
        }
        Ok(imaged)
    })
}

#[expect(
    clippy::indexing_slicing,
    reason = "the new layout is of all partitions"
)]
fn image_one(
    old: Partition,
    layout: &Layout,
    store: &mut dyn ImageStore,
    now_ms: u64,
) -> Result<Partition, RecoveryError> {
    let (_, epoch) = layout.partitions[usize::from(old.id.0)];
    let seq = old.seq();
    let mut partition = Partition::new(old.id, epoch);
    partition.table = old.table;
    if partition.table.is_empty() {
        partition = Partition::new(old.id, epoch);
        return Ok(partition);
    }
    let image = ImageId {
        partition: old.id,
        epoch,
        generation: Generation(1),
    };
    check_room(store, IMAGE_ROOM, WRITE_ALL)?;
    let mut writer = ImageWriter::begin(store, image)?;
    let (mut builder, mut digest) = (BlockBuilder::new(), Digest::EMPTY);
    let (mut blocks, mut cursor, mut count): (Vec<Vec<u8>>, u64, u64) = (Vec::new(), 0, 0);
    loop {
        cursor = partition.table.scan_values(cursor, &mut |_, entry| {
            builder.push(entry.key, entry.value, entry.expire_at_ms, |b| {
                blocks.push(b.to_vec())
            });
            digest.add(entry.key, entry.value, entry.expire_at_ms);
            count += 1;
        });
        if cursor == 0 {
            builder.finish(|b| blocks.push(b.to_vec()));
        }
        for block in blocks.drain(..) {
            check_room(store, IMAGE_ROOM, WRITE_ALL)?;
            writer.put(store, &block)?;
        }
        if cursor == 0 {
            break;
        }
    }
    writer.seal(store)?;
    let (blocks, bytes) = writer.written();
    let manifest = Manifest {
        image,
        log: [0; 16],
        lsn_start: Lsn::ZERO,
        lsn_end: Lsn::ZERO,
        seq_start: seq,
        count,
        digest: digest.to_words(),
        blocks,
        bytes,
        created_ms: now_ms,
    };
    writer.switch(store, &manifest)?;
    writer.sweep(store)?;
    partition.image_loaded(image.generation, seq);
    Ok(partition)
}

#[cfg(test)]
mod tests;
