//! Messages of the stream of a batch of migrations, each of which is a [frame](crate::frame).
//!
//! ```text
//! source                                        target
//!   OPENS     ------------------------------->           that many OPEN follow; none before a single one
//!   OPEN ...  ------------------------------->           opens a staging copy each
//!             <-------------------------------  ACCEPTED or REFUSED, all of them
//!   KEYS      ------------------------------->           makes room, once for each copy
//!             <-------------------------------  WINDOW .. what its log has, and what it takes behind that
//!   DATA ...  ------------------------------->           applies, logs
//!   FINAL     ------------------------------->           compares count and digest
//!             <-------------------------------  PREPARED durably
//!   END       <------------------------------>  END      by either side at any time
//!
//! kind          payload, little-endian
//! 1 OPEN        partition u32 | source shard u16 | target shard u16 | epoch u64 | node 16 bytes
//! 2 ACCEPTED    -
//! 3 REFUSED     reason, UTF-8
//! 4 DATA        records of the copy, one after another, each complete | 0 to 15 zero bytes
//! 5 FINAL       count u64 | digest 2 u64 | clock u64 | last sequence u64
//! 6 WINDOW      sequence u64 | credit u64
//! 7 PREPARED    count u64 | digest 2 u64
//! 8 END         reason, UTF-8
//! 9 KEYS        count u64
//! 10 OPENS      count u64
//! ```
//!
//! DATA may end with zero bytes, fewer than [`DATA_ALIGN_BYTES`], behind its last record. DATA without any says that the
//! source is there: it sends one every other second while it has nothing else to send.
//!
//! The frame's stream is the migration, never 0; of OPENS, ACCEPTED, REFUSED and END it is the first one, which names the
//! batch. Its sequence counts the frames of one direction: from 1 at the source, whose OPENS and OPEN have 0, and from 0 at
//! the target.
//!
//! The credit of a WINDOW is for all streams from the source's shard to the target's together: a source walks, or sends
//! captured writes, while less than that is under way, sent and not in the target's log. It always sends all of an
//! entry. The last one that has come is valid, on whichever stream; it is 0 until the first has come.
//!
//! The records of DATA carry the epoch of the new copy and the sequence they have in its history:
//! dense from [`FIRST_SEQ`] on, since the target's own record of the copy's creation has 1.

use bytemuck::{Pod, Zeroable};

use crate::error::WireError;
use crate::frame::{FRAME_HEADER_BYTES, Frame};
use crate::ids::{Epoch, MigrationId, NodeId, PartitionId, ShardId};
use crate::limits::{SLOTS, STREAM_OPENS_MAX, STREAM_REASON_BYTES_MAX};

mod records;

pub use records::Records;

/// Sequence of the first record that a source sends.
pub const FIRST_SEQ: u64 = 2;

/// What a source makes the length of DATA a multiple of, so that what the kernel copies of a stream lies alike at both ends of
/// each copy: see [`copy`](crate::copy). A target takes any length.
pub const DATA_ALIGN_BYTES: usize = 16;

/// One message of a migration's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The connection is for so many migrations, whose OPEN messages follow.
    Opens(u64),
    /// The source asks the target for a staging copy.
    Open(Open),
    /// The staging copies are there: DATA may follow.
    Accepted,
    /// There will be no staging copies; the text says why.
    Refused(&'a str),
    /// So many keys are to come, about; at most once for each copy.
    Keys(u64),
    /// The next records, if any, to be read with [`Records`].
    Data(&'a [u8]),
    /// There is no record behind this one.
    Final(Final),
    /// How far the target is, and how much more it takes.
    Window {
        /// Of the last record of the stream that its log has.
        seq: u64,
        /// Bytes of DATA that may be under way from the source's shard beyond what the log has.
        credit: u64,
    },
    /// The target holds all of it durably and keeps it until the coordinator decides.
    Prepared(Contents),
    /// The stream is over before its end; the text says why.
    End(&'a str),
}

/// What is to be moved from where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The partition.
    pub partition: PartitionId,
    /// Of the new copy.
    pub epoch: Epoch,
    /// The node that sends.
    pub source: NodeId,
    /// The shard of that node.
    pub source_shard: ShardId,
    /// The shard of the receiving node.
    pub target_shard: ShardId,
}

/// What a copy holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Keys, expired ones included.
    pub count: u64,
    /// Of all entries, as [`crate::digest`] computes it.
    pub digest: [u64; 2],
}

