//! Frames: how nodes and the coordinator cut their TCP streams into messages.
//!
//! ```text
//!  0       4      6         8        12      16       24         32
//!  +-------+------+---------+--------+-------+--------+----------+---------+
//!  | magic | kind | version | length | crc32 | stream | sequence | payload |
//!  |  u32  | u16  |   u16   |  u32   |  u32  |  u64   |   u64    |         |
//!  +-------+------+---------+--------+-------+--------+----------+---------+
//!  length: the payload alone
//!  crc32:  of the header with this field zero, then the payload
//! ```

use bytemuck::{Pod, Zeroable};

use crate::error::WireError;
use crate::limits::FRAME_PAYLOAD_BYTES_MAX;

/// One message; what the kinds mean is up to the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What the payload is.
    pub kind: u16,
    /// The migration or request the message belongs to.
    pub stream: u64,
    /// Counts the frames of one stream.
    pub sequence: u64,
    /// Up to 16 MiB.
    pub payload: &'a [u8],
}

/// Bytes before the payload.
pub const FRAME_HEADER_BYTES: usize = 32;

/// The version every frame of this release carries.
pub const FRAME_VERSION: u16 = 1;

/// `EphF`.
const MAGIC: u32 = u32::from_le_bytes(*b"EphF");

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct FrameHeader {
    magic: u32,
    kind: u16,
    version: u16,
    length: u32,
    crc: u32,
    stream: u64,
    sequence: u64,
}

const _: () =
    assert!(size_of::<FrameHeader>() == FRAME_HEADER_BYTES && align_of::<FrameHeader>() == 8);

impl Frame<'_> {
    /// The length of the frame with its header.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        FRAME_HEADER_BYTES + self.payload.len()
    }

    /// Appends the frame to `out`.
    ///
    /// # Panics
    /// When the payload is longer than [`FRAME_PAYLOAD_BYTES_MAX`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_len());
        out.extend_from_slice(&self.header());
        out.extend_from_slice(self.payload);
    }

    /// The header alone, for a sender that writes header and payload from different places.
    ///
    /// # Panics
    /// When the payload is longer than [`FRAME_PAYLOAD_BYTES_MAX`].
    #[must_use]
    pub fn header(&self) -> [u8; FRAME_HEADER_BYTES] {
        let length = self.payload.len();
        assert!(
            length <= FRAME_PAYLOAD_BYTES_MAX,
            "frame payload of {length} bytes"
        );
        let mut header = FrameHeader {
            magic: MAGIC,
            kind: self.kind,
            version: FRAME_VERSION,
            length: length as u32,
            crc: 0,
            stream: self.stream,
            sequence: self.sequence,
        };
        header.crc = checksum(&header, self.payload);
        bytemuck::cast(header)
    }
}

/// Reads the first frame of `buf` and how many bytes it takes; `None` while it is incomplete.
///
/// # Errors
/// When the bytes are no frame: framing is lost, close the connection.
pub fn decode(buf: &[u8]) -> Result<Option<(Frame<'_>, usize)>, WireError> {
    decode_limited(buf, FRAME_PAYLOAD_BYTES_MAX)
}

/// As [`decode`] with a lower limit, for peers that have not shown yet who they are.
///
/// # Errors
/// As [`decode`], or when the payload is longer than `payload_bytes_max`.
#[expect(clippy::indexing_slicing, reason = "as many bytes as both have")]
pub fn decode_limited(
    buf: &[u8],
    payload_bytes_max: usize,
) -> Result<Option<(Frame<'_>, usize)>, WireError> {
    let Some(header) = buf.get(..FRAME_HEADER_BYTES) else {
        let magic = MAGIC.to_le_bytes();
        let seen = buf.len().min(magic.len());
        if buf[..seen] != magic[..seen] {
            let mut found = [0; 4];
            found[..seen].copy_from_slice(&buf[..seen]);
            return Err(WireError::Magic {
                found: u32::from_le_bytes(found),
            });
        }
        return Ok(None);
    };
    let header: FrameHeader = bytemuck::pod_read_unaligned(header);
    if header.magic != MAGIC {
        return Err(WireError::Magic {
            found: header.magic,
        });
    }
    if header.version != FRAME_VERSION {
        return Err(WireError::Version {
            found: header.version,
        });
    }
    let length = header.length as usize;
    let max = payload_bytes_max.min(FRAME_PAYLOAD_BYTES_MAX);
    if length > max {
        return Err(WireError::Length {
            what: "frame payload",
            len: length as u64,
            min: 0,
            max: max as u64,
        });
    }
    let Some(payload) = buf.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + length) else {
        return Ok(None);
    };
    let computed = checksum(&header, payload);
    if header.crc != computed {
        return Err(WireError::Checksum {
            stored: header.crc,
            computed,
        });
    }
    let FrameHeader {
        kind,
        stream,
        sequence,
        ..
    } = header;
    Ok(Some((
        Frame {
            kind,
            stream,
            sequence,
            payload,
        },
        FRAME_HEADER_BYTES + length,
    )))
}

fn checksum(header: &FrameHeader, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(bytemuck::bytes_of(&FrameHeader { crc: 0, ..*header }));
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests;
