//! Requests, parsed in place out of a connection's read buffer.
//!
//! ```text
//! multibulk   *<args>\r\n ( $<length>\r\n <bytes> \r\n )...
//! inline      SET key "quoted \x00 value" \r\n
//! ```

use std::fmt;
use std::ops::Range;

use crate::limits::{
    ARGS_MAX, INLINE_BYTES_MAX, PREAUTH_ARGS_MAX, PREAUTH_QUERY_BYTES_MAX, QUERY_BYTES_MAX,
};

mod inline;

/// What a connection may ask for at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Most arguments of one request.
    pub args_max: usize,
    /// Longest single argument.
    pub bulk_bytes_max: usize,
    /// Longest request with all its framing.
    pub query_bytes_max: usize,
    /// Longest inline request.
    pub inline_bytes_max: usize,
    /// Whether the sender has authenticated; only changes what an error says.
    pub authenticated: bool,
}

impl RequestLimits {
    /// The limits of a client that may run commands.
    pub const DEFAULT: Self = Self {
        args_max: ARGS_MAX,
        bulk_bytes_max: QUERY_BYTES_MAX,
        query_bytes_max: QUERY_BYTES_MAX,
        inline_bytes_max: INLINE_BYTES_MAX,
        authenticated: true,
    };

    /// The limits of a client that still has to authenticate.
    pub const PREAUTH: Self = Self {
        args_max: PREAUTH_ARGS_MAX,
        bulk_bytes_max: PREAUTH_QUERY_BYTES_MAX,
        query_bytes_max: PREAUTH_QUERY_BYTES_MAX,
        inline_bytes_max: PREAUTH_QUERY_BYTES_MAX,
        authenticated: false,
    };
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What [`parse`] found at the start of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A whole request of `consumed` bytes; an empty one (`*0`, a blank line) has no arguments
    /// and gets no reply.
    Command {
        /// Bytes of the buffer the request takes.
        consumed: usize,
    },
    /// A request that has not fully arrived.
    Incomplete {
        /// No parse can succeed before the buffer holds this many bytes; always more than it
        /// holds now.
        needed: usize,
    },
}

/// A request that breaks the protocol: framing is lost, so answer with this text and close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// The number of arguments is no number, or above the limit.
    MultibulkLength,
    /// More arguments than a client may send before it authenticates.
    UnauthenticatedMultibulkLength,
    /// The line with the number of arguments does not end.
    MultibulkTooBig,
    /// An argument starts with this byte instead of `$`.
    ExpectedBulk(u8),
    /// The length of an argument is no number, negative, or above the limit.
    BulkLength,
    /// A longer argument than a client may send before it authenticates.
    UnauthenticatedBulkLength,
    /// The line with the length of an argument does not end.
    BulkTooBig,
    /// An argument is not followed by `\r\n`.
    BulkTerminator,
    /// A line of plain text that is too long.
    InlineTooBig,
    /// A quote of an inline request is not closed, or something sticks to its end.
    UnbalancedQuotes,
    /// The request as a whole is above the limit.
    QueryTooBig,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        f.write_str(match self {
            Self::MultibulkLength => "invalid multibulk length",
            Self::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            Self::MultibulkTooBig => "too big mbulk count string",
            // As Redis, which keeps line ends out of an error's line.
            Self::ExpectedBulk(b'\r' | b'\n') => "expected '$', got ' '",
            Self::ExpectedBulk(byte) if byte.is_ascii_graphic() || *byte == b' ' => {
                return write!(f, "expected '$', got '{}'", *byte as char);
            }
            Self::ExpectedBulk(byte) => {
                return write!(f, "expected '$', got '{}'", byte.escape_ascii());
            }
            Self::BulkLength => "invalid bulk length",
            Self::UnauthenticatedBulkLength => "unauthenticated bulk length",
            Self::BulkTooBig => "too big bulk count string",
            Self::BulkTerminator => "bulk not followed by CRLF",
            Self::InlineTooBig => "too big inline request",
            Self::UnbalancedQuotes => "unbalanced quotes in request",
            Self::QueryTooBig => "too big request",
        })
    }
}

impl std::error::Error for RequestError {}

/// Where the arguments of the last parsed request are; reused from request to request.
///
/// The arguments of a multibulk request stay in the buffer; those of an inline request, which may
/// need unescaping, are in a scratch buffer here. [`Args::source`] tells the difference away.
#[derive(Clone, Debug, Default)]
pub struct Args {
    spans: Vec<Span>,
    scratch: Vec<u8>,
    inline: bool,
    /// Where the next argument of a multibulk request begins, and how many are to come from there on.
    next: usize,
    remaining: usize,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    len: u32,
}

