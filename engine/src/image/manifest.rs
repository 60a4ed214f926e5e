//! The manifest that makes one generation of blocks a copy's image, and the keys of both.
//!
//! ```text
//! key "m" epoch:u64be                                   -> manifest (120 bytes)
//! key "b" epoch:u64be generation:u64be sequence:u64be   -> extent: one to three blocks, see `extent.rs`
//! ```

use std::fmt;
use std::mem::{offset_of, size_of};

use bytemuck::{Pod, Zeroable};
use ephesus_wire::{Epoch, Lsn, PartitionId};

/// The number of one image of a copy; each new image has a higher one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl Generation {
    /// The generation that follows this one.
    #[must_use]
    pub fn next(self) -> Generation {
        Generation(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names one image: a generation of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageId {
    /// The partition.
    pub partition: PartitionId,
    /// Which copy of it.
    pub epoch: Epoch,
    /// Which image of that copy.
    pub generation: Generation,
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "partition {} epoch {} generation {}",
            self.partition, self.epoch, self.generation
        )
    }
}

/// What a complete image holds and where the log continues it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The image this describes.
    pub image: ImageId,
    /// The log to replay over the image; all-zero: the image is complete by itself.
    pub log: [u8; 16],
    /// Replay starts here: every record before it is in the image.
    pub lsn_start: Lsn,
    /// The image may hold effects of records up to this one, which must be committed before the switch.
    pub lsn_end: Lsn,
    /// The partition's own sequence at `lsn_start`.
    pub seq_start: u64,
    /// Entries in the image.
    pub count: u64,
    /// Wrapping sum of the 128-bit hashes of its entries, low half first.
    pub digest: [u64; 2],
    /// Blocks in the image, numbered from 0.
    pub blocks: u64,
    /// Bytes in those blocks.
    pub bytes: u64,
    /// Wall clock at the switch, milliseconds since 1970.
    pub created_ms: u64,
}

const MAGIC: u32 = u32::from_le_bytes(*b"EPHM");
const VERSION: u16 = 1;

/// The stored form, little endian; `crc` covers everything behind it.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Raw {
    magic: u32,
    crc: u32,
    version: u16,
    partition: u16,
    reserved: u32,
    epoch: u64,
    generation: u64,
    log: [u8; 16],
    lsn_start: u64,
    lsn_end: u64,
    seq_start: u64,
    count: u64,
    digest: [u64; 2],
    blocks: u64,
    bytes: u64,
    created_ms: u64,
}

/// Size of a stored manifest.
pub const MANIFEST_BYTES: usize = 120;

const _: () = assert!(size_of::<Raw>() == MANIFEST_BYTES);

/// A stored manifest is not one: the image is unusable, restore the copy from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// Cut short or grown.
    #[error("manifest has {0} bytes instead of {MANIFEST_BYTES}")]
    Length(usize),
    /// Something else is stored there.
    #[error("manifest has the wrong magic number")]
    Magic,
    /// Bits changed on the disk.
    #[error("manifest checksum is {found:#010x}, expected {expected:#010x}")]
    Checksum {
        /// As stored.
        expected: u32,
        /// As computed.
        found: u32,
    },
    /// Written by another release: run the release that wrote it, or the one after.
    #[error("manifest has format version {0}, this release reads {VERSION}")]
    Version(u16),
    /// Its checksum is right, but it says what no release writes: report this.
    #[error("manifest has an impossible {0}")]
    Field(&'static str),
    /// The manifest belongs to another copy.
    #[error("manifest is of {0}")]
    Misplaced(ImageId),
}

impl Manifest {
    /// Whether the image is complete without any log.
    #[must_use]
    pub fn is_self_contained(&self) -> bool {
        self.log == [0; 16]
    }

    /// Encodes the stored form.
    #[must_use]
    pub fn encode(&self) -> [u8; MANIFEST_BYTES] {
        let mut raw = Raw {
            magic: MAGIC.to_le(),
            crc: 0,
            version: VERSION.to_le(),
            partition: self.image.partition.0.to_le(),
            reserved: 0,
            epoch: self.image.epoch.0.to_le(),
            generation: self.image.generation.0.to_le(),
            log: self.log,
            lsn_start: self.lsn_start.0.to_le(),
            lsn_end: self.lsn_end.0.to_le(),
            seq_start: self.seq_start.to_le(),
            count: self.count.to_le(),
            digest: self.digest.map(u64::to_le),
            blocks: self.blocks.to_le(),
            bytes: self.bytes.to_le(),
            created_ms: self.created_ms.to_le(),
        };
        raw.crc = checksum(bytemuck::bytes_of(&raw)).to_le();
        let mut stored = [0; MANIFEST_BYTES];
        stored.copy_from_slice(bytemuck::bytes_of(&raw));
        stored
    }

