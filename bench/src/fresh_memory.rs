//! Memory that a hypervisor has to provide on first use makes whoever touches it slow.

use std::hint;

/// Memory is provided in such pages, or larger ones.
const PAGE_BYTES: usize = 4096;

/// Touches so much memory and gives it back, so that who needs it next gets it at once.
pub fn touch(bytes: usize) {
    let mut memory: Vec<u8> = Vec::with_capacity(bytes);
    let room = memory.spare_capacity_mut();
    for page in room.chunks_mut(PAGE_BYTES) {
        page[0].write(1);
    }
    hint::black_box(&memory);
}
