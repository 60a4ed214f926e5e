//! Requests typed as a line of text, split into arguments the way Redis's `sdssplitargs` does.

use super::{Args, Parsed, RequestError, RequestLimits};

pub(super) fn parse(
    buf: &[u8],
    limits: &RequestLimits,
    args: &mut Args,
) -> Result<Parsed, RequestError> {
    let window = buf.get(..limits.inline_bytes_max).unwrap_or(buf);
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if window.len() < limits.inline_bytes_max {
            Ok(Parsed::Incomplete {
                needed: buf.len() + 1,
            })
        } else {
            Err(RequestError::InlineTooBig)
        };
    };
    let line = window.get(..end).unwrap_or(window);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // Redis reads the line as a C string.
    let nul = memchr::memchr(0, line).and_then(|nul| line.get(..nul));
    let line = nul.unwrap_or(line);
    args.inline = true;
    args.scratch.clear();
    split(line, args)?;
    if args.len() > limits.args_max {
        return Err(if limits.authenticated {
            RequestError::MultibulkLength
        } else {
            RequestError::UnauthenticatedMultibulkLength
        });
    }
    Ok(Parsed::Command { consumed: end + 1 })
}

fn split(mut rest: &[u8], args: &mut Args) -> Result<(), RequestError> {
    loop {
        while let [byte, tail @ ..] = rest
            && is_space(*byte)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Ok(());
        }
        let start = args.scratch.len();
        rest = argument(rest, &mut args.scratch)?;
        args.push(start, args.scratch.len() - start);
    }
}

/// Appends one argument to `out`, unescaped, and answers what follows it.
fn argument<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], RequestError> {
    loop {
        rest = match rest {
            [] => return Ok(rest),
            [b' ' | b'\r' | b'\n' | b'\t', tail @ ..] => return Ok(tail),
            [b'"', tail @ ..] => return double_quoted(tail, out),
            [b'\'', tail @ ..] => return single_quoted(tail, out),
            [byte, tail @ ..] => {
                out.push(*byte);
                tail
            }
        };
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], RequestError> {
    loop {
        let (byte, tail) = match rest {
            [] => return Err(RequestError::UnbalancedQuotes),
            [b'"', tail @ ..] => return after_quote(tail),
            [b'\\', b'x', high, low, tail @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex(*high) << 4 | hex(*low), tail)
            }
            [b'\\', escaped, tail @ ..] => {
                let byte = match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                };
                (byte, tail)
            }
            [byte, tail @ ..] => (*byte, tail),
        };
        out.push(byte);
        rest = tail;
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], RequestError> {
    loop {
        let (byte, tail) = match rest {
            [] => return Err(RequestError::UnbalancedQuotes),
            [b'\\', b'\'', tail @ ..] => (b'\'', tail),
            [b'\'', tail @ ..] => return after_quote(tail),
            [byte, tail @ ..] => (*byte, tail),
        };
        out.push(byte);
        rest = tail;
    }
}

fn after_quote(rest: &[u8]) -> Result<&[u8], RequestError> {
    match rest.first() {
        Some(&byte) if !is_space(byte) => Err(RequestError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

/// `isspace` of the C locale; unlike `is_ascii_whitespace` it has the vertical tab.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}
