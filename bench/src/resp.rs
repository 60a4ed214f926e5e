//! A blocking connection to a server, and what INFO says.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use ephesus_wire::WireError;
use ephesus_wire::resp::reply;
use ephesus_wire::resp::value::{decode, measure};

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
    ///
    /// # Errors
    /// When nothing listens there.
    pub fn open(address: SocketAddr) -> Result<Self> {
        Target::from(address).connect(address)
    }

    pub(crate) fn on(stream: Stream) -> Result<Self> {
        let timeout = stream.socket().set_read_timeout(Some(CONTROL_TIMEOUT));
        timeout.map_err(BenchError::io("a connection's timeout"))?;
        let unread = Vec::new();
        Ok(Connection { stream, unread })
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
    ///
    /// # Errors
    /// When the connection breaks or the reply is not RESP.
    pub fn call(&mut self, arguments: &[&str]) -> Result<Value> {
        let mut request = Vec::new();
        reply::command(&mut request, arguments);
        self.send(&request)?;
        self.receive(decode)
    }

    /// Sends these commands and passes over so many replies; how many bytes they had.
    ///
    /// # Errors
    /// When the connection breaks or a reply is not RESP.
    pub fn pass(&mut self, commands: &[u8], replies: usize) -> Result<usize> {
        self.send(commands)?;
        let mut replies = (0..replies)
            .map(|_| self.receive(|bytes| Ok(measure(bytes)?.map(|length| (length, length)))));
        replies.try_fold(0, |sum, length| Ok(sum + length?))
    }

    fn send(&mut self, commands: &[u8]) -> Result<()> {
        let sent = self.stream.write_all(commands);
        sent.map_err(BenchError::io("sending a command"))
    }

    /// What `read` makes of the next reply and its length.
    fn receive<T>(
        &mut self,
        read: impl Fn(&[u8]) -> Result<Option<(T, usize)>, WireError>,
    ) -> Result<T> {
        loop {
            let found = read(&self.unread)
                .map_err(|error| BenchError::parse("a reply", &error.to_string()))?;
            if let Some((found, used)) = found {
                self.unread.drain(..used);
                return Ok(found);
            }
            let mut chunk = [0; READ_BYTES];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(self.lost(std::io::ErrorKind::UnexpectedEof.into())),
                Ok(length) => self.unread.extend_from_slice(&chunk[..length]),
                // An executor's ring interrupts what blocks its thread.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                    interrupt::check()?
                }
                Err(error) => return Err(self.lost(error)),
            }
        }
    }

    fn lost(&self, error: std::io::Error) -> BenchError {
        let peer = self.stream.socket().peer_addr();
        let peer = peer.map_or_else(|_| "a server".to_owned(), |peer| peer.to_string());
        BenchError::io(format!("a reply of {peer}"))(error)
    }

    /// The text of a bulk or simple reply.
    ///
    /// # Errors
    /// When the reply is something else, such as an error.
    pub fn text(&mut self, arguments: &[&str]) -> Result<String> {
        let reply = self.call(arguments)?;
        let text = reply.as_bytes().map(String::from_utf8_lossy);
        let text = text.ok_or_else(|| unexpected(arguments, &reply))?;
        Ok(text.into_owned())
    }

    /// The number of an integer reply.
    ///
    /// # Errors
    /// When the reply is something else, such as an error.
    pub fn integer(&mut self, arguments: &[&str]) -> Result<u64> {
        let reply = self.call(arguments)?;
        let number = reply.as_integer().and_then(|number| number.try_into().ok());
        number.ok_or_else(|| unexpected(arguments, &reply))
    }

    /// The strings of an array reply.
    ///
    /// # Errors
    /// When the reply is something else, such as an error.
    pub fn strings(&mut self, arguments: &[&str]) -> Result<Vec<String>> {
        let reply = self.call(arguments)?;
        let Value::Array(items) = &reply else {
            return Err(unexpected(arguments, &reply));
        };
        let text = |item: &Value| Some(String::from_utf8_lossy(item.as_bytes()?).into_owned());
        let texts = items.iter().map(text).collect::<Option<Vec<_>>>();
        texts.ok_or_else(|| unexpected(arguments, &reply))
    }
}

/// A reply that does not fit.
pub fn unexpected(arguments: &[&str], reply: &Value) -> BenchError {
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
