use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::mem;
use std::net::{Shutdown, TcpStream};
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
    pub(super) fn new(stream: Stream, token: ConnToken, ring: &mut Ring) -> Result<Self> {
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
            ..Link::down(token)
        })
    }

    /// One to a server that cannot be reached.
    pub(super) fn down(token: ConnToken) -> Self {
        Link {
            token,
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
    /// When they are no replies to what was sent.
    pub(super) fn receive(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(Sent, Reply<'_>),
    ) -> Result<(), String> {
        let Some(session) = &mut self.tls else {
            return self.read(bytes, take);
        };
        let mut plain = Vec::new();
        while !bytes.is_empty() {
            let read = session.read_tls(&mut bytes);
            read.map_err(|error| error.to_string())?;
            let state = session.process_new_packets();
            let length = state.map_err(|error| error.to_string())?;
            let start = plain.len();
            plain.resize(start + length.plaintext_bytes_to_read(), 0);
            let read = session.reader().read_exact(&mut plain[start..]);
            read.map_err(|error| error.to_string())?;
        }
        self.read(&plain, &mut take)
    }

    fn read(&mut self, bytes: &[u8], mut take: impl FnMut(Sent, Reply<'_>)) -> Result<(), String> {
        let Link {
            unread, in_flight, ..
        } = self;
        let has_rest = !unread.is_empty();
        if has_rest {
            unread.extend_from_slice(bytes);
        }
        let all = if has_rest { &unread[..] } else { bytes };
        let mut used = 0;
        while let Some((reply, length)) = replies::first(&all[used..])? {
            let sent = in_flight.pop_front().ok_or("more replies than commands")?;
            take(sent, reply);
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
        // It fails only when the other end has done so.
        let _ = self
            .socket
            .as_ref()
            .map(|socket| socket.shutdown(Shutdown::Both));
    }
}
