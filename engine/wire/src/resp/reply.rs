//! Replies, written straight into a connection's output buffer.

use std::io::Write;

use crate::copy;

/// Which version of the protocol a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// RESP2, what every connection starts with.
    #[default]
    Resp2,
    /// RESP3, after `HELLO 3`.
    Resp3,
}

/// `+OK\r\n`.
pub const OK: &[u8] = b"+OK\r\n";
/// `+PONG\r\n`.
pub const PONG: &[u8] = b"+PONG\r\n";
/// `+QUEUED\r\n`.
pub const QUEUED: &[u8] = b"+QUEUED\r\n";

/// A status; line breaks in `text` become spaces.
pub fn simple(out: &mut Vec<u8>, text: &str) {
    line(out, b'+', text);
}

/// An error; `text` starts with its code, such as `ERR`; line breaks in it become spaces.
pub fn error(out: &mut Vec<u8>, text: &str) {
    line(out, b'-', text);
}

/// An integer.
#[inline]
pub fn integer(out: &mut Vec<u8>, value: i64) {
    if let digit @ 0..=9 = value {
        out.extend_from_slice(&[b':', b'0' + digit as u8, b'\r', b'\n']);
    } else {
        header_signed(out, b':', value);
    }
}

/// A string of bytes.
#[inline]
pub fn bulk(out: &mut Vec<u8>, data: &[u8]) {
    out.reserve(data.len() + BULK_FRAME_BYTES_MAX);
    header(out, b'$', data.len());
    copy::append(out, data);
    out.extend_from_slice(b"\r\n");
}

/// An integer as a string of bytes.
pub fn bulk_integer(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0; INTEGER_BYTES_MAX];
    bulk(out, decimal(&mut digits, value));
}

/// No value.
#[inline]
pub fn null(out: &mut Vec<u8>, protocol: Protocol) {
    out.extend_from_slice(match protocol {
        Protocol::Resp2 => b"$-1\r\n",
        Protocol::Resp3 => b"_\r\n",
    });
}

/// No list, such as the reply of an EXEC that was not run.
#[inline]
pub fn null_array(out: &mut Vec<u8>, protocol: Protocol) {
    out.extend_from_slice(match protocol {
        Protocol::Resp2 => b"*-1\r\n",
        Protocol::Resp3 => b"_\r\n",
    });
}

/// The start of a list of `len` values.
#[inline]
pub fn array(out: &mut Vec<u8>, len: usize) {
    header(out, b'*', len);
}

/// The start of a map of `pairs` keys with a value each; RESP2 gets a list of both in turn.
pub fn map(out: &mut Vec<u8>, protocol: Protocol, pairs: usize) {
    match protocol {
        Protocol::Resp2 => header(out, b'*', pairs * 2),
        Protocol::Resp3 => header(out, b'%', pairs),
    }
}

/// The start of a set of `len` values; a list in RESP2.
pub fn set(out: &mut Vec<u8>, protocol: Protocol, len: usize) {
    header(
        out,
        if protocol == Protocol::Resp3 {
            b'~'
        } else {
            b'*'
        },
        len,
    );
}

/// The start of a message of `len` values that answers no request; a list in RESP2.
pub fn push(out: &mut Vec<u8>, protocol: Protocol, len: usize) {
    header(
        out,
        if protocol == Protocol::Resp3 {
            b'>'
        } else {
            b'*'
        },
        len,
    );
}

