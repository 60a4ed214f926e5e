//! The ports of a node, all bound before anything is recovered.

use std::io;
use std::net::{SocketAddr, TcpListener};

use ephesus_coordinator::command::EMBEDDED_PORT_OFFSET;

use super::error::StartError;
use super::options::ServeOptions;
use crate::net;

/// Distance from the entry port to the port for other nodes.
const PEER_PORT_OFFSET: u16 = 10_000;

const SHARDS: &str = "the last shard";
const PEERS: &str = "other nodes' traffic";

/// The ports of a node that serves.
#[derive(Debug)]
pub(super) struct Ports {
    pub shards: Vec<ShardPorts>,
    /// For other nodes.
    pub peers: TcpListener,
    /// Of the coordinator that the node brings.
    pub coordinator: Option<TcpListener>,
}

/// Those of one shard.
#[derive(Debug)]
pub(super) struct ShardPorts {
    /// All shards listen on this one.
    pub entry: TcpListener,
    pub direct: TcpListener,
}

impl Ports {
    /// Binds all of them.
    ///
    /// # Errors
    /// [`StartError`]: which one cannot be had, and what to do.
    pub fn bind(
        listen: SocketAddr,
        shards: u16,
        has_coordinator: bool,
    ) -> Result<Ports, StartError> {
        let coordinator = "the coordinator that it brings";
        Ok(Ports {
            shards: bind_shards(listen, shards)?,
            peers: bind_alone(offset(listen, PEER_PORT_OFFSET, PEERS)?)?,
            coordinator: has_coordinator
                .then(|| bind_alone(offset(listen, EMBEDDED_PORT_OFFSET, coordinator)?))
                .transpose()?,
        })
    }
}

/// Refuses ports beyond the last one, before anything is begun.
pub(super) fn check(listen: SocketAddr, shards: u16) -> Result<(), StartError> {
    offset(listen, shards, SHARDS)?;
    offset(listen, PEER_PORT_OFFSET, PEERS)?;
    Ok(())
}

/// The port so far behind the entry port.
fn offset(listen: SocketAddr, offset: u16, what: &'static str) -> Result<SocketAddr, StartError> {
    let port = listen.port().checked_add(offset).ok_or({
        let first = u32::from(listen.port());
        let last = first + u32::from(offset);
        StartError::Ports { what, first, last }
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
fn bind_shards(listen: SocketAddr, shards: u16) -> Result<Vec<ShardPorts>, StartError> {
    let ports = (0..=shards).map(|port| offset(listen, port, SHARDS));
    let ports: Vec<SocketAddr> = ports.collect::<Result<_, _>>()?;
    for address in &ports {
        net::probe(*address).map_err(refuse(*address))?;
    }
    ports
        .into_iter()
        .skip(1)
        .map(|direct| {
            Ok(ShardPorts {
                entry: net::bind(listen).map_err(refuse(listen))?,
                direct: net::bind(direct).map_err(refuse(direct))?,
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
