//! A digest of a set of entries that follows single changes: both ends of a migration keep one.

use arrayvec::ArrayVec;
use twox_hash::XxHash3_128;

/// The wrapping sum of a 128-bit hash of every entry; the order of the entries does not matter.
///
/// It detects damage and omissions, not malice. The hash is XXH3-128, whose output is fixed by its
/// specification, so digests of different machines and releases compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Digest(u128);

impl Digest {
    /// The digest of no entries.
    pub const EMPTY: Self = Self(0);

    /// Counts an entry in.
    #[inline]
    pub fn add(&mut self, key: &[u8], value: &[u8], expire_at_ms: u64) {
        self.0 = self.0.wrapping_add(entry_hash(key, value, expire_at_ms));
    }

    /// Takes an entry out that was counted in exactly like this.
    #[inline]
    pub fn sub(&mut self, key: &[u8], value: &[u8], expire_at_ms: u64) {
        self.0 = self.0.wrapping_sub(entry_hash(key, value, expire_at_ms));
    }

    /// The digest of both sets, which have no key in common.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// As records and frames carry it, the low half first.
    #[must_use]
    pub fn to_words(self) -> [u64; 2] {
        [self.0 as u64, (self.0 >> 64) as u64]
    }

    /// The inverse of [`Digest::to_words`].
    #[must_use]
    pub fn from_words([low, high]: [u64; 2]) -> Self {
        Self(u128::from(high) << 64 | u128::from(low))
    }
}

/// Part of the format, like the layout of what is hashed.
const SEED: u64 = 0x4570_6865_7375_7301;

/// Entries up to this size are copied together and hashed in one call: three times faster for those of 300
/// bytes, and by a third for those of 1 KiB.
const SMALL_BYTES: usize = 1280;

/// Hashes key length (u32), expiry (u64), key and value, one after another, little-endian.
#[inline]
fn entry_hash(key: &[u8], value: &[u8], expire_at_ms: u64) -> u128 {
    let mut head = [0; 12];
    head[..4].copy_from_slice(&(key.len() as u32).to_le_bytes());
    head[4..].copy_from_slice(&expire_at_ms.to_le_bytes());
    if let Some(small) = joined([&head, key, value]) {
        return XxHash3_128::oneshot_with_seed(SEED, &small);
    }
    let mut hasher = XxHash3_128::with_seed(SEED);
    hasher.write(&head);
    hasher.write(key);
    hasher.write(value);
    hasher.finish_128()
}

/// The parts behind one another, unless that is too much.
#[inline]
fn joined(parts: [&[u8]; 3]) -> Option<ArrayVec<u8, SMALL_BYTES>> {
    let mut small = ArrayVec::new();
    for part in parts {
        small.try_extend_from_slice(part).ok()?;
    }
    Some(small)
}

#[cfg(test)]
mod tests;
