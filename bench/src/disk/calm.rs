//! Waiting for a disk that answers: latencies are not measured while it stands still for others.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::{Aligned, BLOCK_BYTES, in_scratch, open_durable};
use crate::error::Result;
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
    in_scratch(dir, "disk-calm.tmp", |path| wait(path, quiet, at_most))
}

fn wait(path: &Path, quiet: Duration, at_most: Duration) -> io::Result<Option<Duration>> {
    let block: Box<Aligned> = bytemuck::zeroed_box();
    let block = &block.0[..BLOCK_BYTES];
    fs::write(path, block)?;
    let (file, _) = open_durable(path)?;
    let began = Instant::now();
    let mut calm_since = began;
    while began.elapsed() < at_most && !interrupt::requested() {
        let write = Instant::now();
        file.write_all_at(block, 0)?;
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
