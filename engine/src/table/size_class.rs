//! Sizes of allocations: of entries, by class, and of everything else, by the allocator's bins.
//!
//! mimalloc 3 serves an aligned request from a bin for `size + align - 1` unless its own bin is a
//! power of two up to 4 KiB (`alloc-aligned.c`). So entries ask for alignment 1, and slot arrays
//! are one slot shorter than a bin.
//!
//! ```text
//! entries up to 1 KiB      mimalloc   16-byte steps to 128 B, then four per doubling: its bins
//!         up to 64 KiB     slabs      16 steps per doubling
//!         above            mimalloc   four per doubling to 512 KiB, then eight: its bins
//! ```

use super::slab;

/// Largest size with 16-byte steps.
const FINE_MAX: usize = 128;
/// Above this size the allocator rounds more finely: eighths of a doubling replace quarters.
const COARSE_MIN: usize = 512 << 10;
/// Powers of two to here need no over-allocation to be aligned.
const NATURALLY_ALIGNED_MAX: usize = 4 << 10;
/// Largest size with a class.
pub(super) const MAX_BYTES: usize = 1 << 31;

const SMALL_AT: usize = FINE_MAX / 16;
const SLAB_AT: usize = SMALL_AT + 4 * doublings(FINE_MAX, slab::ABOVE_BYTES);
const MEDIUM_AT: usize = SLAB_AT + slab::CLASSES;
const LARGE_AT: usize = MEDIUM_AT + 4 * doublings(slab::MAX_BYTES, COARSE_MIN);
const CLASSES: usize = LARGE_AT + 8 * doublings(COARSE_MIN, MAX_BYTES);

const _: () = assert!(CLASSES <= 1 << u8::BITS);

/// Size of every class in bytes.
static BYTES: [u32; CLASSES] = sizes();

/// A size of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SizeClass(u8);

impl SizeClass {
    /// The smallest class that holds `bytes` (at most [`MAX_BYTES`]).
    pub(super) fn holding(bytes: usize) -> SizeClass {
        assert!(
            bytes <= MAX_BYTES,
            "an allocation of {bytes} bytes has no size class"
        );
        if bytes <= FINE_MAX {
            return SizeClass((bytes.max(1).div_ceil(16) - 1) as u8);
        }
        let last = bytes - 1;
        let doubling = last.ilog2();
        let above = |from: usize| (doubling - from.ilog2()) as usize;
        let quarter = (last >> (doubling - 2)) & 3;
        let class = if bytes <= slab::ABOVE_BYTES {
            SMALL_AT + above(FINE_MAX) * 4 + quarter
        } else if bytes <= slab::MAX_BYTES {
            SLAB_AT + slab::Class::holding(bytes).index()
        } else if bytes <= COARSE_MIN {
            MEDIUM_AT + above(slab::MAX_BYTES) * 4 + quarter
        } else {
            LARGE_AT + above(COARSE_MIN) * 8 + ((last >> (doubling - 3)) & 7)
        };
        SizeClass(class as u8)
    }

    /// The class with this [`code`](SizeClass::code).
    pub(super) fn from_code(code: u8) -> SizeClass {
        SizeClass(code)
    }

    pub(super) fn code(self) -> u8 {
        self.0
    }

    /// Size in bytes of an allocation of this class.
    pub(super) fn bytes(self) -> usize {
        BYTES[usize::from(self.0)] as usize
    }

    /// The class of slabs that has these allocations; `None` where the process's allocator has them.
    pub(super) fn slab(self) -> Option<slab::Class> {
        let index = usize::from(self.0).wrapping_sub(SLAB_AT);
        (index < slab::CLASSES).then(|| slab::Class::of_index(index))
    }

    /// Whether an allocation of this class wastes at most one step or an eighth of itself when `needed`
    /// would do.
    pub(super) fn suits(self, needed: SizeClass) -> bool {
        needed <= self
            && (self.0 - needed.0 <= 1 || self.bytes() - needed.bytes() <= self.bytes() / 8)
    }
}

/// Bytes the allocator hands out for a request of `bytes` aligned to `align`; 0 for none.
pub(super) fn handed_out(bytes: usize, align: usize) -> usize {
    let natural = bytes.is_power_of_two() && bytes <= NATURALLY_ALIGNED_MAX;
    match bytes {
        0 => 0,
        _ if natural => bin(bytes),
        _ => bin(bytes + align - 1),
    }
}

/// Size in bytes of the smallest of the allocator's bins that holds `bytes`, which are not 0.
pub(super) const fn bin(bytes: usize) -> usize {
    let step = if bytes <= FINE_MAX {
        16
    } else {
        let doubling = 1 << (bytes - 1).ilog2();
        doubling / if bytes <= COARSE_MIN { 4 } else { 8 }
    };
    bytes.next_multiple_of(step)
}

const fn doublings(from: usize, to: usize) -> usize {
    (to / from).ilog2() as usize
}

const fn sizes() -> [u32; CLASSES] {
    let mut sizes = [0; CLASSES];
    let mut bytes = 0;
    let mut class = 0;
    while class < CLASSES {
        bytes = match class {
            SLAB_AT..MEDIUM_AT => slab::Class::of_index(class - SLAB_AT).bytes(),
            _ => bin(bytes + 1),
        };
        sizes[class] = bytes as u32;
        class += 1;
    }
    sizes
}

#[cfg(test)]
mod tests;
