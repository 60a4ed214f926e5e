use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::record::Latencies;

pub(super) const BLOCK_BYTES: usize = 4096;
/// What a shard's log has on its way to the disk at most.
const GROUP_BYTES: usize = 1 << 20;
/// Such writes at once.
const GROUPS: usize = 8;
pub(super) const WRITE_BYTES_MAX: usize = GROUP_BYTES;
const FILE_BYTES: u64 = 64 << 20;

#[derive(Clone, Copy, bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct Aligned([u8; WRITE_BYTES_MAX]);

/// A file without a name on a disk, whose blocks are there before they are written.
pub(crate) struct Scratch {
    file: File,
    /// Its writes are durable when they return.
    synced: File,
    /// Writes go past the page cache, which not every file system allows.
    pub(super) is_direct: bool,
    bytes: u64,
    block: Box<Aligned>,
}

/// What writes of one kind have come to.
pub(crate) struct Driven {
    pub(crate) per_s: f64,
    pub(crate) mb_per_s: f64,
    /// Of each write, until it was durable.
    pub(crate) latencies: Latencies,
}

impl Scratch {
    /// Large enough for long sequential writes.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        Self::of(FILE_BYTES, dir)
    }

    pub(super) fn of(bytes: u64, dir: &Path) -> Result<Self> {
        Self::open(bytes, dir).map_err(BenchError::io(dir.display().to_string()))
    }

    fn open(bytes: u64, dir: &Path) -> io::Result<Self> {
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
        for offset in (0..bytes).step_by(WRITE_BYTES_MAX) {
            file.write_all_at(&block.0, offset)?;
        }
        file.sync_all()?;
        block.0.fill(1);
        Ok(Scratch {
            file,
            synced,
            is_direct,
            bytes,
            block,
        })
    }

    /// One small durable write.
    pub(super) fn write_block(&self) -> io::Result<()> {
        self.synced.write_all_at(&self.block.0[..BLOCK_BYTES], 0)
    }

    /// Durable writes of so many bytes one after the other through the file, so many at a time.
    ///
    /// # Errors
    /// When a write fails, or a signal interrupts.
    pub(crate) fn write(&self, of: (usize, usize), duration: Duration) -> Result<Driven> {
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
    ///
    /// # Errors
    /// When a write fails, or a signal interrupts.
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
                write(&self.block.0[..bytes], turn * bytes as u64 % self.bytes)?;
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
        let latencies: Latencies = parts.map_err(BenchError::io("writing"))?.iter().sum();
        let per_s = latencies.count() as f64 / began.elapsed().as_secs_f64();
        Ok(Driven {
            per_s,
            mb_per_s: per_s * bytes as f64 / 1e6,
            latencies,
        })
    }
}
