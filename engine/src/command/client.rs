//! What is known about a connection, and the commands by which a client introduces itself.

mod filter;

pub use filter::{ClientFilter, ClientKind, Kill};

use std::fmt;

use ephesus_wire::Database;
use ephesus_wire::limits::CLIENT_NAME_BYTES_MAX;
use ephesus_wire::resp::reply::{self, Protocol};
use ephesus_wire::resp::request;

use super::error::{ClientError, Quoted};
use super::info::REDIS_VERSION;
use super::parse::ArgList;

/// One connection as `CLIENT LIST` and `CLIENT INFO` show it; [`fmt::Display`] is its line without
/// the line break, with the fields of Redis 7.2.
#[derive(Clone, Debug, Default)]
pub struct ClientInfo<'a> {
    pub id: u64,
    /// The client's `host:port`.
    pub address: &'a str,
    /// This end's `host:port`.
    pub local_address: &'a str,
    /// Negative when there is none.
    pub fd: i32,
    pub name: &'a str,
    pub age_seconds: u64,
    pub idle_seconds: u64,
    /// Unparsed bytes in the read buffer, and the free bytes after them.
    pub query_bytes: usize,
    pub query_bytes_free: usize,
    /// Commands that are queued behind MULTI, and the memory of the queue.
    pub queued: Option<usize>,
    pub queue_bytes: usize,
    /// Keys that are watched.
    pub watched: usize,
    /// Bytes of the arguments of the command being run.
    pub argument_bytes: usize,
    /// Size of the output buffer and its fill.
    pub reply_buffer_bytes: usize,
    pub reply_pending_bytes: usize,
    pub total_bytes: usize,
    /// Full name of the last command, such as `client|list`.
    pub command: &'a str,
    pub protocol: Protocol,
    /// The one that is selected.
    pub database: Database,
    /// The connection is closed after the pending replies.
    pub closing: bool,
    /// READONLY was sent.
    pub readonly: bool,
    pub library_name: &'a str,
    pub library_version: &'a str,
    pub user: &'a str,
    /// To channels, patterns and sharded channels.
    pub subscriptions: [usize; 3],
    /// Others are closed first when clients hold too much.
    pub no_evict: bool,
    /// Its commands do not count as use of keys.
    pub no_touch: bool,
    /// It sees what clients send.
    pub monitors: bool,
    /// It is told of changes of keys that it may cache: the id of the connection that is told instead, or 0.
    pub tracks: Option<u64>,
    /// That connection has gone.
    pub is_redirect_broken: bool,
    /// It is told of all keys with its prefixes.
    pub broadcasts: bool,
}

impl ClientInfo<'_> {
    /// The type of the connection.
    #[must_use]
    pub fn kind(&self) -> ClientKind {
        match self.subscriptions {
            [0, 0, 0] => ClientKind::Normal,
            _ => ClientKind::Pubsub,
        }
    }

    fn flags(&self) -> String {
        let flags = [
            (self.kind() == ClientKind::Pubsub, 'P'),
            (self.queued.is_some(), 'x'),
            (self.tracks.is_some(), 't'),
            (self.is_redirect_broken, 'R'),
            (self.broadcasts, 'B'),
            (self.monitors, 'O'),
            (self.closing, 'c'),
            (self.readonly, 'r'),
            (self.no_evict, 'e'),
            (self.no_touch, 'T'),
        ];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        let text: String = set.map(|(_, flag)| flag).collect();
        if text.is_empty() {
            "N".to_owned()
        } else {
            text
        }
    }
}

impl fmt::Display for ClientInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = if self.command.is_empty() {
            "NULL"
        } else {
            self.command
        };
        let [channels, patterns, sharded] = self.subscriptions;
        write!(
            f,
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub={} psub={} \
             ssub={} multi={} watch={} qbuf={} qbuf-free={} argv-mem={} multi-mem={} rbs={} rbp={} obl={} \
             oll=0 omem=0 tot-mem={} events=r cmd={} user={} redir={} resp={} lib-name={} \
             lib-ver={}",
            self.id,
            self.address,
            self.local_address,
            self.fd,
            self.name,
            self.age_seconds,
            self.idle_seconds,
            self.flags(),
            self.database,
            channels,
            patterns,
            sharded,
            self.queued.map_or(-1, |queued| queued as i64),
            self.watched,
            self.query_bytes,
            self.query_bytes_free,
            self.argument_bytes,
            self.queue_bytes,
            self.reply_buffer_bytes,
            self.reply_pending_bytes,
            self.reply_pending_bytes,
            self.total_bytes,
            command,
            self.user,
            self.tracks.map_or(-1, u64::cast_signed),
            version_number(self.protocol),
            self.library_name,
            self.library_version,
        )
    }
}

