//! The file operations that the log and its tests need, scoped to one directory.

use ::std::future::Future;
use ::std::io;

use crate::aligned::AlignedBuf;

pub mod fault;
pub mod glommio;
mod mapping;
#[cfg(test)]
pub(crate) mod small;
pub mod std;

pub use mapping::Mapping;

/// One directory of files; clones share it.
pub trait Disk: Clone + 'static {
    /// An open file of it.
    type File: DiskFile + ::std::fmt::Debug;

    /// Creates the file `name`, which must not exist, with `len` bytes that have to be written
    /// before they are read. Neither name nor length is durable yet.
    fn create(&self, name: &str, len: u64) -> impl Future<Output = io::Result<Self::File>>;

    /// Opens an existing file, for writing too if asked; what writing then promises is up to how
    /// the disk was set up (`O_DSYNC` with strict durability).
    fn open(&self, name: &str, write: bool) -> impl Future<Output = io::Result<Self::File>>;

    /// Renames a file, replacing `to`; durable after `sync_dir`.
    fn rename(&self, from: &str, to: &str) -> impl Future<Output = io::Result<()>>;

    /// Removes a file; durable after `sync_dir`.
    fn remove(&self, name: &str) -> impl Future<Output = io::Result<()>>;

    /// Names of all files, in any order.
    fn list(&self) -> impl Future<Output = io::Result<Vec<String>>>;

    /// Maps the existing file `name`, once in the life of a process; `None` where that cannot be done.
    fn map(&self, _name: &str) -> impl Future<Output = io::Result<Option<Mapping>>> {
        async { Ok(None) }
    }

    /// Makes all creations, renames and removals so far durable.
    fn sync_dir(&self) -> impl Future<Output = io::Result<()>>;

    /// Waits a little before what the system had no room for is tried again.
    fn pause(&self) -> impl Future<Output = ()> {
        async {}
    }
}

/// One open file. Offsets and lengths are multiples of 4 KiB.
pub trait DiskFile: 'static {
    /// Up to `len` bytes from `offset`; fewer only at the end of the file.
    fn read_at(&self, offset: u64, len: usize) -> impl Future<Output = io::Result<AlignedBuf>>;

    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> impl Future<Output = io::Result<()>>;

    /// Has the device make the first `bytes` of the file zeroes, without writing them, and answers whether
    /// it did; they are durable after `sync`. If not, as with most disks, they are still to be written, and
    /// whatever is wrong shows then.
    fn device_zeroes(&self, _bytes: u64) -> bool {
        false
    }

    /// Whether the disk keeps room for the first `bytes` of the file, which read as zeroes though nobody wrote them.
    fn is_reserved(&self, _bytes: u64) -> bool {
        false
    }

    /// Makes all completed writes and the length durable. After an error nothing is promised.
    fn sync(&self) -> impl Future<Output = io::Result<()>>;

    /// Length of the file, bytes.
    fn size(&self) -> impl Future<Output = io::Result<u64>>;
}
