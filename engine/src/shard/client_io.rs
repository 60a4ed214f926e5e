//! The shard's sockets: connections that come, what they send and what leaves.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::Shard;
use super::connection::{Connection, Life};
use super::tls_clients::TlsClients;
use crate::net::{ConnToken, Port, Received};
use crate::shard::core::replies::outbox::Front;

/// Wait after a connection could not be accepted, mostly because too many files are open.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

impl Shard {
    pub(super) fn accepted(&mut self, port: Port, result: io::Result<RawFd>, more: bool) {
        match result {
            Ok(fd) => {
                self.admit(port, fd);
            }
            Err(_) if self.stopping.is_some() => {}
            Err(error) => {
                if let Some(times) = self.accept_failures.tell(self.now) {
                    tracing::warn!(%error, times, "connections cannot be accepted for now");
                }
                // Those that wait to be accepted would fail at once again.
                if !more {
                    self.refused_accepts.push((port, self.now + ACCEPT_AGAIN));
                }
                return;
            }
        }
        if !more {
            self.accept(port);
        }
    }

    fn accept(&mut self, port: Port) {
        let listener = self.listeners.iter().find(|(of, _)| *of == port);
        if let Some((_, listener)) = listener.filter(|_| self.stopping.is_none()) {
            self.ring.accept(listener.as_raw_fd(), port);
        }
    }

    /// Accepts again where that has failed a while ago.
    pub(super) fn accept_again(&mut self) {
        let now = self.now;
        let is_due = |(_, at): &mut (Port, Instant)| *at <= now;
        let due: Vec<_> = self.refused_accepts.extract_if(.., is_due).collect();
        for (port, _) in due {
            self.accept(port);
        }
    }

    pub(super) fn admit(&mut self, port: Port, fd: RawFd) {
        // SAFETY: the kernel has just given us this descriptor and nobody else knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let stats = self.core.stats();
        stats.connections_received.add(1);
        let stream = std::net::TcpStream::from(socket);
        let addresses = stream
            .peer_addr()
            .and_then(|peer| Ok((peer, stream.local_addr()?)));
        let Ok(addresses) = addresses else { return };
        if self.core.connections.len() >= self.core.node.settings.max_clients {
            stats.connections_rejected.add(1);
            if !port.is_tls {
                refuse(&stream);
            }
            return;
        }
        let session = match (port.is_tls, &self.core.node.tls) {
            (true, Some(tls)) => match tls.begin() {
                Ok(session) => Some(Box::new(session)),
                Err(error) => {
                    tracing::error!(%error, "a TLS session cannot begin");
                    return;
                }
            },
            _ => None,
        };
        let _ = stream.set_nodelay(true);
        let fd = stream.into_raw_fd();
        let (id, now_ms) = (self.core.next_connection_id(), self.core.keyspace.now_ms());
        let make = |token| {
            let mut connection = Connection::new(token, id, fd, port.kind, addresses, now_ms);
            connection.tls = session;
            connection
        };
        let token = self.core.connections.insert(make);
        if port.is_tls {
            self.tls_clients.admitted(token, self.now);
        }
        self.ring.await_hangup(token, fd);
        self.core.list(token);
    }

    pub(super) fn received(
        &mut self,
        token: ConnToken,
        result: io::Result<Option<Received>>,
        more: bool,
    ) {
        let Some(connection) = self.core.connections.get_mut(token) else {
            if let Ok(Some(received)) = result {
                self.ring.release(received);
            }
            return;
        };
        connection.receiving = more;
        if !more {
            connection.receive_stopping = false;
        }
        match result {
            Ok(Some(received)) if received.len > 0 => {
                let bytes = self.ring.received(received);
                if connection.tls.is_none() {
                    self.core.received(token, bytes);
                } else {
                    let core = &mut self.core;
                    self.tls_clients.received(core, token, bytes, self.now);
                }
                self.ring.release(received);
            }
            Ok(received) => {
                if let Some(received) = received {
                    self.ring.release(received);
                }
                TlsClients::ended(&mut self.core, token);
            }
            Err(error) => match error.raw_os_error() {
                // All buffers were in use, or the receive was told to end: it begins again.
                Some(libc::ENOBUFS) => self.without_buffer.push(token),
                Some(libc::ECANCELED | libc::EINTR | libc::EAGAIN) => {}
                _ => connection.kill(),
            },
        }
        self.core.list(token);
    }

