//! Commands that took long: the slow log, and the latest of them by the second. Shards come here only with such a command,
//! so what others ask about it keeps none waiting for long.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Arguments of one entry, and bytes of each, as in Redis.
const ARGS_MAX: usize = 32;
const ARG_BYTES_MAX: usize = 128;

/// Entries that may be asked for: each may have some 4 KiB.
pub const ENTRIES_MAX: u64 = 16 * 1024;

/// Seconds that are kept of which a command took long, as in Redis.
const SAMPLES_MAX: usize = 160;

/// A command that took long.
#[derive(Clone, Debug)]
pub struct SlowCommand {
    pub id: u64,
    /// Unix time.
    pub at_s: u64,
    pub usec: u64,
    pub args: Vec<Vec<u8>>,
    /// The client's `host:port`; empty if another shard has its connection.
    pub address: String,
    pub name: String,
}

/// The longest command of one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub at_s: u64,
    pub ms: u64,
}

#[derive(Debug, Default)]
pub struct Slow {
    next_id: AtomicU64,
    log: Mutex<VecDeque<SlowCommand>>,
    samples: Mutex<VecDeque<Sample>>,
    /// Of all that were sampled, ms.
    longest_ms: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The arguments as they are kept: cut, and without what is secret.
#[must_use]
pub fn kept<'a>(args: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let all = args.len();
    let shown = if all > ARGS_MAX { ARGS_MAX - 1 } else { all };
    let mut kept: Vec<Vec<u8>> = args.take(shown).map(cut).collect();
    if all > shown {
        kept.push(format!("... ({} more arguments)", all - shown).into_bytes());
    }
    kept
}

fn cut(arg: &[u8]) -> Vec<u8> {
    match arg.get(..ARG_BYTES_MAX) {
        Some(head) if arg.len() > ARG_BYTES_MAX => {
            let more = format!("... ({} more bytes)", arg.len() - ARG_BYTES_MAX);
            [head, more.as_bytes()].concat()
        }
        _ => arg.to_vec(),
    }
}

impl Slow {
    /// Adds a command to the log, which keeps `most`.
    pub fn log(&self, mut command: SlowCommand, most: u64) {
        let mut log = lock(&self.log);
        command.id = self.next_id.fetch_add(1, Ordering::Relaxed);
        log.push_front(command);
        log.truncate(usize::try_from(most.min(ENTRIES_MAX)).unwrap_or(usize::MAX));
    }

    /// The latest entries, the last one first.
    #[must_use]
    pub fn latest(&self, most: usize) -> Vec<SlowCommand> {
        lock(&self.log).iter().take(most).cloned().collect()
    }

    #[must_use]
    pub fn entries(&self) -> usize {
        lock(&self.log).len()
    }

    pub fn clear(&self) {
        lock(&self.log).clear();
    }

    /// Notes how long a command took.
    pub fn sample(&self, sample: Sample) {
        self.longest_ms.fetch_max(sample.ms, Ordering::Relaxed);
        let mut samples = lock(&self.samples);
        match samples.back_mut() {
            Some(last) if last.at_s == sample.at_s => last.ms = last.ms.max(sample.ms),
            _ => samples.push_back(sample),
        }
        if samples.len() > SAMPLES_MAX {
            samples.pop_front();
        }
    }

    /// Samples, the oldest first, and the longest of all.
    #[must_use]
    pub fn samples(&self) -> (Vec<Sample>, u64) {
        let samples = lock(&self.samples).iter().copied().collect();
        (samples, self.longest_ms.load(Ordering::Relaxed))
    }

    /// Forgets the samples; whether there were any.
    pub fn forget_samples(&self) -> bool {
        self.longest_ms.store(0, Ordering::Relaxed);
        let mut samples = lock(&self.samples);
        let had = !samples.is_empty();
        samples.clear();
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_requests_are_cut() {
        let (long, many) = (vec![b'x'; 1000], vec![&b"a"[..]; 100]);
        let args = kept([&b"SET"[..], &long].into_iter());
        assert_eq!(args[0], b"SET");
        assert!(args[1].ends_with(b"... (872 more bytes)"), "{args:?}");
        let args = kept(many.into_iter());
        assert_eq!(args.len(), 32);
        assert_eq!(args[31], b"... (69 more arguments)");
    }

    #[test]
    fn the_log_has_its_length_and_samples_one_a_second() {
        let slow = Slow::default();
        for usec in 0..10 {
            let command = SlowCommand {
                id: 0,
                at_s: 1,
                usec,
                args: Vec::new(),
                address: String::new(),
                name: String::new(),
            };
            slow.log(command, 4);
            slow.sample(Sample {
                at_s: usec / 2,
                ms: usec,
            });
        }
        let latest: Vec<u64> = slow.latest(3).iter().map(|entry| entry.id).collect();
        assert_eq!(latest, [9, 8, 7]);
        assert_eq!(slow.entries(), 4);
        let (samples, longest_ms) = slow.samples();
        assert_eq!(longest_ms, 9);
        assert_eq!(samples.len(), 5);
        assert_eq!(samples.last(), Some(&Sample { at_s: 4, ms: 9 }));
        assert!(slow.forget_samples() && !slow.forget_samples());
        slow.clear();
        assert_eq!(slow.entries(), 0);
    }
}
