//! Recovery of one log: its copies' images, its records, and the next incarnation.

use std::sync::atomic::Ordering;

use ephesus_wal::{
    Disk, LogOptions, OnDamage, Recovered, VisitError, Visitor, WalError, open_writer, recover,
    recover_with,
};
use ephesus_wire::record::Source;
use ephesus_wire::{Epoch, Lsn, PartitionId};

use super::vouching::Vouching;
use super::{Now, Progress, RecoveredShard, RecoveryError};
use crate::image::{self, DbId, ImageStore, StoreError};
use crate::keyspace::Partition;
use crate::keyspace::replay::{Rebuild, Replay};
use crate::table::KeyHasher;

/// Bytes that a key takes in an image, at least.
const KEY_BYTES_MIN: u64 = 4;

/// One log and how to read it.
pub(super) struct OneLog<'a, D> {
    pub(super) disk: D,
    pub(super) options: LogOptions,
    pub(super) hasher: &'a KeyHasher,
    /// In the whole node.
    pub(super) partitions: u16,
}

/// A replay that counts into a progress.
struct Replaying<'a> {
    replay: Replay,
    progress: &'a Progress,
}

impl Visitor for Replaying<'_> {
    fn ahead(&mut self, lsn: Lsn, record: &[u8]) {
        self.replay.ahead(lsn, record);
    }

    fn visit(&mut self, lsn: Lsn, record: &[u8]) -> Result<(), VisitError> {
        if self.replay.records % 1024 == 1023 {
            self.progress.records.fetch_add(1024, Ordering::Relaxed);
        }
        Ok(self.replay.record(lsn, record)?)
    }
}

/// A copy that the log belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub(super) partition: PartitionId,
    pub(super) epoch: Epoch,
    /// The layout says that it began with an image.
    pub(super) has_image: bool,
    /// Who fills it, if the layout says that it is a staging copy.
    pub(super) source: Option<Source>,
}

impl Copy {
    /// Begins to rebuild it.
    pub(super) fn rebuild(&self) -> Rebuild {
        match self.source {
            Some(source) => Rebuild::staging(self.partition, self.epoch, source),
            None => Rebuild::new(self.partition, self.epoch),
        }
    }
}

/// One log's partitions, before its next incarnation is opened.
pub(super) struct Replayed {
    pub(super) partitions: Vec<Partition>,
    pub(super) recovered: Recovered,
    /// No LSN up to this one may be given out again.
    pub(super) floor: Lsn,
    /// The last time that the log has seen, or the images if the log is new.
    pub(super) wall_clock_ms: u64,
}

