//! Reading a command's arguments: Redis's integer rules and the option grammars.
//!
//! Nothing here allocates unless it returns an error, a copy of a request, or the cold list of `CLIENT LIST ID`.
//! Times are milliseconds since the Unix epoch; `now_ms` is the owner's clock, given by the caller.

use std::borrow::Cow;

use ephesus_wire::glob::Pattern;
use ephesus_wire::resp::reply;
use ephesus_wire::resp::request::{self, Args};
use ephesus_wire::{Database, Slot, limits};

use super::error::ClientError;
pub use expiry::{Expire, ExpireCondition, GetExpiry, TimeUnit, deadline};

mod expiry;
pub mod migrate;
pub mod sort;

/// Keys one SCAN call looks at when it has no COUNT.
pub const SCAN_COUNT_DEFAULT: u64 = 10;

/// A request as a list of arguments; argument 0 is the command's name.
pub trait ArgList {
    fn len(&self) -> usize;

    /// The argument at `index`, which is below [`ArgList::len`].
    fn arg(&self, index: usize) -> &[u8];

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was derived from the argument at index 1 already.
    #[inline]
    fn located(&self) -> Option<Located> {
        None
    }
}

/// The arguments of a request after its first ones.
pub struct Tail<'a, A: ?Sized> {
    pub args: &'a A,
    pub skipped: usize,
}

impl<A: ArgList + ?Sized> ArgList for Tail<'_, A> {
    fn len(&self) -> usize {
        self.args.len().saturating_sub(self.skipped)
    }

    fn arg(&self, index: usize) -> &[u8] {
        self.args.arg(self.skipped + index)
    }
}

/// What is derived from a key and decides where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    pub slot: Slot,
    /// By the hasher of the process.
    pub hash: u64,
}

impl<T: AsRef<[u8]>> ArgList for [T] {
    #[inline]
    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the caller's index is below the length"
    )]
    #[inline]
    fn arg(&self, index: usize) -> &[u8] {
        self[index].as_ref()
    }
}

/// The arguments of a parsed request, with the buffer it was parsed from.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    args: &'a Args,
    source: &'a [u8],
    located: Option<Located>,
}

impl<'a> Request<'a> {
    /// `buf` is the slice that was parsed into `args`.
    #[inline]
    #[must_use]
    pub fn new(args: &'a Args, buf: &'a [u8]) -> Request<'a> {
        Request {
            args,
            source: args.source(buf),
            located: None,
        }
    }

    /// With what was derived from the argument at index 1, if it was.
    #[inline]
    #[must_use]
    pub fn with_located(self, located: Option<Located>) -> Request<'a> {
        Request { located, ..self }
    }

    /// Its length, bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.source.len()
    }

    /// All arguments.
    #[must_use]
    pub fn to_args(&self) -> Vec<&[u8]> {
        (0..self.len()).map(|index| self.arg(index)).collect()
    }

    /// The request as an array of bulk strings.
    #[must_use]
    pub fn encoded(&self) -> Vec<u8> {
        let mut encoded = Vec::new();
        reply::command(&mut encoded, &self.to_args());
        encoded
    }

    /// The same, where it was sent as `source`, which need not be one.
    #[must_use]
    pub fn as_array<'s>(&self, source: &'s [u8]) -> Cow<'s, [u8]> {
        match source.first() {
            Some(b'*') => Cow::Borrowed(source),
            _ => Cow::Owned(self.encoded()),
        }
    }
}

impl ArgList for Request<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.args.len()
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "the caller's index is below the length, and spans lie in the source"
    )]
    #[inline]
    fn arg(&self, index: usize) -> &[u8] {
        &self.source[self.args.range(index)]
    }

    #[inline]
    fn located(&self) -> Option<Located> {
        self.located
    }
}

/// Reads an integer as Redis does: canonical decimal, so no plus sign, leading zero or space.
///
/// # Errors
/// [`ClientError::NotAnInteger`] for anything else and outside of `i64`.
#[inline]
pub fn integer(bytes: &[u8]) -> Result<i64, ClientError> {
    request::integer(bytes).ok_or(ClientError::NotAnInteger)
}

