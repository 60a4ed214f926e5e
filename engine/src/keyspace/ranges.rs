//! Commands on parts of values: ranges of bytes, and bits, of which the first one is the highest of the first byte.

use ephesus_wire::limits::VALUE_BYTES_MAX;
use ephesus_wire::resp::reply;

use super::large_replies::LARGE_REPLY_BYTES;
use super::strings::{Outcome, check_sizes};
use super::{Key, Keyspace, Reply};
use crate::command::error::ClientError;
use crate::command::parse::{ArgList, integer};

/// A range as commands give it: both ends are part of it, negative ones count from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: i64,
    end: i64,
}

impl Range {
    /// The places of it among `len` ones, first and last; `None` if there are none.
    fn within(self, len: usize) -> Option<(usize, usize)> {
        let is_turned = self.start < 0 && self.end < 0 && self.start > self.end;
        match is_turned {
            true => None,
            false => self.clamped(len),
        }
    }

    /// The same of BITPOS, to which two places before the front are the front, whichever is first.
    fn clamped(self, len: usize) -> Option<(usize, usize)> {
        // A length is below `i64::MAX`, so that nothing overflows.
        let len = len as i64;
        let place = |at: i64| if at < 0 { (len + at).max(0) } else { at };
        let (start, end) = (place(self.start), place(self.end).min(len - 1));
        (start <= end).then_some((start as usize, end as usize))
    }
}

/// What BITCOUNT and BITPOS look at: a range of bytes or of bits.
#[derive(Clone, Copy, Debug)]
struct Bits {
    range: Range,
    is_in_bits: bool,
    is_clamped: bool,
}

impl Bits {
    const ALL: Bits = Bits {
        range: Range { start: 0, end: -1 },
        is_in_bits: false,
        is_clamped: false,
    };

    /// Reads `[start end [BYTE|BIT]]` from the argument at `at` on; of BITPOS the end may be left out.
    fn parse<A: ArgList + ?Sized>(
        args: &A,
        at: usize,
        is_of_bitpos: bool,
    ) -> Result<Bits, ClientError> {
        let unit = (args.len() - at == 3).then(|| args.arg(at + 2));
        let unit = match unit {
            None => Ok(false),
            Some(unit) if unit.eq_ignore_ascii_case(b"byte") => Ok(false),
            Some(unit) if unit.eq_ignore_ascii_case(b"bit") => Ok(true),
            Some(_) => Err(ClientError::Syntax),
        };
        let (start, is_in_bits, end) = match args.len() - at {
            0 => return Ok(Bits::ALL),
            1 if is_of_bitpos => (integer(args.arg(at))?, false, -1),
            // Which of two mistakes is told first is as in Redis.
            2 | 3 if is_of_bitpos => {
                let start = integer(args.arg(at))?;
                (start, unit?, integer(args.arg(at + 1))?)
            }
            2 | 3 => {
                let (start, end) = (integer(args.arg(at))?, integer(args.arg(at + 1))?);
                (start, unit?, end)
            }
            _ => return Err(ClientError::Syntax),
        };
        Ok(Bits {
            range: Range { start, end },
            is_in_bits,
            is_clamped: is_of_bitpos,
        })
    }

    /// First and last bit.
    fn within(self, value: &[u8]) -> Option<(usize, usize)> {
        let within = match self.is_clamped {
            true => Range::clamped,
            false => Range::within,
        };
        match self.is_in_bits {
            true => within(self.range, 8 * value.len()),
            false => {
                let (start, end) = within(self.range, value.len())?;
                Some((8 * start, 8 * end + 7))
            }
        }
    }
}

