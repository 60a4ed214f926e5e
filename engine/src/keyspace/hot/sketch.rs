//! Space-Saving: the keys with the largest counts, in a fixed number of counters.
//!
//! Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005. A
//! key without a counter takes over that with the smallest count, and inherits the count as its error. So a count is
//! never too small, at most by its error too large, and no error exceeds what was counted in all divided by the number
//! of counters: every key with more than that has a counter.

use ephesus_wire::{Slot, database, slot_of};

/// Bytes of a key as clients name it that are kept.
const NAME_BYTES_MAX: usize = 128;

/// A key as it is stored: all of it, or the beginning of a long one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its first bytes, which end with a character, and what is in front of them if it is of another database than 0.
    pub name: Box<[u8]>,
    /// How long it is.
    pub len: usize,
    pub slot: Slot,
    pub hash: u64,
}

impl Key {
    fn new(hash: u64, key: &[u8]) -> Key {
        let (_, name) = database::split(key);
        let kept = key.len() - name.len() + beginning(name);
        Key {
            name: key.get(..kept).unwrap_or(key).into(),
            len: key.len(),
            slot: slot_of(key),
            hash,
        }
    }
}

/// How many bytes of a name are kept: a character whole or not at all.
fn beginning(name: &[u8]) -> usize {
    let begins = |at: &usize| name.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
    let ends = (NAME_BYTES_MAX - 3..=NAME_BYTES_MAX).rev();
    let end = ends.into_iter().find(begins);
    end.unwrap_or(NAME_BYTES_MAX).min(name.len())
}

#[derive(Clone, Debug)]
struct Counter {
    count: u64,
    error: u64,
    key: Key,
}

/// Counters by key. Keys are told apart by their hashes, of 64 bits that nobody outside knows.
#[derive(Debug)]
pub struct Sketch {
    most: usize,
    /// In the order of the counters: short, so that they are looked through.
    hashes: Vec<u64>,
    counters: Vec<Counter>,
    total: u64,
}

impl Sketch {
    /// With so many counters, one at least.
    #[must_use]
    pub fn new(most: usize) -> Sketch {
        Sketch {
            most: most.max(1),
            hashes: Vec::new(),
            counters: Vec::new(),
            total: 0,
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counters.is_empty()
    }

    /// All that was counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    fn position(&self, hash: u64) -> Option<usize> {
        self.hashes.iter().position(|known| *known == hash)
    }

    pub fn add(&mut self, hash: u64, key: &[u8], weight: u64) {
        if weight == 0 {
            return;
        }
        self.total += weight;
        if let Some(counter) = self.position(hash).and_then(|at| self.counters.get_mut(at)) {
            counter.count += weight;
            return;
        }
        if self.counters.len() < self.most {
            self.hashes.push(hash);
            self.counters.push(Counter {
                count: weight,
                error: 0,
                key: Key::new(hash, key),
            });
            return;
        }
        let counters = self.counters.iter_mut().zip(&mut self.hashes);
        if let Some((counter, known)) = counters.min_by_key(|(counter, _)| counter.count) {
            *known = hash;
            *counter = Counter {
                count: counter.count + weight,
                error: counter.count,
                key: Key::new(hash, key),
            };
        }
    }

    /// What was counted of a key at least; 0 if it has no counter.
    #[must_use]
    pub fn least(&self, hash: u64) -> u64 {
        let counter = self.position(hash).and_then(|at| self.counters.get(at));
        counter.map_or(0, |counter| counter.count - counter.error)
    }

    /// The keys of which the most was counted, and how much at least.
    #[must_use]
    pub fn top(&self, most: usize) -> Vec<(&Key, u64)> {
        let counters = self.counters.iter();
        let all = counters.map(|counter| (&counter.key, counter.count - counter.error));
        let mut all: Vec<(&Key, u64)> = all.filter(|(_, least)| *least > 0).collect();
        all.sort_by_key(|(_, least)| std::cmp::Reverse(*least));
        all.truncate(most);
        all
    }

    /// Halves all counts; keys of which nothing is known any more have no counter.
    pub fn halve(&mut self) {
        for counter in &mut self.counters {
            // An error that were rounded down more than its count would be too small.
            counter.error = counter.error.div_ceil(2);
            counter.count = (counter.count / 2).max(counter.error);
        }
        self.total /= 2;
        self.retain(|counter| counter.count > counter.error);
    }

    /// Forgets the keys of other slots.
    pub fn keep(&mut self, is_kept: impl Fn(Slot) -> bool) {
        self.retain(|counter| is_kept(counter.key.slot));
    }

    fn retain(&mut self, is_kept: impl Fn(&Counter) -> bool) {
        let counters = std::mem::take(&mut self.counters).into_iter();
        let all = counters.zip(std::mem::take(&mut self.hashes));
        let (kept, gone): (Vec<_>, Vec<_>) = all.partition(|(counter, _)| is_kept(counter));
        (self.counters, self.hashes) = kept.into_iter().unzip();
        let gone = gone
            .iter()
            .map(|(counter, _)| counter.count - counter.error);
        self.total = match self.is_empty() {
            true => 0,
            false => self.total.saturating_sub(gone.sum()),
        };
    }
}
