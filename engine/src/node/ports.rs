//! The ports of a node, all bound before anything is recovered.

use std::io;
use std::net::{SocketAddr, TcpListener};

use ephesus_coordinator::command::EMBEDDED_PORT_OFFSET;

use super::joining::{PEER_PORT_OFFSET, coordinator_address, embeds};
use super::stamp::{DataDir, Stamp};
use super::start::{ServeOptions, StartError};
use crate::net;

/// Refuses ports beyond the last one.
pub(super) fn check(listen: SocketAddr, shards: u16) -> Result<(), StartError> {
    let first = u32::from(listen.port());
    let needed = [
        ("the last shard", u32::from(shards)),
        ("other nodes' traffic", u32::from(PEER_PORT_OFFSET)),
    ];
    for (what, offset) in needed {
        let last = first + offset;
        if last > u32::from(u16::MAX) {
            return Err(StartError::Ports { what, first, last });
        }
    }
    Ok(())
}

/// Binds the port of the embedded coordinator, if the node is to have one.
pub(super) fn bind_coordinator(
    options: &ServeOptions,
    dir: &DataDir,
    stamp: &Stamp,
) -> Result<Option<TcpListener>, StartError> {
    if !embeds(options, dir, stamp) {
        return Ok(None);
    }
    let first = u32::from(options.listen.port());
    let last = first + u32::from(EMBEDDED_PORT_OFFSET);
    if last > u32::from(u16::MAX) {
        let what = "the coordinator that it brings";
        return Err(StartError::Ports { what, first, last });
    }
    bind_alone(coordinator_address(options.listen)).map(Some)
}

/// Binds the port for other nodes.
pub(super) fn bind_peers(listen: SocketAddr) -> Result<TcpListener, StartError> {
    bind_alone(SocketAddr::new(
        listen.ip(),
        listen.port() + PEER_PORT_OFFSET,
    ))
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
pub(super) fn bind_all(
    listen: SocketAddr,
    shards: u16,
) -> Result<Vec<(TcpListener, TcpListener)>, StartError> {
    for port in 0..=shards {
        let address = SocketAddr::new(listen.ip(), listen.port() + port);
        net::probe(address).map_err(refuse(address))?;
    }
    (1..=shards)
        .map(|port| {
            let direct = SocketAddr::new(listen.ip(), listen.port() + port);
            Ok((
                net::bind(listen).map_err(refuse(listen))?,
                net::bind(direct).map_err(refuse(direct))?,
            ))
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
