//! Reading images back: at start, and for `ephesus check`.

use std::ops::ControlFlow;

use ephesus_wire::{Epoch, PartitionId};

use super::extent::{self, ExtentError};
use super::manifest::{
    ImageId, MANIFEST_TAG, Manifest, ManifestError, extent_key, generation_prefix, manifest_key,
};
use super::store::{DbId, ImageStore, StoreError};

/// What a caller's look at one block may object to.
pub type BlockFault = Box<dyn std::error::Error + Send + Sync>;

/// Why an image cannot be used: restore the partition from a backup or another node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The store cannot be read: stop.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The manifest is damaged.
    #[error("{db}: partition {partition}: {source}")]
    Manifest {
        /// The store.
        db: DbId,
        /// The partition.
        partition: PartitionId,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// An extent is there but damaged.
    #[error("{db}: {image}, extent {extent}: {source}")]
    Extent {
        /// The store.
        db: DbId,
        /// The image.
        image: ImageId,
        /// Which extent.
        extent: u64,
        /// What is wrong with it.
        source: ExtentError,
    },
    /// A block is there but damaged.
    #[error("{db}: {image}, extent {extent}, block {block}: {source}")]
    Block {
        /// The store.
        db: DbId,
        /// The image.
        image: ImageId,
        /// In which extent.
        extent: u64,
        /// Which block.
        block: u64,
        /// What the caller's check said.
        source: BlockFault,
    },
    /// An extent that the manifest counts blocks of is missing.
    #[error("{db}: {image}, extent {extent} with block {block} is missing")]
    Missing {
        /// The store.
        db: DbId,
        /// The image.
        image: ImageId,
        /// The first missing one.
        extent: u64,
        /// Its first block.
        block: u64,
    },
    /// There are fewer or more blocks than the manifest says.
    #[error("{db}: {image} has {found} blocks, its manifest counts {stated}")]
    Count {
        /// The store.
        db: DbId,
        /// The image.
        image: ImageId,
        /// Blocks by the manifest.
        stated: u64,
        /// Blocks found.
        found: u64,
    },
    /// The blocks do not have the size the manifest says.
    #[error("{db}: {image} has {found} bytes of blocks, its manifest counts {stated}")]
    Size {
        /// The store.
        db: DbId,
        /// The image.
        image: ImageId,
        /// Bytes by the manifest.
        stated: u64,
        /// Bytes found.
        found: u64,
    },
}

/// The manifests of all copies of a partition, lowest epoch first.
///
/// # Errors
/// [`ReadError::Manifest`] when any is damaged.
pub fn manifests(
    store: &dyn ImageStore,
    partition: PartitionId,
) -> Result<Vec<Manifest>, ReadError> {
    let mut found = Vec::new();
    let mut damage = None;
    store.scan_prefix(partition, MANIFEST_TAG, &mut |key, stored| match decode(
        partition, key, stored,
    ) {
        Ok(manifest) => {
            found.push(manifest);
            ControlFlow::Continue(())
        }
        Err(error) => {
            damage = Some(error);
            ControlFlow::Break(())
        }
    })?;
    match damage {
        Some(source) => Err(ReadError::Manifest {
            db: store.db(),
            partition,
            source,
        }),
        None => Ok(found),
    }
}

/// The manifest of one copy of a partition.
///
/// # Errors
/// [`ReadError::Manifest`] when it is damaged or another copy's.
pub fn load(
    store: &dyn ImageStore,
    partition: PartitionId,
    epoch: Epoch,
) -> Result<Option<Manifest>, ReadError> {
    let key = manifest_key(epoch);
    let stored = store.get(partition, &key)?;
    let decoded = stored.map(|stored| decode(partition, &key, &stored));
    decoded.transpose().map_err(|source| ReadError::Manifest {
        db: store.db(),
        partition,
        source,
    })
}

