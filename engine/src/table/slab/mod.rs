//! Memory of entries between 1 KiB and 64 KiB: objects of one size side by side in runs.
//!
//! ```text
//! Arena (one per shard) -> Region (32 MiB of addresses) -> block (2 MiB) -> unit (32 KiB)
//!                                  run: 1, 2, 4, … 32 units of one block = 16 to 31 objects of a class
//! ```
//!
//! A class is a run divided by a number of objects, so hardly anything is left over at the end of a run,
//! and 16 classes per doubling waste 3% on average. What is behind a run's last object is less than 1.5%
//! of it.
//!
//! *Invariant:* memory gathers. An object comes from one of the fullest runs of its class, and a run
//! from the oldest region with room, so that others become empty; a run without objects is free for
//! any class, and free units go back to the kernel beyond a reserve (`arena.rs`).
//!
//! *Invariant:* an object belongs to the arena that its region names, whichever thread frees it. Threads
//! that work for one shard, one after the other, use the same arena.

mod arena;
mod class;
mod mapping;
mod region;

use std::cell::Cell;
use std::ptr::NonNull;

use arena::Arena;
pub(super) use class::{ABOVE_BYTES, CLASSES, Class, MAX_BYTES};

/// Arenas there are; with more shards than that, some share one.
const ARENAS: usize = 256;

static OF_SHARDS: [Arena; ARENAS] = [const { Arena::new() }; ARENAS];

thread_local! {
    static OWN: Cell<&'static Arena> = const { Cell::new(&OF_SHARDS[0]) };
}

/// From now on entries that this thread makes come from the memory of a shard with this number, which
/// is best when the shard's thread frees them.
pub fn work_for(shard: usize) {
    OWN.set(&OF_SHARDS[shard % ARENAS]);
}

/// An object of `class.bytes()`, uninitialised and aligned to 16 bytes; `None` when the kernel has no
/// memory.
pub(super) fn allocate(class: Class) -> Option<NonNull<u8>> {
    OWN.get().allocate(class)
}

/// Takes an object back, on any thread.
///
/// # Safety
/// The object is of [`allocate`] with this class, and it is not used any more.
pub(super) unsafe fn free(object: NonNull<u8>, class: Class) {
    // SAFETY: as promised by the caller.
    unsafe { Arena::free(object, class) }
}
