//! Bytes that are no handshake, for ports where only nodes and coordinators have a place.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::Rng;

/// How long a port may take to close a connection: longer than a handshake may.
const CLOSED_WITHIN: Duration = Duration::from_secs(20);

/// Sends garbage and waits until the connection is closed.
///
/// # Panics
/// When it is not.
pub fn attack(address: &str, rng: &mut Rng) {
    let mut socket = TcpStream::connect(address).expect("connect");
    let bytes: Vec<u8> = match rng.below(3) {
        0 => b"GET / HTTP/1.1\r\nHost: ephesus\r\n\r\n".to_vec(),
        1 => b"*1\r\n$4\r\nPING\r\n".repeat(100),
        _ => (0..1 + rng.below(8192))
            .map(|_| rng.below(256) as u8)
            .collect(),
    };
    socket
        .set_read_timeout(Some(CLOSED_WITHIN))
        .expect("a timeout");
    // It may be closed before everything is taken.
    let _ = socket.write_all(&bytes);
    let _ = socket.shutdown(Shutdown::Write);
    let mut rest = Vec::new();
    if let Err(error) = socket.read_to_end(&mut rest) {
        let kind = error.kind();
        assert_eq!(kind, ErrorKind::ConnectionReset, "not closed: {error}");
    }
}
