//! Groups that lie in a mapped file until they are written: the kernel keeps them when the process dies.
//!
//! With relaxed durability a record is committed once the operating system has it. If the open group of a log
//! is memory of a file, that takes no system call, and the log may be written in few and large groups. What a
//! process that has died had published and not written, recovery finds here behind the end of the log.
//!
//! ```text
//! file `mapped`    header, 4 KiB | slot | slot | ...
//! slot             head, 4 KiB: cell 0 | cell 1 | zeroes      then a group of group_bytes, see `group`;
//!                  what is in place of the group's header does not count
//! cell, 64 bytes   log_id | incarnation | first_lsn | record_count | byte_len | records_crc32 | crc32 |
//!                  wall_clock_ms | zeroes
//! ```
//!
//! # Invariants
//!
//! 1. Records are stored before the cell that covers them, and a group's two cells are stored in turn: whenever
//!    the process dies, one of them is whole and covers all that was committed of the group.
//! 2. A slot is used again only when the writes of its group and of all groups before have completed: what is
//!    written behind a group that is torn does not count.
//! 3. What is found counts only if it is of the log's last incarnation and continues the log without a gap. After
//!    a power loss the file holds any mixture of what it once held; what the checksums let pass was appended.
//! 4. What was found is part of the next incarnation's first group, and that is durable before the file is
//!    used again: a crash meanwhile finds it once more, in one place or in the other.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use bytemuck::{Pod, Zeroable};
use ephesus_wire::Lsn;

use crate::aligned::{AlignedBuf, BLOCK_BYTES, align_up};
use crate::disk::{Disk, DiskFile, Mapping};
use crate::error::WalError;
use crate::group::{HEADER_BYTES, Summed, split_record};
use crate::options::{LogId, LogOptions};
use crate::segment;

#[cfg(test)]
mod tests;

/// Name of the file in the log's directory.
pub const FILE_NAME: &str = "mapped";

/// `EPHMAPS` and the format's generation.
const MAGIC: u64 = u64::from_le_bytes(*b"EPHMAPS1");

/// A larger file is none of ours, and is not read into memory.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// In front of all slots, and of each.
const HEAD_BYTES: usize = BLOCK_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct FileHeader {
    magic: u64,
    slots: u32,
    group_bytes: u32,
    /// Of the fields above.
    crc32: u32,
    zero: u32,
}

/// How much of a slot's group is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
struct Cell {
    log_id: [u8; 16],
    incarnation: u64,
    first_lsn: u64,
    record_count: u32,
    /// Header and records.
    byte_len: u32,
    /// Of the records.
    records_crc32: u32,
    /// Of this cell, with this field zero.
    crc32: u32,
    /// Milliseconds since the Unix epoch when it was published.
    wall_clock_ms: u64,
    zero: u64,
}

const CELL_BYTES: usize = size_of::<Cell>();
const _: () = assert!(CELL_BYTES == 64 && size_of::<FileHeader>() == 24);

impl FileHeader {
    fn new(slots: usize, group_bytes: usize) -> FileHeader {
        let mut header = FileHeader {
            magic: MAGIC,
            slots: slots as u32,
            group_bytes: group_bytes as u32,
            crc32: 0,
            zero: 0,
        };
        let (covered, _) = bytemuck::bytes_of(&header).split_at(offset_of!(FileHeader, crc32));
        header.crc32 = crc32fast::hash(covered);
        header
    }

    /// The header of a whole file, if it is one.
    fn decode(file: &[u8]) -> Option<FileHeader> {
        let found = bytemuck::pod_read_unaligned::<FileHeader>(file.get(..size_of::<Self>())?);
        let right = FileHeader::new(found.slots as usize, found.group_bytes as usize);
        let is_right = found == right && (found.group_bytes as usize).is_multiple_of(BLOCK_BYTES);
        // Slots and their size are any numbers; what fits the file does not overflow.
        let slots = (file.len() - HEAD_BYTES.min(file.len())).checked_div(found.slot_bytes());
        let is_whole = slots == Some(found.slots as usize) && found.file_bytes() == file.len();
        (is_right && is_whole).then_some(found)
    }

    fn slot_bytes(&self) -> usize {
        HEAD_BYTES + self.group_bytes as usize
    }

    fn file_bytes(&self) -> usize {
        HEAD_BYTES + self.slots as usize * self.slot_bytes()
    }

    fn slot_at(&self, slot: usize) -> usize {
        HEAD_BYTES + slot * self.slot_bytes()
    }
}

impl Cell {
    fn sealed(mut self) -> Cell {
        self.crc32 = 0;
        self.crc32 = crc32fast::hash(bytemuck::bytes_of(&self));
        self
    }

    fn is_whole(&self) -> bool {
        self.sealed().crc32 == self.crc32 && self.record_count > 0
    }
}

/// Whose groups they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) log_id: LogId,
    pub(crate) incarnation: u64,
}

/// How far a group in a slot is published.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    summed: Summed,
    /// How often; says which cell is next.
    times: usize,
}

