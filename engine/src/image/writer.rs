//! Writing one image: the order of writes and syncs that leaves exactly one valid image at any crash.
//!
//! ```text
//! FROM      TO        [call]      effect, in this order
//! -         Writing   [begin]     stale blocks of this generation removed
//! Writing   Writing   [put]       one block taken, or an extent of those taken inserted
//! Writing   Sealing   [close]     the last extent inserted, empty places removed
//! Sealing   Sealed    [sealed]    the store was synced since: every block is durable
//!                                 ... the caller waits until lsn_end is committed in the log ...
//! Sealed    Switching [name]      manifest replaced
//! Switching Switched  [switched]  the store was synced since: this image is the valid one
//! Switched  Done      [sweep]     older generations removed, durable with the next sync
//! Writing   Aborted   [abort]     blocks removed, durable with the next sync
//! Sealed    Aborted   [abort]
//! any       Poisoned              the store failed: nothing more is promised
//! ```
//!
//! 1. Before `Switched` the manifest is the old one, and nothing it counts is touched.
//! 2. The manifest is one key: it is old or new, never a mix.
//! 3. From `Switched` on every block the new manifest counts is durable, because `seal` synced first.
//! 4. Old blocks are removed only after the manifest's sync, so a lost sweep leaves garbage and never
//!    an image without blocks. Garbage is found again by
//!    [`collect_garbage`](super::collect_garbage).

use ephesus_wire::{Epoch, PartitionId};

use super::extent::ExtentBuilder;
use super::manifest::{
    EXTENT_KEY_BYTES, Generation, ImageId, Manifest, ManifestError, extent_key, manifest_key,
};
use super::removal::{Removal, What};
use super::store::{BLOCK_BYTES_MAX, DbId, ImageStore, ROOM, StoreError, check_room, check_size};

/// Places of extents are inserted empty ahead of the extents themselves, from this extent on.
///
/// sled splits a leaf of 17 entries in two, and writes leaves anew when they split or have changed ten
/// times. Split while they are empty, leaves cost nothing, and each of the eight extents that then
/// fill one is written once: a large image costs half the disk writes. Small images have
/// too few leaves to be worth it.
const PLACES_FROM: u64 = 32;

/// When the image before had this many blocks, places are inserted from the start on.
const LARGE_BLOCKS: u64 = 144;

/// At least this many places are ahead: a leaf must have split before its first extent comes.
const PLACES_AHEAD: u64 = 17;

/// Places inserted at a time.
const PLACES_AT_ONCE: u64 = 16;

/// Where an image writer stands; the module's diagram shows the legal transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterState {
    /// Blocks are being added.
    Writing,
    /// No more blocks come; they are not all durable yet.
    Sealing,
    /// Every block is durable.
    Sealed,
    /// The manifest names this image; that is not durable yet.
    Switching,
    /// The manifest names this image.
    Switched,
    /// Older generations are gone.
    Done,
    /// Given up before the switch.
    Aborted,
    /// The store failed.
    Poisoned,
}

/// Why an image cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriterError {
    /// The store failed: stop the process.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The current manifest is damaged; imaging over it would hide that: verify the store.
    #[error("{db}: partition {partition}: {source}")]
    Manifest {
        /// The store.
        db: DbId,
        /// The partition.
        partition: PartitionId,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// A bug in the caller: generations must grow.
    #[error("{image} is not newer than the current generation {current}")]
    Stale {
        /// The image to be written.
        image: ImageId,
        /// The generation of the manifest.
        current: Generation,
    },
    /// A bug in the caller: the call is not legal in this state.
    #[error("{image}: {call} is not legal while {state:?}")]
    Illegal {
        /// The image.
        image: ImageId,
        /// The call.
        call: &'static str,
        /// The state it came in.
        state: WriterState,
    },
    /// A bug in the caller: no such image was begun, or it was refused before.
    #[error("{0} is not being written")]
    Unknown(ImageId),
    /// A bug in the caller: the manifest does not describe what was written.
    #[error("{image}: manifest counts {stated} blocks, {written} were written")]
    Miscounted {
        /// The image.
        image: ImageId,
        /// Blocks by the manifest.
        stated: u64,
        /// Blocks put.
        written: u64,
    },
}

impl WriterError {
    /// Whether the store itself failed.
    #[must_use]
    pub fn is_store(&self) -> bool {
        matches!(self, WriterError::Store(_))
    }

    /// The store's error, for callers that have none of their own for the other causes.
    pub(super) fn into_store(self, db: DbId, partition: PartitionId) -> StoreError {
        match self {
            WriterError::Store(error) => error,
            other => StoreError::Operation {
                db,
                operation: "clean the image",
                partition,
                source: Box::new(other),
            },
        }
    }
}

