//! Libraries as FUNCTION DUMP answers them, as Redis's RDB files have them, and as the node's own file does.
//!
//! ```text
//! (F5 text)* | version of the format (u16 LE) | CRC-64 of all before (LE)
//! F6 name, language, has a description (length: 0 or 1), description, code     of the first candidates of Redis 7.0
//! ```
//!
//! Strings and lengths are those of [`crate::keyspace::dump`].

use super::FunctionError;
use super::libraries::{BYTES_MAX, Libraries, OVERHEAD_BYTES};
use crate::command::error::ClientError;
use crate::keyspace::dump;

const LIBRARY: u8 = 0xF5;
const LIBRARY_OF_CANDIDATES: u8 = 0xF6;

/// What FUNCTION RESTORE does with libraries that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// All go.
    Flush,
    /// They stay, and none may have the name of a new one.
    Append,
    /// Those go that have the name of a new one.
    Replace,
}

impl Policy {
    /// # Errors
    /// [`FunctionError::Policy`].
    pub fn parse(word: &[u8]) -> Result<Policy, FunctionError> {
        match () {
            () if word.eq_ignore_ascii_case(b"flush") => Ok(Policy::Flush),
            () if word.eq_ignore_ascii_case(b"append") => Ok(Policy::Append),
            () if word.eq_ignore_ascii_case(b"replace") => Ok(Policy::Replace),
            () => Err(FunctionError::Policy),
        }
    }
}

/// All libraries.
#[must_use]
pub fn write(libraries: &Libraries) -> Vec<u8> {
    let mut out = Vec::with_capacity(libraries.held_bytes());
    for library in libraries.all() {
        out.push(LIBRARY);
        dump::write_length(&mut out, library.text().len());
        out.extend_from_slice(library.text());
    }
    dump::write_footer(&mut out);
    out
}

/// The texts of libraries, in their order.
///
/// # Errors
/// It is something else, damaged, or too much.
pub fn read(payload: &[u8]) -> Result<Vec<Vec<u8>>, ClientError> {
    let mut rest = dump::body_of(payload)?;
    let (mut texts, mut bytes) = (Vec::new(), 0);
    while let Some((&kind, strings)) = rest.split_first() {
        rest = strings;
        let text = match kind {
            LIBRARY => dump::read_string(&mut rest),
            LIBRARY_OF_CANDIDATES => of_candidates(&mut rest),
            _ => return Err(FunctionError::PayloadType.into()),
        };
        let text = text.map_err(|_| FunctionError::Payload)?;
        bytes += OVERHEAD_BYTES + text.len();
        if bytes > BYTES_MAX {
            return Err(FunctionError::TooLarge(BYTES_MAX).into());
        }
        texts.push(text);
    }
    Ok(texts)
}

fn of_candidates(from: &mut &[u8]) -> Result<Vec<u8>, ClientError> {
    let (name, language) = (dump::read_string(from)?, dump::read_string(from)?);
    if dump::read_length(from)? != 0 {
        dump::read_string(from)?;
    }
    let code = dump::read_string(from)?;
    let head = [b"#!", &*language, b" name=", &*name, b"\n"].concat();
    Ok([head, code].concat())
}
