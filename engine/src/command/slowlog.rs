//! `SLOWLOG`: commands that took long.

use ephesus_wire::resp::reply;

use super::error::ClientError;
use super::parse::{self, ArgList};
use crate::node::slow::SlowCommand;

/// Entries that are shown when nobody says how many.
const SHOWN: usize = 10;

/// How many entries `SLOWLOG GET [count]` asks for.
///
/// # Errors
/// [`ClientError::SlowLogCount`].
pub fn count<A: ArgList + ?Sized>(args: &A) -> Result<usize, ClientError> {
    match args.len() {
        2 => Ok(SHOWN),
        3 => match parse::integer(args.arg(2)) {
            Ok(-1) => Ok(usize::MAX),
            Ok(count) if count >= 0 => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
            _ => Err(ClientError::SlowLogCount),
        },
        _ => Err(ClientError::Syntax),
    }
}

/// Appends the reply to SLOWLOG GET.
pub fn write(out: &mut Vec<u8>, entries: &[SlowCommand]) {
    reply::array(out, entries.len());
    for entry in entries {
        reply::array(out, 6);
        reply::integer(out, entry.id.cast_signed());
        reply::integer(out, entry.at_s.cast_signed());
        reply::integer(out, entry.usec.cast_signed());
        reply::array(out, entry.args.len());
        entry.args.iter().for_each(|arg| reply::bulk(out, arg));
        reply::bulk(out, entry.address.as_bytes());
        reply::bulk(out, entry.name.as_bytes());
    }
}
