//! Links for commands that people and scripts run: one thread, one request at a time, no executor.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use ephesus_wire::frame::Frame;
use ephesus_wire::handshake::{HANDSHAKE_KIND_MIN, Handshake, Identity, Opened, Secret, Step};
use ephesus_wire::limits::FRAME_PAYLOAD_BYTES_MAX;
use ephesus_wire::seal::Sealer;

use super::Message;
use super::error::LinkError;
use super::inbound::Inbound;
use super::keep_alive::KeepAlive;
use super::opening::{self, Failed};

/// Bytes of one read.
const READ_BYTES: usize = 16 << 10;

/// Why a request got no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// See there.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Whether the request was carried out is not known: ask for the state before repeating it.
    #[error("{address} did not answer in time")]
    Deadline {
        /// Who was asked.
        address: String,
    },
    /// An earlier request has failed, and its answer may still come: dial again.
    #[error("the link has failed before")]
    Poisoned,
}

/// A link that is used for one request after the other.
#[derive(Debug)]
pub struct Client {
    address: String,
    stream: TcpStream,
    inbound: Inbound,
    sealer: Option<Sealer>,
    opened: Opened,
    poisoned: bool,
}

/// The moment at which waiting ends.
#[derive(Clone, Copy, Debug)]
struct Deadline(Instant);

impl Client {
    /// Opens a link to `address` (`host:port`) within `limit`; looking a name up may take longer.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn dial(
        address: &str,
        identity: Identity,
        secret: Option<Secret>,
        limit: Duration,
    ) -> Result<Client, CallError> {
        let deadline = Deadline::after(limit);
        let late = || CallError::Deadline {
            address: address.to_owned(),
        };
        let mut stream = connect(address, deadline)?;
        stream.set_nodelay(true).map_err(LinkError::from)?;
        KeepAlive::LINKS.set(&stream).map_err(LinkError::from)?;
        let hello = opening::hello(identity);
        let (mut handshake, first) = Handshake::connect(hello, secret);
        let mut inbound = Inbound::default();
        let mut send = first;
        loop {
            write(&mut stream, &send, deadline)?.ok_or_else(late)?;
            send.clear();
            match opening::advance(&mut handshake, &mut inbound) {
                Ok(Some(Step::Send(bytes))) => send = bytes,
                Ok(Some(Step::Done { send, opened })) => {
                    write(&mut stream, &send, deadline)?.ok_or_else(late)?;
                    let sealer = opening::seal(handshake, &mut inbound);
                    return Ok(Client {
                        address: address.to_owned(),
                        stream,
                        inbound,
                        sealer,
                        opened,
                        poisoned: false,
                    });
                }
                Ok(None) => {
                    if fill(&mut stream, &mut inbound, deadline)?.ok_or_else(late)? == 0 {
                        return Err(LinkError::EndedEarly.into());
                    }
                }
                Err(Failed { send, error }) => {
                    // The other end may have gone already.
                    let _ = write(&mut stream, &send, deadline);
                    return Err(error.into());
                }
            }
        }
    }

    /// What the handshake has agreed on, and who answers.
    #[must_use]
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Sends a request and waits up to `limit` for the answer, which is the next message.
    ///
    /// # Errors
    /// [`CallError`]; after any but [`LinkError::TooLong`] the client is of no more use.
    ///
    /// # Panics
    /// When `kind` is one of the handshake.
    pub fn request(
        &mut self,
        kind: u16,
        payload: &[u8],
        limit: Duration,
    ) -> Result<Message, CallError> {
        assert!(
            kind < HANDSHAKE_KIND_MIN,
            "message {kind:#06x} is only for handshakes"
        );
        let bytes = payload.len();
        if bytes > FRAME_PAYLOAD_BYTES_MAX {
            return Err(LinkError::TooLong { bytes }.into());
        }
        if self.poisoned {
            return Err(CallError::Poisoned);
        }
        self.poisoned = true;
        let frame = Frame {
            kind,
            stream: 0,
            sequence: 0,
            payload,
        };
        let answer = self.exchange(&frame, Deadline::after(limit))?;
        self.poisoned = false;
        Ok(answer)
    }

    fn exchange(&mut self, request: &Frame<'_>, deadline: Deadline) -> Result<Message, CallError> {
        let late = || CallError::Deadline {
            address: self.address.clone(),
        };
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        if let Some(sealer) = &mut self.sealer {
            let mut sealed = Vec::new();
            sealer.seal(&bytes, &mut sealed);
            bytes = sealed;
        }
        write(&mut self.stream, &bytes, deadline)?.ok_or_else(late)?;
        loop {
            let first = self.inbound.first(FRAME_PAYLOAD_BYTES_MAX);
            if let Some((frame, len)) = first.map_err(LinkError::Framing)? {
                if frame.kind >= HANDSHAKE_KIND_MIN {
                    return Err(LinkError::Kind { kind: frame.kind }.into());
                }
                let message = Message {
                    kind: frame.kind,
                    stream: frame.stream,
                    payload: frame.payload.to_vec(),
                };
                self.inbound.consume(len);
                return Ok(message);
            }
            if fill(&mut self.stream, &mut self.inbound, deadline)?.ok_or_else(late)? == 0 {
                return Err(LinkError::Ended.into());
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a shell: a command's deadlines are kept here"
)]
impl Deadline {
    fn after(limit: Duration) -> Deadline {
        Deadline(Instant::now() + limit)
    }

    /// What is left; none when it is over, never zero, which sockets take for "no limit".
    fn left(self) -> Option<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }
}

fn connect(address: &str, deadline: Deadline) -> Result<TcpStream, LinkError> {
    let candidates: Vec<SocketAddr> = address
        .to_socket_addrs()
        .map_err(|error| LinkError::Address {
            address: address.to_owned(),
            detail: error.to_string(),
        })?
        .collect();
    let mut kind = io::ErrorKind::AddrNotAvailable;
    for candidate in candidates {
        let Some(left) = deadline.left() else {
            kind = io::ErrorKind::TimedOut;
            break;
        };
        match TcpStream::connect_timeout(&candidate, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => kind = error.kind(),
        }
    }
    let address = address.to_owned();
    Err(LinkError::Unreachable { address, kind })
}

/// Writes everything; `None` when the deadline passes first.
fn write(
    stream: &mut TcpStream,
    mut bytes: &[u8],
    deadline: Deadline,
) -> Result<Option<()>, LinkError> {
    while !bytes.is_empty() {
        let Some(left) = deadline.left() else {
            return Ok(None);
        };
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(LinkError::Ended),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if is_retry(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(()))
}

/// Reads once, 0 is the end; `None` when the deadline passes first.
fn fill(
    stream: &mut TcpStream,
    inbound: &mut Inbound,
    deadline: Deadline,
) -> Result<Option<usize>, LinkError> {
    let mut bytes = [0; READ_BYTES];
    loop {
        let Some(left) = deadline.left() else {
            return Ok(None);
        };
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes) {
            Ok(len) => {
                inbound.push(bytes.get(..len).unwrap_or_default());
                return Ok(Some(len));
            }
            Err(error) if is_retry(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A timeout of the socket or a signal: the deadline decides.
fn is_retry(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
