//! How much room files take.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes that the file system has given to everything below a directory, as `du` counts them; files
/// may come and go meanwhile.
///
/// # Panics
/// When a directory cannot be read.
pub fn allocated_bytes(dir: &Path) -> u64 {
    allocated_bytes_of(dir, &|_| true)
}

/// The same of those files alone whose path `counts`.
///
/// # Panics
/// As there.
pub fn allocated_bytes_of(dir: &Path, counts: &dyn Fn(&Path) -> bool) -> u64 {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return 0,
        Err(error) => panic!("{}: {error}", dir.display()),
    };
    let entries = entries.map(|entry| entry.expect("an entry"));
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => allocated_bytes_of(&entry.path(), counts),
        Ok(_) if !counts(&entry.path()) => 0,
        // In units of 512 bytes, whatever the file system's own are.
        Ok(metadata) => metadata.blocks() * 512,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => panic!("{}: {error}", entry.path().display()),
    };
    entries.map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths;

    #[test]
    fn counts_what_is_written_and_not_what_is_only_long() {
        let dir = paths::scratch();
        let below = dir.path().join("a/b");
        fs::create_dir_all(&below).expect("directories");
        fs::write(below.join("written"), vec![1; 1 << 20]).expect("a file");
        let hole = fs::File::create(below.join("hole")).expect("a file");
        hole.set_len(1 << 30).expect("a hole");
        let bytes = allocated_bytes(dir.path());
        assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
        assert_eq!(allocated_bytes(&below.join("nothing")), 0);
        let is_hole = |file: &Path| file.ends_with("hole");
        assert!(allocated_bytes_of(dir.path(), &is_hole) < 1 << 20);
    }
}
