//! The threads that prepare, recycle and remove log segments for all shards: zero-filling with direct I/O
//! never holds a shard up.
//!
//! They block. A thread of zeroes has one piece under way and sleeps until it is written; an executor
//! would poll for its completion, on a CPU that a shard has a use for.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use ephesus_wal::{LogFiles, LogOptions, StdDisk, WalError};
use futures_lite::future::block_on;

use crate::shard::segments::{Done, Job, Jobs, Work};

/// One thread writes zeroes about as fast as a disk takes them; several, so that the shards of a large
/// machine do not wait behind each other's file operations.
const THREADS_MAX: u16 = 4;

/// Zeroes are written, and synced, in pieces of this many bytes: a log's write waits little behind one.
const PIECE_BYTES: usize = 256 << 10;

/// Before each piece the disk is left to others, for about as long as one takes.
const PAUSE: Duration = Duration::from_micros(500);

/// The threads; they end when every sender of jobs is gone.
#[derive(Debug)]
pub struct SegmentThreads(Vec<JoinHandle<()>>);

impl SegmentThreads {
    /// Starts as many as so many shards have a use for.
    ///
    /// # Errors
    /// When the operating system has no more threads.
    pub fn start(shards: u16) -> io::Result<(Jobs, SegmentThreads)> {
        let (jobs, queue) = flume::unbounded::<Job>();
        let threads = (0..shards.clamp(1, THREADS_MAX)).map(|_| {
            let queue = queue.clone();
            let thread = std::thread::Builder::new().name("segments".into());
            thread.spawn(move || serve(&queue))
        });
        let threads = threads.collect::<io::Result<Vec<_>>>()?;
        Ok((jobs, SegmentThreads(threads)))
    }

    /// Waits for their end.
    pub fn join(self) {
        for thread in self.0 {
            if thread.join().is_err() {
                tracing::error!("a segment thread ended in a panic");
            }
        }
    }
}

fn serve(queue: &flume::Receiver<Job>) {
    while let Ok(job) = queue.recv() {
        let Job {
            mut files,
            options,
            work,
            is_late,
            done,
            waker,
        } = job;
        // The disk's futures complete at once.
        let answer = block_on(carry_out(work, &mut files, &options, &is_late));
        // A shard that has ended needs no answer.
        let _ = done.try_send((files, answer));
        waker.wake();
    }
}

async fn carry_out(
    work: Work,
    files: &mut LogFiles<StdDisk>,
    options: &LogOptions,
    is_late: &AtomicBool,
) -> Result<Done, WalError> {
    let goes_on = || {
        let is_late = || is_late.load(Ordering::Relaxed);
        if !is_late() {
            sleep(PAUSE);
        }
        !is_late()
    };
    Ok(match work {
        Work::Prepare(id) => {
            let made = files.prepare_with(options, id, PIECE_BYTES, goes_on);
            Done::Ready(made.await?)
        }
        Work::Recycle { from, to } => Done::Ready(files.recycle(options, from, to).await?),
        Work::Reuse { shelved, to } => Done::Ready(files.reuse(options, shelved, to).await?),
        Work::Shelve(old) => {
            files.shelve(options, old).await?;
            Done::Shelved(old)
        }
        Work::Remove(old) => {
            files.discard(old).await?;
            Done::Removed
        }
    })
}
