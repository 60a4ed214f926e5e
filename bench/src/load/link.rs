use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::mem;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use ephesus_engine::net::{ConnToken, Ring};
use ephesus_wire::resp::value::measure;
use rustls::ClientConnection;

use crate::error::{During, Result};
use crate::resp::Connection;

use super::source::Sent;

/// Longest reply that is waited for.
const REPLY_BYTES_MAX: usize = 64 << 20;

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
    sending: Vec<u8>,
    pub(super) is_sending: bool,
    /// Replies that have arrived and are not taken.
    pub(super) unread: Vec<u8>,
    pub(super) in_flight: VecDeque<Sent>,
}

impl Link {
    /// Takes over a connection on which everything was answered.
    pub(super) fn new(connection: Connection, token: ConnToken, ring: &mut Ring) -> Result<Self> {
        let Connection {
            address,
            socket,
            mut tls,
            ..
        } = connection;
        if let Some(session) = &mut tls {
            session.set_buffer_limit(None);
        }
        socket.set_read_timeout(None).during(address)?;
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

    pub(super) fn arrived(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(session) = &mut self.tls else {
            self.unread.extend_from_slice(bytes);
            return Ok(());
        };
        let decrypted = decrypt(session, bytes, &mut self.unread);
        decrypted.during(self.address)
    }

    /// Ends it: what the ring still does on it ends soon.
    pub(super) fn shut(&self) {
        if let Some(socket) = &self.socket {
            // It fails only when the other end has done so.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn decrypt(
    session: &mut ClientConnection,
    mut bytes: &[u8],
    plain: &mut Vec<u8>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        session.read_tls(&mut bytes)?;
        let state = session.process_new_packets().map_err(io::Error::other)?;
        let start = plain.len();
        plain.resize(start + state.plaintext_bytes_to_read(), 0);
        session.reader().read_exact(&mut plain[start..])?;
    }
    Ok(())
}

/// A reply, as far as a client cares, where it lies: owned values would double what reading costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply<'a> {
    Done,
    Integer(i64),
    Value(&'a [u8]),
    Null,
    Error(&'a [u8]),
    List(&'a [u8]),
}

/// The first reply of `bytes` and its length; none when it is not there as a whole.
pub(super) fn first(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, &'static str> {
    let wrong = "not a reply";
    let Some(length) = measure(bytes).map_err(|_| wrong)? else {
        return match bytes.len() > REPLY_BYTES_MAX {
            true => Err("a reply is too long"),
            false => Ok(None),
        };
    };
    let whole = &bytes[..length];
    let text = |whole: &'_ [u8]| -> Option<i64> { std::str::from_utf8(whole).ok()?.parse().ok() };
    let reply = match whole {
        [b'+', ..] => Reply::Done,
        [b':', number @ .., _, _] => text(number).map(Reply::Integer).ok_or(wrong)?,
        [b'-', error @ .., _, _] => Reply::Error(error),
        [b'_', ..] | [b'$', b'-', ..] => Reply::Null,
        [b'$', rest @ .., _, _] => {
            let head = rest.iter().position(|byte| *byte == b'\n').ok_or(wrong)?;
            Reply::Value(&rest[head + 1..])
        }
        [b'*', ..] => Reply::List(whole),
        _ => return Err(wrong),
    };
    Ok(Some((reply, length)))
}
