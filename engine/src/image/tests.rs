//! Whole images, over the simulated and the real store.

mod power_loss;
mod stored;
mod threads;

use ephesus_wire::{Epoch, Lsn, PartitionId};

use super::*;

pub(super) fn image(partition: u16, epoch: u64, generation: u64) -> ImageId {
    ImageId {
        partition: PartitionId(partition),
        epoch: Epoch(epoch),
        generation: Generation(generation),
    }
}

/// A block that says which image and place it belongs to, and fills up to `bytes`.
pub(super) fn block(image: ImageId, sequence: u64, bytes: usize) -> Vec<u8> {
    let mut block = format!("{image} block {sequence} ").into_bytes();
    block.resize(bytes.max(block.len()), b'.');
    block
}

pub(super) fn manifest(image: ImageId, blocks: u64, bytes: u64) -> Manifest {
    Manifest {
        image,
        log: [7; 16],
        lsn_start: Lsn(image.generation.0 * 100),
        lsn_end: Lsn(image.generation.0 * 100 + 50),
        seq_start: image.generation.0,
        count: blocks * 3,
        digest: [image.generation.0, blocks],
        blocks,
        bytes,
        created_ms: 1,
    }
}

/// Writes one whole image the way the store thread does.
pub(super) fn write_image(
    store: &mut dyn ImageStore,
    image: ImageId,
    blocks: u64,
    block_bytes: usize,
) -> Result<(), ReadError> {
    let mut writer = ImageWriter::begin(store, image)?;
    for sequence in 0..blocks {
        writer.put(store, &block(image, sequence, block_bytes))?;
    }
    writer.seal(store)?;
    let (blocks, bytes) = writer.written();
    writer.switch(store, &manifest(image, blocks, bytes))?;
    writer.sweep(store)?;
    Ok(())
}

/// Reads an image and checks that every block is its own and in its place.
pub(super) fn check_image(store: &dyn ImageStore, manifest: &Manifest) -> Result<(), ReadError> {
    read(store, manifest, |sequence, found| {
        if found.starts_with(format!("{} block {sequence} ", manifest.image).as_bytes()) {
            Ok(())
        } else {
            Err("block of another image or place".into())
        }
    })
}

/// Every extent's key of a partition, as (epoch, generation).
pub(super) fn generations(store: &dyn ImageStore, partition: PartitionId) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    store
        .scan_prefix(partition, b"b", &mut |key, _| {
            let (epoch, generation, _) = manifest::parse_extent_key(key).expect("an extent's key");
            found.push((epoch.0, generation.0));
            std::ops::ControlFlow::Continue(())
        })
        .expect("scan");
    found.dedup();
    found
}
