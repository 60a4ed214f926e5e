//! A small value that is replaced often: two copies of it in one file, at places that are made ahead, so
//! that a write has nothing for the file system to journal.
//!
//! ```text
//! file    slot 0 | slot 1        of the same size, whole blocks, which stays as long as the file
//!
//! slot
//!  0      4      8            12     16       24
//!  +------+------+------------+------+--------+-------+------------------------------------+
//!  | TWIN | crc  | slot_bytes | len  | number | value | whatever an earlier write has left |
//!  | 4 B  | u32  |    u32     | u32  |  u64   | len B | or zeroes                          |
//!  +------+------+------------+------+--------+-------+------------------------------------+
//!  crc: of all that follows it up to the end of the value; number: writes since the file was made
//! ```
//!
//! # Invariants
//!
//! 1. A write goes to one slot durably, then to the other one durably, and then it counts. So at most one slot is
//!    not whole after a crash, and the other one has the last value that counted, or the one after it. Slot 0 is the
//!    first, but after a write that has failed and may be tried again the slot that may not be whole is.
//! 2. A reader believes a slot that is whole, the higher number of two. A slot that is not may have been torn by
//!    a crash or damaged since; the two cannot be told apart and need not be: by 1 the other slot has what
//!    counted either way. So damage of one slot never brings back an older value, and damage of both is refused.
//! 3. A file has one writer in its life, which has made it ([`DoubleBuffered::create`]): what a process that was
//!    killed had under way cannot come to lie over what a later one has written. Whoever goes on from what was
//!    found therefore makes the file anew *before* anything rests on it: what was found may not have counted yet.

use bytemuck::{Pod, Zeroable};

use crate::aligned::{AlignedBuf, align_up};
use crate::disk::{Disk, DiskFile};
use crate::error::WalError;
use crate::options::Durability;
use crate::planted::Bug;
use crate::segment;

#[cfg(test)]
mod tests;

/// Begins a slot.
const MAGIC: [u8; 4] = *b"TWIN";

const HEADER_BYTES: usize = size_of::<TwinHeader>();

/// Where the bytes begin that the checksum covers.
const COVERED_FROM: usize = 8;

const _: () = assert!(HEADER_BYTES == 24);

/// A larger file is none of ours, and is not read into memory.
const FILE_BYTES_MAX: u64 = 256 << 20;

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct TwinHeader {
    magic: [u8; 4],
    crc32: u32,
    slot_bytes: u32,
    len: u32,
    number: u64,
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Both slots have this value.
    Whole(Vec<u8>),
    /// The last write was cut short by a crash, or one slot is damaged; this is the value. See invariant 3.
    Half(Vec<u8>),
    /// These bytes, which are not two slots.
    Other(Vec<u8>),
    /// Two slots of which none is whole, or the file was cut: restore it from a copy.
    Damaged,
}

/// A file with two copies of a value, as its writer has it.
#[derive(Debug)]
pub struct DoubleBuffered<D: Disk> {
    disk: D,
    name: String,
    file: D::File,
    /// How writes to the file become durable.
    durability: Durability,
    slot_bytes: usize,
    number: u64,
    /// The slot that the next write goes to first.
    first: usize,
    is_poisoned: bool,
    #[cfg(test)]
    bug: Option<Bug>,
}

impl<D: Disk> DoubleBuffered<D> {
    /// Makes the file `name`, in place of the one that may be there: durable and complete or unchanged. What
    /// is written through `disk` has to be durable when it completes.
    ///
    /// A crash may leave `name.new` behind, which the next creation removes.
    ///
    /// # Errors
    /// [`WalError`]; what was there is untouched if it [`WalError::passes`], otherwise end the process.
    pub async fn create(disk: D, name: &str, value: &[u8]) -> Result<DoubleBuffered<D>, WalError> {
        DoubleBuffered::create_on(disk, name, value, Durability::Strict).await
    }

    /// [`DoubleBuffered::create`] on a disk that makes writes durable when they complete only with strict `durability`.
    ///
    /// # Errors
    /// As there.
    pub async fn create_on(
        disk: D,
        name: &str,
        value: &[u8],
        durability: Durability,
    ) -> Result<DoubleBuffered<D>, WalError> {
        // Room to grow, so that this is rare.
        let slot_bytes = align_up(HEADER_BYTES + 2 * value.len());
        let new = format!("{name}.new");
        let names = disk.list().await.map_err(WalError::io("list", name))?;
        if names.contains(&new) {
            disk.remove(&new)
                .await
                .map_err(WalError::io("remove", &new))?;
        }
        let file = disk
            .create(&new, 2 * slot_bytes as u64)
            .await
            .map_err(WalError::io("create", &new))?;
        let mut slot = slot(slot_bytes, 0, value);
        slot.set_len(slot_bytes);
        for at in [0, slot_bytes as u64] {
            file.write_at(&slot, at)
                .await
                .map_err(WalError::io("write", &new))?;
        }
        file.sync().await.map_err(WalError::io("sync", &new))?;
        // Not behind the change of names, which could not be taken back.
        let file = disk.open(&new, true).await;
        let file = file.map_err(WalError::io("open", &new))?;
        segment::rename(&disk, &new, name).await?;
        Ok(DoubleBuffered {
            file,
            disk,
            name: name.to_owned(),
            durability,
            slot_bytes,
            number: 0,
            first: 0,
            is_poisoned: false,
            #[cfg(test)]
            bug: None,
        })
    }

