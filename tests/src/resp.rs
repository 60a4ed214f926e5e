//! A raw RESP2/RESP3 client, deliberately not the engine's codec.

use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// One reply, with everything the wire distinguishes.
#[derive(Clone, PartialEq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    /// `$-1`, `*-1` (RESP2) and `_` (RESP3) differ on the wire, so they differ here.
    NullBulk,
    NullArray,
    Null,
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
    Double(String),
    Boolean(bool),
    BigNumber(String),
    Verbatim(Vec<u8>),
    BulkError(Vec<u8>),
}

impl Reply {
    pub fn ok() -> Self {
        Self::Simple("OK".to_owned())
    }

    pub fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().to_vec())
    }

    pub fn is_nil(&self) -> bool {
        matches!(self, Self::NullBulk | Self::NullArray | Self::Null)
    }

    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(text) => Some(text),
            _ => None,
        }
    }

    /// # Panics
    /// When the reply is not an integer.
    pub fn integer(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            other => panic!("expected an integer, got {other:?}"),
        }
    }

    /// The text of a bulk, simple or verbatim string.
    ///
    /// # Panics
    /// When the reply is something else.
    pub fn text(&self) -> String {
        match self {
            Self::Simple(text) => text.clone(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Verbatim(bytes) => String::from_utf8_lossy(&bytes[4.min(bytes.len())..]).into(),
            other => panic!("expected a string, got {other:?}"),
        }
    }

    /// The bytes of a bulk string.
    ///
    /// # Panics
    /// When the reply is something else.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Bulk(bytes) => bytes.clone(),
            other => panic!("expected a bulk string, got {other:?}"),
        }
    }

    /// The elements of an array, set or push; a map as alternating keys and values.
    ///
    /// # Panics
    /// When the reply is something else.
    pub fn items(&self) -> Vec<Reply> {
        match self {
            Self::Array(items) | Self::Set(items) | Self::Push(items) => items.clone(),
            Self::Map(pairs) => pairs
                .iter()
                .flat_map(|(key, value)| [key.clone(), value.clone()])
                .collect(),
            other => panic!("expected an array, got {other:?}"),
        }
    }

    /// The value of `name` in a map, or in an array of alternating names and values.
    pub fn field(&self, name: &str) -> Option<Reply> {
        self.items()
            .chunks(2)
            .find(|pair| pair[0].text() == name)
            .map(|pair| pair[1].clone())
    }

    fn read(input: &mut impl Read) -> io::Result<Self> {
        let line = read_line(input)?;
        let (&kind, rest) = line.split_first().ok_or_else(|| invalid("an empty line"))?;
        let text = || String::from_utf8_lossy(rest).into_owned();
        let number = || text().parse::<i64>().map_err(|_| invalid("a number"));
        Ok(match kind {
            b'+' => Self::Simple(text()),
            b'-' => Self::Error(text()),
            b':' => Self::Integer(number()?),
            b'_' => Self::Null,
            b'#' => Self::Boolean(rest == b"t"),
            b',' => Self::Double(text()),
            b'(' => Self::BigNumber(text()),
            b'$' | b'=' | b'!' => match (number()?, kind) {
                (-1, b'$') => Self::NullBulk,
                (len, b'$') => Self::Bulk(read_bulk(input, len)?),
                (len, b'=') => Self::Verbatim(read_bulk(input, len)?),
                (len, _) => Self::BulkError(read_bulk(input, len)?),
            },
            b'*' | b'~' | b'>' => match (number()?, kind) {
                (-1, b'*') => Self::NullArray,
                (len, b'*') => Self::Array(read_items(input, len)?),
                (len, b'~') => Self::Set(read_items(input, len)?),
                (len, _) => Self::Push(read_items(input, len)?),
            },
            b'%' => {
                let flat = read_items(input, number()? * 2)?;
                let mut pairs = Vec::with_capacity(flat.len() / 2);
                let mut flat = flat.into_iter();
                while let (Some(key), Some(value)) = (flat.next(), flat.next()) {
                    pairs.push((key, value));
                }
                Self::Map(pairs)
            }
            other => return Err(invalid(&format!("reply type {:?}", other as char))),
        })
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |bytes: &[u8]| {
            let head = &bytes[..bytes.len().min(200)];
            let more = if bytes.len() > 200 { "..." } else { "" };
            format!("\"{}\"{more}", head.escape_ascii())
        };
        match self {
            Self::Simple(text) => write!(f, "+{text}"),
            Self::Error(text) => write!(f, "-{text}"),
            Self::Integer(number) => write!(f, ":{number}"),
            Self::Bulk(bytes) => f.write_str(&short(bytes)),
            Self::NullBulk => f.write_str("null-bulk"),
            Self::NullArray => f.write_str("null-array"),
            Self::Null => f.write_str("null"),
            Self::Array(items) => f.debug_list().entries(items).finish(),
            Self::Map(pairs) => f
                .debug_map()
                .entries(pairs.iter().map(|(key, value)| (key, value)))
                .finish(),
            Self::Set(items) => f.debug_set().entries(items).finish(),
            Self::Push(items) => f.debug_tuple("push").field(items).finish(),
            Self::Double(text) => write!(f, ",{text}"),
            Self::Boolean(value) => write!(f, "#{value}"),
            Self::BigNumber(text) => write!(f, "({text}"),
            Self::Verbatim(bytes) => write!(f, "={}", short(bytes)),
            Self::BulkError(bytes) => write!(f, "!{}", short(bytes)),
        }
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {what}"))
}