/// The manifest of one of a partition's copies, which is stored under `key`.
fn decode(partition: PartitionId, key: &[u8], stored: &[u8]) -> Result<Manifest, ManifestError> {
    let manifest = Manifest::decode(stored)?;
    let image = manifest.image;
    if image.partition != partition || *key != manifest_key(image.epoch) {
        return Err(ManifestError::Misplaced(image));
    }
    Ok(manifest)
}

/// Hands the blocks of an image to `visit` in order, with their sequence numbers.
///
/// Each extent is asked for by its key: sled keeps what a scan has read until 16,384 leaves of a Db were
/// looked at, and looks once per leaf then; by key it looks at least once per extent, and lets go in time.
///
/// # Errors
/// The first extent that is missing or damaged, the first block that `visit` objects to; a wrong total at
/// the end.
pub fn read(
    store: &dyn ImageStore,
    manifest: &Manifest,
    mut visit: impl FnMut(u64, &[u8]) -> Result<(), BlockFault>,
) -> Result<(), ReadError> {
    let (db, image) = (store.db(), manifest.image);
    let count = |found| ReadError::Count {
        db,
        image,
        stated: manifest.blocks,
        found,
    };
    let (mut extent, mut blocks, mut bytes) = (0, 0, 0);
    while blocks < manifest.blocks {
        let first = blocks;
        let mut looked = Ok(());
        let key = extent_key(image.epoch, image.generation, extent);
        store.get_with(image.partition, &key, &mut |found| {
            looked = extent::blocks(found).try_for_each(|block| {
                let block = block.map_err(|source| ReadError::Extent {
                    db,
                    image,
                    extent,
                    source,
                })?;
                bytes += block.len() as u64;
                blocks += 1;
                visit(blocks - 1, block).map_err(|source| ReadError::Block {
                    db,
                    image,
                    extent,
                    block: blocks - 1,
                    source,
                })
            });
        })?;
        looked?;
        if blocks == first {
            return Err(match blocks_of(store, image)? {
                found if found > first => ReadError::Missing {
                    db,
                    image,
                    extent,
                    block: first,
                },
                found => count(found),
            });
        }
        extent += 1;
    }
    let behind = extent_key(image.epoch, image.generation, extent);
    let prefix = generation_prefix(image.epoch, image.generation);
    let next = store.next_key(image.partition, &behind)?;
    if blocks != manifest.blocks || next.is_some_and(|key| key.starts_with(&prefix)) {
        return Err(count(blocks_of(store, image)?));
    }
    if bytes != manifest.bytes {
        return Err(ReadError::Size {
            db,
            image,
            stated: manifest.bytes,
            found: bytes,
        });
    }
    Ok(())
}

/// How many blocks of an image there are; damaged extents end before their damage.
fn blocks_of(store: &dyn ImageStore, image: ImageId) -> Result<u64, StoreError> {
    let prefix = generation_prefix(image.epoch, image.generation);
    let mut blocks = 0;
    store.scan_prefix(image.partition, &prefix, &mut |_, found| {
        blocks += extent::blocks(found).flatten().count() as u64;
        ControlFlow::Continue(())
    })?;
    Ok(blocks)
}

/// Reads every image of a store, checking each block with `check`; returns every problem found.
///
/// # Errors
/// Only when the store itself cannot be read; damage is in the list.
pub fn verify(
    store: &dyn ImageStore,
    mut check: impl FnMut(&[u8]) -> Result<(), BlockFault>,
) -> Result<Vec<ReadError>, StoreError> {
    let mut problems = Vec::new();
    for partition in store.partitions() {
        let images = match manifests(store, partition) {
            Ok(images) => images,
            Err(ReadError::Store(error)) => return Err(error),
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        for manifest in images {
            match read(store, &manifest, |_, block| check(block)) {
                Ok(()) => {}
                Err(ReadError::Store(error)) => return Err(error),
                Err(problem) => problems.push(problem),
            }
        }
    }
    Ok(problems)
}
