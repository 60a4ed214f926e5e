//! Loading memory ahead of its use, so that cache misses overlap. Hints only: nothing depends on them.

/// Bytes of a cache line on the CPUs that matter; elsewhere a hint is for too much or too little.
pub const LINE_BYTES: usize = 64;

/// Asks the CPU to load the cache line at `address`, which may be anything.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn line<T>(address: *const T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch reads nothing the program can see and faults on no address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

/// No stable prefetch on this architecture.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn line<T>(_address: *const T) {}

/// Asks the CPU to load all of `it`, but nothing that it points at.
#[inline]
pub fn whole<T>(it: &T) {
    let start: *const u8 = std::ptr::from_ref(it).cast();
    for at in (0..size_of::<T>()).step_by(LINE_BYTES) {
        line(start.wrapping_add(at));
    }
    // It need not begin with a line.
    line(start.wrapping_add(size_of::<T>().saturating_sub(1)));
}
