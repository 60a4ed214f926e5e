//! BITFIELD: integers of any width in a value, the first bit of which is the highest of its first byte.

use ephesus_wire::limits::VALUE_BYTES_MAX;
use ephesus_wire::resp::reply::{self, Protocol};

use super::strings::{Outcome, check_sizes};
use super::{Key, Keyspace, Reply};
use crate::command::error::ClientError;
use crate::command::parse::{ArgList, integer};

/// Longest reply to one action.
const ANSWER_BYTES_MAX: usize = reply::INTEGER_BYTES_MAX + 3;

/// Bytes in which a field of 64 bits lies, wherever it begins.
const FIELD_BYTES_MAX: usize = 9;

/// What becomes of a number that does not fit its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

impl Overflow {
    fn parse(name: &[u8]) -> Result<Overflow, ClientError> {
        match () {
            () if name.eq_ignore_ascii_case(b"wrap") => Ok(Overflow::Wrap),
            () if name.eq_ignore_ascii_case(b"sat") => Ok(Overflow::Saturate),
            () if name.eq_ignore_ascii_case(b"fail") => Ok(Overflow::Fail),
            () => Err(ClientError::BitfieldOverflow),
        }
    }
}

/// A field: up to 64 bits, of which the first is the `offset`th of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    is_signed: bool,
    bits: u32,
    offset: usize,
}

impl Field {
    /// Reads a type such as `i16` and an offset such as `100` or, counted in fields, `#5`.
    fn parse(kind: &[u8], offset: &[u8]) -> Result<Field, ClientError> {
        let (is_signed, bits) = match kind.split_first() {
            Some((b'i', bits)) => (true, bits),
            Some((b'u', bits)) => (false, bits),
            _ => return Err(ClientError::BitfieldType),
        };
        let bits = integer(bits).ok().and_then(|bits| u32::try_from(bits).ok());
        let bits_max = if is_signed { 64 } else { 63 };
        let bits = bits.filter(|bits| (1..=bits_max).contains(bits));
        let bits = bits.ok_or(ClientError::BitfieldType)?;
        let (number, unit) = match offset.strip_prefix(b"#") {
            Some(number) => (number, bits as usize),
            None => (offset, 1),
        };
        let number = integer(number).ok().and_then(|n| usize::try_from(n).ok());
        let offset = number.and_then(|number| number.checked_mul(unit));
        let offset = offset.filter(|offset| offset / 8 < VALUE_BYTES_MAX);
        Ok(Field {
            is_signed,
            bits,
            offset: offset.ok_or(ClientError::BitOffset)?,
        })
    }

    /// Bytes that a value has at least in which the field lies.
    fn value_bytes(self) -> usize {
        (self.offset + self.bits as usize).div_ceil(8)
    }

    fn mask(self) -> u128 {
        (1 << self.bits) - 1
    }

    /// The largest number that fits.
    fn max(self) -> i128 {
        (self.mask() >> u32::from(self.is_signed)).cast_signed()
    }

    /// Bits behind the field in the bytes where it begins.
    fn bits_behind(self) -> u32 {
        8 * FIELD_BYTES_MAX as u32 - (self.offset % 8) as u32 - self.bits
    }

    /// The bytes where the field begins; behind the value there are zeros.
    fn bytes(self, value: &[u8]) -> u128 {
        let bytes = value.iter().skip(self.offset / 8).copied();
        let bytes = bytes.chain(std::iter::repeat(0)).take(FIELD_BYTES_MAX);
        bytes.fold(0, |word, byte| word << 8 | u128::from(byte))
    }

    /// The number that these bits are.
    fn number(self, bits: u128) -> i128 {
        let bits = bits & self.mask();
        let is_negative = self.is_signed && bits >> (self.bits - 1) == 1;
        bits as i128 - if is_negative { 1 << self.bits } else { 0 }
    }

    fn get(self, value: &[u8]) -> i128 {
        self.number(self.bytes(value) >> self.bits_behind())
    }

    /// Sets the field in a value that is long enough.
    fn set(self, value: &mut [u8], number: i128) {
        let mut word = self.bytes(value);
        word &= !(self.mask() << self.bits_behind());
        word |= (number as u128 & self.mask()) << self.bits_behind();
        let bytes = word.to_be_bytes();
        let bytes = bytes.iter().skip(bytes.len() - FIELD_BYTES_MAX);
        for (place, byte) in value.iter_mut().skip(self.offset / 8).zip(bytes) {
            *place = *byte;
        }
    }

    /// What is stored of a number, if it is.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i128> {
        let max = self.max();
        let min = if self.is_signed { -max - 1 } else { 0 };
        if (min..=max).contains(&number) {
            return Some(number);
        }
        match overflow {
            Overflow::Wrap => Some(self.number(number as u128)),
            Overflow::Saturate => Some(number.clamp(min, max)),
            Overflow::Fail => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64, Overflow),
    Add(i64, Overflow),
}

impl Action {
    /// Does it in a value that is long enough; what is answered, if it is a number.
    fn run(self, field: Field, value: &mut [u8]) -> Option<i128> {
        let old = field.get(value);
        match self {
            Action::Get => Some(old),
            Action::Set(number, overflow) => {
                let number = match field.is_signed {
                    true => i128::from(number),
                    false => i128::from(number.cast_unsigned()),
                };
                // Redis takes a number that is so far below for one that is above.
                let is_above = field.is_signed && field.max() - number > i128::from(i64::MAX);
                let fitted = match overflow {
                    Overflow::Saturate if is_above && field.bits < 64 => Some(field.max()),
                    _ => field.fit(number, overflow),
                };
                field.set(value, fitted?);
                Some(old)
            }
            Action::Add(number, overflow) => {
                let new = field.fit(old + i128::from(number), overflow)?;
                field.set(value, new);
                Some(new)
            }
        }
    }
}

