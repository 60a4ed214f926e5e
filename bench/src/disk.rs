//! What the raw disk can do: the floor under every durable write.

use std::fs::{self, File};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{BenchError, Result};

pub use calm::await_calm;
pub(crate) use scratch::Scratch;
pub use survey::DiskArgs;

mod calm;
mod scratch;
mod survey;
#[cfg(test)]
mod tests;

/// Fails when a directory is on a file system that lives in memory.
///
/// # Errors
/// When it is; also when the directory cannot be examined.
pub fn refuse_memory(flag: &'static str, dir: &Path) -> Result<()> {
    match file_system(dir)? {
        FileSystem::Memory => {
            let problem = format!(
                "{} is in memory, where sync costs nothing; name a real disk",
                dir.display()
            );
            Err(BenchError::flag(flag, problem))
        }
        FileSystem::Disk { .. } => Ok(()),
    }
}

/// What kind of file system a directory is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileSystem {
    /// tmpfs or ramfs.
    Memory,
    /// Anything else, with its kernel magic number and free bytes.
    Disk {
        /// `statfs` type, such as 0xef53 for ext4.
        magic: u64,
        /// Bytes free to this user.
        free_bytes: u64,
    },
}

const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// Examines a directory.
///
/// # Errors
/// When it is not there.
pub fn file_system(dir: &Path) -> Result<FileSystem> {
    let what = BenchError::io(dir.display().to_string());
    let answer = File::open(dir)
        .and_then(|folder| Ok(rustix::fs::fstatfs(folder)?))
        .map_err(what)?;
    let magic = answer.f_type as u64;
    if magic == libc::TMPFS_MAGIC as u64 || magic == RAMFS_MAGIC {
        return Ok(FileSystem::Memory);
    }
    Ok(FileSystem::Disk {
        magic,
        free_bytes: answer.f_bavail * answer.f_bsize as u64,
    })
}

/// Writes back everything dirty on a directory's file system, so that one server's page cache is
/// not another's disk noise.
///
/// # Errors
/// When writing back fails.
pub fn settle(dir: &Path) -> Result<()> {
    let synced = File::open(dir).and_then(|folder| Ok(rustix::fs::syncfs(folder)?));
    synced.map_err(BenchError::io(format!("syncing {}", dir.display())))
}

/// Bytes of disk blocks used below a directory; files that vanish meanwhile are not counted.
///
/// # Errors
/// When the directory itself is not there.
pub fn used_bytes(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    const SECTOR_BYTES: u64 = 512;
    let entries = fs::read_dir(dir).map_err(BenchError::io(dir.display().to_string()))?;
    let mut total = 0;
    for entry in entries.flatten() {
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        total += metadata.blocks() * SECTOR_BYTES;
        if metadata.is_dir() {
            total += used_bytes(&entry.path()).unwrap_or(0);
        }
    }
    Ok(total)
}
