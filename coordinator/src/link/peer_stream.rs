//! A connection that has left its link, with what seals it.

use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};

use ephesus_wire::seal::Seals;

/// A connection of a link for somebody who goes on with frames elsewhere: nothing is queued, and nothing was read that
/// was not taken.
#[derive(Debug)]
pub struct PeerStream {
    pub tcp: TcpStream,
    /// What is said over it is sealed by these; none: it is not sealed.
    pub seals: Option<Box<Seals>>,
}

impl From<TcpStream> for PeerStream {
    /// One that is not sealed.
    fn from(tcp: TcpStream) -> PeerStream {
        PeerStream { tcp, seals: None }
    }
}

impl PeerStream {
    /// Sends `bytes`, sealed if the connection is. Call it only while there is room for them.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(seals) = &mut self.seals else {
            return self.tcp.write_all(bytes);
        };
        let mut sealed = Vec::new();
        seals.sealer.seal(bytes, &mut sealed);
        self.tcp.write_all(&sealed)
    }
}

impl AsRawFd for PeerStream {
    fn as_raw_fd(&self) -> RawFd {
        self.tcp.as_raw_fd()
    }
}
