//! Records: what a shard's log holds and a migration stream forwards.
//!
//! ```text
//!  0        4    5    6       8          12          16     24   32      40
//!  +--------+----+----+-------+----------+-----------+------+----+-------+-----+-------+
//!  | length |kind|type| zero  |partition | key length| epoch|seq |expiry | key | value |
//!  |  u32   | u8 | u8 |  u16  |   u32    |    u32    | u64  |u64 | u64   |     |       |
//!  +--------+----+----+-------+----------+-----------+------+----+-------+-----+-------+
//!  length: the whole record; the value is what the key leaves of it
//!  type:   0, a string         expiry: milliseconds since 1970, 0 for never
//! ```
//!
//! Little-endian, not padded, no checksum of its own: the log group or the frame around it has one.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

use crate::error::WireError;
use crate::ids::{Epoch, MigrationId, NodeId, PartitionId, ShardId};
use crate::limits::{BLOCK_BYTES, RECORD_BYTES_MAX, SLOTS, STORED_KEY_BYTES_MAX, VALUE_BYTES_MAX};

mod images;
mod ops;
mod write;

pub use images::{IMAGE_ENTRY_BYTES, ImageEntry, ImagesIter};
pub use ops::{OpsBuilder, OpsEnd, OpsIter};
pub use write::{delete_len, put_len, set_expiry_len, write_delete, write_put, write_set_expiry};

/// Which copy a record belongs to and its place in that copy's history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecordMeta {
    /// The partition.
    pub partition: PartitionId,
    /// The ownership the record was written under.
    pub epoch: Epoch,
    /// Dense per partition; a list of operations has none of its own and stores 0.
    pub seq: u64,
}

/// One change of one copy, or a list of changes that happen together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// The key has this value from now on.
    Put {
        /// The key.
        key: &'a [u8],
        /// The whole value.
        value: &'a [u8],
        /// Milliseconds since 1970, 0 for never.
        expire_at_ms: u64,
    },
    /// The key is gone.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// The key keeps its value and expires at another time.
    SetExpiry {
        /// The key.
        key: &'a [u8],
        /// Milliseconds since 1970, 0 for never.
        expire_at_ms: u64,
    },
    /// Changes that happen together, each with its own meta: they may be in several partitions.
    Ops(OpsIter<'a>),
    /// All keys of the partition are gone.
    Flush,
    /// A block another copy sent, as [`crate::block`] reads it.
    Block(&'a [u8]),
    /// The copy exists; with a source it is staging until activated.
    Created {
        /// Where its data comes from.
        source: Source,
    },
    /// A staging copy holds everything and outlives restarts until the coordinator decides.
    Prepared(Prepared),
    /// The copy serves; its own records start with this sequence.
    Activated {
        /// The first sequence of this epoch.
        start_seq: u64,
    },
    /// The copy was given up.
    Dropped,
    /// What a staging copy had received is gone; the copy may start over.
    StagingWiped,
    /// Nothing: keeps the sequence dense.
    Mark,
    /// The images that the log depends on, as its older segments are given up; of no partition.
    Images(ImagesIter<'a>),
}

/// Where a new copy gets its data from; all zero when the partition is new and empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The migration that fills the copy.
    pub migration: MigrationId,
    /// The node that sends it.
    pub node: NodeId,
    /// The shard of that node.
    pub shard: ShardId,
}

impl Source {
    /// A new, empty partition.
    pub const NONE: Self = Self {
        migration: MigrationId(0),
        node: NodeId([0; 16]),
        shard: ShardId(0),
    };
}

/// What a staging copy confirms to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// The migration that filled it.
    pub migration: MigrationId,
    /// Its number of keys.
    pub count: u64,
    /// The digest of its entries, as [`crate::digest`] computes it.
    pub digest: [u64; 2],
}

/// Bytes before the key.
pub const RECORD_HEADER_BYTES: usize = 40;

/// The only value type so far.
const VALUE_STRING: u8 = 0;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RecordHeader {
    length: u32,
    kind: u8,
    value_type: u8,
    zero: u16,
    partition: u32,
    key_length: u32,
    epoch: u64,
    seq: u64,
    expire_at_ms: u64,
}

const _: () =
    assert!(size_of::<RecordHeader>() == RECORD_HEADER_BYTES && align_of::<RecordHeader>() == 8);

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct SourceBody {
    migration: u64,
    node: [u8; 16],
    shard: u16,
    zero: [u16; 3],
}

const _: () = assert!(size_of::<SourceBody>() == 32);

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PreparedBody {
    migration: u64,
    count: u64,
    digest: [u64; 2],
}

const _: () = assert!(size_of::<PreparedBody>() == 32);

/// The numbers of the kinds: part of the format.
mod kind {
    pub(super) const PUT: u8 = 1;
    pub(super) const DELETE: u8 = 2;
    pub(super) const SET_EXPIRY: u8 = 3;
    pub(super) const OPS: u8 = 4;
    pub(super) const FLUSH: u8 = 5;
    pub(super) const BLOCK: u8 = 6;
    pub(super) const CREATED: u8 = 7;
    pub(super) const PREPARED: u8 = 8;
    pub(super) const ACTIVATED: u8 = 9;
    pub(super) const DROPPED: u8 = 10;
    pub(super) const STAGING_WIPED: u8 = 11;
    pub(super) const MARK: u8 = 12;
    pub(super) const IMAGES: u8 = 13;
}

