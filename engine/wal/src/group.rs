//! What lies on disk: a group of records behind one header.
//!
//! ```text
//! group, at a 4 KiB boundary of its segment, zero-padded to the next one:
//!   header           128 bytes, see [`GroupHeader`], native (little) endian
//!   record           repeated record_count times:
//!     length u32     bytes that follow
//!     payload
//! ```
//!
//! The checksum (CRC-32, as gzip's) covers header and records with its own field zero; the padding
//! is not covered. An all-zero header is invalid.

use bytemuck::{Pod, Zeroable};
use ephesus_wire::Lsn;

use crate::aligned::align_up;
use crate::error::GroupFault;
use crate::options::LogId;
use crate::segment::SegmentId;

#[cfg(test)]
mod tests;

/// `EPHWALG` and the format's generation.
pub const MAGIC: u64 = u64::from_le_bytes(*b"EPHWALG1");

/// Format version written by this release.
pub const VERSION: u16 = 1;

/// Size of the header, bytes.
pub const HEADER_BYTES: usize = size_of::<GroupHeader>();

/// Size of a record's length in front of its payload, bytes.
pub const RECORD_PREFIX_BYTES: usize = 4;

/// The first group of an incarnation. Its records, if any, are those that the one before had published and
/// not written: see [`crate::mapped`].
pub const FLAG_OPENING: u16 = 1;
/// The incarnation that wrote this group runs [`crate::Durability::Relaxed`].
pub const FLAG_RELAXED: u16 = 2;
const FLAGS_KNOWN: u16 = FLAG_OPENING | FLAG_RELAXED;

/// No log gets there; numbers that follow those of a file cannot overflow.
const LSN_MAX: u64 = 1 << 62;

const _: () = assert!(HEADER_BYTES == 128);
const _: () = assert!(
    cfg!(target_endian = "little"),
    "headers are plain little-endian structs"
);

/// The header of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct GroupHeader {
    /// [`MAGIC`].
    pub magic: u64,
    /// Over header and records, with this field zero.
    pub crc32: u32,
    /// [`VERSION`].
    pub version: u16,
    /// [`FLAG_OPENING`], [`FLAG_RELAXED`].
    pub flags: u16,
    /// The log.
    pub log_id: [u8; 16],
    /// One per opening: the number of the segment that it opened with.
    pub incarnation: u64,
    /// The segment that the group was written to.
    pub segment: u64,
    /// LSN of the first record; of the next record if there is none.
    pub first_lsn: u64,
    /// Records in the group.
    pub record_count: u32,
    /// Header and records, without padding.
    pub byte_len: u32,
    /// Milliseconds since the Unix epoch when issued; never decreases within a log.
    pub wall_clock_ms: u64,
    /// Everything up to this LSN was durable when the group was issued.
    pub durable_lsn: u64,
    /// Last LSN of the log when this incarnation opened it: higher ones of earlier incarnations
    /// are void.
    pub prev_end: u64,
    /// First LSN of this incarnation, above `prev_end`.
    pub incarnation_first: u64,
    /// The segment that the log continues from; 0 if this one is the first.
    pub prev_segment: u64,
    /// Segments below this one were given back when the group was issued.
    pub start_segment: u64,
    /// Zero.
    pub reserved: [u64; 2],
}

impl GroupHeader {
    /// Whether this is the first group of its incarnation.
    #[must_use]
    pub fn is_opening(&self) -> bool {
        self.flags & FLAG_OPENING != 0
    }

    /// LSN of the last record; the one before `first_lsn` if there is none.
    #[must_use]
    pub fn last_lsn(&self) -> Lsn {
        Lsn(self.first_lsn + u64::from(self.record_count) - 1)
    }

    /// Bytes that the group takes on disk, padding included.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        align_up(self.byte_len as usize) as u64
    }
}

/// A checked group.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The header.
    pub header: GroupHeader,
    records: &'a [u8],
}

impl<'a> Group<'a> {
    /// The group at the start of `bytes`, which [`decode_group`] has checked before.
    pub(crate) fn checked_before(header: GroupHeader, bytes: &'a [u8]) -> Option<Group<'a>> {
        let records = bytes.get(HEADER_BYTES..header.byte_len as usize)?;
        Some(Group { header, records })
    }

    /// The records in order with their LSNs.
    pub fn records(&self) -> impl Iterator<Item = (Lsn, &'a [u8])> + use<'a> {
        let mut rest = self.records;
        (self.header.first_lsn..).map_while(move |lsn| {
            let (payload, behind) = split_record(rest)?;
            rest = behind;
            Some((Lsn(lsn), payload))
        })
    }
}

pub(crate) fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (prefix, rest) = bytes.split_first_chunk::<RECORD_PREFIX_BYTES>()?;
    rest.split_at_checked(u32::from_le_bytes(*prefix) as usize)
}

/// Where a group is read from: what its header has to say.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The log that is read.
    pub log_id: LogId,
    /// The number in the file's name; `None` takes any (a planted bug does).
    pub segment: Option<SegmentId>,
}

