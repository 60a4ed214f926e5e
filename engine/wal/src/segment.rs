//! Segment files: their numbers, names and preparation.

use std::fmt;
use std::os::fd::{AsRawFd, RawFd};

use ephesus_wire::Lsn;

use crate::aligned::{AlignedBuf, BLOCK_BYTES};
use crate::disk::{Disk, DiskFile};
use crate::error::WalError;
use crate::options::LogOptions;
use crate::planted::Bug;

#[cfg(test)]
mod tests;

/// Number of a segment, from 1; used by one file only, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

impl SegmentId {
    /// Name of the segment's file.
    #[must_use]
    pub fn file_name(self) -> String {
        format!("seg-{:016x}.log", self.0)
    }

    /// Name of the file while it is being prepared.
    #[must_use]
    pub fn free_name(self) -> String {
        format!("free-{:016x}.log", self.0)
    }

    /// The segment whose file is called `name`.
    #[must_use]
    pub fn from_file_name(name: &str) -> Option<SegmentId> {
        parse(name, "seg-")
    }

    /// The segment for which a file called `name` was being prepared.
    #[must_use]
    pub fn from_free_name(name: &str) -> Option<SegmentId> {
        parse(name, "free-")
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn parse(name: &str, prefix: &str) -> Option<SegmentId> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(".log")?;
    let canonical = digits.len() == 16
        && digits
            .bytes()
            .all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    let number = u64::from_str_radix(digits, 16).ok()?;
    (canonical && number > 0).then_some(SegmentId(number))
}

/// A segment file as the writer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its number.
    pub id: SegmentId,
    /// Its size.
    pub bytes: u64,
}

/// What a live segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSummary {
    /// Its number.
    pub id: SegmentId,
    /// Its size.
    pub bytes: u64,
    /// LSN of its first record; of the next record if there is none.
    pub first_lsn: Lsn,
    /// LSN of its last record; the one before `first_lsn` if there is none.
    pub last_lsn: Lsn,
}

/// A segment file that is ready to be written to: its name and size are durable.
#[derive(Debug)]
pub struct SegmentHandle<F> {
    /// Number and size, for [`crate::LogWriter::add_segment`].
    pub info: SegmentInfo,
    /// The open file; with strict durability its writes are durable when they complete.
    pub file: F,
}

impl<F: AsRawFd> AsRawFd for SegmentHandle<F> {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Creates segment `id`: all zeroes, synced, and its name durable.
///
/// A crash leaves `free-*.log` behind, which the next opening removes.
///
/// # Errors
/// [`WalError::Io`]; nothing is lost and the number must not be used again.
pub async fn prepare<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    id: SegmentId,
) -> Result<SegmentHandle<D::File>, WalError> {
    prepare_with(disk, opts, id, || Zeroes::GoOn).await
}

/// Whether the rest of a new segment is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroes {
    /// It is.
    GoOn,
    /// It is left as the file system reserves it, if it does: the segment is ready at once.
    LeaveRest,
}

/// As [`prepare`], with `rest` called behind each piece of zeroes: it may block for as long as the disk has other
/// work to do, and answers whether to go on.
///
/// # Errors
/// As [`prepare`].
pub async fn prepare_with<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    id: SegmentId,
    rest: impl FnMut() -> Zeroes,
) -> Result<SegmentHandle<D::File>, WalError> {
    let free = id.free_name();
    let filled = fill(disk, &free, opts, rest).await;
    if let Err(error) = filled {
        // Half a file must not take the space that another attempt needs.
        let _ = disk.remove(&free).await;
        return Err(error);
    }
    let bytes = opts.segment_bytes;
    enlist(disk, opts, &free, SegmentInfo { id, bytes }).await
}

/// Creates a file of zeroes, durably but for its name.
async fn fill<D: Disk>(
    disk: &D,
    free: &str,
    opts: &LogOptions,
    rest: impl FnMut() -> Zeroes,
) -> Result<(), WalError> {
    let file = disk
        .create(free, opts.segment_bytes)
        .await
        .map_err(WalError::io("create", free))?;
    if !opts.fills_segments && file.is_reserved(opts.segment_bytes) {
        return file.sync().await.map_err(WalError::io("sync", free));
    }
    zero(&file, free, opts, rest).await
}