/// A floating-point number in its shortest exact spelling; a string in RESP2.
pub fn double(out: &mut Vec<u8>, protocol: Protocol, value: f64) {
    let mut text = Vec::with_capacity(32);
    double_text(&mut text, value);
    match protocol {
        Protocol::Resp2 => bulk(out, &text),
        Protocol::Resp3 => {
            out.push(b',');
            out.extend_from_slice(&text);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// A truth value; 1 or 0 in RESP2.
pub fn boolean(out: &mut Vec<u8>, protocol: Protocol, value: bool) {
    out.extend_from_slice(match (protocol, value) {
        (Protocol::Resp2, true) => b":1\r\n",
        (Protocol::Resp2, false) => b":0\r\n",
        (Protocol::Resp3, true) => b"#t\r\n",
        (Protocol::Resp3, false) => b"#f\r\n",
    });
}

/// Text for people, with a `format` of three letters such as `txt`; a plain string in RESP2.
///
/// # Panics
/// When `format` does not have three bytes.
pub fn verbatim(out: &mut Vec<u8>, protocol: Protocol, format: &str, text: &[u8]) {
    assert_eq!(format.len(), 3, "a verbatim format has three letters");
    match protocol {
        Protocol::Resp2 => bulk(out, text),
        Protocol::Resp3 => {
            header(out, b'=', text.len() + 4);
            out.extend_from_slice(format.as_bytes());
            out.push(b':');
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// A request as clients send it: a list of strings of bytes.
pub fn command<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    array(out, args.len());
    for arg in args {
        bulk(out, arg.as_ref());
    }
}

/// The length of what [`command`] writes.
#[must_use]
pub fn command_len<A: AsRef<[u8]>>(args: &[A]) -> usize {
    let framed = |len: usize| 1 + len.max(1).ilog10() as usize + 1 + 2;
    let bulks = args.iter().map(|arg| arg.as_ref().len());
    framed(args.len()) + bulks.map(|len| framed(len) + len + 2).sum::<usize>()
}

/// Longest decimal integer: `-9223372036854775808`.
pub const INTEGER_BYTES_MAX: usize = 20;

const HEADER_BYTES_MAX: usize = 1 + INTEGER_BYTES_MAX + 2;

/// What [`bulk`] takes room for beside the bytes of the string.
pub const BULK_FRAME_BYTES_MAX: usize = HEADER_BYTES_MAX + 2;

/// `00`, `01`, ... `99`.
#[expect(clippy::indexing_slicing, reason = "the loop ends at the length")]
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut value = 0;
    while value < 100 {
        pairs[value] = [b'0' + (value / 10) as u8, b'0' + (value % 10) as u8];
        value += 1;
    }
    pairs
};

/// Writes `value` into the end of `digits` and answers the part that was written.
#[expect(
    clippy::indexing_slicing,
    reason = "19 digits and a sign fit, and a remainder of 100 is below 100"
)]
#[inline]
pub fn decimal(digits: &mut [u8; INTEGER_BYTES_MAX], value: i64) -> &[u8] {
    let mut rest = value.unsigned_abs();
    let mut at = INTEGER_BYTES_MAX;
    while rest >= 10 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[(rest % 100) as usize]);
        rest /= 100;
    }
    if rest > 0 || at == INTEGER_BYTES_MAX {
        at -= 1;
        digits[at] = b'0' + rest as u8;
    }
    if value < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    &digits[at..]
}

/// The shortest text that reads back as exactly `value`, as in `1.5`, `10`, `1e300` and `-inf`.
pub fn double_text(out: &mut Vec<u8>, value: f64) {
    // Writing to a Vec cannot fail.
    let _ = if value.is_nan() {
        out.write_all(b"nan")
    } else if value.is_infinite() {
        out.write_all(if value > 0.0 { b"inf" } else { b"-inf" })
    } else if value == 0.0 || (1e-5..1e17).contains(&value.abs()) {
        write!(out, "{value}")
    } else {
        write!(out, "{value:e}")
    };
}

#[expect(clippy::indexing_slicing, reason = "both are below 100")]
#[inline]
fn header(out: &mut Vec<u8>, kind: u8, len: usize) {
    match len {
        0..=9 => out.extend_from_slice(&[kind, b'0' + len as u8, b'\r', b'\n']),
        10..=99 => {
            let [high, low] = PAIRS[len];
            out.extend_from_slice(&[kind, high, low, b'\r', b'\n']);
        }
        100..=999 => {
            let [tens, ones] = PAIRS[len % 100];
            out.extend_from_slice(&[kind, b'0' + (len / 100) as u8, tens, ones, b'\r', b'\n']);
        }
        _ => header_signed(out, kind, len as i64),
    }
}

fn header_signed(out: &mut Vec<u8>, kind: u8, value: i64) {
    let mut digits = [0; INTEGER_BYTES_MAX];
    let digits = decimal(&mut digits, value);
    out.reserve(HEADER_BYTES_MAX);
    out.push(kind);
    out.extend_from_slice(digits);
    out.extend_from_slice(b"\r\n");
}

fn line(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.reserve(text.len() + 3);
    out.push(kind);
    out.extend(text.bytes().map(|byte| {
        if matches!(byte, b'\r' | b'\n') {
            b' '
        } else {
            byte
        }
    }));
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
