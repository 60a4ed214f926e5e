//! Clients that are owed much and have to read first: whether they do.
//!
//! A connection executes its next command only while little of its output is unsent, so a client that does not
//! read stops its own commands and nothing else. Some clients send all of their requests before they read the
//! first reply; so the socket of one that takes nothing is read on, up to a bound, and it is closed when it still
//! takes nothing after `--client-timeout-output`.

use std::time::{Duration, Instant};

use crate::net::{ConnToken, acknowledged_bytes};
use crate::shard::connection::Connection;
use crate::shard::core::Core;
use crate::shard::seldom::Seldom;

/// A client that took nothing for so long does not read, for now.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is known of one connection's client.
#[derive(Debug, Default)]
pub struct Unread {
    is_watched: bool,
    /// The kernel has taken bytes since the last look.
    pub has_progress: bool,
    /// It had not at the last look.
    pub is_stuck: bool,
    /// The last look at which it had, or had nothing to take.
    since: Option<Instant>,
    /// What the client had acknowledged when it was first found to be stuck, or later.
    acknowledged: Option<u64>,
}

/// The connections that are watched.
#[derive(Debug)]
pub(crate) struct UnreadClients {
    watched: Vec<ConnToken>,
    looked: Instant,
    told: Seldom,
}

impl UnreadClients {
    pub(crate) fn new(now: Instant) -> UnreadClients {
        UnreadClients {
            watched: Vec::new(),
            looked: now,
            told: Seldom::default(),
        }
    }

    /// Begins to watch whether the connection's client reads.
    pub(crate) fn watch(&mut self, connection: &mut Connection, now: Instant) {
        if !connection.unread.is_watched {
            connection.unread = Unread {
                is_watched: true,
                has_progress: true,
                is_stuck: false,
                since: Some(now),
                acknowledged: None,
            };
            if self.watched.is_empty() {
                self.looked = now;
            }
            self.watched.push(connection.token);
        }
    }

    /// When the next look is due.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        (!self.watched.is_empty()).then(|| self.looked + LOOK_EVERY)
    }
}

impl Core {
    /// Looks at the clients that have to read.
    pub(crate) fn look_after_unread(&mut self) {
        if self
            .admission
            .unread
            .next_look()
            .is_none_or(|due| self.now < due)
        {
            return;
        }
        self.admission.unread.looked = self.now;
        let timeout = self.node.settings.client_timeout_output;
        let mut watched = std::mem::take(&mut self.admission.unread.watched);
        watched.retain(|&token| {
            let Some(connection) = self.connections.get_mut(token) else {
                return false;
            };
            if !connection.must_read() {
                connection.unread = Unread::default();
                return false;
            }
            let unread = &mut connection.unread;
            let progress = std::mem::take(&mut unread.has_progress) || !connection.sending_now;
            let was_stuck = std::mem::replace(&mut unread.is_stuck, !progress);
            if progress {
                unread.since = Some(self.now);
                return true;
            }
            if !was_stuck {
                unread.acknowledged = acknowledged_bytes(connection.fd);
            }
            let since = unread.since.unwrap_or(self.now);
            if self.now.saturating_duration_since(since) >= timeout {
                // The kernel is given many bytes at once, which a slow client may be taking.
                let acknowledged = acknowledged_bytes(connection.fd);
                if acknowledged > unread.acknowledged {
                    unread.acknowledged = acknowledged;
                    unread.since = Some(self.now);
                    return true;
                }
                if let Some(closed) = self.admission.unread.told.tell(self.now) {
                    tracing::warn!(client = %connection.remote, closed, "closed: it does not read its replies");
                }
                self.cut_off(token);
            }
            self.list(token);
            true
        });
        self.admission.unread.watched = watched;
    }
}

#[cfg(test)]
mod tests;