/// The actions of a request, from argument 2 on.
fn parse<A: ArgList + ?Sized>(args: &A) -> Result<Vec<(Field, Action)>, ClientError> {
    let (mut actions, mut overflow, mut at) = (Vec::new(), Overflow::Wrap, 2);
    while at < args.len() {
        let (name, following) = (args.arg(at), args.len() - at - 1);
        let is = |known: &[u8], values| name.eq_ignore_ascii_case(known) && following >= values;
        if is(b"overflow", 1) {
            overflow = Overflow::parse(args.arg(at + 1))?;
            at += 2;
        } else if is(b"get", 2) {
            let field = Field::parse(args.arg(at + 1), args.arg(at + 2))?;
            actions.push((field, Action::Get));
            at += 3;
        } else if is(b"set", 3) || is(b"incrby", 3) {
            let field = Field::parse(args.arg(at + 1), args.arg(at + 2))?;
            let number = integer(args.arg(at + 3))?;
            let action = match is(b"set", 3) {
                true => Action::Set(number, overflow),
                false => Action::Add(number, overflow),
            };
            actions.push((field, action));
            at += 4;
        } else {
            return Err(ClientError::Syntax);
        }
    }
    Ok(actions)
}

fn answer(out: &mut Vec<u8>, protocol: Protocol, number: Option<i128>) {
    match number.and_then(|number| i64::try_from(number).ok()) {
        Some(number) => reply::integer(out, number),
        None => reply::null(out, protocol),
    }
}

impl Keyspace {
    /// BITFIELD, or BITFIELD_RO.
    pub(super) fn bitfield<A: ArgList + ?Sized>(
        &mut self,
        key: &Key<'_>,
        args: &A,
        may_write: bool,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        check_sizes(key.bytes, &[])?;
        let actions = parse(args)?;
        let writing = actions.iter().filter(|(_, action)| *action != Action::Get);
        let written = writing.map(|(field, _)| field.value_bytes()).max();
        if written.is_some() && !may_write {
            return Err(ClientError::BitfieldReadOnly);
        }
        self.room.take(actions.len() * ANSWER_BYTES_MAX)?;
        let protocol = reply.protocol;
        let mut answers = Vec::new();
        reply::array(&mut answers, actions.len());
        match written {
            None => {
                let value = self.read(key, reply).map(|entry| entry.value);
                let value = value.unwrap_or_default();
                for (field, _) in actions {
                    answer(&mut answers, protocol, Some(field.get(value)));
                }
            }
            Some(bytes) => {
                let len = |old: usize| old.max(bytes);
                self.change_if(key, len, reply, |value| {
                    let mut is_changed = value.len() < bytes;
                    value.resize(len(value.len()), 0);
                    for (field, action) in actions {
                        let old = field.get(value);
                        answer(&mut answers, protocol, action.run(field, value));
                        is_changed |= field.get(value) != old;
                    }
                    is_changed
                })?;
            }
        }
        reply.out.append(&mut answers);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(kind: &str, offset: &str) -> Result<Field, ClientError> {
        Field::parse(kind.as_bytes(), offset.as_bytes())
    }

    #[test]
    fn numbers_that_do_not_fit_wrap_saturate_or_fail() {
        let (signed, unsigned) = (field("i8", "0").unwrap(), field("u8", "0").unwrap());
        for (field, number, expected) in [
            (signed, 127, [Some(127); 3]),
            (signed, 128, [Some(-128), Some(127), None]),
            (signed, -129, [Some(127), Some(-128), None]),
            (unsigned, 256, [Some(0), Some(255), None]),
            (unsigned, -1, [Some(255), Some(0), None]),
        ] {
            let kinds = [Overflow::Wrap, Overflow::Saturate, Overflow::Fail];
            let fitted = kinds.map(|overflow| field.fit(number, overflow));
            assert_eq!(fitted, expected, "{number} as {field:?}");
        }
    }

    #[test]
    fn fields_are_counted_in_bits_or_in_fields() {
        assert_eq!(field("u5", "#3").unwrap().offset, 15);
        assert_eq!(field("i64", "7").unwrap().value_bytes(), 9);
        for (kind, offset) in [("u5", "#-1"), ("u63", "#9223372036854775807"), ("u1", "x")] {
            assert_eq!(field(kind, offset), Err(ClientError::BitOffset));
        }
        for kind in ["u64", "i65", "u0", "i", "x8", "U8", "u-1", ""] {
            assert_eq!(field(kind, "0"), Err(ClientError::BitfieldType), "{kind}");
        }
    }

    proptest! {
        #[test]
        fn a_field_keeps_its_number_and_all_bits_beside_it(
            mut value in proptest::collection::vec(any::<u8>(), 20),
            offset in 0..90usize, bits in 1..=64u32, is_signed in any::<bool>(), number in any::<i64>(),
        ) {
            let bits = if is_signed { bits } else { bits.min(63) };
            let field = Field { is_signed, bits, offset };
            let before = value.clone();
            let number = field.fit(number.into(), Overflow::Wrap).unwrap();
            field.set(&mut value, number);
            prop_assert_eq!(field.get(&value), number);
            let bit = |value: &[u8], at: usize| value[at / 8] >> (7 - at % 8) & 1;
            for at in (0..160).filter(|at| !(offset..offset + bits as usize).contains(at)) {
                prop_assert_eq!(bit(&value, at), bit(&before, at));
            }
        }
    }
}
