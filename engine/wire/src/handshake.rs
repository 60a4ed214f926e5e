//! The handshake that opens every link between coordinators, nodes and operators.
//!
//! ```text
//! connector                          acceptor
//!     | 0xFF01 hello ------------------> |
//!     | <------------------ hello 0xFF01 |   without secrets the link is open
//!     | 0xFF02 proof ------------------> |
//!     | <------------------ proof 0xFF02 |   with secrets it is open now
//!     | <---------------- refused 0xFF03 |   instead of the link, at any point after its hello
//! ```
//!
//! Each message is a [`Frame`] of stream 0 whose sequence counts its sender's messages from 0. A
//! proof is HMAC-SHA256 with the cluster secret over who proves and both hellos, nonces included:
//! it fits no other connection and not the other direction. The side that listens proves last, so
//! that a stranger who connects learns nothing to test guesses of the secret with. A refusal is a
//! reason (u16, see [`Refusal`]).
//!
//! With secrets everything behind the proofs is [sealed](crate::seal) by keys of this one link. Without them nothing is:
//! that is for one machine, which has no network in between.

use crate::frame::Frame;
use crate::seal::Seals;

mod error;
mod hello;
mod secret;

pub use error::{HandshakeError, Refusal};
pub use hello::{HELLO_BYTES, Hello, Identity, LinkRole, NONCE_BYTES, Versions};
pub use secret::{SECRET_BYTES_MAX, SECRET_BYTES_MIN, Secret, SecretError};

use secret::{PROOF_BYTES, Prover};

/// Longest payload of a message of the handshake: read them with
/// [`decode_limited`](crate::frame::decode_limited).
pub const HANDSHAKE_PAYLOAD_BYTES_MAX: usize = 4096;

/// Frames of this kind and above are the handshake's; what follows it uses those below.
pub const HANDSHAKE_KIND_MIN: u16 = 0xFF00;

const KIND_HELLO: u16 = 0xFF01;
const KIND_PROOF: u16 = 0xFF02;
const KIND_REFUSED: u16 = 0xFF03;

/// One end's part in one handshake.
///
/// ```text
/// connector   Hello -> Proof -> Over
/// acceptor    Hello -> Proof -> Over
///             Hello ----------> Over    without secrets
/// ```
#[derive(Debug)]
pub struct Handshake {
    own: Hello,
    own_bytes: Vec<u8>,
    secret: Option<Secret>,
    side: Prover,
    awaits: Awaits,
    /// Of what follows, once both have proved that they know the secret.
    seals: Option<Seals>,
    /// Messages fed so far, and sent so far.
    fed: u64,
    sent: u64,
}

/// The message that is due from the peer.
#[derive(Debug)]
enum Awaits {
    Hello,
    Proof { peer_bytes: Vec<u8>, opened: Opened },
    Nothing,
}

/// What both ends know once the link is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Who the peer is; with a secret, proved to be of the same cluster.
    pub peer: Identity,
    /// The newest protocol version of both.
    pub version: u16,
    /// The features of both.
    pub features: u64,
}

/// What a message leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send these bytes and wait for the next message.
    Send(Vec<u8>),
    /// Send these bytes, of which there may be none; the link is open.
    Done {
        /// The last message of this side.
        send: Vec<u8>,
        /// What was agreed on.
        opened: Opened,
    },
}

impl Handshake {
    /// The end that connects, and what it sends first.
    #[must_use]
    pub fn connect(own: Hello, secret: Option<Secret>) -> (Handshake, Vec<u8>) {
        let mut handshake = Handshake::new(own, secret, Prover::Connector);
        let hello = handshake.hello();
        (handshake, hello)
    }

    /// The end that listens.
    #[must_use]
    pub fn accept(own: Hello, secret: Option<Secret>) -> Handshake {
        Handshake::new(own, secret, Prover::Acceptor)
    }

    fn new(own: Hello, secret: Option<Secret>, side: Prover) -> Handshake {
        Handshake {
            own,
            own_bytes: own.encode(secret.is_some()),
            secret,
            side,
            awaits: Awaits::Hello,
            seals: None,
            fed: 0,
            sent: 0,
        }
    }

    /// Takes the peer's next message.
    ///
    /// # Errors
    /// Send [`Handshake::farewell`] and close the connection.
    pub fn feed(&mut self, frame: Frame<'_>) -> Result<Step, HandshakeError> {
        // Until the message is found to be right, nothing can follow it.
        let awaits = std::mem::replace(&mut self.awaits, Awaits::Nothing);
        if frame.stream != 0 || frame.sequence != self.fed {
            return Err(HandshakeError::Malformed("frame out of order"));
        }
        if frame.payload.len() > HANDSHAKE_PAYLOAD_BYTES_MAX {
            return Err(HandshakeError::Malformed("message is too long"));
        }
        self.fed += 1;
        match (awaits, frame.kind) {
            (Awaits::Hello, KIND_HELLO) => self.take_hello(frame.payload),
            (Awaits::Proof { peer_bytes, opened }, KIND_PROOF) => {
                self.take_proof(frame.payload, &peer_bytes, opened)
            }
            (Awaits::Hello | Awaits::Proof { .. }, KIND_REFUSED)
                if self.side == Prover::Connector =>
            {
                let code = <[u8; 2]>::try_from(frame.payload)
                    .map_err(|_| HandshakeError::Malformed("refusal"))?;
                let refusal = Refusal::from_code(u16::from_le_bytes(code));
                Err(HandshakeError::Refused(refusal))
            }
            (_, kind) => Err(HandshakeError::Unexpected { kind }),
        }
    }

