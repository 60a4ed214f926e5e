//! The change of layout: who owns what next, and images that need no log.

use std::collections::BTreeMap;

use ephesus_coordinator::placement::{self, Place, Policy};
use ephesus_wal::LogId;
use ephesus_wire::block::BlockBuilder;
use ephesus_wire::digest::Digest;
use ephesus_wire::{Epoch, Lsn, NodeId, ShardId};

use super::RecoveryError;
use crate::image::{self, DbId, Generation, ImageId, ImageStore, ImageWriter, Manifest};
use crate::keyspace::Partition;
use crate::node::stamp::Layout;

/// The first layout of a new data directory.
#[must_use]
pub fn first_layout(node: NodeId, partitions: u16, shards: u16) -> Layout {
    let unowned = Layout {
        logs: Vec::new(),
        partitions: vec![(ShardId(0), Epoch(0)); usize::from(partitions)],
        has_image: Vec::new(),
    };
    let new_log = || LogId(*uuid::Uuid::new_v4().as_bytes());
    next_layout(node, &unowned, shards, new_log)
}

/// The layout for another number of shards: new logs, and a new epoch for every partition; which
/// copies have an image is for the caller to fill in.
pub(super) fn next_layout(
    node: NodeId,
    layout: &Layout,
    shards: u16,
    mut new_log: impl FnMut() -> LogId,
) -> Layout {
    let places: Vec<Place> = (0..shards)
        .map(|shard| Place {
            node,
            shard: ShardId(shard),
        })
        .collect();
    let count = layout.partitions.len() as u16;
    let plan =
        placement::plan(count, &places, Policy::Contiguous).expect("a node has at least one shard");
    let owners = plan.into_iter().zip(&layout.partitions);
    Layout {
        logs: (0..shards).map(|_| new_log().0).collect(),
        has_image: vec![false; layout.partitions.len()],
        partitions: owners
            .map(|(place, &(_, epoch))| (places[place].shard, epoch.next()))
            .collect(),
    }
}

/// Removes copies that the layout does not name: superseded ones, and what a crash during a change
/// of layout has left.
pub(super) fn remove_other_copies<S: ImageStore>(
    layout: &Layout,
    stores: &mut [S],
) -> Result<(), RecoveryError> {
    for store in stores {
        let mut removed = false;
        for partition in store.partitions() {
            for manifest in image::manifests(store, partition)? {
                let (_, epoch) = layout.partitions[usize::from(partition.0)];
                if manifest.image.epoch != epoch {
                    image::drop_copy(store, partition, manifest.image.epoch)?;
                    removed = true;
                }
            }
        }
        if removed {
            store.sync()?;
        }
    }
    Ok(())
}

/// Writes a self-contained image of every copy under its epoch in `layout`, one thread per store.
pub(super) fn image_all<S: ImageStore>(
    partitions: Vec<Partition>,
    layout: &Layout,
    stores: &mut [S],
    now_ms: u64,
) -> Result<Vec<Partition>, RecoveryError> {
    let count = stores.len() as u16;
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
    let mut writer = ImageWriter::begin(store, image)?;
    let (mut builder, mut digest) = (BlockBuilder::new(), Digest::EMPTY);
    let (mut blocks, mut cursor, mut count): (Vec<Vec<u8>>, u64, u64) = (Vec::new(), 0, 0);
    loop {
        cursor = partition.table.scan(cursor, &mut |_, entry| {
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
