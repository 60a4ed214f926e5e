//! io_uring by way of glommio: only inside an executor.

use std::cell::Cell;
use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use glommio::io::{BufferedFile, Directory, DmaBuffer, DmaFile, OpenOptions};

use super::{Disk, DiskFile, ZEROES_BYTES, pieces};
use crate::aligned::AlignedBuf;
use crate::options::Durability;

#[cfg(test)]
mod tests;

/// `FALLOC_FL_WRITE_ZEROES` of Linux 6.17: zeroes in written extents, by a command of the device.
const WRITE_ZEROES: c_int = 0x80;

/// A directory of the machine's file system, for preparing segments on a shard's executor.
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
        all_of(bytes.len(), written)
    }

    /// Lets the device make the zeroes if it can; it is asked in a blocking call, which is short
    /// whether it can or not. Else all pieces are written from one buffer.
    async fn write_zeroes(&self, bytes: u64) -> io::Result<()> {
        if device_zeroes(self.as_raw_fd(), bytes) {
            return Ok(());
        }
        let buffer_bytes = bytes.min(ZEROES_BYTES as u64) as usize;
        match self {
            GlommioFile::Direct(file) => {
                let whole = zeroes(file, buffer_bytes);
                for (offset, len) in pieces(bytes, buffer_bytes) {
                    let piece = if len == buffer_bytes {
                        Rc::clone(&whole)
                    } else {
                        zeroes(file, len)
                    };
                    all_of(len, file.write_rc_at(piece, offset).await?)?;
                }
            }
            GlommioFile::Buffered(file) => {
                for (offset, len) in pieces(bytes, buffer_bytes) {
                    all_of(len, file.write_at(vec![0; len], offset).await?)?;
                }
            }
        }
        Ok(())
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

/// # Errors
/// When fewer bytes were written than were asked for.
fn all_of(asked: usize, written: usize) -> io::Result<()> {
    if written == asked {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// A buffer of `len` zeroes for writing to `file`.
fn zeroes(file: &DmaFile, len: usize) -> Rc<DmaBuffer> {
    let mut buf = file.alloc_dma_buffer(len);
    buf.as_bytes_mut().fill(0);
    Rc::new(buf)
}

/// Whether the device under the file `fd` has made its first `bytes` zeroes; if not, they are still to
/// be written, and whatever is wrong shows then.
fn device_zeroes(fd: RawFd, bytes: u64) -> bool {
    let Ok(len) = libc::off_t::try_from(bytes) else {
        return false;
    };
    // SAFETY: a plain system call; it touches no memory of this process.
    unsafe { libc::fallocate(fd, WRITE_ZEROES, 0, len) == 0 }
}
