//! Keys that become a table at once: cheaper than one by one, since nothing is looked up or moved.

use super::databases::Databases;
use super::directory::Directory;
use super::entry::{Region, Slot, Weight};
use super::segment::Segment;
use super::{NEVER_MS, Table};

/// Entries with their hashes, in the order in which they came.
pub struct Gathered {
    slots: Vec<(u64, Slot)>,
    weight: Weight,
    databases: Databases,
    /// No deadline is earlier, Unix ms.
    expires_from_ms: u64,
    /// Where the last entry is that is not in a slab.
    region: Option<Region>,
}

impl Default for Gathered {
    fn default() -> Self {
        Gathered::with_capacity(0)
    }
}

impl Gathered {
    /// With room for `keys` keys, of 16 bytes each until there is a table.
    pub fn with_capacity(keys: usize) -> Gathered {
        Gathered {
            slots: Vec::with_capacity(keys),
            weight: Weight::default(),
            databases: Databases::new(),
            expires_from_ms: NEVER_MS,
            region: None,
        }
    }

    /// Adds a key; of several values of one key the last one counts.
    pub fn push(&mut self, hash: u64, key: &[u8], value: &[u8], expire_at_ms: u64) {
        let slot = Slot::new(hash, key, value, expire_at_ms);
        let weight = slot.weight();
        self.weight += weight;
        self.databases.add(key, weight.expiring);
        if expire_at_ms != 0 {
            self.expires_from_ms = self.expires_from_ms.min(expire_at_ms);
        }
        if let Some(region) = slot.region()
            && self.region != Some(region)
        {
            region.populate();
            self.region = Some(region);
        }
        self.slots.push((hash, slot));
    }

    /// The table of all keys.
    pub fn into_table(self) -> Table {
        let Gathered {
            mut slots,
            weight,
            databases,
            expires_from_ms,
            ..
        } = self;
        // Nearly always decided by the hash, which is at hand; equal keys stay in the order they came.
        slots.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.entry().key.cmp(y.entry().key)));
        let mut table = Table::new();
        table.add(weight);
        table.databases = databases;
        slots.dedup_by(|later, earlier| {
            let is_same = later.0 == earlier.0 && earlier.1.has_key(later.1.entry().key);
            if is_same {
                std::mem::swap(later, earlier);
                let weight = later.1.weight();
                table.subtract(weight);
                table.databases.remove(later.1.entry().key, weight.expiring);
            }
            is_same
        });
        if slots.is_empty() {
            return table;
        }
        table.len = slots.len();
        table.expires_from_ms = expires_from_ms;
        let depth = Directory::depth_for(slots.len().div_ceil(Segment::FULL_KEYS));
        let segments = 1usize << depth;
        let average = slots.len().div_ceil(segments);
        table.directory = Directory::of_depth(depth);
        table.segments.reserve_exact(segments);
        let prefix = |hash: u64| hash.checked_shr(u64::BITS - u32::from(depth)).unwrap_or(0);
        let mut slots = slots.into_iter().peekable();
        let mut run = Vec::with_capacity(average * 2);
        for number in 0..segments as u64 {
            while let Some(next) = slots.next_if(|&(hash, _)| prefix(hash) == number) {
                run.push(next);
            }
            let mut segment = Segment::of_sorted(run.drain(..), average, depth);
            segment.expires_from(expires_from_ms);
            table.memory_bytes += segment.memory_bytes();
            table.segments.push(segment);
        }
        table
    }
}

#[cfg(test)]
mod tests;
