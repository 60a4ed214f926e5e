//! When keys expire: times and conditions of SET, SETEX, GETEX, EXPIRE and their like. Unix milliseconds.

use super::{ArgList, integer};
use crate::command::error::{ClientError, Quoted};

/// How a time is given, by the name of SET's option for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds from now.
    Ex,
    /// Milliseconds from now.
    Px,
    /// Unix time in seconds.
    Exat,
    /// Unix time in milliseconds.
    Pxat,
}

impl TimeUnit {
    pub(super) fn named(name: &[u8]) -> Option<TimeUnit> {
        match name {
            [b'e' | b'E', b'x' | b'X'] => Some(TimeUnit::Ex),
            [b'p' | b'P', b'x' | b'X'] => Some(TimeUnit::Px),
            _ if name.eq_ignore_ascii_case(b"exat") => Some(TimeUnit::Exat),
            _ if name.eq_ignore_ascii_case(b"pxat") => Some(TimeUnit::Pxat),
            _ => None,
        }
    }

    /// A time in this unit as Unix milliseconds, if that is a 64-bit number; it may be negative.
    fn at_ms(self, value: i64, now_ms: u64) -> Option<i64> {
        let ms = match self {
            TimeUnit::Ex | TimeUnit::Exat => value.checked_mul(1000)?,
            TimeUnit::Px | TimeUnit::Pxat => value,
        };
        match self {
            TimeUnit::Ex | TimeUnit::Px => ms.checked_add_unsigned(now_ms),
            TimeUnit::Exat | TimeUnit::Pxat => Some(ms),
        }
    }
}

/// When something expires that the command of that name gives a time to live: SET, SETEX, PSETEX or GETEX.
///
/// # Errors
/// [`ClientError::NotAnInteger`] or [`ClientError::InvalidExpire`].
pub fn deadline(
    unit: TimeUnit,
    value: &[u8],
    now_ms: u64,
    command: &'static str,
) -> Result<u64, ClientError> {
    let value = Some(integer(value)?).filter(|value| *value > 0);
    value
        .and_then(|value| unit.at_ms(value, now_ms))
        .and_then(|ms| u64::try_from(ms).ok())
        .ok_or(ClientError::InvalidExpire(command))
}

/// What GETEX does with the key's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetExpiry {
    Keep,
    Remove,
    /// The time in the argument at this index.
    Set(TimeUnit, usize),
}

impl GetExpiry {
    /// Reads `GETEX key [EX|PX|EXAT|PXAT n|PERSIST]`; the same option may be repeated, as in Redis, and the last one counts.
    ///
    /// # Errors
    /// [`ClientError::Syntax`].
    pub fn parse<A: ArgList + ?Sized>(args: &A) -> Result<GetExpiry, ClientError> {
        let (mut expiry, mut at) = (GetExpiry::Keep, 2);
        while at < args.len() {
            let name = args.arg(at);
            let unit = TimeUnit::named(name).filter(|_| at + 1 < args.len());
            expiry = match (expiry, unit) {
                (GetExpiry::Keep | GetExpiry::Remove, None)
                    if name.eq_ignore_ascii_case(b"persist") =>
                {
                    GetExpiry::Remove
                }
                (GetExpiry::Keep, Some(unit)) => GetExpiry::Set(unit, at + 1),
                (GetExpiry::Set(other, _), Some(unit)) if unit == other => {
                    GetExpiry::Set(unit, at + 1)
                }
                _ => return Err(ClientError::Syntax),
            };
            at += 1 + usize::from(unit.is_some());
        }
        Ok(expiry)
    }
}

/// When EXPIRE may change the expiry; a key without one counts as expiring never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpireCondition {
    /// Only if the key has no expiry.
    pub nx: bool,
    /// Only if the key has an expiry.
    pub xx: bool,
    /// Only if the new expiry is later.
    pub gt: bool,
    /// Only if the new expiry is earlier.
    pub lt: bool,
}

impl ExpireCondition {
    /// Whether a key that expires at `current` (`None`: never) may get the expiry `new`.
    #[must_use]
    pub fn allows(self, current: Option<u64>, new: u64) -> bool {
        let exists = current.is_some();
        !(self.nx && exists
            || self.xx && !exists
            || self.gt && current.is_none_or(|current| new <= current)
            || self.lt && current.is_some_and(|current| new >= current))
    }
}

/// The arguments of EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT after the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expire {
    /// Unix time in milliseconds, at least 1; not after now means delete.
    pub at_ms: u64,
    pub condition: ExpireCondition,
}

impl Expire {
    /// Reads `NAME key time [NX|XX|GT|LT]`, in the unit of the command of that name.
    ///
    /// # Errors
    /// A bad option first, then [`ClientError::NotAnInteger`] or [`ClientError::InvalidExpire`].
    pub fn parse<A: ArgList + ?Sized>(
        args: &A,
        unit: TimeUnit,
        now_ms: u64,
        command: &'static str,
    ) -> Result<Expire, ClientError> {
        let mut condition = ExpireCondition::default();
        for index in 3..args.len() {
            let name = args.arg(index);
            match () {
                () if name.eq_ignore_ascii_case(b"nx") => condition.nx = true,
                () if name.eq_ignore_ascii_case(b"xx") => condition.xx = true,
                () if name.eq_ignore_ascii_case(b"gt") => condition.gt = true,
                () if name.eq_ignore_ascii_case(b"lt") => condition.lt = true,
                () => return Err(ClientError::UnsupportedOption(Quoted::new(name))),
            }
        }
        if condition.nx && (condition.xx || condition.gt || condition.lt) {
            return Err(ClientError::ExpireNxWithOthers);
        }
        if condition.gt && condition.lt {
            return Err(ClientError::ExpireGtWithLt);
        }
        let at_ms = unit
            .at_ms(integer(args.arg(2))?, now_ms)
            .ok_or(ClientError::InvalidExpire(command))?;
        Ok(Expire {
            at_ms: at_ms.max(1).unsigned_abs(),
            condition,
        })
    }
}
