use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{BenchError, Result};
use crate::interrupt;

use super::{FILE_BYTES, LARGEST_WRITE_BYTES, open_durable, zeroed_block};

/// What a shard's log has on its way to the disk at most.
pub const GROUP_BYTES: usize = 1 << 20;
/// Such writes at once.
pub const GROUPS: usize = 4;

/// MB/s of sequential O_DSYNC writes of [`GROUP_BYTES`] into a zero-filled file, so many `at_a_time`,
/// over `duration`; direct where the file system can.
///
/// # Errors
/// When the directory cannot be written.
pub fn in_flight_mb_per_s(dir: &Path, at_a_time: usize, duration: Duration) -> Result<f64> {
    let path = dir.join("disk-rate.tmp");
    let what = || BenchError::io(path.display().to_string());
    let rate = measure(&path, at_a_time, duration).map_err(what());
    fs::remove_file(&path).map_err(what())?;
    interrupt::check()?;
    rate
}

fn measure(path: &Path, at_a_time: usize, duration: Duration) -> io::Result<f64> {
    let mut block = zeroed_block();
    let prepare = File::create(path)?;
    for offset in (0..FILE_BYTES).step_by(LARGEST_WRITE_BYTES) {
        prepare.write_all_at(&block.0, offset)?;
    }
    prepare.sync_all()?;
    block.0.fill(1);
    let (file, _) = open_durable(path)?;
    let next = AtomicU64::new(0);
    let bytes = &block.0[..GROUP_BYTES];
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