/// The amount INCRBY adds.
///
/// # Errors
/// [`ClientError::NotAnInteger`].
pub fn increment<A: ArgList + ?Sized>(args: &A) -> Result<i64, ClientError> {
    integer(args.arg(2))
}

/// The amount DECRBY adds: the negative of its argument.
///
/// # Errors
/// [`ClientError::NotAnInteger`], or [`ClientError::DecrementOverflow`] for the smallest integer.
pub fn decrement<A: ArgList + ?Sized>(args: &A) -> Result<i64, ClientError> {
    integer(args.arg(2))?
        .checked_neg()
        .ok_or(ClientError::DecrementOverflow)
}

/// How many keys EVAL and its like have.
///
/// # Errors
/// Something that is no number, or more than there are arguments.
pub fn count_of_keys<A: ArgList + ?Sized>(args: &A) -> Result<usize, ClientError> {
    let count = integer(args.arg(2))?;
    let count = usize::try_from(count).map_err(|_| ClientError::ScriptKeysNegative)?;
    if count > args.len() - 3 {
        return Err(ClientError::ScriptKeysMissing);
    }
    Ok(count)
}

/// When SET may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetCondition {
    None,
    /// Only if the key does not exist.
    Nx,
    /// Only if the key exists.
    Xx,
    /// Only if the value equals the argument at this index.
    IfEq(usize),
}

/// What SET does with the key's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetExpiry {
    /// Removes it.
    None,
    /// Keeps it (KEEPTTL).
    Keep,
    /// The key expires at that Unix time in milliseconds, which may be past.
    At(u64),
}

/// The options of SET after key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetOptions {
    pub condition: SetCondition,
    /// The reply is the previous value.
    pub get: bool,
    pub expiry: SetExpiry,
}

impl SetOptions {
    const PLAIN: SetOptions = SetOptions {
        condition: SetCondition::None,
        get: false,
        expiry: SetExpiry::None,
    };

    /// Reads the options of `SET key value [NX|XX|IFEQ v] [GET] [EX|PX|EXAT|PXAT n|KEEPTTL]`, in any
    /// order; the same time unit or flag may be repeated, as in Redis, and the last one counts.
    ///
    /// # Errors
    /// [`ClientError::Syntax`], [`ClientError::NotAnInteger`] or [`ClientError::InvalidExpire`].
    #[inline]
    pub fn parse<A: ArgList + ?Sized>(args: &A, now_ms: u64) -> Result<SetOptions, ClientError> {
        if args.len() == 3 {
            Ok(SetOptions::PLAIN)
        } else {
            parse_set_options(args, now_ms)
        }
    }
}

fn parse_set_options<A: ArgList + ?Sized>(
    args: &A,
    now_ms: u64,
) -> Result<SetOptions, ClientError> {
    let mut options = SetOptions::PLAIN;
    let mut time: Option<(TimeUnit, usize)> = None;
    let mut at = 3;
    while at < args.len() {
        let name = args.arg(at);
        let has_next = at + 1 < args.len();
        let keeps = options.expiry == SetExpiry::Keep;
        if name.eq_ignore_ascii_case(b"nx") {
            options.condition = match options.condition {
                SetCondition::None | SetCondition::Nx => SetCondition::Nx,
                _ => return Err(ClientError::Syntax),
            };
        } else if name.eq_ignore_ascii_case(b"xx") {
            options.condition = match options.condition {
                SetCondition::None | SetCondition::Xx => SetCondition::Xx,
                _ => return Err(ClientError::Syntax),
            };
        } else if name.eq_ignore_ascii_case(b"ifeq") {
            if options.condition != SetCondition::None || !has_next {
                return Err(ClientError::Syntax);
            }
            at += 1;
            options.condition = SetCondition::IfEq(at);
        } else if name.eq_ignore_ascii_case(b"get") {
            options.get = true;
        } else if name.eq_ignore_ascii_case(b"keepttl") && time.is_none() {
            options.expiry = SetExpiry::Keep;
        } else if let Some(unit) = TimeUnit::named(name) {
            if keeps || !has_next || time.is_some_and(|(other, _)| other != unit) {
                return Err(ClientError::Syntax);
            }
            at += 1;
            time = Some((unit, at));
        } else {
            return Err(ClientError::Syntax);
        }
        at += 1;
    }
    if let Some((unit, value)) = time {
        options.expiry = SetExpiry::At(deadline(unit, args.arg(value), now_ms, "set")?);
    }
    Ok(options)
}

