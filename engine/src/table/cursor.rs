//! Walking a table in hash order.
//!
//! A cursor is the lowest hash not visited yet. It names no segment and no slot, so a key that is
//! present from the first call to the last is visited exactly once, whatever changes in between.

use super::entry::EntryRef;
use super::segment::{Segment, TAG_BITS};
use super::{Table, directory};

/// Only this many high bits of a cursor are ever set: the others are free for the caller.
pub const CURSOR_BITS: u32 = directory::MAX_DEPTH as u32 + TAG_BITS;

/// Entries after which a call ends at the next tag.
const VISIT_ENTRIES: usize = 32;
/// So many bytes of an entry count as another one: a call that meets large values ends early.
const BYTES_PER_VISIT: usize = 4 << 10;
/// Slots whose keys are being loaded while an entry is visited.
const PREFETCH_SLOTS: usize = 12;
/// Slots whose values are too: by then their headers are here, which say how much there is to load.
const PREFETCH_VALUES: usize = 3;

/// What a walk reads of an entry.
const KEYS: bool = false;
const VALUES: bool = true;

/// Whether a scan that returned `cursor`, not 0 for the end, has passed keys with `hash`.
pub fn behind(cursor: u64, hash: u64) -> bool {
    hash < cursor
}

impl Table {
    /// Visits the next about 32 keys in hash order, fewer if they or their values are large, and returns the
    /// next cursor; 0 begins and ends.
    ///
    /// One call looks at one segment at most, so it may visit none; within a call keys that agree
    /// in their high 16 bits come in no order. Keys inserted while a scan
    /// stands at a cursor are visited if and only if they are not [`behind`] it.
    pub fn scan(&self, cursor: u64, visit: &mut dyn FnMut(u64, EntryRef<'_>)) -> u64 {
        self.walk::<KEYS>(cursor, visit)
    }

    /// As [`Table::scan`], faster for who reads every value and slower for who does not.
    pub fn scan_values(&self, cursor: u64, visit: &mut dyn FnMut(u64, EntryRef<'_>)) -> u64 {
        self.walk::<VALUES>(cursor, visit)
    }

    fn walk<const READS: bool>(
        &self,
        cursor: u64,
        visit: &mut dyn FnMut(u64, EntryRef<'_>),
    ) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let segment = &self.segments[self.directory.locate(cursor)];
        let range = Range::around(cursor, segment);
        let first_tag = segment.tag(cursor);
        let slots = segment.slots();
        let mut visited = 0;
        let mut last_tag = None;
        for i in segment.home(first_tag)..slots.len() {
            if let Some(ahead) = slots.get(i + PREFETCH_SLOTS) {
                ahead.prefetch();
            }
            if READS == VALUES
                && let Some(ahead) = slots.get(i + PREFETCH_VALUES)
            {
                ahead.prefetch_value();
            }
            let slot = &slots[i];
            if slot.is_empty() || slot.tag() < first_tag {
                continue;
            }
            let tag = slot.tag();
            if visited >= VISIT_ENTRIES && last_tag != Some(tag) {
                return range.lowest_hash(tag);
            }
            last_tag = Some(tag);
            let hash = range.hash(tag, slot.stored_hash());
            if !behind(cursor, hash) {
                let entry = slot.entry();
                visited += 1 + (entry.key.len() + entry.value.len()) / BYTES_PER_VISIT;
                visit(hash, entry);
            }
        }
        range.end()
    }

    /// A key chosen by `rng`, any 64 random bits: a segment by its share of the hashes, then a key.
    ///
    /// Walks over empty segments, of which there are many only after mass deletion.
    pub fn random(&self, rng: u64) -> Option<EntryRef<'_>> {
        if self.is_empty() {
            return None;
        }
        let mut position = rng;
        loop {
            let segment = &self.segments[self.directory.locate(position)];
            if segment.used() > 0 {
                let nth = ((rng & u64::from(u32::MAX)) * segment.used() as u64) >> 32;
                let mut full = segment.slots().iter().filter(|slot| !slot.is_empty());
                return full.nth(nth as usize).map(|slot| slot.entry());
            }
            position = Range::around(position, segment).end();
        }
    }
}

/// The hashes of one segment.
struct Range {
    prefix: u64,
    depth: u32,
}

impl Range {
    fn around(hash: u64, segment: &Segment) -> Range {
        let depth = u32::from(segment.depth());
        let below = u64::MAX.checked_shr(depth).unwrap_or(0);
        Range {
            prefix: hash & !below,
            depth,
        }
    }

    /// The lowest hash with this tag.
    fn lowest_hash(&self, tag: u16) -> u64 {
        self.prefix | (u64::from(tag) << (u64::BITS - TAG_BITS)) >> self.depth
    }

    /// The hash of a slot: its high 16 bits are in prefix and tag, the others are stored.
    fn hash(&self, tag: u16, stored: u64) -> u64 {
        let high = u64::MAX << (u64::BITS - TAG_BITS);
        self.lowest_hash(tag) & high | stored
    }

    /// The first hash of the next segment, 0 behind the last one.
    fn end(&self) -> u64 {
        match self.depth {
            0 => 0,
            depth => self.prefix.wrapping_add(1 << (u64::BITS - depth)),
        }
    }
}
