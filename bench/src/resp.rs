//! The client's half of RESP2: requests, whole replies, and counting replies without keeping them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::{BenchError, Result};

pub use scan::{ReplyScanner, Scanned};

mod scan;
#[cfg(test)]
mod tests;

/// Longest a control command may take before the server counts as hung.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(120);
const READ_BYTES: usize = 64 * 1024;
/// Nesting of arrays accepted in a reply.
const DEPTH_MAX: usize = 8;

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+text`.
    Simple(String),
    /// `-text`.
    Error(String),
    /// `:number`.
    Integer(i64),
    /// `$length bytes`; `None` is the null reply.
    Bulk(Option<Vec<u8>>),
    /// `*count` replies.
    Array(Vec<Reply>),
}

/// Appends one command as an array of bulk strings.
pub fn encode(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    // Writing into a Vec cannot fail.
    let _ = write!(out, "*{}\r\n", arguments.len());
    for argument in arguments {
        let _ = write!(out, "${}\r\n", argument.len());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

/// Decodes one reply from the front; `None` means incomplete.
///
/// # Errors
/// When the bytes are not RESP2.
pub fn decode(bytes: &[u8]) -> Result<Option<(Reply, usize)>> {
    decode_nested(bytes, DEPTH_MAX)
}

fn decode_nested(bytes: &[u8], depth: usize) -> Result<Option<(Reply, usize)>> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let wrong = || BenchError::reply("RESP reply", bytes);
    let (kind, rest) = bytes[..end].split_first().ok_or_else(wrong)?;
    let text = || String::from_utf8_lossy(rest).into_owned();
    let number = || text().parse::<i64>().map_err(|_| wrong());
    let mut used = end + 2;
    let reply = match kind {
        b'+' => Reply::Simple(text()),
        b'-' => Reply::Error(text()),
        b':' => Reply::Integer(number()?),
        b'$' => match usize::try_from(number()?) {
            Err(_) => Reply::Bulk(None),
            Ok(length) => {
                let Some(body) = bytes.get(used..used + length) else {
                    return Ok(None);
                };
                if bytes.len() < used + length + 2 {
                    return Ok(None);
                }
                used += length + 2;
                Reply::Bulk(Some(body.to_vec()))
            }
        },
        b'*' => {
            let mut items = Vec::new();
            for _ in 0..number()?.max(0) {
                let depth = depth.checked_sub(1).ok_or_else(wrong)?;
                let Some((item, length)) = decode_nested(&bytes[used..], depth)? else {
                    return Ok(None);
                };
                used += length;
                items.push(item);
            }
            Reply::Array(items)
        }
        _ => return Err(wrong()),
    };
    Ok(Some((reply, used)))
}

/// A blocking connection for control commands.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Connection {
    /// Connects to a server.
    ///
    /// # Errors
    /// When nothing listens there.
    pub fn open(address: SocketAddr) -> Result<Self> {
        let what = || BenchError::io(format!("connecting to {address}"));
        let stream = TcpStream::connect_timeout(&address, CONTROL_TIMEOUT).map_err(what())?;
        stream.set_nodelay(true).map_err(what())?;
        stream
            .set_read_timeout(Some(CONTROL_TIMEOUT))
            .map_err(what())?;
        Ok(Connection {
            stream,
            unread: Vec::new(),
        })
    }

    /// Sends one command and waits for its reply, which may be an error reply.
    ///
    /// # Errors
    /// When the connection breaks or the reply is not RESP2.
    pub fn call(&mut self, arguments: &[&str]) -> Result<Reply> {
        let what = arguments.join(" ");
        let mut request = Vec::new();
        let arguments: Vec<&[u8]> = arguments.iter().map(|text| text.as_bytes()).collect();
        encode(&mut request, &arguments);
        self.stream
            .write_all(&request)
            .map_err(BenchError::io(&what))?;
        let mut chunk = [0; READ_BYTES];
        loop {
            if let Some((reply, used)) = decode(&self.unread)? {
                self.unread.drain(..used);
                return Ok(reply);
            }
            let length = self
                .stream
                .read(&mut chunk)
                .map_err(BenchError::io(&what))?;
            if length == 0 {
                return Err(BenchError::io(what)(
                    std::io::ErrorKind::UnexpectedEof.into(),
                ));
            }
            self.unread.extend_from_slice(&chunk[..length]);
        }
    }

    /// The text of a bulk or simple reply.
    ///
    /// # Errors
    /// When the reply is something else, such as an error.
    pub fn text(&mut self, arguments: &[&str]) -> Result<String> {
        match self.call(arguments)? {
            Reply::Bulk(Some(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Reply::Simple(text) => Ok(text),
            other => Err(unexpected(arguments, &other)),
        }
    }

    /// The number of an integer reply.
    ///
    /// # Errors
    /// When the reply is something else, such as an error.
    pub fn integer(&mut self, arguments: &[&str]) -> Result<u64> {
        match self.call(arguments)? {
            Reply::Integer(number) if number >= 0 => Ok(number as u64),
            other => Err(unexpected(arguments, &other)),
        }
    }

    /// The strings of an array reply.
    ///
    /// # Errors
    /// When the reply is something else, such as an error.
    pub fn strings(&mut self, arguments: &[&str]) -> Result<Vec<String>> {
        let reply = self.call(arguments)?;
        let Reply::Array(items) = &reply else {
            return Err(unexpected(arguments, &reply));
        };
        items
            .iter()
            .map(|item| match item {
                Reply::Bulk(Some(bytes)) => Ok(String::from_utf8_lossy(bytes).into_owned()),
                Reply::Simple(text) => Ok(text.clone()),
                other => Err(unexpected(arguments, other)),
            })
            .collect()
    }
}

fn unexpected(arguments: &[&str], reply: &Reply) -> BenchError {
    BenchError::reply(arguments.join(" "), format!("{reply:?}").as_bytes())
}

/// The value of `name:value` in INFO's text.
pub fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

/// A whole number from INFO's text.
pub fn info_number(info: &str, name: &str) -> Option<u64> {
    info_field(info, name)?.parse().ok()
}
