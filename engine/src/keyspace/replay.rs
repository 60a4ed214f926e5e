//! Rebuilding partitions: an image's entries, then the log's records on top of it.
//!
//! Records are absolute, so replaying them over an image that was written while they happened
//! converges to the same table. Nothing expires here: only the owner's logged deletes remove keys.

mod role;

use std::collections::VecDeque;

use ephesus_wire::block::Assembler;
use ephesus_wire::digest::Digest;
use ephesus_wire::record::{self, ImageEntry, Record, RecordMeta, Source};
use ephesus_wire::{Epoch, Lsn, PartitionId, WireError};

use super::Partition;
use crate::image::{Generation, Manifest};
use crate::table::{Gathered, KeyHasher, Prefetch, Table};
use role::{Part, Replayed};

/// Records between two steps of loading what a key needs.
const STEP_RECORDS: usize = 4;

/// Keys of an image that are gathered before they become a table: at most 16 MiB more memory.
const GATHERED_KEYS_MAX: u64 = 1 << 20;

/// Why recovery refuses what it found; the data on disk is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A block of an image cannot be read: restore the directory from a backup.
    #[error("image of partition {partition}: {source}")]
    Block {
        partition: PartitionId,
        source: WireError,
    },
    /// An image does not hold what its manifest says.
    #[error(
        "image of partition {partition} holds {found} keys and digest {digest:?}, its manifest \
         says {} and {:?}", manifest.count, manifest.digest
    )]
    Image {
        partition: PartitionId,
        found: u64,
        digest: [u64; 2],
        manifest: Box<Manifest>,
    },
    /// A record that passed its checksum makes no sense: another release wrote it.
    #[error("log record {lsn}: {source}")]
    Record { lsn: Lsn, source: WireError },
    /// A record of a partition that this log does not have.
    #[error("log record {lsn} is of partition {partition}, which this shard does not own")]
    Foreign { lsn: Lsn, partition: PartitionId },
    /// A record of an ownership that never was.
    #[error(
        "log record {lsn} of partition {partition} has epoch {found}, the table says {expected}"
    )]
    Epoch {
        lsn: Lsn,
        partition: PartitionId,
        found: Epoch,
        expected: Epoch,
    },
    /// Records of a partition are missing between two that are there.
    #[error("log record {lsn} of partition {partition} has sequence {found} after {last}")]
    Gap {
        lsn: Lsn,
        partition: PartitionId,
        found: u64,
        last: u64,
    },
    /// A record that cannot follow the ones before it: another release wrote it, or a bug; report this.
    #[error("log record {lsn} cannot follow what is logged of its partition before")]
    Unexpected { lsn: Lsn },
    /// A block that a staging copy has received cannot be read, although the log can: report this.
    #[error("log record {lsn} of partition {partition}: {source}")]
    Import {
        lsn: Lsn,
        partition: PartitionId,
        source: WireError,
    },
}

/// One partition while it is being rebuilt.
pub struct Rebuild {
    pub partition: Partition,
    /// What the image has brought so far, unless it is large.
    gathered: Option<Gathered>,
    assembler: Assembler,
    digest: Digest,
    count: u64,
    /// Records up to this LSN are in the image.
    covered: Lsn,
    part: Part,
    /// The first gap since the copy has begun, and where: kept until the end, because the log may yet say
    /// which image is lost, or that what it is in does not count.
    gap: Option<(Lsn, ReplayError)>,
    /// Of a copy that the layout names as staging: whether the log says that all of it was durable.
    is_vouched: bool,
}

impl Rebuild {
    /// Begins with an empty copy, which is served unless its records say something else.
    #[must_use]
    pub fn new(id: PartitionId, epoch: Epoch) -> Rebuild {
        Rebuild {
            partition: Partition::new(id, epoch),
            gathered: None,
            assembler: Assembler::new(),
            digest: Digest::EMPTY,
            count: 0,
            covered: Lsn::ZERO,
            part: Part::new(Replayed::Serving),
            gap: None,
            is_vouched: false,
        }
    }

    /// Begins with an empty staging copy that `source` fills, as the layout says; it is one until its
    /// records say something else, also when those that made it one are only in an image.
    #[must_use]
    pub fn staging(id: PartitionId, epoch: Epoch, source: Source) -> Rebuild {
        Rebuild {
            part: Part::new(Replayed::Receiving(source)),
            ..Rebuild::new(id, epoch)
        }
    }

