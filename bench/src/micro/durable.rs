//! Parts that need the disk. Every function answers how much it has done, which is durable then.

use std::fs;
use std::path::Path;

use ephesus_engine::image::{Generation, ImageId, ImageWriter, Manifest, SledStore, open_stores};
use ephesus_wal::disk::std::StdDisk;
use ephesus_wal::driver::Log;
use ephesus_wal::{Durability, LogId, LogOptions};
use ephesus_wire::{Epoch, Lsn, PartitionId};
use futures_lite::future::block_on;

use crate::error::{BenchError, Result};

fn wrong(what: &'static str) -> impl Fn(&dyn std::fmt::Display) -> BenchError {
    move |error| BenchError::failed(what, error)
}

fn make(dir: &Path) -> Result<()> {
    fs::create_dir(dir).map_err(BenchError::io(dir.display().to_string()))
}

/// A log whose commits are on the device.
pub(super) struct StrictLog(Log<StdDisk>);

impl StrictLog {
    const RECORD_BYTES: usize = 160;
    const BATCH_BYTES: usize = 4 << 20;
    const SEGMENT_BYTES: u64 = 16 << 20;

    pub(super) fn open(dir: &Path) -> Result<Self> {
        make(dir)?;
        let disk = StdDisk::new(dir, Durability::Strict).map_err(BenchError::io("the log"))?;
        let options = LogOptions {
            segment_bytes: Self::SEGMENT_BYTES,
            ..LogOptions::new(LogId([1; 16]))
        };
        let nothing = &mut |_, _: &[u8]| Ok(());
        let (log, _) = block_on(Log::open(disk, &options, Lsn::ZERO, 1, nothing))
            .map_err(|error| wrong("the log")(&error))?;
        Ok(StrictLog(log))
    }

    fn commit(&mut self, records: usize) -> Result<()> {
        let log = &mut self.0;
        let committed = block_on(async {
            for _ in 0..records {
                log.append(&[1; Self::RECORD_BYTES])?;
            }
            let committed = log.commit(1).await?;
            log.truncate_before(committed).await
        });
        committed.map_err(|error| wrong("the log")(&error))
    }

    pub(super) fn commit_one(&mut self) -> Result<usize> {
        self.commit(1).map(|()| 1)
    }

    pub(super) fn commit_many(&mut self) -> Result<usize> {
        let records = Self::BATCH_BYTES / Self::RECORD_BYTES;
        self.commit(records).map(|()| records * Self::RECORD_BYTES)
    }
}

/// Images of one copy, each in place of the one before.
pub(super) struct Images {
    store: SledStore,
    generation: u64,
    blocks: u64,
}

impl Images {
    const BLOCK_BYTES: usize = 4096;

    pub(super) fn open(dir: &Path, is_small: bool) -> Result<Self> {
        make(dir)?;
        let stores = open_stores(dir, 1).map_err(|error| wrong("the store")(&error))?;
        let store = stores.into_iter().next();
        Ok(Images {
            store: store.ok_or_else(|| wrong("the store")(&"is none"))?,
            generation: 0,
            blocks: if is_small { 256 } else { 16_384 },
        })
    }

    pub(super) fn write(&mut self) -> Result<usize> {
        self.generation += 1;
        let image = ImageId {
            partition: PartitionId(0),
            epoch: Epoch(1),
            generation: Generation(self.generation),
        };
        let wrong = wrong("an image");
        let store = &mut self.store;
        let mut writer = ImageWriter::begin(store, image).map_err(|error| wrong(&error))?;
        let block = [self.generation as u8; Self::BLOCK_BYTES];
        for _ in 0..self.blocks {
            writer.put(store, &block).map_err(|error| wrong(&error))?;
        }
        writer.seal(store).map_err(|error| wrong(&error))?;
        let (blocks, bytes) = writer.written();
        let manifest = Manifest {
            image,
            log: [1; 16],
            lsn_start: Lsn(self.generation),
            lsn_end: Lsn(self.generation),
            seq_start: 0,
            count: blocks,
            digest: [0; 2],
            blocks,
            bytes,
            created_ms: 1,
        };
        writer
            .switch(store, &manifest)
            .map_err(|error| wrong(&error))?;
        writer.sweep(store).map_err(|error| wrong(&error))?;
        Ok(bytes as usize)
    }
}
