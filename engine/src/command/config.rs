//! `CONFIG GET`: named values that match any of several patterns; and what `CONFIG SET` may change.

use ephesus_wire::glob::Pattern;
use ephesus_wire::limits::PATTERN_BYTES_MAX;
use ephesus_wire::resp::reply::{self, Protocol};

use super::error::{ClientError, Quoted};
use super::parse::{self, ArgList};
use crate::keyspace::events::EventClasses;

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
    // How each was asked for first: a name is repeated as it was written.
    let mut spelled: Vec<Option<&[u8]>> = vec![None; parameters.len()];
    let mut bytes = 0;
    for index in PATTERNS..args.len() {
        let asked = args.arg(index);
        let pattern = pattern_ignoring_case(asked)?;
        bytes += asked.len();
        if bytes > PATTERN_BYTES_MAX {
            let what = "all patterns together";
            return Err(ClientError::ArgumentTooLong(what, PATTERN_BYTES_MAX));
        }
        for ((name, _), spelled) in parameters.iter().zip(&mut spelled) {
            let name = name.as_bytes();
            if spelled.is_none() && pattern.matches(name) {
                let is_name = name.eq_ignore_ascii_case(asked);
                *spelled = Some(if is_name { asked } else { name });
            }
        }
    }
    let matching = parameters.iter().zip(&spelled);
    let matching = matching.filter_map(|((_, value), spelled)| Some(((*spelled)?, value)));
    reply::map(out, protocol, matching.clone().count());
    for (name, value) in matching {
        reply::bulk(out, name);
        reply::bulk(out, value.as_bytes());
    }
    Ok(())
}

/// A number of bytes, as Redis reads it: `k` is 1000 and `kb` 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(pub u64);

impl Memory {
    fn parse(text: &str) -> Option<Memory> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match text.get(digits.len()..)?.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" => 1_000,
            "kb" => 1 << 10,
            "m" => 1_000_000,
            "mb" => 1 << 20,
            "g" => 1_000_000_000,
            "gb" => 1 << 30,
            _ => return None,
        };
        digits.parse::<u64>().ok()?.checked_mul(unit).map(Memory)
    }
}

/// What CONFIG SET changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    MaxMemory(Memory),
    /// Microseconds, negative for never.
    SlowerThan(i64),
    SlowLogLen(u64),
    /// Milliseconds, 0 for never.
    LatencyThreshold(u64),
    LatencyTracking(bool),
    /// Whether use is counted by slot.
    SlotStats(bool),
    Events(EventClasses),
    /// It was so before.
    Nothing,
}

const INTEGER: &str = "argument couldn't be parsed into an integer";
const NATURAL: &str = "argument must be between 0 and 9223372036854775807 inclusive";
const MEMORY: &str = "argument must be a memory value";
const YES_NO: &str = "argument must be 'yes' or 'no'";
const EVENTS: &str = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
const DUPLICATE: &str = "duplicate parameter";
const FIXED: &str = "can't set immutable config";

/// Reads `CONFIG SET parameter value [parameter value ...]`, where these are all parameters and their values.
///
/// # Errors
/// [`ClientError::WrongArity`], [`ClientError::ConfigUnknown`] or [`ClientError::ConfigSet`]: nothing is to be changed.
pub fn changes<A: ArgList + ?Sized>(
    args: &A,
    parameters: &[(&'static str, String)],
) -> Result<Vec<Change>, ClientError> {
    if !args.len().is_multiple_of(2) {
        return Err(ClientError::WrongArity("config|set"));
    }
    let mut changes = Vec::new();
    let mut set: Vec<&str> = Vec::new();
    for index in (2..args.len()).step_by(2) {
        let (asked, value) = (args.arg(index), args.arg(index + 1));
        let mut known = parameters.iter();
        let known = known.find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(asked));
        let (name, current) =
            known.ok_or_else(|| ClientError::ConfigUnknown(Quoted::new(asked)))?;
        let change = match set.contains(name) {
            true => Err(DUPLICATE),
            false => change(name, current, &String::from_utf8_lossy(value)),
        };
        set.push(name);
        changes.push(change.map_err(|reason| ClientError::ConfigSet(name, reason))?);
    }
    Ok(changes)
}

fn change(name: &str, current: &str, value: &str) -> Result<Change, &'static str> {
    let integer = || value.parse::<i64>().map_err(|_| INTEGER);
    let natural = || u64::try_from(integer()?).map_err(|_| NATURAL);
    Ok(match name {
        "maxmemory" => Change::MaxMemory(Memory::parse(value).ok_or(MEMORY)?),
        "slowlog-log-slower-than" => Change::SlowerThan(integer()?),
        "slowlog-max-len" => Change::SlowLogLen(natural()?),
        "latency-monitor-threshold" => Change::LatencyThreshold(natural()?),
        "latency-tracking" if value.eq_ignore_ascii_case("yes") => Change::LatencyTracking(true),
        "latency-tracking" if value.eq_ignore_ascii_case("no") => Change::LatencyTracking(false),
        "latency-tracking" => return Err(YES_NO),
        "cluster-slot-stats-enabled" if value.eq_ignore_ascii_case("yes") => {
            Change::SlotStats(true)
        }
        "cluster-slot-stats-enabled" if value.eq_ignore_ascii_case("no") => {
            Change::SlotStats(false)
        }
        "cluster-slot-stats-enabled" => return Err(YES_NO),
        "notify-keyspace-events" => Change::Events(EventClasses::parse(value).ok_or(EVENTS)?),
        _ if value.eq_ignore_ascii_case(current) => Change::Nothing,
        _ => return Err(FIXED),
    })
}

/// A glob pattern that matches lower-case texts in any case of its own.
///
/// # Errors
/// [`ClientError::ArgumentTooLong`].
pub(crate) fn pattern_ignoring_case(bytes: &[u8]) -> Result<Pattern, ClientError> {
    // One byte above the limit is enough to be refused.
    let bytes = bytes.iter().take(PATTERN_BYTES_MAX + 1);
    let lower: Vec<u8> = bytes.map(u8::to_ascii_lowercase).collect();
    parse::pattern(&lower)
}

#[cfg(test)]
mod tests;
