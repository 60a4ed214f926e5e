//! A small hash table of slots in hash order: the unit in which a table grows.
//!
//! Linear probing without wrap-around, kept sorted. With `home(tag) = tag * homes / 2^16`:
//!
//! 1. full slots are in ascending order of tag, so walking the slots walks the hashes;
//! 2. a slot's position is at or behind its tag's home;
//! 3. there is no empty slot between a slot's home and its position.
//!
//! `homes` is a little less than the number of slots: what is pushed behind the last home stays
//! in the tail. Removing shifts back, so there are no tombstones.

use super::entry::{STORED_HASH_BITS, Slot};
use super::{NEVER_MS, size_class};
use crate::prefetch;

/// Slots of a segment that splits instead of growing: 8 KiB with the one left out.
pub(super) const SPLIT_SLOTS: usize = 1023;
/// Hash bits in a tag.
pub(super) const TAG_BITS: u32 = 16;

const SLOT_BYTES: usize = size_of::<Slot>();
const MIN_SLOTS: usize = 7;
/// Slots a split loads at once before it needs them.
const PREFETCH_AHEAD: usize = 8;

const NEVER_S: u32 = u32::MAX;

const _: () = assert!(SLOT_BYTES == 8);
const _: () = assert!(size_of::<Segment>() == 32);
const _: () = assert!(TAG_BITS + STORED_HASH_BITS == u64::BITS);

/// The slots of every key whose hash begins with one prefix of `depth` bits.
pub(super) struct Segment {
    slots: Box<[Slot]>,
    homes: u32,
    used: u32,
    /// No key's deadline is in an earlier second, Unix time; [`NEVER_S`] if no key has one.
    expires_from_s: u32,
    depth: u8,
}

impl Segment {
    /// Keys for which a segment of its own is best: it holds what hashes add to that by chance.
    pub(super) const FULL_KEYS: usize = SPLIT_SLOTS * 2 / 3;

    /// A segment with room for `keys` keys, and for some more.
    pub(super) fn with_capacity(keys: usize, depth: u8) -> Segment {
        Segment::build(std::iter::empty(), roomy_homes(keys), depth)
    }

    /// A segment of `slots`, given with the hashes of their keys and in the order of those; it has
    /// room for `keys` keys, and for some more.
    pub(super) fn of_sorted(
        slots: impl ExactSizeIterator<Item = (u64, Slot)>,
        keys: usize,
        depth: u8,
    ) -> Segment {
        let mut homes = roomy_homes(keys);
        if slots.len() > max_used(homes) as usize {
            homes = roomy_homes(slots.len());
        }
        let tagged = slots.map(|(hash, mut slot)| {
            slot.set_tag(tag(hash, depth));
            slot
        });
        Segment::lay(tagged, homes, 0, depth)
    }

    /// A segment without an allocation.
    pub(super) fn empty(depth: u8) -> Segment {
        Segment {
            slots: Box::default(),
            homes: 0,
            used: 0,
            expires_from_s: NEVER_S,
            depth,
        }
    }

    pub(super) fn depth(&self) -> u8 {
        self.depth
    }

    pub(super) fn used(&self) -> usize {
        self.used as usize
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(super) fn slot_mut(&mut self, at: usize) -> &mut Slot {
        &mut self.slots[at]
    }

    /// No key's deadline is earlier, Unix ms; [`NEVER_MS`] if no key has one.
    pub(super) fn expires_from_ms(&self) -> u64 {
        match self.expires_from_s {
            NEVER_S => NEVER_MS,
            from_s => u64::from(from_s) * 1000,
        }
    }

    /// A key has this deadline, or none has an earlier one.
    pub(super) fn expires_from(&mut self, at_ms: u64) {
        self.expires_from_s = self.expires_from_s.min(second(at_ms));
    }

    /// Collects keys that have expired at `now_ms`, up to `most`; whoever asks removes them. True when those are
    /// all of the segment's.
    pub(super) fn expired(&mut self, now_ms: u64, most: usize, found: &mut Vec<Vec<u8>>) -> bool {
        let mut from_ms = NEVER_MS;
        for (i, slot) in self.slots.iter().enumerate() {
            if let Some(ahead) = self.slots.get(i + PREFETCH_AHEAD) {
                ahead.prefetch();
            }
            if slot.is_empty() {
                continue;
            }
            let entry = slot.entry();
            match entry.expire_at_ms {
                0 => {}
                at_ms if at_ms > now_ms => from_ms = from_ms.min(at_ms),
                _ if found.len() == most => return false,
                _ => found.push(entry.key.to_vec()),
            }
        }
        self.expires_from_s = second(from_ms);
        true
    }

    /// Bytes of the slot array.
    pub(super) fn memory_bytes(&self) -> u64 {
        size_class::handed_out(self.slots.len() * SLOT_BYTES, align_of::<Slot>()) as u64
    }

    /// The 16 bits of `hash` below this segment's prefix.
    pub(super) fn tag(&self, hash: u64) -> u16 {
        tag(hash, self.depth)
    }

    /// First position at which a slot with `tag` can be.
    pub(super) fn home(&self, tag: u16) -> usize {
        home(tag, self.homes)
    }

    /// Position of the key's slot.
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let tag = self.tag(hash);
        let start = self.home(tag);
        for (i, slot) in self.slots[start..].iter().enumerate() {
            if slot.is_empty() || slot.tag() > tag {
                return None;
            }
            if slot.tag() == tag && slot.has_key(key) {
                return Some(start + i);
            }
        }
        None
    }

