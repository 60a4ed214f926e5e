use crate::error::{BenchError, Result};

/// What a [`ReplyScanner`] found in one piece of input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Replies that became complete.
    pub complete: usize,
    /// How many of those were null bulks (a GET that missed).
    pub nulls: usize,
}

/// Counts complete replies to GET and SET in a byte stream, keeping nothing but its position.
///
/// Accepts `+line`, `:line`, `$length bytes`, `$-1` and `_`; an error reply is an error.
#[derive(Clone, Debug, Default)]
pub struct ReplyScanner {
    line: Vec<u8>,
    body_left: usize,
}

/// Longest line kept, enough for an error text.
const LINE_BYTES_MAX: usize = 512;

impl ReplyScanner {
    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// On an error reply, or when the bytes are no replies to GET or SET.
    pub fn scan(&mut self, mut bytes: &[u8]) -> Result<Scanned> {
        let mut found = Scanned::default();
        while !bytes.is_empty() {
            if self.body_left > 0 {
                let taken = self.body_left.min(bytes.len());
                self.body_left -= taken;
                bytes = &bytes[taken..];
                found.complete += usize::from(self.body_left == 0);
                continue;
            }
            let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
                self.keep(bytes)?;
                break;
            };
            let (piece, rest) = bytes.split_at(end + 1);
            bytes = rest;
            if self.line.is_empty() {
                self.take_line(piece, &mut found)?;
            } else {
                self.keep(piece)?;
                let line = std::mem::take(&mut self.line);
                self.take_line(&line, &mut found)?;
                self.line = line;
                self.line.clear();
            }
        }
        Ok(found)
    }

    fn keep(&mut self, piece: &[u8]) -> Result<()> {
        self.line.extend_from_slice(piece);
        if self.line.len() > LINE_BYTES_MAX {
            return Err(BenchError::reply("benchmark command", &self.line));
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8], found: &mut Scanned) -> Result<()> {
        let wrong = || BenchError::reply("benchmark command", line);
        let text = line.strip_suffix(b"\r\n").ok_or_else(wrong)?;
        match text.split_first() {
            Some((b'+' | b':', _)) => found.complete += 1,
            Some((b'_', [])) | Some((b'$', b"-1")) => {
                found.complete += 1;
                found.nulls += 1;
            }
            Some((b'$', digits)) => {
                let length: usize = std::str::from_utf8(digits)
                    .ok()
                    .and_then(|digits| digits.parse().ok())
                    .ok_or_else(wrong)?;
                self.body_left = length + 2;
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }
}