fn read_line(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        input.read_exact(&mut byte)?;
        line.push(byte[0]);
        if line.ends_with(b"\r\n") {
            line.truncate(line.len() - 2);
            return Ok(line);
        }
    }
}

fn read_bulk(input: &mut impl Read, len: i64) -> io::Result<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| invalid("a negative length"))?;
    let mut bytes = vec![0; len + 2];
    input.read_exact(&mut bytes)?;
    if !bytes.ends_with(b"\r\n") {
        return Err(invalid("a bulk string without its end"));
    }
    bytes.truncate(len);
    Ok(bytes)
}

fn read_items(input: &mut impl Read, len: i64) -> io::Result<Vec<Reply>> {
    (0..len).map(|_| Reply::read(input)).collect()
}

/// Appends one request in multibulk form.
pub fn encode<A: AsRef<[u8]>>(args: &[A], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        let arg = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    input: BufReader<TcpStream>,
}

impl Client {
    /// Long enough for a loaded two-core machine, short enough that a hang is a failure.
    const TIMEOUT: Duration = Duration::from_secs(30);

    pub fn connect(port: u16) -> io::Result<Self> {
        Self::connect_to((Ipv4Addr::LOCALHOST, port).into())
    }

    pub fn connect_to(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Self::TIMEOUT))?;
        stream.set_write_timeout(Some(Self::TIMEOUT))?;
        let input = BufReader::with_capacity(64 * 1024, stream.try_clone()?);
        Ok(Self { stream, input })
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        let mut request = Vec::new();
        encode(args, &mut request);
        self.send_raw(&request)
    }

    pub fn receive(&mut self) -> io::Result<Reply> {
        Reply::read(&mut self.input)
    }

    /// One request and its reply.
    pub fn try_call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.send(args)?;
        self.receive()
    }

    /// One request and its reply.
    ///
    /// # Panics
    /// When the connection breaks.
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.try_call(args).unwrap_or_else(|error| {
            let name = args.first().map_or(&b""[..], AsRef::as_ref);
            panic!("{}: {error}", name.escape_ascii())
        })
    }

    /// Words separated by blanks, as typed into redis-cli without quotes.
    pub fn say(&mut self, line: &str) -> Reply {
        self.call(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// A number of INFO.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn info(&mut self, name: &str) -> u64 {
        let text = self.say("INFO").text();
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let value = value.and_then(|value| value.trim().parse().ok());
        value.unwrap_or_else(|| panic!("INFO has no number {name}: {text}"))
    }

    /// All requests at once, then all replies.
    ///
    /// # Panics
    /// When the connection breaks.
    pub fn pipeline(&mut self, requests: &[Vec<Vec<u8>>]) -> Vec<Reply> {
        let mut bytes = Vec::new();
        for request in requests {
            encode(request, &mut bytes);
        }
        self.send_raw(&bytes).expect("send a pipeline");
        requests
            .iter()
            .map(|_| self.receive().expect("a reply of a pipeline"))
            .collect()
    }

    /// Everything up to the peer's close, or up to `quiet` without a byte; and whether it closed.
    pub fn drain(&mut self, quiet: Duration) -> (Vec<u8>, bool) {
        self.stream
            .set_read_timeout(Some(quiet))
            .expect("set a read timeout");
        let mut all = Vec::new();
        let mut chunk = [0; 16 * 1024];
        let closed = loop {
            match self.input.read(&mut chunk) {
                Ok(0) => break true,
                Ok(count) => all.extend_from_slice(&chunk[..count]),
                Err(error) => {
                    break !matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    );
                }
            }
        };
        self.stream
            .set_read_timeout(Some(Self::TIMEOUT))
            .expect("set a read timeout");
        (all, closed)
    }

    /// Says that nothing more will be sent, while still reading.
    pub fn finish_sending(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }
}
