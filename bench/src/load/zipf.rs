use ephesus_wire::rng::Rng;

/// Of YCSB.
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
    /// Of at least one rank.
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

/// Uniform in 0..1.
pub(super) fn unit(random: &mut Rng) -> f64 {
    (random.draw() >> 11) as f64 / (1_u64 << 53) as f64
}
