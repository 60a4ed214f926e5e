use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use tempfile::NamedTempFile;

use crate::error::{During, Result};
use crate::interrupt;
use crate::record::Latencies;

pub(super) const BLOCK_BYTES: usize = 4096;
/// What a shard's log has on its way to the disk at most.
pub(super) const GROUP_BYTES: usize = 1 << 20;
const GROUPS: usize = 8;
const FILE_BYTES: u64 = 64 << 20;
/// A 4 KiB `O_DSYNC` write that takes so long has waited for something else.
const SLOW: Duration = Duration::from_millis(8);
const PAUSE: Duration = Duration::from_millis(4);

#[derive(Clone, Copy, bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct Aligned([u8; GROUP_BYTES]);

/// A file without a name on a disk, whose blocks are there before they are written.
pub struct Scratch {
    file: File,
    /// Its writes are durable when they return.
    synced: File,
    /// Writes go past the page cache, which not every file system allows.
    pub(super) is_direct: bool,
    block: Box<Aligned>,
}

pub struct Driven {
    pub per_s: f64,
    pub mb_per_s: f64,
    /// Of each write, until it was durable.
    pub latencies: Latencies,
}

impl Scratch {
    pub fn new(dir: &Path) -> Result<Self> {
        Self::open(dir).during(dir.display())
    }

    fn open(dir: &Path) -> io::Result<Self> {
        let named = NamedTempFile::new_in(dir)?;
        let open = |flags: i32| {
            let mut options = fs::OpenOptions::new();
            options.write(true).custom_flags(flags).open(named.path())
        };
        let (file, is_direct) = match open(libc::O_DIRECT) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => (open(0)?, false),
            file => (file?, true),
        };
        let direct = if is_direct { libc::O_DIRECT } else { 0 };
        let synced = open(direct | libc::O_DSYNC)?;
        let mut block: Box<Aligned> = bytemuck::zeroed_box();
        for offset in (0..FILE_BYTES).step_by(GROUP_BYTES) {
            file.write_all_at(&block.0, offset)?;
        }
        file.sync_all()?;
        block.0.fill(1);
        Ok(Scratch {
            file,
            synced,
            is_direct,
            block,
        })
    }

    /// Durable writes of so many bytes one after the other through the file, so many at a time.
    pub fn write(&self, of: (usize, usize), duration: Duration) -> Result<Driven> {
        self.drive(of, duration, |block, at| {
            self.synced.write_all_at(block, at)
        })
    }

    /// The same by a sync behind each write.
    pub(super) fn write_and_sync(&self, of: (usize, usize), duration: Duration) -> Result<Driven> {
        self.drive(of, duration, |block, at| {
            self.file.write_all_at(block, at)?;
            self.file.sync_data()
        })
    }

    /// MB/s of a log's writes with as many of them at once as a log has, and one by one.
    pub(crate) fn log_mb_per_s(&self, duration: Duration) -> Result<[f64; 2]> {
        let rate = |at_a_time| Ok(self.write((GROUP_BYTES, at_a_time), duration)?.mb_per_s);
        Ok([rate(GROUPS)?, rate(1)?])
    }

    fn drive(
        &self,
        (bytes, at_a_time): (usize, usize),
        duration: Duration,
        write: impl Fn(&[u8], u64) -> io::Result<()> + Sync,
    ) -> Result<Driven> {
        let (next, began) = (AtomicU64::new(0), Instant::now());
        let run = || {
            let mut latencies = Latencies::default();
            // One at least, whenever the thread came to run.
            while latencies.count() == 0 || began.elapsed() < duration && !interrupt::requested() {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                let sent = Instant::now();
                write(&self.block.0[..bytes], turn * bytes as u64 % FILE_BYTES)?;
                latencies.record_ns(sent.elapsed().as_nanos() as u64);
            }
            Ok::<_, io::Error>(latencies)
        };
        let parts = thread::scope(|scope| {
            let writers: Vec<_> = (0..at_a_time).map(|_| scope.spawn(run)).collect();
            let panicked = |_| Err(io::Error::other("a writer has panicked"));
            let ended = writers.into_iter();
            let ended = ended.map(|writer| writer.join().unwrap_or_else(panicked));
            ended.collect::<io::Result<Vec<Latencies>>>()
        });
        interrupt::check()?;
        let latencies: Latencies = parts.during("writing")?.iter().sum();
        let per_s = latencies.count() as f64 / began.elapsed().as_secs_f64();
        Ok(Driven {
            per_s,
            mb_per_s: per_s * bytes as f64 / 1e6,
            latencies,
        })
    }
}

/// Writes small blocks until none of them has been slow for `quiet`, at most for `at_most`; whether it has come to that.
///
/// A hypervisor that takes back memory which processes have given up keeps the disks of the machine waiting meanwhile,
/// some tens of ms every 2 s for up to a minute.
pub(crate) fn await_calm(dir: &Path, quiet: Duration, at_most: Duration) -> Result<bool> {
    let scratch = Scratch::new(dir)?;
    let mut calm_since = Instant::now();
    interrupt::wait_until(at_most, PAUSE, || {
        let began = Instant::now();
        let written = scratch
            .synced
            .write_all_at(&scratch.block.0[..BLOCK_BYTES], 0);
        written.during("writing")?;
        if began.elapsed() >= SLOW {
            calm_since = Instant::now();
        }
        Ok(calm_since.elapsed() >= quiet)
    })
}
