//! The threads that prepare, recycle and remove log segments for all shards: zero-filling with direct I/O
//! never holds a shard up.
//!
//! They block. A thread of zeroes has one piece under way and sleeps until it is written; an executor
//! would poll for its completion, on a CPU that a shard has a use for.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;

use ephesus_wal::{
    SegmentHandle, StdDisk, WalError, discard, prepare_with, recycle, reuse, shelve,
};
use futures_lite::future::block_on;

use crate::shard::segments::{Done, Job, Jobs, Work};

/// One thread writes zeroes about as fast as a disk takes them; several, so that the shards of a large
/// machine do not wait behind each other's file operations.
const THREADS_MAX: u16 = 4;

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
        Ok((Jobs::new(jobs), SegmentThreads(threads)))
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
        // The disk's futures complete at once.
        let done = block_on(work(&job)).unwrap_or_else(Done::Failed);
        // A shard that has ended needs no answer.
        let _ = job.done.try_send(done);
        job.waker.wake();
    }
}

async fn work(job: &Job) -> Result<Done, WalError> {
    let options = &job.options;
    let disk = StdDisk::new(&job.dir, options.durability);
    let disk = disk.map_err(|source| WalError::Io {
        op: "read",
        file: job.dir.display().to_string(),
        source,
    })?;
    match job.work {
        Work::Prepare(id) => ready(prepare_with(&disk, options, id, || job.pace.rest()).await?),
        Work::Recycle { from, to } => ready(recycle(&disk, options, from, to).await?),
        Work::Reuse { shelved, to } => ready(reuse(&disk, options, shelved, to).await?),
        Work::Shelve(old) => shelve(&disk, old).await.map(|()| Done::Shelved(old)),
        Work::Remove(old) => discard(&disk, old).await.map(|()| Done::Removed),
    }
}

/// A descriptor that outlives the thread's own file, for the shard's ring.
fn ready<F: AsRawFd>(handle: SegmentHandle<F>) -> Result<Done, WalError> {
    // SAFETY: the handle keeps the descriptor open until the end of this function.
    let file = unsafe { BorrowedFd::borrow_raw(handle.as_raw_fd()) };
    let duplicate: io::Result<OwnedFd> = file.try_clone_to_owned();
    let name = handle.info.id.file_name();
    let file = duplicate.map_err(|source| WalError::Io {
        op: "duplicate",
        file: name,
        source,
    })?;
    Ok(Done::Ready(handle.info, file))
}
