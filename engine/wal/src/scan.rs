//! Finds the groups of one segment file.

use crate::aligned::{AlignedBuf, BLOCK_BYTES};
use crate::disk::{Disk, DiskFile};
use crate::error::{GroupFault, WalError};
use crate::group::{Group, GroupHeader, Place, decode_group, decode_header};
use crate::options::LogOptions;
use crate::planted::Bug;
use crate::segment::SegmentId;

/// Segments are read in pieces of this many bytes.
const WINDOW_BYTES: usize = 4 << 20;

/// A segment file and the piece of it that is in memory.
pub(crate) struct SegmentReader<F> {
    pub(crate) id: SegmentId,
    /// Whole blocks of the file.
    pub(crate) bytes: u64,
    file: F,
    place: Place,
    window: AlignedBuf,
    window_at: u64,
}

/// A good group and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) offset: u64,
    pub(crate) header: GroupHeader,
}

impl Found {
    /// Offset of whatever follows.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.header.disk_bytes()
    }
}

impl<F: DiskFile> SegmentReader<F> {
    /// Opens segment `id`; if `to_recover`, makes durable what the file seems to hold.
    pub(crate) async fn open<D: Disk<File = F>>(
        disk: &D,
        opts: &LogOptions,
        id: SegmentId,
        to_recover: bool,
    ) -> Result<Self, WalError> {
        let name = id.file_name();
        let file = disk
            .open(&name, to_recover)
            .await
            .map_err(WalError::io("open", &name))?;
        if to_recover && !opts.planted(Bug::NoRecoverySync) {
            file.sync().await.map_err(WalError::io("sync", &name))?;
        }
        let len = file.size().await.map_err(WalError::io("measure", &name))?;
        let bytes = len - len % BLOCK_BYTES as u64;
        let segment = (!opts.planted(Bug::AcceptStale)).then_some(id);
        let place = Place {
            log_id: opts.log_id,
            segment,
        };
        let window = AlignedBuf::zeroed(0);
        Ok(SegmentReader {
            id,
            bytes,
            file,
            place,
            window,
            window_at: 0,
        })
    }

    /// The group at `offset`, or why there is none.
    pub(crate) async fn group_at(
        &mut self,
        offset: u64,
    ) -> Result<Result<GroupHeader, GroupFault>, WalError> {
        let place = self.place;
        let block = self.load(offset, BLOCK_BYTES).await?;
        let header = match decode_header(block, place) {
            Ok(header) => header,
            Err(fault) => return Ok(Err(fault)),
        };
        if offset + header.disk_bytes() > self.bytes {
            return Ok(Err(GroupFault::Short));
        }
        let group = self.load(offset, header.disk_bytes() as usize).await?;
        Ok(decode_group(group, place).map(|group| group.header))
    }

    /// The first good group at or after `offset`.
    pub(crate) async fn next_group(&mut self, mut offset: u64) -> Result<Option<Found>, WalError> {
        while offset < self.bytes {
            if let Ok(header) = self.group_at(offset).await? {
                return Ok(Some(Found { offset, header }));
            }
            offset += BLOCK_BYTES as u64;
        }
        Ok(None)
    }

    /// The group that was found last, which is still in memory.
    pub(crate) fn group(&self, found: &Found) -> Option<Group<'_>> {
        let start = found.offset.checked_sub(self.window_at)?;
        Group::checked_before(found.header, self.window.get(start as usize..)?)
    }

    /// Frees the memory of the piece read last.
    pub(crate) fn forget(&mut self) {
        self.window = AlignedBuf::zeroed(0);
    }

    async fn load(&mut self, offset: u64, len: usize) -> Result<&[u8], WalError> {
        let end = self.window_at + self.window.len() as u64;
        if offset < self.window_at || offset + len as u64 > end {
            // The first look at a segment is at its head only.
            let ahead = if self.window.is_empty() {
                BLOCK_BYTES
            } else {
                WINDOW_BYTES
            };
            let left = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
            let read = self.file.read_at(offset, len.max(ahead).min(left)).await;
            self.window = read.map_err(WalError::io("read", self.id.file_name()))?;
            self.window_at = offset;
        }
        let start = (offset - self.window_at) as usize;
        let end = self.window.len().min(start + len);
        // Nothing where the file has become shorter than it was.
        Ok(self.window.get(start..end).unwrap_or_default())
    }
}
