//! How much heap a part of a program holds: what is allocated while [`counted`] runs, less what is freed then.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// The system's allocator, with a count; without it as the program's allocator nothing is counted.
#[derive(Debug)]
pub struct Counting;

static HELD: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `part`, whose allocations count. What is allocated in it has to be freed in it, too, now or later.
pub fn counted<T>(part: impl FnOnce() -> T) -> T {
    let before = COUNTS.replace(true);
    let done = part();
    COUNTS.set(before);
    done
}

/// Runs `part`; answers the most that it held at a time beyond what was held before, bytes.
pub fn peak_of<T>(part: impl FnOnce() -> T) -> (T, u64) {
    let held = HELD.load(Relaxed);
    PEAK.store(held, Relaxed);
    let done = counted(part);
    (done, (PEAK.load(Relaxed) - held).max(0) as u64)
}

/// The most that was held at a time, bytes.
pub fn peak() -> u64 {
    PEAK.load(Relaxed).max(0) as u64
}

fn note(bytes: i64) {
    // A thread that ends has no flag any more.
    if COUNTS.try_with(Cell::get).unwrap_or(false) {
        let held = HELD.fetch_add(bytes, Relaxed) + bytes;
        PEAK.fetch_max(held, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: as promised to this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        // SAFETY: as promised to this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(-(layout.size() as i64));
        // SAFETY: as promised to this function.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size as i64 - layout.size() as i64);
        // SAFETY: as promised to this function.
        unsafe { System.realloc(memory, layout, size) }
    }
}
