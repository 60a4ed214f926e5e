//! The port for other nodes, on an executor of its own.
//!
//! Who opens a link has to prove to be a node of this cluster; everybody else is closed, counted and
//! named on the log once in a while. Nodes have nothing to tell each other in this release: whatever
//! comes over a link closes it.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ephesus_coordinator::command::ClusterId;
use ephesus_coordinator::link::{Counters, Faults, Link, ListenOptions, Listener, Message};
use ephesus_coordinator::protocol::{self, kind};
use ephesus_coordinator::scheduling::keep_awake;
use ephesus_wire::NodeId;
use ephesus_wire::handshake::{Identity, LinkRole, Secret};
use glommio::{LocalExecutorBuilder, Placement};

use super::executor;
use super::start::StartError;

/// What it is, for messages.
const WHAT: &str = "the port for other nodes";

/// Memory that glommio registers for the executor's file I/O, of which there is none.
const IO_BYTES: usize = 128 << 10;

const RING_DEPTH: usize = 128;

/// Longest time that ready tasks may be overlooked.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// The open port; closed when stopped.
#[derive(Debug)]
pub struct PeerPort {
    stop: flume::Sender<()>,
    thread: JoinHandle<()>,
}

impl PeerPort {
    /// Takes links of nodes of `cluster` at `port`, and counts those that are none.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        port: TcpListener,
        node: NodeId,
        cluster: ClusterId,
        secret: Option<Secret>,
        counters: Arc<Counters>,
    ) -> Result<PeerPort, StartError> {
        let identity = Identity {
            cluster: Some(cluster.0),
            ..protocol::identity(LinkRole::Node, node)
        };
        let (stop, stopped) = flume::bounded::<()>(1);
        let builder = LocalExecutorBuilder::new(Placement::Unbound)
            .name("peers")
            .io_memory(IO_BYTES)
            .ring_depth(RING_DEPTH);
        let run = move |report: executor::Report<()>| async move {
            let options = ListenOptions::default();
            match Listener::new(port, identity, secret, options, counters) {
                Ok(listener) => {
                    let _ = report.send(Ok(()));
                    serve(listener, stopped).await;
                }
                Err(source) => drop(report.send(Err(StartError::Thread { what: WHAT, source }))),
            }
        };
        let (thread, ()) = executor::start(("peers", WHAT), builder, run)?;
        Ok(PeerPort { stop, thread })
    }

    /// Closes the port and its links.
    pub fn stop(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            tracing::error!("{WHAT} ended in a panic");
        }
    }
}

/// Serves every link until the other end of `stopped` is gone.
async fn serve(listener: Listener, stopped: flume::Receiver<()>) {
    let awake = keep_awake(HEARTBEAT);
    let accepting = glommio::spawn_local(async move {
        loop {
            let link = listener.accept().await;
            glommio::spawn_local(attend(link, listener.faults())).detach();
        }
    });
    let _ = stopped.recv_async().await;
    accepting.cancel().await;
    awake.cancel().await;
}

/// Keeps a link until its end.
async fn attend(mut link: Link, faults: Faults) {
    let (address, role) = (link.address(), link.opened().peer.role);
    if role != LinkRole::Node {
        faults.note(
            address,
            &format_args!("only nodes have a place here, not a {role:?}"),
        );
        return;
    }
    loop {
        match link.recv().await {
            Ok(message) if message.kind == kind::ALIVE => {}
            Ok(Message { kind, .. }) => {
                faults.note(address, &format_args!("a message of kind {kind}"));
                return;
            }
            Err(error) => {
                tracing::debug!(%address, %error, "link ended");
                return;
            }
        }
    }
}