    /// Replaces the value, durably; one that does not fit its slot has the file made anew, with larger ones.
    ///
    /// # Errors
    /// Unless it [`WalError::passes`] and the write may be tried again: either value may be found. End the process.
    pub async fn write(&mut self, value: &[u8]) -> Result<(), WalError> {
        if self.is_poisoned {
            return Err(WalError::Poisoned);
        }
        self.is_poisoned = true;
        if HEADER_BYTES + value.len() > self.slot_bytes {
            let disk = self.disk.clone();
            let made = DoubleBuffered::create_on(disk, &self.name, value, self.durability).await;
            // The file in use is untouched, then.
            self.is_poisoned = made.as_ref().is_err_and(|error| !error.passes());
            *self = made?;
            return Ok(());
        }
        self.number += 1;
        let slot = slot(self.slot_bytes, self.number, value);
        if self.planted(Bug::TwinsTogether) {
            self.put(&self.together(&slot), 0).await?;
        } else {
            let places = [self.first, 1 - self.first];
            let count = if self.planted(Bug::OneTwin) { 1 } else { 2 };
            for place in places.into_iter().take(count) {
                if let Err(error) = self.put(&slot, (place * self.slot_bytes) as u64).await {
                    self.first = place;
                    self.is_poisoned = !error.passes();
                    return Err(error);
                }
            }
            self.first = 0;
        }
        self.is_poisoned = false;
        Ok(())
    }

    async fn put(&self, bytes: &[u8], offset: u64) -> Result<(), WalError> {
        let written = self.file.write_at(bytes, offset).await;
        written.map_err(WalError::io("write", &self.name))?;
        if self.durability == Durability::Relaxed {
            let synced = self.file.sync().await;
            synced.map_err(WalError::unsynced(&self.name))?;
        }
        Ok(())
    }

    /// Both slots as one write.
    fn together(&self, slot: &[u8]) -> AlignedBuf {
        let mut both = AlignedBuf::zeroed(2 * self.slot_bytes);
        for half in both.chunks_exact_mut(self.slot_bytes) {
            half.split_at_mut(slot.len()).0.copy_from_slice(slot);
        }
        both
    }

    #[cfg(test)]
    fn planted(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(test))]
    const fn planted(&self, _: Bug) -> bool {
        false
    }
}

/// Reads the file `name` and changes nothing.
///
/// # Errors
/// [`WalError::Io`], also when there is no such file.
pub async fn read<D: Disk>(disk: &D, name: &str) -> Result<Found, WalError> {
    let file = disk.open(name, false).await;
    let file = file.map_err(WalError::io("open", name))?;
    let len = file.size().await.map_err(WalError::io("measure", name))?;
    if len > FILE_BYTES_MAX {
        return Ok(Found::Damaged);
    }
    let bytes = file.read_at(0, align_up(len as usize)).await;
    let bytes = bytes.map_err(WalError::io("read", name))?;
    Ok(decode(&bytes))
}

fn decode(file: &[u8]) -> Found {
    let (first, second) = file.split_at(file.len() / 2);
    match (whole(first), whole(second)) {
        (Some(first), Some(second)) if first == second => Found::Whole(first.1.to_vec()),
        // The higher number.
        (Some(first), Some(second)) => Found::Half(first.max(second).1.to_vec()),
        (Some((_, value)), None) | (None, Some((_, value))) => Found::Half(value.to_vec()),
        (None, None) if file.starts_with(&MAGIC) || second.starts_with(&MAGIC) => Found::Damaged,
        (None, None) => Found::Other(file.to_vec()),
    }
}

/// Number and value of a slot that is as it was written.
fn whole(slot: &[u8]) -> Option<(u64, &[u8])> {
    let (header, values) = slot.split_at_checked(HEADER_BYTES)?;
    let header: TwinHeader = bytemuck::pod_read_unaligned(header);
    let value = values.get(..header.len as usize)?;
    let covered = slot.get(COVERED_FROM..HEADER_BYTES + value.len())?;
    let is_whole = header.magic == MAGIC
        && header.slot_bytes as usize == slot.len()
        && header.crc32 == crc32fast::hash(covered);
    is_whole.then_some((header.number, value))
}

/// The blocks of a slot that a write changes; the capacity is that of the slot.
#[expect(clippy::indexing_slicing, reason = "slots are made for the value")]
fn slot(slot_bytes: usize, number: u64, value: &[u8]) -> AlignedBuf {
    let end = HEADER_BYTES + value.len();
    let mut slot = AlignedBuf::zeroed(slot_bytes);
    let mut header = TwinHeader {
        magic: MAGIC,
        crc32: 0,
        slot_bytes: slot_bytes as u32,
        len: value.len() as u32,
        number,
    };
    slot[HEADER_BYTES..end].copy_from_slice(value);
    slot[..HEADER_BYTES].copy_from_slice(bytemuck::bytes_of(&header));
    header.crc32 = crc32fast::hash(&slot[COVERED_FROM..end]);
    slot[..HEADER_BYTES].copy_from_slice(bytemuck::bytes_of(&header));
    slot.set_len(align_up(end));
    slot
}