    pub(super) fn sent(&mut self, token: ConnToken, result: io::Result<usize>) {
        let Some(connection) = self.core.connections.get_mut(token) else {
            return;
        };
        connection.sending_now = false;
        match result {
            Ok(sent) if sent > 0 => {
                connection.sent(sent);
                if connection.tls.is_none() {
                    self.core.stats().net_output_bytes.add(sent as u64);
                }
            }
            _ => {
                connection.kill();
                connection.sent(0);
            }
        }
        // The outbox is looked at again at the end of the turn.
        self.core.list(token);
    }

    pub(super) fn hung_up(&mut self, token: ConnToken, is_reset: bool) {
        let Some(connection) = self.core.connections.get_mut(token) else {
            return;
        };
        if is_reset {
            connection.kill();
            self.core.list(token);
        } else if connection.receiving && !connection.receive_stopping {
            // The next receive begins with a look at what there is, to the end.
            connection.receive_stopping = true;
            self.ring.stop_receiving(token);
        }
    }

    /// Looks after every connection that something happened to.
    pub(super) fn service_listed(&mut self) {
        // Who came away empty is the first to receive again, or those with much to send would take all buffers each
        // time.
        for token in std::mem::take(&mut self.without_buffer) {
            self.service(token);
        }
        let listed = std::mem::take(&mut self.core.listed);
        for &token in &listed {
            self.service(token);
        }
        // What was listed meanwhile has its turn next time.
        let mut listed = listed;
        listed.clear();
        listed.append(&mut self.core.listed);
        self.core.listed = listed;
    }

    pub(super) fn service(&mut self, token: ConnToken) {
        let committed = self.core.keyspace.log.committed();
        let Some(connection) = self.core.connections.get_mut(token) else {
            return;
        };
        connection.listed = false;
        connection.outbox.note_committed(committed);
        let must_tell_presence = connection.must_tell_presence();
        let mut gate = None;
        let mut encrypted = 0;
        if connection.life != Life::Dead && !connection.sending_now {
            if connection.sending.is_empty() {
                match connection
                    .outbox
                    .take_ready(committed, &mut connection.sending)
                {
                    Front::Gated(lsn) => gate = Some(lsn),
                    Front::Empty if connection.life == Life::Draining => connection.finish(),
                    Front::Taken | Front::Empty | Front::Awaited => {}
                }
            }
            if connection.tls.is_some() {
                encrypted = connection.encrypt_next();
            }
            if !connection.next_to_send().is_empty() {
                connection.sending_now = true;
                // SAFETY: `sending` is not touched until the `Sent` completion, and the connection is not
                // dropped before (`is_finished`).
                unsafe {
                    self.ring
                        .send(token, connection.fd, connection.next_to_send());
                }
            }
        }
        if connection.wants_input() {
            if !connection.receiving {
                connection.receiving = true;
                self.ring.receive(token, connection.fd);
            }
        } else if connection.receiving && !connection.receive_stopping {
            connection.receive_stopping = true;
            self.ring.stop_receiving(token);
        }
        if encrypted > 0 {
            self.core.stats().net_output_bytes.add(encrypted as u64);
        }
        if must_tell_presence {
            self.core.note_presence(token);
        }
        self.core.tend_output(token);
        let Some(connection) = self.core.connections.get_mut(token) else {
            return;
        };
        if connection.is_finished() {
            // SAFETY: the connection owned the descriptor, and the ring has nothing outstanding
            // for it.
            drop(unsafe { OwnedFd::from_raw_fd(connection.fd) });
            self.core.remove_connection(token);
        } else if let Some(lsn) = gate {
            self.core.list_once_committed(token, lsn);
        }
    }
}

/// Tells a client that there is no room for it.
fn refuse(stream: &std::net::TcpStream) {
    let mut text = Vec::new();
    crate::command::error::ClientError::TooManyClients.write(&mut text);
    let _ = stream.set_nonblocking(true);
    let _ = io::Write::write(&mut &*stream, &text);
}
