//! Where objects come from: the runs of one shard.
//!
//! ```text
//! of each class   run ⇄ run ⇄ run   nearly full   <- the next object comes from here
//!                 run ⇄ run         fuller
//!                 run               emptier
//! ```
//!
//! Full runs are in no list. A run goes from list to list as its objects come and go.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::class::{CLASSES, Class};
use super::region::{BLOCK_UNITS, BLOCKS, ORDERS, Region, Run, RunId, UNIT_BYTES};

/// Free units that keep their pages, whatever the arena has: 4 MiB.
const RESERVE_UNITS: usize = (4 << 20) / UNIT_BYTES;
/// And so many taken ones for each of those that may be free with pages in blocks where others are
/// taken: giving back a part of a huge page divides it.
const TAKEN_PER_RESERVED: usize = 8;
/// From so many taken units on, pages come ahead of their use: 4 MiB.
const AHEAD_FROM_UNITS: usize = (4 << 20) / UNIT_BYTES;
/// Regions of a small store have small pages: a huge one is resident as a whole.
const SMALL_PAGED_REGIONS: usize = 1;

/// Lists of a class: of runs with up to 3 free objects, with up to 11, and with more.
const LISTS: usize = 3;

/// The memory of a shard's entries; the lock is free unless some other thread drops them.
#[repr(align(128))]
pub(super) struct Arena(Mutex<Heap>);

struct Heap {
    /// By their numbers; a region that went leaves its number to the next.
    regions: Vec<Option<Region>>,
    /// First runs, by class.
    lists: [[RunId; LISTS]; CLASSES],
    /// Before this number no region has a free run of the order.
    with_room: [usize; ORDERS],
    /// Regions without runs: at most one.
    empty: usize,
    /// Of all regions.
    taken: usize,
    touched_free: usize,
    /// The block where giving back goes on, counted through all regions.
    hand: usize,
}

impl Arena {
    pub(super) const fn new() -> Arena {
        Arena(Mutex::new(Heap {
            regions: Vec::new(),
            lists: [[RunId::NONE; LISTS]; CLASSES],
            with_room: [0; ORDERS],
            empty: 0,
            taken: 0,
            touched_free: 0,
            hand: 0,
        }))
    }

    /// An object, uninitialised; `None` when the kernel has no memory.
    pub(super) fn allocate(&'static self, class: Class) -> Option<NonNull<u8>> {
        self.heap().allocate(self, class)
    }

    /// Takes an object back into the arena that it is of.
    ///
    /// # Safety
    /// It was allocated with this class, and is not used any more.
    pub(super) unsafe fn free(object: NonNull<u8>, class: Class) {
        // SAFETY: a region with an object in it is there.
        let (arena, region, at) = unsafe { Region::of(object) };
        arena.heap().free(region, at, class);
    }

    fn heap(&self) -> MutexGuard<'_, Heap> {
        // A panic in there is an assertion, before anything was changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heap {
    fn allocate(&mut self, arena: &'static Arena, class: Class) -> Option<NonNull<u8>> {
        let lists = self.lists[class.index()];
        let id = match lists.into_iter().find(|id| id.is_some()) {
            Some(id) => id,
            None => self.add_run(arena, class)?,
        };
        let run = *self.run(id);
        let object = run.used.trailing_ones();
        self.set_used(id, class, run.used | 1 << object);
        let at = id.unit() * UNIT_BYTES + object as usize * class.bytes();
        let ahead = self.taken >= AHEAD_FROM_UNITS;
        let region = region(&mut self.regions, id.region());
        let before = region.touched_free();
        region.touch(at, class.bytes(), ahead);
        self.touched_free += region.touched_free() - before;
        // SAFETY: within the mapping, where the run has an object.
        Some(unsafe { region.start().add(at) })
    }

    fn free(&mut self, number: usize, at: usize, class: Class) {
        let unit = at / UNIT_BYTES;
        let unit = unit - unit % (1 << class.order());
        let object = (at - unit * UNIT_BYTES) as u32 / class.bytes() as u32;
        let id = RunId::new(number, unit);
        let run = *self.run(id);
        assert!(
            usize::from(run.class) == class.index() && run.used >> object & 1 == 1,
            "an object that was not given away"
        );
        self.set_used(id, class, run.used & !(1 << object));
        if run.used == 1 << object {
            self.remove_run(id, class);
        }
    }

    /// Notes which objects of a run are in use, and moves it to the list where it now belongs.
    fn set_used(&mut self, id: RunId, class: Class, used: u32) {
        let run = self.run(id);
        let before = list_of(run.used, class);
        run.used = used;
        let after = list_of(used, class);
        if before != after {
            self.unlink(id, class, before);
            self.link(id, class, after);
        }
    }

