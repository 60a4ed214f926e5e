//! A seeded generator (SplitMix64), so that every random test prints a seed and can be repeated.

/// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed of this run: `EPHESUS_SEED`, else one from the clock; printed either way.
    pub fn seed_of_run(what: &str) -> u64 {
        let seed = match std::env::var("EPHESUS_SEED") {
            Ok(text) => text
                .parse()
                .unwrap_or_else(|_| panic!("EPHESUS_SEED must be a number, not {text:?}")),
            Err(_) => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |since| since.as_nanos() as u64),
        };
        eprintln!("{what}: EPHESUS_SEED={seed}");
        seed
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`; `bound` must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// A number in `low..high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low)
    }

    /// True once in `n` calls on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.draw() as u8).collect()
    }

    /// An independent generator for a thread or a round.
    pub fn fork(&mut self) -> Self {
        Self(self.draw())
    }
}
