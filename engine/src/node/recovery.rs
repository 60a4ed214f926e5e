//! From a data directory to partitions in memory: images and logs, one thread per log.
//!
//! A copy's records live in exactly one log. When the number of shards has changed, the old logs
//! are replayed in the old layout, every copy is imaged under its next epoch, the new layout is
//! made durable, and only then are the old logs and images removed. A crash before the new layout
//! leaves the old one, complete; a crash after it leaves the new one, complete.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ephesus_coordinator::placement::{self, Place, Policy};
use ephesus_wal::{
    Durability, LogId, LogOptions, LogWriter, OnDamage, SegmentHandle, StdDisk, WalError,
    open_writer, recover,
};
use ephesus_wire::block::BlockBuilder;
use ephesus_wire::digest::Digest;
use ephesus_wire::{Lsn, NodeId, PartitionId, Partitioning, ShardId};

use super::stamp::{DataDir, DataDirError, Layout};
use crate::image::{
    self, DbId, Generation, ImageId, ImageStore, ImageWriter, Manifest, ReadError, SledStore,
    StoreError, WriterError,
};
use crate::keyspace::Partition;
use crate::keyspace::replay::{Rebuild, Replay, ReplayError};
use crate::table::KeyHasher;

/// Why a node could not recover; what is on disk stays as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error("log {log}: {source}")]
    Log { log: LogId, source: WalError },
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Image(#[from] ReadError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("writing an image: {0}")]
    Writer(#[from] WriterError),
    /// An image was made with a log that the layout does not name.
    #[error("image {image} needs log {log}, which the layout does not name")]
    ForeignImage { image: ImageId, log: LogId },
}

/// What one shard starts from.
pub struct RecoveredShard {
    pub partitions: Vec<Partition>,
    pub writer: LogWriter,
    pub segment: SegmentHandle<ephesus_wal::disk::std::StdFile>,
    pub wall_clock_ms: u64,
}

/// One log's partitions, before its next incarnation is opened.
struct Replayed {
    partitions: Vec<Partition>,
    recovered: ephesus_wal::Recovered,
    /// No LSN up to this one may be given out again.
    floor: Lsn,
}

/// How far recovery is, for the log and for whoever asks.
#[derive(Debug, Default)]
pub struct Progress {
    pub keys: AtomicU64,
    pub records: AtomicU64,
    finished: AtomicBool,
}

impl Progress {
    /// Logs the progress once a second until [`Progress::finish`].
    fn report(&self) {
        let clock = super::clock;
        let (started, mut next) = (clock(), Duration::from_secs(1));
        while !self.finished.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(20));
            if started.elapsed() >= next {
                next += Duration::from_secs(1);
                let keys = self.keys.load(Ordering::Relaxed);
                let records = self.records.load(Ordering::Relaxed);
                tracing::info!(
                    keys,
                    records,
                    seconds = started.elapsed().as_secs(),
                    "recovering"
                );
            }
        }
    }
}

/// What recovery needs to know.
pub struct Recovery<'a> {
    pub dir: &'a DataDir,
    pub node: NodeId,
    pub partitioning: Partitioning,
    pub hasher: &'a KeyHasher,
    pub durability: Durability,
    pub segment_bytes: u64,
    pub on_damage: OnDamage,
}