const PATTERN_TOO_LONG: ClientError =
    ClientError::ArgumentTooLong("a pattern", limits::PATTERN_BYTES_MAX);

/// Compiles a glob pattern.
///
/// # Errors
/// [`ClientError::ArgumentTooLong`].
pub fn pattern(bytes: &[u8]) -> Result<Pattern, ClientError> {
    Pattern::new(bytes).ok_or(PATTERN_TOO_LONG)
}

/// A pattern that [`pattern`] compiles.
///
/// # Errors
/// [`ClientError::ArgumentTooLong`].
pub fn short_pattern(bytes: &[u8]) -> Result<&[u8], ClientError> {
    if bytes.len() > limits::PATTERN_BYTES_MAX {
        return Err(PATTERN_TOO_LONG);
    }
    Ok(bytes)
}

/// The arguments of SCAN; the type's name is borrowed from the request.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    pub cursor: u64,
    pub pattern: Option<Pattern>,
    /// About how many keys to look at, at least 1.
    pub count: u64,
    /// Only keys of that type; any name is allowed.
    pub type_name: Option<&'a [u8]>,
}

impl<'a> Scan<'a> {
    /// Reads `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`.
    ///
    /// # Errors
    /// [`ClientError::InvalidCursor`], [`ClientError::Syntax`], [`ClientError::NotAnInteger`] or
    /// [`ClientError::ArgumentTooLong`].
    pub fn parse<A: ArgList + ?Sized>(args: &'a A) -> Result<Scan<'a>, ClientError> {
        let cursor = cursor(args.arg(1))?;
        let mut scan = Scan {
            cursor,
            pattern: None,
            count: SCAN_COUNT_DEFAULT,
            type_name: None,
        };
        let (mut at, mut last_pattern) = (2, None);
        while at < args.len() {
            let name = args.arg(at);
            if at + 1 >= args.len() {
                return Err(ClientError::Syntax);
            }
            let value = args.arg(at + 1);
            if name.eq_ignore_ascii_case(b"match") {
                last_pattern = Some(value);
            } else if name.eq_ignore_ascii_case(b"count") {
                scan.count = match u64::try_from(integer(value)?) {
                    Ok(count) if count > 0 => count,
                    _ => return Err(ClientError::Syntax),
                };
            } else if name.eq_ignore_ascii_case(b"type") {
                scan.type_name = Some(value);
            } else {
                return Err(ClientError::Syntax);
            }
            at += 2;
        }
        scan.pattern = last_pattern.map(pattern).transpose()?;
        Ok(scan)
    }
}

/// Whether a number has a minus in front, and what is behind its sign.
pub(crate) fn signed(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    }
}

/// An unsigned 64-bit cursor, written as `strtoul` takes it: a sign and leading zeros are allowed, and it ends at a NUL.
fn cursor(bytes: &[u8]) -> Result<u64, ClientError> {
    let end = bytes.iter().position(|&byte| byte == 0);
    let bytes = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
    let (negative, digits) = signed(bytes);
    if digits.is_empty() && !bytes.is_empty() {
        return Err(ClientError::InvalidCursor);
    }
    let mut cursor = 0u64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return Err(ClientError::InvalidCursor);
        }
        cursor = cursor
            .checked_mul(10)
            .and_then(|cursor| cursor.checked_add(u64::from(digit - b'0')))
            .ok_or(ClientError::InvalidCursor)?;
    }
    Ok(if negative {
        cursor.wrapping_neg()
    } else {
        cursor
    })
}

