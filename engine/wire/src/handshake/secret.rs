//! The secret that the members of a cluster share, and the proofs of knowing it.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::seal::KeyBytes;

/// Shortest secret, bytes: anything shorter can be guessed from one recorded handshake.
pub const SECRET_BYTES_MIN: usize = 16;

/// Longest secret, bytes.
pub const SECRET_BYTES_MAX: usize = 4096;

/// Bytes of a proof: HMAC-SHA256.
pub(super) const PROOF_BYTES: usize = 32;

/// What `--cluster-secret-file` holds; never printed, and overwritten when its last copy goes.
#[derive(Clone)]
pub struct Secret(Arc<Zeroizing<Vec<u8>>>);

/// Write another file, for example with `head -c 32 /dev/urandom | base64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a cluster secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes, this one has {found}"
)]
pub struct SecretError {
    /// Its length, bytes.
    pub found: usize,
}

/// Who proves; part of what is proved, so that no proof can be sent back to its maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prover {
    Connector,
    Acceptor,
}

impl Prover {
    fn label(self) -> &'static [u8] {
        match self {
            Prover::Connector => b"ephesus link 1, connector",
            Prover::Acceptor => b"ephesus link 1, acceptor",
        }
    }

    /// Of the key for what this side says behind the proofs.
    fn key_label(self) -> &'static [u8] {
        match self {
            Prover::Connector => b"ephesus link 2, key of the connector",
            Prover::Acceptor => b"ephesus link 2, key of the acceptor",
        }
    }
}

impl Secret {
    /// Takes over the contents of a secret file, without the newline that editors end it with.
    ///
    /// # Errors
    /// When it is too short or too long.
    pub fn new(contents: Vec<u8>) -> Result<Secret, SecretError> {
        let mut contents = Zeroizing::new(contents);
        if contents.last() == Some(&b'\n') {
            contents.pop();
        }
        let found = contents.len();
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&found) {
            return Err(SecretError { found });
        }
        Ok(Secret(Arc::new(contents)))
    }

    /// HMAC-SHA256 over the prover's label and both hellos, each behind its length (u32).
    pub(super) fn prove(&self, prover: Prover, connector: &[u8], acceptor: &[u8]) -> Vec<u8> {
        let mac = self.mac(prover.label(), connector, acceptor);
        mac.finalize().into_bytes().to_vec()
    }

    /// The key for what a side says behind the proofs: HMAC-SHA256 as those, over a label of its own.
    pub(super) fn key(&self, of: Prover, connector: &[u8], acceptor: &[u8]) -> KeyBytes {
        let mac = self.mac(of.key_label(), connector, acceptor);
        Zeroizing::new(mac.finalize().into_bytes().into())
    }

    /// Whether `proof` is what [`Secret::prove`] answers; takes the same time wherever they differ.
    pub(super) fn accepts(
        &self,
        proof: &[u8],
        prover: Prover,
        connector: &[u8],
        acceptor: &[u8],
    ) -> bool {
        let mac = self.mac(prover.label(), connector, acceptor);
        mac.verify_slice(proof).is_ok()
    }

    #[expect(
        clippy::expect_used,
        reason = "HMAC takes keys of any length, and both hellos are of this release"
    )]
    fn mac(&self, label: &[u8], connector: &[u8], acceptor: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in [label, connector, acceptor] {
            let length = u32::try_from(part.len()).expect("a hello is short");
            mac.update(&length.to_le_bytes());
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
