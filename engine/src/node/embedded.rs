//! The coordinator inside a node that was not told of any other, on an executor of its own.

use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;

use ephesus_coordinator::alone::Alone;
use ephesus_coordinator::server::{Ended, Server, ServerError, ServerOptions, executor};

use super::start::StartError;

/// A coordinator that runs.
#[derive(Debug)]
pub struct Embedded {
    stop: flume::Sender<()>,
    thread: JoinHandle<()>,
    /// Whether it is the only coordinator.
    pub alone: Alone,
}

impl Embedded {
    /// Starts it, and waits until its port is open.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(options: ServerOptions) -> Result<Embedded, StartError> {
        let (stop, stopped) = flume::bounded(1);
        let (report, started) = mpsc::channel();
        let run = move || match executor().make() {
            Ok(executor) => executor.run(async {
                match Server::start(options).await {
                    Ok(server) => {
                        let _ = report.send(Ok(server.alone()));
                        serve(server, stopped).await;
                    }
                    Err(error) => drop(report.send(Err(StartError::Coordinator(error)))),
                }
            }),
            Err(error) => {
                let source = io::Error::other(error.to_string());
                drop(report.send(Err(failed(source))));
            }
        };
        let builder = std::thread::Builder::new().name("coordinator".into());
        let thread = builder.spawn(run).map_err(failed)?;
        let ended = || failed(io::Error::other("its thread has ended"));
        let alone = started.recv().map_err(|_| ended())??;
        Ok(Embedded {
            stop,
            thread,
            alone,
        })
    }

    /// Ends it; what it has promised is on disk.
    pub fn stop(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            tracing::error!("the coordinator ended in a panic");
        }
    }
}

fn failed(source: io::Error) -> StartError {
    StartError::Thread {
        what: "the coordinator",
        source,
    }
}

async fn serve(server: Server, stopped: flume::Receiver<()>) {
    let stop = async move {
        let _ = stopped.recv_async().await;
    };
    match server.run(stop).await {
        Ok(Ended::Stopped) => {}
        Ok(Ended::Removed) => tracing::warn!("the coordinator in this node was removed"),
        Err(error) => die(&error),
    }
}

/// After a failed write nothing more is promised.
fn die(error: &ServerError) -> ! {
    tracing::error!(%error, "coordinator; stopping, restart to recover");
    std::process::exit(1);
}
