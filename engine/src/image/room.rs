//! Room for a store's file that others on the disk do not take.
//!
//! A store whose writes [wait](super::waiting) for room sets none free. So blocks behind the end of its file are
//! reserved for it, which leaves the file's length as it is, and whoever writes asks before each batch how much of
//! that is left. What is reserved stays so when the process dies: sled's next open writes up to a segment too.
//!
//! It is no promise: sled cuts its file in the background, which takes the reserve along. Two such cuts may come in the
//! wrong order, so that the second one makes the file longer again; sled then goes on within the hole.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::layout::free_bytes;

/// What is reserved, as far as the disk has it; the first that it has.
const RESERVES: [u64; 3] = [8 << 20, 4 << 20, 2 << 20];

/// With less of it left another reserve is tried.
const RENEW_BELOW: u64 = 6 << 20;

/// The file of one store.
#[derive(Clone, Debug)]
pub(super) struct Room {
    file: Arc<File>,
    /// Up to here the file's blocks are reserved.
    until: u64,
    /// What the last look has found, until the store writes again; a reserve that is short is looked for each time.
    known: Option<u64>,
}

impl Room {
    /// Of the file at `path`, which has to be there; reserves what it can.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn open(path: &Path) -> io::Result<Room> {
        let file = File::options().write(true).open(path)?;
        let mut room = Room {
            file: Arc::new(file),
            until: 0,
            known: None,
        };
        room.left();
        Ok(room)
    }

    /// The store has written since the last look.
    pub(super) fn written(&mut self) {
        self.known = None;
    }

    /// Bytes behind the end of the file that are reserved; fewer when the disk is full.
    pub(super) fn left(&mut self) -> u64 {
        if let Some(known) = self.known {
            return known;
        }
        let left = self.look().unwrap_or(0);
        self.known = (left >= RENEW_BELOW).then_some(left);
        left
    }

    /// What is reserved and in no use yet.
    pub(super) fn reserved(&self) -> u64 {
        let len = self.file.metadata().map_or(self.until, |found| found.len());
        self.until.saturating_sub(len)
    }

    fn look(&mut self) -> io::Result<u64> {
        let found = self.file.metadata()?;
        let (len, held) = (found.len(), found.blocks() * 512);
        // Whatever sled has cut off takes the reserve behind it along.
        let is_whole = held >= self.until;
        let left = self.until.saturating_sub(len);
        if is_whole && left >= RENEW_BELOW {
            return Ok(left);
        }
        // With a hole in it, what is to come may lie anywhere.
        let from = if held < len {
            first_hole(&self.file).min(len)
        } else {
            len
        };
        for bytes in RESERVES {
            match reserve(&self.file, from, len - from + bytes) {
                Ok(()) => {
                    self.until = len + bytes;
                    return Ok(bytes);
                }
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    return free_beside(&self.file);
                }
                Err(_) => {}
            }
        }
        Ok(if is_whole { left } else { 0 })
    }
}

fn reserve(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    let (from, bytes) = (from as libc::off_t, bytes as libc::off_t);
    // SAFETY: a plain system call on an open descriptor; it touches no memory of this process.
    match unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, from, bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Where it cannot be told, far away.
fn first_hole(file: &File) -> u64 {
    // SAFETY: a plain system call on an open descriptor, whose offset nobody uses.
    let found = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
    u64::try_from(found).unwrap_or(u64::MAX)
}

/// Where nothing can be reserved: what is free now.
fn free_beside(file: &File) -> io::Result<u64> {
    free_bytes(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_renewed_and_leaves_the_length_alone() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("db");
        std::fs::write(&path, vec![1; 3 << 20]).expect("write");
        let mut room = Room::open(&path).expect("open");
        assert_eq!(room.left(), RESERVES[0]);
        let found = std::fs::metadata(&path).expect("metadata");
        assert_eq!(found.len(), 3 << 20);
        assert!(found.blocks() * 512 >= (3 << 20) + RESERVES[0]);
        let file = File::options().write(true).open(&path).expect("open");
        // Used up, cut off, and grown again behind its back.
        file.set_len(8 << 20).expect("grow");
        assert_eq!(room.left(), RESERVES[0], "as it was known");
        room.written();
        assert_eq!(room.left(), RESERVES[0]);
        file.set_len(1 << 20).expect("shrink");
        room.written();
        assert_eq!(room.left(), RESERVES[0]);
        assert_eq!(room.reserved(), RESERVES[0]);
        let found = std::fs::metadata(&path).expect("metadata");
        assert!(found.blocks() * 512 >= (1 << 20) + RESERVES[0]);
        // Cut off and made longer.
        file.set_len(0).expect("shrink");
        file.set_len(16 << 20).expect("grow");
        room.written();
        assert_eq!(room.left(), RESERVES[0]);
        let found = std::fs::metadata(&path).expect("metadata");
        assert!(found.blocks() * 512 >= (16 << 20) + RESERVES[0]);
    }
}