impl Published {
    /// Nothing yet.
    pub(crate) fn nothing() -> Published {
        Published {
            summed: Summed::nothing(),
            times: 0,
        }
    }

    /// Bytes of the group that are published, its header included.
    pub(crate) fn len(&self) -> usize {
        self.summed.len()
    }

    /// Checksum of the records that are published.
    pub(crate) fn summed(&self) -> &Summed {
        &self.summed
    }
}

/// The slots of one writer.
#[derive(Debug)]
pub(crate) struct MappedGroups {
    owner: Owner,
    mapping: Arc<Mapping>,
    header: FileHeader,
    heads: Vec<AlignedBuf>,
    free: Vec<AlignedBuf>,
}

impl MappedGroups {
    /// Maps the file, which is made anew: one that was there may share its blocks with a copy, or have none, and a
    /// store to it on a full disk would end the process. `None` where files cannot be mapped, or the options want
    /// none. What it held is lost.
    ///
    /// # Errors
    /// [`WalError::Io`].
    pub(crate) async fn open<D: Disk>(
        disk: &D,
        opts: &LogOptions,
        incarnation: u64,
    ) -> Result<Option<MappedGroups>, WalError> {
        let slots = opts.mapped_slots();
        if slots == 0 {
            return Ok(None);
        }
        let header = FileHeader::new(slots, opts.mapped_group_bytes);
        make(disk, &header).await?;
        let mapped = disk.map(FILE_NAME).await;
        let Some(mapping) = mapped.map_err(WalError::io("map", FILE_NAME))? else {
            return Ok(None);
        };
        let mapping = Arc::new(mapping);
        let part = |offset, len| {
            // SAFETY: heads and groups of different slots lie apart, and each is taken once.
            unsafe { AlignedBuf::of_mapping(&mapping, offset, len) }
        };
        let starts = (0..slots).map(|slot| header.slot_at(slot));
        let heads = starts.clone().map(|at| part(at, HEAD_BYTES)).collect();
        let groups = starts.map(|at| part(at + HEAD_BYTES, opts.mapped_group_bytes));
        let free = groups.collect();
        let log_id = opts.log_id;
        Ok(Some(MappedGroups {
            owner: Owner {
                log_id,
                incarnation,
            },
            mapping,
            header,
            heads,
            free,
        }))
    }

    /// A free slot's memory, if it has room for `bytes`.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<AlignedBuf> {
        if bytes > self.header.group_bytes as usize {
            return None;
        }
        self.free.pop()
    }

    /// Takes a slot's memory back: its group was written.
    pub(crate) fn give_back(&mut self, mut group: AlignedBuf) {
        group.set_len(group.capacity());
        self.free.push(group);
    }

    /// Commits the first `len` bytes of `group`, `record_count` records from `first_lsn` on: after this they
    /// survive the process.
    #[expect(
        clippy::indexing_slicing,
        reason = "our own group and its slot's head, with room for two cells"
    )]
    pub(crate) fn publish(
        &mut self,
        group: &AlignedBuf,
        published: &mut Published,
        (first_lsn, record_count): (u64, u32),
        len: usize,
        wall_clock_ms: u64,
    ) {
        if len == published.len() {
            return;
        }
        published.summed.catch_up(&group[..len]);
        let cell = Cell {
            log_id: self.owner.log_id.0,
            incarnation: self.owner.incarnation,
            first_lsn,
            record_count,
            byte_len: len as u32,
            records_crc32: published.summed.crc32(),
            crc32: 0,
            wall_clock_ms,
            zero: 0,
        };
        let at = published.times % 2 * CELL_BYTES;
        published.times += 1;
        let head = self.head_of(group);
        // Records before the cell that covers them, the cell before what depends on it. That is the compiler's
        // business alone: whoever reads it does so when this process is dead, and finds what was executed.
        compiler_fence(Ordering::SeqCst);
        head[at..at + CELL_BYTES].copy_from_slice(bytemuck::bytes_of(&cell.sealed()));
        compiler_fence(Ordering::SeqCst);
    }

    /// Makes the slot of `group` say nothing.
    #[cfg(test)]
    pub(crate) fn forget(&mut self, group: &AlignedBuf) {
        self.head_of(group)[..2 * CELL_BYTES].fill(0);
    }

    #[expect(
        clippy::indexing_slicing,
        clippy::expect_used,
        reason = "only what was taken from a slot comes here"
    )]
    fn head_of(&mut self, group: &AlignedBuf) -> &mut AlignedBuf {
        let offset = group.offset_in(&self.mapping).expect("a slot's group");
        &mut self.heads[(offset - HEAD_BYTES) / self.header.slot_bytes()]
    }
}

