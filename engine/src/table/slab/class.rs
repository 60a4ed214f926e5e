//! Sizes of objects.

use super::region::UNIT_BYTES;

/// Classes are above this size.
pub(in crate::table) const ABOVE_BYTES: usize = 1 << 10;
/// Size of the largest class.
pub(in crate::table) const MAX_BYTES: usize = 64 << 10;
pub(in crate::table) const CLASSES: usize =
    PER_DOUBLING * (MAX_BYTES / ABOVE_BYTES).ilog2() as usize;

/// A run of the largest class of a doubling has so many objects, and of the smallest twice as many less one.
const PER_DOUBLING: usize = 16;
const MOST_OBJECTS: usize = 2 * PER_DOUBLING - 1;
/// Sizes are multiples of it.
const GRAIN_BYTES: usize = 16;

const _: () = assert!(UNIT_BYTES == ABOVE_BYTES * 2 * PER_DOUBLING);

/// A size of objects, and of the runs that they are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct Class(u8);

impl Class {
    /// The smallest class that holds `bytes`, which are above [`ABOVE_BYTES`] and at most [`MAX_BYTES`].
    pub(in crate::table) fn holding(bytes: usize) -> Class {
        debug_assert!(bytes > ABOVE_BYTES && bytes <= MAX_BYTES);
        let doubling = (bytes - 1).ilog2() - ABOVE_BYTES.ilog2();
        // Division of 32 bits: half the time of 64.
        let run = (UNIT_BYTES as u32) << doubling;
        let objects = run / bytes.next_multiple_of(GRAIN_BYTES) as u32;
        Class((doubling as usize * PER_DOUBLING + MOST_OBJECTS - objects as usize) as u8)
    }

    /// The class with this [`index`](Class::index), below [`CLASSES`]; they are in order of size.
    pub(in crate::table) const fn of_index(index: usize) -> Class {
        Class(index as u8)
    }

    pub(in crate::table) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Size of an object.
    pub(in crate::table) const fn bytes(self) -> usize {
        self.run_bytes() / self.objects() / GRAIN_BYTES * GRAIN_BYTES
    }

    /// Objects of a run: 16 to 31.
    pub(super) const fn objects(self) -> usize {
        MOST_OBJECTS - self.index() % PER_DOUBLING
    }

    /// Units of a run, as a power of two.
    pub(super) const fn order(self) -> usize {
        self.index() / PER_DOUBLING
    }

    const fn run_bytes(self) -> usize {
        UNIT_BYTES << self.order()
    }
}