/// Writes one image of one copy.
#[derive(Debug)]
pub struct ImageWriter {
    image: ImageId,
    state: WriterState,
    blocks: u64,
    bytes: u64,
    /// Blocks that have no extent yet.
    open: ExtentBuilder,
    /// Extents inserted so far.
    extents: u64,
    /// Extents below this one have a place.
    placed: u64,
    /// The first one that gets a place ahead.
    places_from: u64,
}

impl ImageWriter {
    /// Starts an image, removing blocks an aborted attempt at the same generation may have left.
    ///
    /// # Errors
    /// [`WriterError::Stale`] unless the generation is newer than the manifest's; [`StoreError::NoRoom`] to remove them.
    pub fn begin(store: &mut dyn ImageStore, image: ImageId) -> Result<ImageWriter, WriterError> {
        let current = current_manifest(store, image.partition, image.epoch)?;
        if let Some(current) = current
            && current.image.generation >= image.generation
        {
            return Err(WriterError::Stale {
                image,
                current: current.image.generation,
            });
        }
        if let Some(mut left) = Removal::of_attempt(store, image)? {
            while !left.slice(store)? {
                check_room(store, ROOM, "remove what an unfinished image has left")?;
            }
        }
        let is_large = current.is_some_and(|current| current.blocks >= LARGE_BLOCKS);
        Ok(ImageWriter {
            image,
            state: WriterState::Writing,
            blocks: 0,
            bytes: 0,
            open: ExtentBuilder::default(),
            extents: 0,
            placed: 0,
            places_from: if is_large { 0 } else { PLACES_FROM },
        })
    }

    /// The image being written.
    #[must_use]
    pub fn image(&self) -> ImageId {
        self.image
    }

    /// Where the writer stands.
    #[must_use]
    pub fn state(&self) -> WriterState {
        self.state
    }

    /// Blocks put so far, and their bytes.
    #[must_use]
    pub fn written(&self) -> (u64, u64) {
        (self.blocks, self.bytes)
    }

    /// Adds the next block and returns its sequence number.
    ///
    /// # Errors
    /// [`StoreError::ValueTooLarge`] leaves the writer as it was; other store errors poison it.
    pub fn put(&mut self, store: &mut dyn ImageStore, block: &[u8]) -> Result<u64, WriterError> {
        self.expect("put", &[WriterState::Writing])?;
        check_size(store.db(), self.image.partition, block, BLOCK_BYTES_MAX)?;
        if !self.open.takes(block.len()) {
            self.insert_open(store)?;
        }
        self.open.push(block);
        let sequence = self.blocks;
        self.blocks += 1;
        self.bytes += block.len() as u64;
        Ok(sequence)
    }

    /// Inserts the blocks that have no extent yet as the next one.
    fn insert_open(&mut self, store: &mut dyn ImageStore) -> Result<(), WriterError> {
        let sequence = self.extents;
        if sequence >= self.places_from && sequence + PLACES_AHEAD > self.placed {
            self.place(store, sequence + PLACES_AHEAD + PLACES_AT_ONCE)?;
        }
        let key = self.key(sequence);
        let inserted = store.insert(self.image.partition, &key, self.open.bytes());
        self.poison(inserted)?;
        self.open.clear();
        self.extents += 1;
        Ok(())
    }

    /// Inserts the places of extents that are still to come, up to `until`.
    fn place(&mut self, store: &mut dyn ImageStore, until: u64) -> Result<(), WriterError> {
        for sequence in self.placed.max(self.extents)..until {
            let key = self.key(sequence);
            let placed = store.insert(self.image.partition, &key, &[]);
            self.poison(placed)?;
            self.placed = sequence + 1;
        }
        Ok(())
    }

    fn key(&self, sequence: u64) -> [u8; EXTENT_KEY_BYTES] {
        extent_key(self.image.epoch, self.image.generation, sequence)
    }

    /// Makes every block durable.
    ///
    /// # Errors
    /// A failed sync poisons the writer and is final.
    pub fn seal(&mut self, store: &mut dyn ImageStore) -> Result<(), WriterError> {
        self.expect("seal", &[WriterState::Writing])?;
        self.close(store)?;
        self.poison(store.sync())?;
        self.sealed()
    }

    /// Adds no more blocks and removes the places that were left; several images can then share
    /// one sync of their store.
    ///
    /// # Errors
    /// A call out of order; a store error poisons.
    pub fn close(&mut self, store: &mut dyn ImageStore) -> Result<(), WriterError> {
        self.expect("close", &[WriterState::Writing])?;
        if !self.open.bytes().is_empty() {
            self.insert_open(store)?;
        }
        for sequence in self.extents..self.placed {
            let removed = store.remove(self.image.partition, &self.key(sequence));
            self.poison(removed)?;
        }
        self.state = WriterState::Sealing;
        Ok(())
    }

