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
    // In units of 512 bytes, whatever the file system's own are.
    sum(dir, &|_, metadata| metadata.blocks() * 512)
}

/// Bytes of all segments below a directory of logs: what a budget is about. The list beside them, and
/// the blocks in which a file system notes where the parts of a segment lie, are not.
///
/// # Panics
/// When a directory cannot be read.
pub fn segment_bytes(logs: &Path) -> u64 {
    sum(logs, &|file, metadata| match file.extension() {
        Some(end) if end == "log" => metadata.len(),
        _ => 0,
    })
}

fn sum(dir: &Path, of_file: &dyn Fn(&Path, &fs::Metadata) -> u64) -> u64 {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return 0,
        Err(error) => panic!("{}: {error}", dir.display()),
    };
    let entries = entries.map(|entry| entry.expect("an entry"));
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => sum(&entry.path(), of_file),
        Ok(metadata) => of_file(&entry.path(), &metadata),
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
    }

    #[test]
    fn segments_count_by_their_length_and_nothing_beside_them_does() {
        let dir = paths::scratch();
        let below = dir.path().join("0");
        fs::create_dir_all(&below).expect("a directory");
        for (name, bytes) in [("1.log", 1 << 20), ("2.log", 5), ("segments", 4096)] {
            let file = fs::File::create(below.join(name)).expect("a file");
            file.set_len(bytes).expect("a length");
        }
        assert_eq!(segment_bytes(dir.path()), (1 << 20) + 5);
    }
}
