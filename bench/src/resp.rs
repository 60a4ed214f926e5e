//! A blocking connection to a server, and what INFO says.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use ephesus_wire::resp::reply;
use ephesus_wire::resp::value::decode;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::target::{Stream, Target};

pub use ephesus_wire::resp::Value;

#[cfg(test)]
mod tests;

/// Longest a control command may take before the server counts as hung.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(120);
const READ_BYTES: usize = 64 * 1024;

/// A blocking connection for control commands.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    unread: Vec<u8>,
}

impl Connection {
    /// Connects to a server.
    pub fn open(address: SocketAddr) -> Result<Self> {
        Target::from(address).connect(address)
    }

    pub(crate) fn on(stream: Stream) -> Result<Self> {
        let unread = Vec::new();
        Connection { stream, unread }.within(CONTROL_TIMEOUT)
    }

    /// The same, with replies that are waited for so long.
    pub(crate) fn within(self, timeout: Duration) -> Result<Self> {
        let set = self.stream.socket().set_read_timeout(Some(timeout));
        set.map_err(BenchError::io("a connection's timeout"))?;
        Ok(self)
    }

    /// For a client of its own; everything was answered.
    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }

    /// Sends one command and waits for its reply, which may be an error reply.
    pub fn call(&mut self, arguments: &[&str]) -> Result<Value> {
        let mut request = Vec::new();
        reply::command(&mut request, arguments);
        let sent = self.stream.write_all(&request);
        sent.map_err(BenchError::io("sending a command"))?;
        loop {
            let found = decode(&self.unread)
                .map_err(|error| BenchError::parse("a reply", &error.to_string()))?;
            if let Some((value, used)) = found {
                self.unread.drain(..used);
                return Ok(value);
            }
            let mut chunk = [0; READ_BYTES];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(length) => self.unread.extend_from_slice(&chunk[..length]),
                // An executor's ring interrupts what blocks its thread.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => interrupt::check()?,
                Err(error) => return Err(self.lost(error)),
            }
        }
    }

    fn lost(&self, error: io::Error) -> BenchError {
        let peer = self.stream.socket().peer_addr();
        let peer = peer.map_or_else(|_| "a server".to_owned(), |peer| peer.to_string());
        BenchError::io(format!("a reply of {peer}"))(error)
    }

    /// The text of a bulk or simple reply; anything else is an error.
    pub fn text(&mut self, arguments: &[&str]) -> Result<String> {
        let reply = self.call(arguments)?;
        let text = reply.as_bytes().map(String::from_utf8_lossy);
        let text = text.ok_or_else(|| unexpected(arguments, &reply))?;
        Ok(text.into_owned())
    }

    /// The number of an integer reply; anything else is an error.
    pub fn integer(&mut self, arguments: &[&str]) -> Result<u64> {
        let reply = self.call(arguments)?;
        let number = reply.as_integer().and_then(|number| number.try_into().ok());
        number.ok_or_else(|| unexpected(arguments, &reply))
    }
}

/// A reply that does not fit.
pub fn unexpected(arguments: &[&str], reply: &Value) -> BenchError {
    BenchError::reply(arguments.join(" "), format!("{reply:?}").as_bytes())
}

/// Of a list of names, each with its value behind it, pairs of text; none of anything else.
pub fn pairs(reply: &Value) -> Option<Vec<(String, String)>> {
    let text = |value: &Value| match value {
        Value::Integer(number) => number.to_string(),
        other => String::from_utf8_lossy(other.as_bytes().unwrap_or_default()).into_owned(),
    };
    let Value::Array(words) = reply else {
        return None;
    };
    let pairs = words.chunks_exact(2);
    Some(pairs.map(|pair| (text(&pair[0]), text(&pair[1]))).collect())
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
