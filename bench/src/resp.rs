//! A blocking connection to a server, and what INFO says.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ephesus_wire::resp::reply;
use ephesus_wire::resp::value::decode;
use rustls::ClientConnection;

use crate::error::{BenchError, During, Result};
use crate::interrupt;
use crate::target::Target;

pub use ephesus_wire::resp::Value;

#[cfg(test)]
mod tests;

/// Longest a control command may take before the server counts as hung.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(120);
const READ_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub struct Connection {
    pub(crate) address: SocketAddr,
    pub(crate) socket: TcpStream,
    pub(crate) tls: Option<Box<ClientConnection>>,
    unread: Vec<u8>,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Connection {
    pub fn open(address: SocketAddr) -> Result<Self> {
        Target::from(address).connect(address)
    }

    pub(crate) fn on(
        address: SocketAddr,
        socket: TcpStream,
        tls: Option<Box<ClientConnection>>,
    ) -> Result<Self> {
        let connection = Connection {
            address,
            socket,
            tls,
            unread: Vec::new(),
        };
        connection.within(CONTROL_TIMEOUT)
    }

    /// The same, with replies that are waited for so long.
    pub(crate) fn within(self, timeout: Duration) -> Result<Self> {
        let set = self.socket.set_read_timeout(Some(timeout));
        set.during(self.address).map(|()| self)
    }

    fn stream(&mut self) -> Box<dyn Stream + '_> {
        match &mut self.tls {
            None => Box::new(&mut self.socket),
            Some(tls) => Box::new(rustls::Stream::new(&mut **tls, &mut self.socket)),
        }
    }

    /// Sends one command and waits for its reply, which may be an error reply.
    pub fn call(&mut self, arguments: &[&str]) -> Result<Value> {
        let (mut request, mut chunk) = (Vec::new(), [0; READ_BYTES]);
        reply::command(&mut request, arguments);
        let sent = self.stream().write_all(&request);
        sent.during("sending a command")?;
        loop {
            if let Some((value, used)) = decode(&self.unread).during("a reply")? {
                self.unread.drain(..used);
                return Ok(value);
            }
            let received = self.stream().read(&mut chunk);
            match received {
                Ok(length @ 1..) => self.unread.extend_from_slice(&chunk[..length]),
                // An executor's ring interrupts what blocks its thread.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => interrupt::check()?,
                ended => {
                    let lost = ended.and(Err(io::ErrorKind::UnexpectedEof.into()));
                    return lost.during(format_args!("a reply of {}", self.address));
                }
            }
        }
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
    BenchError::unexpected(arguments.join(" "), &format!("{reply:?}"))
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
    let mut lines = info.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::trim)
}

pub fn info_number(info: &str, name: &str) -> Option<u64> {
    info_field(info, name)?.parse().ok()
}
