//! The clock of one simulated machine: it goes a few per cent too fast or too slow.

use ephesus_wire::rng::Rng;

/// Slowest and fastest clocks, thousandths of true time.
const RATE: (u64, u64) = (960, 1_040);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    offset_ms: u64,
    /// Thousandths of true time.
    rate: u64,
}

impl Clock {
    pub(crate) fn any(rng: &mut Rng) -> Clock {
        Clock {
            offset_ms: rng.below(100_000),
            rate: RATE.0 + rng.below(RATE.1 - RATE.0 + 1),
        }
    }

    /// What it shows at a moment of true time.
    pub(crate) fn at(&self, true_ms: u64) -> u64 {
        self.offset_ms + true_ms * self.rate / 1_000
    }

    /// The first moment of true time at which it shows `local_ms`, or more.
    pub(crate) fn when(&self, local_ms: u64) -> u64 {
        (local_ms.saturating_sub(self.offset_ms) * 1_000).div_ceil(self.rate)
    }
}