impl<D: Disk> OneLog<'_, D> {
    /// Loads the images of `copies` and replays the log over them.
    ///
    /// # Errors
    /// [`RecoveryError`]; nothing was changed.
    #[expect(clippy::indexing_slicing, reason = "a partition has one of the stores")]
    pub(super) fn replay<S: ImageStore>(
        &self,
        copies: impl Iterator<Item = Copy>,
        stores: &[S],
        progress: &Progress,
    ) -> Result<Replayed, RecoveryError> {
        let count = stores.len() as u16;
        let mut vouching = Vouching::new(self.options.log_id, count);
        let mut loaded = Vec::new();
        let mut imaged_ms = 0;
        // Memory is not taken for more keys than files may hold, whatever a manifest says.
        let file_keys = stores
            .iter()
            .map(|store| Ok(store.size_on_disk()? / KEY_BYTES_MIN))
            .collect::<Result<Vec<_>, StoreError>>()?;
        for copy in copies {
            let store = &stores[usize::from(DbId::of(copy.partition, count).0)];
            let mut rebuild = copy.rebuild();
            let manifest = image::load(store, copy.partition, copy.epoch)?;
            vouching.image(&copy, manifest.as_ref())?;
            if let Some(manifest) = &manifest {
                let most = file_keys[usize::from(store.db().0)];
                rebuild.reserve(manifest.count.min(most));
                image::read(store, manifest, |_, block| {
                    Ok(rebuild.block(block, self.hasher)?)
                })?;
                rebuild.image_complete(manifest)?;
                imaged_ms = imaged_ms.max(manifest.created_ms);
                progress.keys.fetch_add(manifest.count, Ordering::Relaxed);
            }
            loaded.push(rebuild);
        }
        let replay = Replay::new(self.hasher.clone(), self.partitions, loaded);
        let mut replay = replay.skipping_others();
        if self.options.on_damage == OnDamage::Skip {
            replay = replay.going_on_behind_gaps();
        }
        let mut replaying = Replaying { replay, progress };
        let reading = recover_with(&self.disk, &self.options, Lsn::ZERO, &mut replaying);
        let recovered = futures_lite::future::block_on(reading).map_err(|e| self.failed(e))?;
        let mut replay = replaying.replay;
        if !recovered.damage.is_empty() {
            replay.accept_gaps();
        }
        vouching.check_images(&replay)?;
        if self.options.on_damage == OnDamage::Refuse {
            vouching.check_end(recovered.reach())?;
        }
        if let Some(torn) = &recovered.torn {
            tracing::info!(log = %self.options.log_id, segment = %torn.segment,
                offset = torn.offset,
                "the log ends in a torn write: it was not on the device, so strict durability has acknowledged none of it");
        }
        for damage in &recovered.damage {
            tracing::warn!(log = %self.options.log_id, segment = %damage.segment, offset = damage.offset,
                lsn = %damage.lsn, fault = %damage.fault,
                "records are lost from this LSN on, as --on-damage accepts");
        }
        if !recovered.published.is_empty() {
            tracing::info!(log = %self.options.log_id, records = recovered.published.len(),
                "the process before has left records that it had not written yet");
        }
        Ok(Replayed {
            partitions: replay.finish()?,
            wall_clock_ms: match recovered.wall_clock_ms {
                0 => imaged_ms,
                logged_ms => logged_ms,
            },
            recovered,
            floor: vouching.floor(),
        })
    }

    /// Reads a log that belongs to `partitions` already, as after a change of layout.
    ///
    /// # Errors
    /// [`RecoveryError::Log`].
    pub(super) fn adopt(
        &self,
        partitions: Vec<Partition>,
        wall_clock_ms: u64,
    ) -> Result<Replayed, RecoveryError> {
        let recovered = futures_lite::future::block_on(async {
            recover(&self.disk, &self.options, Lsn::ZERO, &mut |_, _| Ok(())).await
        });
        Ok(Replayed {
            partitions,
            recovered: recovered.map_err(|e| self.failed(e))?,
            floor: Lsn::ZERO,
            wall_clock_ms,
        })
    }

    /// Opens the next incarnation.
    ///
    /// # Errors
    /// [`RecoveryError::Log`]: recover again.
    pub(super) fn open(
        &self,
        replayed: Replayed,
        now: Now,
    ) -> Result<RecoveredShard<D>, RecoveryError> {
        let Replayed {
            partitions,
            mut recovered,
            floor,
            wall_clock_ms,
        } = replayed;
        let wall_clock_ms = match now.resets {
            true => now.wall_ms,
            false => wall_clock_ms.max(now.wall_ms),
        };
        if now.resets {
            recovered.wall_clock_ms = wall_clock_ms;
        }
        let opening = open_writer(&self.disk, &self.options, &recovered, floor, wall_clock_ms);
        let opened = futures_lite::future::block_on(opening).map_err(|e| self.failed(e))?;
        Ok(RecoveredShard {
            partitions,
            writer: opened.writer,
            segment: opened.segment,
            mapped: opened.mapped,
            files: opened.files,
            wall_clock_ms,
        })
    }

    fn failed(&self, source: WalError) -> RecoveryError {
        RecoveryError::Log {
            log: self.options.log_id,
            source,
        }
    }
}
