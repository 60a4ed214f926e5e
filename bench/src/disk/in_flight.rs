use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::interrupt;
use crate::record::Latencies;

use super::{FILE_BYTES, in_scratch, open_durable, zero_filled};

/// What a shard's log has on its way to the disk at most.
pub const GROUP_BYTES: usize = 1 << 20;
/// Such writes at once.
pub const GROUPS: usize = 8;

/// MB/s of sequential O_DSYNC writes of [`GROUP_BYTES`] into a zero-filled file, over `duration` for each
/// number of them `at_a_time`; direct where the file system can.
///
/// # Errors
/// When the directory cannot be written.
pub fn in_flight_mb_per_s<const N: usize>(
    dir: &Path,
    at_a_time: [usize; N],
    duration: Duration,
) -> Result<[f64; N]> {
    let sizes = at_a_time.map(|at_a_time| (GROUP_BYTES, at_a_time));
    Ok(durable(dir, sizes, duration)?.map(|driven| driven.mb_per_s))
}

/// The same for writes of so many bytes, so many at a time.
pub(crate) fn durable<const N: usize>(
    dir: &Path,
    writes: [(usize, usize); N],
    duration: Duration,
) -> Result<[Driven; N]> {
    in_scratch(dir, "disk-rate.tmp", |path| {
        let mut block = zero_filled(path)?;
        block.0.fill(1);
        let (file, _) = open_durable(path)?;
        let mut all = writes.map(|_| Driven::default());
        for (driven, (bytes, at_a_time)) in all.iter_mut().zip(writes) {
            let write = |offset| file.write_all_at(&block.0[..bytes], offset);
            *driven = drive(bytes, at_a_time, duration, write)?;
        }
        Ok(all)
    })
}

/// What writes of one kind have come to.
#[derive(Default)]
pub(crate) struct Driven {
    pub(crate) mb_per_s: f64,
    /// Of each write, until it was durable.
    pub(crate) latencies: Latencies,
}

/// Writes one after the other through the file, so many at a time.
pub(super) fn drive(
    bytes: usize,
    at_a_time: usize,
    duration: Duration,
    write: impl Fn(u64) -> io::Result<()> + Sync,
) -> io::Result<Driven> {
    let next = AtomicU64::new(0);
    let began = Instant::now();
    let run = || {
        let mut latencies = Latencies::default();
        // One at least, whenever the thread came to run.
        while latencies.count() == 0 || began.elapsed() < duration && !interrupt::requested() {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let sent = Instant::now();
            write(turn * bytes as u64 % FILE_BYTES)?;
            latencies.record_ns(sent.elapsed().as_nanos() as u64);
        }
        Ok::<_, io::Error>(latencies)
    };
    let mut latencies = Latencies::default();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..at_a_time).map(|_| scope.spawn(run)).collect();
        writers.into_iter().try_for_each(|writer| {
            let ended = writer.join();
            let panicked = || io::Error::other("a writer has panicked");
            latencies.add(&ended.map_err(|_| panicked())??);
            Ok::<_, io::Error>(())
        })
    })?;
    let written = latencies.count() * bytes as u64;
    Ok(Driven {
        mb_per_s: written as f64 / 1e6 / began.elapsed().as_secs_f64(),
        latencies,
    })
}