    /// Takes in `slot`, of a key with `hash` that is not here.
    ///
    /// # Errors
    /// Gives the slot back when there is no room: split or grow, then try again.
    pub(super) fn insert(&mut self, hash: u64, mut slot: Slot) -> Result<(), Slot> {
        if self.used >= max_used(self.homes) {
            return Err(slot);
        }
        let tag = self.tag(hash);
        let start = self.home(tag);
        let mut at = None;
        for i in start..self.slots.len() {
            if self.slots[i].is_empty() {
                slot.set_tag(tag);
                self.slots[i] = slot;
                self.slots[at.unwrap_or(i)..=i].rotate_right(1);
                self.used += 1;
                return Ok(());
            }
            if at.is_none() && self.slots[i].tag() > tag {
                at = Some(i);
            }
        }
        Err(slot)
    }

    /// Takes the slot at `at` out and closes the gap.
    pub(super) fn remove(&mut self, at: usize) -> Slot {
        let slot = std::mem::replace(&mut self.slots[at], Slot::EMPTY);
        let homes = self.homes;
        let displaced =
            |(i, slot): &(usize, &Slot)| !slot.is_empty() && home(slot.tag(), homes) < at + 1 + i;
        let run = self.slots[at + 1..]
            .iter()
            .enumerate()
            .take_while(displaced)
            .count();
        self.slots[at..=at + run].rotate_left(1);
        self.used -= 1;
        slot
    }

    /// Takes up to `budget` of the last slots out: the cheapest way to empty a segment.
    pub(super) fn take_last(&mut self, budget: usize) -> Vec<Slot> {
        let full = self.slots.iter_mut().rev().filter(|slot| !slot.is_empty());
        let taken: Vec<Slot> = full
            .take(budget)
            .map(|slot| std::mem::replace(slot, Slot::EMPTY))
            .collect();
        self.used -= taken.len() as u32;
        taken
    }

    /// Whether it has the size at which splitting is better than growing.
    pub(super) fn wants_split(&self) -> bool {
        self.slots.len() >= SPLIT_SLOTS && self.used() >= SPLIT_SLOTS / 2
    }

    /// Makes room for at least one more slot by moving to the next larger allocation.
    pub(super) fn grow(&mut self) {
        let homes = if self.used < max_used(self.homes) {
            self.homes
        } else {
            homes_within(slots_holding((self.slots.len() + 1).max(MIN_SLOTS)))
        };
        let slots = std::mem::take(&mut self.slots)
            .into_iter()
            .filter(|slot| !slot.is_empty());
        self.rebuild(slots, homes);
    }

    /// Gives memory back when most of it is unused.
    pub(super) fn shrink(&mut self) {
        if self.used == 0 {
            *self = Segment::empty(self.depth);
        } else if self.slots.len() > MIN_SLOTS && self.used < max_used(self.homes) / 4 {
            let slots = std::mem::take(&mut self.slots)
                .into_iter()
                .filter(|slot| !slot.is_empty());
            self.rebuild(slots, roomy_homes(self.used()));
        }
    }

    /// Lays the segment's slots out anew.
    fn rebuild(&mut self, slots: impl Iterator<Item = Slot>, homes: u32) {
        let from_s = self.expires_from_s;
        *self = Segment::build(slots, homes, self.depth);
        self.expires_from_s = from_s;
    }