impl Recovery<'_> {
    /// Rebuilds everything for `shards` shards; answers the layout that is in force now.
    ///
    /// # Errors
    /// [`RecoveryError`]; start again once its cause is mended.
    pub fn run(
        &self,
        layout: Layout,
        shards: u16,
        stores: &mut [SledStore],
    ) -> Result<(Layout, Vec<RecoveredShard>), RecoveryError> {
        let progress = Progress::default();
        std::thread::scope(|scope| {
            scope.spawn(|| progress.report());
            let result = self.run_with(&progress, layout, shards, stores);
            progress.finished.store(true, Ordering::Release);
            result
        })
    }

    fn run_with(
        &self,
        progress: &Progress,
        layout: Layout,
        shards: u16,
        stores: &mut [SledStore],
    ) -> Result<(Layout, Vec<RecoveredShard>), RecoveryError> {
        remove_other_copies(&layout, stores)?;
        self.dir.remove_other_logs(&layout)?;
        let replayed = self.replay_all(progress, &layout, stores)?;
        if layout.shards() == shards {
            let opened = self.open_all(&layout, replayed)?;
            return Ok((layout, opened));
        }
        tracing::info!(
            from = layout.shards(),
            to = shards,
            "the number of shards has changed"
        );
        let wall_clock_ms = replayed.iter().map(|r| r.recovered.wall_clock_ms_max).max();
        let partitions: Vec<Partition> = replayed
            .into_iter()
            .flat_map(|replayed| replayed.partitions)
            .collect();
        let new_layout = next_layout(self.node, &layout, shards);
        let partitions = image_all(partitions, &new_layout, stores, wall_clock_ms.unwrap_or(0))?;
        self.dir.write_layout(&new_layout)?;
        self.dir.remove_other_logs(&new_layout)?;
        remove_other_copies(&new_layout, stores)?;
        let mut by_shard: Vec<Vec<Partition>> = (0..shards).map(|_| Vec::new()).collect();
        for partition in partitions {
            let (shard, _) = new_layout.partitions[usize::from(partition.id.0)];
            by_shard[usize::from(shard.0)].push(partition);
        }
        let fresh = by_shard
            .into_iter()
            .enumerate()
            .map(|(shard, partitions)| {
                let log = new_layout.log(ShardId(shard as u16));
                let recovered = self.read_log(log, &mut |_, _| Ok(()))?;
                Ok(Replayed {
                    partitions,
                    recovered,
                    floor: Lsn::ZERO,
                })
            })
            .collect::<Result<Vec<_>, RecoveryError>>()?;
        let opened = self.open_all(&new_layout, fresh)?;
        Ok((new_layout, opened))
    }

    fn options(&self, log: LogId) -> LogOptions {
        LogOptions {
            durability: self.durability,
            segment_bytes: self.segment_bytes,
            on_damage: self.on_damage,
            ..LogOptions::new(log)
        }
    }

    fn replay_all(
        &self,
        progress: &Progress,
        layout: &Layout,
        stores: &[SledStore],
    ) -> Result<Vec<Replayed>, RecoveryError> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..layout.shards())
                .map(ShardId)
                .map(|shard| scope.spawn(move || self.replay(progress, layout, shard, stores)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("recovery threads do not panic"))
                .collect()
        })
    }

    fn replay(
        &self,
        progress: &Progress,
        layout: &Layout,
        shard: ShardId,
        stores: &[SledStore],
    ) -> Result<Replayed, RecoveryError> {
        let log = layout.log(shard);
        let mut loaded = Vec::new();
        let mut floor = Lsn::ZERO;
        for (index, &(owner, epoch)) in layout.partitions.iter().enumerate() {
            if owner != shard {
                continue;
            }
            let id = PartitionId(index as u16);
            let mut rebuild = Rebuild::new(id, epoch);
            let store = &stores[usize::from(DbId::of(id, stores.len() as u16).0)];
            if let Some(manifest) = image::load(store, id, epoch)? {
                if manifest.log == log.0 {
                    floor = floor.max(manifest.lsn_end);
                } else if !manifest.is_self_contained() {
                    let (image, log) = (manifest.image, LogId(manifest.log));
                    return Err(RecoveryError::ForeignImage { image, log });
                }
                self.load(store, &manifest, &mut rebuild)?;
                progress.keys.fetch_add(manifest.count, Ordering::Relaxed);
            }
            loaded.push(rebuild);
        }
        let mut replay = Replay::new(self.hasher.clone(), self.partitioning.count(), loaded);
        let recovered = self.read_log(log, &mut |lsn, record| {
            if replay.records % 1024 == 1023 {
                progress.records.fetch_add(1024, Ordering::Relaxed);
            }
            replay.record(lsn, record)
        })?;
        if let Some(torn) = &recovered.torn {
            tracing::info!(%log, segment = %torn.segment, offset = torn.offset,
                "the log ends in a torn write, which was never acknowledged");
        }
        Ok(Replayed {
            partitions: replay.finish(),
            recovered,
            floor,
        })
    }

    fn load(
        &self,
        store: &dyn ImageStore,
        manifest: &Manifest,
        rebuild: &mut Rebuild,
    ) -> Result<(), RecoveryError> {
        image::read(store, manifest, |_, block| {
            Ok(rebuild.block(block, self.hasher)?)
        })?;
        Ok(rebuild.image_complete(manifest)?)
    }

    fn read_log(
        &self,
        log: LogId,
        visit: &mut dyn FnMut(Lsn, &[u8]) -> Result<(), ReplayError>,
    ) -> Result<ephesus_wal::Recovered, RecoveryError> {
        let options = self.options(log);
        let disk = self.disk(log)?;
        let mut visit = |lsn, record: &[u8]| Ok(visit(lsn, record)?);
        let reading = recover(&disk, &options, Lsn::ZERO, &mut visit);
        futures_lite::future::block_on(reading).map_err(|source| RecoveryError::Log { log, source })
    }

    fn disk(&self, log: LogId) -> Result<StdDisk, RecoveryError> {
        let dir = self.dir.create_log_dir(log)?;
        let wrap = |source| DataDirError::Io {
            action: "open",
            path: dir.clone(),
            source,
        };
        Ok(StdDisk::new(&dir, self.durability).map_err(wrap)?)
    }

    /// Opens the next incarnation of every log.
    fn open_all(
        &self,
        layout: &Layout,
        replayed: Vec<Replayed>,
    ) -> Result<Vec<RecoveredShard>, RecoveryError> {
        let now_ms = crate::shard::wall_clock_ms();
        let mut opened = Vec::new();
        for (
            shard,
            Replayed {
                partitions,
                recovered,
                floor,
            },
        ) in replayed.into_iter().enumerate()
        {
            let log = layout.log(ShardId(shard as u16));
            let (disk, options) = (self.disk(log)?, self.options(log));
            let wall_clock_ms = now_ms.max(recovered.wall_clock_ms_max);
            let opening = open_writer(&disk, &options, &recovered, floor, wall_clock_ms);
            let result = futures_lite::future::block_on(opening)
                .map_err(|source| RecoveryError::Log { log, source })?;
            opened.push(RecoveredShard {
                partitions,
                writer: result.writer,
                segment: result.segment,
                wall_clock_ms,
            });
        }
        Ok(opened)
    }
}