    /// What seals everything behind a handshake that is [`Step::Done`]; none without secrets.
    #[must_use]
    pub fn into_seals(self) -> Option<Seals> {
        self.seals
    }

    /// What to send before closing because of `error`, so that the peer can say what to do; may be
    /// empty. Only the end that listens says something: what the other one finds wrong, the listener
    /// finds wrong as well.
    #[must_use]
    pub fn farewell(&mut self, error: &HandshakeError) -> Vec<u8> {
        let Some(refusal) = Refusal::of(error) else {
            return Vec::new();
        };
        if self.side == Prover::Connector {
            return Vec::new();
        }
        let mut bytes = Vec::new();
        if self.sent == 0 {
            bytes = self.hello();
        }
        bytes.extend(self.message(KIND_REFUSED, &refusal.to_code().to_le_bytes()));
        bytes
    }

    fn take_hello(&mut self, payload: &[u8]) -> Result<Step, HandshakeError> {
        let received = Hello::decode(payload)?;
        let opened = self.agree(&received.hello, received.has_secret)?;
        let mut send = Vec::new();
        if self.side == Prover::Acceptor {
            send = self.hello();
        }
        let Some(secret) = &self.secret else {
            return Ok(Step::Done { send, opened });
        };
        if self.side == Prover::Connector {
            let proof = secret.prove(Prover::Connector, &self.own_bytes, payload);
            send = self.message(KIND_PROOF, &proof);
        }
        self.awaits = Awaits::Proof {
            peer_bytes: payload.to_vec(),
            opened,
        };
        Ok(Step::Send(send))
    }

    /// Whether the two can speak, and how.
    fn agree(&self, peer: &Hello, peer_has_secret: bool) -> Result<Opened, HandshakeError> {
        if peer.nonce == self.own.nonce {
            return Err(HandshakeError::Reflected);
        }
        let (own, peer) = (self.own.identity, peer.identity);
        match (self.secret.is_some(), peer_has_secret) {
            (true, false) => return Err(HandshakeError::SecretMissing),
            (false, true) => return Err(HandshakeError::SecretWanted),
            (true, true) | (false, false) => {}
        }
        let Some(version) = own.versions.newest_common(peer.versions) else {
            return Err(HandshakeError::Version {
                own: own.versions,
                peer: peer.versions,
            });
        };
        if let (Some(own), Some(peer)) = (own.cluster, peer.cluster)
            && own != peer
        {
            return Err(HandshakeError::Cluster { own, peer });
        }
        if own.role == peer.role && own.node == peer.node && own.node.0 != [0; 16] {
            return Err(HandshakeError::Itself { node: own.node });
        }
        Ok(Opened {
            peer,
            version,
            features: own.features & peer.features,
        })
    }

    fn take_proof(
        &mut self,
        proof: &[u8],
        peer_bytes: &[u8],
        opened: Opened,
    ) -> Result<Step, HandshakeError> {
        // Only a side with a secret waits for a proof.
        let secret = self.secret.as_ref();
        let secret = secret.ok_or(HandshakeError::Malformed("proof"))?;
        if proof.len() != PROOF_BYTES {
            return Err(HandshakeError::Malformed("proof"));
        }
        let own = self.own_bytes.as_slice();
        let (peer_side, connector, acceptor) = match self.side {
            Prover::Connector => (Prover::Acceptor, own, peer_bytes),
            Prover::Acceptor => (Prover::Connector, peer_bytes, own),
        };
        if !secret.accepts(proof, peer_side, connector, acceptor) {
            return Err(HandshakeError::SecretWrong);
        }
        let key_of = |side| secret.key(side, connector, acceptor);
        let seals = Seals::new(key_of(self.side), key_of(peer_side));
        let mut send = Vec::new();
        if self.side == Prover::Acceptor {
            let proof = secret.prove(Prover::Acceptor, connector, acceptor);
            send = self.message(KIND_PROOF, &proof);
        }
        self.seals = Some(seals);
        Ok(Step::Done { send, opened })
    }

    fn hello(&mut self) -> Vec<u8> {
        let payload = std::mem::take(&mut self.own_bytes);
        let bytes = self.message(KIND_HELLO, &payload);
        self.own_bytes = payload;
        bytes
    }

    fn message(&mut self, kind: u16, payload: &[u8]) -> Vec<u8> {
        let frame = Frame {
            kind,
            stream: 0,
            sequence: self.sent,
            payload,
        };
        self.sent += 1;
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests;
