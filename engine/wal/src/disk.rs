//! The file operations that the log and its tests need, scoped to one directory.

use ::std::future::Future;
use ::std::io;

use crate::aligned::AlignedBuf;

pub mod fault;
pub mod glommio;
pub mod std;

/// Zeroes are written in pieces of this many bytes: large enough that a piece costs little beside its
/// bytes, small enough that a log's write need not wait for long behind one.
const ZEROES_BYTES: usize = 2 << 20;

/// One directory of files; clones share it.
pub trait Disk: Clone + 'static {
    /// An open file of it.
    type File: DiskFile;

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

    /// Makes all creations, renames and removals so far durable.
    fn sync_dir(&self) -> impl Future<Output = io::Result<()>>;
}

/// One open file. Offsets and lengths are multiples of 4 KiB.
pub trait DiskFile: 'static {
    /// Up to `len` bytes from `offset`; fewer only at the end of the file.
    fn read_at(&self, offset: u64, len: usize) -> impl Future<Output = io::Result<AlignedBuf>>;

    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> impl Future<Output = io::Result<()>>;

    /// Writes zeroes over the first `bytes` of the file; they are durable after `sync`.
    fn write_zeroes(&self, bytes: u64) -> impl Future<Output = io::Result<()>> {
        async move {
            let zeroes = AlignedBuf::zeroed(bytes.min(ZEROES_BYTES as u64) as usize);
            for (offset, len) in pieces(bytes, zeroes.len()) {
                self.write_at(&zeroes[..len], offset).await?;
            }
            Ok(())
        }
    }

    /// Makes all completed writes and the length durable. After an error nothing is promised.
    fn sync(&self) -> impl Future<Output = io::Result<()>>;

    /// Length of the file, bytes.
    fn size(&self) -> impl Future<Output = io::Result<u64>>;
}

/// Offsets and lengths of the pieces of at most `piece` bytes, not 0, that `bytes` consist of.
fn pieces(bytes: u64, piece: usize) -> impl Iterator<Item = (u64, usize)> {
    let offsets = (0..bytes).step_by(piece);
    offsets.map(move |offset| (offset, (bytes - offset).min(piece as u64) as usize))
}
