//! Parts that need the disk: what they have done is durable.

use std::cell::RefCell;
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

use crate::error::{BenchError, During, Result};
use crate::prefill::KEY_BYTES;

use super::{VALUE_BYTES, Work};

/// With its header.
const RECORD_BYTES: usize = 40 + KEY_BYTES + VALUE_BYTES;
const BATCH_BYTES: usize = 4 << 20;
const SEGMENT_BYTES: u64 = 16 << 20;

const WHAT: &str = "a part that needs the disk";

/// Commits of one record each, and bytes of records that are committed many at a time.
pub(super) fn log(dir: &Path) -> Result<(Work, Work)> {
    fs::create_dir(dir).during(WHAT)?;
    let disk = StdDisk::new(dir, Durability::Strict).during(WHAT)?;
    let options = LogOptions {
        segment_bytes: SEGMENT_BYTES,
        ..LogOptions::new(LogId([1; 16]))
    };
    let nothing = &mut |_, _: &[u8]| Ok(());
    let (log, _) = block_on(Log::open(disk, &options, Lsn::ZERO, 1, nothing)).during(WHAT)?;
    let log = Rc::new(RefCell::new(log));
    let commit = |records: usize, done: usize| -> Work {
        let log = Rc::clone(&log);
        Box::new(move || {
            let log = &mut *log.borrow_mut();
            for _ in 0..records {
                log.append(&[1; RECORD_BYTES]).during(WHAT)?;
            }
            let committed = block_on(log.commit(1)).during(WHAT)?;
            block_on(log.truncate_before(committed)).during(WHAT)?;
            Ok(done)
        })
    };
    let records = BATCH_BYTES / RECORD_BYTES;
    Ok((commit(1, 1), commit(records, records * RECORD_BYTES)))
}

/// Bytes of images of one copy, each in place of the one before.
pub(super) fn image(dir: &Path, blocks: u64) -> Result<Work> {
    fs::create_dir(dir).during(WHAT)?;
    let store = open_stores(dir, 1).during(WHAT)?.into_iter().next();
    let mut store = store.ok_or_else(|| BenchError::failed(WHAT, "there is no store"))?;
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
    let mut writer = ImageWriter::begin(store, image).during(WHAT)?;
    for _ in 0..blocks {
        writer.put(store, &[1; BLOCK_BYTES]).during(WHAT)?;
    }
    writer.seal(store).during(WHAT)?;
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
    writer.switch(store, &manifest).during(WHAT)?;
    writer.sweep(store).during(WHAT)?;
    Ok(bytes as usize)
}
