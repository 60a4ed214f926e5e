//! Parts that need the disk: what they have done is durable.

use std::cell::RefCell;
use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use ephesus_engine::image::{Generation, ImageId, ImageWriter, Manifest, SledStore, open_stores};
use ephesus_wal::disk::std::StdDisk;
use ephesus_wal::driver::Log;
use ephesus_wal::{Durability, LogId, LogOptions};
use ephesus_wire::limits::BLOCK_BYTES;
use ephesus_wire::{Epoch, Lsn, PartitionId};
use futures_lite::future::block_on;

use crate::error::{BenchError, Result};
use crate::prefill::KEY_BYTES;

use super::{VALUE_BYTES, Work};

/// With its header.
const RECORD_BYTES: usize = 40 + KEY_BYTES + VALUE_BYTES;
const BATCH_BYTES: usize = 4 << 20;
const SEGMENT_BYTES: u64 = 16 << 20;

fn wrong(error: impl Display) -> BenchError {
    BenchError::failed("a part that needs the disk", error)
}

/// Commits of one record each, and bytes of records that are committed many at a time.
pub(super) fn log(dir: &Path) -> Result<(Work, Work)> {
    fs::create_dir(dir).map_err(wrong)?;
    let disk = StdDisk::new(dir, Durability::Strict).map_err(wrong)?;
    let options = LogOptions {
        segment_bytes: SEGMENT_BYTES,
        ..LogOptions::new(LogId([1; 16]))
    };
    let nothing = &mut |_, _: &[u8]| Ok(());
    let (log, _) = block_on(Log::open(disk, &options, Lsn::ZERO, 1, nothing)).map_err(wrong)?;
    let log = Rc::new(RefCell::new(log));
    let commit = |records: usize, done: usize| -> Work {
        let log = Rc::clone(&log);
        Box::new(move || {
            let log = &mut *log.borrow_mut();
            for _ in 0..records {
                log.append(&[1; RECORD_BYTES]).map_err(wrong)?;
            }
            let committed = block_on(log.commit(1)).map_err(wrong)?;
            block_on(log.truncate_before(committed)).map_err(wrong)?;
            Ok(done)
        })
    };
    let records = BATCH_BYTES / RECORD_BYTES;
    Ok((commit(1, 1), commit(records, records * RECORD_BYTES)))
}

/// Bytes of images of one copy, each in place of the one before.
pub(super) fn image(dir: &Path, blocks: u64) -> Result<Work> {
    fs::create_dir(dir).map_err(wrong)?;
    let store = open_stores(dir, 1).map_err(wrong)?.into_iter().next();
    let mut store = store.ok_or_else(|| wrong("there is no store"))?;
    let mut generation = 0;
    Ok(Box::new(move || {
        generation += 1;
        let image = ImageId {
            partition: PartitionId(0),
            epoch: Epoch(1),
            generation: Generation(generation),
        };
        write(&mut store, image, blocks)
    }))
}

fn write(store: &mut SledStore, image: ImageId, blocks: u64) -> Result<usize> {
    let mut writer = ImageWriter::begin(store, image).map_err(wrong)?;
    for _ in 0..blocks {
        writer.put(store, &[1; BLOCK_BYTES]).map_err(wrong)?;
    }
    writer.seal(store).map_err(wrong)?;
    let (blocks, bytes) = writer.written();
    let manifest = Manifest {
        image,
        log: [1; 16],
        lsn_start: Lsn(1),
        lsn_end: Lsn(1),
        seq_start: 0,
        count: blocks,
        digest: [0; 2],
        blocks,
        bytes,
        created_ms: 1,
    };
    writer.switch(store, &manifest).map_err(wrong)?;
    writer.sweep(store).map_err(wrong)?;
    Ok(bytes as usize)
}
