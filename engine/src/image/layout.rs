//! The directories of one store, and the renames that create or replace it at once.
//!
//! ```text
//! db-0          the store
//! db-0.fresh    one being created or rebuilt: complete only once it has been renamed
//! db-0.old      one replaced by a rebuild
//!
//! FROM                       TO                        when
//! (none)                     fresh                     create
//! fresh                      live                      adopt
//! live                       live + fresh              rebuild copies
//! live + fresh               old + fresh               adopt, first rename
//! old + fresh                old + live                adopt, second rename
//! old + live                 live                      settle
//! ```
//! A `fresh` beside `live`, or alone, is unfinished and removed; beside `old` alone it is complete.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::store::{DbId, StoreError};
use crate::sled_sync;

/// Where one store and its intermediate states live.
#[derive(Clone, Debug)]
pub(super) struct DbPaths {
    pub(super) root: PathBuf,
    pub(super) live: PathBuf,
    pub(super) fresh: PathBuf,
    pub(super) old: PathBuf,
}

impl DbPaths {
    pub(super) fn new(root: &Path, db: DbId) -> DbPaths {
        DbPaths {
            root: root.to_owned(),
            live: root.join(db.to_string()),
            fresh: root.join(format!("{db}.fresh")),
            old: root.join(format!("{db}.old")),
        }
    }

    /// The directory that holds the whole store, whatever was interrupted; `None`: there is none.
    pub(super) fn complete(&self) -> Option<&Path> {
        if self.live.exists() {
            Some(&self.live)
        } else if !self.old.exists() {
            None
        } else if self.fresh.exists() {
            Some(&self.fresh)
        } else {
            Some(&self.old)
        }
    }

    /// Brings the directories into one of two states, `live` alone or none, whatever was interrupted.
    pub(super) fn settle(&self, db: DbId) -> Result<(), StoreError> {
        fs::create_dir_all(&self.root).map_err(io_error(db, "create", &self.root))?;
        if let Some(source) = self.complete()
            && *source != self.live
        {
            fs::rename(source, &self.live).map_err(io_error(db, "rename", source))?;
            self.sync_root(db)?;
        }
        for leftover in [&self.fresh, &self.old] {
            if leftover.exists() {
                tracing::info!(%db, path = %leftover.display(), "removing an interrupted rebuild");
                fs::remove_dir_all(leftover).map_err(io_error(db, "remove", leftover))?;
            }
        }
        self.sync_root(db)
    }

    /// Makes the synced and closed `fresh` the store; what was `live` is removed.
    pub(super) fn adopt(&self, db: DbId) -> Result<(), StoreError> {
        if self.live.exists() {
            fs::rename(&self.live, &self.old).map_err(io_error(db, "rename", &self.live))?;
            self.sync_root(db)?;
        }
        fs::rename(&self.fresh, &self.live).map_err(io_error(db, "rename", &self.fresh))?;
        self.sync_root(db)?;
        self.settle(db)
    }

    fn sync_root(&self, db: DbId) -> Result<(), StoreError> {
        sled_sync::sync_path(&self.root).map_err(|source| StoreError::Durability { db, source })
    }
}

/// Removes the `snap.*.generating` files that a kill during sled's open leaves and its next open would
/// take for corruption; the snapshot before it, or the log alone, is complete.
pub(super) fn remove_interrupted_snapshots(dir: &Path, db: DbId) -> Result<(), StoreError> {
    for entry in fs::read_dir(dir).map_err(io_error(db, "list", dir))? {
        let path = entry.map_err(io_error(db, "list", dir))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            tracing::info!(%db, path = %path.display(), "removing an interrupted sled snapshot");
            fs::remove_file(&path).map_err(io_error(db, "remove", &path))?;
        }
    }
    Ok(())
}

/// Bytes allocated to all files below `dir`; files that vanish meanwhile count as nothing.
pub(super) fn directory_bytes(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => bytes += directory_bytes(&entry.path())?,
            Ok(meta) => bytes += meta.blocks() * 512,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(bytes)
}

/// Bytes an unprivileged process may still write to the file system of `path`.
pub(super) fn free_bytes(path: &Path) -> io::Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `path` is NUL-terminated and `stat` is valid for writes of its type.
    if unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zero-initialised, and filled by the successful call.
    let stat = unsafe { stat.assume_init() };
    Ok(stat.f_bavail * stat.f_frsize)
}

fn io_error(db: DbId, operation: &'static str, path: &Path) -> impl Fn(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io {
        db,
        operation,
        path: path.clone(),
        source,
    }
}