/// What the target has to hold at the end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Final {
    /// Of the whole partition.
    pub contents: Contents,
    /// The source's time, Unix milliseconds: the target refuses what is too far from its own.
    pub clock_ms: u64,
    /// Sequence of the last record; 1 when there was none.
    pub last_seq: u64,
}

/// The numbers of the kinds: part of the protocol.
mod kind {
    pub(super) const OPEN: u16 = 1;
    pub(super) const ACCEPTED: u16 = 2;
    pub(super) const REFUSED: u16 = 3;
    pub(super) const DATA: u16 = 4;
    pub(super) const FINAL: u16 = 5;
    pub(super) const WINDOW: u16 = 6;
    pub(super) const PREPARED: u16 = 7;
    pub(super) const END: u16 = 8;
    pub(super) const KEYS: u16 = 9;
    pub(super) const OPENS: u16 = 10;
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct OpenBody {
    partition: u32,
    source_shard: u16,
    target_shard: u16,
    epoch: u64,
    source: [u8; 16],
}

const _: () = assert!(size_of::<OpenBody>() == 32);

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ContentsBody {
    count: u64,
    digest: [u64; 2],
}

const _: () = assert!(size_of::<ContentsBody>() == 24);

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct FinalBody {
    contents: ContentsBody,
    clock_ms: u64,
    last_seq: u64,
}

const _: () = assert!(size_of::<FinalBody>() == 40);

impl<'a> Message<'a> {
    /// Appends the message as one frame to `out`; a reason is cut to its limit.
    ///
    /// # Panics
    /// When DATA is longer than a frame may be.
    pub fn encode(&self, migration: MigrationId, sequence: u64, out: &mut Vec<u8>) {
        let mut frame = |kind, payload: &[u8]| {
            let stream = migration.0;
            Frame {
                kind,
                stream,
                sequence,
                payload,
            }
            .encode(out);
        };
        match *self {
            Self::Opens(count) => frame(kind::OPENS, bytemuck::bytes_of(&count)),
            Self::Open(open) => {
                let body = OpenBody {
                    partition: open.partition.0.into(),
                    source_shard: open.source_shard.0,
                    target_shard: open.target_shard.0,
                    epoch: open.epoch.0,
                    source: open.source.0,
                };
                frame(kind::OPEN, bytemuck::bytes_of(&body));
            }
            Self::Accepted => frame(kind::ACCEPTED, &[]),
            Self::Refused(reason) => frame(kind::REFUSED, cut(reason).as_bytes()),
            Self::Keys(count) => frame(kind::KEYS, bytemuck::bytes_of(&count)),
            Self::Data(records) => frame(kind::DATA, records),
            Self::Final(last) => {
                let body = FinalBody {
                    contents: last.contents.body(),
                    clock_ms: last.clock_ms,
                    last_seq: last.last_seq,
                };
                frame(kind::FINAL, bytemuck::bytes_of(&body));
            }
            Self::Window { seq, credit } => {
                frame(kind::WINDOW, bytemuck::bytes_of(&[seq, credit]));
            }
            Self::Prepared(contents) => frame(kind::PREPARED, bytemuck::bytes_of(&contents.body())),
            Self::End(reason) => frame(kind::END, cut(reason).as_bytes()),
        }
    }

