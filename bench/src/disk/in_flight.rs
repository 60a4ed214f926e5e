use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::interrupt;

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
    in_scratch(dir, "disk-rate.tmp", |path| {
        measure(path, at_a_time, duration)
    })
}

fn measure<const N: usize>(
    path: &Path,
    at_a_time: [usize; N],
    duration: Duration,
) -> io::Result<[f64; N]> {
    let mut block = zero_filled(path)?;
    block.0.fill(1);
    let (file, _) = open_durable(path)?;
    let mut rates = [0.0; N];
    for (rate, at_a_time) in rates.iter_mut().zip(at_a_time) {
        *rate = drive(&file, &block.0[..GROUP_BYTES], at_a_time, duration)?;
    }
    Ok(rates)
}

fn drive(file: &File, bytes: &[u8], at_a_time: usize, duration: Duration) -> io::Result<f64> {
    let next = AtomicU64::new(0);
    let began = Instant::now();
    let write = || {
        while began.elapsed() < duration && !interrupt::requested() {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            file.write_all_at(bytes, turn * GROUP_BYTES as u64 % FILE_BYTES)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..at_a_time).map(|_| scope.spawn(write)).collect();
        let mut done = writers.into_iter().map(|writer| {
            let ended = writer.join();
            ended.unwrap_or_else(|_| Err(io::Error::other("a writer has panicked")))
        });
        done.try_for_each(|ended: io::Result<()>| ended)
    })?;
    let written = next.load(Ordering::Relaxed) * GROUP_BYTES as u64;
    Ok(written as f64 / 1e6 / began.elapsed().as_secs_f64())
}
