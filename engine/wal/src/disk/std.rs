//! Plain system calls: for recovery and background threads, where blocking is fine.

use std::ffi::c_int;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Disk, DiskFile, Mapping};
use crate::aligned::{AlignedBuf, BLOCK_BYTES};
use crate::dir;
use crate::options::Durability;

#[cfg(test)]
mod tests;

/// `FALLOC_FL_WRITE_ZEROES` of Linux 6.17: zeroes in written extents, by a command of the device.
const WRITE_ZEROES: c_int = 0x80;

/// Before what the system had no room for is tried again.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// What the size of a file on its disk is counted in.
const SECTOR_BYTES: u64 = 512;

/// A directory of the machine's file system; its futures complete at once.
///
/// Files are opened with `O_DIRECT` where the file system permits, else buffered, with one warning
/// and the same promises.
#[derive(Clone, Debug)]
pub struct StdDisk {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    /// Open from the start: names can be made durable when no descriptor is left.
    names: File,
    durability: Durability,
    direct: AtomicBool,
}

impl StdDisk {
    /// The existing directory `dir`; with strict durability, files opened for writing have
    /// `O_DSYNC`.
    ///
    /// # Errors
    /// If `dir` is not a readable directory.
    pub fn new(dir: impl AsRef<Path>, durability: Durability) -> io::Result<StdDisk> {
        let dir = dir.as_ref().to_path_buf();
        let names = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY)
            .open(&dir)?;
        let direct = AtomicBool::new(true);
        Ok(StdDisk {
            inner: Arc::new(Inner {
                dir,
                names,
                durability,
                direct,
            }),
        })
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// Whether no file had to be opened without `O_DIRECT` so far.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.inner.direct.load(Ordering::Relaxed)
    }

    fn open_with(
        &self,
        name: &str,
        options: &mut OpenOptions,
        flags: c_int,
    ) -> io::Result<StdFile> {
        let path = self.inner.dir.join(name);
        if self.is_direct() {
            match options.custom_flags(flags | libc::O_DIRECT).open(&path) {
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                    if self.inner.direct.swap(false, Ordering::Relaxed) {
                        tracing::warn!(dir = %self.inner.dir.display(),
                            "the file system refuses O_DIRECT; the log uses buffered writes");
                    }
                }
                opened => {
                    return opened.map(|file| StdFile {
                        file: Arc::new(file),
                    });
                }
            }
        }
        let file = options.custom_flags(flags).open(&path)?;
        dir::forget_cached(&file)?;
        Ok(StdFile {
            file: Arc::new(file),
        })
    }
}

impl Disk for StdDisk {
    type File = StdFile;

    async fn create(&self, name: &str, len: u64) -> io::Result<StdFile> {
        // A file system may create the file before it refuses O_DIRECT: ask for it separately.
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options
            .clone()
            .create_new(true)
            .open(self.inner.dir.join(name))?;
        let file = self.open_with(name, &mut options, 0)?;
        allocate(&file.file, len)?;
        Ok(file)
    }

    async fn open(&self, name: &str, write: bool) -> io::Result<StdFile> {
        let synced = write && self.inner.durability == Durability::Strict;
        let flags = if synced { libc::O_DSYNC } else { 0 };
        self.open_with(name, OpenOptions::new().read(true).write(write), flags)
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.inner.dir.join(from), self.inner.dir.join(to))
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.inner.dir.join(name))
    }

    async fn list(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.inner.dir)?;
        names
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    async fn map(&self, name: &str) -> io::Result<Option<Mapping>> {
        let path = self.inner.dir.join(name);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        if !has_own_blocks(&file)? {
            tracing::warn!(file = %path.display(),
                "the file system keeps no room for stores to mapped files: none is mapped");
            return Ok(None);
        }
        let mapped = memmap2::MmapOptions::new().populate().map_raw(&file);
        let mapped = match mapped {
            Ok(mapped) => mapped,
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "cannot be mapped into memory");
                return Ok(None);
            }
        };
        let Some(memory) = NonNull::new(mapped.as_mut_ptr()) else {
            return Ok(None);
        };
        let bytes = mapped.len();
        // SAFETY: the mapping is readable, writable and goes with its owner; the lock of the data directory
        // keeps other processes away, and nothing else in this one maps the file.
        Ok(Some(unsafe {
            Mapping::new(memory, bytes, Box::new(mapped))
        }))
    }

    async fn sync_dir(&self) -> io::Result<()> {
        self.inner.names.sync_all()
    }

    async fn pause(&self) {
        std::thread::sleep(PAUSE);
    }
}

/// Whether all bytes of a file can be stored to without another block: a store for which there is none would end the
/// process.
fn has_own_blocks(file: &File) -> io::Result<bool> {
    /// File systems that write nothing in place.
    const COPY_ON_WRITE: [u64; 3] = [0x9123_683e, 0x2fc1_2fc1, 0xca45_1a4e];
    // SAFETY: `statfs` is plain data that the call fills.
    let kind = unsafe {
        let mut stat: libc::statfs = std::mem::zeroed();
        if libc::fstatfs(file.as_raw_fd(), &mut stat) != 0 {
            return Err(io::Error::last_os_error());
        }
        stat.f_type as u64 & u64::from(u32::MAX)
    };
    let metadata = file.metadata()?;
    let is_whole = metadata.blocks() * SECTOR_BYTES >= metadata.len();
    Ok(is_whole && !COPY_ON_WRITE.contains(&kind))
}

/// Reserves `len` bytes in as few extents as possible, where the file system can.
fn allocate(file: &File, len: u64) -> io::Result<()> {
    let bytes = libc::off_t::try_from(len).map_err(io::Error::other)?;
    loop {
        // SAFETY: a plain system call on an open descriptor.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) } {
            0 => return Ok(()),
            // A signal: some file systems begin from the start.
            libc::EINTR => {}
            libc::EOPNOTSUPP | libc::EINVAL => return file.set_len(len),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// An open file of a [`StdDisk`].
#[derive(Clone, Debug)]
pub struct StdFile {
    file: Arc<File>,
}

impl AsRawFd for StdFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl DiskFile for StdFile {
    async fn read_at(&self, offset: u64, len: usize) -> io::Result<AlignedBuf> {
        read_blocks(&self.file, offset, len)
    }

    async fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.as_ptr().addr().is_multiple_of(BLOCK_BYTES) {
            self.file.write_all_at(bytes, offset)
        } else {
            self.file.write_all_at(&AlignedBuf::copy_of(bytes), offset)
        }
    }

    fn device_zeroes(&self, bytes: u64) -> bool {
        let Ok(len) = libc::off_t::try_from(bytes) else {
            return false;
        };
        // SAFETY: a plain system call; it touches no memory of this process.
        unsafe { libc::fallocate(self.file.as_raw_fd(), WRITE_ZEROES, 0, len) == 0 }
    }

    fn is_reserved(&self, bytes: u64) -> bool {
        let metadata = self.file.metadata();
        metadata.is_ok_and(|file| file.len() >= bytes && file.blocks() * SECTOR_BYTES >= bytes)
    }

    async fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    async fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

/// Up to `len` bytes from `offset`, fewer only at the end of the file.
fn read_blocks(file: &File, offset: u64, len: usize) -> io::Result<AlignedBuf> {
    let mut buf = AlignedBuf::zeroed(len);
    let mut done = 0;
    while done < len {
        let rest = buf.get_mut(done..).unwrap_or_default();
        match file.read_at(rest, offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if !done.is_multiple_of(BLOCK_BYTES) {
            break; // only the end of the file is not a block boundary
        }
    }
    buf.set_len(done);
    Ok(buf)
}
