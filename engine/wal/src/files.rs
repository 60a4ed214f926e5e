//! The files of one log, and a list of those that have to be there.
//!
//! A log cannot tell by itself that its oldest or its newest segment is gone: what is left is a log. So the names
//! are written down beside the segments.
//!
//! ```text
//! file `segments`, two copies of it (see `double_buffered`):
//!   SEGS 4 B | version u32 | repeated: number u64 | former u64         little-endian
//!   former: the file may still have this number, because it is being given the other; 0: no; with the highest bit
//!   it is one that was put aside under this number; number 0: the file that groups lie in until they are written
//!   (see `mapped`)
//! ```
//!
//! # Invariants
//!
//! 1. What is listed is there: a file is listed once its name is durable, and struck off, durably, before it is
//!    renamed or removed. A file that is given another name is listed under both.
//! 2. A log writes to listed files only, and a record is acknowledged only once its segment is listed.
//! 3. A file has the size that segments have now, or is removed once the log needs it no more: settings may have
//!    changed since it was made.

use std::collections::BTreeMap;

use crate::disk::Disk;
use crate::double_buffered::{self, DoubleBuffered, Found};
use crate::error::WalError;
use crate::mapped;
use crate::options::{Durability, LogOptions};
use crate::segment::{self, SegmentHandle, SegmentId, SegmentInfo};

#[cfg(test)]
mod tests;

/// Name of the list in the log's directory.
pub const FILE_NAME: &str = "segments";

const MAGIC: &[u8; 4] = b"SEGS";

const VERSION: u32 = 1;

const HEAD_BYTES: usize = 8;

const ENTRY_BYTES: usize = 16;

/// Marks a former name as that of a file that was put aside.
const SHELVED: u64 = 1 << 63;

/// Stands for the mapped file, which is none of the segments: they count from 1.
const MAPPED: SegmentId = SegmentId(0);

/// What a file may be called instead of by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Former {
    Segment(SegmentId),
    Shelved(SegmentId),
}

impl Former {
    fn file_name(self) -> String {
        match self {
            Former::Segment(id) => id.file_name(),
            Former::Shelved(id) => id.free_name(),
        }
    }

    fn encode(former: Option<Former>) -> u64 {
        match former {
            None => 0,
            Some(Former::Segment(id)) => id.0,
            Some(Former::Shelved(id)) => id.0 | SHELVED,
        }
    }

    fn decode(number: u64) -> Option<Former> {
        let id = SegmentId(number & !SHELVED);
        match number {
            0 => None,
            _ if number & SHELVED != 0 => Some(Former::Shelved(id)),
            _ => Some(Former::Segment(id)),
        }
    }
}

/// Segments by number, and what they may be called instead.
type Entries = BTreeMap<SegmentId, Option<Former>>;

/// A log's directory as whoever writes the log has it: prepares, recycles and removes its segments.
///
/// Segments given back by [`crate::LogWriter::truncate_before`] have to be recycled, shelved or removed in that
/// order, one after the other. After an error that [`WalError::passes`] the same may be tried again; after any
/// other one the process has to end.
#[derive(Debug)]
pub struct LogFiles<D: Disk> {
    disk: D,
    list: DoubleBuffered<D>,
    entries: Entries,
    /// Made, but not listed as far as is known: to be removed once a list without them is durable.
    unlisted: Vec<SegmentId>,
}

impl<D: Disk> LogFiles<D> {
    /// Lists `segments`, which are durably there, in place of those that were listed before.
    ///
    /// # Errors
    /// [`WalError`].
    pub(crate) async fn listing(
        disk: &D,
        durability: Durability,
        segments: impl Iterator<Item = SegmentId>,
    ) -> Result<LogFiles<D>, WalError> {
        let entries: Entries = segments.map(|id| (id, None)).collect();
        let list =
            DoubleBuffered::create_on(disk.clone(), FILE_NAME, &encode(&entries), durability)
                .await?;
        let disk = disk.clone();
        Ok(LogFiles {
            disk,
            list,
            entries,
            unlisted: Vec::new(),
        })
    }

