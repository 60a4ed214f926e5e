//! Removing images: those that newer ones have replaced, those of copies that left, and what a crash has left.

use ephesus_wire::{Epoch, PartitionId};

use super::extent;
use super::manifest::{
    self, Generation, ImageId, epoch_prefix, extent_key, manifest_key, parse_extent_key,
};
use super::reader::{ReadError, load};
use super::store::{ImageStore, ROOM, StoreError, check_room};

/// Keys of a slice: to sled they are about what it is given between two flushes, so that nobody waits for a slice for
/// longer than for one flush.
const SLICE_KEYS: usize = 48;

/// A copy of more blocks (256 MiB) is not removed with its tree before slices have made it smaller: sled reads all
/// leaves of a tree at once.
const WHOLE_BLOCKS: u64 = 64 << 10;

/// What goes of one copy's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The images that this one has replaced.
    Below(Generation),
    /// One image that was given up.
    Only(Generation),
    /// All, of a copy that has left; its image had so many blocks. A tree with nothing else in it goes as a whole:
    /// sled then reads its leaves, but does not write them anew for every eighth removal.
    All(u64),
}

/// Blocks that no manifest counts any more, removed a slice at a time.
#[derive(Clone, Debug)]
pub(super) struct Removal {
    pub(super) partition: PartitionId,
    pub(super) epoch: Epoch,
    pub(super) what: What,
    /// No key before this one is left.
    from: Vec<u8>,
    /// Extents removed so far, but for those of a tree that went as a whole.
    removed: u64,
}

impl Removal {
    pub(super) fn new(partition: PartitionId, epoch: Epoch, what: What) -> Removal {
        let from = match what {
            What::Only(generation) => manifest::generation_prefix(epoch, generation).to_vec(),
            What::Below(_) | What::All(_) => epoch_prefix(epoch).to_vec(),
        };
        Removal {
            partition,
            epoch,
            what,
            from,
            removed: 0,
        }
    }

    /// What an earlier attempt at an image, which is newer than the valid one, has left.
    ///
    /// # Errors
    /// Any error: the store cannot be read.
    pub(super) fn of_attempt(
        store: &dyn ImageStore,
        image: ImageId,
    ) -> Result<Option<Removal>, StoreError> {
        let only = Removal::new(image.partition, image.epoch, What::Only(image.generation));
        let first = store.next_key(image.partition, &only.from)?;
        Ok(first.is_some_and(|key| only.covers(&key)).then_some(only))
    }

    /// Removes all that there is room for; answers whether that was all.
    ///
    /// # Errors
    /// Any error: the store is unusable.
    pub(super) fn run(&mut self, store: &mut dyn ImageStore) -> Result<bool, StoreError> {
        while store.room() >= ROOM {
            if self.slice(store)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes one slice; answers whether that was the last.
    ///
    /// # Errors
    /// Any error: the store is unusable.
    pub(super) fn slice(&mut self, store: &mut dyn ImageStore) -> Result<bool, StoreError> {
        let (partition, epoch) = (self.partition, self.epoch);
        if let What::All(blocks) = &mut self.what {
            if *blocks <= WHOLE_BLOCKS && !has_others(store, partition, epoch)? {
                return store.drop_partition(partition).map(|()| true);
            }
            *blocks = blocks.saturating_sub((SLICE_KEYS * extent::BLOCKS) as u64);
        }
        for _ in 0..SLICE_KEYS {
            let next = store.next_key(partition, &self.from)?;
            let Some(mut key) = next.filter(|key| self.covers(key)) else {
                return Ok(true);
            };
            store.remove(partition, &key)?;
            self.removed += 1;
            key.push(0);
            self.from = key;
        }
        Ok(false)
    }

    fn covers(&self, key: &[u8]) -> bool {
        let of_epoch = parse_extent_key(key).filter(|(epoch, ..)| *epoch == self.epoch);
        of_epoch.is_some_and(|(_, generation, _)| match self.what {
            What::Below(keep) => generation < keep,
            What::Only(only) => generation == only,
            What::All(_) => true,
        })
    }
}

/// Removes blocks that no manifest counts, as a crash may leave them, as long as there is room; call before any
/// writer begins.
///
/// Returns how many extents were removed; they are gone for good with the next sync.
///
/// # Errors
/// [`ReadError::Manifest`] when a manifest is damaged: nothing of its copy is removed.
pub fn collect_garbage(
    store: &mut dyn ImageStore,
    partition: PartitionId,
) -> Result<u64, ReadError> {
    let mut removed = 0;
    let mut from = manifest::EXTENT_TAG.to_vec();
    while let Some((epoch, generation, _)) = store
        .next_key(partition, &from)?
        .and_then(|key| parse_extent_key(&key))
    {
        let current = load(store, partition, epoch)?;
        if current.is_none_or(|m| m.image.generation != generation) {
            let mut removal = Removal::new(partition, epoch, What::Only(generation));
            let is_all = removal.run(store)?;
            removed += removal.removed;
            if !is_all {
                break;
            }
        }
        from = behind(epoch, generation);
    }
    Ok(removed)
}

/// A copy that leaves: its partition and epoch, and how many blocks its image has.
pub type Leaving = (PartitionId, Epoch, u64);

/// Removes copies' manifests and blocks, leaving other copies of their partitions.
///
/// All manifests go first and are synced, so that no crash leaves a manifest without its blocks. Blocks for whose
/// removal there is no room stay: nothing counts them.
///
/// # Errors
/// [`StoreError::NoRoom`]: some manifests are still there. After any other error the store is unusable.
pub fn drop_copies(store: &mut dyn ImageStore, copies: &[Leaving]) -> Result<(), StoreError> {
    if copies.is_empty() {
        return Ok(());
    }
    for &(partition, epoch, _) in copies {
        check_room(store, ROOM, "remove images of copies that have left")?;
        drop_manifest(store, partition, epoch)?;
    }
    store.sync()?;
    for &(partition, epoch, blocks) in copies {
        let mut removal = Removal::new(partition, epoch, What::All(blocks));
        if !removal.run(store)? {
            tracing::warn!(db = %store.db(), "no room to remove images of copies that have left, which stay for now");
            break;
        }
    }
    store.sync()
}

/// The same of one copy.
///
/// # Errors
/// As [`drop_copies`].
#[cfg(any(test, feature = "planted"))]
pub fn drop_copy(
    store: &mut dyn ImageStore,
    partition: PartitionId,
    epoch: Epoch,
) -> Result<(), StoreError> {
    drop_copies(store, &[(partition, epoch, 0)])
}

/// The part of [`drop_copies`] before its first sync.
pub(super) fn drop_manifest(
    store: &mut dyn ImageStore,
    partition: PartitionId,
    epoch: Epoch,
) -> Result<(), StoreError> {
    store.remove(partition, &manifest_key(epoch))
}

/// Whether a store has more of a partition than one copy's blocks.
fn has_others(
    store: &dyn ImageStore,
    partition: PartitionId,
    epoch: Epoch,
) -> Result<bool, StoreError> {
    let prefix = epoch_prefix(epoch);
    let Some(first) = store.next_key(partition, &[])? else {
        return Ok(false);
    };
    if !first.starts_with(&prefix) {
        return Ok(true);
    }
    let next = store.next_key(partition, &behind(epoch, Generation(u64::MAX)))?;
    Ok(next.is_some())
}

/// The first key that may follow an image's blocks.
fn behind(epoch: Epoch, generation: Generation) -> Vec<u8> {
    let mut key = extent_key(epoch, generation, u64::MAX).to_vec();
    key.push(0);
    key
}