/// The bytes with the bits from `first` to `last`, all other bits of which are those of `filler`, and the first one's place.
fn masked(
    value: &[u8],
    (first, last): (usize, usize),
    filler: u8,
) -> impl Iterator<Item = (usize, u8)> {
    let bytes = value.iter().enumerate();
    let bytes = bytes.take(last / 8 + 1).skip(first / 8);
    bytes.map(move |(at, &byte)| {
        let mut mask = 0xFF;
        if at == first / 8 {
            mask &= 0xFF >> (first % 8);
        }
        if at == last / 8 {
            mask &= 0xFF << (7 - last % 8);
        }
        (at, byte & mask | filler & !mask)
    })
}

/// How many of those bits are set.
fn count_ones(value: &[u8], (first, last): (usize, usize)) -> u64 {
    let ones = |(_, byte): (usize, u8)| u64::from(byte.count_ones());
    // What lies between the bytes at both ends is counted without masks.
    let (from, to) = (first / 8 + 1, last / 8);
    if to <= from {
        return masked(value, (first, last), 0).map(ones).sum();
    }
    let whole = value.get(from..to).unwrap_or_default();
    let whole: u64 = whole.iter().map(|byte| u64::from(byte.count_ones())).sum();
    let ends = [(first, 8 * from - 1), (8 * to, last)];
    let ends = ends.map(|end| masked(value, end, 0).map(ones).sum::<u64>());
    whole + ends.iter().sum::<u64>()
}

/// The first of those bits that is set, or clear.
fn find_bit(value: &[u8], bits: (usize, usize), is_set: bool) -> Option<usize> {
    let nothing = if is_set { 0 } else { 0xFF };
    let mut bytes = masked(value, bits, nothing);
    let (at, byte) = bytes.find(|(_, byte)| *byte != nothing)?;
    let before = if is_set {
        byte.leading_zeros()
    } else {
        byte.leading_ones()
    };
    Some(8 * at + before as usize)
}

/// Where a bit is: its byte, and the mask of it there.
fn bit_place(offset: &[u8]) -> Result<(usize, u8), ClientError> {
    let offset = integer(offset).ok().and_then(|n| usize::try_from(n).ok());
    let offset = offset.filter(|offset| offset / 8 < VALUE_BYTES_MAX);
    let offset = offset.ok_or(ClientError::BitOffset)?;
    Ok((offset / 8, 0x80 >> (offset % 8)))
}

impl Keyspace {
    pub(super) fn getrange<A: ArgList + ?Sized>(
        &mut self,
        key: &Key<'_>,
        args: &A,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let (start, end) = (integer(args.arg(2))?, integer(args.arg(3))?);
        let range = Range { start, end };
        let value = self.read(key, reply).map(|entry| entry.value);
        let places = value.and_then(|value| range.within(value.len()));
        let Some((start, end)) = places else {
            reply::bulk(reply.out, b"");
            return Ok(());
        };
        if end - start >= LARGE_REPLY_BYTES {
            self.room.take(end - start)?;
        }
        let value = self.entry(key).map(|entry| entry.value);
        let part = value.and_then(|value| value.get(start..=end));
        reply::bulk(reply.out, part.unwrap_or_default());
        Ok(())
    }

    /// Changes the value of a key, which is empty if there is none, to one of `len` bytes by its old number of bytes; keeps
    /// its expiry. Answers the new number of bytes.
    pub(super) fn change(
        &mut self,
        key: &Key<'_>,
        len: impl FnOnce(usize) -> usize,
        reply: &mut Reply<'_>,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<usize, ClientError> {
        self.change_if(key, len, reply, |value| {
            change(value);
            true
        })
    }