/// Makes a whole segment of a file zeroes, durably.
///
/// What the device does not do is written and synced piece by piece, so that a disk never has a whole
/// segment to make durable while logs wait behind it.
async fn zero<F: DiskFile>(
    file: &F,
    name: &str,
    opts: &LogOptions,
    mut rest: impl FnMut() -> Zeroes,
) -> Result<(), WalError> {
    let bytes = opts.segment_bytes;
    let piece_bytes = opts.zeroes_bytes.min(bytes);
    if file.device_zeroes(bytes) {
        return file.sync().await.map_err(WalError::io("sync", name));
    }
    let zeroes = AlignedBuf::zeroed(piece_bytes as usize);
    for offset in (0..bytes).step_by(piece_bytes as usize) {
        let len = (bytes - offset).min(piece_bytes) as usize;
        file.write_at(&zeroes[..len], offset)
            .await
            .map_err(WalError::io("zero-fill", name))?;
        file.sync().await.map_err(WalError::io("sync", name))?;
        if rest() == Zeroes::LeaveRest && file.is_reserved(bytes) {
            break;
        }
    }
    Ok(())
}

/// Gives the file of segment `from`, which holds nothing the log needs, to segment `to`.
///
/// Its old groups stay in it; their segment number tells them apart. Segments given back by
/// [`crate::LogWriter::truncate_before`] have to be recycled or removed in that order, one after
/// the other.
///
/// # Errors
/// [`WalError::Io`]; the number `to` must not be used again.
pub async fn recycle<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    from: SegmentInfo,
    to: SegmentId,
) -> Result<SegmentHandle<D::File>, WalError> {
    let info = SegmentInfo {
        id: to,
        bytes: from.bytes,
    };
    enlist(disk, opts, &from.id.file_name(), info).await
}

/// Puts the file of segment `old`, which holds nothing the log needs, aside for [`reuse`]: recovery
/// does not read it any more, and an opening that finds it removes it.
///
/// As with [`recycle`], segments that were given back are put aside in that order.
///
/// # Errors
/// [`WalError::Io`].
pub async fn shelve<D: Disk>(disk: &D, old: SegmentInfo) -> Result<(), WalError> {
    let (name, free) = (old.id.file_name(), old.id.free_name());
    disk.rename(&name, &free)
        .await
        .map_err(WalError::io("rename to", &free))?;
    disk.sync_dir()
        .await
        .map_err(WalError::io("sync the directory of", &free))
}

/// Gives the file that [`shelve`] has put aside to segment `to`; see [`recycle`].
///
/// # Errors
/// [`WalError::Io`]; the number `to` must not be used again.
pub async fn reuse<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    shelved: SegmentInfo,
    to: SegmentId,
) -> Result<SegmentHandle<D::File>, WalError> {
    let info = SegmentInfo {
        id: to,
        bytes: shelved.bytes,
    };
    enlist(disk, opts, &shelved.id.free_name(), info).await
}

/// Removes the file of segment `old`, which holds nothing the log needs, durably.
///
/// # Errors
/// [`WalError::Io`].
pub async fn discard<D: Disk>(disk: &D, old: SegmentInfo) -> Result<(), WalError> {
    let name = old.id.file_name();
    disk.remove(&name)
        .await
        .map_err(WalError::io("remove", &name))?;
    disk.sync_dir()
        .await
        .map_err(WalError::io("sync the directory of", &name))
}

async fn enlist<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    from: &str,
    info: SegmentInfo,
) -> Result<SegmentHandle<D::File>, WalError> {
    assert!(
        info.bytes.is_multiple_of(BLOCK_BYTES as u64),
        "segments are whole blocks"
    );
    let name = info.id.file_name();
    disk.rename(from, &name)
        .await
        .map_err(WalError::io("rename to", &name))?;
    if !opts.planted(Bug::NoDirSync) {
        disk.sync_dir()
            .await
            .map_err(WalError::io("sync the directory of", &name))?;
    }
    let file = disk
        .open(&name, true)
        .await
        .map_err(WalError::io("open", &name))?;
    Ok(SegmentHandle { info, file })
}
