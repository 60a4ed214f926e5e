//! Everything that can go wrong with a log, and what to do about it.

use std::io;

use ephesus_wire::Lsn;

use crate::options::LogId;

/// Why a log operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalError {
    /// The file system refused; after a write or sync the process has to end: never retry.
    #[error("log file {file}: cannot {op}: {source}")]
    Io {
        /// What was tried.
        op: &'static str,
        /// File name in the log's directory.
        file: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A change, of names or of a list, may not be durable: end the process, never retry.
    #[error("log file {file}: a change of it may not be durable: {source}")]
    Unsynced {
        /// What was created, renamed, removed or written.
        file: String,
        /// The system's reason.
        source: io::Error,
    },
    /// An earlier write or sync failed; nothing more is promised. End the process.
    #[error("the log has failed before; restart to recover what is durable")]
    Poisoned,
    /// The record does not fit a segment; refuse the command that made it.
    #[error("a record of {bytes} bytes is above the log's limit of {max}")]
    RecordTooLarge {
        /// Size of the record.
        bytes: usize,
        /// See [`crate::LogWriter::max_record_bytes`].
        max: usize,
    },
    /// Bytes that were durable are bad. Restore the file from a copy, or reopen with
    /// [`crate::OnDamage::Skip`] or [`crate::OnDamage::Cut`] and accept the loss.
    #[error("log file {file} is damaged at offset {offset} (LSN {lsn}): {fault}")]
    Damage {
        /// File name in the log's directory.
        file: String,
        /// Where the bad group starts or should start, bytes.
        offset: u64,
        /// The first LSN that is lost; 0 if unknown.
        lsn: Lsn,
        /// What is wrong there.
        fault: GroupFault,
    },
    /// A segment between two others is gone. Restore it, or accept the loss as with `Damage`.
    #[error("log file {file} is missing, though {next} continues it")]
    MissingSegment {
        /// File name in the log's directory.
        file: String,
        /// The segment that names it as its predecessor.
        next: String,
    },
    /// A segment that the log's list of its files has is not there. Restore it, or accept the loss as with
    /// `Damage`.
    #[error("log file {file} is gone: the log's list of its files has it")]
    LostSegment {
        /// File name in the log's directory.
        file: String,
    },
    /// A directory in which a log was begun has nothing of it any more. Restore it, or accept the loss as with
    /// `Damage`.
    #[error("all files of the log are gone")]
    LostLog,
    /// A file beside the segments is bad: the list of those that have to be there, or the one that groups lie in until
    /// they are written. Restore it, or accept what may be missing as with `Damage`.
    #[error("log file {file} is damaged")]
    DamagedFile {
        /// File name in the log's directory.
        file: &'static str,
    },
    /// A file is not as large as segments are now: remove it instead of using it again.
    #[error("log file {file} has {bytes} bytes, but segments have {wanted}")]
    SegmentSize {
        /// File name in the log's directory.
        file: String,
        /// Its size.
        bytes: u64,
        /// See [`crate::LogOptions::segment_bytes`].
        wanted: u64,
    },
    /// Segments have to be added in the order of their numbers: a bug.
    #[error("segment {id} was added behind segment {last}")]
    SegmentOrder {
        /// The segment.
        id: crate::SegmentId,
        /// The last one before.
        last: crate::SegmentId,
    },
    /// The log starts after the first record that the caller needs. Restore the older segments.
    #[error("records from LSN {wanted} are needed, but the log starts at LSN {available}")]
    MissingRecords {
        /// What was asked for.
        wanted: Lsn,
        /// The first LSN that is there.
        available: Lsn,
    },
    /// The file belongs to another log. Remove it, or open the right directory.
    #[error("log file {file} belongs to log {found}, not to {expected}")]
    ForeignLog {
        /// File name in the log's directory.
        file: String,
        /// The log that wrote it.
        found: LogId,
        /// The log that was opened.
        expected: LogId,
    },
    /// The caller's visitor refused a record.
    #[error("record {lsn} cannot be replayed: {source}")]
    Visit {
        /// The record.
        lsn: Lsn,
        /// The visitor's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl WalError {
    /// Whether the disk has no space, or a quota is used up, which may pass.
    #[must_use]
    pub fn is_out_of_space(&self) -> bool {
        matches!(self, WalError::Io { source, .. } if is_no_room(source))
    }

    pub(crate) fn io(op: &'static str, file: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        move |source| WalError::Io { op, file, source }
    }

    pub(crate) fn unsynced(file: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        move |source| WalError::Unsynced { file, source }
    }

    /// Whether what has failed may succeed later, and may be tried again: nothing was changed, and what the system
    /// lacks others may give back.
    #[must_use]
    pub fn passes(&self) -> bool {
        matches!(self, WalError::Io { source, .. } if passes(source))
    }
}

/// Whether the disk has no space, or a quota is used up.
#[must_use]
pub fn is_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// Whether the system lacks what others may give back: space, descriptors, memory; or a signal came.
#[must_use]
pub fn passes(error: &io::Error) -> bool {
    use libc::{EAGAIN, EINTR, EMFILE, ENFILE, ENOMEM};
    let code = error.raw_os_error();
    is_no_room(error)
        || code.is_some_and(|code| [EMFILE, ENFILE, ENOMEM, EAGAIN, EINTR].contains(&code))
}

/// Why bytes are not a group of the log and segment where they were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupFault {
    /// Fewer bytes than the header, or than the header says.
    #[error("cut short")]
    Short,
    /// Not a group at all; also zeroes.
    #[error("no group here")]
    Magic,
    /// Written by a later release.
    #[error("unknown group format {0}")]
    Version(u16),
    /// A field has a value that is never written.
    #[error("bad {0}")]
    Field(&'static str),
    /// The checksum does not match.
    #[error("bad checksum")]
    Checksum,
    /// A group of another segment: the file was recycled.
    #[error("group of segment {0}")]
    Segment(u64),
    /// A good group of another log.
    #[error("group of log {0}")]
    Log(LogId),
    /// Records do not fill the group exactly.
    #[error("bad record framing")]
    Framing,
    /// A good group, but not the one that has to follow.
    #[error("good group out of order: {0}")]
    Order(&'static str),
    /// Nothing that follows the last good group could be found.
    #[error("groups are missing")]
    Missing,
}
