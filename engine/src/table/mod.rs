//! The keys of one partition in memory: extendible hashing on the high bits of a 64-bit hash.
//!
//! ```text
//! Table -> Directory (prefix -> number) -> Segment (<= 1023 sorted slots) -> entry (one allocation)
//! ```
//!
//! *Invariant:* the order of the hashes is the order of the structure. A cursor is a hash, so it
//! stays valid whatever grows, splits or goes.
//!
//! *Invariant:* one operation moves at most the slots of one segment, plus the directory when it
//! doubles. Hashes without entropy in their high bits (not aHash's) are the exception: such a
//! segment grows past its limit, correct but no longer fast.

mod cursor;
mod databases;
mod directory;
mod entry;
mod gathered;
mod hasher;
mod segment;
mod size_class;
mod slab;

pub use cursor::{CURSOR_BITS, behind};
pub use databases::Totals;
pub use entry::{EntryRef, VALUE_TYPE_STRING};
pub use gathered::Gathered;
pub use hasher::KeyHasher;
pub use slab::work_for;

use ephesus_wire::Database;

use crate::prefetch;
use databases::Databases;
use directory::Directory;
use entry::{Slot, Weight};
use segment::Segment;

/// Entries whose headers are being loaded while one is freed.
const PREFETCH_FREED: usize = 16;

/// A deadline that never comes, where 0 does not stand for none.
pub const NEVER_MS: u64 = u64::MAX;

/// Keys that one look at a segment for expired ones collects at most.
const EXPIRED_MAX: usize = 128;

/// What [`Table::put`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    Inserted,
    Replaced,
}

/// An entry that was taken out of a table, which does not count it any more.
pub struct TakenEntry(Slot);

impl TakenEntry {
    #[must_use]
    pub fn entry(&self) -> EntryRef<'_> {
        self.0.entry()
    }
}

/// What [`Table::prefetch`] loads; each step reads what the one before it has loaded, so take one step
/// for many keys before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    Table,
    Directory,
    Segment,
    Slots,
    Entry,
}

impl Prefetch {
    /// All steps, in order.
    pub const STEPS: [Prefetch; 5] = [
        Prefetch::Table,
        Prefetch::Directory,
        Prefetch::Segment,
        Prefetch::Slots,
        Prefetch::Entry,
    ];
}

/// An in-memory table; one without keys has no allocation.
///
/// Every method that takes a hash needs the same function of the key each time, normally
/// [`KeyHasher::hash`]. Keys and values may have any length up to 2 GiB together.
pub struct Table {
    segments: Vec<Segment>,
    directory: Directory,
    len: usize,
    expiring: usize,
    databases: Databases,
    /// No key's deadline is earlier, Unix ms.
    expires_from_ms: u64,
    data_bytes: u64,
    /// Entries and slot arrays, without `segments` and `directory`.
    memory_bytes: u64,
}

impl Default for Table {
    fn default() -> Self {
        Table::new()
    }
}

impl Table {
    pub const fn new() -> Table {
        Table {
            segments: Vec::new(),
            directory: Directory::new(),
            len: 0,
            expiring: 0,
            databases: Databases::new(),
            expires_from_ms: NEVER_MS,
            data_bytes: 0,
            memory_bytes: 0,
        }
    }

    /// A table that takes about `keys` keys without growing on the way; put them there at once, since
    /// only a table with keys gives its room back.
    pub fn with_capacity(keys: usize) -> Table {
        let (mut table, keys_per_part) = Table::divided_for(keys);
        for segment in &mut table.segments {
            *segment = Segment::with_capacity(keys_per_part, segment.depth());
            table.memory_bytes += segment.memory_bytes();
        }
        table
    }

    /// A table that is divided for about `keys` keys, without room for any, and how many of them come to
    /// each part: [`Table::put_expected`] makes room as the first one comes. Replace it if none does.
    pub fn divided_for(keys: usize) -> (Table, usize) {
        let mut table = Table::new();
        if keys == 0 {
            return (table, 0);
        }
        let depth = Directory::depth_for(keys.div_ceil(Segment::FULL_KEYS));
        table.directory = Directory::of_depth(depth);
        let segments = 1 << depth;
        table.segments.reserve_exact(segments);
        table
            .segments
            .resize_with(segments, || Segment::empty(depth));
        (table, keys.div_ceil(segments))
    }

