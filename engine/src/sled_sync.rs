//! Makes sled's `flush` a real `fsync`.
//!
//! sled 0.34.7 flushes its log with `sync_file_range(WAIT_BEFORE | WRITE | WAIT_AFTER)`
//! (`pagecache/iobuf.rs`, `write_to_log`). By its manual page that call neither writes the file's
//! metadata nor the device's volatile cache, so after power loss anything may be missing, while sled
//! has already begun to reuse the segments that held the previous image: a sync of our own after
//! `flush` comes too late. When the call answers `ENOSYS`, however, sled falls back to
//! `File::sync_all`, before it counts the write as stable and frees anything.
//!
//! This module therefore defines the C symbol `sync_file_range` itself, always answering `ENOSYS`.
//! sled's reference is resolved statically, within the executable, before the dynamic C library is
//! looked at, with and without LTO. `strace -f -e trace=fsync,sync_file_range,pwrite64` shows
//! `pwrite64, fsync` for each sled buffer and not one `sync_file_range`. Nothing else in this
//! executable uses that call.
//!
//! A linker might still choose otherwise, so [`verify`] asks at every open of a store: an invalid
//! descriptor gets `ENOSYS` from ours and `EBADF` from the C library's, without touching a file.
//!
//! What sled does and does not sync, and who covers it:
//!
//! | file | sled | here |
//! | --- | --- | --- |
//! | `db` | per buffer, as above; also after truncation and tail repair | this module |
//! | `snap.X` | `fsync` before its rename; the directory is not synced | [`sync_layout`] after open |
//! | `conf` | written, never synced | [`sync_layout`] after open |
//! | `blobs/N` | written, never synced | never created: values stay below 4 KiB, [`sync_layout`] refuses others |
//! | directories | never synced | [`sync_layout`] after open |

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Answers `ENOSYS` to every caller in this executable, so that sled takes its `fsync` path.
///
/// The signature is the C library's: `int sync_file_range(int, off64_t, off64_t, unsigned int)`.
// SAFETY: the only definition of this symbol in the executable; arguments and result are plain
// integers and match the C prototype.
#[unsafe(no_mangle)]
pub extern "C" fn sync_file_range(_fd: i32, _offset: i64, _bytes: i64, _flags: u32) -> i32 {
    // SAFETY: `__errno_location` returns this thread's errno, valid for the thread's life.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// Keeps the definition above in every link, whatever order the linker reads archives in.
#[used]
static KEEP: extern "C" fn(i32, i64, i64, u32) -> i32 = sync_file_range;

/// Why sled's flush cannot be trusted here, or a data directory's layout could not be made durable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SledSyncError {
    /// The C library's `sync_file_range` was linked: this build must not be used with data that
    /// matters; build it with the toolchain and profile of the repository.
    #[error(
        "this executable was linked so that sled's flush is not a real fsync (sync_file_range \
         answered {0}); rebuild it with the repository's own profile and linker"
    )]
    NotOverridden(io::Error),
    /// sled wrote a blob file, which it never syncs: some value was larger than a block.
    #[error("sled keeps an unsynced blob file at {0}: a value above 4 KiB was stored")]
    Blob(PathBuf),
    /// A file or directory could not be synced: treat as a failed disk.
    #[error("cannot make {path} durable: {source}")]
    Sync {
        /// What was being synced.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
}

/// Proves that the symbol sled calls is the one defined here.
///
/// # Errors
/// [`SledSyncError::NotOverridden`]: do not open any store.
pub fn verify() -> Result<(), SledSyncError> {
    // SAFETY: -1 is never an open descriptor, so even the C library's version changes nothing.
    let answer = unsafe { libc::sync_file_range(std::hint::black_box(-1), 0, 0, 0) };
    let error = io::Error::last_os_error();
    if answer == -1 && error.raw_os_error() == Some(libc::ENOSYS) {
        Ok(())
    } else {
        Err(SledSyncError::NotOverridden(error))
    }
}

/// Syncs what sled leaves unsynced in a Db directory: `conf`, the snapshot's rename, and the
/// directory entries of all of them, up to and including the Db's own entry in its parent.
///
/// Called after every open and before the first manifest may count as durable; sled creates no other
/// file until the next open.
///
/// # Errors
/// [`SledSyncError::Blob`] when a blob file exists; [`SledSyncError::Sync`] on any I/O error.
pub fn sync_layout(db_dir: &Path) -> Result<(), SledSyncError> {
    let blobs = db_dir.join("blobs");
    if blobs.is_dir() {
        let mut entries = fs::read_dir(&blobs).map_err(|e| failed(&blobs, e))?;
        if let Some(entry) = entries.next() {
            return Err(SledSyncError::Blob(
                entry.map_err(|e| failed(&blobs, e))?.path(),
            ));
        }
        sync_path(&blobs)?;
    }
    for name in ["conf", "db"] {
        let path = db_dir.join(name);
        if path.exists() {
            sync_path(&path)?;
        }
    }
    sync_path(db_dir)?;
    db_dir.parent().map_or(Ok(()), sync_path)
}

/// Syncs one file or directory.
///
/// # Errors
/// [`SledSyncError::Sync`] naming the path.
pub fn sync_path(path: &Path) -> Result<(), SledSyncError> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(|e| failed(path, e))
}

fn failed(path: &Path, source: io::Error) -> SledSyncError {
    SledSyncError::Sync {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_symbol_sled_calls_is_ours() {
        verify().expect("sync_file_range must be overridden in this executable");
        let file = tempfile::tempfile().expect("temp file");
        // SAFETY: a valid descriptor and a zero range.
        let answer =
            unsafe { libc::sync_file_range(std::os::fd::AsRawFd::as_raw_fd(&file), 0, 0, 0) };
        assert_eq!(answer, -1, "a valid descriptor must get ENOSYS as well");
    }

    #[test]
    fn a_blob_file_is_refused() {
        let dir = tempfile::tempdir().expect("temp dir");
        fs::create_dir(dir.path().join("blobs")).expect("mkdir");
        sync_layout(dir.path()).expect("an empty blob directory is normal");
        fs::write(dir.path().join("blobs/17"), b"x").expect("write");
        assert!(
            matches!(sync_layout(dir.path()), Err(SledSyncError::Blob(p)) if p.ends_with("17"))
        );
    }
}
