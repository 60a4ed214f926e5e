//! `CONFIG GET`: named values that match any of several patterns.

use ephesus_wire::glob::Pattern;
use ephesus_wire::limits::PATTERN_BYTES_MAX;
use ephesus_wire::resp::reply::{self, Protocol};

use super::error::ClientError;
use super::parse::{self, ArgList};

/// Index of the first pattern of `CONFIG GET pattern [pattern ...]`.
const PATTERNS: usize = 2;

/// Patterns of one command, which together are as long as one may be: each is compiled and compared with every name.
const PATTERNS_MAX: usize = 64;

/// Appends the parameters that match, each once, in the order given; their names are lower case.
///
/// # Errors
/// [`ClientError::ArgumentTooLong`] or [`ClientError::TooManyPatterns`]; nothing was appended.
pub fn write_matching<A: ArgList + ?Sized>(
    out: &mut Vec<u8>,
    protocol: Protocol,
    parameters: &[(&str, String)],
    args: &A,
) -> Result<(), ClientError> {
    if args.len() > PATTERNS + PATTERNS_MAX {
        return Err(ClientError::TooManyPatterns(PATTERNS_MAX));
    }
    let mut matching = vec![false; parameters.len()];
    let mut bytes = 0;
    for index in PATTERNS..args.len() {
        let pattern = pattern_ignoring_case(args.arg(index))?;
        bytes += args.arg(index).len();
        if bytes > PATTERN_BYTES_MAX {
            let what = "all patterns together";
            return Err(ClientError::ArgumentTooLong(what, PATTERN_BYTES_MAX));
        }
        for ((name, _), matching) in parameters.iter().zip(&mut matching) {
            *matching = *matching || pattern.matches(name.as_bytes());
        }
    }
    let matching = parameters
        .iter()
        .zip(&matching)
        .filter(|(_, matching)| **matching);
    reply::map(out, protocol, matching.clone().count());
    for ((name, value), _) in matching {
        reply::bulk(out, name.as_bytes());
        reply::bulk(out, value.as_bytes());
    }
    Ok(())
}

/// A glob pattern that matches lower-case texts in any case of its own.
///
/// # Errors
/// [`ClientError::ArgumentTooLong`].
pub(super) fn pattern_ignoring_case(bytes: &[u8]) -> Result<Pattern, ClientError> {
    // One byte above the limit is enough to be refused.
    let bytes = bytes.iter().take(PATTERN_BYTES_MAX + 1);
    let lower: Vec<u8> = bytes.map(u8::to_ascii_lowercase).collect();
    parse::pattern(&lower)
}

#[cfg(test)]
mod tests;
