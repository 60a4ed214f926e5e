//! `math.random` as in Redis: the same sequence for every script, by drand48's generator.

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const MODULUS: u64 = 1 << 48;

/// State of a generator.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    #[must_use]
    pub fn seeded(seed: i32) -> Random {
        Random((u64::from(seed as u32) << 16) | 0x330E)
    }

    /// A number from 0 to below 1, and the generator behind it.
    #[must_use]
    pub fn next(self) -> (f64, Random) {
        const MAX: u64 = i32::MAX as u64;
        let state = (self.0.wrapping_mul(MULTIPLIER) + 0xB) % MODULUS;
        ((((state >> 17) % MAX) as f64) / MAX as f64, Random(state))
    }
}
