//! DUMP and RESTORE: a value in the format of Redis's RDB files, so that stock tools move data in and out.
//!
//! ```text
//! type (0: string) | string | version of the format (u16 LE) | CRC-64 of all before (LE)
//! string   00nnnnnn                   length n, then the bytes
//!          01nnnnnn nnnnnnnn          length n
//!          80 n:u32 BE, 81 n:u64 BE   length n
//!          C0 i8, C1 i16, C2 i32      an integer, little-endian, as decimal text
//!          C3 packed length, length   packed by LZF
//! ```

mod crc64;
mod lzf;

use ephesus_wire::limits::VALUE_BYTES_MAX;
use ephesus_wire::resp::{reply, request};

use super::large_replies::LARGE_REPLY_BYTES;
use super::strings::{Outcome, check_sizes};
use super::{Key, Keyspace, Reply};
use crate::command::error::ClientError;
use crate::command::parse::{ArgList, integer};

/// Of redis-server 7.0.
const VERSION: u16 = 10;

/// The newest versions whose strings are as they always were: of Redis 8 and of Valkey 9, which counts from 80 on.
const VERSIONS_MAX: [u16; 2] = [12, 81];
const VALKEY_VERSIONS_FROM: u16 = 80;

const TYPE_STRING: u8 = 0;
/// Types up to this one are other values of Redis's.
const TYPE_MAX: u8 = 30;

const FOOTER_BYTES: usize = 10;

/// Texts up to this length are looked at whether they are integers.
const INTEGER_TEXT_BYTES_MAX: usize = 11;

/// What DUMP answers for a value.
pub(super) fn dumped(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 5 + 1 + FOOTER_BYTES);
    out.push(TYPE_STRING);
    let is_short = value.len() <= INTEGER_TEXT_BYTES_MAX;
    let number = request::integer(value).filter(|_| is_short);
    match number.map(i32::try_from) {
        Some(Ok(number)) => write_integer(&mut out, number),
        _ => {
            write_length(&mut out, value.len());
            out.extend_from_slice(value);
        }
    }
    write_footer(&mut out);
    out
}

/// Ends what can be restored.
pub(crate) fn write_footer(out: &mut Vec<u8>) {
    out.extend_from_slice(&VERSION.to_le_bytes());
    let crc = crc64::crc64(out);
    out.extend_from_slice(&crc.to_le_bytes());
}

/// Bytes of a value in an RDB file.
pub(super) fn serialized_bytes(value: &[u8]) -> usize {
    dumped(value).len() - 1 - FOOTER_BYTES
}

fn write_integer(out: &mut Vec<u8>, number: i32) {
    if let Ok(number) = i8::try_from(number) {
        out.push(0xC0);
        out.extend_from_slice(&number.to_le_bytes());
    } else if let Ok(number) = i16::try_from(number) {
        out.push(0xC1);
        out.extend_from_slice(&number.to_le_bytes());
    } else {
        out.push(0xC2);
        out.extend_from_slice(&number.to_le_bytes());
    }
}