    /// Divides the segment by the next bit of the hash: this one keeps the hashes where it is 0.
    pub(super) fn split(&mut self) -> Segment {
        let depth = self.depth;
        for slot in self.slots.iter().take(PREFETCH_AHEAD) {
            slot.prefetch();
        }
        let mut halves = [
            Vec::with_capacity(self.used()),
            Vec::with_capacity(self.used()),
        ];
        for i in 0..self.slots.len() {
            if let Some(ahead) = self.slots.get(i + PREFETCH_AHEAD) {
                ahead.prefetch();
            }
            let mut slot = std::mem::replace(&mut self.slots[i], Slot::EMPTY);
            if !slot.is_empty() {
                let tag = slot.tag();
                let below = slot.stored_hash() >> (STORED_HASH_BITS - 1 - u32::from(depth)) & 1;
                slot.set_tag(tag << 1 | below as u16);
                halves[usize::from(tag >> (TAG_BITS - 1))].push(slot);
            }
        }
        let from_s = self.expires_from_s;
        let [low, high] = halves.map(|mut half| {
            if half.is_empty() {
                return Segment::empty(depth + 1);
            }
            half.sort_by_key(Slot::tag);
            let homes = roomy_homes(half.len());
            let mut half = Segment::build(half.into_iter(), homes, depth + 1);
            half.expires_from_s = from_s;
            half
        });
        *self = low;
        high
    }

    /// Lays `slots`, in order of tag, out over `homes` homes, with a tail free behind the last one.
    fn build(slots: impl Iterator<Item = Slot>, homes: u32, depth: u8) -> Segment {
        Segment::lay(slots, homes, tail(homes), depth)
    }

    /// Lays `slots`, in order of tag, out over `homes` homes and a tail, or as much more as they and
    /// `behind` free ones behind them need.
    fn lay(slots: impl Iterator<Item = Slot>, homes: u32, behind: usize, depth: u8) -> Segment {
        let usual = homes as usize + tail(homes);
        let mut laid = Vec::with_capacity(slots_holding(usual));
        let mut used = 0;
        for slot in slots {
            let home = home(slot.tag(), homes);
            while laid.len() < home {
                laid.push(Slot::EMPTY);
            }
            laid.push(slot);
            used += 1;
        }
        let len = slots_holding(usual.max(laid.len() + behind));
        laid.reserve_exact(len - laid.len());
        laid.resize_with(len, || Slot::EMPTY);
        Segment {
            slots: laid.into_boxed_slice(),
            homes,
            used,
            expires_from_s: NEVER_S,
            depth,
        }
    }

    /// Asks the CPU to load the slots where a key with `hash` is looked for.
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch::line(self.slots.as_ptr().wrapping_add(self.home(self.tag(hash))));
    }

    /// Asks the CPU to load the entry a key with `hash` most likely has.
    pub(super) fn prefetch_entry(&self, hash: u64) {
        let tag = self.tag(hash);
        let candidates = &self.slots[self.home(tag)..];
        if let Some(slot) = candidates
            .iter()
            .find(|slot| slot.is_empty() || slot.tag() >= tag)
        {
            slot.prefetch();
        }
    }
}

/// The second of a deadline, Unix time; what is beyond its range counts as due at its end.
fn second(at_ms: u64) -> u32 {
    match at_ms {
        NEVER_MS => NEVER_S,
        at_ms => u32::try_from(at_ms / 1000).map_or(NEVER_S - 1, |s| s.min(NEVER_S - 1)),
    }
}

fn tag(hash: u64, depth: u8) -> u16 {
    ((hash << depth) >> (u64::BITS - TAG_BITS)) as u16
}

fn home(tag: u16, homes: u32) -> usize {
    ((u64::from(tag) * u64::from(homes)) >> TAG_BITS) as usize
}

/// Nine tenths of the homes.
fn max_used(homes: u32) -> u32 {
    homes - homes / 10
}

/// Slots kept behind the last home.
fn tail(homes: u32) -> usize {
    homes as usize / 32 + 1
}

/// The most homes that fit `slots` together with their tail.
fn homes_within(slots: usize) -> u32 {
    ((slots - 1) * 32 / 33) as u32
}

/// Homes that `used` slots fill to at most four fifths.
fn roomy_homes(used: usize) -> u32 {
    homes_within(slots_holding((used + used / 4 + 2).max(MIN_SLOTS)))
}

/// Slots in the smallest allocation that holds `slots` and one slot's size for its alignment.
fn slots_holding(slots: usize) -> usize {
    size_class::bin((slots + 1) * SLOT_BYTES) / SLOT_BYTES - 1
}