/// Arguments whose places stay allocated from one request to the next.
const SPANS_KEPT: usize = 8192;

impl Args {
    /// No arguments, nothing allocated.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            spans: Vec::new(),
            scratch: Vec::new(),
            inline: false,
            next: 0,
            remaining: 0,
        }
    }

    /// Memory that is allocated here.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.scratch.capacity()
    }

    /// The number of arguments, the command's name included.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether the request was empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The argument at `index`; `buf` is the slice that was parsed.
    ///
    /// # Panics
    /// When there is no such argument.
    #[expect(clippy::indexing_slicing, reason = "spans lie in what was parsed")]
    #[inline]
    #[must_use]
    pub fn get<'a>(&'a self, index: usize, buf: &'a [u8]) -> &'a [u8] {
        &self.source(buf)[self.range(index)]
    }

    /// All arguments in order; `buf` is the slice that was parsed.
    #[expect(clippy::indexing_slicing, reason = "spans lie in what was parsed")]
    #[inline]
    pub fn iter<'a>(
        &'a self,
        buf: &'a [u8],
    ) -> impl ExactSizeIterator<Item = &'a [u8]> + DoubleEndedIterator + Clone {
        let source = self.source(buf);
        self.spans.iter().map(move |span| &source[span.range()])
    }

    /// Where the argument at `index` is within [`Args::source`].
    ///
    /// # Panics
    /// When there is no such argument.
    #[expect(clippy::indexing_slicing, reason = "the caller's own index")]
    #[inline]
    #[must_use]
    pub fn range(&self, index: usize) -> Range<usize> {
        self.spans[index].range()
    }

    /// The bytes the ranges refer to: `buf` itself, or the unescaped text of an inline request.
    #[inline]
    #[must_use]
    pub fn source<'a>(&'a self, buf: &'a [u8]) -> &'a [u8] {
        if self.inline { &self.scratch } else { buf }
    }

    #[inline]
    fn reset(&mut self) {
        self.spans.clear();
        if self.spans.capacity() > SPANS_KEPT {
            self.spans.shrink_to(SPANS_KEPT);
        }
        self.inline = false;
        self.next = 0;
        self.remaining = 0;
    }

    #[inline]
    fn push(&mut self, start: usize, len: usize) {
        self.spans.push(Span {
            start: start as u32,
            len: len as u32,
        });
    }
}

