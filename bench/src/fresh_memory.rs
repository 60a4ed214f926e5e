//! Memory that a hypervisor has to provide on first use makes whoever touches it slow.

use std::hint;
use std::thread;
use std::time::Duration;

/// What a kernel tells its hypervisor about free memory it tells within this time, Linux after 2 s.
const TOLD_WITHIN: Duration = Duration::from_millis(2_500);

/// Memory is provided in such pages, or larger ones.
const PAGE_BYTES: usize = 4096;

/// Large pages begin at its multiples.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Touches so much memory and gives it back, so that who needs it next, in small pages or in large ones,
/// gets it at once. The hypervisor may take it back after seconds.
pub fn touch(bytes: usize) {
    for in_large_pages in [false, true] {
        hint::black_box(&touched(bytes, in_large_pages));
    }
}

/// Memory that the hypervisor has provided and that nobody uses yet.
pub struct Provided(Vec<u8>);

impl Provided {
    /// Has so much memory provided. What others have freed until now is told to the hypervisor before this
    /// returns: as this happens to all free memory at once, what is given back later stays for two seconds.
    #[must_use]
    pub fn new(bytes: usize) -> Provided {
        let provided = Provided(touched(bytes, true));
        thread::sleep(TOLD_WITHIN);
        provided
    }

    /// Gives it back to whoever needs memory now.
    pub fn give_back(self) {
        hint::black_box(&self.0);
    }
}

fn touched(bytes: usize, in_large_pages: bool) -> Vec<u8> {
    let mut memory: Vec<u8> = Vec::with_capacity(bytes);
    let room = memory.spare_capacity_mut();
    if in_large_pages {
        let before = room.as_ptr().align_offset(LARGE_PAGE_BYTES).min(room.len());
        let large = &mut room[before..];
        let len = large.len() - large.len() % LARGE_PAGE_BYTES;
        // SAFETY: it is memory of ours, and the advice does not change what is in it. Where there
        // are no large pages the small ones do.
        let _ = unsafe { libc::madvise(large.as_mut_ptr().cast(), len, libc::MADV_HUGEPAGE) };
    }
    for page in room.chunks_mut(PAGE_BYTES) {
        page[0].write(1);
    }
    memory
}
