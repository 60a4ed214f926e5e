//! Listening sockets: one per shard and port, so that no descriptor is shared between executors.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use ephesus_coordinator::link::keep_alive::KeepAlive;
use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Binds a listener that shares its port with the other shards of this process. Its connections end when their
/// clients have vanished.
///
/// # Errors
/// When the address is not ours or the port is taken by another user's process.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address)?;
    socket.set_reuse_port(true)?;
    KeepAlive::CLIENTS.set(&socket)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// How long an address may stay in use after its process was killed: the kernel takes an io_uring's
/// outstanding accepts down in the background.
const PROBE_EVERY: Duration = Duration::from_millis(20);
const PROBES: u32 = 150;

/// Finds out whether any process listens on the address: sharing a port, as [`bind`] does, would
/// otherwise silently take half of the connections of another node of the same user.
///
/// # Errors
/// `AddrInUse`, or why the address cannot be bound at all.
pub fn probe(address: SocketAddr) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match socket(address)?.bind(&address.into()) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < PROBES => {
                tries += 1;
                std::thread::sleep(PROBE_EVERY);
            }
            result => return result,
        }
    }
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}
