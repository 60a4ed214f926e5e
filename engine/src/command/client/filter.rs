//! Which connections `CLIENT LIST` shows and `CLIENT KILL` closes.

use ephesus_wire::resp::request;

use super::ClientInfo;
use crate::command::error::{ClientError, Quoted};
use crate::command::parse::ArgList;

/// The types that Redis has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    Normal,
    /// Only where there is replication.
    Master,
    Replica,
    Pubsub,
}

impl ClientKind {
    fn parse(name: &[u8]) -> Result<ClientKind, ClientError> {
        const NAMES: [(&[u8], ClientKind); 5] = [
            (b"normal", ClientKind::Normal),
            (b"master", ClientKind::Master),
            (b"replica", ClientKind::Replica),
            (b"slave", ClientKind::Replica),
            (b"pubsub", ClientKind::Pubsub),
        ];
        let mut names = NAMES.into_iter();
        let found = names.find(|(known, _)| name.eq_ignore_ascii_case(known));
        let unknown = || ClientError::ClientType(Quoted::new(name));
        found.map(|(_, kind)| kind).ok_or_else(unknown)
    }
}

/// What a connection has to be; what is not given does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFilter {
    /// Ascending.
    ids: Option<Vec<u64>>,
    kind: Option<ClientKind>,
    address: Option<Vec<u8>>,
    local_address: Option<Vec<u8>>,
    user: Option<Vec<u8>>,
    /// Of that age at least.
    age_seconds_min: u64,
}

fn sorted(mut ids: Vec<u64>) -> Option<Vec<u64>> {
    ids.sort_unstable();
    ids.dedup();
    Some(ids)
}

impl ClientFilter {
    /// Reads `CLIENT LIST [TYPE type | ID id [id ...]]`.
    ///
    /// # Errors
    /// [`ClientError::Syntax`], [`ClientError::ClientType`] or [`ClientError::ClientId`].
    pub fn parse<A: ArgList + ?Sized>(args: &A) -> Result<ClientFilter, ClientError> {
        let mut filter = ClientFilter::default();
        match args.len() {
            0..=2 => {}
            4 if args.arg(2).eq_ignore_ascii_case(b"type") => {
                filter.kind = Some(ClientKind::parse(args.arg(3))?);
            }
            4.. if args.arg(2).eq_ignore_ascii_case(b"id") => {
                let ids = (3..args.len()).map(|index| request::integer(args.arg(index)));
                let ids: Option<Vec<i64>> = ids.collect();
                let ids = ids.ok_or(ClientError::ClientId)?;
                // Nobody has a negative one.
                let ids = ids.into_iter().filter_map(|id| u64::try_from(id).ok());
                filter.ids = sorted(ids.collect());
            }
            _ => return Err(ClientError::Syntax),
        }
        Ok(filter)
    }

    /// Whether a connection is meant.
    #[must_use]
    pub fn admits(&self, client: &ClientInfo<'_>) -> bool {
        let is = |wanted: &Option<Vec<u8>>, text: &str| {
            wanted
                .as_ref()
                .is_none_or(|wanted| wanted == text.as_bytes())
        };
        let ids = self.ids.as_ref();
        ids.is_none_or(|ids| ids.binary_search(&client.id).is_ok())
            && self.kind.is_none_or(|kind| kind == client.kind())
            && is(&self.address, client.address)
            && is(&self.local_address, client.local_address)
            && is(&self.user, client.user)
            && client.age_seconds >= self.age_seconds_min
    }
}

/// What `CLIENT KILL` is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    pub filter: ClientFilter,
    pub skips_me: bool,
    /// `CLIENT KILL address`: answered with OK, or that there is none.
    pub is_old_form: bool,
}

