//! A thread with an executor of its own, whose starter waits until it is ready.

use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;

use glommio::LocalExecutorBuilder;

use super::start::StartError;

/// Tells the starter what has become of the start, once.
pub(super) type Report<T> = mpsc::Sender<Result<T, StartError>>;

/// Runs `serve` in a thread of this name, and waits for its report; `what` is for messages.
///
/// # Errors
/// [`StartError`]: what `serve` has reported, or that there is no thread or executor.
pub(super) fn start<T, F>(
    (name, what): (&'static str, &'static str),
    builder: LocalExecutorBuilder,
    serve: impl FnOnce(Report<T>) -> F + Send + 'static,
) -> Result<(JoinHandle<()>, T), StartError>
where
    T: Send + 'static,
    F: Future<Output = ()> + 'static,
{
    let failed = move |source| StartError::Thread { what, source };
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
    let ended = |_| failed(io::Error::other("its thread has ended"));
    let ready = started.recv().map_err(ended)??;
    Ok((thread, ready))
}
