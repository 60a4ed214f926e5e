//! `CONFIG GET`: named values that match any of several patterns.

use ephesus_wire::resp::reply::{self, Protocol};

use super::parse::ArgList;

/// Index of the first pattern of `CONFIG GET pattern [pattern ...]`.
const PATTERNS: usize = 2;

/// Appends the parameters that match, each once, in the order given.
pub fn write_matching<A: ArgList + ?Sized>(
    out: &mut Vec<u8>,
    protocol: Protocol,
    parameters: &[(&str, String)],
    args: &A,
) {
    let matching: Vec<&(&str, String)> = parameters
        .iter()
        .filter(|(name, _)| {
            (PATTERNS..args.len())
                .any(|index| matches_ignoring_case(args.arg(index), name.as_bytes()))
        })
        .collect();
    reply::map(out, protocol, matching.len());
    for (name, value) in matching {
        reply::bulk(out, name.as_bytes());
        reply::bulk(out, value.as_bytes());
    }
}

/// Whether `text`, which is lower case, matches the glob pattern in any case.
pub(super) fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    ephesus_wire::glob::matches(&pattern.to_ascii_lowercase(), text)
}

#[cfg(test)]
mod tests;