    /// The same, but what `change` answers to be as it was is not written.
    pub(super) fn change_if(
        &mut self,
        key: &Key<'_>,
        len: impl FnOnce(usize) -> usize,
        reply: &mut Reply<'_>,
        change: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> Result<usize, ClientError> {
        let (old, expire_at_ms) = match self.look_up(key, reply) {
            Some(entry) => (entry.value, entry.expire_at_ms),
            None => (&[][..], 0),
        };
        let len = len(old.len());
        if len > VALUE_BYTES_MAX {
            return Err(ClientError::StringTooLong);
        }
        let mut value = Vec::with_capacity(len);
        value.extend_from_slice(old);
        let is_changed = change(&mut value);
        self.note_work(len);
        if is_changed {
            self.put(key, &value, expire_at_ms, reply);
        }
        Ok(value.len())
    }

    pub(super) fn setrange<A: ArgList + ?Sized>(
        &mut self,
        key: &Key<'_>,
        args: &A,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        check_sizes(key.bytes, &[])?;
        let (offset, part) = (integer(args.arg(2))?, args.arg(3));
        let offset = usize::try_from(offset).map_err(|_| ClientError::OffsetOutOfRange)?;
        if part.is_empty() {
            self.strlen(key, reply);
            return Ok(());
        }
        let end = offset.saturating_add(part.len());
        let grown = |old: usize| old.max(end);
        let len = self.change(key, grown, reply, |value| {
            value.resize(grown(value.len()), 0);
            if let Some(place) = value.get_mut(offset..end) {
                place.copy_from_slice(part);
            }
        })?;
        reply::integer(reply.out, len as i64);
        Ok(())
    }

    pub(super) fn setbit<A: ArgList + ?Sized>(
        &mut self,
        key: &Key<'_>,
        args: &A,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        check_sizes(key.bytes, &[])?;
        let (at, mask) = bit_place(args.arg(2))?;
        let is_set = match integer(args.arg(3)) {
            Ok(0) => false,
            Ok(1) => true,
            _ => return Err(ClientError::BitValue),
        };
        let grown = |old: usize| old.max(at + 1);
        let mut was_set = false;
        self.change_if(key, grown, reply, |value| {
            let grows = value.len() <= at;
            value.resize(grown(value.len()), 0);
            if let Some(byte) = value.get_mut(at) {
                was_set = *byte & mask != 0;
                *byte = if is_set { *byte | mask } else { *byte & !mask };
            }
            grows || was_set != is_set
        })?;
        reply::integer(reply.out, i64::from(was_set));
        Ok(())
    }

    pub(super) fn getbit(
        &mut self,
        key: &Key<'_>,
        offset: &[u8],
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let (at, mask) = bit_place(offset)?;
        let entry = self.read(key, reply);
        let byte = entry.and_then(|entry| entry.value.get(at));
        let is_set = byte.is_some_and(|byte| byte & mask != 0);
        reply::integer(reply.out, i64::from(is_set));
        Ok(())
    }

    pub(super) fn bitcount<A: ArgList + ?Sized>(
        &mut self,
        key: &Key<'_>,
        args: &A,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let bits = Bits::parse(args, 2, false)?;
        let entry = self.read(key, reply);
        let len = entry.map_or(0, |entry| entry.value.len());
        let count = entry.and_then(|entry| {
            let bits = bits.within(entry.value)?;
            Some(count_ones(entry.value, bits))
        });
        self.note_work(len);
        reply::integer(reply.out, count.unwrap_or(0) as i64);
        Ok(())
    }

    /// Behind a value whose end was not given there are clear bits without end.
    pub(super) fn bitpos<A: ArgList + ?Sized>(
        &mut self,
        key: &Key<'_>,
        args: &A,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let is_set = match integer(args.arg(2))? {
            0 => false,
            1 => true,
            _ => return Err(ClientError::BitArgument),
        };
        let bits = Bits::parse(args, 3, true)?;
        let is_open = args.len() < 5 && !is_set;
        let (place, len) = match self.read(key, reply) {
            None => ((!is_set).then_some(0), 0),
            Some(entry) => {
                let len = entry.value.len();
                let place = bits.within(entry.value).and_then(|bits| {
                    let end = is_open.then_some(8 * len);
                    find_bit(entry.value, bits, is_set).or(end)
                });
                (place, len)
            }
        };
        self.note_work(len);
        reply::integer(reply.out, place.map_or(-1, |place| place as i64));
        Ok(())
    }
}
