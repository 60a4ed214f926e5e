//! What an image needs of the store beneath it: ordered keys per partition and an explicit sync.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use ephesus_wire::PartitionId;

use crate::sled_sync::SledSyncError;

/// Largest block of an image, in bytes.
pub const BLOCK_BYTES_MAX: usize = 4096;

/// Largest value a store takes, in bytes: above it sled's pages could become unsynced blob files.
pub const VALUE_BYTES_MAX: usize = 12 * 1024 + 8;

/// Room without which nothing is written to a store: about what it writes between two looks at its room.
pub const ROOM: u64 = 2 << 20;

/// Room that the blocks of an image are taken with; what is below is left to the rest, which sets room free in the end.
pub const IMAGE_ROOM: u64 = 2 * ROOM;

/// Most stores (sled Dbs, store threads) one data directory may have.
pub const STORES_MAX: u16 = 4;

/// What to do about a store that cannot be read.
pub(super) const REMEDY_OPEN: &str = "restore this directory from a backup, or move it aside: its partitions \
     then come back only as far as the log and other nodes hold them";

/// What to do when the machine has no room, descriptors or rights for a store, which is not damaged.
pub(super) const REMEDY_SYSTEM: &str = "it is not damaged: mend that, and start again";

/// One store of a data directory, counted from 0: partition `p` lives in store `p mod D`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DbId(pub u16);

impl DbId {
    /// The store that holds `partition` when a data directory has `stores` of them.
    #[must_use]
    pub fn of(partition: PartitionId, stores: u16) -> DbId {
        DbId(partition.0 % stores)
    }
}

impl fmt::Display for DbId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "db-{}", self.0)
    }
}

/// What a scan calls with each key and value.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// An ordered key-value map per partition whose writes are durable only after [`ImageStore::sync`].
///
/// After a crash each unsynced insert or remove may have happened or not, independently of the others.
pub trait ImageStore: Send {
    /// Which store this is, for messages.
    fn db(&self) -> DbId;

    /// Sets `key` of `partition`, creating the partition's tree when it is the first.
    ///
    /// # Errors
    /// Any error: the store is unusable.
    ///
    /// # Panics
    /// When the value has more than [`VALUE_BYTES_MAX`] bytes.
    fn insert(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreError>;

    /// Removes `key` of `partition` if it is there.
    ///
    /// # Errors
    /// Any error: the store is unusable.
    fn remove(&mut self, partition: PartitionId, key: &[u8]) -> Result<(), StoreError>;

    /// Hands the value of `key` of `partition` to `visit`; false when there is no such key.
    ///
    /// # Errors
    /// Any error: the store cannot be read.
    fn get_with(
        &self,
        partition: PartitionId,
        key: &[u8],
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, StoreError>;

    /// Reads `key` of `partition`.
    ///
    /// # Errors
    /// Any error: the store cannot be read.
    fn get(&self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut value = None;
        self.get_with(partition, key, &mut |found| value = Some(found.to_vec()))?;
        Ok(value)
    }

    /// Finds the first key of `partition` at or after `from`, so that callers can skip ranges.
    ///
    /// # Errors
    /// Any error: the store cannot be read.
    fn next_key(&self, partition: PartitionId, from: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Visits the keys of `partition` that begin with `prefix`, in order, until told to stop.
    ///
    /// # Errors
    /// Any error: the store cannot be read.
    fn scan_prefix(
        &self,
        partition: PartitionId,
        prefix: &[u8],
        visit: Visit<'_>,
    ) -> Result<(), StoreError>;

    /// Removes a partition with everything in it; a partition that is not there is no error.
    ///
    /// # Errors
    /// Any error: the store is unusable.
    fn drop_partition(&mut self, partition: PartitionId) -> Result<(), StoreError>;

    /// The partitions that have a tree, ascending.
    fn partitions(&self) -> Vec<PartitionId>;

    /// Makes everything done so far survive power loss.
    ///
    /// # Errors
    /// Any error is final: nothing done since the last success may be relied on, and it must not be
    /// tried again.
    fn sync(&mut self) -> Result<(), StoreError>;

    /// Bytes that the store has for its files, whatever else fills the disk. What a sync makes durable between two
    /// looks should stay below: a store may have to wait for more.
    fn room(&mut self) -> u64 {
        u64::MAX
    }

    /// Whether the disk has so many bytes free.
    fn has_free(&self, _bytes: u64) -> bool {
        true
    }

    /// Bytes the store occupies on disk.
    ///
    /// # Errors
    /// [`StoreError::Io`] when its files cannot be inspected.
    fn size_on_disk(&self) -> Result<u64, StoreError>;
}

/// Refuses to write to a store that has no room.
///
/// # Errors
/// [`StoreError::NoRoom`].
pub fn check_room(
    store: &mut dyn ImageStore,
    bytes: u64,
    operation: &'static str,
) -> Result<(), StoreError> {
    if store.room() >= bytes {
        return Ok(());
    }
    let db = store.db();
    Err(StoreError::NoRoom { db, operation })
}

impl StoreError {
    /// Whether it is about what a store's files hold.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            StoreError::Open { is_damage, .. } => *is_damage,
            StoreError::Io { .. }
            | StoreError::Sync { .. }
            | StoreError::Durability { .. }
            | StoreError::NoRoom { .. } => false,
            StoreError::Operation { .. } => true,
        }
    }
}

/// Why a store failed: stop the process and say so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// sled refused an operation: check the disk; the log still holds what was acknowledged.
    #[error("{db}: cannot {operation} (partition {partition}): {source}")]
    Operation {
        /// The store.
        db: DbId,
        /// What was attempted.
        operation: &'static str,
        /// The partition it was for.
        partition: PartitionId,
        /// The store's own error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A sync failed: the disk lost writes; stop, replace the disk, restart from the log.
    #[error("{db}: sync failed, unsynced image data is lost: {source}")]
    Sync {
        /// The store.
        db: DbId,
        /// The store's own error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A store could not be opened; the remedy says what to do.
    #[error("{db}: cannot open {path}: {reason}; {remedy}")]
    Open {
        /// The store.
        db: DbId,
        /// Its directory.
        path: PathBuf,
        /// What was found.
        reason: String,
        /// What the operator should do.
        remedy: &'static str,
        /// Whether its files are at fault.
        is_damage: bool,
    },
    /// A file or directory operation around the store failed: check permissions and space.
    #[error("{db}: {operation} {path}: {source}")]
    Io {
        /// The store.
        db: DbId,
        /// What was attempted.
        operation: &'static str,
        /// On which path.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The disk is full, or a quota is used up: the store is whole and was not written to.
    #[error(
        "{db}: the disk has no room to {operation}; set some free, and start again: nothing is lost"
    )]
    NoRoom {
        /// The store.
        db: DbId,
        /// What was to be done.
        operation: &'static str,
    },
    /// The store's files cannot be made durable.
    #[error("{db}: {source}")]
    Durability {
        /// The store.
        db: DbId,
        /// What went wrong.
        source: SledSyncError,
    },
}
