//! Memory that a hypervisor has to provide on first use makes whoever touches it slow.

use std::hint;

/// Memory is provided in such pages, or larger ones.
const PAGE_BYTES: usize = 4096;

/// Large pages begin at its multiples.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Touches so much memory and gives it back, so that who needs it next, in small pages or in large ones,
/// gets it at once. The hypervisor may take it back after seconds.
pub fn touch(bytes: usize) {
    for in_large_pages in [false, true] {
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
        hint::black_box(&memory);
    }
}
