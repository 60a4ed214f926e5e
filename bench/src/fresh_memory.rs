//! Memory that a hypervisor has to provide on first use makes whoever touches it slow.

use std::hint;
use std::mem::MaybeUninit;

/// What is given back ahead of who needs it, and how much at a time.
const AHEAD_BYTES: usize = 96 << 20;
const GIVEN_BYTES: usize = 32 << 20;

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
///
/// A kernel tells its hypervisor every two seconds about a sixteenth of what is free, the memory that was
/// freed last before all other. So this keeps it, and gives back what is about to be needed.
pub struct Provided {
    memory: Vec<u8>,
    given_bytes: usize,
}

impl Provided {
    /// Has so much memory provided.
    #[must_use]
    pub fn new(bytes: usize) -> Provided {
        Provided {
            memory: touched(bytes, true),
            given_bytes: 0,
        }
    }

    /// Gives back what others need that have taken so much since the beginning, and a little more.
    pub fn give_back_for(&mut self, taken_bytes: usize) {
        let large = large_pages(self.memory.spare_capacity_mut());
        let until = (taken_bytes + AHEAD_BYTES).next_multiple_of(GIVEN_BYTES);
        let until = until.min(large.len());
        if until > self.given_bytes {
            let given = &mut large[self.given_bytes..until];
            // SAFETY: it is memory of ours that nothing is stored in; it is zero when it is used again.
            let _ = unsafe {
                libc::madvise(given.as_mut_ptr().cast(), given.len(), libc::MADV_DONTNEED)
            };
            self.given_bytes = until;
        }
    }
}

/// The part of it that whole large pages may lie in.
fn large_pages(room: &mut [MaybeUninit<u8>]) -> &mut [MaybeUninit<u8>] {
    let before = room.as_ptr().align_offset(LARGE_PAGE_BYTES).min(room.len());
    let large = &mut room[before..];
    let len = large.len() - large.len() % LARGE_PAGE_BYTES;
    &mut large[..len]
}

fn touched(bytes: usize, in_large_pages: bool) -> Vec<u8> {
    let mut memory: Vec<u8> = Vec::with_capacity(bytes);
    let room = memory.spare_capacity_mut();
    if in_large_pages {
        let large = large_pages(room);
        // SAFETY: it is memory of ours, and the advice does not change what is in it. Where there
        // are no large pages the small ones do.
        let _ =
            unsafe { libc::madvise(large.as_mut_ptr().cast(), large.len(), libc::MADV_HUGEPAGE) };
    }
    for page in room.chunks_mut(PAGE_BYTES) {
        page[0].write(1);
    }
    memory
}
