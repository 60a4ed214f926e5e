//! Which code inputs reach, if the build counts it: `make fuzz` has the compiler do so.
//!
//! With LLVM's `inline-8bit-counters` each place in the code has a byte that counts how often it was passed, and each
//! object of the program tells where its bytes are before `main`. An input is worth keeping if it raises one of them to a
//! power of two that none has before.

use std::ptr;
use std::sync::{Mutex, PoisonError};

/// The counters of one object, by the addresses of the first and of the one behind the last.
static OBJECTS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(first: *mut u8, end: *mut u8) {
    let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
    let object = (first as usize, end as usize);
    if !objects.contains(&object) {
        objects.push(object);
    }
}

#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_pcs_init(_: *const usize, _: *const usize) {}

/// What inputs have reached so far.
#[derive(Debug, Default)]
pub struct Reached {
    /// By counter, a bit for each power of two.
    seen: Vec<u8>,
}

impl Reached {
    /// Forgets what was passed until now.
    pub fn begin(&mut self) {
        for (first, end) in OBJECTS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            // SAFETY: the counters of an object of this program, which stays; they are bytes of statistics, which
            // other threads may count up meanwhile.
            unsafe { ptr::write_bytes(*first as *mut u8, 0, end - first) };
        }
    }

    /// Whether something was passed since [`Reached::begin`] that was not before; never if the build does not count.
    pub fn is_more(&mut self) -> bool {
        let (mut at, mut is_more) = (0, false);
        for (first, end) in OBJECTS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            self.seen.resize(self.seen.len().max(at + end - first), 0);
            let mut address = *first;
            while address < *end {
                // Most of the code is not passed: eight counters at a time.
                let is_whole = end - address >= size_of::<u64>();
                // SAFETY: as above; eight of them, if there are so many.
                if is_whole && unsafe { ptr::read_unaligned(address as *const u64) } == 0 {
                    (address, at) = (address + size_of::<u64>(), at + size_of::<u64>());
                    continue;
                }
                // SAFETY: as above.
                let count = unsafe { ptr::read_volatile(address as *const u8) };
                let bit = count.checked_ilog2().map_or(0, |power| 1 << power);
                is_more |= self.seen[at] & bit != bit;
                self.seen[at] |= bit;
                (address, at) = (address + 1, at + 1);
            }
        }
        is_more
    }
}
