//! Replies as owned values: what the load generator, the tests and the command line read.

use crate::error::WireError;
use crate::limits::{QUERY_BYTES_MAX, RESP_DEPTH_MAX};

use super::request::integer;

/// One reply of RESP2 or RESP3.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A status such as `OK`; bytes that are no UTF-8 are replaced.
    Simple(String),
    /// An error, its code first; bytes that are no UTF-8 are replaced.
    Error(String),
    /// A 64-bit integer.
    Integer(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// The null of either protocol, also the null list.
    Null,
    /// A list.
    Array(Vec<Value>),
    /// Pairs in the order they were sent.
    Map(Vec<(Value, Value)>),
    /// A set in the order it was sent.
    Set(Vec<Value>),
    /// A message that answers no request.
    Push(Vec<Value>),
    /// A floating-point number.
    Double(f64),
    /// A truth value.
    Boolean(bool),
    /// An integer of any length, as its digits.
    BigNumber(String),
    /// Text for people.
    Verbatim {
        /// Three letters such as `txt`.
        format: [u8; 3],
        /// The text itself.
        text: Vec<u8>,
    },
}

impl Value {
    /// The bytes of a string, a status or a verbatim text.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Simple(text) => Some(text.as_bytes()),
            Self::Bulk(data) | Self::Verbatim { text: data, .. } => Some(data),
            _ => None,
        }
    }

    /// The number of an integer reply.
    #[must_use]
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(*value),
            _ => None,
        }
    }

    /// The text of an error reply.
    #[must_use]
    pub fn as_error(&self) -> Option<&str> {
        match self {
            Self::Error(text) => Some(text),
            _ => None,
        }
    }
}

/// Reads the first reply of `buf` and how many bytes it takes; `None` while it is incomplete.
///
/// Attributes before a value are read and dropped; streamed strings and lists are refused.
///
/// # Errors
/// When `buf` does not start with a reply, or one nested too deeply.
pub fn decode(buf: &[u8]) -> Result<Option<(Value, usize)>, WireError> {
    let mut at = 0;
    Ok(value(buf, &mut at, RESP_DEPTH_MAX)?.map(|value| (value, at)))
}

/// The length of the first reply of `buf` without building it; `None` while it is incomplete.
///
/// # Errors
/// As [`decode`], except that nesting is not limited and the text of single-line values is not
/// looked at.
pub fn measure(buf: &[u8]) -> Result<Option<usize>, WireError> {
    let mut at = 0;
    let mut values_left = 1u64;
    while values_left > 0 {
        let Some((kind, text)) = line(buf, &mut at)? else {
            return Ok(None);
        };
        values_left -= 1;
        match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {}
            b'$' | b'!' | b'=' => {
                if body(buf, &mut at, text)?.is_none() {
                    return Ok(None);
                }
            }
            b'*' => values_left += length(text)?.unwrap_or(0) as u64,
            b'~' | b'>' => values_left += count(text)? as u64,
            b'%' => values_left += count(text)? as u64 * 2,
            b'|' => values_left += count(text)? as u64 * 2 + 1,
            other => return Err(unknown_kind(other)),
        }
    }
    Ok(Some(at))
}

fn value(buf: &[u8], at: &mut usize, depth: usize) -> Result<Option<Value>, WireError> {
    let Some((kind, text)) = line(buf, at)? else {
        return Ok(None);
    };
    Ok(match kind {
        b'+' => Some(Value::Simple(lossy(text))),
        b'-' => Some(Value::Error(lossy(text))),
        b':' => Some(Value::Integer(signed(text)?)),
        b'_' if text.is_empty() => Some(Value::Null),
        b',' => Some(Value::Double(float(text)?)),
        b'#' => match text {
            b"t" => Some(Value::Boolean(true)),
            b"f" => Some(Value::Boolean(false)),
            _ => return Err(WireError::Malformed("a boolean is t or f")),
        },
        b'(' => Some(Value::BigNumber(lossy(text))),
        b'$' => body(buf, at, text)?
            .map(|data| data.map_or(Value::Null, |data| Value::Bulk(data.to_vec()))),
        b'!' => body(buf, at, text)?.map(|data| Value::Error(lossy(data.unwrap_or_default()))),
        b'=' => match body(buf, at, text)? {
            None => None,
            Some(Some([a, b, c, b':', text @ ..])) => Some(Value::Verbatim {
                format: [*a, *b, *c],
                text: text.to_vec(),
            }),
            Some(_) => {
                return Err(WireError::Malformed(
                    "a verbatim string starts with a format",
                ));
            }
        },
        b'*' => match length(text)? {
            None => Some(Value::Null),
            Some(len) => list(buf, at, len, depth)?.map(Value::Array),
        },
        b'~' => list(buf, at, count(text)?, depth)?.map(Value::Set),
        b'>' => list(buf, at, count(text)?, depth)?.map(Value::Push),
        b'%' => pairs(buf, at, count(text)?, depth)?.map(Value::Map),
        b'|' => match pairs(buf, at, count(text)?, depth)? {
            None => None,
            Some(_) => value(buf, at, deeper(depth)?)?,
        },
        other => return Err(unknown_kind(other)),
    })
}

