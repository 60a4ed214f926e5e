//! What surrounds every call into sled, which may panic on damaged files, and what is checked before it opens one.
//!
//! In release builds a panic aborts (status 134) before anyone could catch it. So the process ends in the hook of
//! panics instead, with one line that names the store and says what to do. Where panics unwind, that of an
//! open becomes an error like any other.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::store::{DbId, REMEDY_OPEN};

/// Whether a panic of sled's ends the process.
static ENDS_PROCESS: AtomicBool = AtomicBool::new(false);

static HOOK: Once = Once::new();

/// How sled names its threads.
const THREADS_OF_SLED: &str = "sled-io";

thread_local! {
    /// The store in whose code the thread is.
    static INSIDE: Cell<Option<DbId>> = const { Cell::new(None) };
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A panic of sled's ends this process with a line about its store, and exit code 1.
pub fn end_process_on_panics() {
    ENDS_PROCESS.store(true, Ordering::Relaxed);
    HOOK.call_once(install_hook);
}

/// The calling thread is in a store's code for as long as this lives.
pub(super) struct Inside(Option<DbId>);

impl Inside {
    pub(super) fn of(db: DbId) -> Inside {
        Inside(INSIDE.replace(Some(db)))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

/// Whether the calling thread is in the code of a store or of sled.
pub(super) fn is_inside() -> bool {
    let is_of_sled = |name: &str| name.starts_with(THREADS_OF_SLED);
    INSIDE.get().is_some() || thread::current().name().is_some_and(is_of_sled)
}

/// Why a store could not be opened.
#[derive(Debug)]
pub(super) enum Failure {
    /// sled says so.
    Sled(sled::Error),
    /// It panicked.
    Panic(String),
}

/// Runs `open`; a panic in it is about this store.
///
/// # Errors
/// Those of `open`, and its panic where panics unwind.
pub(super) fn guarded<T>(db: DbId, open: impl FnOnce() -> sled::Result<T>) -> Result<T, Failure> {
    HOOK.call_once(install_hook);
    let inside = Inside::of(db);
    let result = panic::catch_unwind(AssertUnwindSafe(open));
    drop(inside);
    match result {
        Ok(opened) => opened.map_err(Failure::Sled),
        Err(_) => {
            let message = LAST_PANIC.with_borrow_mut(std::mem::take);
            Err(Failure::Panic(format!(
                "sled panicked while reading it ({message})"
            )))
        }
    }
}

fn install_hook() {
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !is_inside() {
            return previous(info);
        }
        let store = INSIDE.get();
        if ENDS_PROCESS.load(Ordering::Relaxed) {
            eprintln!("{}", last_line(store, info));
            // SAFETY: ends the process, as the panic would have, without what runs at exit.
            unsafe { libc::_exit(1) }
        }
        LAST_PANIC.with_borrow_mut(|last| *last = info.to_string());
        previous(info);
    }));
}

fn last_line(store: Option<DbId>, info: &PanicHookInfo<'_>) -> String {
    let what = store.map_or("an image store".to_owned(), |db| format!("images/{db}"));
    let said = info.to_string().replace('\n', " ");
    format!("fatal: sled failed over {what} ({said}); {REMEDY_OPEN}")
}

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
    if !snapshots.is_empty() && !dir.join("db").exists() {
        return Err("its file db is not there".into());
    }
    if let Some(newest) = snapshots.last() {
        let bytes = read_if_there(newest)?.unwrap_or_default();
        let intact = bytes.split_last_chunk::<12>().is_some_and(|(body, last)| {
            !body.is_empty() && last.ends_with(&crc32fast::hash(body).to_le_bytes())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_and_is_forgotten() {
        let error = guarded::<()>(DbId(7), || panic!("bad page")).unwrap_err();
        assert!(
            matches!(&error, Failure::Panic(said) if said.contains("bad page")),
            "{error:?}"
        );
        assert_eq!(INSIDE.get(), None);
        assert!(matches!(guarded(DbId(7), || Ok(5)), Ok(5)));
    }

    #[test]
    fn a_thread_is_inside_the_store_that_it_has_called_last() {
        let outer = Inside::of(DbId(1));
        let inner = Inside::of(DbId(2));
        assert_eq!(INSIDE.get(), Some(DbId(2)));
        drop(inner);
        assert_eq!(INSIDE.get(), Some(DbId(1)));
        drop(outer);
        assert_eq!(INSIDE.get(), None);
    }

    #[test]
    fn a_store_without_its_file_is_refused() {
        let dir = tempfile::tempdir().expect("temp dir");
        assert_eq!(inspect(dir.path()), Ok(()));
        fs::write(dir.path().join("snap.0000000000000000"), b"").expect("write");
        let said = inspect(dir.path()).unwrap_err();
        assert!(said.contains("db is not there"), "{said}");
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
