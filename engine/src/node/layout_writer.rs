//! Makes layouts durable, on a thread of its own: what waits for one waits, and nothing else of the node.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::data_dir::{DataDir, Layout};

/// How often a layout is tried again for which the system lacks space or descriptors.
const SPACE_RETRY: Duration = Duration::from_millis(200);

/// A layout to be written.
#[derive(Debug)]
struct Queued {
    number: u64,
    layout: Layout,
}

/// The thread, as the node has it.
#[derive(Debug)]
pub struct LayoutWriter {
    queue: flume::Sender<Queued>,
    written: flume::Receiver<u64>,
    thread: JoinHandle<()>,
}

impl LayoutWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread.
    pub fn start(dir: Arc<DataDir>) -> io::Result<LayoutWriter> {
        let (queue, queued) = flume::unbounded::<Queued>();
        let (told, written) = flume::unbounded();
        let run = move || {
            while let Ok(first) = queued.recv() {
                // The last one has everything that those before have.
                let Queued { number, layout } = queued.try_iter().last().unwrap_or(first);
                let mut is_told = false;
                while let Err(error) = dir.write_layout(&layout) {
                    if !error.passes() {
                        tracing::error!(%error, "stopping, restart to recover what was acknowledged");
                        std::process::exit(1);
                    }
                    if queued.is_disconnected() {
                        return;
                    }
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::error!(%error, "the layout cannot be written; moves wait");
                    }
                    thread::sleep(SPACE_RETRY);
                }
                // The node may have let go.
                let _ = told.send(number);
            }
        };
        let thread = thread::Builder::new().name("layout".to_owned());
        Ok(LayoutWriter {
            queue,
            written,
            thread: thread.spawn(run)?,
        })
    }

    /// Has a layout written; numbers grow.
    pub fn write(&self, number: u64, layout: &Layout) {
        // The thread lives as long as this.
        let _ = self.queue.send(Queued {
            number,
            layout: layout.clone(),
        });
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

#[cfg(test)]
mod tests {
    use ephesus_wal::LogId;

    use super::*;

    fn layout(partitions: u16) -> Layout {
        Layout::empty(partitions, [LogId([1; 16])].into_iter())
    }

    fn started() -> (tempfile::TempDir, Arc<DataDir>, LayoutWriter) {
        let temp = tempfile::tempdir().expect("temp dir");
        let dir = DataDir::lock(&temp.path().join("data")).expect("lock");
        let dir = Arc::new(dir);
        let writer = LayoutWriter::start(Arc::clone(&dir)).expect("a thread");
        (temp, dir, writer)
    }

    #[test]
    fn those_that_wait_are_written_together_and_the_last_one_stays() {
        let (_temp, dir, writer) = started();
        let numbers = writer.written().clone();
        for number in 1..=20 {
            writer.write(number.into(), &layout(number));
        }
        writer.stop();
        assert_eq!(numbers.iter().last(), Some(20));
        assert_eq!(dir.layout().expect("a layout"), layout(20));
    }
}