impl Span {
    #[inline]
    fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// Shortest argument on the wire: `$0\r\n\r\n`.
const ARG_BYTES_MIN: usize = 6;

/// Longest line that can hold a number: sign, 19 digits, `\r\n`, and room to spare.
const NUMBER_LINE_BYTES_MAX: usize = 32;

/// Lengths with at most this many digits, nearly all of them, take the short way.
const SHORT_NUMBER_DIGITS_MAX: usize = 7;

/// Finds the first request of `buf` and notes in `args` where its arguments are.
///
/// # Errors
/// When no further bytes can make `buf` start with a valid request.
#[inline]
pub fn parse(buf: &[u8], limits: &RequestLimits, args: &mut Args) -> Result<Parsed, RequestError> {
    args.reset();
    match buf.first() {
        None => Ok(Parsed::Incomplete { needed: 1 }),
        Some(b'*') => multibulk(buf, limits, args),
        Some(_) => inline::parse(buf, limits, args),
    }
}

/// [`parse`] of bytes that begin with those that `args` was parsed from: goes on behind the arguments that were
/// whole then, so that a request costs one look at each, in however many pieces it comes.
///
/// # Errors
/// As [`parse`].
pub fn resume(buf: &[u8], limits: &RequestLimits, args: &mut Args) -> Result<Parsed, RequestError> {
    if args.next == 0 {
        return parse(buf, limits, args);
    }
    arguments(buf, limits, args)
}

fn multibulk(buf: &[u8], limits: &RequestLimits, args: &mut Args) -> Result<Parsed, RequestError> {
    let (count, at) = match number_line(buf, 1) {
        Line::Number { value, next } => (value, next),
        Line::Partial => {
            return Ok(Parsed::Incomplete {
                needed: buf.len() + 1,
            });
        }
        Line::Invalid => return Err(RequestError::MultibulkLength),
        Line::TooLong => return Err(RequestError::MultibulkTooBig),
    };
    if count <= 0 {
        return Ok(Parsed::Command { consumed: at });
    }
    let remaining = match usize::try_from(count) {
        Ok(count) if count <= limits.args_max => count,
        _ if !limits.authenticated => return Err(RequestError::UnauthenticatedMultibulkLength),
        _ => return Err(RequestError::MultibulkLength),
    };
    if at + remaining * ARG_BYTES_MIN > limits.query_bytes_max {
        return Err(RequestError::QueryTooBig);
    }
    args.next = at;
    args.remaining = remaining;
    arguments(buf, limits, args)
}

/// The arguments of a multibulk request from the next one on.
#[inline]
fn arguments(buf: &[u8], limits: &RequestLimits, args: &mut Args) -> Result<Parsed, RequestError> {
    let query_bytes_max = limits.query_bytes_max.min(u32::MAX as usize);
    let (mut at, mut remaining) = (args.next, args.remaining);
    let parsed = loop {
        if remaining == 0 {
            break Parsed::Command { consumed: at };
        }
        let incomplete = |end: usize| Parsed::Incomplete {
            needed: end.max(buf.len() + 1),
        };
        match buf.get(at) {
            None => break incomplete(at + remaining * ARG_BYTES_MIN),
            Some(b'$') => {}
            Some(&other) => return Err(RequestError::ExpectedBulk(other)),
        }
        let (len, start) = match number_line(buf, at + 1) {
            Line::Number { value, next } => (value, next),
            Line::Partial => break incomplete(at + remaining * ARG_BYTES_MIN),
            Line::Invalid => return Err(RequestError::BulkLength),
            Line::TooLong => return Err(RequestError::BulkTooBig),
        };
        let len = match usize::try_from(len) {
            Ok(len) if len <= limits.bulk_bytes_max => len,
            Ok(_) if !limits.authenticated => return Err(RequestError::UnauthenticatedBulkLength),
            _ => return Err(RequestError::BulkLength),
        };
        let end = start.saturating_add(len).saturating_add(2);
        let behind = (remaining - 1) * ARG_BYTES_MIN;
        let request_end_min = end.saturating_add(behind);
        if request_end_min > query_bytes_max {
            return Err(RequestError::QueryTooBig);
        }
        match buf.get(end - 2..end) {
            Some(b"\r\n") => {}
            Some(_) => return Err(RequestError::BulkTerminator),
            None => break incomplete(request_end_min),
        }
        args.push(start, len);
        remaining -= 1;
        at = end;
    };
    args.next = at;
    args.remaining = remaining;
    Ok(parsed)
}

enum Line {
    Number { value: i64, next: usize },
    Partial,
    Invalid,
    TooLong,
}

/// Reads `<number>\r\n` at `start`; like Redis, takes neither a plus sign nor leading zeros.
#[inline]
fn number_line(buf: &[u8], start: usize) -> Line {
    let Some(rest) = buf.get(start..) else {
        return Line::Partial;
    };
    let mut value = 0;
    let digits = rest.iter().take(SHORT_NUMBER_DIGITS_MAX + 1);
    for (len, &byte) in digits.enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            value = value * 10 + i64::from(digit);
        } else if byte == b'\r'
            && rest.get(len + 1) == Some(&b'\n')
            && (rest.first() != Some(&b'0') && len > 0 || len == 1)
        {
            return Line::Number {
                value,
                next: start + len + 2,
            };
        } else {
            break;
        }
    }
    long_number_line(rest, start)
}

#[cold]
fn long_number_line(rest: &[u8], start: usize) -> Line {
    let window = rest.get(..NUMBER_LINE_BYTES_MAX).unwrap_or(rest);
    let Some(end) = memchr::memchr(b'\r', window) else {
        return if window.len() < NUMBER_LINE_BYTES_MAX {
            Line::Partial
        } else {
            Line::TooLong
        };
    };
    let Some(value) = window.get(..end).and_then(integer) else {
        return Line::Invalid;
    };
    match rest.get(end + 1) {
        Some(b'\n') => Line::Number {
            value,
            next: start + end + 2,
        },
        Some(_) => Line::Invalid,
        None => Line::Partial,
    }
}

/// A decimal integer in its one canonical spelling, as Redis's `string2ll` reads it.
///
/// Commands with integer arguments accept exactly the same texts.
#[must_use]
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        b"0" => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if !matches!(digits, [b'1'..=b'9', ..]) || digits.len() > 19 {
        return None;
    }
    let mut magnitude = 0u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // At most 19 digits: below 10^19, which u64 holds.
        magnitude = magnitude * 10 + u64::from(digit - b'0');
    }
    if negative {
        0i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    }
}

#[cfg(test)]
mod tests;
