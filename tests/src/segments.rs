//! The files of a stopped node's logs, to be damaged.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Groups are aligned to this many bytes.
pub const PAGE: usize = 4096;

/// One `seg-*.log` file.
#[derive(Clone, Debug)]
pub struct Segment {
    pub path: PathBuf,
    bytes: Vec<u8>,
}

impl Segment {
    /// All segments under a data directory's `logs`, by log and in the order of their names.
    pub fn of(data: &Path) -> Vec<Self> {
        Self::below(&data.join("logs"))
    }

    /// The same of any directory.
    pub fn below(dir: &Path) -> Vec<Self> {
        let mut paths = Vec::new();
        collect(dir, &mut paths);
        paths.sort();
        paths
            .into_iter()
            .map(|path| {
                let bytes = fs::read(&path).expect("read a segment");
                Self { path, bytes }
            })
            .collect()
    }

    /// How many there are, also while a node uses them.
    pub fn count(data: &Path) -> usize {
        let mut paths = Vec::new();
        collect(&data.join("logs"), &mut paths);
        paths.len()
    }

    /// The segments that hold anything, oldest first.
    ///
    /// # Panics
    /// When there is none.
    pub fn written(data: &Path) -> Vec<Self> {
        let written: Vec<Self> = Self::of(data)
            .into_iter()
            .filter(|segment| segment.used() > 0)
            .collect();
        assert!(
            !written.is_empty(),
            "no written seg-*.log under {}/logs",
            data.display()
        );
        written
    }

    /// The file's name, as a message should give it.
    pub fn name(&self) -> String {
        self.path
            .file_name()
            .expect("a file name")
            .to_string_lossy()
            .into_owned()
    }

    /// Bytes up to the end of the last page that is not all zeros.
    pub fn used(&self) -> usize {
        self.bytes
            .chunks(PAGE)
            .rposition(|page| page.iter().any(|&byte| byte != 0))
            .map_or(0, |last| (last + 1) * PAGE)
    }

    /// Where `needle` begins.
    pub fn offset_of(&self, needle: &[u8]) -> Option<usize> {
        self.bytes
            .windows(needle.len())
            .position(|window| window == needle)
    }

    pub fn write_at(&self, offset: usize, bytes: &[u8]) {
        self.file()
            .write_all_at(bytes, offset as u64)
            .expect("write into a segment");
    }

    pub fn flip_bit(&self, offset: usize) {
        self.write_at(offset, &[self.bytes[offset] ^ 0x10]);
    }

    pub fn truncate(&self, len: usize) {
        self.file().set_len(len as u64).expect("truncate a segment");
    }

    pub fn remove(&self) {
        fs::remove_file(&self.path).expect("remove a segment");
    }

    fn file(&self) -> File {
        File::options()
            .write(true)
            .open(&self.path)
            .expect("open a segment")
    }
}

fn collect(dir: &Path, paths: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    for entry in entries {
        let path = entry.expect("a directory entry").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            collect(&path, paths);
        } else if name.starts_with("seg-") && name.ends_with(".log") {
            paths.push(path);
        }
    }
}
