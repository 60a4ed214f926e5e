//! What the raw disk can do: the floor under every durable write.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{BenchError, During, Result};

pub(crate) use scratch::await_calm;
pub use scratch::{Driven, Scratch};
pub use survey::DiskArgs;

mod scratch;
mod survey;
#[cfg(test)]
mod tests;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileSystem {
    Memory,
    /// Anything else, with its kernel magic number, such as 0xef53 for ext4, and bytes free to this user.
    Disk {
        magic: u64,
        free_bytes: u64,
    },
}

const RAMFS_MAGIC: u64 = 0x8584_58f6;
/// Of a file's blocks, whatever those of its disk are.
const SECTOR_BYTES: u64 = 512;

pub fn file_system(dir: &Path) -> Result<FileSystem> {
    let folder = File::open(dir).during(dir.display())?;
    let answer = rustix::fs::fstatfs(folder).during(dir.display())?;
    let magic = answer.f_type as u64;
    if magic == libc::TMPFS_MAGIC as u64 || magic == RAMFS_MAGIC {
        return Ok(FileSystem::Memory);
    }
    Ok(FileSystem::Disk {
        magic,
        free_bytes: answer.f_bavail * answer.f_bsize as u64,
    })
}

/// Fails when a directory is on a file system that lives in memory.
pub fn refuse_memory(flag: &str, dir: &Path) -> Result<()> {
    match file_system(dir)? {
        FileSystem::Disk { .. } => Ok(()),
        FileSystem::Memory => {
            let why = "is in memory, where sync costs nothing; name a real disk";
            let problem = format!("{} {why}", dir.display());
            Err(BenchError::failed(flag, problem))
        }
    }
}

/// Writes back everything dirty on a directory's file system, so that one server's page cache is
/// not another's disk noise.
pub fn settle(dir: &Path) -> Result<()> {
    let synced = File::open(dir).and_then(|folder| Ok(rustix::fs::syncfs(folder)?));
    synced.during(format_args!("syncing {}", dir.display()))
}

/// Bytes of disk blocks used below a directory; files that vanish meanwhile are not counted.
pub fn used_bytes(dir: &Path) -> Result<u64> {
    let entries = fs::read_dir(dir).during(dir.display())?;
    let mut total = 0;
    for entry in entries.flatten() {
        if let Ok(metadata) = entry.metadata() {
            total += metadata.blocks() * SECTOR_BYTES;
            if metadata.is_dir() {
                total += used_bytes(&entry.path()).unwrap_or(0);
            }
        }
    }
    Ok(total)
}
