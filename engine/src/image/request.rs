//! What shards and a store thread say to each other.

use std::sync::Arc;

use ephesus_wire::{Epoch, PartitionId};

use super::manifest::{ImageId, Manifest};
use super::store::{DbId, StoreError};
use super::thread::REQUESTS_MAX;

/// What a shard asks of a store thread.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreRequest {
    /// Starts an image of about so many bytes; answered only when there is no room.
    Begin {
        /// The image.
        image: ImageId,
        /// What the disk has to have free for it.
        bytes: u64,
    },
    /// Adds a block to an image; answered only when there is no room.
    Block(ImageId, Box<[u8]>),
    /// Makes all blocks durable; answered by [`StoreReply::Sealed`].
    Seal(ImageId),
    /// Makes the image valid; only after its `lsn_end` is committed. [`StoreReply::Switched`].
    Switch(Box<Manifest>),
    /// Removes one copy's images; answered by [`StoreReply::Dropped`].
    DropCopy(PartitionId, Epoch),
    /// Answered by [`StoreReply::Size`].
    SizeOnDisk,
    /// Closes the store after a last sync; answered by [`StoreReply::Stopped`].
    Stop,
}

/// What a store thread answers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreReply {
    /// Every block is durable; `switch` may follow once `lsn_end` is committed.
    Sealed {
        /// The image.
        image: ImageId,
        /// Blocks it has.
        blocks: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// The image is the valid one, durably: the log before its `lsn_start` is not needed for this copy.
    Switched(ImageId),
    /// The disk has no room for the image, which is given up, however far it was: the previous one is valid.
    /// [`StoreReply::Aborted`] follows.
    NoRoom(ImageId),
    /// What was written of an image without room is gone: it may begin again.
    Aborted(ImageId),
    /// The images are gone for good; blocks that a crash may bring back are garbage.
    Dropped {
        /// Of which partition.
        partition: PartitionId,
        /// Of which copy.
        epoch: Epoch,
    },
    /// Bytes the store occupies.
    Size {
        /// The store.
        db: DbId,
        /// On disk.
        bytes: u64,
    },
    /// A request was returned for lack of room: try again now.
    Capacity(DbId),
    /// The store failed; the process must say why and stop.
    Fatal(StoreFault),
    /// The store is closed.
    Stopped(DbId),
}

/// The error that ended a store; every later request gets it again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("image store {db} failed: {error}")]
pub struct StoreFault {
    /// The store.
    pub db: DbId,
    /// What it said.
    #[source]
    pub error: Arc<StoreError>,
}

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrySendError {
    /// The channel is full: keep the request until [`StoreReply::Capacity`].
    #[error("the store thread has {REQUESTS_MAX} requests waiting")]
    Full(StoreRequest),
    /// The thread has stopped.
    #[error("the store thread has stopped")]
    Stopped(StoreRequest),
}
