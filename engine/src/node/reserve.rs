//! Disk space that a node keeps for its next start.
//!
//! A start writes before it can free anything: it counts itself, opens logs and stores, begins log segments. On a disk
//! that others have filled it would not come up, and not even serve reads. So a running node holds a file of about
//! what a start takes, and a start removes it first.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The file.
const NAME: &str = "reserve";

/// For an embedded coordinator's segment, the layout, and what sled writes when it opens a store.
const BYTES: u64 = 48 << 20;

/// For a shard's first segment, of the smallest size.
const BYTES_PER_SHARD: u64 = 16 << 20;

const BYTES_MAX: u64 = 256 << 20;

/// What is held.
#[derive(Debug)]
pub struct Reserve {
    path: PathBuf,
    wanted: u64,
    held: u64,
}

impl Reserve {
    /// Gives free what an earlier process has held in the data directory `dir`.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn release(dir: &Path) -> io::Result<()> {
        match fs::remove_file(dir.join(NAME)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// For a node of so many shards; holds nothing yet.
    #[must_use]
    pub fn new(dir: &Path, shards: u16) -> Reserve {
        Reserve {
            path: dir.join(NAME),
            wanted: (BYTES + u64::from(shards) * BYTES_PER_SHARD).min(BYTES_MAX),
            held: 0,
        }
    }

    /// Takes what is missing, of `free` bytes no more than half.
    ///
    /// # Errors
    /// There is no space, or a quota is used up; what was held stays so.
    pub fn renew(&mut self, free: u64) -> io::Result<()> {
        let bytes = (self.wanted - self.held).min(free / 2) & !4095;
        if bytes == 0 {
            return Ok(());
        }
        let file = File::options().create(true).append(true).open(&self.path)?;
        let (from, len) = (self.held as libc::off_t, bytes as libc::off_t);
        // SAFETY: a plain system call on an open descriptor; it touches no memory of this process.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, from, len) } == 0 {
            self.held += bytes;
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::EOPNOTSUPP) {
            // Nothing can be held here.
            self.wanted = self.held;
            return Ok(());
        }
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn takes_half_of_what_is_free_until_it_has_all_and_gives_it_back() {
        let dir = tempfile::tempdir().expect("temp dir");
        Reserve::release(dir.path()).expect("nothing there");
        let mut reserve = Reserve::new(dir.path(), 1);
        let held = || fs::metadata(dir.path().join(NAME)).map_or(0, |file| file.blocks() * 512);
        reserve.renew(0).expect("takes nothing");
        assert_eq!(held(), 0);
        reserve.renew(16 << 20).expect("space");
        assert_eq!(held(), 8 << 20);
        reserve.renew(1 << 40).expect("space");
        assert_eq!(held(), 64 << 20);
        reserve.renew(1 << 40).expect("has all");
        assert_eq!(held(), 64 << 20);
        Reserve::release(dir.path()).expect("removed");
        assert_eq!(held(), 0);
        assert_eq!(Reserve::new(dir.path(), 999).wanted, BYTES_MAX);
    }
}