/// Appends a length.
pub(crate) fn write_length(out: &mut Vec<u8>, len: usize) {
    match len {
        0..0x40 => out.push(len as u8),
        0x40..0x4000 => out.extend_from_slice(&(0x4000 | len as u16).to_be_bytes()),
        _ => {
            out.push(0x80);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
}

/// What can be restored without its end, of Redis or of Valkey.
///
/// # Errors
/// [`ClientError::DumpFooter`].
pub(crate) fn body_of(dump: &[u8]) -> Result<&[u8], ClientError> {
    let (body, footer) = dump
        .split_last_chunk::<FOOTER_BYTES>()
        .ok_or(ClientError::DumpFooter)?;
    let &[low, high, crc @ ..] = footer;
    let version = u16::from_le_bytes([low, high]);
    let summed = dump.get(..dump.len() - crc.len()).unwrap_or_default();
    let [redis_max, valkey_max] = VERSIONS_MAX;
    let is_known = version <= redis_max || (VALKEY_VERSIONS_FROM..=valkey_max).contains(&version);
    if !is_known || crc64::crc64(summed) != u64::from_le_bytes(crc) {
        return Err(ClientError::DumpFooter);
    }
    Ok(body)
}

/// Reads what DUMP has answered for a string.
fn read_dump(dump: &[u8]) -> Result<Vec<u8>, ClientError> {
    match body_of(dump)?.split_first() {
        Some((&TYPE_STRING, mut string)) => read_string(&mut string),
        Some((..=TYPE_MAX, _)) => Err(ClientError::DumpType),
        _ => Err(ClientError::DumpFormat),
    }
}

/// What stands in place of a string.
enum Header {
    Length(usize),
    /// An integer of so many bytes.
    Integer(usize),
    Packed,
}

fn read_header(from: &mut &[u8]) -> Result<Header, ClientError> {
    let first = *take(from, 1)?.first().ok_or(ClientError::DumpFormat)?;
    let len = match (first >> 6, first & 0x3F) {
        (0, len) => u64::from(len),
        (1, high) => u64::from(high) << 8 | big_endian(take(from, 1)?),
        (2, 0) => big_endian(take(from, 4)?),
        (2, 1) => big_endian(take(from, 8)?),
        (3, width @ 0..3) => return Ok(Header::Integer(1 << width)),
        (3, 3) => return Ok(Header::Packed),
        _ => return Err(ClientError::DumpFormat),
    };
    usize::try_from(len)
        .map(Header::Length)
        .map_err(|_| ClientError::DumpFormat)
}

/// Reads a length.
///
/// # Errors
/// [`ClientError::DumpFormat`].
pub(crate) fn read_length(from: &mut &[u8]) -> Result<usize, ClientError> {
    match read_header(from)? {
        Header::Length(len) => Ok(len),
        Header::Integer(_) | Header::Packed => Err(ClientError::DumpFormat),
    }
}

/// Reads a string.
///
/// # Errors
/// [`ClientError::DumpFormat`], or [`ClientError::StringTooLong`] of one that is packed.
pub(crate) fn read_string(from: &mut &[u8]) -> Result<Vec<u8>, ClientError> {
    match read_header(from)? {
        Header::Length(len) => Ok(take(from, len)?.to_vec()),
        Header::Integer(width) => {
            let bytes = take(from, width)?;
            let bits = bytes
                .iter()
                .rev()
                .fold(0, |n, byte| n << 8 | i64::from(*byte));
            let unused = 64 - 8 * width;
            let number = bits << unused >> unused;
            Ok(number.to_string().into_bytes())
        }
        Header::Packed => {
            let (packed, len) = (read_length(from)?, read_length(from)?);
            if len > VALUE_BYTES_MAX {
                return Err(ClientError::StringTooLong);
            }
            lzf::unpack(take(from, packed)?, len).ok_or(ClientError::DumpFormat)
        }
    }
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

fn take<'a>(from: &mut &'a [u8], len: usize) -> Result<&'a [u8], ClientError> {
    let (taken, rest) = from.split_at_checked(len).ok_or(ClientError::DumpFormat)?;
    *from = rest;
    Ok(taken)
}

/// The options of `RESTORE key ttl dump [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`. The last two are read and
/// not kept: nothing is evicted.
#[derive(Clone, Copy, Debug, Default)]
struct RestoreOptions {
    replaces: bool,
    is_absolute: bool,
}

impl RestoreOptions {
    fn parse<A: ArgList + ?Sized>(args: &A) -> Result<RestoreOptions, ClientError> {
        let mut options = RestoreOptions::default();
        let (mut has_idle_time, mut has_frequency) = (false, false);
        let mut at = 4;
        while at < args.len() {
            let (name, has_value) = (args.arg(at), at + 1 < args.len());
            if name.eq_ignore_ascii_case(b"replace") {
                options.replaces = true;
            } else if name.eq_ignore_ascii_case(b"absttl") {
                options.is_absolute = true;
            } else if name.eq_ignore_ascii_case(b"idletime") && has_value && !has_frequency {
                at += 1;
                if integer(args.arg(at))? < 0 {
                    return Err(ClientError::RestoreIdleTime);
                }
                has_idle_time = true;
            } else if name.eq_ignore_ascii_case(b"freq") && has_value && !has_idle_time {
                at += 1;
                if !(0..256).contains(&integer(args.arg(at))?) {
                    return Err(ClientError::RestoreFrequency);
                }
                has_frequency = true;
            } else {
                return Err(ClientError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }
}

impl Keyspace {
    pub(super) fn dump(&mut self, key: &Key<'_>, reply: &mut Reply<'_>) -> Outcome {
        let Some(len) = self.read(key, reply).map(|entry| entry.value.len()) else {
            reply::null(reply.out, reply.protocol);
            return Ok(());
        };
        if len >= LARGE_REPLY_BYTES {
            self.room.take(len)?;
        }
        self.note_work(len);
        let value = self.entry(key).map(|entry| entry.value);
        reply::bulk(reply.out, &dumped(value.unwrap_or_default()));
        Ok(())
    }

    pub(super) fn restore<A: ArgList + ?Sized>(
        &mut self,
        key: &Key<'_>,
        args: &A,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        check_sizes(key.bytes, &[])?;
        let options = RestoreOptions::parse(args)?;
        let now_ms = self.now_ms;
        let is_there = self.look_up(key, reply).is_some();
        if is_there && !options.replaces {
            return Err(ClientError::BusyKey);
        }
        let ttl = integer(args.arg(2))?;
        let ttl = u64::try_from(ttl).map_err(|_| ClientError::RestoreTtl)?;
        let expire_at_ms = match ttl {
            0 => 0,
            at_ms if options.is_absolute => at_ms,
            ttl => now_ms.saturating_add(ttl).min(i64::MAX as u64),
        };
        let value = read_dump(args.arg(3))?;
        check_sizes(key.bytes, &value)?;
        if expire_at_ms == 0 || expire_at_ms > now_ms {
            self.put(key, &value, expire_at_ms, reply);
        } else if is_there {
            self.delete(key, reply);
        }
        reply.out.extend_from_slice(reply::OK);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As redis-server 7.0 answers them.
    const GOLDEN: [(&[u8], &[u8]); 4] = [
        (
            b"1",
            b"\x00\xC0\x01\x0A\x00\x26\x78\xE7\xB6\xD1\x01\x11\xFC",
        ),
        (b"300", b"\x00\xC1,\x01\n\x00\x95Ba\xF2e\x82\\\x10"),
        (b"hello", b"\x00\x05hello\n\x00cr\xDFve4 \n"),
        (
            b"12345678901234",
            b"\x00\x0E12345678901234\n\x00\xAF\xCB\x8C{v\xA0\x8Bj",
        ),
    ];

    #[test]
    fn dumps_are_those_of_redis() {
        for (value, dump) in GOLDEN {
            assert_eq!(dumped(value), dump, "{}", value.escape_ascii());
            assert_eq!(read_dump(dump).as_deref(), Ok(value));
        }
    }

    fn with_footer(body: &[u8], version: u16) -> Vec<u8> {
        let body = [body, &version.to_le_bytes()].concat();
        let crc = crc64::crc64(&body).to_le_bytes();
        [&body[..], &crc].concat()
    }

    #[test]
    fn other_encodings_versions_and_types_are_read_or_refused() {
        for (body, expected) in [
            (&b"\x00\xC0\xFB"[..], Ok(&b"-5"[..])),
            (b"\x00\xC1\x2C\x01", Ok(b"300")),
            (b"\x00\xC2\xFF\xFF\xFF\x7F", Ok(b"2147483647")),
            (b"\x00\xC3\x05\x05\x01ab\x20\x01", Ok(b"ababa")),
            (b"\x00\x40\x02hi", Ok(b"hi")),
            (b"\x00\x80\x00\x00\x00\x02hi", Ok(b"hi")),
            (b"\x00\x81\x00\x00\x00\x00\x00\x00\x00\x02hi", Ok(b"hi")),
            (b"\x00\x05hi", Err(ClientError::DumpFormat)),
            (
                b"\x00\xC3\x05\x06\x01ab\x20\x01",
                Err(ClientError::DumpFormat),
            ),
            (b"\x00\x82hi", Err(ClientError::DumpFormat)),
            (b"\x00", Err(ClientError::DumpFormat)),
            (b"", Err(ClientError::DumpFormat)),
            (b"\x0E\x01", Err(ClientError::DumpType)),
            (b"\xFFhi", Err(ClientError::DumpFormat)),
            (
                b"\x00\xC3\x05\x80\x01\x00\x00\x00\x01ab\x20\x01",
                Err(ClientError::StringTooLong),
            ),
        ] {
            let read = read_dump(&with_footer(body, VERSION));
            assert_eq!(
                read,
                expected.map(<[u8]>::to_vec),
                "{}",
                body.escape_ascii()
            );
        }
        for (version, is_known) in [(1, true), (12, true), (13, false), (79, false), (80, true)] {
            let dump = with_footer(b"\x00\x02hi", version);
            assert_eq!(read_dump(&dump).is_ok(), is_known, "{version}");
        }
    }

    proptest! {
        #[test]
        fn values_come_back(value in prop_oneof![
            any::<i64>().prop_map(|n| n.to_string().into_bytes()),
            any::<i32>().prop_map(|n| n.to_string().into_bytes()),
            any::<i16>().prop_map(|n| n.to_string().into_bytes()),
            proptest::collection::vec(any::<u8>(), 0..200),
            (0..70_000usize).prop_map(|len| vec![b'x'; len]),
        ]) {
            prop_assert_eq!(read_dump(&dumped(&value)), Ok(value));
        }

        #[test]
        fn any_bytes_are_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..60), typed in any::<bool>()) {
            let body = if typed { [&[0], &body[..]].concat() } else { body };
            let _ = read_dump(&body);
            let _ = read_dump(&with_footer(&body, VERSION));
        }
    }
}
