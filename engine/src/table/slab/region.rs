//! A mapping cut into units, and which of them are in use.
//!
//! ```text
//! unit 0: the header (arena, number) and nothing else   unit 1, 2, …: runs
//! ```
//!
//! What is known of units and runs is kept outside of the mapping, so no object can damage it. A unit
//! is *taken* if it belongs to a run, and *touched* if it may have pages.

use std::ptr::NonNull;

use super::arena::Arena;
use super::mapping::{MAPPING_BYTES, Mapping};
use crate::small_pages::SmallPages;

pub(super) const UNIT_BYTES: usize = 32 << 10;
/// Units of a region.
pub(super) const UNITS: usize = MAPPING_BYTES / UNIT_BYTES;
/// Runs have 1 << order units, with order below this.
pub(super) const ORDERS: usize = 6;
/// Units of a block: as many as a huge page has.
pub(super) const BLOCK_UNITS: usize = u64::BITS as usize;
pub(super) const BLOCKS: usize = UNITS / BLOCK_UNITS;

/// Units that get their pages together where pages are small: half the cost of a fault is its way
/// to the kernel and back.
const STRIDE_UNITS: usize = 4;

/// Units where a run of each order may begin.
const STARTS: [u64; ORDERS] = [
    !0,
    !0 / 0x3,
    !0 / 0xf,
    !0 / 0xff,
    !0 / 0xffff,
    !0 / 0xffff_ffff,
];

const _: () = assert!(1 << (ORDERS - 1) <= BLOCK_UNITS);
const _: () = assert!(size_of::<RegionHeader>() <= UNIT_BYTES);

/// A run of an arena: the number of its region and its first unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunId(u32);

impl RunId {
    pub(super) const NONE: RunId = RunId(u32::MAX);

    pub(super) fn new(region: usize, unit: usize) -> RunId {
        RunId((region * UNITS + unit) as u32)
    }

    pub(super) fn region(self) -> usize {
        self.0 as usize / UNITS
    }

    pub(super) fn unit(self) -> usize {
        self.0 as usize % UNITS
    }

    pub(super) fn is_some(self) -> bool {
        self != RunId::NONE
    }
}

/// A run, kept under its first unit.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// Bit i: object i is in use.
    pub(super) used: u32,
    /// Index of its class.
    pub(super) class: u8,
    /// Its neighbours in a list of its arena.
    pub(super) previous: RunId,
    pub(super) next: RunId,
}

/// What is at the start of a mapping.
struct RegionHeader {
    arena: &'static Arena,
    number: usize,
}

/// Units of a block, one bit for each.
#[derive(Clone, Copy, Default)]
struct Block {
    taken: u64,
    touched: u64,
}

pub(super) struct Region {
    mapping: Mapping,
    blocks: [Block; BLOCKS],
    runs: Box<[Run]>,
    /// Whether a block gets all of its pages together, with luck as a single one.
    huge: bool,
    taken: usize,
    touched_free: usize,
}

impl Region {
    /// `None` when the kernel refuses.
    pub(super) fn new(arena: &'static Arena, number: usize, huge: bool) -> Option<Region> {
        let mapping = Mapping::new(huge)?;
        let whole = huge && !SmallPages::are_wanted();
        if whole {
            mapping.populate(0, BLOCK_UNITS * UNIT_BYTES);
        }
        let header = RegionHeader { arena, number };
        // SAFETY: the start of a new mapping, which is aligned and long enough; unit 0 is never
        // part of a run, so nobody writes there again.
        unsafe { mapping.start().cast::<RegionHeader>().write(header) };
        let run = Run {
            used: 0,
            class: 0,
            previous: RunId::NONE,
            next: RunId::NONE,
        };
        let mut region = Region {
            mapping,
            blocks: [Block::default(); BLOCKS],
            runs: vec![run; UNITS].into_boxed_slice(),
            huge,
            taken: 0,
            touched_free: if whole { BLOCK_UNITS - 1 } else { 0 },
        };
        region.blocks[0] = Block {
            taken: 1,
            touched: if whole { !0 } else { 1 },
        };
        Some(region)
    }

