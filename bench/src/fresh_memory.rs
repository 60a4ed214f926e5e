//! Memory that a hypervisor has to provide on first use makes whoever touches it slow.

use std::hint;

/// Memory is provided in such pages, or larger ones.
const PAGE_BYTES: usize = 4096;

/// Touches so much memory and gives it back, so that who needs it next, in small pages or in large ones,
/// gets it at once. The hypervisor may take it back after seconds.
pub fn touch(bytes: usize) {
    for advice in [libc::MADV_NORMAL, libc::MADV_HUGEPAGE] {
        let mut memory: Vec<u8> = Vec::with_capacity(bytes);
        let room = memory.spare_capacity_mut();
        // The advice is for whole pages.
        let before = room.as_ptr().align_offset(PAGE_BYTES).min(room.len());
        let pages = &mut room[before..];
        // SAFETY: it is memory of ours, and the advice does not change what is in it. Where it is not taken the pages
        // are as they are.
        let _ = unsafe { libc::madvise(pages.as_mut_ptr().cast(), pages.len(), advice) };
        for page in pages.chunks_mut(PAGE_BYTES) {
            page[0].write(1);
        }
        hint::black_box(&memory);
    }
}