/// Reads the first record of `buf` and how many bytes it takes; `None` while it is incomplete.
///
/// # Errors
/// When the bytes are no record: every length and every number with a meaning is checked, those
/// of the operations in a list included.
#[expect(
    clippy::indexing_slicing,
    reason = "a length was checked to hold the header"
)]
pub fn decode(buf: &[u8]) -> Result<Option<(RecordMeta, Record<'_>, usize)>, WireError> {
    let Some(header) = buf.get(..RECORD_HEADER_BYTES) else {
        return Ok(None);
    };
    let header: RecordHeader = bytemuck::pod_read_unaligned(header);
    let length = header.length as usize;
    check("record", length, RECORD_HEADER_BYTES, RECORD_BYTES_MAX)?;
    if header.value_type != VALUE_STRING {
        return Err(unknown("value type", header.value_type.into()));
    }
    if header.zero != 0 {
        return Err(unknown("record flags", header.zero.into()));
    }
    if header.partition >= u32::from(SLOTS) {
        return Err(unknown("partition", header.partition.into()));
    }
    let key_length = header.key_length as usize;
    check(
        "key",
        key_length,
        0,
        STORED_KEY_BYTES_MAX.min(length - RECORD_HEADER_BYTES),
    )?;
    check_kind(&header)?;
    let Some(record) = buf.get(..length) else {
        return Ok(None);
    };
    let (key, value) = record[RECORD_HEADER_BYTES..].split_at(key_length);
    let meta = RecordMeta {
        partition: PartitionId(header.partition as u16),
        epoch: Epoch(header.epoch),
        seq: header.seq,
    };
    Ok(Some((meta, body(&header, key, value)?, length)))
}

/// Checks what the header alone tells, so that damage shows before the rest has arrived.
fn check_kind(header: &RecordHeader) -> Result<(), WireError> {
    let value = header.length as usize - RECORD_HEADER_BYTES - header.key_length as usize;
    let (keyed, expires, min, max) = match header.kind {
        kind::PUT => (true, true, 0, VALUE_BYTES_MAX),
        kind::DELETE => (true, false, 0, 0),
        kind::SET_EXPIRY => (true, true, 0, 0),
        kind::OPS => (false, false, RECORD_HEADER_BYTES, RECORD_BYTES_MAX),
        kind::BLOCK => (false, false, 0, BLOCK_BYTES),
        kind::CREATED => (
            false,
            false,
            size_of::<SourceBody>(),
            size_of::<SourceBody>(),
        ),
        kind::PREPARED => (
            false,
            false,
            size_of::<PreparedBody>(),
            size_of::<PreparedBody>(),
        ),
        kind::ACTIVATED => (false, false, size_of::<u64>(), size_of::<u64>()),
        kind::IMAGES => (false, false, 0, images::IMAGES_BYTES_MAX),
        kind::FLUSH | kind::DROPPED | kind::STAGING_WIPED | kind::MARK => (false, false, 0, 0),
        other => return Err(unknown("record kind", other.into())),
    };
    if !keyed && header.key_length != 0 {
        return Err(WireError::Malformed("a record of this kind has no key"));
    }
    if !expires && header.expire_at_ms != 0 {
        return Err(WireError::Malformed("a record of this kind has no expiry"));
    }
    check("record body", value, min, max)
}

fn body<'a>(
    header: &RecordHeader,
    key: &'a [u8],
    value: &'a [u8],
) -> Result<Record<'a>, WireError> {
    let expire_at_ms = header.expire_at_ms;
    Ok(match header.kind {
        kind::PUT => Record::Put {
            key,
            value,
            expire_at_ms,
        },
        kind::DELETE => Record::Delete { key },
        kind::SET_EXPIRY => Record::SetExpiry { key, expire_at_ms },
        kind::OPS => Record::Ops(OpsIter::checked(value)?),
        kind::FLUSH => Record::Flush,
        kind::BLOCK => Record::Block(value),
        kind::CREATED => {
            let body: SourceBody = bytemuck::pod_read_unaligned(value);
            if body.zero != [0; 3] {
                return Err(WireError::Malformed("padding is not zero"));
            }
            Record::Created {
                source: Source {
                    migration: MigrationId(body.migration),
                    node: NodeId(body.node),
                    shard: ShardId(body.shard),
                },
            }
        }
        kind::PREPARED => {
            let body: PreparedBody = bytemuck::pod_read_unaligned(value);
            Record::Prepared(Prepared {
                migration: MigrationId(body.migration),
                count: body.count,
                digest: body.digest,
            })
        }
        kind::ACTIVATED => Record::Activated {
            start_seq: bytemuck::pod_read_unaligned(value),
        },
        kind::DROPPED => Record::Dropped,
        kind::STAGING_WIPED => Record::StagingWiped,
        kind::MARK => Record::Mark,
        kind::IMAGES => Record::Images(ImagesIter::new(value)?),
        other => return Err(unknown("record kind", other.into())),
    })
}

fn check(what: &'static str, len: usize, min: usize, max: usize) -> Result<(), WireError> {
    if (min..=max).contains(&len) {
        return Ok(());
    }
    Err(WireError::Length {
        what,
        len: len as u64,
        min: min as u64,
        max: max as u64,
    })
}

fn unknown(what: &'static str, found: u64) -> WireError {
    WireError::Unknown { what, found }
}

#[cfg(test)]
mod tests;
