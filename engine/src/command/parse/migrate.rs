//! The arguments of MIGRATE.

use super::{ArgList, integer};
use crate::command::error::ClientError;

/// Where options begin.
const OPTIONS: usize = 6;

/// How long each step may take if that is not said, or said to be nothing, ms.
const TIMEOUT_MS_DEFAULT: u64 = 1000;

/// And at most, ms.
pub const TIMEOUT_MS_MAX: u64 = 60_000;

/// `MIGRATE host port key|"" database timeout [COPY] [REPLACE] [AUTH password | AUTH2 user password] [KEYS key ...]`;
/// arguments by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrate {
    /// At the target.
    pub database: i64,
    pub timeout_ms: u64,
    /// The keys stay here.
    pub copies: bool,
    /// Keys of the target may be replaced.
    pub replaces: bool,
    pub user: Option<usize>,
    pub password: Option<usize>,
}

impl Migrate {
    /// # Errors
    /// What is wrong with them.
    pub fn parse<A: ArgList + ?Sized>(args: &A) -> Result<Migrate, ClientError> {
        let mut migrate = Migrate {
            database: 0,
            timeout_ms: TIMEOUT_MS_DEFAULT,
            copies: false,
            replaces: false,
            user: None,
            password: None,
        };
        let mut at = OPTIONS;
        while at < args.len() {
            let name = args.arg(at);
            let left = args.len() - at - 1;
            if name.eq_ignore_ascii_case(b"copy") {
                migrate.copies = true;
            } else if name.eq_ignore_ascii_case(b"replace") {
                migrate.replaces = true;
            } else if name.eq_ignore_ascii_case(b"auth") && left >= 1 {
                migrate.password = Some(at + 1);
                at += 1;
            } else if name.eq_ignore_ascii_case(b"auth2") && left >= 2 {
                (migrate.user, migrate.password) = (Some(at + 1), Some(at + 2));
                at += 2;
            } else if name.eq_ignore_ascii_case(b"keys") {
                if !args.arg(3).is_empty() {
                    return Err(ClientError::MigrateKeys);
                }
                break;
            } else {
                return Err(ClientError::Syntax);
            }
            at += 1;
        }
        migrate.timeout_ms = match integer(args.arg(5))? {
            ..=0 => TIMEOUT_MS_DEFAULT,
            timeout => timeout.cast_unsigned().min(TIMEOUT_MS_MAX),
        };
        migrate.database = integer(args.arg(4))?;
        Ok(migrate)
    }
}

/// The index of the first of many keys, if the command names them so; there may be none.
pub fn first_of_many<A: ArgList + ?Sized>(args: &A) -> Option<usize> {
    let mut at = OPTIONS;
    while at < args.len() {
        let name = args.arg(at);
        if name.eq_ignore_ascii_case(b"keys") {
            return args.arg(3).is_empty().then_some(at + 1);
        }
        at += match () {
            () if name.eq_ignore_ascii_case(b"auth") => 2,
            () if name.eq_ignore_ascii_case(b"auth2") => 3,
            () => 1,
        };
    }
    None
}

/// The arguments that are secret.
pub fn secrets<A: ArgList + ?Sized>(args: &A) -> std::ops::Range<usize> {
    let mut at = OPTIONS;
    while at < args.len() {
        let name = args.arg(at);
        let secrets = match () {
            () if name.eq_ignore_ascii_case(b"auth") => 1,
            () if name.eq_ignore_ascii_case(b"auth2") => 2,
            () if name.eq_ignore_ascii_case(b"keys") => break,
            () => 0,
        };
        if secrets > 0 {
            return at + 1..(at + 1 + secrets).min(args.len());
        }
        at += 1;
    }
    0..0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Migrate, String> {
        let args: Vec<&str> = line.split(' ').collect();
        Migrate::parse(&args[..]).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_as_redis_reads_them() {
        let plain = parse("MIGRATE h 1 k 0 0").expect("valid");
        assert_eq!((plain.timeout_ms, plain.copies), (1000, false));
        let all = parse("MIGRATE h 1  3 50 copy REPLACE AUTH2 u p KEYS a b").expect("valid");
        let expected = Migrate {
            database: 3,
            timeout_ms: 50,
            copies: true,
            replaces: true,
            user: Some(9),
            password: Some(10),
        };
        assert_eq!(all, expected);
        assert_eq!(
            parse("MIGRATE h 1 k 0 999999999")
                .expect("valid")
                .timeout_ms,
            60_000
        );
        for (line, error) in [
            (
                "MIGRATE h 1 k x 1",
                "ERR value is not an integer or out of range",
            ),
            (
                "MIGRATE h 1 k 0 x",
                "ERR value is not an integer or out of range",
            ),
            ("MIGRATE h 1 k 0 1 FOO", "ERR syntax error"),
            ("MIGRATE h 1 k 0 1 AUTH", "ERR syntax error"),
            ("MIGRATE h 1 k 0 1 AUTH2 u", "ERR syntax error"),
            (
                "MIGRATE h 1 k 0 1 KEYS k",
                "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
            ),
        ] {
            assert_eq!(parse(line), Err(error.to_owned()), "{line}");
        }
    }

    #[test]
    fn keys_and_secrets_are_found() {
        let both = |line: &str| {
            let args: Vec<&str> = line.split(' ').collect();
            (first_of_many(&args[..]), secrets(&args[..]))
        };
        assert_eq!(both("MIGRATE h 1 k 0 1"), (None, 0..0));
        assert_eq!(both("MIGRATE h 1  0 1 KEYS a"), (Some(7), 0..0));
        assert_eq!(both("MIGRATE h 1  0 1 AUTH keys KEYS a"), (Some(9), 7..8));
        assert_eq!(
            both("MIGRATE h 1  0 1 AUTH2 u auth KEYS a"),
            (Some(10), 7..9)
        );
        assert_eq!(both("MIGRATE h 1 k 0 1 AUTH2 u"), (None, 7..8));
        assert_eq!(both("MIGRATE h 1  0 1 KEYS"), (Some(7), 0..0));
    }
}
