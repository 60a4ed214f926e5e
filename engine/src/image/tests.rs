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

/// The extents of an image of such blocks.
pub(super) fn extents_of(
    image: ImageId,
    blocks: std::ops::Range<u64>,
    block_bytes: usize,
) -> Vec<Vec<u8>> {
    let (mut builder, mut full) = (ExtentBuilder::default(), Vec::new());
    for sequence in blocks {
        let block = block(image, sequence, block_bytes);
        builder.push(&block, |extent| full.push(extent.to_vec()));
    }
    builder.finish(|extent| full.push(extent.to_vec()));
    full
}

pub(super) fn manifest(image: ImageId, blocks: u64, bytes: u64) -> Manifest {
    Manifest {
        image,
        side: Side::default(),
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

/// Writes one whole image the way the store thread does, to a side of which nothing is known.
pub(super) fn write_image(
    store: &mut dyn ImageStore,
    image: ImageId,
    blocks: u64,
    block_bytes: usize,
) -> Result<(), WriterError> {
    write_next(store, image, blocks, block_bytes, None).map(drop)
}

/// Writes one whole image into `places`; returns those that it leaves for the next one.
pub(super) fn write_next(
    store: &mut dyn ImageStore,
    image: ImageId,
    blocks: u64,
    block_bytes: usize,
    places: Option<u64>,
) -> Result<u64, WriterError> {
    let mut writer = ImageWriter::begin(store, image, places)?;
    for extent in extents_of(image, 0..blocks, block_bytes) {
        writer.put(store, &extent)?;
    }
    writer.seal(store)?;
    let (blocks, bytes) = writer.written();
    writer.switch(store, &manifest(image, blocks, bytes))?;
    writer.sweep(store)
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

/// The extents of a partition, in the order of their keys, empty ones included.
pub(super) fn extents(store: &dyn ImageStore, partition: PartitionId) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    store
        .scan_prefix(partition, manifest::EXTENT_TAG, &mut |key, extent| {
            assert!(manifest::parse_extent_key(key).is_some(), "{key:02x?}");
            found.push(extent.to_vec());
            std::ops::ControlFlow::Continue(())
        })
        .expect("scan");
    found
}

/// The images that a partition has blocks of, as (epoch, generation), in the order of their keys.
pub(super) fn generations(store: &dyn ImageStore, partition: PartitionId) -> Vec<(u64, u64)> {
    let named = |block: &[u8]| {
        let text = String::from_utf8_lossy(block).into_owned();
        let numbers: Vec<u64> = text
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        (numbers[1], numbers[2])
    };
    let mut found: Vec<_> = extents(store, partition)
        .iter()
        .flat_map(|extent| extent::blocks(extent).map(|b| named(b.expect("whole"))))
        .collect();
    found.dedup();
    found
}
