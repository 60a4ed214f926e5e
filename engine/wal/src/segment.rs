//! Segment files: their numbers, names and preparation.

use std::fmt;
use std::os::fd::{AsRawFd, RawFd};

use ephesus_wire::Lsn;

use crate::aligned::AlignedBuf;
#[cfg(test)]
use crate::aligned::BLOCK_BYTES;
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
    /// No number above this one is ever given out: numbers that follow a file's name cannot overflow.
    pub const MAX: SegmentId = SegmentId(1 << 62);

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
    let is_canonical = digits.len() == 16
        && digits
            .bytes()
            .all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    let number = u64::from_str_radix(digits, 16).ok()?;
    let is_given_out = (1..=SegmentId::MAX.0).contains(&number);
    (is_canonical && is_given_out).then_some(SegmentId(number))
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

/// Bytes of a piece of zeroes where nobody waits behind it: a sync for each costs little beside them.
pub(crate) const PIECE_BYTES: usize = 2 << 20;

/// Makes segment `id`: all zeroes, synced, and its name durable. `goes_on` is called before each piece of zeroes and
/// answers whether to write it: what is left out stays as the file system reserves it, if it does.
pub(crate) async fn make<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    id: SegmentId,
    piece_bytes: usize,
    goes_on: impl FnMut() -> bool,
) -> Result<SegmentHandle<D::File>, WalError> {
    let free = id.free_name();
    let bytes = opts.segment_bytes;
    let made = async {
        let created = disk.create(&free, bytes).await;
        let file = created.map_err(WalError::io("create", &free))?;
        zero(&file, &free, bytes, piece_bytes, goes_on).await?;
        enlist(disk, opts, &free, SegmentInfo { id, bytes }).await
    };
    let made = made.await;
    if made.is_err() {
        // Half a file must not take the space that another attempt needs.
        let _ = disk.remove(&free).await;
    }
    made
}

/// Makes a whole segment of a file zeroes, durably.
///
/// What the device does not do is written and synced piece by piece, so that a disk never has a whole
/// segment to make durable while logs wait behind it.
async fn zero<F: DiskFile>(
    file: &F,
    name: &str,
    bytes: u64,
    piece_bytes: usize,
    mut goes_on: impl FnMut() -> bool,
) -> Result<(), WalError> {
    let zeroes = AlignedBuf::zeroed(piece_bytes.min(bytes as usize));
    for offset in (0..bytes).step_by(piece_bytes) {
        if !goes_on() && file.is_reserved(bytes) {
            return file.sync().await.map_err(WalError::io("sync", name));
        }
        if offset == 0 && file.device_zeroes(bytes) {
            return file.sync().await.map_err(WalError::io("sync", name));
        }
        let left = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
        let (zeroes, _) = zeroes.split_at(zeroes.len().min(left));
        file.write_at(zeroes, offset)
            .await
            .map_err(WalError::io("zero-fill", name))?;
        file.sync().await.map_err(WalError::io("sync", name))?;
    }
    Ok(())
}

/// Gives the file `from` the name of segment `info`, durably, and opens it.
///
/// What may fail for a while comes first: see [`WalError::passes`].
pub(crate) async fn enlist<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    from: &str,
    info: SegmentInfo,
) -> Result<SegmentHandle<D::File>, WalError> {
    let file = disk.open(from, true).await;
    let file = file.map_err(WalError::io("open", from))?;
    let name = info.id.file_name();
    if opts.planted(Bug::NoDirSync) {
        let renamed = disk.rename(from, &name).await;
        renamed.map_err(WalError::io("rename to", &name))?;
    } else {
        rename(disk, from, &name).await?;
    }
    Ok(SegmentHandle { info, file })
}

/// Gives a file another name, durably.
pub(crate) async fn rename<D: Disk>(disk: &D, from: &str, to: &str) -> Result<(), WalError> {
    let renamed = disk.rename(from, to).await;
    renamed.map_err(WalError::io("rename to", to))?;
    sync_names(disk, to).await
}

/// Makes the names in the log's directory durable, after that of `file` has changed.
pub(crate) async fn sync_names<D: Disk>(disk: &D, file: &str) -> Result<(), WalError> {
    let synced = disk.sync_dir().await;
    synced.map_err(WalError::unsynced(file))
}
