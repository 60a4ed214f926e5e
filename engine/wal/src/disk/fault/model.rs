//! The state of a [`FaultDisk`](super::FaultDisk).

#![expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a test's equipment"
)]

use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use ephesus_wire::rng::Rng;

use super::Names;
use crate::aligned::{AlignedBuf, BLOCK_BYTES};
use crate::disk::Mapping;

/// What a disk writes atomically, bytes.
const SECTOR_BYTES: u64 = 512;

#[derive(Clone, Debug)]
pub(super) struct State {
    rng: Rng,
    pub(super) dsync: bool,
    pub(super) operations: u64,
    pub(super) dead_at: Option<u64>,
    pub(super) write_fails_in: Option<u64>,
    pub(super) sync_fails_in: Option<u64>,
    /// How many operations are before the one that fails, and how.
    pub(super) fails_once: Option<(u64, i32)>,
    poisoned: bool,
    /// Counts crashes and kills: files opened in an earlier life are closed.
    pub(super) life: u64,
    files: BTreeMap<u64, Inode>,
    names: Names,
    durable_names: Names,
    name_changes: Vec<NameChange>,
    in_flight: BTreeMap<u64, Write>,
    /// Files mapped in this life.
    mapped: BTreeMap<u64, Mapped>,
    next_id: u64,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    /// As a reader sees it.
    seen: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Write>,
}

#[derive(Clone, Debug)]
struct Write {
    inode: u64,
    offset: u64,
    bytes: Vec<u8>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Create { name: String, inode: u64 },
    Rename { to: String, inode: u64 },
    Remove { name: String },
}

/// Memory that a process stores to without a call; whoever maps it and this disk keep it together.
#[derive(Clone, Debug)]
struct Mapped {
    _memory: Arc<AlignedBuf>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pointer is into memory that goes with the value.
unsafe impl Send for Mapped {}
// SAFETY: as above; who touches what is said at `contents`.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(contents: &[u8]) -> Mapped {
        let mut memory = AlignedBuf::copy_of(contents);
        Mapped {
            start: NonNull::from(&mut *memory).cast(),
            bytes: memory.len(),
            _memory: Arc::new(memory),
        }
    }

    fn contents(&self) -> Vec<u8> {
        // SAFETY: initialized memory that lives as long as `self`; simulated processes store to it on the
        // thread that also uses the disk.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }.to_vec()
    }
}

#[derive(Clone, Copy)]
enum Fate {
    Lost,
    Kept,
    Torn,
}

fn broken() -> io::Error {
    io::Error::other("simulated failure")
}

impl Write {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// The parts of this write outside `start..end`.
    fn outside(&self, start: u64, end: u64) -> impl Iterator<Item = Write> {
        let part = |from: u64, to: u64| {
            let bytes = (from < to).then(|| {
                self.bytes[(from - self.offset) as usize..(to - self.offset) as usize].to_vec()
            });
            bytes.map(|bytes| Write {
                inode: self.inode,
                offset: from,
                bytes,
            })
        };
        let front = part(self.offset, self.end().min(start));
        let back = part(self.offset.max(end), self.end());
        front.into_iter().chain(back)
    }
}

impl State {
    pub(super) fn new(seed: u64) -> State {
        State {
            rng: Rng::new(seed),
            dsync: true,
            operations: 0,
            dead_at: None,
            write_fails_in: None,
            sync_fails_in: None,
            fails_once: None,
            poisoned: false,
            life: 0,
            files: BTreeMap::new(),
            names: Names::new(),
            durable_names: Names::new(),
            name_changes: Vec::new(),
            in_flight: BTreeMap::new(),
            mapped: BTreeMap::new(),
            next_id: 1,
        }
    }