fn list(
    buf: &[u8],
    at: &mut usize,
    len: usize,
    depth: usize,
) -> Result<Option<Vec<Value>>, WireError> {
    let depth = deeper(depth)?;
    let mut values = Vec::new();
    for _ in 0..len {
        let Some(value) = value(buf, at, depth)? else {
            return Ok(None);
        };
        values.push(value);
    }
    Ok(Some(values))
}

type Pairs = Vec<(Value, Value)>;

fn pairs(buf: &[u8], at: &mut usize, len: usize, depth: usize) -> Result<Option<Pairs>, WireError> {
    let depth = deeper(depth)?;
    let mut pairs = Vec::new();
    for _ in 0..len {
        let Some(key) = value(buf, at, depth)? else {
            return Ok(None);
        };
        let Some(value) = value(buf, at, depth)? else {
            return Ok(None);
        };
        pairs.push((key, value));
    }
    Ok(Some(pairs))
}

fn deeper(depth: usize) -> Result<usize, WireError> {
    depth.checked_sub(1).ok_or(WireError::Depth {
        max: RESP_DEPTH_MAX,
    })
}

/// The kind and text of the line at `at`, which moves behind it.
fn line<'a>(buf: &'a [u8], at: &mut usize) -> Result<Option<(u8, &'a [u8])>, WireError> {
    let rest = buf.get(*at..).unwrap_or_default();
    let Some(&kind) = rest.first() else {
        return Ok(None);
    };
    if !b"+-:_,#($!=*~>%|".contains(&kind) {
        return Err(unknown_kind(kind));
    }
    let Some(end) = memchr::memchr(b'\r', rest) else {
        return Ok(None);
    };
    match rest.get(end + 1) {
        None => Ok(None),
        Some(b'\n') => {
            *at += end + 2;
            Ok(Some((kind, rest.get(1..end).unwrap_or_default())))
        }
        Some(_) => Err(WireError::Malformed(
            "a carriage return without a line feed",
        )),
    }
}

/// The bytes after a length line; the inner `None` is a null string.
fn body<'a>(
    buf: &'a [u8],
    at: &mut usize,
    text: &[u8],
) -> Result<Option<Option<&'a [u8]>>, WireError> {
    let Some(len) = length(text)? else {
        return Ok(Some(None));
    };
    let rest = buf.get(*at..).unwrap_or_default();
    let Some(end) = rest.get(len..len + 2) else {
        return Ok(None);
    };
    if end != b"\r\n" {
        return Err(WireError::Malformed(
            "a string is not followed by a line end",
        ));
    }
    *at += len + 2;
    Ok(Some(rest.get(..len)))
}

/// A length line: `None` for -1.
fn length(text: &[u8]) -> Result<Option<usize>, WireError> {
    match signed(text)? {
        -1 => Ok(None),
        len if (0..=LENGTH_MAX).contains(&len) => Ok(Some(len as usize)),
        len => Err(WireError::Length {
            what: "RESP length",
            len: len as u64,
            min: 0,
            max: LENGTH_MAX as u64,
        }),
    }
}

/// Longest string and list a reply may announce.
const LENGTH_MAX: i64 = QUERY_BYTES_MAX as i64 * 16;

fn count(text: &[u8]) -> Result<usize, WireError> {
    length(text)?.ok_or(WireError::Malformed("this kind of list cannot be null"))
}

fn signed(text: &[u8]) -> Result<i64, WireError> {
    integer(text.strip_prefix(b"+").unwrap_or(text)).ok_or(WireError::Malformed("not an integer"))
}

fn float(text: &[u8]) -> Result<f64, WireError> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(WireError::Malformed("not a number"))
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

fn unknown_kind(kind: u8) -> WireError {
    WireError::Unknown {
        what: "RESP kind",
        found: u64::from(kind),
    }
}

#[cfg(test)]
mod tests;
