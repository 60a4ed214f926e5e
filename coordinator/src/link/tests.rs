//! Links over loopback: real sockets, real executors.

mod client;
mod hand_over;
mod listening;
mod open;

use std::cell::Cell;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;

use ephesus_wire::NodeId;
use ephesus_wire::handshake::{Identity, LinkRole, Secret, Versions};
use glommio::{LocalExecutorBuilder, Placement};

use super::*;
use crate::scheduling::keep_awake;

/// Longest time any test may take.
const TEST_LIMIT: Duration = Duration::from_secs(60);

/// Runs a test on an executor of its own.
fn run(test: impl Future<Output = ()> + 'static) {
    let executor = LocalExecutorBuilder::new(Placement::Unbound)
        .io_memory(256 << 10)
        .ring_depth(128)
        .make()
        .unwrap();
    executor.run(async {
        keep_awake(Duration::from_millis(20)).detach();
        let done = socket::within(TEST_LIMIT, test).await;
        assert!(done.is_some(), "the test hangs");
    });
}

fn identity(node: u8) -> Identity {
    Identity {
        versions: Versions { min: 1, max: 1 },
        features: 0,
        role: LinkRole::Node,
        cluster: Some([1; 16]),
        node: NodeId([node; 16]),
        raft_id: 0,
    }
}

fn secret(contents: &[u8]) -> Option<Secret> {
    Some(Secret::new(contents.to_vec()).unwrap())
}

fn port() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn quick() -> LinkOptions {
    LinkOptions {
        handshake_timeout: Duration::from_secs(1),
        ..LinkOptions::default()
    }
}

/// A listener as node 1 and a dialer as node 2, with counters of their own.
struct Ends {
    listener: Listener,
    accepted: Arc<Counters>,
    dialer: Dialer,
    dialled: Arc<Counters>,
}

impl Ends {
    fn new(options: ListenOptions, secret: Option<Secret>) -> Ends {
        let (accepted, dialled) = (Arc::default(), Arc::default());
        let listener = Listener::new(
            port(),
            identity(1),
            secret.clone(),
            options,
            Arc::clone(&accepted),
        )
        .unwrap();
        let dialer = Dialer::new(identity(2), secret, options.link, Arc::clone(&dialled));
        Ends {
            listener,
            accepted,
            dialer,
            dialled,
        }
    }

    fn with_link(link: LinkOptions) -> Ends {
        let options = ListenOptions {
            link,
            ..ListenOptions::default()
        };
        Ends::new(options, None)
    }

    fn address(&self) -> String {
        self.listener.address().to_string()
    }

    async fn link(&self) -> (Link, Link) {
        let dialled = self.dialer.dial(&self.address()).await.unwrap();
        (dialled, self.listener.accept().await)
    }
}

/// Waits until `true`.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let waited = socket::within(Duration::from_secs(10), async {
        while !condition() {
            glommio::timer::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_some(), "never: {what}");
}
