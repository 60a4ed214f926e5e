//! The ports of a node, all bound before anything is recovered.

use std::io;
use std::net::{SocketAddr, TcpListener};

use ephesus_coordinator::command::EMBEDDED_PORT_OFFSET;

use super::error::StartError;
use super::options::ServeOptions;
use crate::net::{self, ListenerKind, Port};

/// Distance from the entry port to the port for other nodes.
const PEER_PORT_OFFSET: u16 = 10_000;

const LISTEN: &str = "--listen port";
const TLS_PORT: &str = "--tls-port";

const SHARDS: &str = "the last shard";
const PEERS: &str = "other nodes' traffic";
const COORDINATOR: &str = "the coordinator that it brings";

/// The ports of a node that serves.
#[derive(Debug)]
pub(super) struct Ports {
    pub shards: Vec<ShardPorts>,
    /// For other nodes.
    pub peers: TcpListener,
    /// Of the coordinator that the node brings.
    pub coordinator: Option<TcpListener>,
}

/// Those of one shard: its direct port, and the entry port, on which all shards listen; with TLS, both once more.
#[derive(Debug)]
pub(super) struct ShardPorts {
    pub listeners: Vec<(Port, TcpListener)>,
}

impl Ports {
    /// Binds all of them.
    ///
    /// # Errors
    /// [`StartError`]: which one cannot be had, and what to do.
    pub fn bind(
        options: &ServeOptions,
        shards: u16,
        has_coordinator: bool,
    ) -> Result<Ports, StartError> {
        let listen = options.listen;
        let mut bound = bind_shards(listen, shards, false)?;
        if let Some(listen) = tls_listen(options) {
            for (ports, more) in bound.iter_mut().zip(bind_shards(listen, shards, true)?) {
                ports.listeners.extend(more.listeners);
            }
        }
        Ok(Ports {
            shards: bound,
            peers: bind_alone(offset(listen, PEER_PORT_OFFSET, PEERS)?)?,
            coordinator: has_coordinator
                .then(|| bind_alone(offset(listen, EMBEDDED_PORT_OFFSET, COORDINATOR)?))
                .transpose()?,
        })
    }
}

/// Refuses ports beyond the last one, and those that are two things at once, before anything is begun.
pub(super) fn check(options: &ServeOptions, shards: u16) -> Result<(), StartError> {
    let listen = options.listen;
    offset(listen, shards, SHARDS)?;
    offset(listen, PEER_PORT_OFFSET, PEERS)?;
    let Some(tls) = tls_listen(options) else {
        return Ok(());
    };
    offset_of(TLS_PORT, tls, shards, SHARDS)?;
    let (first, last) = (tls.port(), tls.port() + shards);
    let plain = u32::from(listen.port());
    let embedded = options.coordinators.is_empty();
    let others = [
        (0, u32::from(shards), "clients without TLS", true),
        (PEER_PORT_OFFSET, 0, PEERS, true),
        (EMBEDDED_PORT_OFFSET, 0, COORDINATOR, embedded),
    ];
    for (offset, more, what, is_there) in others {
        let from = plain + u32::from(offset);
        let to = from + more;
        if is_there && u32::from(first) <= to && from <= u32::from(last) {
            let (from, to) = (from.to_string(), to.to_string());
            return Err(StartError::PortsOverlap {
                first,
                last,
                what,
                of: if from == to {
                    from
                } else {
                    format!("{from} to {to}")
                },
            });
        }
    }
    Ok(())
}

/// The entry port for clients that come over TLS.
fn tls_listen(options: &ServeOptions) -> Option<SocketAddr> {
    let tls = options.tls.as_ref()?;
    Some(SocketAddr::new(options.listen.ip(), tls.port))
}

/// The port so far behind the entry port.
fn offset(listen: SocketAddr, offset: u16, what: &'static str) -> Result<SocketAddr, StartError> {
    offset_of(LISTEN, listen, offset, what)
}

