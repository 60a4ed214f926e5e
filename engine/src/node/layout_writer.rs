//! Makes layouts durable, on a thread of its own: what waits for one waits, and nothing else of the node.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::stamp::{DataDir, Layout};

/// The thread, as the node has it.
#[derive(Debug)]
pub struct LayoutWriter {
    queue: flume::Sender<(u64, Layout)>,
    written: flume::Receiver<u64>,
    thread: JoinHandle<()>,
}

impl LayoutWriter {
    /// Starts the thread. A layout that cannot be written ends the process: nothing more is promised.
    ///
    /// # Errors
    /// No thread.
    pub fn start(dir: Arc<DataDir>) -> io::Result<LayoutWriter> {
        let (queue, queued) = flume::unbounded::<(u64, Layout)>();
        let (told, written) = flume::unbounded();
        let run = move || {
            while let Ok(first) = queued.recv() {
                // The last one has everything that those before have.
                let (number, layout) = queued.try_iter().last().unwrap_or(first);
                if let Err(error) = dir.write_layout(&layout) {
                    tracing::error!(%error, "stopping, restart to recover what was acknowledged");
                    std::process::exit(1);
                }
                // The node may have let go.
                let _ = told.send(number);
            }
        };
        let thread = std::thread::Builder::new().name("layout".to_owned());
        Ok(LayoutWriter {
            queue,
            written,
            thread: thread.spawn(run)?,
        })
    }

    /// Has a layout written; numbers grow.
    pub fn write(&self, number: u64, layout: &Layout) {
        // The thread lives as long as this.
        let _ = self.queue.send((number, layout.clone()));
    }

    /// The numbers of layouts that are durable, and those before are with them.
    #[must_use]
    pub fn written(&self) -> &flume::Receiver<u64> {
        &self.written
    }

    /// Writes what is queued, and ends.
    pub fn stop(self) {
        drop(self.queue);
        if self.thread.join().is_err() {
            tracing::error!("the thread that writes layouts ended in a panic");
        }
    }
}