    fn fate(&mut self) -> Fate {
        [Fate::Lost, Fate::Kept, Fate::Torn][self.rng.below(3) as usize]
    }

    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    pub(super) fn alive(&self, life: u64) -> io::Result<()> {
        if life == self.life {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    pub(super) fn operate(&mut self) -> io::Result<()> {
        self.operations += 1;
        self.write_back();
        let once = self
            .fails_once
            .filter(|(before, _)| self.operations > *before);
        match self.dead_at {
            Some(dead_at) if self.operations > dead_at => Err(broken()),
            _ if once.is_some() => {
                self.fails_once = None;
                Err(io::Error::from_raw_os_error(
                    once.map_or(0, |(_, code)| code),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Writes a page of a mapped file back, or none.
    fn write_back(&mut self) {
        let Some((&inode, mapped)) = self.mapped.iter().next() else {
            return;
        };
        let seen = mapped.contents();
        let page = self.rng.below(4 * (seen.len() / BLOCK_BYTES) as u64) as usize * BLOCK_BYTES;
        let file = self.files.get_mut(&inode).expect("files stay");
        if let Some(bytes) = seen.get(page..page + BLOCK_BYTES) {
            let (offset, bytes) = (page as u64, bytes.to_vec());
            overlay(
                &mut file.durable,
                &Write {
                    inode,
                    offset,
                    bytes,
                },
            );
        }
    }

    pub(super) fn map(&mut self, name: &str) -> io::Result<Mapping> {
        self.operate()?;
        let inode = self.find(name)?;
        assert!(!self.mapped.contains_key(&inode), "mapped once in a life");
        let mapped = Mapped::new(&self.files[&inode].seen);
        self.mapped.insert(inode, mapped.clone());
        // SAFETY: the memory goes with its owner, and this disk only reads it.
        Ok(unsafe { Mapping::new(mapped.start, mapped.bytes, Box::new(mapped)) })
    }

    /// Has readers see what was stored to mapped files.
    fn note_stores(&mut self) {
        for (inode, mapped) in &self.mapped {
            self.files.get_mut(inode).expect("files stay").seen = mapped.contents();
        }
    }

    /// Ends the mappings of a process; what was stored counts as written.
    fn unmap(&mut self) {
        self.note_stores();
        for inode in std::mem::take(&mut self.mapped).into_keys() {
            let file = self.files.get_mut(&inode).expect("files stay");
            let bytes = file.seen.clone();
            let offset = 0;
            file.pending.push(Write {
                inode,
                offset,
                bytes,
            });
        }
    }

    fn count_down(counter: &mut Option<u64>) -> bool {
        match counter {
            Some(0) => {
                *counter = None;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    pub(super) fn find(&self, name: &str) -> io::Result<u64> {
        self.names
            .get(name)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn create(&mut self, name: &str, len: u64) -> io::Result<u64> {
        self.operate()?;
        if self.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = self.next_id();
        let seen = vec![0; len as usize];
        self.files.insert(
            inode,
            Inode {
                seen,
                ..Inode::default()
            },
        );
        self.names.insert(name.to_owned(), inode);
        self.name_changes.push(NameChange::Create {
            name: name.to_owned(),
            inode,
        });
        Ok(inode)
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.operate()?;
        let inode = self.find(from)?;
        self.names.remove(from);
        self.names.insert(to.to_owned(), inode);
        self.name_changes.push(NameChange::Rename {
            to: to.to_owned(),
            inode,
        });
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) -> io::Result<()> {
        self.operate()?;
        self.find(name)?;
        self.names.remove(name);
        self.name_changes.push(NameChange::Remove {
            name: name.to_owned(),
        });
        Ok(())
    }

    pub(super) fn list(&mut self) -> io::Result<Vec<String>> {
        self.operate()?;
        Ok(self.names.keys().cloned().collect())
    }

    pub(super) fn sync_dir(&mut self) -> io::Result<()> {
        self.try_sync()?;
        self.durable_names = self.names.clone();
        self.name_changes.clear();
        Ok(())
    }

    fn try_sync(&mut self) -> io::Result<()> {
        self.operate()?;
        self.poisoned |= Self::count_down(&mut self.sync_fails_in);
        if self.poisoned { Err(broken()) } else { Ok(()) }
    }

    pub(super) fn sync(&mut self, inode: u64) -> io::Result<()> {
        self.try_sync()?;
        self.note_stores();
        let file = self.files.get_mut(&inode).expect("open");
        file.durable = file.seen.clone();
        file.pending.clear();
        Ok(())
    }

    pub(super) fn len(&self, inode: u64) -> u64 {
        self.files[&inode].seen.len() as u64
    }

    pub(super) fn read(&mut self, inode: u64, offset: u64, len: usize) -> io::Result<AlignedBuf> {
        self.operate()?;
        self.note_stores();
        let seen = &self.files[&inode].seen;
        let start = seen.len().min(offset as usize);
        let end = seen.len().min(start + len);
        Ok(AlignedBuf::copy_of(&seen[start..end]))
    }

    pub(super) fn start_write(&mut self, inode: u64, offset: u64, bytes: &[u8]) -> io::Result<u64> {
        assert!(
            offset.is_multiple_of(SECTOR_BYTES),
            "writes are whole sectors"
        );
        assert!(
            (bytes.len() as u64).is_multiple_of(SECTOR_BYTES),
            "writes are whole sectors"
        );
        let id = self.next_id();
        self.in_flight.insert(
            id,
            Write {
                inode,
                offset,
                bytes: bytes.to_vec(),
            },
        );
        let operated = self.operate();
        if operated
            .as_ref()
            .is_err_and(|error| error.raw_os_error().is_some())
        {
            // The process goes on.
            self.land_one(id);
        }
        operated?;
        self.poisoned |= Self::count_down(&mut self.write_fails_in);
        if self.poisoned { Err(broken()) } else { Ok(id) }
    }

    pub(super) fn complete_write(&mut self, id: u64, dsync: bool) -> io::Result<()> {
        if self
            .dead_at
            .is_some_and(|dead_at| self.operations > dead_at)
            || self.poisoned
        {
            return Err(broken());
        }
        let write = self
            .in_flight
            .remove(&id)
            .expect("in flight until completed");
        let file = self.files.get_mut(&write.inode).expect("open");
        overlay(&mut file.seen, &write);
        if dsync {
            overlay(&mut file.durable, &write);
            let (start, end) = (write.offset, write.end());
            file.pending = file
                .pending
                .iter()
                .flat_map(|w| w.outside(start, end).collect::<Vec<_>>())
                .collect();
        } else {
            file.pending.push(write);
        }
        Ok(())
    }

    fn revive(&mut self) {
        self.life += 1;
        self.dead_at = None;
        self.write_fails_in = None;
        self.sync_fails_in = None;
        self.fails_once = None;
        self.poisoned = false;
    }

    pub(super) fn kill(&mut self) {
        self.revive();
        self.unmap();
        for id in self.in_flight.keys().copied().collect::<Vec<_>>() {
            if self.rng.one_in(2) {
                self.land_one(id);
            }
        }
    }

    pub(super) fn land(&mut self) {
        for id in self.in_flight.keys().copied().collect::<Vec<_>>() {
            self.land_one(id);
        }
    }

    fn land_one(&mut self, id: u64) {
        let write = self.in_flight.remove(&id).expect("listed");
        for part in self.survivors(write) {
            let file = self.files.get_mut(&part.inode).expect("files stay");
            overlay(&mut file.seen, &part);
            file.pending.push(part);
        }
    }

    /// What reaches the disk of a write that was not made durable.
    fn survivors(&mut self, write: Write) -> Vec<Write> {
        match self.fate() {
            Fate::Lost => Vec::new(),
            Fate::Kept => vec![write],
            Fate::Torn => {
                let sectors = write.bytes.chunks(SECTOR_BYTES as usize).zip(0..);
                let sectors: Vec<_> = sectors
                    .map(|(bytes, at)| Write {
                        inode: write.inode,
                        offset: write.offset + at * SECTOR_BYTES,
                        bytes: bytes.to_vec(),
                    })
                    .collect();
                sectors.into_iter().filter(|_| self.rng.one_in(2)).collect()
            }
        }
    }

    pub(super) fn crash(&mut self) {
        self.revive();
        self.unmap();
        let mut lost: Vec<Write> = std::mem::take(&mut self.in_flight).into_values().collect();
        for file in self.files.values_mut() {
            lost.append(&mut file.pending);
        }
        while !lost.is_empty() {
            let at = self.rng.below(lost.len() as u64) as usize;
            let write = lost.swap_remove(at);
            for part in self.survivors(write) {
                overlay(
                    &mut self.files.get_mut(&part.inode).expect("files stay").durable,
                    &part,
                );
            }
        }
        for (number, file) in self.files.values_mut().enumerate() {
            let grown = file.seen.len() > file.durable.len();
            if grown && self.rng.clone().draw().rotate_left(number as u32) & 1 == 0 {
                file.durable.resize(file.seen.len(), 0);
            }
            file.seen = file.durable.clone();
        }
        self.crash_names();
    }

    fn crash_names(&mut self) {
        let in_order = self.rng.one_in(2);
        let cut = self.rng.below(self.name_changes.len() as u64 + 1) as usize;
        for (number, change) in std::mem::take(&mut self.name_changes)
            .into_iter()
            .enumerate()
        {
            let kept = if in_order {
                number < cut
            } else {
                self.rng.one_in(2)
            };
            let names = &mut self.durable_names;
            match change {
                _ if !kept => {}
                NameChange::Create { name, inode } => drop(names.insert(name, inode)),
                NameChange::Rename { to, inode } => {
                    names.retain(|_, named| *named != inode);
                    names.insert(to, inode);
                }
                NameChange::Remove { name } => drop(names.remove(&name)),
            }
        }
        self.names = self.durable_names.clone();
        let used: Vec<u64> = self.names.values().copied().collect();
        self.files.retain(|inode, _| used.contains(inode));
    }

    pub(super) fn change(&mut self, name: &str, offset: u64, change: impl Fn(&mut u8)) {
        let inode = self.find(name).expect("an existing file");
        let file = self.files.get_mut(&inode).expect("files stay");
        change(&mut file.seen[offset as usize]);
        change(&mut file.durable[offset as usize]);
    }

    pub(super) fn contents(&mut self, name: &str) -> Option<Vec<u8>> {
        self.note_stores();
        Some(self.files[&self.find(name).ok()?].seen.clone())
    }

    pub(super) fn lose(&mut self, name: &str) {
        self.names.remove(name);
        self.durable_names.remove(name);
    }
}

fn overlay(bytes: &mut Vec<u8>, write: &Write) {
    let end = write.end() as usize;
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[write.offset as usize..end].copy_from_slice(&write.bytes);
}
