//! Passwords, as far as they are kept: their SHA-256.

use std::fmt;
use std::fmt::Write;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Longest password, bytes; a longer one is wrong, whoever says it.
pub const PASSWORD_BYTES_MAX: usize = 4096;

/// Digits of a hash as text.
const HEX_DIGITS: usize = 64;

/// The SHA-256 of a password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PasswordHash([u8; 32]);

impl PasswordHash {
    /// `None` of a password that is longer than [`PASSWORD_BYTES_MAX`].
    #[must_use]
    pub fn of(password: &[u8]) -> Option<PasswordHash> {
        let fits = password.len() <= PASSWORD_BYTES_MAX;
        fits.then(|| PasswordHash(Sha256::digest(password).into()))
    }

    /// Reads 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &[u8]) -> Option<PasswordHash> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        if text.len() != HEX_DIGITS {
            return None;
        }
        let mut hash = [0; HEX_DIGITS / 2];
        for (byte, pair) in hash.iter_mut().zip(text.as_chunks::<2>().0) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(PasswordHash(hash))
    }

    /// Whether it is one of those; takes the same time whichever it is, and wherever they differ.
    #[must_use]
    pub fn is_among(&self, hashes: &[PasswordHash]) -> bool {
        let none = subtle::Choice::from(0);
        let found = hashes.iter().fold(none, |found, hash| {
            found | hash.0.as_slice().ct_eq(self.0.as_slice())
        });
        found.into()
    }
}

/// Its digits, as ACL files have them.
impl fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

/// Half a byte per digit of `bits`, rounded up, from bytes that cannot be foretold.
#[must_use]
pub fn digits(random: &[u8], bits: usize) -> String {
    let mut text = String::new();
    for byte in random {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.truncate(bits.div_ceil(4));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_what_redis_writes_into_its_files() {
        let text = "d74ff0ee8da3b9806b18c877dbf29bbde50b5bd8e4dad7a3a725000feb82e8f1";
        let of = |password: &[u8]| PasswordHash::of(password).expect("short");
        let hash = of(b"pass");
        assert_eq!(hash.to_string(), text);
        assert_eq!(PasswordHash::from_hex(text.as_bytes()), Some(hash));
        for wrong in [
            &text[1..],
            &text.to_ascii_uppercase(),
            &text.replace('d', "g"),
        ] {
            assert_eq!(PasswordHash::from_hex(wrong.as_bytes()), None);
        }
        assert!(hash.is_among(&[of(b"other"), hash]));
        assert!(!hash.is_among(&[of(b"other")]));
        assert!(!format!("{hash:?}").contains("d74f"));
    }

    #[test]
    fn what_is_too_long_is_nobodys_password() {
        let longest = [b'p'; PASSWORD_BYTES_MAX + 1];
        assert!(PasswordHash::of(&longest[1..]).is_some());
        assert_eq!(PasswordHash::of(&longest), None);
    }

    #[test]
    fn generated_passwords_have_as_many_digits_as_asked_for() {
        let random = [0xab; 512];
        for (bits, digits) in [(1, 1), (4, 1), (5, 2), (256, 64), (4096, 1024)] {
            assert_eq!(super::digits(&random, bits).len(), digits);
        }
    }
}
