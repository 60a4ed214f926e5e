//! Rebuilding a Db offline: sled reuses the space of removed pages but rarely gives it back.

use std::ops::ControlFlow;
use std::path::Path;

use ephesus_wire::PartitionId;

use super::layout::{DbPaths, directory_bytes, free_bytes};
use super::manifest::{MANIFEST_TAG, Manifest, generation_prefix};
use super::sled_store::SledStore;
use super::store::{ImageStore, StoreError};
use crate::sled_sync;

/// A Db is rebuilt at start when its files are this many times larger than its live blocks, and
const WASTE_FACTOR: u64 = 4;

/// larger than this, in bytes.
const WASTE_BYTES_MIN: u64 = 256 << 20;

/// A freshly written Db takes up to twice its blocks (half-full leaves), and some room to spare.
const COPY_FACTOR: u64 = 3;

/// What the images of a data directory hold at least, by the size of its files; 0 when that is unknown.
#[must_use]
pub fn least_live_bytes(images: &Path) -> u64 {
    let stores = std::fs::read_dir(images).into_iter().flatten().flatten();
    let sizes = stores.filter_map(|store| directory_bytes(&store.path()).ok());
    sizes
        .filter(|size| *size > WASTE_BYTES_MIN)
        .map(|size| size / WASTE_FACTOR)
        .sum()
}

/// Rebuilds the store when it wastes too much space and there is room for the copy.
///
/// # Errors
/// A store error of either Db: the original is untouched unless the copy was complete.
pub(super) fn if_wasteful(store: SledStore, paths: &DbPaths) -> Result<SledStore, StoreError> {
    let (live, size) = (store.live_bytes()?, store.size_on_disk()?);
    if size <= WASTE_BYTES_MIN || size <= live.saturating_mul(WASTE_FACTOR) {
        return Ok(store);
    }
    let db = store.db();
    let need = live.saturating_mul(COPY_FACTOR);
    match free_bytes(&paths.root) {
        Ok(free) if free < need => {
            tracing::warn!(%db, size, live, free, need, "no room to rebuild the store");
            Ok(store)
        }
        Ok(_) => rebuild(store, paths),
        Err(error) => {
            tracing::warn!(%db, %error, "free space unknown: store not rebuilt");
            Ok(store)
        }
    }
}

/// Copies every image into a new Db and puts it in the old one's place; a crash leaves either.
///
/// # Errors
/// As [`if_wasteful`].
pub(super) fn rebuild(store: SledStore, paths: &DbPaths) -> Result<SledStore, StoreError> {
    let (db, stores) = (store.db(), store.stores());
    let before = store.size_on_disk()?;
    tracing::info!(%db, before, "rebuilding the store");
    let after = match copy(&store, paths) {
        Ok(after) => after,
        Err(error) => {
            // As when others fill the disk meanwhile. What is read of the store as it is comes up by itself.
            tracing::warn!(%db, %error, "the store could not be rebuilt, and stays as it is");
            paths.settle(db)?;
            return Ok(store);
        }
    };
    drop(store);
    paths.adopt(db)?;
    tracing::info!(%db, before, after, "rebuilt the store");
    SledStore::open_at(&paths.live, db, stores)
}

/// Copies every image into a new Db, durably; answers its size.
fn copy(store: &SledStore, paths: &DbPaths) -> Result<u64, StoreError> {
    let (db, stores) = (store.db(), store.stores());
    let mut fresh = SledStore::open_at(&paths.fresh, db, stores)?;
    for partition in store.partitions() {
        copy_partition(store, &mut fresh, partition)?;
    }
    fresh.sync()?;
    sled_sync::sync_layout(&paths.fresh).map_err(|source| StoreError::Durability { db, source })?;
    fresh.size_on_disk()
}

/// Copies the manifests and the blocks they count; a damaged manifest is copied as it is, with every
/// block of the partition, so that nothing is lost that could still be examined.
fn copy_partition(
    from: &SledStore,
    to: &mut SledStore,
    partition: PartitionId,
) -> Result<(), StoreError> {
    let mut prefixes: Vec<Vec<u8>> = Vec::new();
    let mut damaged = false;
    from.scan_prefix(partition, MANIFEST_TAG, &mut |_, stored| {
        match Manifest::decode(stored) {
            Ok(m) => {
                prefixes.push(generation_prefix(m.image.epoch, m.image.generation).to_vec());
            }
            Err(_) => damaged = true,
        }
        ControlFlow::Continue(())
    })?;
    if damaged {
        prefixes = vec![super::manifest::EXTENT_TAG.to_vec()];
    }
    for prefix in prefixes.iter().map(Vec::as_slice).chain([MANIFEST_TAG]) {
        let mut written = Ok(());
        from.scan_prefix(partition, prefix, &mut |key, value| {
            written = to.insert(partition, key, value);
            if written.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        written?;
    }
    Ok(())
}
