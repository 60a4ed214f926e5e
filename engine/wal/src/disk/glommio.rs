//! Plain system calls beside a glommio executor, on the thread that it has for calls that block: only inside one.
//!
//! glommio 0.9 opens files for direct I/O with a ring that is polled, also where the kernel has no queue to poll:
//! as long as a write is under way the executor asks for its end again and again, and holds a CPU.

use std::io;
use std::path::Path;

use futures_lite::future::block_on;

use super::std::{PAUSE, StdDisk, StdFile};
use super::{Disk, DiskFile};
use crate::aligned::AlignedBuf;
use crate::options::Durability;

#[cfg(test)]
mod tests;

/// A directory of the machine's file system, for logs of coordinators, which are driven on their executor.
///
/// Files are opened as those of a [`StdDisk`].
#[derive(Clone, Debug)]
pub struct GlommioDisk(StdDisk);

impl GlommioDisk {
    /// The existing directory `dir`; with strict durability, files opened for writing have
    /// `O_DSYNC`.
    ///
    /// # Errors
    /// If `dir` is not a readable directory.
    pub fn new(dir: impl AsRef<Path>, durability: Durability) -> io::Result<GlommioDisk> {
        StdDisk::new(dir, durability).map(GlommioDisk)
    }
}

/// Carries `call` out on the executor's thread for calls that block; also when nobody waits for it any more.
async fn blocking<F: Future<Output: Send + 'static>>(
    call: impl FnOnce() -> F + Send + 'static,
) -> F::Output {
    let called = glommio::executor().spawn_blocking(move || block_on(call()));
    called.await
}

impl Disk for GlommioDisk {
    type File = GlommioFile;

    async fn create(&self, name: &str, len: u64) -> io::Result<GlommioFile> {
        let (disk, name) = (self.0.clone(), name.to_owned());
        let created = blocking(move || async move { disk.create(&name, len).await }).await;
        created.map(GlommioFile)
    }

    async fn open(&self, name: &str, write: bool) -> io::Result<GlommioFile> {
        let (disk, name) = (self.0.clone(), name.to_owned());
        let opened = blocking(move || async move { disk.open(&name, write).await }).await;
        opened.map(GlommioFile)
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (disk, from, to) = (self.0.clone(), from.to_owned(), to.to_owned());
        blocking(move || async move { disk.rename(&from, &to).await }).await
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        let (disk, name) = (self.0.clone(), name.to_owned());
        blocking(move || async move { disk.remove(&name).await }).await
    }

    async fn list(&self) -> io::Result<Vec<String>> {
        let disk = self.0.clone();
        blocking(move || async move { disk.list().await }).await
    }

    async fn sync_dir(&self) -> io::Result<()> {
        let disk = self.0.clone();
        blocking(move || async move { disk.sync_dir().await }).await
    }

    async fn pause(&self) {
        glommio::timer::sleep(PAUSE).await;
    }
}

/// An open file of a [`GlommioDisk`].
#[derive(Debug)]
pub struct GlommioFile(StdFile);

impl DiskFile for GlommioFile {
    async fn read_at(&self, offset: u64, len: usize) -> io::Result<AlignedBuf> {
        let file = self.0.clone();
        blocking(move || async move { file.read_at(offset, len).await }).await
    }

    async fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (file, bytes) = (self.0.clone(), AlignedBuf::copy_of(bytes));
        blocking(move || async move { file.write_at(&bytes, offset).await }).await
    }

    async fn sync(&self) -> io::Result<()> {
        let file = self.0.clone();
        blocking(move || async move { file.sync().await }).await
    }

    async fn size(&self) -> io::Result<u64> {
        let file = self.0.clone();
        blocking(move || async move { file.size().await }).await
    }
}