    /// Reads a frame as a message and the migration it belongs to.
    ///
    /// # Errors
    /// When no sender of this protocol can have written it: end the connection.
    pub fn decode(frame: &Frame<'a>) -> Result<(MigrationId, Message<'a>), WireError> {
        if frame.stream == 0 {
            return Err(WireError::Malformed("a message of no migration"));
        }
        let payload = frame.payload;
        let message = match frame.kind {
            kind::OPENS => Self::Opens(opens(payload)?),
            kind::OPEN => Self::Open(open(payload)?),
            kind::ACCEPTED => empty("ACCEPTED", payload, Self::Accepted)?,
            kind::REFUSED => Self::Refused(text("REFUSED", payload)?),
            kind::KEYS => Self::Keys(body("KEYS", payload)?),
            kind::DATA => Self::Data(payload),
            kind::FINAL => Self::Final(last(payload)?),
            kind::WINDOW => window(payload)?,
            kind::PREPARED => Self::Prepared(contents(body("PREPARED", payload)?)?),
            kind::END => Self::End(text("END", payload)?),
            other => {
                return Err(WireError::Unknown {
                    what: "stream message",
                    found: other.into(),
                });
            }
        };
        Ok((MigrationId(frame.stream), message))
    }
}

impl Contents {
    fn body(self) -> ContentsBody {
        ContentsBody {
            count: self.count,
            digest: self.digest,
        }
    }
}

/// The header of a DATA frame, for a sender that writes the records from where they are.
#[must_use]
pub fn data_header(
    migration: MigrationId,
    sequence: u64,
    records: &[u8],
) -> [u8; FRAME_HEADER_BYTES] {
    Frame {
        kind: kind::DATA,
        stream: migration.0,
        sequence,
        payload: records,
    }
    .header()
}

fn open(payload: &[u8]) -> Result<Open, WireError> {
    let body: OpenBody = body("OPEN", payload)?;
    if body.partition >= u32::from(SLOTS) {
        return Err(WireError::Unknown {
            what: "partition",
            found: body.partition.into(),
        });
    }
    if body.epoch == 0 {
        return Err(WireError::Malformed("a copy without an epoch"));
    }
    Ok(Open {
        partition: PartitionId(body.partition as u16),
        epoch: Epoch(body.epoch),
        source: NodeId(body.source),
        source_shard: ShardId(body.source_shard),
        target_shard: ShardId(body.target_shard),
    })
}

fn opens(payload: &[u8]) -> Result<u64, WireError> {
    let count: u64 = body("OPENS", payload)?;
    if (1..=STREAM_OPENS_MAX).contains(&count) {
        return Ok(count);
    }
    Err(WireError::Malformed(
        "a connection for none, or for too many",
    ))
}

fn empty<'a>(
    what: &'static str,
    payload: &[u8],
    message: Message<'a>,
) -> Result<Message<'a>, WireError> {
    length(what, payload, 0, 0)?;
    Ok(message)
}

fn last(payload: &[u8]) -> Result<Final, WireError> {
    let body: FinalBody = body("FINAL", payload)?;
    check_seq(body.last_seq)?;
    if body.contents.count > 0 && body.last_seq < FIRST_SEQ {
        return Err(WireError::Malformed("keys without a record"));
    }
    Ok(Final {
        contents: contents(body.contents)?,
        clock_ms: body.clock_ms,
        last_seq: body.last_seq,
    })
}

fn contents(body: ContentsBody) -> Result<Contents, WireError> {
    if body.count == 0 && body.digest != [0; 2] {
        return Err(WireError::Malformed("a digest of no keys"));
    }
    Ok(Contents {
        count: body.count,
        digest: body.digest,
    })
}

fn window<'a>(payload: &[u8]) -> Result<Message<'a>, WireError> {
    let [seq, credit] = body("WINDOW", payload)?;
    check_seq(seq)?;
    Ok(Message::Window { seq, credit })
}

fn check_seq(seq: u64) -> Result<(), WireError> {
    if seq == 0 {
        return Err(WireError::Malformed("a sequence before the first"));
    }
    Ok(())
}

fn body<T: Pod>(what: &'static str, payload: &[u8]) -> Result<T, WireError> {
    length(what, payload, size_of::<T>(), size_of::<T>())?;
    Ok(bytemuck::pod_read_unaligned(payload))
}

fn text<'a>(what: &'static str, payload: &'a [u8]) -> Result<&'a str, WireError> {
    length(what, payload, 0, STREAM_REASON_BYTES_MAX)?;
    std::str::from_utf8(payload).map_err(|_| WireError::Malformed("a reason that is not UTF-8"))
}

/// As much of a reason as a message takes.
fn cut(reason: &str) -> &str {
    let mut end = reason.len().min(STREAM_REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

fn length(what: &'static str, payload: &[u8], min: usize, max: usize) -> Result<(), WireError> {
    if (min..=max).contains(&payload.len()) {
        return Ok(());
    }
    Err(WireError::Length {
        what,
        len: payload.len() as u64,
        min: min as u64,
        max: max as u64,
    })
}

#[cfg(test)]
mod tests;
