//! Why a link does not come about, or has ended.

use std::io;

use ephesus_wire::WireError;
use ephesus_wire::handshake::HandshakeError;

use super::counters::Reason;

/// Why there is no link, or none any more: dial again, with a [`Backoff`](super::Backoff).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// Correct the address: it has to be `host:port`, and the host known to the resolver.
    #[error("cannot find {address}: {detail}")]
    Address {
        /// As it was given.
        address: String,
        /// What the resolver says.
        detail: String,
    },
    /// Nothing listens there, or the network does not lead there.
    #[error("cannot reach {address}: {kind}")]
    Unreachable {
        /// As it was given.
        address: String,
        /// What the operating system says.
        kind: io::ErrorKind,
    },
    /// The two do not belong together; the text says what to change.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// What is at the other end does not speak this protocol: check the address.
    #[error("the other end is no peer: {0}")]
    NotAPeer(WireError),
    /// The other end accepts connections and then says nothing: it is stopped or overloaded.
    #[error("no handshake within the time given")]
    HandshakeTimeout,
    /// The other end has closed during the handshake; its log may tell why.
    #[error("the connection was closed during the handshake")]
    EndedEarly,
    /// As many links are open as the listener allows.
    #[error("too many links are open")]
    TooMany,
    /// Newer connections have taken the place of one that said too little for too long.
    #[error("given up in favour of newer connections")]
    Evicted,
    /// The peer has closed the link.
    #[error("closed by the peer")]
    Ended,
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(io::ErrorKind),
    /// What came in is no frame: the peer or the network is defective.
    #[error("framing is lost: {0}")]
    Framing(WireError),
    /// The peer repeats the handshake: it is defective.
    #[error("message {kind:#06x} is only for handshakes")]
    Kind {
        /// Of the message.
        kind: u16,
    },
    /// The peer goes on without an answer that it has to wait for: it is defective.
    #[error("the peer says more than it may")]
    Unread,
    /// The peer was silent for too long.
    #[error("the peer is silent")]
    Idle,
    /// The peer reads more slowly than it is sent to.
    #[error("more than {max} bytes wait to be sent")]
    Overflow {
        /// The bound.
        max: usize,
    },
    /// All links hold more than they may, and this one held most.
    #[error("all links together hold more than {max} bytes, and this one most")]
    Crowded {
        /// The bound.
        max: usize,
    },
    /// This side has closed the link.
    #[error("closed by this side")]
    Local,
    /// The message was not queued, the link stays as it is: cut it into several.
    #[error("a message of {bytes} bytes is too long")]
    TooLong {
        /// Its payload.
        bytes: usize,
    },
}

impl LinkError {
    /// Under what it is counted.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            LinkError::Address { .. } | LinkError::Unreachable { .. } => Reason::Unreachable,
            LinkError::Handshake(error) => match error {
                HandshakeError::Version { .. } => Reason::Version,
                HandshakeError::Cluster { .. } => Reason::Cluster,
                HandshakeError::SecretWanted
                | HandshakeError::SecretMissing
                | HandshakeError::SecretWrong => Reason::Secret,
                HandshakeError::Itself { .. } | HandshakeError::Reflected => Reason::Itself,
                HandshakeError::Refused(_) => Reason::Refused,
                _ => Reason::NotAPeer,
            },
            LinkError::NotAPeer(_) => Reason::NotAPeer,
            LinkError::HandshakeTimeout => Reason::HandshakeTimeout,
            LinkError::EndedEarly => Reason::EndedEarly,
            LinkError::TooMany => Reason::TooMany,
            LinkError::Evicted => Reason::Evicted,
            LinkError::Ended => Reason::Ended,
            LinkError::Io(_) => Reason::Broken,
            LinkError::Framing(_)
            | LinkError::Kind { .. }
            | LinkError::Unread
            | LinkError::TooLong { .. } => Reason::Framing,
            LinkError::Idle => Reason::Idle,
            LinkError::Overflow { .. } | LinkError::Crowded { .. } => Reason::Overflow,
            LinkError::Local => Reason::Local,
        }
    }
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> LinkError {
        LinkError::Io(error.kind())
    }
}