    /// Makes room for an image of `keys` keys, before its first block.
    pub fn reserve(&mut self, keys: u64) {
        if !self.partition.table.is_empty() {
            return;
        }
        if keys <= GATHERED_KEYS_MAX {
            self.gathered = Some(Gathered::with_capacity(keys as usize));
        } else {
            self.partition.table = Table::with_capacity(keys as usize);
        }
    }

    /// Adds the next block of the image.
    ///
    /// # Errors
    /// A damaged block.
    pub fn block(&mut self, block: &[u8], hasher: &KeyHasher) -> Result<(), ReplayError> {
        let Rebuild {
            partition,
            gathered,
            assembler,
            digest,
            count,
            ..
        } = self;
        let id = partition.id;
        let fed = assembler.feed(block, |entry| {
            digest.add(entry.key, entry.value, entry.expire_at_ms);
            *count += 1;
            let hash = hasher.hash(entry.key);
            let (key, value, expire_at_ms) = (entry.key, entry.value, entry.expire_at_ms);
            match gathered {
                Some(gathered) => gathered.push(hash, key, value, expire_at_ms),
                None => {
                    partition.table.put(hash, key, value, expire_at_ms);
                }
            }
        });
        fed.map_err(|source| ReplayError::Block {
            partition: id,
            source,
        })
    }

    /// Checks the image against its manifest and goes on from where it began.
    ///
    /// # Errors
    /// When count or digest differ.
    pub fn image_complete(&mut self, manifest: &Manifest) -> Result<(), ReplayError> {
        let digest = self.digest.to_words();
        let is_whole = self.assembler.is_complete();
        if !is_whole || self.count != manifest.count || digest != manifest.digest {
            return Err(ReplayError::Image {
                partition: self.partition.id,
                found: self.count,
                digest,
                manifest: Box::new(*manifest),
            });
        }
        if let Some(gathered) = self.gathered.take() {
            self.partition.table = gathered.into_table();
        }
        self.partition
            .image_loaded(manifest.image.generation, manifest.seq_start);
        self.covered = manifest.lsn_start;
        self.part.begins_midway();
        Ok(())
    }

    /// Generation of the image; 0 without one.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.partition.generation
    }

    /// Whether it matters that something of the copy is missing. A staging copy that its migration has not
    /// prepared is wiped in any case; what is left of earlier ones may well be incomplete.
    fn counts(&self) -> bool {
        self.is_vouched || !self.part.is_named_staging()
    }

    /// Whether a copy of this epoch begins with the record: what the log has of the epoch before it does not count.
    ///
    /// One that begins empty logs nothing that says so, and may do it behind what a migration has left that was to
    /// bring the partition under the same epoch. Sequences of one copy only grow.
    fn begins(&self, lsn: Lsn, meta: RecordMeta, record: &Record<'_>) -> bool {
        if meta.seq != 1 || meta.epoch != self.partition.epoch {
            return false;
        }
        if matches!(record, Record::Created { .. }) {
            return true;
        }
        let is_behind_other = match self.generation() {
            Generation(0) => self.gap.is_some() || self.part.is_of_migration(),
            // The image is of the copy that the layout names.
            _ => lsn <= self.covered,
        };
        is_behind_other && !self.part.is_named_staging()
    }

    /// Answers whether the copy has begun with this record.
    fn apply(
        &mut self,
        lsn: Lsn,
        meta: RecordMeta,
        record: &Record<'_>,
        hasher: &KeyHasher,
    ) -> Result<bool, ReplayError> {
        if meta.epoch < self.partition.epoch {
            return Ok(false);
        }
        let begins = self.begins(lsn, meta, record);
        if begins && !matches!(record, Record::Created { .. }) {
            self.part.begins_empty();
        }
        let partition = &mut self.partition;
        let id = partition.id;
        if meta.epoch == partition.epoch {
            self.is_vouched = match record {
                Record::Created { .. } | Record::StagingWiped => false,
                record => self.is_vouched || self.part.vouches(record),
            };
        }
        if lsn <= self.covered {
            if meta.epoch == partition.epoch {
                self.part.recall(lsn, record);
            }
            return Ok(begins);
        }
        if meta.epoch > partition.epoch {
            let (found, expected) = (meta.epoch, partition.epoch);
            return Err(ReplayError::Epoch {
                lsn,
                partition: id,
                found,
                expected,
            });
        }
        if meta.seq != partition.seq() + 1 && !begins {
            let (found, last) = (meta.seq, partition.seq());
            return Err(ReplayError::Gap {
                lsn,
                partition: id,
                found,
                last,
            });
        }
        self.part
            .follow(lsn, meta, record, partition.seq() == 0)
            .map_err(|_| ReplayError::Unexpected { lsn })?;
        if begins {
            partition.restart();
            partition.table = Table::new();
            self.gap = None;
        }
        partition.set_seq(meta.seq);
        partition.written(lsn);
        let table = &mut partition.table;
        match *record {
            Record::Put {
                key,
                value,
                expire_at_ms,
            } => {
                table.put(hasher.hash(key), key, value, expire_at_ms);
            }
            Record::Delete { key } => {
                table.remove(hasher.hash(key), key);
            }
            Record::SetExpiry { key, expire_at_ms } => {
                table.set_expiry(hasher.hash(key), key, expire_at_ms);
            }
            Record::Block(block) => {
                let fed = self.part.assembler.feed(block, |entry| {
                    let hash = hasher.hash(entry.key);
                    table.put(hash, entry.key, entry.value, entry.expire_at_ms);
                });
                fed.map_err(|source| ReplayError::Import {
                    lsn,
                    partition: id,
                    source,
                })?;
            }
            Record::Flush => *table = Table::new(),
            Record::StagingWiped | Record::Dropped => {
                *table = Table::new();
                partition.emptied();
            }
            _ => {}
        }
        Ok(begins)
    }

    fn into_partition(self) -> Partition {
        let Rebuild {
            mut partition,
            part,
            ..
        } = self;
        part.give(&mut partition);
        partition
    }
}

