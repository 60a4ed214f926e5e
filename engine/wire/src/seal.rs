//! What follows the handshake of a link with a secret: records that nobody else can read, change, repeat or leave out.
//!
//! ```text
//!  0          4                    4 + len          4 + len + 16
//!  +----------+--------------------+-----------------+
//!  | len, u32 | len bytes, sealed  | tag             |
//!  +----------+--------------------+-----------------+
//! ```
//!
//! A record is sealed by AES-256-GCM, its length being authenticated, too; the nonce is the number of the record in its
//! direction and under its key. Each direction has a key of its own, made of the cluster secret and both hellos with
//! their nonces ([`crate::handshake`]), and after [`RECORDS_PER_KEY`] records another one, made of the one before.
//! Whoever learns the secret can read what was recorded of links before.

use std::fmt;
use std::ops::Range;

use hmac::{Hmac, KeyInit, Mac};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use sha2::Sha256;
use zeroize::Zeroizing;

/// Longest plaintext of a record, bytes.
pub const RECORD_BYTES_MAX: usize = 64 << 10;

/// Bytes of a record beside its plaintext.
pub const RECORD_OVERHEAD_BYTES: usize = LENGTH_BYTES + TAG_BYTES;

/// Records under one key: with records of 64 KiB, far below what makes AES-GCM's nonces and tags weak.
pub const RECORDS_PER_KEY: u64 = 1 << 20;

const LENGTH_BYTES: usize = 4;
const TAG_BYTES: usize = 16;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// A key as it is kept: overwritten when it goes.
pub type KeyBytes = Zeroizing<[u8; KEY_BYTES]>;

/// Both directions of a link, as one end has them.
#[derive(Debug)]
pub struct Seals {
    /// For what this end says.
    pub sealer: Sealer,
    /// For what the other one does.
    pub opener: Opener,
}

/// Seals what one end says.
pub struct Sealer(Key);

/// Opens what the other end has sealed.
pub struct Opener(Key);

/// Why bytes are no record: end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// Not of the other end, or not what it has said here.
    #[error("what came is not what the other end has sealed")]
    Forged,
    /// Longer than any.
    #[error("a sealed record of {0} bytes: the longest has {RECORD_BYTES_MAX}")]
    Length(usize),
}

impl Seals {
    /// `own` seals what this end says, `others` what the other one does.
    #[must_use]
    pub fn new(own: KeyBytes, others: KeyBytes) -> Seals {
        Seals {
            sealer: Sealer(Key::new(own)),
            opener: Opener(Key::new(others)),
        }
    }
}

impl Sealer {
    /// Appends `plain` to `out`, cut into records.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        for piece in plain.chunks(RECORD_BYTES_MAX) {
            let length = (piece.len() as u32).to_le_bytes();
            out.extend_from_slice(&length);
            let start = out.len();
            out.extend_from_slice(piece);
            let sealed = out.get_mut(start..).unwrap_or_default();
            let tag = self.0.seal(&length, sealed);
            out.extend_from_slice(&tag);
        }
    }
}

impl Opener {
    /// Opens the first record of `bytes` in place: where its plaintext is now, and the length of the record; `None` while
    /// it is incomplete.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn open(&mut self, bytes: &mut [u8]) -> Result<Option<(Range<usize>, usize)>, SealError> {
        let Some((length, sealed)) = bytes.split_first_chunk_mut::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*length) as usize;
        if len > RECORD_BYTES_MAX {
            return Err(SealError::Length(len));
        }
        let Some(sealed) = sealed.get_mut(..len + TAG_BYTES) else {
            return Ok(None);
        };
        self.0.open(length, sealed)?;
        let plain = LENGTH_BYTES..LENGTH_BYTES + len;
        Ok(Some((plain, len + RECORD_OVERHEAD_BYTES)))
    }
}

/// The key of one direction, and the number of its next record.
struct Key {
    bytes: KeyBytes,
    cipher: LessSafeKey,
    next: u64,
}

impl Key {
    #[expect(clippy::expect_used, reason = "the array has the cipher's length")]
    fn new(bytes: KeyBytes) -> Key {
        let cipher = UnboundKey::new(&AES_256_GCM, &*bytes).expect("a key of 32 bytes");
        Key {
            bytes,
            cipher: LessSafeKey::new(cipher),
            next: 0,
        }
    }

    /// The nonce of the next record, under the key that it has.
    fn nonce(&mut self) -> Nonce {
        if self.next == RECORDS_PER_KEY {
            *self = Key::new(derive(&*self.bytes, b"ephesus link 2, next"));
        }
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.next.to_le_bytes());
        self.next += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    #[expect(clippy::expect_used, reason = "it fails only for records of gigabytes")]
    fn seal(&mut self, length: &[u8; LENGTH_BYTES], bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        let nonce = self.nonce();
        let sealed = self
            .cipher
            .seal_in_place_separate_tag(nonce, Aad::from(length), bytes);
        let tag = sealed.expect("a record is short");
        let tag = tag.as_ref().try_into();
        tag.expect("a tag has 16 bytes")
    }

    fn open(&mut self, length: &[u8; LENGTH_BYTES], bytes: &mut [u8]) -> Result<(), SealError> {
        let nonce = self.nonce();
        let opened = self.cipher.open_in_place(nonce, Aad::from(length), bytes);
        opened.map(drop).map_err(|_| SealError::Forged)
    }
}

/// A key made of another one.
#[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
pub(crate) fn derive(key: &[u8], label: &[u8]) -> KeyBytes {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(label);
    Zeroizing::new(mac.finalize().into_bytes().into())
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer(..)")
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opener(..)")
    }
}

#[cfg(test)]
mod tests;
