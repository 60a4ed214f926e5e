//! A directory that one process has for itself, and small files in it that are replaced as a whole.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::files::FILE_NAME;
use crate::segment::SegmentId;

/// What is read ahead at a time: about as much as a device takes in one request.
const READ_AHEAD_BYTES: usize = 512 << 10;

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

/// Creates `dir` and what leads there, durably.
///
/// # Errors
/// What the operating system says.
pub fn create(dir: &Path) -> Result<(), DirError> {
    let missing = dir.ancestors().take_while(|dir| !dir.exists()).count();
    fs::create_dir_all(dir).map_err(DirError::of("create", dir))?;
    let named_in = dir.ancestors().skip(1).take(missing);
    named_in
        .filter(|dir| !dir.as_os_str().is_empty())
        .try_for_each(sync)
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

/// Has the next reads of a file come from its device. After a failed write-back Linux keeps the pages in memory,
/// as if they had been written, and tells only those of it who had the file open then: a process that starts anew
/// would read what is lost with the power.
///
/// What was not written yet is written first; it cannot be dropped.
///
/// # Errors
/// What the operating system says, a write-back that fails now included.
pub fn forget_cached(file: &File) -> io::Result<()> {
    file.sync_data()?;
    // SAFETY: a plain system call on an open descriptor; it touches no memory of this process.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Reads files into the page cache in order, in a thread of its own: what is about to be read as a whole, but in small pieces
/// here and there, would otherwise wait for the device with each. Nothing depends on it.
pub fn read_ahead(files: Vec<File>) {
    let read = move || {
        let mut piece = vec![0; READ_AHEAD_BYTES];
        for mut file in files {
            // One after the other, so that a reader that wants another piece waits for few.
            while file.read(&mut piece).is_ok_and(|bytes| bytes > 0) {}
        }
    };
    let thread = std::thread::Builder::new().name("read-ahead".to_owned());
    // Without it all is read as well, later.
    let _ = thread.spawn(read);
}

/// Removes the segment files of the log in `dir` that were never finished or were put aside: no recovery reads them.
/// A start that needs space does so first. There need not be such a directory. One with nothing but these is left as it
/// is: a log that was never begun anywhere else would be taken for lost without them.
///
/// # Errors
/// What the operating system says.
pub fn remove_unfinished(dir: &Path) -> Result<(), DirError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(DirError::of("list", dir))?,
    };
    let names: Result<Vec<_>, _> = entries
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect();
    let names = names.map_err(DirError::of("list", dir))?;
    let stays = |name: &String| *name == FILE_NAME || SegmentId::from_file_name(name).is_some();
    if !names.iter().any(stays) {
        return Ok(());
    }
    let is_unfinished = |name: &&String| SegmentId::from_free_name(name).is_some();
    for path in names.iter().filter(is_unfinished).map(|n| dir.join(n)) {
        fs::remove_file(&path).map_err(DirError::of("remove", &path))?;
    }
    Ok(())
}

/// Makes names in a directory durable.
///
/// # Errors
/// What the operating system says.
pub fn sync(dir: &Path) -> Result<(), DirError> {
    let opened = File::open(dir).map_err(DirError::of("open", dir))?;
    opened.sync_all().map_err(DirError::of("sync", dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the first page of a file is in memory.
    fn is_cached(path: &Path) -> bool {
        let file = File::open(path).expect("open");
        // SAFETY: nobody changes the file, and the mapping outlives its use.
        let map = unsafe { memmap2::Mmap::map(&file) }.expect("map");
        let mut page = 0u8;
        // SAFETY: one page of the mapping, and one byte for it.
        let asked = unsafe { libc::mincore(map.as_ptr().cast_mut().cast(), 4096, &mut page) };
        assert_eq!(asked, 0);
        page & 1 == 1
    }

    #[test]
    fn what_was_in_memory_is_read_from_the_device() {
        // On a real disk: what tmpfs holds is nowhere else.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("temp dir");
        let path = dir.path().join("file");
        fs::write(&path, [7; 4096]).expect("write");
        assert!(is_cached(&path));
        forget_cached(&File::open(&path).expect("open")).expect("dropped");
        assert!(!is_cached(&path));
        assert_eq!(fs::read(&path).expect("read"), [7; 4096]);
    }

    #[test]
    fn only_unfinished_segments_are_removed() {
        let dir = tempfile::tempdir().expect("temp dir");
        remove_unfinished(&dir.path().join("none")).expect("nothing to do");
        let (live, free) = (SegmentId(3).file_name(), SegmentId(4).free_name());
        for name in [&live, &free, "free-4.log"] {
            fs::write(dir.path().join(name), b"").expect("write");
        }
        remove_unfinished(dir.path()).expect("removed");
        let is_there = |name: &str| dir.path().join(name).exists();
        assert!(is_there(&live) && is_there("free-4.log") && !is_there(&free));
        fs::remove_file(dir.path().join(&live)).expect("removed");
        fs::write(dir.path().join(&free), b"").expect("write");
        remove_unfinished(dir.path()).expect("left alone");
        assert!(
            dir.path().join(&free).exists(),
            "nothing else tells of the log"
        );
    }
}
