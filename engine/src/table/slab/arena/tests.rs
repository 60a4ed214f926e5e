use std::sync::mpsc;

use proptest::prelude::*;

use super::super::class::{ABOVE_BYTES, MAX_BYTES};
use super::super::mapping::MAPPING_BYTES;
use super::super::region::UNITS;
use super::*;

/// An object filled with one byte, to be found so again.
struct Filled {
    object: NonNull<u8>,
    class: Class,
    fill: u8,
}

// SAFETY: the only owner of its object, which has no tie to a thread.
unsafe impl Send for Filled {}

impl Filled {
    fn new(arena: &'static Arena, bytes: usize, fill: u8) -> Filled {
        let class = Class::holding(bytes);
        assert!(bytes <= class.bytes());
        let object = arena.allocate(class).expect("memory");
        assert!(object.addr().get().is_multiple_of(16));
        // SAFETY: a new object of this size.
        unsafe { object.write_bytes(fill, class.bytes()) }
        Filled {
            object,
            class,
            fill,
        }
    }

    /// Frees it after a look at all of its bytes.
    fn free(self) {
        let bytes = self.class.bytes();
        // SAFETY: `new` has filled the object, and nobody else has it.
        let found = unsafe { std::slice::from_raw_parts(self.object.as_ptr(), bytes) };
        assert!(found == vec![self.fill; bytes]);
        // SAFETY: allocated in `new` with this class, and given up here.
        unsafe { Arena::free(self.object, self.class) }
    }
}

/// An arena of the test's own; all of them are kept, so that none counts as leaked.
fn arena() -> &'static Arena {
    static KEPT: Mutex<Vec<&'static Arena>> = Mutex::new(Vec::new());
    let arena = Box::leak(Box::new(Arena::new()));
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.push(arena);
    arena
}

impl Arena {
    fn regions(&self) -> usize {
        self.heap().regions.iter().flatten().count()
    }

    /// Units that are free and may have pages.
    fn reserved(&self) -> usize {
        self.heap().touched_free
    }

    /// Units of runs.
    fn taken(&self) -> usize {
        self.heap().taken
    }

    /// Recomputes totals and checks the lists; returns how many objects are in use.
    fn check(&self) -> usize {
        let mut heap = self.heap();
        let (mut taken, mut touched_free, mut empty) = (0, 0, 0);
        for region in heap.regions.iter().flatten() {
            assert!((0..BLOCKS).all(|block| region.taken() > 0 || region.is_free(block)));
            taken += region.taken();
            touched_free += region.touched_free();
            empty += usize::from(region.taken() == 0);
        }
        assert_eq!((taken, touched_free), (heap.taken, heap.touched_free));
        assert!(empty == heap.empty && empty <= 1);
        let mut objects = 0;
        let mut units = 0;
        for number in 0..heap.regions.len() {
            for unit in 0..UNITS {
                if heap.regions[number].is_none() {
                    continue;
                }
                let run = *heap.run(RunId::new(number, unit));
                objects += run.used.count_ones() as usize;
                if run.used != 0 {
                    units += 1 << Class::of_index(usize::from(run.class)).order();
                }
            }
        }
        assert_eq!(units, taken, "a run without objects is free");
        for class in (0..CLASSES).map(Class::of_index) {
            for list in 0..LISTS {
                let mut previous = RunId::NONE;
                let mut id = heap.lists[class.index()][list];
                while id.is_some() {
                    let run = *heap.run(id);
                    assert_eq!(usize::from(run.class), class.index());
                    assert_eq!(list_of(run.used, class), list);
                    assert_eq!(run.previous, previous);
                    (previous, id) = (id, run.next);
                }
            }
        }
        objects
    }
}

