//! Clients that come over TLS: what their sockets say becomes commands, and their handshakes take turns.
//!
//! A step of a handshake costs up to a millisecond, so a turn has one, whoever asks for it; the others wait, and so do
//! their sockets. A client that has not shaken hands when its time is over is closed.

use std::collections::VecDeque;
use std::fmt::Display;
use std::time::{Duration, Instant};

use super::connection::Life;
use super::core::Core;
use super::seldom::Seldom;
use crate::net::ConnToken;
use crate::tls::{Said, Session};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Room for what was decrypted that is kept.
const KEPT_BYTES: usize = 64 << 10;

/// What a shard keeps beside the sessions themselves.
#[derive(Default)]
pub(super) struct TlsClients {
    /// Whose next step waits for its turn.
    waiting: VecDeque<ConnToken>,
    /// By when those that came last have to have shaken hands, in order.
    deadlines: VecDeque<(Instant, ConnToken)>,
    /// What one client has said, decrypted.
    plain: Vec<u8>,
    told: Seldom,
}

impl TlsClients {
    /// A client has connected.
    pub(super) fn admitted(&mut self, token: ConnToken, now: Instant) {
        self.deadlines.push_back((now + HANDSHAKE, token));
    }

    /// Takes what has come of a connection.
    pub(super) fn received(
        &mut self,
        core: &mut Core,
        token: ConnToken,
        bytes: &[u8],
        now: Instant,
    ) {
        let Some(session) = open_session(core, token) else {
            return;
        };
        if session.is_handshaking() || session.is_waiting() {
            if !session.is_waiting() {
                self.waiting.push_back(token);
            }
            session.wait(bytes);
        } else {
            self.decrypt(core, token, bytes, now);
        }
    }

    /// The socket of a connection has nothing more: what has come and waits is still executed.
    pub(super) fn ended(core: &mut Core, token: ConnToken) {
        let connection = core.connections.get_mut(token);
        match connection.and_then(|connection| connection.tls.as_deref_mut()) {
            Some(session) if session.is_waiting() => session.wait_with_end(),
            _ => core.input_ended(token),
        }
    }

    /// Whether a step waits for its turn.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When a handshake has taken too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|(at, _)| *at)
    }

    /// One step of one handshake, and the end of those that take too long.
    pub(super) fn turn(&mut self, core: &mut Core, now: Instant) {
        while let Some(token) = self.waiting.pop_front() {
            let session = open_session(core, token);
            if let Some((bytes, is_end)) = session.map(Session::take_waiting) {
                self.decrypt(core, token, &bytes, now);
                if is_end {
                    core.input_ended(token);
                }
                break;
            }
        }
        while let Some((at, token)) = self.deadlines.front().copied() {
            let connection = core.connections.get(token);
            let session = connection.and_then(|connection| connection.tls.as_deref());
            let is_handshaking = session.is_some_and(Session::is_handshaking);
            if is_handshaking && now < at {
                break;
            }
            self.deadlines.pop_front();
            if is_handshaking {
                self.refuse(core, token, &"the handshake takes too long", now);
                core.cut_off(token);
            }
        }
    }

    fn decrypt(&mut self, core: &mut Core, token: ConnToken, bytes: &[u8], now: Instant) {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let session = open_session(core, token);
        let said = session.map(|session| session.decrypt(bytes, &mut plain));
        if !plain.is_empty() {
            core.received(token, &plain);
        }
        if plain.capacity() <= KEPT_BYTES {
            self.plain = plain;
        }
        match said {
            Some(Ok(Said::All)) => core.input_ended(token),
            Some(Err(error)) => {
                self.refuse(core, token, &error, now);
                if let Some(connection) = core.connections.get_mut(token) {
                    connection.end_tls();
                }
            }
            Some(Ok(Said::Open)) | None => {}
        }
        core.list(token);
    }

    /// Counts a client that is no client of TLS, and says so once in a while.
    #[cold]
    fn refuse(&mut self, core: &Core, token: ConnToken, why: &dyn Display, now: Instant) {
        core.stats().tls_refused.add(1);
        if let (Some(refused), Some(connection)) =
            (self.told.tell(now), core.connections.get(token))
        {
            tracing::warn!(client = %connection.remote, refused, "closed at a TLS port: {why}");
        }
    }
}

/// The session of a client that may go on to speak.
fn open_session(core: &mut Core, token: ConnToken) -> Option<&mut Session> {
    let connection = core.connections.get_mut(token)?;
    let is_open = connection.life == Life::Open;
    connection.tls.as_deref_mut().filter(|_| is_open)
}
