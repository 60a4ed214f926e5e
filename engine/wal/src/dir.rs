//! A directory that one process has for itself, and small files in it that are replaced as a whole.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What the operating system refused.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}: {source}", path.display())]
pub struct DirError {
    /// What was tried.
    pub action: &'static str,
    /// On what.
    pub path: PathBuf,
    /// Its words.
    pub source: io::Error,
}

impl DirError {
    /// Names what was tried, for [`Result::map_err`].
    pub fn of<'a>(
        action: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(io::Error) -> DirError + use<'a> {
        move |source| DirError {
            action,
            path: path.to_owned(),
            source,
        }
    }
}

/// Locks `dir`, which has to be there, for as long as the file is open; `None` when another process
/// has it.
///
/// # Errors
/// What the operating system says.
pub fn lock(dir: &Path) -> Result<Option<File>, DirError> {
    let path = dir.join("lock");
    let file = File::create(&path).map_err(DirError::of("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(DirError::of("lock", &path)(source)),
    }
}

/// Replaces the file `name` in `dir`; it is durable and complete or unchanged.
///
/// # Errors
/// What the operating system says.
pub fn replace(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), DirError> {
    let file = dir.join(name);
    let new = dir.join(format!("{name}.new"));
    let mut written = File::create(&new).map_err(DirError::of("create", &new))?;
    written
        .write_all(bytes)
        .map_err(DirError::of("write", &new))?;
    written.sync_all().map_err(DirError::of("sync", &new))?;
    fs::rename(&new, &file).map_err(DirError::of("rename", &new))?;
    sync(dir)
}

/// Makes names in a directory durable.
///
/// # Errors
/// What the operating system says.
pub fn sync(dir: &Path) -> Result<(), DirError> {
    let opened = File::open(dir).map_err(DirError::of("open", dir))?;
    opened.sync_all().map_err(DirError::of("sync", dir))
}
