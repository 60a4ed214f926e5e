//! Why a handshake fails.

use crate::ids::NodeId;

use super::hello::Versions;

/// Why no link comes about; both ends close the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// Upgrade the older side: releases that are next to each other understand each other.
    #[error(
        "no common protocol version: this side speaks {} to {}, the peer {} to {}; \
         upgrade the older one",
        own.min, own.max, peer.min, peer.max
    )]
    Version {
        /// What this side speaks.
        own: Versions,
        /// What the peer speaks.
        peer: Versions,
    },
    /// The address belongs to another cluster, or the data directory does.
    #[error(
        "the peer belongs to cluster {}, this side to {}: check the addresses",
        NodeId(*peer), NodeId(*own)
    )]
    Cluster {
        /// This side's.
        own: [u8; 16],
        /// The peer's.
        peer: [u8; 16],
    },
    /// Give this side the secret as well.
    #[error(
        "the peer wants a cluster secret and this side has none: \
         start it with --cluster-secret-file and the same file"
    )]
    SecretWanted,
    /// Give the peer the secret as well.
    #[error(
        "this side wants a cluster secret and the peer has none: \
         start the peer with --cluster-secret-file and the same file"
    )]
    SecretMissing,
    /// Give both sides the same file; or somebody is trying to get in.
    #[error(
        "the peer does not know this side's cluster secret: \
         --cluster-secret-file has to name the same contents on both sides"
    )]
    SecretWrong,
    /// Correct the address, or give one of two copies of a data directory up.
    #[error("the peer has this side's own role and UUID {node}: it is itself, or a copy of it")]
    Itself {
        /// The UUID.
        node: NodeId,
    },
    /// The peer has sent this side's own random number back: somebody plays with the connection.
    #[error("the peer repeats this side's own hello")]
    Reflected,
    /// The peer says why it closes; its own log tells more.
    #[error("the peer refuses: {0}")]
    Refused(Refusal),
    /// Upgrade this side.
    #[error("the peer has the unknown role {found}")]
    Role {
        /// Its number.
        found: u8,
    },
    /// Not the message that is due: not a peer of this protocol.
    #[error("unexpected message {kind:#06x} during the handshake")]
    Unexpected {
        /// Its kind.
        kind: u16,
    },
    /// A message that cannot be what its kind says.
    #[error("malformed handshake: {0}")]
    Malformed(&'static str),
}

/// What a refused peer is told, as a u16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// 1.
    #[error("no common protocol version")]
    Version,
    /// 2.
    #[error("another cluster")]
    Cluster,
    /// 3.
    #[error("it has a cluster secret and this side none: start with --cluster-secret-file")]
    SecretMissing,
    /// 4.
    #[error("it has no cluster secret and this side has: start it with --cluster-secret-file")]
    SecretWanted,
    /// 5.
    #[error("another cluster secret: --cluster-secret-file has to name the same contents")]
    SecretWrong,
    /// 6.
    #[error("the same role and UUID as its own")]
    Itself,
    /// Of a later release.
    #[error("reason {0}")]
    Other(u16),
}

impl Refusal {
    pub(super) fn to_code(self) -> u16 {
        match self {
            Refusal::Version => 1,
            Refusal::Cluster => 2,
            Refusal::SecretMissing => 3,
            Refusal::SecretWanted => 4,
            Refusal::SecretWrong => 5,
            Refusal::Itself => 6,
            Refusal::Other(code) => code,
        }
    }

    pub(super) fn from_code(code: u16) -> Refusal {
        match code {
            1 => Refusal::Version,
            2 => Refusal::Cluster,
            3 => Refusal::SecretMissing,
            4 => Refusal::SecretWanted,
            5 => Refusal::SecretWrong,
            6 => Refusal::Itself,
            code => Refusal::Other(code),
        }
    }

    /// What the peer is told about an error; nothing when it does not speak this protocol.
    pub(super) fn of(error: &HandshakeError) -> Option<Refusal> {
        match error {
            HandshakeError::Version { .. } => Some(Refusal::Version),
            HandshakeError::Cluster { .. } => Some(Refusal::Cluster),
            HandshakeError::SecretWanted => Some(Refusal::SecretWanted),
            HandshakeError::SecretMissing => Some(Refusal::SecretMissing),
            HandshakeError::SecretWrong => Some(Refusal::SecretWrong),
            HandshakeError::Itself { .. } => Some(Refusal::Itself),
            HandshakeError::Reflected
            | HandshakeError::Refused(_)
            | HandshakeError::Role { .. }
            | HandshakeError::Unexpected { .. }
            | HandshakeError::Malformed(_) => None,
        }
    }
}
