//! Which database a key is in, as part of its stored name.
//!
//! ```text
//!  database 0:  the key itself
//!  another:     0  1  2  3  4  5  6  7    8          9
//!               +--+--+--+--+--+--+--+--+----------+-----+
//!               | mark                  | database | key |
//!               +--+--+--+--+--+--+--+--+----------+-----+
//! ```
//!
//! A key of database 0 that begins with the mark itself has it in front as well, with database 0. So tables, logs,
//! images and migrations know one kind of key, and only what clients name is translated. The slot is the key's alone.

use std::borrow::Cow;
use std::fmt;

/// One of the numbered databases that clients SELECT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Database(pub u8);

/// Bytes in front of a key that is in another database than 0.
pub const PREFIX_BYTES: usize = MARK.len() + 1;

/// Nobody's key, as far as anybody knows: no UTF-8, and long enough for no other encoding to begin with it.
const MARK: [u8; 8] = [0xff, 0x00, b'e', b'p', b'h', b'd', b'b', 0xfe];

impl Database {
    /// The one that every client begins with.
    pub const ZERO: Self = Self(0);

    /// What keys of the database are stored as.
    #[must_use]
    pub fn stored(self, key: &[u8]) -> Cow<'_, [u8]> {
        if self == Self::ZERO && !is_marked(key) {
            return Cow::Borrowed(key);
        }
        let mut stored = Vec::with_capacity(PREFIX_BYTES + key.len());
        stored.extend_from_slice(&MARK);
        stored.push(self.0);
        stored.extend_from_slice(key);
        Cow::Owned(stored)
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether what begins like this is no key of database 0 as it stands.
#[inline]
#[must_use]
pub fn is_marked(key: &[u8]) -> bool {
    key.first_chunk() == Some(&MARK)
}

/// The database of a stored key, and the key as clients know it.
#[inline]
#[must_use]
pub fn split(stored: &[u8]) -> (Database, &[u8]) {
    if is_marked(stored) {
        split_marked(stored)
    } else {
        (Database::ZERO, stored)
    }
}

#[cold]
fn split_marked(stored: &[u8]) -> (Database, &[u8]) {
    match stored.get(MARK.len()..).and_then(<[u8]>::split_first) {
        Some((&number, key)) => (Database(number), key),
        // Stored before there were databases.
        None => (Database::ZERO, stored),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::slot::slot_of;

    #[test]
    fn keys_of_database_0_are_stored_as_they_are() {
        for key in [&b""[..], b"a", b"\xff\x00ephdb", &[0xff; 100]] {
            assert_eq!(Database::ZERO.stored(key), Cow::Borrowed(key));
            assert_eq!(split(key), (Database::ZERO, key));
        }
        assert_eq!(split(&MARK), (Database::ZERO, &MARK[..]), "an old key");
    }

    #[test]
    fn the_stored_form_is_part_of_the_format() {
        assert_eq!(*Database(3).stored(b"ab"), *b"\xff\x00ephdb\xfe\x03ab");
        assert_eq!(
            *Database(0).stored(&MARK),
            *b"\xff\x00ephdb\xfe\x00\xff\x00ephdb\xfe"
        );
    }

    proptest! {
        #[test]
        fn a_stored_key_has_its_database_its_key_and_the_slot_of_the_key(
            number: u8,
            is_nested: bool,
            key in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let key = match is_nested {
                true => [&MARK[..], &key].concat(),
                false => key,
            };
            let stored = Database(number).stored(&key);
            prop_assert_eq!(split(&stored), (Database(number), &key[..]));
            if !is_nested {
                prop_assert_eq!(slot_of(&stored), slot_of(&key));
            }
        }
    }
}
