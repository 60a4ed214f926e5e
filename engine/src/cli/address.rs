//! Addresses on the command line: `host:port`, and coordinators as `id@host:port`.

use std::net::SocketAddr;
use std::str::FromStr;

use ephesus_coordinator::command::RaftId;
use ephesus_coordinator::state::ADDRESS_BYTES_MAX;

/// Reads `host:port`; an IPv6 host is in brackets.
///
/// # Errors
/// What is wrong with the text.
pub fn address(text: &str) -> Result<String, String> {
    split(text)?;
    Ok(text.to_owned())
}

/// Reads where to listen.
///
/// # Errors
/// What is wrong with the text.
pub fn listening(text: &str) -> Result<SocketAddr, String> {
    let wrong =
        |_| format!("'{text}' is no IP address and port, such as 127.0.0.1:7379 or [::1]:7379");
    text.parse().map_err(wrong)
}

/// The host and the port of an address.
fn split(text: &str) -> Result<(&str, u16), String> {
    let wrong = || format!("'{text}' is not an address: host:port");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_ip6 = || {
        host[1..host.len() - 1]
            .parse::<std::net::Ipv6Addr>()
            .is_ok()
    };
    let fits = !host.is_empty() && text.len() <= ADDRESS_BYTES_MAX;
    if !fits || !(host.chars().all(is_host) || is_bracketed && is_ip6()) {
        return Err(wrong());
    }
    match port.parse() {
        Ok(0) | Err(_) => Err(format!("'{port}' is not a port: 1 to 65535")),
        Ok(port) => Ok((host, port)),
    }
}

/// A coordinator and where it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number.
    pub id: RaftId,
    /// As `host:port`.
    pub address: String,
}

impl Peer {
    /// The port of its address.
    #[must_use]
    pub fn port(&self) -> u16 {
        split(&self.address).map_or(0, |(_, port)| port)
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Peer, String> {
        let (id, reached) = text
            .split_once('@')
            .ok_or_else(|| format!("'{text}' is not a coordinator: id@host:port"))?;
        match id.parse() {
            Ok(0) | Err(_) => Err(format!("'{id}' is not a coordinator's number: 1, 2, ...")),
            Ok(id) => Ok(Peer {
                id: RaftId(id),
                address: address(reached)?,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