/// Appends the reply to `CLIENT LIST` or, with one client, `CLIENT INFO`.
pub fn write_lines<'a>(
    out: &mut Vec<u8>,
    protocol: Protocol,
    clients: impl IntoIterator<Item = ClientInfo<'a>>,
) {
    let mut text = String::new();
    for client in clients {
        text.push_str(&client.to_string());
        text.push('\n');
    }
    reply::verbatim(out, protocol, "txt", text.as_bytes());
}

/// The name in `CLIENT SETNAME name`; empty takes the name away.
///
/// # Errors
/// [`ClientError::ClientName`] or [`ClientError::ArgumentTooLong`].
pub fn set_name<A: ArgList + ?Sized>(args: &A) -> Result<&str, ClientError> {
    name(args.arg(2))
}

fn name(bytes: &[u8]) -> Result<&str, ClientError> {
    short("a client's name", bytes)?;
    visible(bytes).ok_or(ClientError::ClientName)
}

/// Refuses what would make a connection, and every CLIENT LIST, large.
fn short(what: &'static str, bytes: &[u8]) -> Result<(), ClientError> {
    if bytes.len() > CLIENT_NAME_BYTES_MAX {
        Err(ClientError::ArgumentTooLong(what, CLIENT_NAME_BYTES_MAX))
    } else {
        Ok(())
    }
}

/// The text, if all of it is visible ASCII without spaces, so that a line stays parseable.
fn visible(bytes: &[u8]) -> Option<&str> {
    if bytes.iter().all(u8::is_ascii_graphic) {
        str::from_utf8(bytes).ok()
    } else {
        None
    }
}

/// What `CLIENT SETINFO` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetInfo<'a> {
    LibraryName(&'a str),
    LibraryVersion(&'a str),
}

impl<'a> SetInfo<'a> {
    /// Reads `CLIENT SETINFO LIB-NAME|LIB-VER value`; empty takes the value away.
    ///
    /// # Errors
    /// [`ClientError::ClientAttributeUnknown`], [`ClientError::ClientAttribute`] or
    /// [`ClientError::ArgumentTooLong`].
    pub fn parse<A: ArgList + ?Sized>(args: &'a A) -> Result<SetInfo<'a>, ClientError> {
        let attribute = args.arg(2);
        let make = if attribute.eq_ignore_ascii_case(b"lib-name") {
            SetInfo::LibraryName
        } else if attribute.eq_ignore_ascii_case(b"lib-ver") {
            SetInfo::LibraryVersion
        } else {
            return Err(ClientError::ClientAttributeUnknown(Quoted::new(attribute)));
        };
        short("a client library's attribute", args.arg(3))?;
        visible(args.arg(3))
            .map(make)
            .ok_or_else(|| ClientError::ClientAttribute(Quoted::new(attribute)))
    }
}

/// The arguments of HELLO, borrowed from the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello<'a> {
    /// None: keep the version in use.
    pub protocol: Option<Protocol>,
    /// User and password, to be checked before anything else takes effect.
    pub auth: Option<(&'a [u8], &'a [u8])>,
    /// Empty takes the name away.
    pub name: Option<&'a str>,
}

impl<'a> Hello<'a> {
    /// Reads `HELLO [2|3 [AUTH user password] [SETNAME name]]`.
    ///
    /// # Errors
    /// [`ClientError::ProtocolVersion`], [`ClientError::NoProto`], [`ClientError::HelloOption`],
    /// [`ClientError::ClientName`] or [`ClientError::ArgumentTooLong`]; nothing of the request takes effect.
    pub fn parse<A: ArgList + ?Sized>(args: &'a A) -> Result<Hello<'a>, ClientError> {
        let mut hello = Hello::default();
        if args.len() < 2 {
            return Ok(hello);
        }
        hello.protocol = match request::integer(args.arg(1)) {
            Some(2) => Some(Protocol::Resp2),
            Some(3) => Some(Protocol::Resp3),
            Some(_) => return Err(ClientError::NoProto),
            None => return Err(ClientError::ProtocolVersion),
        };
        let mut at = 2;
        while at < args.len() {
            let option = args.arg(at);
            let following = args.len() - 1 - at;
            if option.eq_ignore_ascii_case(b"auth") && following >= 2 {
                hello.auth = Some((args.arg(at + 1), args.arg(at + 2)));
                at += 3;
            } else if option.eq_ignore_ascii_case(b"setname") && following >= 1 {
                hello.name = Some(name(args.arg(at + 1))?);
                at += 2;
            } else {
                return Err(ClientError::HelloOption(Quoted::new(option)));
            }
        }
        Ok(hello)
    }
}

/// Appends the reply to HELLO, in the protocol that holds from now on.
pub fn write_hello(out: &mut Vec<u8>, protocol: Protocol, client_id: u64) {
    reply::map(out, protocol, 7);
    field(out, "server", "redis");
    field(out, "version", REDIS_VERSION);
    reply::bulk(out, b"proto");
    reply::integer(out, version_number(protocol));
    reply::bulk(out, b"id");
    reply::integer(out, client_id.cast_signed());
    field(out, "mode", "cluster");
    field(out, "role", "master");
    reply::bulk(out, b"modules");
    reply::array(out, 0);
}

fn version_number(protocol: Protocol) -> i64 {
    match protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    }
}

fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    reply::bulk(out, name.as_bytes());
    reply::bulk(out, value.as_bytes());
}

