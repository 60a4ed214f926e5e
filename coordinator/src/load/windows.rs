//! Averages over the last second, minute and ten minutes, each of a few numbers.

/// Lengths of the windows, seconds.
pub const WINDOWS_S: [f64; 3] = [1.0, 60.0, 600.0];

/// What was done in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Commands, or keys of commands that have several.
    pub ops: u64,
    /// Bytes of requests.
    pub bytes_in: u64,
    /// Bytes of replies.
    pub bytes_out: u64,
    /// CPU time, ns.
    pub cpu_ns: u64,
}

impl Amount {
    /// What was done since `before`; what was counted anew since is counted from 0 on.
    #[must_use]
    pub fn since(&self, before: &Amount) -> Amount {
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Amount {
            ops: since(self.ops, before.ops),
            bytes_in: since(self.bytes_in, before.bytes_in),
            bytes_out: since(self.bytes_out, before.bytes_out),
            cpu_ns: since(self.cpu_ns, before.cpu_ns),
        }
    }
}

/// What is done per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Commands, or keys of commands that have several.
    pub ops: f32,
    /// Bytes of requests.
    pub bytes_in: f32,
    /// Bytes of replies.
    pub bytes_out: f32,
    /// Seconds of CPU time: the share of a CPU.
    pub cpu: f32,
}

impl Rates {
    fn of(amount: &Amount, seconds: f64) -> Rates {
        let per_second = |count: u64, unit: f64| (count as f64 / unit / seconds) as f32;
        Rates {
            ops: per_second(amount.ops, 1.0),
            bytes_in: per_second(amount.bytes_in, 1.0),
            bytes_out: per_second(amount.bytes_out, 1.0),
            cpu: per_second(amount.cpu_ns, 1e9),
        }
    }

    pub(super) fn map(&self, of: impl Fn(f32) -> f32) -> Rates {
        Rates {
            ops: of(self.ops),
            bytes_in: of(self.bytes_in),
            bytes_out: of(self.bytes_out),
            cpu: of(self.cpu),
        }
    }

    fn mixed(&self, keep: f32, with: &Rates) -> Rates {
        let mix = |old: f32, new: f32| old * keep + new * (1.0 - keep);
        Rates {
            ops: mix(self.ops, with.ops),
            bytes_in: mix(self.bytes_in, with.bytes_in),
            bytes_out: mix(self.bytes_out, with.bytes_out),
            cpu: mix(self.cpu, with.cpu),
        }
    }
}

/// Exponentially decaying averages, by window.
///
/// What lies `t` seconds back has the weight `exp(-t / window)`. Only what was seen has weight at all: in their first
/// seconds, too, averages are of what was measured, and not of the nothing before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Windows {
    sums: [Rates; WINDOWS_S.len()],
    /// Of all that was seen, by window; towards 1.
    weights: [f32; WINDOWS_S.len()],
}

impl Windows {
    /// So much was done in the next so many seconds.
    pub fn pass(&mut self, amount: &Amount, seconds: f64) {
        if seconds <= 0.0 {
            return;
        }
        let rates = Rates::of(amount, seconds);
        let windows = self.sums.iter_mut().zip(&mut self.weights);
        for ((sum, weight), window) in windows.zip(WINDOWS_S) {
            let keep = (-seconds / window).exp() as f32;
            *sum = sum.mixed(keep, &rates);
            *weight = *weight * keep + (1.0 - keep);
        }
    }

    /// What was done per second, by window.
    #[must_use]
    pub fn rates(&self) -> [Rates; WINDOWS_S.len()] {
        let mut rates = self.sums;
        for (rates, weight) in rates.iter_mut().zip(self.weights) {
            let scale = if weight > 0.0 { weight.recip() } else { 0.0 };
            *rates = rates.map(|sum| sum * scale);
        }
        rates
    }
}
