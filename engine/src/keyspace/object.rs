//! What OBJECT and MEMORY USAGE tell of a value.

use ephesus_wire::resp::{reply, request};

use super::dump::serialized_bytes;
use super::strings::Outcome;
use super::{Key, Keyspace, Reply};
use crate::command::error::ClientError;
use crate::command::parse::{ArgList, integer, sort};
use crate::command::spec::Cmd;

/// Longest text that Redis keeps as an integer.
const INTEGER_TEXT_BYTES_MAX: usize = 20;

/// Longest text that Redis keeps in one piece with what describes it.
const EMBEDDED_BYTES_MAX: usize = 44;

/// Integers below this are one object for all keys in Redis, which so many refer to.
const SHARED_INTEGERS: i64 = 10_000;
const SHARED_REFERENCES: i64 = i32::MAX as i64;

fn as_integer(value: &[u8]) -> Option<i64> {
    request::integer(value).filter(|_| value.len() <= INTEGER_TEXT_BYTES_MAX)
}

/// The encoding that Redis has for a value as SET leaves it.
fn encoding(value: &[u8]) -> &'static [u8] {
    match value.len() {
        _ if as_integer(value).is_some() => b"int",
        0..=EMBEDDED_BYTES_MAX => b"embstr",
        _ => b"raw",
    }
}

fn references(value: &[u8]) -> i64 {
    match as_integer(value) {
        Some(0..SHARED_INTEGERS) => SHARED_REFERENCES,
        _ => 1,
    }
}

impl Keyspace {
    /// OBJECT ENCODING, FREQ, IDLETIME or REFCOUNT of a key.
    pub(super) fn object(&mut self, cmd: Cmd, key: &Key<'_>, reply: &mut Reply<'_>) -> Outcome {
        let Some(entry) = self.read(key, reply) else {
            reply::null(reply.out, reply.protocol);
            return Ok(());
        };
        match cmd {
            Cmd::ObjectEncoding => reply::bulk(reply.out, encoding(entry.value)),
            Cmd::ObjectRefcount => reply::integer(reply.out, references(entry.value)),
            Cmd::ObjectFreq => reply::integer(reply.out, self.hot.frequency(key.hash) as i64),
            _ => return Err(ClientError::IdleTimeNotTracked),
        }
        Ok(())
    }

    /// SORT of a key: only what is not there can be sorted, as there are only strings.
    pub(super) fn sort<A: ArgList + ?Sized>(
        &mut self,
        key: &Key<'_>,
        args: &A,
        may_store: bool,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let stored = sort::parse(args, may_store)?;
        if self.read(key, reply).is_some() {
            return Err(ClientError::WrongType);
        }
        let Some(stored) = stored else {
            reply::array(reply.out, 0);
            return Ok(());
        };
        let destination = self.key(args.arg(stored));
        if self.look_up(&destination, reply).is_some() {
            self.delete(&destination, reply);
        }
        reply::integer(reply.out, 0);
        Ok(())
    }

    /// `DEBUG OBJECT key`, which is named as it is stored.
    ///
    /// # Errors
    /// There is no such key.
    pub fn debug_object(&mut self, key: &[u8], reply: &mut Reply<'_>) -> Outcome {
        let name = self.key(key);
        let entry = self.read(&name, reply).ok_or(ClientError::NoSuchKey)?;
        let value = entry.value;
        let encoding = String::from_utf8_lossy(encoding(value));
        let (address, bytes) = (value.as_ptr(), serialized_bytes(value));
        let text = format!(
            "Value at:{address:p} refcount:1 encoding:{encoding} serializedlength:{bytes} lru:0 lru_seconds_idle:0"
        );
        reply::simple(reply.out, &text);
        Ok(())
    }

    /// `MEMORY USAGE key [SAMPLES count]`.
    pub(super) fn memory_usage<A: ArgList + ?Sized>(
        &mut self,
        key: &Key<'_>,
        args: &A,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let mut at = 3;
        while at < args.len() {
            if !args.arg(at).eq_ignore_ascii_case(b"samples") || at + 1 == args.len() {
                return Err(ClientError::Syntax);
            }
            if integer(args.arg(at + 1))? < 0 {
                return Err(ClientError::Syntax);
            }
            at += 2;
        }
        let is_there = self.read(key, reply).is_some();
        let partition = self.served(key.partition).filter(|_| is_there);
        let bytes =
            partition.and_then(|partition| partition.table.entry_bytes(key.hash, key.bytes));
        match bytes {
            Some(bytes) => reply::integer(reply.out, bytes as i64),
            None => reply::null(reply.out, reply.protocol),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_those_of_redis_for_values_that_were_set() {
        for (value, expected) in [
            (&b"1"[..], &b"int"[..]),
            (b"-9223372036854775808", b"int"),
            (b"9223372036854775808", b"embstr"),
            (b"007", b"embstr"),
            (b"", b"embstr"),
            (&[b'x'; 44], b"embstr"),
            (&[b'x'; 45], b"raw"),
        ] {
            assert_eq!(encoding(value), expected, "{}", value.escape_ascii());
        }
        for (value, expected) in [
            (&b"9999"[..], i64::from(i32::MAX)),
            (b"10000", 1),
            (b"a", 1),
        ] {
            assert_eq!(references(value), expected);
        }
    }
}