/// The same behind the port that a flag names.
fn offset_of(
    flag: &'static str,
    listen: SocketAddr,
    offset: u16,
    what: &'static str,
) -> Result<SocketAddr, StartError> {
    let port = listen.port().checked_add(offset).ok_or({
        let first = u32::from(listen.port());
        let last = first + u32::from(offset);
        StartError::Ports {
            flag,
            what,
            first,
            last,
        }
    })?;
    Ok(SocketAddr::new(listen.ip(), port))
}

/// What others are told of a node's ports.
pub(super) struct Announced {
    pub entry: String,
    pub peers: String,
    /// Where a coordinator that the node brings is, or would be.
    pub coordinator: String,
}

impl Announced {
    pub fn new(options: &ServeOptions) -> Announced {
        let host = match &options.announce_host {
            Some(host) => host.clone(),
            None if options.listen.ip().is_unspecified() => "127.0.0.1".to_owned(),
            None => options.listen.ip().to_string(),
        };
        let address = |offset: u16| {
            let port = u32::from(options.listen.port()) + u32::from(offset);
            if host.contains(':') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            }
        };
        Announced {
            entry: address(0),
            peers: address(PEER_PORT_OFFSET),
            coordinator: address(EMBEDDED_PORT_OFFSET),
        }
    }
}

/// Binds a port that one executor serves.
fn bind_alone(address: SocketAddr) -> Result<TcpListener, StartError> {
    net::probe(address).map_err(refuse(address))?;
    TcpListener::bind(address).map_err(refuse(address))
}

/// Why a port cannot be had.
fn refuse(address: SocketAddr) -> impl FnOnce(io::Error) -> StartError {
    move |source| match source.kind() {
        io::ErrorKind::AddrInUse => {
            let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
            let remedy = remedy(address.port(), &range.unwrap_or_default());
            StartError::AddressInUse { address, remedy }
        }
        _ => StartError::Listen { address, source },
    }
}

/// What to do about a port that is in use, which the system may have given to a connection of anybody: those in `range`
/// it gives away.
fn remedy(port: u16, range: &str) -> String {
    let mut ends = range.split_whitespace().map(str::parse::<u16>);
    match (ends.next(), ends.next()) {
        (Some(Ok(first)), Some(Ok(last))) if (first..=last).contains(&port) => format!(
            "; the system gives ports from {first} to {last} to connections: keep this one from them with \
             sysctl -w net.ipv4.ip_local_reserved_ports={port}, or choose a lower --listen port"
        ),
        _ => String::new(),
    }
}

/// Binds every shard's two ports; the entry port once per shard.
fn bind_shards(
    listen: SocketAddr,
    shards: u16,
    is_tls: bool,
) -> Result<Vec<ShardPorts>, StartError> {
    let ports = (0..=shards).map(|port| offset(listen, port, SHARDS));
    let ports: Vec<SocketAddr> = ports.collect::<Result<_, _>>()?;
    for address in &ports {
        net::probe(*address).map_err(refuse(*address))?;
    }
    ports
        .into_iter()
        .skip(1)
        .map(|direct| {
            let bind = |kind, address: SocketAddr| -> Result<_, StartError> {
                let listener = net::bind(address).map_err(refuse(address))?;
                Ok((Port { kind, is_tls }, listener))
            };
            Ok(ShardPorts {
                listeners: vec![
                    bind(ListenerKind::Entry, listen)?,
                    bind(ListenerKind::Direct, direct)?,
                ],
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::remedy;

    #[test]
    fn ports_that_the_system_gives_away_can_be_reserved() {
        for range in ["32768\t60999\n", "35000 35000"] {
            let text = remedy(35_000, range);
            assert!(text.contains("ip_local_reserved_ports=35000"), "{text}");
        }
        for range in ["", "1", "x y", "32768\t34999\n", "35001 60999"] {
            assert_eq!(remedy(35_000, range), "", "{range}");
        }
    }
}