/// What `CLIENT REPLY` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    On,
    Off,
    /// The next command's reply is left out.
    Skip,
}

impl ReplyMode {
    /// Reads `CLIENT REPLY ON|OFF|SKIP`.
    ///
    /// # Errors
    /// [`ClientError::Syntax`].
    pub fn parse<A: ArgList + ?Sized>(args: &A) -> Result<ReplyMode, ClientError> {
        let mode = args.arg(2);
        match () {
            () if mode.eq_ignore_ascii_case(b"on") => Ok(ReplyMode::On),
            () if mode.eq_ignore_ascii_case(b"off") => Ok(ReplyMode::Off),
            () if mode.eq_ignore_ascii_case(b"skip") => Ok(ReplyMode::Skip),
            () => Err(ClientError::Syntax),
        }
    }
}

/// What `CLIENT PAUSE` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    pub until_ms: u64,
    /// Not only writes wait.
    pub is_all: bool,
}

impl Pause {
    /// Reads `CLIENT PAUSE timeout [WRITE|ALL]`.
    ///
    /// # Errors
    /// [`ClientError::Timeout`], [`ClientError::NegativeTimeout`] or [`ClientError::PauseMode`].
    pub fn parse<A: ArgList + ?Sized>(args: &A, now_ms: u64) -> Result<Pause, ClientError> {
        let is_all = match args.len() {
            3 => true,
            4 if args.arg(3).eq_ignore_ascii_case(b"all") => true,
            4 if args.arg(3).eq_ignore_ascii_case(b"write") => false,
            _ => return Err(ClientError::PauseMode),
        };
        let until_ms = now_ms.saturating_add(timeout_ms(args.arg(2))?);
        Ok(Pause { until_ms, is_all })
    }

    /// Together with another one: neither is shortened or lifted.
    #[must_use]
    pub fn joined(self, other: Pause) -> Pause {
        Pause {
            until_ms: self.until_ms.max(other.until_ms),
            is_all: self.is_all || other.is_all,
        }
    }
}

/// A timeout in milliseconds.
///
/// # Errors
/// [`ClientError::Timeout`] or [`ClientError::NegativeTimeout`].
pub fn timeout_ms(bytes: &[u8]) -> Result<u64, ClientError> {
    let timeout = request::integer(bytes).ok_or(ClientError::Timeout)?;
    u64::try_from(timeout).map_err(|_| ClientError::NegativeTimeout)
}

/// Checks `CLIENT UNBLOCK id [TIMEOUT|ERROR]`.
///
/// # Errors
/// [`ClientError::NotAnInteger`] or [`ClientError::UnblockReason`].
pub fn check_unblock<A: ArgList + ?Sized>(args: &A) -> Result<(), ClientError> {
    let is_reason =
        |word: &[u8]| word.eq_ignore_ascii_case(b"timeout") || word.eq_ignore_ascii_case(b"error");
    match args.len() {
        3 => {}
        4 if is_reason(args.arg(3)) => {}
        4 => return Err(ClientError::UnblockReason),
        _ => return Err(ClientError::Syntax),
    }
    super::parse::integer(args.arg(2)).map(|_| ())
}

/// Whether it is `ON`, of `ON|OFF`.
///
/// # Errors
/// [`ClientError::Syntax`].
pub fn on_or_off(word: &[u8]) -> Result<bool, ClientError> {
    match () {
        () if word.eq_ignore_ascii_case(b"on") => Ok(true),
        () if word.eq_ignore_ascii_case(b"off") => Ok(false),
        () => Err(ClientError::Syntax),
    }
}

#[cfg(test)]
mod tests;