/// Reads the fixed fields of a header, without its checksum: enough to know how much to read.
///
/// # Errors
/// The first field that cannot have been written at `place`. The log is not looked at: whether a
/// group belongs to another log is known only once its checksum is right.
pub fn decode_header(bytes: &[u8], place: Place) -> Result<GroupHeader, GroupFault> {
    let header = bytes.get(..HEADER_BYTES).ok_or(GroupFault::Short)?;
    let header: GroupHeader = bytemuck::pod_read_unaligned(header);
    let field = |ok: bool, name| {
        if ok {
            Ok(())
        } else {
            Err(GroupFault::Field(name))
        }
    };
    if header.magic != MAGIC {
        return Err(GroupFault::Magic);
    }
    if header.version != VERSION {
        return Err(GroupFault::Version(header.version));
    }
    if place
        .segment
        .is_some_and(|segment| segment.0 != header.segment)
    {
        return Err(GroupFault::Segment(header.segment));
    }
    let records = u64::from(header.record_count);
    let framing = records * RECORD_PREFIX_BYTES as u64 + HEADER_BYTES as u64;
    field(header.flags & !FLAGS_KNOWN == 0, "flags")?;
    field(header.reserved == [0; 2], "reserved bytes")?;
    field(u64::from(header.byte_len) >= framing, "byte length")?;
    field(header.first_lsn >= 1, "first LSN")?;
    let last_lsn = header.first_lsn.checked_add(records);
    field(last_lsn.is_some_and(|lsn| lsn <= LSN_MAX), "record count")?;
    field(header.durable_lsn < header.first_lsn, "durable LSN")?;
    field(
        header.incarnation_first <= header.first_lsn,
        "incarnation's first LSN",
    )?;
    field(header.prev_end < header.incarnation_first, "previous end")?;
    field(header.segment >= 1 && header.incarnation >= 1, "segment")?;
    field(header.incarnation <= header.segment, "incarnation")?;
    field(header.prev_segment < header.segment, "previous segment")?;
    field(header.start_segment <= header.segment, "start segment")?;
    let opens = header.segment == header.incarnation;
    let is_first = header.first_lsn == header.incarnation_first;
    field(!header.is_opening() || (opens && is_first), "opening")?;
    Ok(header)
}

/// Checks the group at the start of `bytes`, which may go on behind it.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn decode_group(bytes: &[u8], place: Place) -> Result<Group<'_>, GroupFault> {
    let header = decode_header(bytes, place)?;
    let records = bytes
        .get(HEADER_BYTES..header.byte_len as usize)
        .ok_or(GroupFault::Short)?;
    if checksum(header, records) != header.crc32 {
        return Err(GroupFault::Checksum);
    }
    if header.log_id != place.log_id.0 {
        return Err(GroupFault::Log(LogId(header.log_id)));
    }
    let mut rest = records;
    for _ in 0..header.record_count {
        (_, rest) = split_record(rest).ok_or(GroupFault::Framing)?;
    }
    if !rest.is_empty() {
        return Err(GroupFault::Framing);
    }
    Ok(Group { header, records })
}

/// Writes `header` over the first bytes of `group`, with the checksum of all of it.
///
/// # Panics
/// If the header's length is not the group's.
pub fn encode_header(mut header: GroupHeader, group: &mut [u8]) {
    assert_eq!(header.byte_len as usize, group.len());
    let (head, records) = group.split_at_mut(HEADER_BYTES);
    header.crc32 = checksum(header, records);
    head.copy_from_slice(bytemuck::bytes_of(&header));
}

/// The checksum of a group's records, as far as it was computed.
#[derive(Clone, Debug)]
pub(crate) struct Summed {
    /// Of the group's bytes, its header included.
    len: usize,
    records: crc32fast::Hasher,
}

impl Summed {
    /// Of none.
    pub(crate) fn nothing() -> Summed {
        Summed {
            len: HEADER_BYTES,
            records: crc32fast::Hasher::new(),
        }
    }

    /// Bytes of the group that are looked at, its header included.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Goes on to the end of `group`, so far as that is filled.
    #[expect(clippy::indexing_slicing, reason = "groups only grow")]
    pub(crate) fn catch_up(&mut self, group: &[u8]) {
        self.records.update(&group[self.len..]);
        self.len = group.len();
    }

    /// As CRC-32.
    pub(crate) fn crc32(&self) -> u32 {
        self.records.clone().finalize()
    }
}

/// [`encode_header`] over records whose checksum is known.
pub(crate) fn encode_header_over(mut header: GroupHeader, summed: &Summed, group: &mut [u8]) {
    let mut hasher = hashed(&mut header);
    hasher.combine(&summed.records);
    header.crc32 = hasher.finalize();
    let (head, _) = group.split_at_mut(HEADER_BYTES);
    head.copy_from_slice(bytemuck::bytes_of(&header));
}

fn checksum(mut header: GroupHeader, records: &[u8]) -> u32 {
    let mut hasher = hashed(&mut header);
    hasher.update(records);
    hasher.finalize()
}

/// What the header adds to its group's checksum; clears its own.
fn hashed(header: &mut GroupHeader) -> crc32fast::Hasher {
    header.crc32 = 0;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(bytemuck::bytes_of(header));
    hasher
}