    /// The arena an object belongs to, the number of its region there, and its place within that.
    ///
    /// # Safety
    /// The object is in a region that is there.
    pub(super) unsafe fn of(object: NonNull<u8>) -> (&'static Arena, usize, usize) {
        let start = Mapping::start_of(object);
        // SAFETY: a region has a header at the start of its mapping, written before the first object
        // was given away and never again.
        let RegionHeader { arena, number } = unsafe { start.cast::<RegionHeader>().read() };
        (arena, number, object.addr().get() - start.addr())
    }

    /// Where the mapping is, to be offset by places within it.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.mapping.start()
    }

    pub(super) fn run(&mut self, unit: usize) -> &mut Run {
        &mut self.runs[unit]
    }

    /// Units of runs.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// Units that may have pages and belong to no run.
    pub(super) fn touched_free(&self) -> usize {
        self.touched_free
    }

    /// Takes the first free run of this order.
    pub(super) fn take(&mut self, order: usize) -> Option<usize> {
        for (number, block) in self.blocks.iter_mut().enumerate() {
            let mut free = !block.taken;
            for doubling in 0..order {
                free &= free >> (1 << doubling);
            }
            free &= STARTS[order];
            if free != 0 {
                let first = free.trailing_zeros() as usize;
                let units = span(first, 1 << order);
                block.taken |= units;
                self.taken += 1 << order;
                self.touched_free -= (block.touched & units).count_ones() as usize;
                return Some(number * BLOCK_UNITS + first);
            }
        }
        None
    }

    /// Frees a run of this order.
    pub(super) fn release(&mut self, unit: usize, order: usize) {
        let block = &mut self.blocks[unit / BLOCK_UNITS];
        let units = span(unit % BLOCK_UNITS, 1 << order);
        assert!(block.taken & units == units);
        block.taken &= !units;
        self.taken -= 1 << order;
        self.touched_free += (block.touched & units).count_ones() as usize;
    }

    /// Whether no unit of this block is taken.
    pub(super) fn is_free(&self, block: usize) -> bool {
        // Nobody gives up the header.
        self.blocks[block].taken & !u64::from(block == 0) == 0
    }

    /// Notes that the units of `at..at + len` get pages, of one run; if `ahead`, gives them, and some
    /// behind them, their pages at once.
    pub(super) fn touch(&mut self, at: usize, len: usize, ahead: bool) {
        let (first, last) = (at / UNIT_BYTES, (at + len - 1) / UNIT_BYTES);
        let number = first / BLOCK_UNITS;
        let block = &mut self.blocks[number];
        let first = first % BLOCK_UNITS;
        let mut units = span(first, last % BLOCK_UNITS - first + 1);
        if block.touched & units == units {
            return;
        }
        if self.huge && block.touched == 0 && !SmallPages::are_wanted() {
            units = !0;
        } else if ahead || self.huge {
            let stride = span(first / STRIDE_UNITS * STRIDE_UNITS, STRIDE_UNITS);
            units |= stride & (!0 << first);
        }
        let new = units & !block.touched;
        block.touched |= units;
        self.touched_free += (new & !block.taken).count_ones() as usize;
        if ahead || self.huge {
            for (first, count) in stretches(new) {
                let first = number * BLOCK_UNITS + first;
                self.mapping
                    .populate(first * UNIT_BYTES, count * UNIT_BYTES);
            }
        }
    }

    /// Gives the pages of a block's free units back to the kernel, and says of how many.
    pub(super) fn give_back(&mut self, number: usize) -> usize {
        let block = &mut self.blocks[number];
        let units = block.touched & !block.taken;
        block.touched &= !units;
        self.touched_free -= units.count_ones() as usize;
        for (first, count) in stretches(units) {
            let first = number * BLOCK_UNITS + first;
            // SAFETY: units that belong to no run, so there is no object; the header's is taken.
            unsafe {
                self.mapping
                    .give_back(first * UNIT_BYTES, count * UNIT_BYTES);
            }
        }
        units.count_ones() as usize
    }
}

/// Bits `first..first + count`; `count` is not 0.
fn span(first: usize, count: usize) -> u64 {
    (!0 >> (BLOCK_UNITS - count)) << first
}

/// Maximal sequences of ones: first bit and length.
fn stretches(mut bits: u64) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let first = bits.trailing_zeros();
        let count = (bits >> first).trailing_ones();
        bits &= !span(first as usize, count as usize);
        Some((first as usize, count as usize))
    })
}
