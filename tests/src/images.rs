//! The files of a stopped node's image stores, to be damaged.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

/// Image stores of a new data directory.
///
/// # Panics
/// When the operating system does not say how many CPUs there are.
pub fn stores() -> usize {
    thread::available_parallelism()
        .expect("a number of CPUs")
        .get()
        .min(4)
}

/// The directory of one store.
pub fn store_dir(data: &Path, store: usize) -> PathBuf {
    data.join("images").join(format!("db-{store}"))
}

/// Changes every place of one store's file that holds `needle`; answers which store it was.
///
/// # Panics
/// When no store has it.
pub fn spoil(data: &Path, needle: &[u8]) -> usize {
    for store in 0..stores() {
        let path = store_dir(data, store).join("db");
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let windows = bytes.windows(needle.len()).enumerate();
        let places: Vec<usize> = windows
            .filter(|(_, window)| *window == needle)
            .map(|(at, _)| at)
            .collect();
        if places.is_empty() {
            continue;
        }
        let file = File::options().write(true).open(&path);
        let file = file.expect("open a store's file");
        for at in places {
            let middle = at + needle.len() / 2;
            file.write_all_at(&[bytes[middle] ^ 0x10], middle as u64)
                .expect("write into a store's file");
        }
        return store;
    }
    panic!("no image holds {}", needle.escape_ascii());
}
