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
//! Writing to Sealed -> Aborted [abort]  blocks removed, durable with the next sync
//! ```
//!
//! Calls out of this order are mistakes of the caller. Once the store has failed nothing more is promised.
//!
//! 1. Before `Switched` the manifest is the old one, and nothing it counts is touched.
//! 2. The manifest is one key: it is old or new, never a mix.
//! 3. From `Switched` on every block the new manifest counts is durable, because `seal` synced first.
//! 4. Old blocks are removed only after the manifest's sync, so a lost sweep leaves garbage and never
//!    an image without blocks. Garbage is found again by
//!    [`collect_garbage`](super::collect_garbage).

use super::extent::ExtentBuilder;
use super::manifest::{EXTENT_KEY_BYTES, ImageId, Manifest, extent_key, manifest_key};
use super::reader::{ReadError, load};
use super::removal::{Removal, What};
use super::store::{ImageStore, ROOM, StoreError, check_room};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
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
}

/// Writes one image of one copy.
#[derive(Debug)]
pub struct ImageWriter {
    image: ImageId,
    state: State,
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
    /// [`ReadError::Manifest`] when the current one is damaged: imaging over it would hide that.
    /// [`StoreError::NoRoom`] to remove what is left.
    ///
    /// # Panics
    /// Unless the generation is newer than the manifest's.
    pub fn begin(store: &mut dyn ImageStore, image: ImageId) -> Result<ImageWriter, ReadError> {
        let current = load(store, image.partition, image.epoch)?;
        let is_newer = |current: &Manifest| current.image.generation < image.generation;
        assert!(
            current.as_ref().is_none_or(is_newer),
            "{image} is not newer than the current one"
        );
        if let Some(mut left) = Removal::of_attempt(store, image)? {
            while !left.slice(store)? {
                check_room(store, ROOM, "remove what an unfinished image has left")?;
            }
        }
        let is_large = current.is_some_and(|current| current.blocks >= LARGE_BLOCKS);
        Ok(ImageWriter {
            image,
            state: State::Writing,
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

    /// Blocks put so far, and their bytes.
    #[must_use]
    pub fn written(&self) -> (u64, u64) {
        (self.blocks, self.bytes)
    }

    /// Adds the next block.
    ///
    /// # Errors
    /// The store's.
    ///
    /// # Panics
    /// When the block is too large, or comes out of order.
    pub fn put(&mut self, store: &mut dyn ImageStore, block: &[u8]) -> Result<(), StoreError> {
        self.pass(State::Writing, State::Writing);
        if !self.open.takes(block.len()) {
            self.insert_open(store)?;
        }
        self.open.push(block);
        self.blocks += 1;
        self.bytes += block.len() as u64;
        Ok(())
    }

    /// Inserts the blocks that have no extent yet as the next one.
    fn insert_open(&mut self, store: &mut dyn ImageStore) -> Result<(), StoreError> {
        let sequence = self.extents;
        if sequence >= self.places_from && sequence + PLACES_AHEAD > self.placed {
            self.place(store, sequence + PLACES_AHEAD + PLACES_AT_ONCE)?;
        }
        let key = self.key(sequence);
        store.insert(self.image.partition, &key, self.open.bytes())?;
        self.open.clear();
        self.extents += 1;
        Ok(())
    }

    /// Inserts the places of extents that are still to come, up to `until`.
    fn place(&mut self, store: &mut dyn ImageStore, until: u64) -> Result<(), StoreError> {
        for sequence in self.placed.max(self.extents)..until {
            let key = self.key(sequence);
            store.insert(self.image.partition, &key, &[])?;
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
    /// The store's; that of a sync is final.
    pub fn seal(&mut self, store: &mut dyn ImageStore) -> Result<(), StoreError> {
        self.close(store)?;
        store.sync()?;
        self.sealed();
        Ok(())
    }

    /// Adds no more blocks and removes the places that were left; several images can then share
    /// one sync of their store.
    ///
    /// # Errors
    /// The store's.
    pub fn close(&mut self, store: &mut dyn ImageStore) -> Result<(), StoreError> {
        self.pass(State::Writing, State::Sealing);
        if !self.open.bytes().is_empty() {
            self.insert_open(store)?;
        }
        for sequence in self.extents..self.placed {
            store.remove(self.image.partition, &self.key(sequence))?;
        }
        Ok(())
    }

    /// The store was synced after [`ImageWriter::close`].
    pub fn sealed(&mut self) {
        self.pass(State::Sealing, State::Sealed);
    }

    /// Makes this image the valid one; the caller has seen `manifest.lsn_end` committed in the log.
    ///
    /// # Errors
    /// The store's.
    pub fn switch(
        &mut self,
        store: &mut dyn ImageStore,
        manifest: &Manifest,
    ) -> Result<(), StoreError> {
        self.name(store, manifest)?;
        store.sync()?;
        self.switched();
        Ok(())
    }

    /// Replaces the manifest; several images can then share one sync of their store.
    ///
    /// # Errors
    /// The store's.
    ///
    /// # Panics
    /// When the manifest is not of this image, or the image is not sealed.
    pub fn name(
        &mut self,
        store: &mut dyn ImageStore,
        manifest: &Manifest,
    ) -> Result<(), StoreError> {
        self.pass(State::Sealed, State::Switching);
        self.write_manifest(store, manifest)
    }

    /// The store was synced after [`ImageWriter::name`].
    pub fn switched(&mut self) {
        self.pass(State::Switching, State::Switched);
    }

    fn write_manifest(
        &self,
        store: &mut dyn ImageStore,
        manifest: &Manifest,
    ) -> Result<(), StoreError> {
        let (stated, written) = ((manifest.image, manifest.blocks), (self.image, self.blocks));
        assert_eq!(stated, written, "a manifest describes what was written");
        let key = manifest_key(self.image.epoch);
        store.insert(self.image.partition, &key, &manifest.encode())
    }

    /// What a build with the order wrong would do: the property test must notice it.
    #[cfg(test)]
    pub(super) fn switch_before_seal(
        &mut self,
        store: &mut dyn ImageStore,
        manifest: &Manifest,
    ) -> Result<(), StoreError> {
        self.pass(State::Writing, State::Switched);
        self.write_manifest(store, manifest)?;
        store.sync()
    }

    /// Removes the copy's other generations, once this image is the valid one.
    ///
    /// # Errors
    /// The store's.
    pub fn sweep(self, store: &mut dyn ImageStore) -> Result<(), StoreError> {
        assert_eq!(self.state, State::Switched, "{}", self.image);
        self.remove(store, What::Below(self.image.generation))
    }

    /// Gives the image up and removes its blocks; the previous image stays valid.
    ///
    /// # Errors
    /// The store's.
    pub fn abort(self, store: &mut dyn ImageStore) -> Result<(), StoreError> {
        assert!(self.state <= State::Sealed, "{} is named", self.image);
        self.remove(store, What::Only(self.image.generation))
    }

    fn remove(&self, store: &mut dyn ImageStore, what: What) -> Result<(), StoreError> {
        let mut removal = Removal::new(self.image.partition, self.image.epoch, what);
        while !removal.slice(store)? {}
        Ok(())
    }

    fn pass(&mut self, from: State, to: State) {
        assert_eq!(self.state, from, "{}: calls come in order", self.image);
        self.state = to;
    }
}
