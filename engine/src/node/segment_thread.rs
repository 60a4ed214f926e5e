//! The thread that prepares, recycles and removes log segments for all shards, on an executor of its
//! own: zero-filling with direct I/O never holds a shard up.
//!
//! It is apart from the shards' executors also because glommio 0.9 can go to sleep although tasks are
//! ready, when its preemption timer fires before the first of them has run; the heartbeat bounds such
//! a sleep.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::Duration;

use ephesus_coordinator::scheduling::keep_awake;
use ephesus_wal::{GlommioDisk, SegmentHandle, WalError, discard, prepare, recycle, reuse, shelve};
use glommio::{LocalExecutorBuilder, Placement};

use crate::shard::segments::{Done, Job, Work};

/// Memory that glommio registers for the executor's file I/O.
const IO_BYTES: usize = 256 << 10;

const RING_DEPTH: usize = 128;

/// Longest time that ready tasks may be overlooked.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// Starts the thread; it ends when every sender of jobs is gone.
///
/// # Errors
/// When the operating system has no more threads.
pub fn start() -> io::Result<(flume::Sender<Job>, JoinHandle<()>)> {
    let (jobs, queue) = flume::unbounded::<Job>();
    let builder = LocalExecutorBuilder::new(Placement::Unbound)
        .name("segments")
        .io_memory(IO_BYTES)
        .ring_depth(RING_DEPTH);
    let thread =
        std::thread::Builder::new()
            .name("segments".into())
            .spawn(move || match builder.make() {
                Ok(executor) => executor.run(serve(queue)),
                Err(error) => {
                    tracing::error!(%error, "no executor for the log's segments; stopping");
                    std::process::exit(1);
                }
            })?;
    Ok((jobs, thread))
}

async fn serve(queue: flume::Receiver<Job>) {
    keep_awake(HEARTBEAT).detach();
    while let Ok(job) = queue.recv_async().await {
        glommio::spawn_local(async move {
            let done = work(&job).await.unwrap_or_else(Done::Failed);
            // A shard that has ended needs no answer.
            let _ = job.done.try_send(done);
            job.waker.wake();
        })
        .detach();
    }
}

async fn work(job: &Job) -> Result<Done, WalError> {
    let (disk, options) = (
        GlommioDisk::new(&job.dir, job.options.durability),
        &job.options,
    );
    match job.work {
        Work::Prepare(id) => ready(prepare(&disk, options, id).await?),
        Work::Recycle { from, to } => ready(recycle(&disk, options, from, to).await?),
        Work::Reuse { shelved, to } => ready(reuse(&disk, options, shelved, to).await?),
        Work::Shelve(old) => shelve(&disk, old).await.map(|()| Done::Shelved(old)),
        Work::Remove(old) => discard(&disk, old).await.map(|()| Done::Removed),
    }
}

/// A descriptor that outlives the executor's own file, for the shard's ring.
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