    /// Decodes and checks the stored form.
    ///
    /// # Errors
    /// See [`ManifestError`].
    pub fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        if bytes.len() != MANIFEST_BYTES {
            return Err(ManifestError::Length(bytes.len()));
        }
        let raw: Raw = bytemuck::pod_read_unaligned(bytes);
        if u32::from_le(raw.magic) != MAGIC {
            return Err(ManifestError::Magic);
        }
        let (expected, found) = (u32::from_le(raw.crc), checksum(bytes));
        if expected != found {
            return Err(ManifestError::Checksum { expected, found });
        }
        if u16::from_le(raw.version) != VERSION {
            return Err(ManifestError::Version(u16::from_le(raw.version)));
        }
        let manifest = Manifest {
            image: ImageId {
                partition: PartitionId(u16::from_le(raw.partition)),
                epoch: Epoch(u64::from_le(raw.epoch)),
                generation: Generation(u64::from_le(raw.generation)),
            },
            log: raw.log,
            lsn_start: Lsn(u64::from_le(raw.lsn_start)),
            lsn_end: Lsn(u64::from_le(raw.lsn_end)),
            seq_start: u64::from_le(raw.seq_start),
            count: u64::from_le(raw.count),
            digest: raw.digest.map(u64::from_le),
            blocks: u64::from_le(raw.blocks),
            bytes: u64::from_le(raw.bytes),
            created_ms: u64::from_le(raw.created_ms),
        };
        if raw.reserved != 0 {
            return Err(ManifestError::Field("reserved bytes"));
        }
        match manifest.impossible() {
            Some(field) => Err(ManifestError::Field(field)),
            None => Ok(manifest),
        }
    }

    /// A number that others are counted on from and that leaves no room for that.
    fn impossible(&self) -> Option<&'static str> {
        /// What no counter reaches.
        const MOST: u64 = 1 << 62;
        let numbers = [
            ("epoch", self.image.epoch.0),
            ("generation", self.image.generation.0),
            ("LSN", self.lsn_start.0.max(self.lsn_end.0)),
            ("sequence", self.seq_start),
            ("number of entries", self.count),
            ("number of blocks", self.blocks),
            ("size", self.bytes),
            ("time", self.created_ms),
        ];
        let mut above = numbers.iter().filter(|(_, number)| *number > MOST);
        above.next().map(|(field, _)| *field)
    }
}

/// Of all behind itself.
fn checksum(stored: &[u8]) -> u32 {
    let covered = stored.get(offset_of!(Raw, version)..);
    crc32fast::hash(covered.unwrap_or_default())
}

pub(crate) const MANIFEST_TAG: &[u8] = b"m";
pub(crate) const EXTENT_TAG: &[u8] = b"b";
pub(super) const EXTENT_KEY_BYTES: usize = 25;

pub(crate) fn manifest_key(epoch: Epoch) -> [u8; 9] {
    let mut key = [b'm'; 9];
    key[1..].copy_from_slice(&epoch.0.to_be_bytes());
    key
}

pub(crate) fn epoch_prefix(epoch: Epoch) -> [u8; 9] {
    let mut key = [b'b'; 9];
    key[1..].copy_from_slice(&epoch.0.to_be_bytes());
    key
}

pub(crate) fn generation_prefix(epoch: Epoch, generation: Generation) -> [u8; 17] {
    let mut key = [b'b'; 17];
    key[1..9].copy_from_slice(&epoch.0.to_be_bytes());
    key[9..].copy_from_slice(&generation.0.to_be_bytes());
    key
}

/// The key of extent `sequence` of an image.
#[must_use]
pub fn extent_key(epoch: Epoch, generation: Generation, sequence: u64) -> [u8; EXTENT_KEY_BYTES] {
    let mut key = [b'b'; EXTENT_KEY_BYTES];
    key[..17].copy_from_slice(&generation_prefix(epoch, generation));
    key[17..].copy_from_slice(&sequence.to_be_bytes());
    key
}

/// Takes an extent's key apart; `None` when it is no extent's key.
#[must_use]
pub fn parse_extent_key(key: &[u8]) -> Option<(Epoch, Generation, u64)> {
    let (b'b', numbers) = key.split_first()? else {
        return None;
    };
    let (numbers, rest) = numbers.as_chunks::<8>();
    let [epoch, generation, sequence] = numbers else {
        return None;
    };
    let number = |bytes: &[u8; 8]| u64::from_be_bytes(*bytes);
    rest.is_empty().then(|| {
        let generation = Generation(number(generation));
        (Epoch(number(epoch)), generation, number(sequence))
    })
}

#[cfg(test)]
mod tests;