    /// Creates segment `id`: all zeroes, synced, and its name durable. `goes_on` is called before each piece of
    /// zeroes, of this many bytes: it may block for as long as the disk has other work to do, and answers whether to
    /// write it.
    ///
    /// A crash leaves `free-*.log` behind, which the next opening removes.
    ///
    /// # Errors
    /// [`WalError::Io`]; the number must not be used again.
    pub async fn prepare_with(
        &mut self,
        opts: &LogOptions,
        id: SegmentId,
        piece_bytes: usize,
        goes_on: impl FnMut() -> bool,
    ) -> Result<SegmentHandle<D::File>, WalError> {
        if !self.unlisted.is_empty() {
            // Or each attempt would leave another one.
            self.change(|_| ()).await?;
        }
        let made = segment::make(&self.disk, opts, id, piece_bytes, goes_on).await?;
        let listed = self.change(|entries| {
            entries.insert(id, None);
        });
        let listed = listed.await;
        if listed.is_err() {
            self.unlisted.push(id);
        }
        listed.map(|()| made)
    }

    /// [`LogFiles::prepare_with`] without pauses.
    ///
    /// # Errors
    /// As there.
    pub async fn prepare(
        &mut self,
        opts: &LogOptions,
        id: SegmentId,
    ) -> Result<SegmentHandle<D::File>, WalError> {
        self.prepare_with(opts, id, segment::PIECE_BYTES, || true)
            .await
    }

    /// Gives the file of segment `from`, which holds nothing the log needs, to segment `to`.
    ///
    /// Its old groups stay in it; their segment number tells them apart.
    ///
    /// # Errors
    /// [`WalError::Io`], and [`WalError::SegmentSize`] for a file that can only be removed; the number `to` must
    /// not be used again.
    pub async fn recycle(
        &mut self,
        opts: &LogOptions,
        from: SegmentInfo,
        to: SegmentId,
    ) -> Result<SegmentHandle<D::File>, WalError> {
        check_size(opts, from)?;
        self.rename(opts, Former::Segment(from.id), to).await
    }

    /// Puts the file of segment `old`, which holds nothing the log needs, aside for [`LogFiles::reuse`]: recovery
    /// does not read it any more, and an opening that finds it removes it.
    ///
    /// # Errors
    /// [`WalError::Io`], and [`WalError::SegmentSize`] for a file that can only be removed.
    pub async fn shelve(&mut self, opts: &LogOptions, old: SegmentInfo) -> Result<(), WalError> {
        check_size(opts, old)?;
        self.strike_off(old.id).await?;
        segment::rename(&self.disk, &old.id.file_name(), &old.id.free_name()).await
    }

    /// Gives the file that [`LogFiles::shelve`] has put aside to segment `to`; see [`LogFiles::recycle`].
    ///
    /// # Errors
    /// As there.
    pub async fn reuse(
        &mut self,
        opts: &LogOptions,
        shelved: SegmentInfo,
        to: SegmentId,
    ) -> Result<SegmentHandle<D::File>, WalError> {
        check_size(opts, shelved)?;
        self.rename(opts, Former::Shelved(shelved.id), to).await
    }

    /// Gives a file of the right size the name of segment `to`; after an error that passes it has its old one.
    async fn rename(
        &mut self,
        opts: &LogOptions,
        from: Former,
        to: SegmentId,
    ) -> Result<SegmentHandle<D::File>, WalError> {
        self.change(|entries| {
            if let Former::Segment(id) = from {
                entries.remove(&id);
            }
            entries.insert(to, Some(from));
        })
        .await?;
        let info = SegmentInfo {
            id: to,
            bytes: opts.segment_bytes,
        };
        let enlisted = segment::enlist(&self.disk, opts, &from.file_name(), info).await;
        if enlisted.as_ref().is_err_and(WalError::passes) {
            // It may be given another one.
            self.entries.remove(&to);
            if let Former::Segment(id) = from {
                self.entries.insert(id, None);
            }
        }
        enlisted
    }

    /// Lists the mapped file, which is durably there: what is published in it is missed when it is gone.
    ///
    /// # Errors
    /// [`WalError::Io`].
    pub(crate) async fn list_mapped(&mut self) -> Result<(), WalError> {
        self.change(|entries| {
            entries.insert(MAPPED, None);
        })
        .await
    }

    /// Removes the file of segment `old`, which holds nothing the log needs, durably.
    ///
    /// # Errors
    /// [`WalError::Io`].
    pub async fn discard(&mut self, old: SegmentInfo) -> Result<(), WalError> {
        self.strike_off(old.id).await?;
        let name = old.id.file_name();
        let removed = self.disk.remove(&name).await;
        removed.map_err(WalError::io("remove", &name))?;
        segment::sync_names(&self.disk, &name).await
    }

    async fn strike_off(&mut self, id: SegmentId) -> Result<(), WalError> {
        self.change(|entries| {
            entries.remove(&id);
        })
        .await
    }