#[derive(Clone, Debug)]
enum Op {
    Allocate {
        bytes: usize,
        count: usize,
    },
    /// Of those there are, from a place on in steps.
    Free {
        from: usize,
        step: usize,
        count: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![
        3 => ABOVE_BYTES + 1..=2 * ABOVE_BYTES,
        2 => ABOVE_BYTES + 1..=MAX_BYTES,
        1 => Just(MAX_BYTES),
    ];
    let count = || 1..if cfg!(miri) { 40_usize } else { 400 };
    prop_oneof![
        3 => (bytes, count()).prop_map(|(bytes, count)| Op::Allocate { bytes, count }),
        2 => (any::<usize>(), 1..40_usize, count())
            .prop_map(|(from, step, count)| Op::Free { from, step, count }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    #[test]
    fn objects_keep_what_was_written_and_memory_comes_back(
        ops in prop::collection::vec(op(), 1..if cfg!(miri) { 8 } else { 40 }),
    ) {
        let arena = arena();
        let mut live: Vec<Filled> = Vec::new();
        for (n, op) in ops.into_iter().enumerate() {
            match op {
                Op::Allocate { bytes, count } => {
                    live.extend((0..count).map(|i| Filled::new(arena, bytes, (n + i) as u8)));
                }
                Op::Free { from, step, count } => {
                    for i in 0..count.min(live.len()) {
                        let at = (from % 1000 + i * step) % live.len();
                        live.swap_remove(at).free();
                    }
                }
            }
            prop_assert_eq!(arena.check(), live.len());
        }
        live.into_iter().for_each(Filled::free);
        prop_assert_eq!(arena.check(), 0);
        prop_assert!(arena.regions() <= 1 && arena.reserved() <= RESERVE_UNITS);
    }
}

#[test]
fn every_size_has_a_class_that_wastes_little() {
    let mut previous = ABOVE_BYTES;
    for class in (0..CLASSES).map(Class::of_index) {
        assert!(class.bytes() > previous && class.bytes() <= previous * 17 / 16 + 16);
        assert_eq!(Class::holding(previous + 1), class);
        assert_eq!(Class::holding(class.bytes()), class);
        let run = UNIT_BYTES << class.order();
        let rest = run - class.objects() * class.bytes();
        assert!(
            rest * 1000 < run * 15,
            "{rest} bytes behind the objects of {class:?}"
        );
        previous = class.bytes();
    }
    assert_eq!(previous, MAX_BYTES);
}

#[test]
fn threads_free_what_others_have_allocated() {
    let (arenas, rounds) = ([arena(), arena()], if cfg!(miri) { 30 } else { 20_000 });
    std::thread::scope(|scope| {
        let (to_right, from_left) = mpsc::sync_channel::<Filled>(64);
        let (to_left, from_right) = mpsc::sync_channel::<Filled>(64);
        let ends = [(to_right, from_right), (to_left, from_left)];
        for (own, (send, receive)) in arenas.into_iter().zip(ends) {
            scope.spawn(move || {
                for n in 0..rounds {
                    let bytes = ABOVE_BYTES + 1 + n * 7919 % (8 * ABOVE_BYTES);
                    // Full when the other one is at its end, or slower; then it is freed here.
                    match send.try_send(Filled::new(own, bytes, n as u8)) {
                        Ok(()) => {}
                        Err(mpsc::TrySendError::Full(filled))
                        | Err(mpsc::TrySendError::Disconnected(filled)) => filled.free(),
                    }
                    receive.try_iter().for_each(Filled::free);
                }
                drop(send);
                receive.iter().for_each(Filled::free);
            });
        }
    });
    for arena in arenas {
        assert_eq!(arena.check(), 0);
        assert!(arena.regions() <= 1 && arena.reserved() <= RESERVE_UNITS);
    }
}

#[test]
#[cfg_attr(miri, ignore = "much memory")]
fn what_is_freed_in_any_order_goes_back_to_the_kernel() {
    let arena = arena();
    let regions = 5;
    let mut live: Vec<Filled> = Vec::new();
    while arena.taken() < regions * (UNITS - 64) {
        live.push(Filled::new(arena, 1100 + live.len() % 9 * 1000, 1));
    }
    assert!(arena.regions() <= regions + 1);
    let mut random = 1_u64;
    while !live.is_empty() {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let at = (random >> 33) as usize % live.len();
        live.swap_remove(at).free();
        let kept = RESERVE_UNITS + arena.taken() / TAKEN_PER_RESERVED;
        assert!(arena.reserved() <= kept + 32);
    }
    assert_eq!(arena.check(), 0);
    assert!(arena.regions() <= 1 && arena.reserved() <= RESERVE_UNITS);
}

#[test]
#[cfg_attr(miri, ignore = "much memory")]
fn new_objects_fill_the_fullest_runs_so_that_others_become_empty() {
    let arena = arena();
    let count = 4 * MAPPING_BYTES / (2 * ABOVE_BYTES);
    let mut live: Vec<_> = (0..count)
        .map(|n| Some(Filled::new(arena, 1500, n as u8)))
        .collect();
    let full = arena.taken();
    // Half of them go, and then as many come and go until those that stay have gathered.
    let mut random = 7_u64;
    let mut next = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize
    };
    for _ in 0..12 * count {
        let at = next() % count;
        match live[at].take() {
            Some(filled) => filled.free(),
            None if next() % 2 == 0 => live[at] = Some(Filled::new(arena, 1500, at as u8)),
            None => {}
        }
    }
    let objects = live.iter().flatten().count();
    assert_eq!(arena.check(), objects);
    let needed = objects * full / count;
    assert!(
        arena.taken() <= needed * 5 / 4,
        "{} units for what {needed} hold",
        arena.taken()
    );
    live.into_iter().flatten().for_each(Filled::free);
}

#[test]
#[should_panic(expected = "an object that was not given away")]
fn an_object_freed_twice_is_noticed() {
    let arena = arena();
    let [_kept, object] = [0; 2].map(|_| Filled::new(arena, 3000, 3));
    for _ in 0..2 {
        // SAFETY: the second time it is not: its region is still there, so nothing but the books is
        // looked at before the panic.
        unsafe { Arena::free(object.object, object.class) }
    }
}

#[test]
fn a_store_of_few_entries_touches_few_pages() {
    let arena = arena();
    let live: Vec<_> = (0..40).map(|n| Filled::new(arena, 1100, n)).collect();
    assert!(arena.taken() <= 2 && arena.reserved() == 0);
    live.into_iter().for_each(Filled::free);
}
