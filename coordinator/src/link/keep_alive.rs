//! Connections whose other end has vanished, with its machine or behind a router that forgot it, end.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// After how long a connection ends from which nothing comes.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// The first probe is sent after so long without a word.
    pub idle: Duration,
    /// The next ones follow at this distance.
    pub interval: Duration,
    /// Probes in a row that may be lost.
    pub probes: u32,
}

impl KeepAlive {
    /// Connections of clients: Redis's settings.
    pub const CLIENTS: KeepAlive = KeepAlive {
        idle: Duration::from_secs(300),
        interval: Duration::from_secs(100),
        probes: 3,
    };

    /// Links between nodes and coordinators.
    pub const LINKS: KeepAlive = KeepAlive {
        idle: Duration::from_secs(30),
        interval: Duration::from_secs(10),
        probes: 3,
    };

    /// Sets it for a socket, or for all that a listener accepts: they inherit it. What was sent and is not
    /// acknowledged ends a connection after the same time as silence.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn set(&self, socket: &impl AsFd) -> io::Result<()> {
        let socket = SockRef::from(socket);
        let probing = TcpKeepalive::new()
            .with_time(self.idle)
            .with_interval(self.interval)
            .with_retries(self.probes);
        socket.set_tcp_keepalive(&probing)?;
        // The kernel holds silence against this one too, and then lets no probe be lost if it is shorter.
        socket.set_tcp_user_timeout(Some(self.idle + self.interval * self.probes))
    }
}

#[cfg(test)]
mod tests;
