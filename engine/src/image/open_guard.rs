//! What surrounds `sled::open`, which may panic on damaged files.
//!
//! What can be checked is checked before; for the rest a panic hook names the Db being opened and what
//! to do, because in release builds a panic aborts (status 134) before anyone could catch it. Where
//! panics unwind, the panic becomes an error like any other.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{self, ThreadId};

/// The Dbs being opened; sled may panic on its own threads, so it is process-wide.
static OPENING: Mutex<Vec<Opening>> = Mutex::new(Vec::new());

/// A Db that is being opened.
struct Opening {
    dir: PathBuf,
    remedy: &'static str,
    /// On which it is opened.
    thread: ThreadId,
}

static HOOK: Once = Once::new();

/// Checks what sled reads first, with errors better than its own.
///
/// # Errors
/// What is wrong with which file.
pub(super) fn inspect(dir: &Path) -> Result<(), String> {
    let conf = dir.join("conf");
    if let Some(bytes) = read_if_there(&conf)? {
        check_conf(&bytes).map_err(|why| format!("{} {why}", conf.display()))?;
    }
    let mut snapshots: Vec<PathBuf> = fs::read_dir(dir)
        .and_then(|entries| {
            entries
                .map(|e| e.map(|e| e.path()))
                .collect::<io::Result<_>>()
        })
        .map_err(|e| format!("cannot be listed: {e}"))?;
    snapshots.retain(|p| {
        p.file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with("snap."))
    });
    snapshots.sort();
    if let Some(newest) = snapshots.last() {
        let bytes = read_if_there(newest)?.unwrap_or_default();
        let intact = bytes.len().checked_sub(12).is_some_and(|body| {
            body > 0 && crc32fast::hash(&bytes[..body]).to_le_bytes() == bytes[body + 8..]
        });
        if !intact {
            return Err(format!(
                "{} is cut short or has a wrong checksum",
                newest.display()
            ));
        }
    }
    Ok(())
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("{} cannot be read: {e}", path.display())),
    }
}

/// sled's `conf`: lines of `name: value`, then a CRC-32, of which sled ignores a mismatch.
fn check_conf(bytes: &[u8]) -> Result<(), String> {
    let Some((text, crc)) = bytes.split_last_chunk::<4>() else {
        return Err("is cut short".into());
    };
    if crc32fast::hash(text).to_le_bytes() != *crc {
        return Err("has a wrong checksum".into());
    }
    let text = String::from_utf8_lossy(text);
    match text.lines().find_map(|line| line.strip_prefix("version: ")) {
        Some("0.34") => Ok(()),
        Some(other) => Err(format!(
            "was written by sled {other}, this release uses 0.34"
        )),
        None => Err("names no version".into()),
    }
}

/// Runs `open` so that a panic in it, or on sled's threads meanwhile, says which Db and what to do.
///
/// # Errors
/// Those of `open`, and its panic where panics unwind.
pub(super) fn guarded<T>(
    dir: &Path,
    remedy: &'static str,
    open: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    HOOK.call_once(install_hook);
    opening().push(Opening {
        dir: dir.to_owned(),
        remedy,
        thread: thread::current().id(),
    });
    let result = panic::catch_unwind(AssertUnwindSafe(open));
    let mut list = opening();
    if let Some(at) = list.iter().position(|opening| opening.dir == dir) {
        list.swap_remove(at);
    }
    drop(list);
    result.unwrap_or_else(|_| {
        let message = LAST_PANIC.with_borrow_mut(std::mem::take);
        Err(format!("sled panicked while reading it ({message})"))
    })
}

fn opening() -> std::sync::MutexGuard<'static, Vec<Opening>> {
    OPENING.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The Dbs that a panic on `thread` may be about: the one opened there, or any on a thread of sled's.
fn suspects(list: &[Opening], thread: ThreadId) -> impl Iterator<Item = &Opening> {
    let is_known = list.iter().any(|opening| opening.thread == thread);
    list.iter()
        .filter(move |opening| !is_known || opening.thread == thread)
}

fn install_hook() {
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        // `try_lock`: the panic may have happened while this thread held the list.
        if let Ok(list) = OPENING.try_lock() {
            for Opening { dir, remedy, .. } in suspects(&list, thread::current().id()) {
                eprintln!(
                    "fatal: sled failed while opening {}; {remedy}",
                    dir.display()
                );
            }
            if !list.is_empty() {
                LAST_PANIC.with_borrow_mut(|last| *last = info.to_string());
            }
        }
        previous(info);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_and_is_forgotten() {
        let dir = Path::new("/nowhere/db-7");
        let error = guarded::<()>(dir, "do this", || panic!("bad page")).unwrap_err();
        assert!(error.contains("bad page"), "{error}");
        assert!(!opening().iter().any(|opening| opening.dir == dir));
        assert_eq!(guarded(dir, "do this", || Ok(5)), Ok(5));
    }

    #[test]
    fn a_panic_is_about_the_db_of_its_own_thread_if_that_opens_one() {
        let spawn = || thread::scope(|s| s.spawn(|| thread::current().id()).join().unwrap());
        let (here, there, elsewhere) = (thread::current().id(), spawn(), spawn());
        let list = [("db-0", here), ("db-1", there)].map(|(dir, thread)| Opening {
            dir: dir.into(),
            remedy: "do this",
            thread,
        });
        let named = |thread| suspects(&list, thread).map(|o| &o.dir).collect::<Vec<_>>();
        assert_eq!(named(there), [Path::new("db-1")]);
        assert_eq!(named(elsewhere).len(), 2);
    }

    #[test]
    fn conf_of_another_sled_or_with_flipped_bits_is_refused() {
        let mut bytes = b"segment_size: 524288\nuse_compression: false\nversion: 0.34\n".to_vec();
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        assert_eq!(check_conf(&bytes), Ok(()));
        bytes[15] ^= 1;
        assert!(check_conf(&bytes).unwrap_err().contains("checksum"));
        let mut old = b"version: 0.31\n".to_vec();
        old.extend(crc32fast::hash(&old).to_le_bytes());
        assert!(check_conf(&old).unwrap_err().contains("0.31"));
        assert!(check_conf(b"ab").is_err());
    }
}
