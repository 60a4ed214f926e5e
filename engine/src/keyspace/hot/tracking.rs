//! What `HOTKEYS` looks at in one shard, while it does.

use ephesus_wire::rng::Rng;
use ephesus_wire::{Slot, database};

use super::Sketch;
use super::sketch::Key;
use crate::command::hotkeys::{Found, Wanted};

/// Counters for each key that is told: what is hotter than a part of all that small is found.
const COUNTERS_PER_KEY: usize = 8;

/// Counters at least.
const COUNTERS_MIN: usize = 128;

/// Uses between two readings of the clock that are looked at, at most.
const UNTIMED_MAX: usize = 4096;

/// One look at a shard's keys.
#[derive(Debug)]
pub struct Tracking {
    wanted: Wanted,
    rng: Rng,
    started_ms: u64,
    ended_ms: Option<u64>,
    /// Uses until one is looked at.
    left: u64,
    by_nanos: Sketch,
    by_bytes: Sketch,
    nanos: [u64; 3],
    bytes: [u64; 3],
    /// Uses of selected slots, and those looked at, since the clock was read; the latter with their keys.
    selected: u64,
    untimed: Vec<(u64, Box<[u8]>)>,
}

impl Tracking {
    #[must_use]
    pub fn new(wanted: Wanted, now_ms: u64, seed: u64) -> Tracking {
        let counters = (wanted.count * COUNTERS_PER_KEY).max(COUNTERS_MIN);
        Tracking {
            rng: Rng::new(seed ^ now_ms),
            started_ms: now_ms,
            ended_ms: None,
            left: 1,
            by_nanos: Sketch::new(counters),
            by_bytes: Sketch::new(counters),
            nanos: [0; 3],
            bytes: [0; 3],
            selected: 0,
            untimed: Vec::new(),
            wanted,
        }
    }

    /// When it ends by itself; never: `u64::MAX`.
    #[must_use]
    pub fn until_ms(&self) -> u64 {
        let duration_ms = self.wanted.duration_ms;
        duration_ms.map_or(u64::MAX, |ms| self.started_ms.saturating_add(ms))
    }

    #[must_use]
    pub fn is_active(&self, now_ms: u64) -> bool {
        self.ended_ms.is_none() && now_ms < self.until_ms()
    }

    pub fn stop(&mut self, now_ms: u64) {
        self.ended_ms.get_or_insert(now_ms.min(self.until_ms()));
    }

    /// A key was used.
    pub fn note(&mut self, (slot, hash, key): (Slot, u64, &[u8]), bytes: u64) {
        let [all, selected, sampled] = &mut self.bytes;
        *all += bytes;
        if !self.wanted.slots.is_empty() && self.wanted.slots.binary_search(&slot.0).is_err() {
            return;
        }
        *selected += bytes;
        self.selected += 1;
        self.left -= 1;
        if self.left > 0 || self.untimed.len() == UNTIMED_MAX {
            self.left = self.left.max(1);
            return;
        }
        self.left = self.rng.between(1, 2 * self.wanted.ratio);
        *sampled += bytes;
        self.by_bytes.add(hash, key, bytes);
        self.untimed.push((hash, key.into()));
    }

    /// The clock was read: what was executed has taken so long in all, and each use of a key.
    pub fn note_time(&mut self, nanos: u64, each: u64) {
        let [all, selected, sampled] = &mut self.nanos;
        *all += nanos;
        *selected += each * std::mem::take(&mut self.selected);
        *sampled += each * self.untimed.len() as u64;
        for (hash, key) in self.untimed.drain(..) {
            self.by_nanos.add(hash, &key, each);
        }
    }

    /// What was found; `slots` are those of the shard.
    #[must_use]
    pub fn found(&self, now_ms: u64, slots: impl Iterator<Item = (u16, u16)>) -> Found {
        let is_active = self.is_active(now_ms);
        let end_ms = self.ended_ms.unwrap_or(now_ms.min(self.until_ms()));
        let has_slots = !self.wanted.slots.is_empty();
        let told = |sketch: &Sketch| {
            let top = sketch.top(self.wanted.count).into_iter();
            top.map(|(key, number)| (shown(key), number)).collect()
        };
        Found {
            is_active,
            has_cpu: self.wanted.cpu,
            has_net: self.wanted.net,
            count: self.wanted.count as u64,
            ratio: self.wanted.ratio,
            has_slots,
            started_ms: self.started_ms,
            duration_ms: end_ms.saturating_sub(self.started_ms),
            nanos: self.nanos,
            bytes: self.bytes,
            slots: match has_slots {
                true => self
                    .wanted
                    .slots
                    .iter()
                    .map(|slot| (*slot, *slot))
                    .collect(),
                false => slots.collect(),
            },
            by_nanos: told(&self.by_nanos),
            by_bytes: told(&self.by_bytes),
            ..Found::default()
        }
    }
}

/// A key as clients name it; of a long one its beginning, as the slow log shows long arguments.
fn shown(key: &Key) -> Vec<u8> {
    let (_, name) = database::split(&key.name);
    let more = key.len - key.name.len();
    match more {
        0 => name.to_vec(),
        more => [name, format!("... ({more} more bytes)").as_bytes()].concat(),
    }
}
