//! What `HOTKEYS` looks at in one shard, while it does.

use ephesus_wire::rng::Rng;
use ephesus_wire::{Slot, database};

use super::Sketch;
use super::sketch::Key;
use crate::command::hotkeys::{Found, Taken, ranges};
use crate::node::hotkeys::Session;

/// Counters for each key that is told: what is hotter than a part of all that small is found.
const COUNTERS_PER_KEY: usize = 8;

/// Counters at least.
const COUNTERS_MIN: usize = 128;

/// Uses between two readings of the clock that are looked at, at most.
const UNTIMED_MAX: u64 = 4096;

/// One look at a shard's keys.
#[derive(Debug)]
pub struct Tracking {
    session: Session,
    rng: Rng,
    /// Uses until one is looked at.
    left: u64,
    by_nanos: Sketch,
    by_bytes: Sketch,
    /// Of all uses, of those of selected slots, and of those of them that were looked at.
    nanos: [u64; 3],
    bytes: [u64; 3],
    /// Uses since the clock was read, and the keys of those looked at.
    uses: [u64; 3],
    untimed: Vec<(u64, Box<[u8]>)>,
}

impl Tracking {
    #[must_use]
    pub fn new(session: Session, seed: u64) -> Tracking {
        let counters = (session.wanted.count * COUNTERS_PER_KEY).max(COUNTERS_MIN);
        Tracking {
            rng: Rng::new(seed),
            left: 1,
            by_nanos: Sketch::new(counters),
            by_bytes: Sketch::new(counters),
            nanos: [0; 3],
            bytes: [0; 3],
            uses: [0; 3],
            untimed: Vec::new(),
            session,
        }
    }

    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// A key was used; its hash is asked for if that is looked at.
    pub fn note(&mut self, (slot, key, bytes): (Slot, &[u8], u64), hash: impl FnOnce() -> u64) {
        let wanted = &self.session.wanted;
        let [all, selected, sampled] = &mut self.uses;
        let [all_bytes, selected_bytes, sampled_bytes] = &mut self.bytes;
        *all += 1;
        *all_bytes += bytes;
        if !wanted.slots.is_empty() && wanted.slots.binary_search(&slot.0).is_err() {
            return;
        }
        *selected += 1;
        *selected_bytes += bytes;
        self.left -= 1;
        if self.left > 0 || *sampled == UNTIMED_MAX {
            self.left = self.left.max(1);
            return;
        }
        self.left = self.rng.between(1, 2 * wanted.ratio);
        *sampled += 1;
        *sampled_bytes += bytes;
        let hash = hash();
        if wanted.net {
            self.by_bytes.add(hash, key, bytes);
        }
        if wanted.cpu {
            self.untimed.push((hash, key.into()));
        }
    }

    /// The clock was read: each use since it was read before has taken so long.
    pub fn note_time(&mut self, each: u64) {
        for (nanos, uses) in self.nanos.iter_mut().zip(&mut self.uses) {
            *nanos += each * std::mem::take(uses);
        }
        for (hash, key) in self.untimed.drain(..) {
            self.by_nanos.add(hash, &key, each);
        }
    }

    /// What was found by now.
    #[must_use]
    pub fn found(&self, now_ms: u64) -> Found {
        let (session, wanted) = (&self.session, &self.session.wanted);
        let told = |sketch: &Sketch| {
            let top = sketch.top(wanted.count).into_iter();
            let told = top.map(|(key, number)| Taken {
                hash: key.hash,
                key: shown(key),
                number,
            });
            told.collect()
        };
        Found {
            session: session.number,
            has_cpu: wanted.cpu,
            has_net: wanted.net,
            count: wanted.count as u64,
            ratio: wanted.ratio,
            has_slots: !wanted.slots.is_empty(),
            started_ms: session.started_ms,
            duration_ms: now_ms
                .min(session.until_ms())
                .saturating_sub(session.started_ms),
            nanos: self.nanos,
            bytes: self.bytes,
            net_bytes: self.by_bytes.total(),
            slots: ranges(wanted.slots.iter().map(|slot| (*slot, *slot))),
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