async fn make<D: Disk>(disk: &D, header: &FileHeader) -> Result<(), WalError> {
    remove(disk).await?;
    let bytes = header.file_bytes();
    let created = disk.create(FILE_NAME, bytes as u64).await;
    let file = created.map_err(WalError::io("create", FILE_NAME))?;
    // All of it, so that the file system has nothing left to do when it is stored to.
    let mut contents = AlignedBuf::zeroed(bytes);
    let (head, _) = contents.split_at_mut(size_of::<FileHeader>());
    head.copy_from_slice(bytemuck::bytes_of(header));
    let written = file.write_at(&contents, 0).await;
    written.map_err(WalError::io("write", FILE_NAME))?;
    let synced = file.sync().await;
    synced.map_err(WalError::io("sync", FILE_NAME))?;
    segment::sync_names(disk, FILE_NAME).await
}

/// Removes the file if it is there.
pub(crate) async fn remove<D: Disk>(disk: &D) -> Result<(), WalError> {
    match disk.remove(FILE_NAME).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(WalError::io("remove", FILE_NAME)(error))
        }
        _ => Ok(()),
    }
}

/// The file, all that it holds made durable before if `to_keep`; `None` if there is none, or one that is too large to
/// be ours.
async fn read<D: Disk>(disk: &D, to_keep: bool) -> Result<Option<AlignedBuf>, WalError> {
    let file = match disk.open(FILE_NAME, false).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(WalError::io("open", FILE_NAME))?,
    };
    if to_keep {
        let synced = file.sync().await;
        synced.map_err(WalError::io("sync", FILE_NAME))?;
    }
    let size = file.size().await;
    let size = size.map_err(WalError::io("stat", FILE_NAME))?;
    if size > FILE_BYTES_MAX {
        return Ok(None);
    }
    let bytes = file.read_at(0, align_up(size as usize)).await;
    Ok(Some(bytes.map_err(WalError::io("read", FILE_NAME))?))
}

/// What was published and continues a log.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) records: Vec<(Lsn, Box<[u8]>)>,
    /// When the last of them was published.
    pub(crate) wall_clock_ms: u64,
}

/// Records that were published, in order, from one LSN on.
struct Run<'a> {
    first_lsn: u64,
    record_count: u32,
    records: &'a [u8],
    wall_clock_ms: u64,
}

/// Whether the file is one of ours, whatever its slots hold.
///
/// # Errors
/// [`WalError::Io`].
pub(crate) async fn is_whole<D: Disk>(disk: &D) -> Result<bool, WalError> {
    let file = read(disk, false).await?;
    Ok(file.is_some_and(|file| FileHeader::decode(&file).is_some()))
}

/// The records from LSN `next` on that `owner` has published and that continue one another.
///
/// With `to_keep` the file is made durable first.
///
/// # Errors
/// [`WalError::Io`].
pub(crate) async fn find<D: Disk>(
    disk: &D,
    owner: Owner,
    next: Lsn,
    to_keep: bool,
) -> Result<Found, WalError> {
    let Some(file) = read(disk, to_keep).await? else {
        return Ok(Found::default());
    };
    let Some(header) = FileHeader::decode(&file) else {
        return Ok(Found::default());
    };
    Ok(continuing(&runs(&file, &header, owner), next))
}

/// What the cells of the file vouch for.
fn runs<'a>(file: &'a [u8], header: &FileHeader, owner: Owner) -> Vec<Run<'a>> {
    let mut runs = Vec::new();
    for slot in 0..header.slots as usize {
        let Some(slot) = file.get(header.slot_at(slot)..header.slot_at(slot + 1)) else {
            break;
        };
        let (head, group) = slot.split_at(HEAD_BYTES);
        for cell in head.chunks_exact(CELL_BYTES).take(2) {
            let cell: Cell = bytemuck::pod_read_unaligned(cell);
            let is_own = cell.log_id == owner.log_id.0 && cell.incarnation == owner.incarnation;
            let records = group.get(HEADER_BYTES..cell.byte_len as usize);
            if let Some(records) = records
                && cell.is_whole()
                && is_own
                && crc32fast::hash(records) == cell.records_crc32
            {
                runs.push(Run {
                    first_lsn: cell.first_lsn,
                    record_count: cell.record_count,
                    records,
                    wall_clock_ms: cell.wall_clock_ms,
                });
            }
        }
    }
    runs
}

fn continuing(runs: &[Run<'_>], next: Lsn) -> Found {
    let mut next = next.0;
    let mut found = Found::default();
    let end = |run: &Run<'_>| run.first_lsn.saturating_add(u64::from(run.record_count));
    let reaches = |run: &&Run<'_>, next| run.first_lsn <= next && end(run) > next;
    while let Some(run) = runs
        .iter()
        .filter(|run| reaches(run, next))
        .max_by_key(|run| end(run))
    {
        let mut rest = run.records;
        for lsn in run.first_lsn..end(run) {
            let Some((record, behind)) = split_record(rest) else {
                return found;
            };
            rest = behind;
            if lsn >= next {
                found.records.push((Lsn(lsn), record.into()));
            }
        }
        found.wall_clock_ms = found.wall_clock_ms.max(run.wall_clock_ms);
        next = end(run);
    }
    found
}
