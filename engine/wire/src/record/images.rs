//! Which images a log depends on once its older segments were given up.
//!
//! ```text
//! entry, repeated:  partition u32 | zero u32 | epoch u64 | generation u64
//! ```

use bytemuck::{Pod, Zeroable};

use crate::error::WireError;
use crate::ids::{Epoch, PartitionId};
use crate::limits::SLOTS;

/// A copy that needs an image of at least this generation, because the log alone is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageEntry {
    /// The partition.
    pub partition: PartitionId,
    /// Which copy of it.
    pub epoch: Epoch,
    /// The image's number; a later one does as well.
    pub generation: u64,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Body {
    partition: u32,
    zero: u32,
    epoch: u64,
    generation: u64,
}

/// Size of one entry.
pub const IMAGE_ENTRY_BYTES: usize = 24;

/// Longest list: one copy of every partition there can be.
pub(super) const IMAGES_BYTES_MAX: usize = IMAGE_ENTRY_BYTES * SLOTS as usize;

const _: () = assert!(size_of::<Body>() == IMAGE_ENTRY_BYTES);

/// The entries of a list, in order; checked when the list was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImagesIter<'a> {
    rest: &'a [u8],
}

impl<'a> ImagesIter<'a> {
    /// Encodes `entries` behind what `buf` holds, for [`ImagesIter::new`].
    pub fn encode(entries: impl IntoIterator<Item = ImageEntry>, buf: &mut Vec<u8>) {
        for entry in entries {
            let body = Body {
                partition: entry.partition.0.into(),
                zero: 0,
                epoch: entry.epoch.0,
                generation: entry.generation,
            };
            buf.extend_from_slice(bytemuck::bytes_of(&body));
        }
    }

    /// Reads a list as [`ImagesIter::encode`] writes it.
    ///
    /// # Errors
    /// Anything that cannot have been written.
    pub fn new(body: &'a [u8]) -> Result<Self, WireError> {
        let (entries, rest) = body.as_chunks::<IMAGE_ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(WireError::Malformed("the last entry of a list is cut off"));
        }
        for entry in entries {
            let Body {
                partition, zero, ..
            } = bytemuck::pod_read_unaligned(entry);
            if partition >= u32::from(SLOTS) || zero != 0 {
                return Err(WireError::Malformed("an entry of no partition"));
            }
        }
        Ok(Self { rest: body })
    }

    /// The entries that are left, as encoded.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.rest
    }
}

impl Iterator for ImagesIter<'_> {
    type Item = ImageEntry;

    fn next(&mut self) -> Option<ImageEntry> {
        let (entry, rest) = self.rest.split_first_chunk::<IMAGE_ENTRY_BYTES>()?;
        self.rest = rest;
        let body: Body = bytemuck::pod_read_unaligned(entry);
        Some(ImageEntry {
            partition: PartitionId(body.partition as u16),
            epoch: Epoch(body.epoch),
            generation: body.generation,
        })
    }
}