/// The first layout of a new data directory.
#[must_use]
pub fn first_layout(node: NodeId, partitions: u16, shards: u16) -> Layout {
    let unowned = Layout {
        logs: Vec::new(),
        partitions: vec![(ShardId(0), ephesus_wire::Epoch(0)); usize::from(partitions)],
    };
    next_layout(node, &unowned, shards)
}

/// The layout for another number of shards: new logs, and a new epoch for every partition.
fn next_layout(node: NodeId, layout: &Layout, shards: u16) -> Layout {
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
        logs: (0..shards)
            .map(|_| *uuid::Uuid::new_v4().as_bytes())
            .collect(),
        partitions: owners
            .map(|(place, &(_, epoch))| (places[place].shard, epoch.next()))
            .collect(),
    }
}

/// Removes copies that the layout does not name: superseded ones, and what a crash during a change
/// of layout has left.
fn remove_other_copies(layout: &Layout, stores: &mut [SledStore]) -> Result<(), RecoveryError> {
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
fn image_all(
    partitions: Vec<Partition>,
    layout: &Layout,
    stores: &mut [SledStore],
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
    store: &mut SledStore,
    now_ms: u64,
) -> Result<Partition, RecoveryError> {
    let (_, epoch) = layout.partitions[usize::from(old.id.0)];
    let seq = old.seq();
    let mut partition = Partition::new(old.id, epoch);
    partition.table = old.table;
    partition.set_seq(seq);
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
    partition.generation = image.generation;
    Ok(partition)
}

/// How long something took, for the banner.
#[must_use]
pub fn elapsed_ms(since: Instant) -> u64 {
    since.elapsed().as_millis() as u64
}
