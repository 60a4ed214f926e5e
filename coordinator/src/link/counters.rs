//! How many links were opened, and why others were not or have ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a link was refused or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Not reached when dialled.
    Unreachable,
    /// Bytes that are no handshake.
    NotAPeer,
    /// No common protocol version.
    Version,
    /// Another cluster.
    Cluster,
    /// No secret, or another one.
    Secret,
    /// The same role and UUID, or a reflected hello.
    Itself,
    /// The peer said no.
    Refused,
    /// Too slow a handshake.
    HandshakeTimeout,
    /// Closed during the handshake.
    EndedEarly,
    /// The listener's bound of links.
    TooMany,
    /// The listener's bound of handshakes.
    Evicted,
    /// Closed by the peer.
    Ended,
    /// An error of the connection.
    Broken,
    /// Bytes that are no frame, or a message that is not allowed.
    Framing,
    /// Silence.
    Idle,
    /// Too slow a reader.
    Overflow,
    /// Closed by this side.
    Local,
}

impl Reason {
    /// All of them, in order.
    pub const ALL: [Reason; 17] = [
        Reason::Unreachable,
        Reason::NotAPeer,
        Reason::Version,
        Reason::Cluster,
        Reason::Secret,
        Reason::Itself,
        Reason::Refused,
        Reason::HandshakeTimeout,
        Reason::EndedEarly,
        Reason::TooMany,
        Reason::Evicted,
        Reason::Ended,
        Reason::Broken,
        Reason::Framing,
        Reason::Idle,
        Reason::Overflow,
        Reason::Local,
    ];

    /// Whether it is a listener's reason to close a connection.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        use Reason::*;
        matches!(
            self,
            NotAPeer
                | Version
                | Cluster
                | Secret
                | Itself
                | Refused
                | HandshakeTimeout
                | EndedEarly
                | TooMany
                | Evicted
                | Framing
        )
    }

    /// Its name in metrics and on the log.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Reason::Unreachable => "unreachable",
            Reason::NotAPeer => "not_a_peer",
            Reason::Version => "version",
            Reason::Cluster => "cluster",
            Reason::Secret => "secret",
            Reason::Itself => "itself",
            Reason::Refused => "refused",
            Reason::HandshakeTimeout => "handshake_timeout",
            Reason::EndedEarly => "ended_early",
            Reason::TooMany => "too_many",
            Reason::Evicted => "evicted",
            Reason::Ended => "ended",
            Reason::Broken => "broken",
            Reason::Framing => "framing",
            Reason::Idle => "idle",
            Reason::Overflow => "overflow",
            Reason::Local => "local",
        }
    }
}

/// Counts of a process, a listener or a dialer; may be read from any thread.
#[derive(Debug, Default)]
pub struct Counters {
    opened: AtomicU64,
    reasons: [AtomicU64; Reason::ALL.len()],
}

impl Counters {
    /// Handshakes that led to a link.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Links that were refused or have ended for this reason.
    #[must_use]
    pub fn count(&self, reason: Reason) -> u64 {
        self.of(reason).load(Ordering::Relaxed)
    }

    /// Connections that a listener has not let in, or closed for what came over them.
    #[must_use]
    pub fn refused(&self) -> u64 {
        let reasons = Reason::ALL.iter().filter(|reason| reason.is_refusal());
        reasons.map(|reason| self.count(*reason)).sum()
    }

    /// The refusals that there were, by the name of their reason.
    #[must_use]
    pub fn refusals(&self) -> BTreeMap<String, u64> {
        let reasons = Reason::ALL.iter().filter(|reason| reason.is_refusal());
        let counts = reasons.map(|reason| (reason.label().to_owned(), self.count(*reason)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "there are as many counts as reasons"
    )]
    fn of(&self, reason: Reason) -> &AtomicU64 {
        &self.reasons[reason as usize]
    }

    pub(super) fn add_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add(&self, reason: Reason) {
        self.of(reason).fetch_add(1, Ordering::Relaxed);
    }
}