    /// The store was synced after [`ImageWriter::close`].
    ///
    /// # Errors
    /// A call out of order.
    pub fn sealed(&mut self) -> Result<(), WriterError> {
        self.expect("seal", &[WriterState::Sealing])?;
        self.state = WriterState::Sealed;
        Ok(())
    }

    /// Makes this image the valid one; the caller has seen `manifest.lsn_end` committed in the log.
    ///
    /// # Errors
    /// [`WriterError::Miscounted`] when the manifest is not of this image; a store error poisons.
    pub fn switch(
        &mut self,
        store: &mut dyn ImageStore,
        manifest: &Manifest,
    ) -> Result<(), WriterError> {
        self.name(store, manifest)?;
        self.poison(store.sync())?;
        self.switched()
    }

    /// Replaces the manifest; several images can then share one sync of their store.
    ///
    /// # Errors
    /// As [`ImageWriter::switch`].
    pub fn name(
        &mut self,
        store: &mut dyn ImageStore,
        manifest: &Manifest,
    ) -> Result<(), WriterError> {
        self.expect("switch", &[WriterState::Sealed])?;
        self.write_manifest(store, manifest)
    }

    /// The store was synced after [`ImageWriter::name`].
    ///
    /// # Errors
    /// A call out of order.
    pub fn switched(&mut self) -> Result<(), WriterError> {
        self.expect("switch", &[WriterState::Switching])?;
        self.state = WriterState::Switched;
        Ok(())
    }

    fn write_manifest(
        &mut self,
        store: &mut dyn ImageStore,
        manifest: &Manifest,
    ) -> Result<(), WriterError> {
        if manifest.blocks != self.blocks || manifest.image != self.image {
            return Err(WriterError::Miscounted {
                image: self.image,
                stated: manifest.blocks,
                written: self.blocks,
            });
        }
        let key = manifest_key(self.image.epoch);
        let written = store.insert(self.image.partition, &key, &manifest.encode());
        self.poison(written)?;
        self.state = WriterState::Switching;
        Ok(())
    }

    /// What a build with the order wrong would do: the property test must notice it.
    #[cfg(test)]
    pub(super) fn switch_before_seal(
        &mut self,
        store: &mut dyn ImageStore,
        manifest: &Manifest,
    ) -> Result<(), WriterError> {
        self.expect("switch", &[WriterState::Writing])?;
        self.write_manifest(store, manifest)?;
        self.poison(store.sync())?;
        self.switched()
    }

    /// Removes the copy's other generations; returns how many extents went.
    ///
    /// # Errors
    /// A store error poisons the writer.
    pub fn sweep(&mut self, store: &mut dyn ImageStore) -> Result<u64, WriterError> {
        self.expect("sweep", &[WriterState::Switched])?;
        let ImageId {
            partition,
            epoch,
            generation,
        } = self.image;
        let mut older = Removal::new(partition, epoch, What::Below(generation));
        while !self.poison(older.slice(store))? {}
        self.state = WriterState::Done;
        Ok(older.removed)
    }

    /// Gives the image up and removes its blocks; the previous image stays valid.
    ///
    /// # Errors
    /// A store error poisons the writer.
    pub fn abort(&mut self, store: &mut dyn ImageStore) -> Result<(), WriterError> {
        self.expect(
            "abort",
            &[
                WriterState::Writing,
                WriterState::Sealing,
                WriterState::Sealed,
            ],
        )?;
        let ImageId {
            partition,
            epoch,
            generation,
        } = self.image;
        let mut blocks = Removal::new(partition, epoch, What::Only(generation));
        while !self.poison(blocks.slice(store))? {}
        self.state = WriterState::Aborted;
        Ok(())
    }

    fn expect(&self, call: &'static str, legal: &[WriterState]) -> Result<(), WriterError> {
        if legal.contains(&self.state) {
            Ok(())
        } else {
            Err(WriterError::Illegal {
                image: self.image,
                call,
                state: self.state,
            })
        }
    }

    fn poison<T>(&mut self, result: Result<T, StoreError>) -> Result<T, WriterError> {
        if result.is_err() {
            self.state = WriterState::Poisoned;
        }
        Ok(result?)
    }
}

/// Reads the manifest of one copy.
///
/// # Errors
/// [`WriterError::Manifest`] when it is damaged or another copy's.
pub(super) fn current_manifest(
    store: &dyn ImageStore,
    partition: PartitionId,
    epoch: Epoch,
) -> Result<Option<Manifest>, WriterError> {
    let damaged = |source| WriterError::Manifest {
        db: store.db(),
        partition,
        source,
    };
    let Some(stored) = store.get(partition, &manifest_key(epoch))? else {
        return Ok(None);
    };
    let found = Manifest::decode(&stored).map_err(damaged)?;
    if (found.image.partition, found.image.epoch) != (partition, epoch) {
        return Err(damaged(ManifestError::Misplaced(found.image)));
    }
    Ok(Some(found))
}
