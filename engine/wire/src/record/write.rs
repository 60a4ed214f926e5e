//! Writing records into a slice of the log's open group, without a buffer in between.

use super::{
    PreparedBody, RECORD_HEADER_BYTES, Record, RecordHeader, RecordMeta, SourceBody, VALUE_STRING,
    kind,
};
use crate::copy;
use crate::limits::RECORD_BYTES_MAX;

/// The length of a put.
#[inline]
#[must_use]
pub const fn put_len(key: &[u8], value: &[u8]) -> usize {
    RECORD_HEADER_BYTES + key.len() + value.len()
}

/// The length of a delete.
#[inline]
#[must_use]
pub const fn delete_len(key: &[u8]) -> usize {
    RECORD_HEADER_BYTES + key.len()
}

/// The length of a set-expiry.
#[inline]
#[must_use]
pub const fn set_expiry_len(key: &[u8]) -> usize {
    RECORD_HEADER_BYTES + key.len()
}

/// Writes a put to the start of `buf` and answers its length.
///
/// # Panics
/// When `buf` is shorter than [`put_len`].
#[inline]
pub fn write_put(
    buf: &mut [u8],
    meta: RecordMeta,
    key: &[u8],
    value: &[u8],
    expire_at_ms: u64,
) -> usize {
    write(buf, kind::PUT, meta, key, value, expire_at_ms)
}

/// Writes a delete to the start of `buf` and answers its length.
///
/// # Panics
/// When `buf` is shorter than [`delete_len`].
#[inline]
pub fn write_delete(buf: &mut [u8], meta: RecordMeta, key: &[u8]) -> usize {
    write(buf, kind::DELETE, meta, key, &[], 0)
}

/// Writes a set-expiry to the start of `buf` and answers its length.
///
/// # Panics
/// When `buf` is shorter than [`set_expiry_len`].
#[inline]
pub fn write_set_expiry(buf: &mut [u8], meta: RecordMeta, key: &[u8], expire_at_ms: u64) -> usize {
    write(buf, kind::SET_EXPIRY, meta, key, &[], expire_at_ms)
}

impl Record<'_> {
    /// The length of the record with its header.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        RECORD_HEADER_BYTES
            + match self {
                Self::Put { key, value, .. } => key.len() + value.len(),
                Self::Delete { key } | Self::SetExpiry { key, .. } => key.len(),
                Self::Ops(ops) => ops.as_bytes().len(),
                Self::Block(block) => block.len(),
                Self::Images(images) => images.as_bytes().len(),
                Self::Created { .. } => size_of::<SourceBody>(),
                Self::Prepared(_) => size_of::<PreparedBody>(),
                Self::Activated { .. } => size_of::<u64>(),
                Self::Flush | Self::Dropped | Self::StagingWiped | Self::Mark => 0,
            }
    }

    /// Writes the record to the start of `buf` and answers its length.
    ///
    /// # Panics
    /// When `buf` is shorter than [`Record::encoded_len`].
    pub fn encode_into(&self, meta: RecordMeta, buf: &mut [u8]) -> usize {
        let bare = |buf: &mut [u8], kind, body: &[u8]| write(buf, kind, meta, &[], body, 0);
        match self {
            Self::Put {
                key,
                value,
                expire_at_ms,
            } => write_put(buf, meta, key, value, *expire_at_ms),
            Self::Delete { key } => write_delete(buf, meta, key),
            Self::SetExpiry { key, expire_at_ms } => {
                write_set_expiry(buf, meta, key, *expire_at_ms)
            }
            Self::Ops(ops) => bare(buf, kind::OPS, ops.as_bytes()),
            Self::Flush => bare(buf, kind::FLUSH, &[]),
            Self::Block(block) => bare(buf, kind::BLOCK, block),
            Self::Created { source } => {
                let body = SourceBody {
                    migration: source.migration.0,
                    node: source.node.0,
                    shard: source.shard.0,
                    zero: [0; 3],
                };
                bare(buf, kind::CREATED, bytemuck::bytes_of(&body))
            }
            Self::Prepared(prepared) => {
                let body = PreparedBody {
                    migration: prepared.migration.0,
                    count: prepared.count,
                    digest: prepared.digest,
                };
                bare(buf, kind::PREPARED, bytemuck::bytes_of(&body))
            }
            Self::Activated { start_seq } => {
                bare(buf, kind::ACTIVATED, bytemuck::bytes_of(start_seq))
            }
            Self::Dropped => bare(buf, kind::DROPPED, &[]),
            Self::StagingWiped => bare(buf, kind::STAGING_WIPED, &[]),
            Self::Mark => bare(buf, kind::MARK, &[]),
            Self::Images(images) => bare(buf, kind::IMAGES, images.as_bytes()),
        }
    }

    /// Appends the record to `buf`.
    #[expect(
        clippy::indexing_slicing,
        reason = "the buffer has just been made longer"
    )]
    pub fn append_to(&self, meta: RecordMeta, buf: &mut Vec<u8>) {
        match *self {
            Self::Put {
                key,
                value,
                expire_at_ms,
            } => append(buf, kind::PUT, meta, key, value, expire_at_ms),
            Self::Block(block) => append(buf, kind::BLOCK, meta, &[], block, 0),
            _ => {
                let start = buf.len();
                buf.resize(start + self.encoded_len(), 0);
                self.encode_into(meta, &mut buf[start..]);
            }
        }
    }

    /// The record in a buffer of its own.
    #[must_use]
    pub fn to_vec(&self, meta: RecordMeta) -> Vec<u8> {
        let mut buf = vec![0; self.encoded_len()];
        self.encode_into(meta, &mut buf);
        buf
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "who writes a record has made room for it"
)]
#[inline]
fn write(
    buf: &mut [u8],
    kind: u8,
    meta: RecordMeta,
    key: &[u8],
    value: &[u8],
    expire_at_ms: u64,
) -> usize {
    let length = RECORD_HEADER_BYTES + key.len() + value.len();
    assert!(length <= RECORD_BYTES_MAX, "record of {length} bytes");
    let (header, rest) = buf[..length].split_at_mut(RECORD_HEADER_BYTES);
    let head = self::header(length, kind, meta, key.len(), expire_at_ms);
    header.copy_from_slice(bytemuck::bytes_of(&head));
    let (key_out, value_out) = rest.split_at_mut(key.len());
    key_out.copy_from_slice(key);
    copy::copy(value_out, value);
    length
}

/// As [`write`], behind what is in `buf`.
fn append(
    buf: &mut Vec<u8>,
    kind: u8,
    meta: RecordMeta,
    key: &[u8],
    value: &[u8],
    expire_at_ms: u64,
) {
    let length = RECORD_HEADER_BYTES + key.len() + value.len();
    assert!(length <= RECORD_BYTES_MAX, "record of {length} bytes");
    let head = header(length, kind, meta, key.len(), expire_at_ms);
    copy::append(buf, bytemuck::bytes_of(&head));
    copy::append(buf, key);
    copy::append(buf, value);
}

#[inline]
pub(super) fn header(
    length: usize,
    kind: u8,
    meta: RecordMeta,
    key_length: usize,
    expire_at_ms: u64,
) -> RecordHeader {
    RecordHeader {
        length: length as u32,
        kind,
        value_type: VALUE_STRING,
        zero: 0,
        partition: meta.partition.0.into(),
        key_length: key_length as u32,
        epoch: meta.epoch.0,
        seq: meta.seq,
        expire_at_ms,
    }
}
