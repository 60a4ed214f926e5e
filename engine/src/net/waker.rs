//! Wakes a shard that sleeps in its ring; costs nothing while the shard is awake.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// One shard's bell: an eventfd, rung only while the shard says that it sleeps.
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
    sleeping: AtomicBool,
}

impl Waker {
    /// # Errors
    /// When the process may open no more files.
    pub fn new() -> io::Result<Waker> {
        // SAFETY: the result is checked before it becomes an owned descriptor.
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Waker {
            event,
            sleeping: AtomicBool::new(false),
        })
    }

    /// Call after something was put where the shard looks when it wakes.
    pub fn wake(&self) {
        if self.sleeping.swap(false, Ordering::SeqCst) {
            let one = 1u64.to_ne_bytes();
            // SAFETY: writes eight bytes of our own to a descriptor we own. It blocks only
            // when 2^64 wakes were not noticed.
            unsafe {
                libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len());
            }
        }
    }

    /// The shard is about to sleep; it has to look at its queues once more after this.
    pub fn fall_asleep(&self) {
        self.sleeping.store(true, Ordering::SeqCst);
    }

    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }
}

impl AsRawFd for Waker {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}
