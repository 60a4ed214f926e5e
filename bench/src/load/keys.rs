use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ephesus_wire::rng::Rng;
use serde::Serialize;

use super::zipf::{Zipfian, unit};

/// Which keys are taken how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// each as often as any other
    #[default]
    Uniform,
    /// YCSB's scrambled zipfian, theta 0.99: popular keys lie anywhere
    Zipfian,
    /// zipfian, the newest keys are the most popular ones
    Latest,
    /// one after the other, over and over
    Sequential,
    /// 80% of the operations on the first 20% of the keys
    Hotspot,
    /// each once
    #[value(skip)]
    Once,
}

/// Indexes of keys.
#[derive(Clone, Debug)]
pub enum Indexes {
    /// All below.
    Below(u64),
    /// These.
    These(Arc<[u32]>),
}

impl Indexes {
    /// How many.
    pub fn count(&self) -> u64 {
        match self {
            Indexes::Below(count) => *count,
            Indexes::These(indexes) => indexes.len() as u64,
        }
    }

    fn at(&self, place: u64) -> u64 {
        match self {
            Indexes::Below(_) => place,
            Indexes::These(indexes) => u64::from(indexes[place as usize]),
        }
    }
}

/// What executors count together.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Places given out in their order.
    next: AtomicU64,
    /// Keys that inserts have begun with.
    claimed: AtomicU64,
    /// Keys inserted.
    inserted: AtomicU64,
}

/// YCSB draws ranks of so many items, and hashes them to keys; that zeta is its constant, too.
const SCRAMBLED_RANKS: u64 = 10_000_000_000;

const HOT_KEYS: f64 = 0.2;
const HOT_OPS: f64 = 0.8;

/// Draws keys, as one executor does.
#[derive(Debug)]
pub(super) struct Draw {
    indexes: Indexes,
    distribution: Distribution,
    zipfian: Zipfian,
    counters: Arc<Counters>,
}

impl Draw {
    /// From at least one key.
    pub(super) fn new(
        indexes: Indexes,
        distribution: Distribution,
        counters: Arc<Counters>,
    ) -> Self {
        let zipfian = Zipfian::new(match distribution {
            Distribution::Zipfian => SCRAMBLED_RANKS,
            _ => indexes.count(),
        });
        Draw {
            indexes,
            distribution,
            zipfian,
            counters,
        }
    }

    /// The index of a key; none after the last one.
    pub(super) fn draw(&mut self, random: &mut Rng) -> Option<u64> {
        let count = self.indexes.count();
        let place = match self.distribution {
            Distribution::Uniform => random.below(count),
            Distribution::Zipfian => fnv(self.zipfian.draw(random)) % count,
            Distribution::Latest => return Some(self.latest(random)),
            Distribution::Sequential => self.counters.next.fetch_add(1, Ordering::Relaxed) % count,
            Distribution::Hotspot => {
                let hot = ((count as f64 * HOT_KEYS) as u64).clamp(1, count);
                match unit(random) < HOT_OPS || hot == count {
                    true => random.below(hot),
                    false => random.between(hot, count),
                }
            }
            Distribution::Once => {
                let next = self.counters.next.fetch_add(1, Ordering::Relaxed);
                return (next < count).then(|| self.indexes.at(next));
            }
        };
        Some(self.indexes.at(place))
    }

    fn latest(&mut self, random: &mut Rng) -> u64 {
        let there = self.indexes.count() + self.counters.inserted.load(Ordering::Relaxed);
        self.zipfian.grow(there);
        let place = there - 1 - self.zipfian.draw(random);
        match place < self.indexes.count() {
            true => self.indexes.at(place),
            false => place,
        }
    }

    /// The index of a key that is not there yet.
    pub(super) fn claim(&self) -> u64 {
        self.indexes.count() + self.counters.claimed.fetch_add(1, Ordering::Relaxed)
    }

    /// One that was claimed is there.
    pub(super) fn inserted(&self) {
        self.counters.inserted.fetch_add(1, Ordering::Relaxed);
    }
}

/// FNV-1 of eight bytes in YCSB's order of steps.
fn fnv(mut value: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for _ in 0..8 {
        hash = (hash ^ (value & 0xff)).wrapping_mul(1_099_511_628_211);
        value >>= 8;
    }
    (hash as i64).unsigned_abs()
}
