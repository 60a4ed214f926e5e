//! Waiting for a disk that answers: latencies are not measured while it stands still for others.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::scratch::{Scratch, WRITE_BYTES_MAX};
use crate::error::{BenchError, Result};
use crate::interrupt;

/// A 4 KiB `O_DSYNC` write that takes so long has waited for something else.
const SLOW: Duration = Duration::from_millis(8);

/// One write so often.
const EVERY: Duration = Duration::from_millis(4);

/// Writes small blocks until none of them has been slow for `quiet`, at most for `at_most`; answers how
/// long that took, none when it has not come to that.
///
/// A hypervisor that takes back memory which processes have given up keeps the disks of the machine
/// waiting meanwhile, some tens of ms every 2 s for up to a minute.
///
/// # Errors
/// When the directory cannot be written.
pub fn await_calm(dir: &Path, quiet: Duration, at_most: Duration) -> Result<Option<Duration>> {
    let scratch = Scratch::of(WRITE_BYTES_MAX as u64, dir)?;
    let began = Instant::now();
    let mut calm_since = began;
    while began.elapsed() < at_most {
        interrupt::check()?;
        let write = Instant::now();
        scratch.write_block().map_err(BenchError::io("writing"))?;
        if write.elapsed() >= SLOW {
            calm_since = Instant::now();
        }
        if calm_since.elapsed() >= quiet {
            return Ok(Some(began.elapsed()));
        }
        thread::sleep(EVERY);
    }
    Ok(None)
}
