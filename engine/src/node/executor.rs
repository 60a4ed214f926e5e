//! A thread with an executor of its own, whose starter waits until it is ready.

use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;

use glommio::LocalExecutorBuilder;

use super::error::StartError;

/// Tells the starter what has become of the start, once.
pub(super) type Report<T> = mpsc::Sender<Result<T, StartError>>;

/// A thread that has begun, and not yet reported.
pub(super) struct Starting<T> {
    what: &'static str,
    thread: JoinHandle<()>,
    started: mpsc::Receiver<Result<T, StartError>>,
}

impl<T> Starting<T> {
    /// Waits for the thread's report.
    ///
    /// # Errors
    /// [`StartError`]: what it has reported, or that there is no executor.
    pub fn ready(self) -> Result<(JoinHandle<()>, T), StartError> {
        let ended = |_| StartError::thread(self.what)(io::Error::other("its thread has ended"));
        let ready = self.started.recv().map_err(ended)??;
        Ok((self.thread, ready))
    }
}

/// Runs `serve` in a thread of this name; `what` is for messages.
///
/// # Errors
/// [`StartError`]: there is no thread.
pub(super) fn spawn<T, F>(
    (name, what): (impl Into<String>, &'static str),
    builder: LocalExecutorBuilder,
    serve: impl FnOnce(Report<T>) -> F + Send + 'static,
) -> Result<Starting<T>, StartError>
where
    T: Send + 'static,
    F: Future<Output = ()> + 'static,
{
    let failed = StartError::thread(what);
    let (report, started) = mpsc::channel();
    let run = move || match builder.make() {
        Ok(executor) => executor.run(serve(report)),
        Err(error) => {
            let source = io::Error::other(error.to_string());
            drop(report.send(Err(failed(source))));
        }
    };
    let thread = std::thread::Builder::new().name(name.into());
    let thread = thread.spawn(run).map_err(failed)?;
    Ok(Starting {
        what,
        thread,
        started,
    })
}
