use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::mem;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use ephesus_engine::net::{ConnToken, Ring};
use rustls::ClientConnection;

use crate::error::{BenchError, Result};
use crate::target::Stream;

use super::replies::{self, Reply};
use super::source::Sent;

/// One connection of an executor: what is under way, and bytes on their way out and in.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) token: ConnToken,
    pub(super) address: SocketAddr,
    /// None while its server cannot be reached.
    socket: Option<TcpStream>,
    tls: Option<Box<ClientConnection>>,
    /// Commands that are not handed to the kernel yet.
    pub(super) out: Vec<u8>,
    /// What the kernel has.
    sending: Vec<u8>,
    pub(super) is_sending: bool,
    /// The beginning of a reply.
    unread: Vec<u8>,
    pub(super) in_flight: VecDeque<Sent>,
}

impl Link {
    /// Takes over a connection on which everything was answered.
    pub(super) fn new(
        stream: Stream,
        (token, address): (ConnToken, SocketAddr),
        ring: &mut Ring,
    ) -> Result<Self> {
        let (socket, tls) = match stream {
            Stream::Plain(socket) => (socket, None),
            Stream::Tls(stream) => {
                let (mut session, socket) = stream.into_parts();
                session.set_buffer_limit(None);
                (socket, Some(Box::new(session)))
            }
        };
        let timeout = socket.set_read_timeout(None);
        timeout.map_err(BenchError::io("a connection's timeout"))?;
        ring.receive(token, socket.as_raw_fd());
        ring.await_hangup(token, socket.as_raw_fd());
        Ok(Link {
            socket: Some(socket),
            tls,
            ..Link::down(token, address)
        })
    }

    /// One to a server that cannot be reached.
    pub(super) fn down(token: ConnToken, address: SocketAddr) -> Self {
        Link {
            token,
            address,
            socket: None,
            tls: None,
            out: Vec::new(),
            sending: Vec::new(),
            is_sending: false,
            unread: Vec::new(),
            in_flight: VecDeque::new(),
        }
    }

    pub(super) fn is_down(&self) -> bool {
        self.socket.is_none()
    }

    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Hands over what is to be sent, unless something still is: then what comes next goes with it.
    pub(super) fn flush(&mut self, ring: &mut Ring) -> io::Result<()> {
        if self.is_sending {
            return Ok(());
        }
        self.sending.clear();
        match &mut self.tls {
            None => mem::swap(&mut self.out, &mut self.sending),
            Some(session) => {
                session.writer().write_all(&self.out)?;
                self.out.clear();
                while session.wants_write() {
                    session.write_tls(&mut self.sending)?;
                }
            }
        }
        if !self.sending.is_empty() {
            self.is_sending = true;
            // SAFETY: nothing touches `sending` while `is_sending`, and its owner keeps links that send.
            unsafe { ring.send(self.token, self.fd(), &self.sending) };
        }
        Ok(())
    }

    /// Takes bytes that have arrived and gives each reply with what it is for to `take`.
    ///
    /// # Errors
    /// When they are no replies to what was sent, and those of `take`.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(Sent, Reply<'_>) -> Result<()>,
    ) -> Result<()> {
        let address = self.address;
        let wrong = |problem: &dyn Display| BenchError::failed(address.to_string(), problem);
        let plain;
        let bytes = match &mut self.tls {
            None => bytes,
            Some(session) => {
                plain = decrypt(session, bytes).map_err(|error| wrong(&error))?;
                &plain
            }
        };
        let unread = &mut self.unread;
        let has_rest = !unread.is_empty();
        if has_rest {
            unread.extend_from_slice(bytes);
        }
        let all = if has_rest { &unread[..] } else { bytes };
        let mut used = 0;
        let first = |bytes| replies::first(bytes).map_err(|problem| wrong(&problem));
        while let Some((reply, length)) = first(&all[used..])? {
            let sent = self.in_flight.pop_front();
            let sent = sent.ok_or_else(|| wrong(&"more replies than commands"))?;
            take(sent, reply)?;
            used += length;
        }
        match has_rest {
            true => drop(unread.drain(..used)),
            false => unread.extend_from_slice(&bytes[used..]),
        }
        Ok(())
    }

    /// Ends it: what the ring still does on it ends soon.
    pub(super) fn shut(&self) {
        if let Some(socket) = &self.socket {
            // It fails only when the other end has done so.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn decrypt(session: &mut ClientConnection, mut bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    while !bytes.is_empty() {
        session.read_tls(&mut bytes)?;
        let state = session.process_new_packets().map_err(io::Error::other)?;
        let start = plain.len();
        plain.resize(start + state.plaintext_bytes_to_read(), 0);
        session.reader().read_exact(&mut plain[start..])?;
    }
    Ok(plain)
}