    /// A new run at the head of its list.
    fn add_run(&mut self, arena: &'static Arena, class: Class) -> Option<RunId> {
        let id = match self.take(class.order()) {
            Some(id) => id,
            None => {
                self.add_region(arena)?;
                self.take(class.order())?
            }
        };
        *self.run(id) = Run {
            used: 0,
            class: class.index() as u8,
            previous: RunId::NONE,
            next: RunId::NONE,
        };
        self.link(id, class, list_of(0, class));
        Some(id)
    }

    /// Takes a run from the first region that has room.
    fn take(&mut self, order: usize) -> Option<RunId> {
        let first = self.with_room[order];
        for (number, region) in self.regions.iter_mut().enumerate().skip(first) {
            self.with_room[order] = number;
            let Some(region) = region else { continue };
            let (empty, before) = (region.taken() == 0, region.touched_free());
            if let Some(unit) = region.take(order) {
                self.empty -= usize::from(empty);
                self.taken += 1 << order;
                self.touched_free -= before - region.touched_free();
                return Some(RunId::new(number, unit));
            }
        }
        self.with_room[order] = self.regions.len();
        None
    }

    fn add_region(&mut self, arena: &'static Arena) -> Option<()> {
        let number = self.regions.iter().position(Option::is_none);
        let number = number.unwrap_or(self.regions.len());
        let huge = number >= SMALL_PAGED_REGIONS;
        let region = Region::new(arena, number, huge)?;
        if number == self.regions.len() {
            self.regions.push(None);
        }
        self.touched_free += region.touched_free();
        self.regions[number] = Some(region);
        self.empty += 1;
        self.has_room(number);
        Some(())
    }

    /// Frees a run without objects.
    fn remove_run(&mut self, id: RunId, class: Class) {
        self.unlink(id, class, list_of(0, class));
        let (number, order) = (id.region(), class.order());
        let region = region(&mut self.regions, number);
        let before = region.touched_free();
        region.release(id.unit(), order);
        self.taken -= 1 << order;
        self.touched_free += region.touched_free() - before;
        let is_empty = region.taken() == 0;
        self.has_room(number);
        if is_empty {
            self.empty += 1;
        }
        if self.empty > 1 {
            self.remove_region();
        }
        self.give_back(number, id.unit() / BLOCK_UNITS);
    }

    /// Unmaps the last of the regions without runs.
    fn remove_region(&mut self) {
        let is_empty = |region: &Option<Region>| region.as_ref().is_some_and(|r| r.taken() == 0);
        if let Some(number) = self.regions.iter().rposition(is_empty) {
            let region = self.regions[number].take();
            self.touched_free -= region.map_or(0, |region| region.touched_free());
            self.empty -= 1;
        }
        while self.regions.pop_if(|last| last.is_none()).is_some() {}
    }

    /// Gives back what the arena has beyond its reserve, after a run in this block has become free.
    fn give_back(&mut self, number: usize, block: usize) {
        if self.touched_free <= RESERVE_UNITS {
            return;
        }
        if let Some(Some(region)) = self.regions.get_mut(number)
            && region.is_free(block)
        {
            self.touched_free -= region.give_back(block);
        }
        let kept = RESERVE_UNITS + self.taken / TAKEN_PER_RESERVED;
        let blocks = self.regions.len() * BLOCKS;
        for _ in 0..blocks {
            if self.touched_free <= kept {
                break;
            }
            self.hand = (self.hand + 1) % blocks;
            if let Some(region) = &mut self.regions[self.hand / BLOCKS] {
                self.touched_free -= region.give_back(self.hand % BLOCKS);
            }
        }
    }

    /// Notes that a region has free units that it has not had before.
    fn has_room(&mut self, number: usize) {
        for first in &mut self.with_room {
            *first = number.min(*first);
        }
    }

    fn link(&mut self, id: RunId, class: Class, list: usize) {
        let Some(first) = self.lists[class.index()].get_mut(list) else {
            return;
        };
        let next = std::mem::replace(first, id);
        let run = self.run(id);
        run.previous = RunId::NONE;
        run.next = next;
        if next.is_some() {
            self.run(next).previous = id;
        }
    }

    fn unlink(&mut self, id: RunId, class: Class, list: usize) {
        if list == LISTS {
            return;
        }
        let Run { previous, next, .. } = *self.run(id);
        if next.is_some() {
            self.run(next).previous = previous;
        }
        if previous.is_some() {
            self.run(previous).next = next;
        } else {
            self.lists[class.index()][list] = next;
        }
    }

    fn run(&mut self, id: RunId) -> &mut Run {
        region(&mut self.regions, id.region()).run(id.unit())
    }
}

/// The list of a run with these objects in use; [`LISTS`] stands for none.
fn list_of(used: u32, class: Class) -> usize {
    match class.objects() - used.count_ones() as usize {
        0 => LISTS,
        1..=3 => 0,
        4..=11 => 1,
        _ => 2,
    }
}

fn region(regions: &mut [Option<Region>], number: usize) -> &mut Region {
    regions[number]
        .as_mut()
        .expect("a region with a run is there")
}

#[cfg(test)]
mod tests;