impl Kill {
    /// Reads `CLIENT KILL address` or `CLIENT KILL [ID id [id ...]] [TYPE type] [USER name] [ADDR address] [LADDR address]
    /// [SKIPME yes|no] [MAXAGE seconds]`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse<A: ArgList + ?Sized>(
        args: &A,
        is_user: impl Fn(&[u8]) -> bool,
    ) -> Result<Kill, ClientError> {
        let mut kill = Kill {
            filter: ClientFilter::default(),
            skips_me: true,
            is_old_form: args.len() == 3,
        };
        let filter = &mut kill.filter;
        if kill.is_old_form {
            filter.address = Some(args.arg(2).to_vec());
            kill.skips_me = false;
            return Ok(kill);
        }
        let mut at = 2;
        while at < args.len() {
            if at + 1 == args.len() {
                return Err(ClientError::Syntax);
            }
            let (name, value) = (args.arg(at), args.arg(at + 1));
            at += 2;
            match () {
                () if name.eq_ignore_ascii_case(b"id") => {
                    let mut ids = vec![id(value)?];
                    while at < args.len() && request::integer(args.arg(at)).is_some() {
                        ids.push(id(args.arg(at))?);
                        at += 1;
                    }
                    filter.ids = sorted(ids);
                }
                () if name.eq_ignore_ascii_case(b"type") => {
                    filter.kind = Some(ClientKind::parse(value)?);
                }
                () if name.eq_ignore_ascii_case(b"addr") => filter.address = Some(value.to_vec()),
                () if name.eq_ignore_ascii_case(b"laddr") => {
                    filter.local_address = Some(value.to_vec());
                }
                () if name.eq_ignore_ascii_case(b"user") => {
                    if !is_user(value) {
                        return Err(ClientError::NoSuchUser(Quoted::new(value)));
                    }
                    filter.user = Some(value.to_vec());
                }
                () if name.eq_ignore_ascii_case(b"maxage") => {
                    let age = request::integer(value).ok_or(ClientError::MaxAge)?;
                    let age = u64::try_from(age).ok().filter(|age| *age > 0);
                    filter.age_seconds_min = age.ok_or(ClientError::MaxAgeRange)?;
                }
                () if name.eq_ignore_ascii_case(b"skipme") => {
                    kill.skips_me = match () {
                        () if value.eq_ignore_ascii_case(b"yes") => true,
                        () if value.eq_ignore_ascii_case(b"no") => false,
                        () => return Err(ClientError::Syntax),
                    };
                }
                () => return Err(ClientError::Syntax),
            }
        }
        Ok(kill)
    }
}

fn id(value: &[u8]) -> Result<u64, ClientError> {
    let id = request::integer(value).and_then(|id| u64::try_from(id).ok());
    id.filter(|id| *id > 0).ok_or(ClientError::ClientIdRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kill(line: &str) -> Result<Kill, String> {
        let args: Vec<&str> = line.split(' ').collect();
        Kill::parse(&args[..], |user| user == b"default").map_err(|error| error.to_string())
    }

    fn client(id: u64) -> ClientInfo<'static> {
        ClientInfo {
            id,
            address: "127.0.0.1:5",
            local_address: "127.0.0.1:7379",
            user: "default",
            age_seconds: 10,
            ..ClientInfo::default()
        }
    }

    #[test]
    fn filters_are_taken_together() {
        for (line, expected) in [
            ("client kill 127.0.0.1:5", true),
            ("client kill 127.0.0.1:6", false),
            ("client kill id 7", true),
            ("client kill ID 8", false),
            ("client kill id 8 7 9 type normal", true),
            ("client kill type pubsub", false),
            ("client kill type replica", false),
            ("client kill addr 127.0.0.1:5 laddr 127.0.0.1:7379", true),
            ("client kill addr 127.0.0.1:5 laddr 127.0.0.1:7380", false),
            ("client kill user default maxage 10", true),
            ("client kill maxage 11", false),
            ("client kill skipme no", true),
        ] {
            let kill = kill(line).expect(line);
            assert_eq!(kill.filter.admits(&client(7)), expected, "{line}");
        }
        assert!(kill("client kill id 7").is_ok_and(|kill| kill.skips_me));
        assert!(kill("client kill a").is_ok_and(|kill| kill.is_old_form && !kill.skips_me));
    }

    #[test]
    fn what_is_wrong_is_said_as_redis_says_it() {
        for (line, text) in [
            ("client kill id 0", "ERR client-id should be greater than 0"),
            ("client kill id x", "ERR client-id should be greater than 0"),
            ("client kill foo bar", "ERR syntax error"),
            ("client kill id 1 addr", "ERR syntax error"),
            ("client kill type foo", "ERR Unknown client type 'foo'"),
            ("client kill user bob", "ERR No such user 'bob'"),
            ("client kill skipme maybe", "ERR syntax error"),
            (
                "client kill maxage x",
                "ERR maxage is not an integer or out of range",
            ),
            (
                "client kill maxage 0",
                "ERR maxage should be greater than 0",
            ),
        ] {
            assert_eq!(kill(line), Err(text.to_owned()), "{line}");
        }
    }
}
