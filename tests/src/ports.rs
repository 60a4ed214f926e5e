//! Blocks of free ports that no other test of this machine is given at the same time.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports in one block: an entry port and up to 15 direct ports.
pub const BLOCK: u16 = 16;

/// Low enough that PORT+20000, of an embedded coordinator, is below the ephemeral range.
const FIRST: u16 = 11_008;
const BLOCKS: u16 = 110;

/// `BLOCK` consecutive free ports; they stay this test's own until the value is dropped.
#[derive(Debug)]
pub struct PortBlock {
    base: u16,
    _lock: File,
}

impl PortBlock {
    /// Takes the next block whose lock file is free and whose ports can all be bound.
    pub fn take() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let dir = std::env::temp_dir().join("ephesus-test-ports");
        fs::create_dir_all(&dir).expect("create the directory of port locks");
        let offset = (std::process::id() as u16).wrapping_mul(7) % BLOCKS;
        for _ in 0..BLOCKS {
            let index = (offset + NEXT.fetch_add(1, Ordering::Relaxed)) % BLOCKS;
            let base = FIRST + index * BLOCK;
            let Ok(lock) = File::options()
                .create(true)
                .append(true)
                .open(dir.join(base.to_string()))
            else {
                continue;
            };
            // SAFETY: flock on a descriptor that `lock` keeps open.
            let locked = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
            if locked == 0 && (0..BLOCK).all(|i| is_free(base + i)) && is_free(base + 20_000) {
                return Self { base, _lock: lock };
            }
        }
        panic!(
            "no block of {BLOCK} free ports in {FIRST}..{}",
            FIRST + BLOCKS * BLOCK
        );
    }

    pub fn base(&self) -> u16 {
        self.base
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
