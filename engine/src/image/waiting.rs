//! Has sled wait for room on its disk, instead of failing.
//!
//! sled 0.34.7 does not survive `ENOSPC` or `EDQUOT`: the first one ends the Db. No look at what is free can prevent
//! that, as others may take it before sled writes. So a write of sled's that finds no room is tried again until there
//! is: to sled, the disk is slow. Its only writes behind an open are `pwrite64` (`pagecache/parallel_io_unix.rs`, by
//! way of `std`), each of one range of its file, hence the same after the tenth try as after the first.
//!
//! This module defines that C symbol itself, as [`crate::sled_sync`] does another one. Every other caller in this
//! executable gets what the kernel answers.

use std::ffi::c_void;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ephesus_wal::is_no_room;

use super::open_guard;

const PAUSE: Duration = Duration::from_millis(50);

/// Whether writes wait at all.
static WAITS: AtomicBool = AtomicBool::new(false);

/// How many wait now.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// How often they have tried again.
static TRIES: AtomicU64 = AtomicU64::new(0);

/// Whether image stores wait for room, as those of a node that runs do; else they fail.
pub fn wait_for_room(waits: bool) {
    WAITS.store(waits, Ordering::Relaxed);
}

/// Whether a store waits for room.
pub fn waits_for_room() -> bool {
    WAITING.load(Ordering::Relaxed) > 0
}

/// Grows while a store waits for room.
pub(super) fn tries() -> u64 {
    TRIES.load(Ordering::Relaxed)
}

/// `ssize_t pwrite64(int, const void *, size_t, off64_t)`, of the C library.
///
/// # Safety
/// `bytes` is valid for reads of `len` bytes.
// SAFETY: the only definition of this symbol in the executable; arguments and result match the C prototype.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: i32, bytes: *const c_void, len: usize, offset: i64) -> isize {
    // SAFETY: the caller's arguments, as they are.
    let write = || unsafe { libc::syscall(libc::SYS_pwrite64, fd, bytes, len, offset) as isize };
    match write() {
        -1 if is_to_wait() => wait(write),
        written => written,
    }
}

/// Keeps the definition above in every link, whatever order the linker reads archives in.
#[used]
static KEEP: unsafe extern "C" fn(i32, *const c_void, usize, i64) -> isize = pwrite64;

/// Whether the system call of this thread that has just failed is to be tried again.
fn is_to_wait() -> bool {
    is_no_room(&io::Error::last_os_error())
        && WAITS.load(Ordering::Relaxed)
        && open_guard::is_inside()
}

#[cold]
fn wait(write: impl Fn() -> isize) -> isize {
    if WAITING.fetch_add(1, Ordering::Relaxed) == 0 {
        tracing::warn!("the disk has no room for what an image store writes, which waits for it");
    }
    let written = loop {
        std::thread::sleep(PAUSE);
        TRIES.fetch_add(1, Ordering::Relaxed);
        match write() {
            -1 if is_to_wait() => {}
            written => break written,
        }
    };
    WAITING.fetch_sub(1, Ordering::Relaxed);
    written
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::thread;

    use super::*;

    fn write_to_a_full_disk() -> Option<io::ErrorKind> {
        let full = File::options().write(true).open("/dev/full").expect("open");
        full.write_all_at(b"x", 0).err().map(|error| error.kind())
    }

    #[test]
    fn only_what_sled_writes_waits_for_room_and_only_as_long_as_it_is_told_to() {
        let of_sled = || thread::Builder::new().name("sled-io-7".to_owned());
        let is_full = Some(io::ErrorKind::StorageFull);
        let failed = of_sled().spawn(write_to_a_full_disk).expect("a thread");
        assert_eq!(failed.join().expect("no panic"), is_full);
        wait_for_room(true);
        assert_eq!(write_to_a_full_disk(), is_full);
        assert!(!waits_for_room());
        let waits = of_sled().spawn(write_to_a_full_disk).expect("a thread");
        let before = tries();
        while tries() < before + 2 {
            assert!(!waits.is_finished());
            thread::sleep(PAUSE / 10);
        }
        assert!(waits_for_room());
        wait_for_room(false);
        assert_eq!(waits.join().expect("no panic"), is_full);
        assert!(!waits_for_room());
    }
}
