//! Allocation sizes the table asks for: mimalloc's own bins, so that a request is what is handed out.
//!
//! mimalloc 3 serves an aligned request from a bin for `size + align - 1` unless its own bin is a
//! power of two up to 4 KiB (`alloc-aligned.c`). So entries ask for alignment 1, and slot arrays
//! are one slot shorter than a bin.

/// Largest size with 16-byte steps.
const FINE_MAX: usize = 128;
/// Above this size the allocator rounds more finely: eighths of a doubling replace quarters.
const COARSE_MIN: usize = 512 << 10;
/// Powers of two to here need no over-allocation to be aligned.
const NATURALLY_ALIGNED_MAX: usize = 4 << 10;
const FINE_CLASSES: usize = FINE_MAX / 16;
const QUARTER_CLASSES: usize = 4 * (COARSE_MIN / FINE_MAX).ilog2() as usize;

/// Largest size with a class.
pub(super) const MAX_BYTES: usize = 1 << 31;

/// One allocation size: 16-byte steps to 128 B, four steps per doubling to 512 KiB, then eight.
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
        let class = if bytes <= COARSE_MIN {
            let above = (doubling - FINE_MAX.ilog2()) as usize;
            FINE_CLASSES + above * 4 + ((last >> (doubling - 2)) & 3)
        } else {
            let above = (doubling - COARSE_MIN.ilog2()) as usize;
            FINE_CLASSES + QUARTER_CLASSES + above * 8 + ((last >> (doubling - 3)) & 7)
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
        let class = usize::from(self.0);
        if class < FINE_CLASSES {
            return (class + 1) * 16;
        }
        let quarter = class - FINE_CLASSES;
        if quarter < QUARTER_CLASSES {
            return ((FINE_MAX / 4) * (quarter % 4 + 5)) << (quarter / 4);
        }
        let eighth = quarter - QUARTER_CLASSES;
        ((COARSE_MIN / 8) * (eighth % 8 + 9)) << (eighth / 8)
    }

    /// Whether an allocation of this class wastes at most one step when `needed` would do.
    pub(super) fn suits(self, needed: SizeClass) -> bool {
        needed <= self && self.0 - needed.0 <= 1
    }
}

/// Bytes the allocator hands out for a request of `bytes` aligned to `align`; 0 for none.
pub(super) fn handed_out(bytes: usize, align: usize) -> usize {
    let natural = bytes.is_power_of_two() && bytes <= NATURALLY_ALIGNED_MAX;
    match bytes {
        0 => 0,
        _ if natural => SizeClass::holding(bytes).bytes(),
        _ => SizeClass::holding(bytes + align - 1).bytes(),
    }
}