/// The partitions of one log while they are being rebuilt.
pub struct Replay {
    hasher: KeyHasher,
    /// By partition id.
    rebuilds: Vec<Option<Box<Rebuild>>>,
    /// The images without which the log is not complete, as its last such record names them; not those of
    /// copies that have begun anew since.
    images: Vec<ImageEntry>,
    /// Keys of coming records, the last one first.
    ahead: VecDeque<Option<(usize, u64)>>,
    /// Skips records of copies that are not here, instead of refusing them.
    skips_others: bool,
    /// Goes on behind records that are missing.
    goes_on: bool,
    pub records: u64,
}

impl Replay {
    /// Goes on from images that are complete; `partitions` is the number in the whole node.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "the copies are of so many partitions, which recovery has checked"
    )]
    pub fn new(hasher: KeyHasher, partitions: u16, loaded: Vec<Rebuild>) -> Replay {
        let mut rebuilds: Vec<Option<Box<Rebuild>>> = Vec::new();
        rebuilds.resize_with(usize::from(partitions), || None);
        for rebuild in loaded {
            let place = usize::from(rebuild.partition.id.0);
            rebuilds[place] = Some(Box::new(rebuild));
        }
        Replay {
            hasher,
            rebuilds,
            images: Vec::new(),
            ahead: VecDeque::new(),
            skips_others: false,
            goes_on: false,
            records: 0,
        }
    }

    /// Skips records of copies that were not loaded, as those that were given up or wiped leave them behind;
    /// only for a log whose layout names every copy that counts.
    #[must_use]
    pub fn skipping_others(mut self) -> Replay {
        self.skips_others = true;
        self
    }

    /// Goes on behind missing records, for a log whose damage is skipped. They are refused at the end all
    /// the same, unless there was damage: see [`Replay::accept_gaps`].
    #[must_use]
    pub fn going_on_behind_gaps(mut self) -> Replay {
        self.goes_on = true;
        self
    }

    /// The log was damaged, and whoever asked to skip that has accepted what is missing.
    pub fn accept_gaps(&mut self) {
        if self.goes_on {
            for rebuild in self.rebuilds.iter_mut().flatten() {
                rebuild.gap = None;
            }
        }
    }

    /// Applies one record of the log; records must come in order.
    ///
    /// # Errors
    /// [`ReplayError`]: nothing may be served.
    pub fn record(&mut self, lsn: Lsn, bytes: &[u8]) -> Result<(), ReplayError> {
        self.records += 1;
        let (meta, record) = match record::decode(bytes) {
            Ok(Some((meta, record, len))) if len == bytes.len() => (meta, record),
            Ok(_) => {
                let source = WireError::Malformed("record and its length differ");
                return Err(ReplayError::Record { lsn, source });
            }
            Err(source) => return Err(ReplayError::Record { lsn, source }),
        };
        if let Record::Ops(ops) = record {
            for (meta, record) in ops {
                self.apply(lsn, meta, &record)?;
            }
            return Ok(());
        }
        if let Record::Images(images) = record {
            self.images = images.collect();
            return Ok(());
        }
        self.apply(lsn, meta, &record)
    }

    /// Begins to load what a record that comes soon will need; changes nothing else.
    pub fn ahead(&mut self, lsn: Lsn, bytes: &[u8]) {
        self.ahead.push_front(self.place(lsn, bytes));
        for (step, age) in Prefetch::STEPS.into_iter().zip((0..).step_by(STEP_RECORDS)) {
            if let Some(Some((place, hash))) = self.ahead.get(age)
                && let Some(Some(rebuild)) = self.rebuilds.get(*place)
            {
                rebuild.partition.prefetch(*hash, step);
            }
        }
        self.ahead.truncate(Prefetch::STEPS.len() * STEP_RECORDS);
    }

    /// Where a record's key is, if the record has one and is not in the image.
    fn place(&self, lsn: Lsn, bytes: &[u8]) -> Option<(usize, u64)> {
        let (meta, record, _) = record::decode(bytes).ok()??;
        let (Record::Put { key, .. } | Record::Delete { key } | Record::SetExpiry { key, .. }) =
            record
        else {
            return None;
        };
        let place = usize::from(meta.partition.0);
        let rebuild = self.rebuilds.get(place)?.as_ref()?;
        (lsn > rebuild.covered).then(|| (place, self.hasher.hash(key)))
    }

    /// The first image that the log depends on and that is missing or older: its entry, and the
    /// generation that is there instead (0: none).
    #[must_use]
    pub fn lost_image(&self) -> Option<(ImageEntry, Generation)> {
        self.images.iter().find_map(|entry| {
            let rebuild = self
                .rebuilds
                .get(usize::from(entry.partition.0))?
                .as_ref()?;
            let found = rebuild.generation();
            let is_lost = rebuild.partition.epoch == entry.epoch
                && rebuild.counts()
                && found < Generation(entry.generation);
            is_lost.then_some((*entry, found))
        })
    }

    fn apply(
        &mut self,
        lsn: Lsn,
        meta: RecordMeta,
        record: &Record<'_>,
    ) -> Result<(), ReplayError> {
        let place = self.rebuilds.get_mut(usize::from(meta.partition.0));
        let Some(rebuild) = place.and_then(Option::as_mut) else {
            if self.skips_others {
                return Ok(());
            }
            return Err(ReplayError::Foreign {
                lsn,
                partition: meta.partition,
            });
        };
        match rebuild.apply(lsn, meta, record, &self.hasher) {
            Ok(has_begun) => {
                if has_begun {
                    let of = (meta.partition, meta.epoch);
                    self.images
                        .retain(|entry| (entry.partition, entry.epoch) != of);
                }
                Ok(())
            }
            Err(gap @ ReplayError::Gap { .. }) => {
                rebuild.gap.get_or_insert((lsn, gap));
                if !self.goes_on || meta.seq <= rebuild.partition.seq() {
                    return Ok(());
                }
                // All of the log is held until an image covers what lies behind the gap.
                rebuild.partition.written(rebuild.covered.next());
                rebuild.partition.set_seq(meta.seq - 1);
                let applied = rebuild.apply(lsn, meta, record, &self.hasher);
                applied.map(|_| ())
            }
            Err(ReplayError::Epoch { .. }) if self.skips_others => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What was rebuilt. A staging copy that is not prepared is
    /// [`Broken`](crate::migration::StagingState::Broken): wipe it before anything else.
    ///
    /// # Errors
    /// [`ReplayError::Gap`] when records were missing: nothing may be served.
    pub fn finish(self) -> Result<Vec<Partition>, ReplayError> {
        let mut rebuilds: Vec<_> = self.rebuilds.into_iter().flatten().collect();
        let gaps = rebuilds.iter_mut().filter(|rebuild| rebuild.counts());
        let gaps = gaps.filter_map(|rebuild| rebuild.gap.take());
        if let Some((_, gap)) = gaps.min_by_key(|(lsn, _)| *lsn) {
            return Err(gap);
        }
        let partitions = rebuilds.into_iter().map(|rebuild| rebuild.into_partition());
        Ok(partitions.collect())
    }
}