/// The number of one of `databases` databases.
///
/// # Errors
/// [`ClientError::NotAnInteger`], [`ClientError::OutOfInt32`] or [`ClientError::DbIndex`].
pub fn database(number: &[u8], databases: u16) -> Result<Database, ClientError> {
    let number = i32::try_from(integer(number)?).map_err(|_| ClientError::OutOfInt32)?;
    match u8::try_from(number) {
        Ok(number) if u16::from(number) < databases => Ok(Database(number)),
        _ => Err(ClientError::DbIndex),
    }
}

/// The options of COPY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// It may replace what is there.
    pub replaces: bool,
    /// Where the copy goes, if that is said.
    pub database: Option<Database>,
}

impl CopyOptions {
    /// Reads `COPY from to [DB number] [REPLACE]` of a server with so many databases.
    ///
    /// # Errors
    /// [`ClientError::Syntax`], or those of [`database`].
    pub fn parse<A: ArgList + ?Sized>(
        args: &A,
        databases: u16,
    ) -> Result<CopyOptions, ClientError> {
        let (mut at, mut options) = (3, CopyOptions::default());
        while at < args.len() {
            let name = args.arg(at);
            if name.eq_ignore_ascii_case(b"replace") {
                options.replaces = true;
            } else if name.eq_ignore_ascii_case(b"db") && at + 1 < args.len() {
                at += 1;
                options.database = Some(database(args.arg(at), databases)?);
            } else {
                return Err(ClientError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Checks the arguments of FLUSHALL and FLUSHDB: nothing, ASYNC or SYNC.
///
/// # Errors
/// [`ClientError::Syntax`].
pub fn flush<A: ArgList + ?Sized>(args: &A) -> Result<(), ClientError> {
    match args.len() {
        0 | 1 => Ok(()),
        2 if args.arg(1).eq_ignore_ascii_case(b"async") => Ok(()),
        2 if args.arg(1).eq_ignore_ascii_case(b"sync") => Ok(()),
        _ => Err(ClientError::Syntax),
    }
}

/// Checks the argument of BGSAVE: nothing or SCHEDULE.
///
/// # Errors
/// [`ClientError::Syntax`].
pub fn schedule<A: ArgList + ?Sized>(args: &A) -> Result<(), ClientError> {
    match args.len() {
        1 => Ok(()),
        2 if args.arg(1).eq_ignore_ascii_case(b"schedule") => Ok(()),
        _ => Err(ClientError::Syntax),
    }
}

/// The slot of `CLUSTER COUNTKEYSINSLOT slot`.
///
/// # Errors
/// [`ClientError::NotAnInteger`] or [`ClientError::InvalidSlot`].
pub fn count_keys_in_slot<A: ArgList + ?Sized>(args: &A) -> Result<Slot, ClientError> {
    slot(integer(args.arg(2))?).ok_or(ClientError::InvalidSlot)
}

/// The slot and the number of keys of `CLUSTER GETKEYSINSLOT slot count`.
///
/// # Errors
/// [`ClientError::NotAnInteger`] or [`ClientError::InvalidSlotOrCount`].
pub fn get_keys_in_slot<A: ArgList + ?Sized>(args: &A) -> Result<(Slot, u64), ClientError> {
    let (number, count) = (integer(args.arg(2))?, integer(args.arg(3))?);
    match (slot(number), u64::try_from(count)) {
        (Some(slot), Ok(count)) => Ok((slot, count)),
        _ => Err(ClientError::InvalidSlotOrCount),
    }
}

fn slot(number: i64) -> Option<Slot> {
    u16::try_from(number)
        .ok()
        .filter(|&number| number < limits::SLOTS)
        .map(Slot)
}

#[cfg(test)]
mod tests;
