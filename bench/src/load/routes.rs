use std::net::SocketAddr;

use ephesus_wire::limits::SLOTS;
use ephesus_wire::slot_of;

use crate::error::{BenchError, Result};
use crate::resp::{Value, unexpected};

use super::source::Sent;

const SERVERS_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct Routes {
    /// The first one was given by the user.
    pub(super) servers: Vec<SocketAddr>,
    owners: Vec<u16>,
}

impl Routes {
    pub(super) fn to(address: SocketAddr) -> Self {
        Routes {
            servers: vec![address],
            owners: vec![0; usize::from(SLOTS)],
        }
    }

    pub(super) fn server_of(&self, sent: &Sent) -> usize {
        match self.servers.len() {
            1 => 0,
            _ => usize::from(self.owners[slot(sent)]),
        }
    }

    fn number(&mut self, address: SocketAddr) -> Result<u16> {
        let known = self.servers.iter().position(|server| *server == address);
        if let Some(known) = known {
            return Ok(known as u16);
        }
        if self.servers.len() == SERVERS_MAX {
            let problem = format!("more than {SERVERS_MAX} servers");
            return Err(BenchError::failed("the cluster", problem));
        }
        self.servers.push(address);
        Ok((self.servers.len() - 1) as u16)
    }

    /// The slot of an operation's key is at this server now.
    pub(super) fn moved(&mut self, sent: &Sent, to: SocketAddr) -> Result<()> {
        self.owners[slot(sent)] = self.number(to)?;
        Ok(())
    }

    /// Takes a reply to CLUSTER SLOTS by the server at `from`; how many slots nobody has.
    pub(super) fn learn(&mut self, reply: &Value, from: SocketAddr) -> Result<usize> {
        let wrong = || unexpected(&["CLUSTER", "SLOTS"], reply);
        let Value::Array(ranges) = reply else {
            return Err(wrong());
        };
        let mut owned = vec![false; usize::from(SLOTS)];
        for range in ranges {
            let (first, last, owner) = read_range(range, from).ok_or_else(wrong)?;
            let number = self.number(owner)?;
            self.owners[first..=last].fill(number);
            owned[first..=last].fill(true);
        }
        Ok(owned.iter().filter(|is_owned| !**is_owned).count())
    }
}

fn slot(sent: &Sent) -> usize {
    usize::from(slot_of(&sent.key_name()).0)
}

fn read_range(range: &Value, from: SocketAddr) -> Option<(usize, usize, SocketAddr)> {
    use Value::{Array, Integer};
    let Array(parts) = range else { return None };
    let [Integer(first), Integer(last), Array(owner), ..] = &parts[..] else {
        return None;
    };
    let [host, Integer(port), ..] = &owner[..] else {
        return None;
    };
    let ip = match std::str::from_utf8(host.as_bytes().unwrap_or_default()).ok()? {
        "" | "?" => from.ip(),
        host => host.parse().ok()?,
    };
    let owner = SocketAddr::new(ip, u16::try_from(*port).ok()?);
    let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
    (first <= last && last < usize::from(SLOTS)).then_some((first, last, owner))
}

/// Where a slot is served, of the text of an error of the server at `from`.
pub(super) fn moved(error: &str, from: SocketAddr) -> Option<SocketAddr> {
    let mut words = error.split(' ');
    let is_moved = words.next() == Some("MOVED");
    let to = words.nth(1).filter(|_| is_moved)?;
    match to.strip_prefix(':') {
        Some(port) => Some(SocketAddr::new(from.ip(), port.parse().ok()?)),
        None => to.parse().ok(),
    }
}
