//! Opens links to others.

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use ephesus_wire::handshake::{Handshake, Identity, Secret};

use super::connection::Link;
use super::counters::Counters;
use super::error::LinkError;
use super::inbound::Inbound;
use super::socket::{Socket, within};
use super::{LinkOptions, opening};

/// Dials under one identity. Between attempts wait as a [`Backoff`](super::Backoff) says.
#[derive(Debug)]
pub struct Dialer {
    identity: Cell<Identity>,
    secret: Option<Secret>,
    options: LinkOptions,
    counters: Arc<Counters>,
}

impl Dialer {
    /// Failures, and the ends of links, are counted in `counters`.
    #[must_use]
    pub fn new(
        identity: Identity,
        secret: Option<Secret>,
        options: LinkOptions,
        counters: Arc<Counters>,
    ) -> Dialer {
        Dialer {
            identity: Cell::new(identity),
            secret,
            options,
            counters,
        }
    }

    /// Changes what the next handshakes say, for example once the cluster is known.
    pub fn set_identity(&self, identity: Identity) {
        self.identity.set(identity);
    }

    /// Makes one attempt at `address` (`host:port`) and opens a link.
    ///
    /// # Errors
    /// [`LinkError`].
    pub async fn dial(&self, address: &str) -> Result<Link, LinkError> {
        let result = self.attempt(address).await;
        if let Err(error) = &result {
            self.counters.add(error.reason());
        }
        result
    }

    async fn attempt(&self, address: &str) -> Result<Link, LinkError> {
        let mut socket = within(self.options.dial_timeout, connect(address))
            .await
            .unwrap_or_else(|| {
                let (address, kind) = (address.to_owned(), io::ErrorKind::TimedOut);
                Err(LinkError::Unreachable { address, kind })
            })?;
        let hello = opening::hello(self.identity.get());
        let (handshake, first) = Handshake::connect(hello, self.secret.clone());
        let mut inbound = Inbound::default();
        let opened = within(
            self.options.handshake_timeout,
            opening::open(&mut socket, &mut inbound, handshake, &first),
        )
        .await
        .unwrap_or(Err(LinkError::HandshakeTimeout))?;
        let counters = Arc::clone(&self.counters);
        Link::start(socket, inbound, opened, self.options, counters)
    }
}

/// A machine that does not answer for so long is not there.
const REACH_LIMIT: Duration = Duration::from_millis(800);

/// Whether there is a way to the machine at `address` (`host:port`): something listens there, or the machine says
/// that nothing does.
///
/// # Errors
/// Why there is none, in words.
pub async fn reach(address: &str) -> Result<(), String> {
    match within(REACH_LIMIT, connect(address)).await {
        Some(Ok(_)) => Ok(()),
        Some(Err(LinkError::Unreachable {
            kind: io::ErrorKind::ConnectionRefused,
            ..
        })) => Ok(()),
        Some(Err(error)) => Err(error.to_string()),
        None => Err(format!("no answer within {} ms", REACH_LIMIT.as_millis())),
    }
}

/// Connects to the first of the name's addresses that answers.
async fn connect(address: &str) -> Result<Socket, LinkError> {
    let mut kind = io::ErrorKind::AddrNotAvailable;
    for candidate in resolve(address).await? {
        match Socket::connect(candidate).await {
            Ok(socket) => return Ok(socket),
            Err(error) => kind = error.kind(),
        }
    }
    let address = address.to_owned();
    Err(LinkError::Unreachable { address, kind })
}

/// The addresses of `host:port`; names are looked up on a thread of their own, which may outlive the
/// attempt.
async fn resolve(address: &str) -> Result<Vec<SocketAddr>, LinkError> {
    if let Ok(literal) = address.parse() {
        return Ok(vec![literal]);
    }
    let (answer, answered) = flume::bounded(1);
    let name = address.to_owned();
    let look_up = move || {
        let found = name.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        // Whoever asked may have given up.
        let _ = answer.send(found);
    };
    let found = match std::thread::Builder::new()
        .name("resolver".into())
        .spawn(look_up)
    {
        Ok(_) => answered.recv_async().await.unwrap_or_else(|_| Ok(vec![])),
        Err(error) => Err(error),
    };
    found.map_err(|error| LinkError::Address {
        address: address.to_owned(),
        detail: error.to_string(),
    })
}
