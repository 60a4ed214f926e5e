use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ephesus_wire::rng::Rng;
use serde::Serialize;

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

#[derive(Clone, Debug)]
pub enum Indexes {
    Below(u64),
    These(Arc<[u32]>),
}

impl Indexes {
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

#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Places given out in their order.
    next: AtomicU64,
    /// Keys that inserts have begun with.
    claimed: AtomicU64,
    inserted: AtomicU64,
}

/// YCSB draws ranks of so many items, and hashes them to keys; that zeta is its constant, too.
const SCRAMBLED_RANKS: u64 = 10_000_000_000;

const HOT_KEYS: f64 = 0.2;
const HOT_OPS: f64 = 0.8;

#[derive(Debug)]
pub(super) struct Draw {
    indexes: Indexes,
    distribution: Distribution,
    zipfian: Zipfian,
    counters: Arc<Counters>,
}

impl Draw {
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

    pub(super) fn claim(&self) -> u64 {
        self.indexes.count() + self.counters.claimed.fetch_add(1, Ordering::Relaxed)
    }

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

const THETA: f64 = 0.99;

/// Terms of zeta that are summed one by one; the rest is the integral with its first corrections, which is exact to
/// ten digits behind so many.
const SUMMED: u64 = 1000;

/// Ranks from 0, of which `r` is drawn in proportion to `1 / (r + 1)^0.99`: Gray and others, "Quickly generating
/// billion-record synthetic databases", SIGMOD 1994. Ranks 0 and 1 are exact, higher ones close.
#[derive(Clone, Debug)]
pub(super) struct Zipfian {
    ranks: u64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    pub(super) fn new(ranks: u64) -> Self {
        let ranks = ranks.max(1);
        Zipfian::with(ranks, zeta(ranks))
    }

    fn with(ranks: u64, zeta: f64) -> Self {
        let eta = (1.0 - (2.0 / ranks as f64).powf(1.0 - THETA)) / (1.0 - zeta_of_two() / zeta);
        Zipfian { ranks, zeta, eta }
    }

    /// Adds ranks, at the cost of those that are new.
    pub(super) fn grow(&mut self, ranks: u64) {
        if ranks > self.ranks {
            let new: f64 = (self.ranks + 1..=ranks).map(|i| term(i as f64)).sum();
            *self = Zipfian::with(ranks, self.zeta + new);
        }
    }

    pub(super) fn draw(&self, random: &mut Rng) -> u64 {
        let uniform = unit(random);
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < zeta_of_two() {
            return 1.min(self.ranks - 1);
        }
        let spread = (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - THETA));
        ((self.ranks as f64 * spread) as u64).min(self.ranks - 1)
    }
}

fn zeta_of_two() -> f64 {
    1.0 + 0.5_f64.powf(THETA)
}

fn term(i: f64) -> f64 {
    i.powf(-THETA)
}

/// The sum of `1 / i^0.99` over `1..=n`.
pub(super) fn zeta(n: u64) -> f64 {
    let summed: f64 = (1..=n.min(SUMMED)).map(|i| term(i as f64)).sum();
    if n <= SUMMED {
        return summed;
    }
    let (from, to) = (SUMMED as f64, n as f64);
    let integral = (to.powf(1.0 - THETA) - from.powf(1.0 - THETA)) / (1.0 - THETA);
    let slope = |i: f64| -THETA * i.powf(-THETA - 1.0);
    summed + integral + (term(to) - term(from)) / 2.0 + (slope(to) - slope(from)) / 12.0
}

pub(super) fn unit(random: &mut Rng) -> f64 {
    (random.draw() >> 11) as f64 / (1_u64 << 53) as f64
}
