use std::net::SocketAddr;

use crate::error::{BenchError, Result};

/// Longest reply to a write.
const LINE_BYTES_MAX: usize = 4096;

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Done,
    /// Its slot is served there.
    Moved(SocketAddr),
    /// It was refused: the first word of the error.
    Refused(String),
}

/// Splits the replies to writes, one line each, out of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Replies {
    /// Of a line that has not ended.
    begun: Vec<u8>,
}

impl Replies {
    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// When they are no replies to writes.
    pub(super) fn take(&mut self, bytes: &[u8], mut found: impl FnMut(Written)) -> Result<()> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            if self.begun.is_empty() {
                found(read(line)?);
            } else {
                self.begun.extend_from_slice(line);
                found(read(&std::mem::take(&mut self.begun))?);
            }
        }
        self.begun.extend_from_slice(rest);
        match self.begun.len() {
            0..=LINE_BYTES_MAX => Ok(()),
            _ => Err(BenchError::reply("a write", &self.begun)),
        }
    }
}

fn read(line: &[u8]) -> Result<Written> {
    let wrong = || BenchError::reply("a write", line);
    let line = line.strip_suffix(b"\r").ok_or_else(wrong)?;
    match line.split_first() {
        Some((b'+', _)) => Ok(Written::Done),
        Some((b'-', text)) => {
            let text = String::from_utf8_lossy(text);
            let mut words = text.split(' ');
            match (words.next(), words.nth(1)) {
                (Some("MOVED"), Some(address)) => {
                    Ok(Written::Moved(address.parse().map_err(|_| wrong())?))
                }
                (first, _) => Ok(Written::Refused(first.unwrap_or_default().to_owned())),
            }
        }
        _ => Err(wrong()),
    }
}
