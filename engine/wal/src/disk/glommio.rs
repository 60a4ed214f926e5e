//! io_uring by way of glommio: only inside an executor.

use std::cell::Cell;
use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use glommio::io::{BufferedFile, Directory, DmaFile, OpenOptions};

use super::{Disk, DiskFile};
use crate::aligned::AlignedBuf;
use crate::options::Durability;

#[cfg(test)]
mod tests;

/// A directory of the machine's file system, for logs of coordinators, which are driven on their executor.
///
/// Falls back to buffered files, with one warning, where the file system refuses `O_DIRECT`.
#[derive(Clone, Debug)]
pub struct GlommioDisk {
    dir: Rc<PathBuf>,
    durability: Durability,
    direct: Rc<Cell<bool>>,
}

impl GlommioDisk {
    /// The existing directory `dir`; with strict durability, files opened for writing have
    /// `O_DSYNC`.
    #[must_use]
    pub fn new(dir: impl AsRef<Path>, durability: Durability) -> GlommioDisk {
        let dir = Rc::new(dir.as_ref().to_path_buf());
        GlommioDisk {
            dir,
            durability,
            direct: Rc::new(Cell::new(true)),
        }
    }

    async fn open_with(&self, name: &str, write: bool, flags: c_int) -> io::Result<GlommioFile> {
        let path = self.dir.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(write).custom_flags(flags);
        if self.direct.get() {
            match options.dma_open(&path).await.map_err(io::Error::from) {
                Ok(file) => return Ok(GlommioFile::Direct(file)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(e),
                Err(e) => {
                    self.direct.set(false);
                    tracing::warn!(dir = %self.dir.display(), error = %e,
                        "the file system refuses O_DIRECT; the log uses buffered writes");
                }
            }
        }
        Ok(GlommioFile::Buffered(options.buffered_open(&path).await?))
    }
}

impl Disk for GlommioDisk {
    type File = GlommioFile;

    async fn create(&self, name: &str, len: u64) -> io::Result<GlommioFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options.buffered_open(self.dir.join(name)).await?;
        if file.pre_allocate(len, false).await.is_err() {
            file.truncate(len).await?; // not every file system can reserve space
        }
        file.close().await?;
        self.open_with(name, true, 0).await
    }

    async fn open(&self, name: &str, write: bool) -> io::Result<GlommioFile> {
        let synced = write && self.durability == Durability::Strict;
        self.open_with(name, write, if synced { libc::O_DSYNC } else { 0 })
            .await
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(glommio::io::rename(self.dir.join(from), self.dir.join(to)).await?)
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        Ok(glommio::io::remove(self.dir.join(name)).await?)
    }

    async fn list(&self) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(&*self.dir)?;
        names
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    async fn sync_dir(&self) -> io::Result<()> {
        let dir = Directory::open(&*self.dir).await?;
        let synced = dir.sync().await;
        dir.close().await?;
        Ok(synced?)
    }
}

/// An open file of a [`GlommioDisk`].
#[derive(Debug)]
pub enum GlommioFile {
    /// With `O_DIRECT`.
    Direct(DmaFile),
    /// Through the page cache.
    Buffered(BufferedFile),
}

impl AsRawFd for GlommioFile {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            GlommioFile::Direct(file) => file.as_raw_fd(),
            GlommioFile::Buffered(file) => file.as_raw_fd(),
        }
    }
}

impl DiskFile for GlommioFile {
    /// Blocks: glommio polls for the completion of direct reads, which not every device supports,
    /// and segments are prepared without reading. Recover on a thread, with [`super::std::StdDisk`].
    async fn read_at(&self, offset: u64, len: usize) -> io::Result<AlignedBuf> {
        // SAFETY: `self` keeps the descriptor open until after the last use of the borrow.
        let fd = unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) };
        let file = File::from(fd.try_clone_to_owned()?);
        super::std::read_blocks(&file, offset, len)
    }

    async fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let written = match self {
            GlommioFile::Direct(file) => {
                let mut buf = file.alloc_dma_buffer(bytes.len());
                buf.as_bytes_mut().copy_from_slice(bytes);
                file.write_at(buf, offset).await?
            }
            GlommioFile::Buffered(file) => file.write_at(bytes.to_vec(), offset).await?,
        };
        if written == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    async fn sync(&self) -> io::Result<()> {
        match self {
            GlommioFile::Direct(file) => file.fdatasync().await?,
            GlommioFile::Buffered(file) => file.fdatasync().await?,
        }
        Ok(())
    }

    async fn size(&self) -> io::Result<u64> {
        Ok(match self {
            GlommioFile::Direct(file) => file.file_size().await?,
            GlommioFile::Buffered(file) => file.file_size().await?,
        })
    }
}