    pub fn get(&self, hash: u64, key: &[u8]) -> Option<EntryRef<'_>> {
        let segment = self.segment(hash)?;
        let at = segment.find(hash, key)?;
        Some(segment.slots()[at].entry())
    }

    /// Sets value and expiry (Unix time in ms, 0 = none) of a key.
    /// Bytes of the key's allocation and of its place in the table.
    #[must_use]
    pub fn entry_bytes(&self, hash: u64, key: &[u8]) -> Option<u64> {
        let segment = self.segment(hash)?;
        let slot = &segment.slots()[segment.find(hash, key)?];
        Some(slot.weight().memory_bytes + size_of::<Slot>() as u64)
    }

    pub fn put(&mut self, hash: u64, key: &[u8], value: &[u8], expire_at_ms: u64) -> Put {
        self.put_expected(hash, key, value, expire_at_ms, 0)
    }

    /// As [`Table::put`], for a key whose part of a table that was [divided](Table::divided_for) is to take
    /// so many keys.
    pub fn put_expected(
        &mut self,
        hash: u64,
        key: &[u8],
        value: &[u8],
        expire_at_ms: u64,
        keys_per_part: usize,
    ) -> Put {
        let replace = |slot: &mut Slot| slot.replace(key, value, expire_at_ms);
        match self.change(hash, key, expire_at_ms, replace) {
            Some(()) => Put::Replaced,
            None => {
                let slot = Slot::new(hash, key, value, expire_at_ms);
                self.insert(hash, slot, expire_at_ms, keys_per_part);
                Put::Inserted
            }
        }
    }

    /// As [`Table::put`], and answers the entry that was there before.
    pub fn exchange(
        &mut self,
        hash: u64,
        key: &[u8],
        value: &[u8],
        expire_at_ms: u64,
    ) -> Option<TakenEntry> {
        let exchange = |slot: &mut Slot| {
            let mut new = Slot::new(hash, key, value, expire_at_ms);
            new.set_tag(slot.tag());
            std::mem::replace(slot, new)
        };
        let old = self.change(hash, key, expire_at_ms, exchange);
        if old.is_none() {
            let slot = Slot::new(hash, key, value, expire_at_ms);
            self.insert(hash, slot, expire_at_ms, 0);
        }
        old.map(TakenEntry)
    }

    /// Removes a key; false when there is none.
    pub fn remove(&mut self, hash: u64, key: &[u8]) -> bool {
        self.take(hash, key).is_some()
    }

    /// Removes a key and answers its entry.
    pub fn take(&mut self, hash: u64, key: &[u8]) -> Option<TakenEntry> {
        let number = self.directory.locate(hash);
        let segment = self.segments.get_mut(number)?;
        let at = segment.find(hash, key)?;
        let slot = segment.remove(at);
        self.shrink(number);
        self.forget(&slot);
        Some(TakenEntry(slot))
    }

    /// Sets a key's expiry (Unix time in ms, 0 = none); false when there is no such key.
    pub fn set_expiry(&mut self, hash: u64, key: &[u8], expire_at_ms: u64) -> bool {
        let set = |slot: &mut Slot| slot.set_expiry(expire_at_ms);
        self.change(hash, key, expire_at_ms, set).is_some()
    }

    /// Appends to a key's value and returns the new length; `None` when there is no such key.
    ///
    /// The first append that does not fit reserves half the value's size (at most 1 MiB).
    pub fn append(&mut self, hash: u64, key: &[u8], suffix: &[u8]) -> Option<usize> {
        // The deadline that it keeps is known.
        self.change(hash, key, 0, |slot| slot.append(suffix))
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keys with an expiry.
    pub fn expiring(&self) -> usize {
        self.expiring
    }

    /// Keys of one database.
    pub fn of_database(&self, database: Database) -> Totals {
        if database != Database::ZERO {
            return self.databases.of(database);
        }
        let mut totals = Totals {
            keys: self.len,
            expiring: self.expiring,
        };
        for (_, other) in self.databases.all() {
            totals.keys -= other.keys;
            totals.expiring -= other.expiring;
        }
        totals
    }

    /// The databases but 0 that have keys here, ascending, and their totals.
    pub fn other_databases(&self) -> impl DoubleEndedIterator<Item = (Database, Totals)> {
        self.databases.all()
    }

    /// No key's deadline is earlier, Unix ms; [`NEVER_MS`] if no key has one. [`Table::expired`] corrects what
    /// deletions and later deadlines have made too early.
    pub fn expires_from_ms(&self) -> u64 {
        self.expires_from_ms
    }

    /// Collects keys that have expired at `now_ms`, about 100, of the next segment that may have any; whoever asks
    /// removes them before the next call. `at` begins with 0; false when no segment is left.
    pub fn expired(&mut self, at: &mut usize, now_ms: u64, found: &mut Vec<Vec<u8>>) -> bool {
        while let Some(segment) = self.segments.get_mut(*at) {
            if segment.expires_from_ms() > now_ms {
                *at += 1;
            } else {
                *at += usize::from(segment.expired(now_ms, EXPIRED_MAX, found));
                return true;
            }
        }
        let all = self.segments.iter().map(Segment::expires_from_ms);
        self.expires_from_ms = all.min().unwrap_or(NEVER_MS);
        false
    }

    /// Bytes of all keys and values.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Bytes the allocator hands out for everything the table owns.
    pub fn memory_bytes(&self) -> u64 {
        let segments = self.segments.capacity() * size_of::<Segment>();
        let segments = size_class::handed_out(segments, align_of::<Segment>());
        let directory = size_class::handed_out(self.directory.bytes(), align_of::<u32>());
        self.memory_bytes + (segments + directory) as u64
    }

    /// Asks the CPU to load what a look at a key will need; changes nothing.
    #[inline]
    pub fn prefetch(&self, hash: u64, step: Prefetch) {
        match step {
            Prefetch::Table => prefetch::whole(self),
            Prefetch::Directory => self.directory.prefetch(hash),
            Prefetch::Segment => {
                let number = self.directory.locate(hash);
                prefetch::line(self.segments.as_ptr().wrapping_add(number));
            }
            Prefetch::Slots => {
                if let Some(segment) = self.segment(hash) {
                    segment.prefetch(hash);
                }
            }
            Prefetch::Entry => {
                if let Some(segment) = self.segment(hash) {
                    segment.prefetch_entry(hash);
                }
            }
        }
    }

    /// Removes up to `budget` keys, in no order; true when the table is empty.
    ///
    /// To make all keys vanish at once, `mem::take` the table and clear what was taken.
    pub fn clear_slice(&mut self, budget: usize) -> bool {
        let mut left = budget;
        for number in (0..self.segments.len()).rev() {
            // With the last key the segments go too.
            if left == 0 || self.is_empty() {
                break;
            }
            let taken = self.segments[number].take_last(left);
            left -= taken.len();
            self.shrink(number);
            let mut taken = taken.into_iter();
            while let Some(slot) = taken.next() {
                if let Some(ahead) = taken.as_slice().get(PREFETCH_FREED) {
                    ahead.prefetch();
                }
                self.forget(&slot);
            }
        }
        self.is_empty()
    }

    fn segment(&self, hash: u64) -> Option<&Segment> {
        self.segments.get(self.directory.locate(hash))
    }

    /// Applies `edit`, which may set this expiry, to a key's slot and keeps the totals.
    fn change<T>(
        &mut self,
        hash: u64,
        key: &[u8],
        expire_at_ms: u64,
        edit: impl FnOnce(&mut Slot) -> T,
    ) -> Option<T> {
        let segment = self.segments.get_mut(self.directory.locate(hash))?;
        let at = segment.find(hash, key)?;
        if expire_at_ms != 0 {
            segment.expires_from(expire_at_ms);
            self.expires_from_ms = self.expires_from_ms.min(expire_at_ms);
        }
        let slot = segment.slot_mut(at);
        let before = slot.weight();
        let result = edit(slot);
        let after = slot.weight();
        self.databases.change(key, |totals| {
            totals.expiring = totals.expiring + after.expiring - before.expiring;
        });
        self.subtract(before);
        self.add(after);
        Some(result)
    }

    /// Inserts a key that is not in the table.
    fn insert(&mut self, hash: u64, mut slot: Slot, expire_at_ms: u64, keys_per_part: usize) {
        let weight = slot.weight();
        self.add(weight);
        self.len += 1;
        self.databases.add(slot.entry().key, weight.expiring);
        if self.segments.is_empty() {
            self.segments.reserve_exact(1);
            self.segments.push(Segment::empty(0));
        }
        loop {
            let segment = &mut self.segments[self.directory.locate(hash)];
            match segment.insert(hash, slot) {
                Ok(()) => {
                    if expire_at_ms != 0 {
                        segment.expires_from(expire_at_ms);
                        self.expires_from_ms = self.expires_from_ms.min(expire_at_ms);
                    }
                    return;
                }
                Err(refused) => slot = refused,
            }
            self.make_room(hash, keys_per_part);
        }
    }

    /// Splits or grows the segment of `hash`, in which so many keys are expected.
    fn make_room(&mut self, hash: u64, keys_per_part: usize) {
        let count = self.segments.len();
        let segment = &mut self.segments[self.directory.locate(hash)];
        let depth = segment.depth();
        let before = segment.memory_bytes();
        if segment.wants_split() && self.directory.can_split(depth, count) {
            let upper = segment.split();
            let after = segment.memory_bytes() + upper.memory_bytes();
            self.memory_bytes = self.memory_bytes - before + after;
            self.segments.push(upper);
            self.directory.split(hash, depth, count);
        } else {
            match segment.used() {
                0 => *segment = Segment::with_capacity(keys_per_part, depth),
                _ => segment.grow(),
            }
            self.memory_bytes = self.memory_bytes - before + segment.memory_bytes();
        }
    }

    fn shrink(&mut self, number: usize) {
        let segment = &mut self.segments[number];
        let before = segment.memory_bytes();
        segment.shrink();
        self.memory_bytes = self.memory_bytes - before + segment.memory_bytes();
    }

    /// Counts a slot no more that was taken out, and drops the whole structure with the last one.
    fn forget(&mut self, slot: &Slot) {
        let weight = slot.weight();
        self.subtract(weight);
        self.len -= 1;
        self.databases.remove(slot.entry().key, weight.expiring);
        if self.len == 0 {
            *self = Table::new();
        }
    }

    fn add(&mut self, weight: Weight) {
        self.data_bytes += weight.data_bytes;
        self.memory_bytes += weight.memory_bytes;
        self.expiring += weight.expiring;
    }

    fn subtract(&mut self, weight: Weight) {
        self.data_bytes -= weight.data_bytes;
        self.memory_bytes -= weight.memory_bytes;
        self.expiring -= weight.expiring;
    }
}

#[cfg(test)]
mod tests;
