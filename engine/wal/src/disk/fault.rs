//! A seeded simulation of a disk that keeps exactly the promises it has to, and no other.
//!
//! A write is *in flight* from the first poll of its future to the second, which completes it. A
//! completed write is *pending* until a sync (or at once durable with [`FaultDisk::dsync`]).
//! [`FaultDisk::crash`] is a power loss: each write in flight or pending is kept, lost or torn at
//! 512 bytes, in any order; each directory operation since the last `sync_dir` is kept or lost.
//! [`FaultDisk::kill`] is the death of the process alone: the kernel keeps what completed and what was
//! stored to mapped files, and what is in flight may still land later. Of a mapped file the kernel writes
//! pages back whenever it likes; a power loss keeps any of its sectors as they are, or as they last were written.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use super::{Disk, DiskFile, Mapping};
use crate::aligned::AlignedBuf;

mod model;
#[cfg(test)]
mod tests;

use model::State;

/// A simulated directory; clones share it.
#[derive(Clone, Debug)]
pub struct FaultDisk {
    state: Arc<Mutex<State>>,
}

/// An open file of a [`FaultDisk`]; all its operations fail after a crash or kill.
#[derive(Debug)]
pub struct FaultFile {
    disk: FaultDisk,
    inode: u64,
    life: u64,
    dsync: bool,
}

impl FaultDisk {
    /// An empty disk, all of whose choices follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> FaultDisk {
        FaultDisk {
            state: Arc::new(Mutex::new(State::new(seed))),
        }
    }

    /// Whether writes through [`Disk::open`] are durable when they complete (default: yes).
    #[must_use]
    pub fn dsync(self, dsync: bool) -> FaultDisk {
        self.lock().dsync = dsync;
        self
    }

    /// The directory as it is now, on another disk; no process may use it.
    #[must_use]
    pub fn snapshot(&self) -> FaultDisk {
        let state = self.lock().clone();
        FaultDisk {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Cuts the power; operations work again afterwards, on newly opened files.
    pub fn crash(&self) {
        self.lock().crash();
    }

    /// Kills the process; operations work again afterwards, on newly opened files.
    pub fn kill(&self) {
        self.lock().kill();
    }

    /// Lets the writes that were in flight at the last kill land, or not.
    pub fn land(&self) {
        self.lock().land();
    }

    /// Lets `operations` more operations succeed; the one after them and all later ones fail, until
    /// the next crash or kill.
    pub fn fail_after(&self, operations: u64) {
        let mut state = self.lock();
        state.dead_at = Some(state.operations + operations);
    }

    /// Lets the `nth` write from now (0 is the next) fail, and then all writes and syncs until the
    /// next crash or kill.
    pub fn fail_write(&self, nth: u64) {
        self.lock().write_fails_in = Some(nth);
    }

    /// Lets the `nth` sync from now (0 is the next) fail, and then all writes and syncs until the
    /// next crash or kill.
    pub fn fail_sync(&self, nth: u64) {
        self.lock().sync_fails_in = Some(nth);
    }

    /// Lets the `nth` operation from now (0 is the next) fail with this code of the system, and only that; of a write
    /// any part may happen.
    pub fn fail_once(&self, nth: u64, code: i32) {
        let mut state = self.lock();
        state.fails_once = Some((state.operations + nth, code));
    }

    /// Operations so far, failed ones included.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Flips bit `bit` of the byte at `offset` of the file `name`, durably.
    ///
    /// # Panics
    /// If there is no such byte.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) {
        self.lock().change(name, offset, |byte| *byte ^= 1 << bit);
    }

    /// The file's bytes as a reader sees them.
    #[must_use]
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        self.lock().contents(name)
    }

    /// Removes the file at once and for ever, as an operator's mistake would.
    pub fn lose(&self, name: &str) {
        self.lock().lose(name);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, inode: u64, dsync: bool) -> FaultFile {
        let life = self.lock().life;
        FaultFile {
            disk: self.clone(),
            inode,
            life,
            dsync,
        }
    }
}

impl Disk for FaultDisk {
    type File = FaultFile;

    async fn create(&self, name: &str, len: u64) -> io::Result<FaultFile> {
        let inode = self.lock().create(name, len)?;
        Ok(self.file(inode, false))
    }

    async fn open(&self, name: &str, write: bool) -> io::Result<FaultFile> {
        let (inode, dsync) = {
            let mut state = self.lock();
            state.operate()?;
            (state.find(name)?, state.dsync)
        };
        Ok(self.file(inode, write && dsync))
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.lock().rename(from, to)
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        self.lock().remove(name)
    }

    async fn list(&self) -> io::Result<Vec<String>> {
        self.lock().list()
    }

    async fn map(&self, name: &str) -> io::Result<Option<Mapping>> {
        self.lock().map(name).map(Some)
    }

    async fn sync_dir(&self) -> io::Result<()> {
        self.lock().sync_dir()
    }
}

impl DiskFile for FaultFile {
    async fn read_at(&self, offset: u64, len: usize) -> io::Result<AlignedBuf> {
        let mut state = self.disk.lock();
        state.alive(self.life)?;
        state.read(self.inode, offset, len)
    }

    async fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let write = {
            let mut state = self.disk.lock();
            state.alive(self.life)?;
            state.start_write(self.inode, offset, bytes)?
        };
        YieldOnce { yielded: false }.await;
        let mut state = self.disk.lock();
        state.alive(self.life)?;
        state.complete_write(write, self.dsync)
    }

    async fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.alive(self.life)?;
        state.sync(self.inode)
    }

    async fn size(&self) -> io::Result<u64> {
        let state = self.disk.lock();
        state.alive(self.life)?;
        Ok(state.len(self.inode))
    }
}

struct YieldOnce {
    yielded: bool,
}

impl Future for YieldOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Names of the directory and what they stand for.
type Names = BTreeMap<String, u64>;
