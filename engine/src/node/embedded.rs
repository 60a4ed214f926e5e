//! The coordinator inside a node that was not told of any other, on an executor of its own.

use std::thread::JoinHandle;

use ephesus_coordinator::server::{self, Ended, Server, ServerError, ServerOptions};
use ephesus_coordinator::sole_node::SoleNode;

use super::error::StartError;
use super::executor::{self, Report};

/// A coordinator that runs.
#[derive(Debug)]
pub struct Embedded {
    stop: flume::Sender<()>,
    thread: JoinHandle<()>,
    /// Whether it is the only coordinator.
    pub alone: SoleNode,
}

impl Embedded {
    /// Starts it, and waits until its port is open.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(options: ServerOptions) -> Result<Embedded, StartError> {
        let (stop, stopped) = flume::bounded(1);
        let run = move |report: Report<SoleNode>| async move {
            match Server::start(options).await {
                Ok(server) => {
                    let _ = report.send(Ok(server.alone()));
                    serve(server, stopped).await;
                }
                Err(error) => drop(report.send(Err(StartError::Coordinator(error)))),
            }
        };
        let names = ("coordinator", "the coordinator");
        let (thread, alone) = executor::spawn(names, server::executor(), run)?.ready()?;
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
