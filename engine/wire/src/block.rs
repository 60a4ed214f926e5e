//! Blocks: the unit of an image and of a migration stream, at most 4096 bytes each.
//!
//! ```text
//!  0       4       8      9      10      12       16      20      24    28     32
//!  +-------+-------+------+------+-------+--------+-------+-------+-----+------+------+
//!  | magic | crc32 | kind | zero | count | length | index | total | zero | zero | body |
//!  |  u32  |  u32  |  u8  |  u8  |  u16  |  u32   |  u32  |  u32  | u32  | u32  |      |
//!  +-------+-------+------+------+-------+--------+-------+-------+-----+------+------+
//!  crc32:  of the header with this field zero, then the body
//!  length: the body alone
//!
//!  whole     count entries one after another; index and total are 0
//!  fragment  a piece of the one entry that total bytes make; index counts its pieces from 0;
//!            the pieces follow each other, all but the last of them full
//!
//!  entry     key length u32 | value length u32 | expiry u64 | value type u8 | key | value
//! ```

use bytemuck::{Pod, Zeroable};

use crate::error::WireError;
use crate::limits::{BLOCK_BYTES, STORED_KEY_BYTES_MAX, VALUE_BYTES_MAX};

mod assembler;
mod builder;

pub use assembler::Assembler;
pub use builder::BlockBuilder;

/// One key with all that is kept about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The whole value.
    pub value: &'a [u8],
    /// Milliseconds since 1970, 0 for never.
    pub expire_at_ms: u64,
}

/// Bytes before the body.
pub const BLOCK_HEADER_BYTES: usize = 32;

/// Longest body.
pub const BLOCK_BODY_BYTES_MAX: usize = BLOCK_BYTES - BLOCK_HEADER_BYTES;

/// Bytes of an entry before its key.
pub const ENTRY_HEADER_BYTES: usize = 17;

/// `EphB`.
const MAGIC: u32 = u32::from_le_bytes(*b"EphB");

/// Where a header has the kind.
const KIND_AT: usize = std::mem::offset_of!(BlockHeader, kind);

const KIND_WHOLE: u8 = 0;
const KIND_FRAGMENT: u8 = 1;

/// The only value type so far.
const VALUE_STRING: u8 = 0;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct BlockHeader {
    magic: u32,
    crc: u32,
    kind: u8,
    zero: u8,
    count: u16,
    length: u32,
    index: u32,
    total: u32,
    reserved: [u32; 2],
}

const _: () = assert!(size_of::<BlockHeader>() == BLOCK_HEADER_BYTES);

impl BlockHeader {
    fn checksum(&self, body: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(bytemuck::bytes_of(&BlockHeader { crc: 0, ..*self }));
        hasher.update(body);
        hasher.finalize()
    }
}

/// The length of an entry in a body.
#[must_use]
pub fn entry_len(key: &[u8], value: &[u8]) -> usize {
    ENTRY_HEADER_BYTES + key.len() + value.len()
}

/// Checks one block and takes it apart.
fn open(block: &[u8]) -> Result<(BlockHeader, &[u8]), WireError> {
    check("block", block.len(), BLOCK_HEADER_BYTES, BLOCK_BYTES)?;
    let (header, body) = block.split_at(BLOCK_HEADER_BYTES);
    let header: BlockHeader = bytemuck::pod_read_unaligned(header);
    if header.magic != MAGIC {
        return Err(WireError::Magic {
            found: header.magic,
        });
    }
    check("block body", header.length as usize, body.len(), body.len())?;
    let computed = header.checksum(body);
    if header.crc != computed {
        return Err(WireError::Checksum {
            stored: header.crc,
            computed,
        });
    }
    if header.zero != 0 || header.reserved != [0; 2] {
        return Err(WireError::Malformed(
            "a reserved field of a block is not zero",
        ));
    }
    Ok((header, body))
}

/// The entry at the start of `body` and its length.
fn entry(body: &[u8]) -> Result<(Entry<'_>, usize), WireError> {
    const CUT: WireError = WireError::Malformed("an entry of a block is cut off");
    let Some((head, rest)) = body.split_first_chunk::<ENTRY_HEADER_BYTES>() else {
        return Err(CUT);
    };
    let key_len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let value_len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    let expire_at_ms = bytemuck::pod_read_unaligned(&head[8..16]);
    check("key", key_len, 0, STORED_KEY_BYTES_MAX)?;
    check("value", value_len, 0, VALUE_BYTES_MAX)?;
    if head[16] != VALUE_STRING {
        return Err(WireError::Unknown {
            what: "value type",
            found: head[16].into(),
        });
    }
    let (Some(key), Some(value)) = (rest.get(..key_len), rest.get(key_len..key_len + value_len))
    else {
        return Err(CUT);
    };
    Ok((
        Entry {
            key,
            value,
            expire_at_ms,
        },
        ENTRY_HEADER_BYTES + key_len + value_len,
    ))
}

/// The entries that a block seems to have, up to the first that is none: it is not checked, so do no more with
/// them than look ahead.
pub fn peek(block: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    entries(match block.split_first_chunk::<BLOCK_HEADER_BYTES>() {
        Some((header, body)) if header[KIND_AT] == KIND_WHOLE => body,
        _ => &[],
    })
}

/// The entries of a body, up to the first that is none.
#[expect(
    clippy::indexing_slicing,
    reason = "an entry was taken from the front of the rest"
)]
fn entries(body: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut rest = body;
    std::iter::from_fn(move || {
        let (entry, len) = entry(rest).ok()?;
        rest = &rest[len..];
        Some(entry)
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

#[cfg(test)]
mod tests;