    /// Changes the list, durably or, after an error, not at all as far as this process knows.
    async fn change(&mut self, change: impl FnOnce(&mut Entries)) -> Result<(), WalError> {
        let mut entries = self.entries.clone();
        change(&mut entries);
        self.list.write(&encode(&entries)).await?;
        self.entries = entries;
        for id in std::mem::take(&mut self.unlisted) {
            if self.disk.remove(&id.file_name()).await.is_err() {
                self.unlisted.push(id);
            }
        }
        Ok(())
    }
}

/// Begins a log in an empty directory: from now on it is known to be there.
///
/// # Errors
/// [`WalError::Io`].
pub async fn begin<D: Disk>(disk: &D, durability: Durability) -> Result<(), WalError> {
    let none = std::iter::empty();
    LogFiles::listing(disk, durability, none).await.map(drop)
}

/// Removes the list, durably, if there is one: what it names may go then. As long as there is none no file is missed.
pub(crate) async fn unlist<D: Disk>(disk: &D) -> Result<(), WalError> {
    match disk.remove(FILE_NAME).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        removed => removed.map_err(WalError::io("remove", FILE_NAME))?,
    }
    segment::sync_names(disk, FILE_NAME).await
}

/// Whether a file of a log that is needed no more can become one of its next segments.
#[must_use]
pub(crate) fn is_reusable(opts: &LogOptions, old: SegmentInfo) -> bool {
    old.bytes == opts.segment_bytes
}

/// # Errors
/// [`WalError::SegmentSize`].
pub(crate) fn check_size(opts: &LogOptions, old: SegmentInfo) -> Result<(), WalError> {
    if is_reusable(opts, old) {
        return Ok(());
    }
    Err(WalError::SegmentSize {
        file: old.id.file_name(),
        bytes: old.bytes,
        wanted: opts.segment_bytes,
    })
}

/// Checks that every file is there that has to be, by the names in the directory.
///
/// A log of a release without lists has none, but it has segments, or one that it was about to make. The mapped file
/// has to be one of ours, too.
///
/// # Errors
/// [`WalError::LostSegment`], [`WalError::LostLog`] and [`WalError::DamagedFile`].
pub(crate) async fn check<D: Disk>(
    disk: &D,
    opts: &LogOptions,
    names: &[String],
) -> Result<(), WalError> {
    if !names.iter().any(|name| name == FILE_NAME) {
        let is_segment = |name: &String| {
            SegmentId::from_file_name(name)
                .or(SegmentId::from_free_name(name))
                .is_some()
        };
        return match opts.is_begun && !names.iter().any(is_segment) {
            true => Err(WalError::LostLog),
            false => Ok(()),
        };
    }
    let entries = match double_buffered::read(disk, FILE_NAME).await? {
        Found::Whole(list) | Found::Half(list) => decode(&list),
        Found::Other(_) | Found::Damaged => None,
    };
    let entries = entries.ok_or(WalError::DamagedFile { file: FILE_NAME })?;
    for (id, former) in &entries {
        let file = match *id {
            MAPPED => mapped::FILE_NAME.to_owned(),
            id => id.file_name(),
        };
        let is_former = |former: Former| names.contains(&former.file_name());
        if !names.contains(&file) && !former.is_some_and(is_former) {
            return Err(WalError::LostSegment { file });
        }
    }
    if entries.contains_key(&MAPPED) && !mapped::is_whole(disk).await? {
        let file = mapped::FILE_NAME;
        return Err(WalError::DamagedFile { file });
    }
    Ok(())
}

fn encode(entries: &Entries) -> Vec<u8> {
    let mut list = Vec::with_capacity(HEAD_BYTES + entries.len() * ENTRY_BYTES);
    list.extend_from_slice(MAGIC);
    list.extend_from_slice(&VERSION.to_le_bytes());
    for (id, former) in entries {
        list.extend_from_slice(&id.0.to_le_bytes());
        list.extend_from_slice(&Former::encode(*former).to_le_bytes());
    }
    list
}

fn decode(list: &[u8]) -> Option<Entries> {
    let (magic, rest) = list.split_first_chunk::<4>()?;
    let (version, mut rest) = rest.split_first_chunk::<4>()?;
    if magic != MAGIC || u32::from_le_bytes(*version) != VERSION {
        return None;
    }
    let mut entries = Entries::new();
    while !rest.is_empty() {
        let (id, behind) = rest.split_first_chunk::<8>()?;
        let (former, behind) = behind.split_first_chunk::<8>()?;
        let former = Former::decode(u64::from_le_bytes(*former));
        entries.insert(SegmentId(u64::from_le_bytes(*id)), former);
        rest = behind;
    }
    Some(entries)
}
