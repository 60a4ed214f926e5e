//! The files of a stopped node's image stores, to be damaged.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How many image stores a data directory has, by its stamp.
///
/// # Panics
/// When that does not say so.
pub fn stores(data: &Path) -> usize {
    let stamp = fs::read_to_string(data.join("stamp")).expect("read the stamp");
    let stores = stamp.lines().find_map(|line| line.strip_prefix("stores="));
    let stores = stores.and_then(|number| number.parse().ok());
    stores.unwrap_or_else(|| panic!("no number of stores in {stamp:?}"))
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
    for store in 0..stores(data) {
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
