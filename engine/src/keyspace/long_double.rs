//! INCRBYFLOAT's numbers: those of C's `long double` on x86, with 64 significant bits, since clients see all of them.

use std::cmp::Ordering;

use num_bigint::{BigInt, BigUint, Sign};

use crate::command::parse::signed;

/// Significant bits.
const BITS: u64 = 64;

/// A number is below two to the power of this.
const EXPONENT_MAX: i64 = 16_384;

/// Decimal exponents beyond this are infinite, or so small that they do not count as numbers.
const DECIMAL_EXPONENT_MAX: i64 = 5_000;

/// Longest text of a number.
const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;

/// Decimals that are printed.
const DECIMALS: u32 = 17;

/// `mantissa` times two to the power of `exponent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LongDouble {
    mantissa: BigInt,
    exponent: i64,
}

/// Why text is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotFinite {
    /// It is not one.
    Invalid,
    /// It is infinity.
    Infinite,
}

impl LongDouble {
    pub(super) fn zero() -> LongDouble {
        LongDouble {
            mantissa: BigInt::ZERO,
            exponent: 0,
        }
    }

    /// Reads text as `strtold` does.
    pub(super) fn parse(text: &[u8]) -> Result<LongDouble, NotFinite> {
        let (is_negative, digits) = signed(text);
        if digits.eq_ignore_ascii_case(b"inf") || digits.eq_ignore_ascii_case(b"infinity") {
            return Err(NotFinite::Infinite);
        }
        if text.len() > TEXT_BYTES_MAX {
            return Err(NotFinite::Invalid);
        }
        let mut value = match digits {
            [b'0', b'x' | b'X', digits @ ..] => LongDouble::hexadecimal(digits)?,
            digits => LongDouble::decimal(digits)?,
        };
        if value.mantissa == BigInt::ZERO {
            return Ok(LongDouble::zero());
        }
        if is_negative {
            value.mantissa = -value.mantissa;
        }
        let value = value.rounded();
        let highest = value.mantissa.bits() as i64 + value.exponent;
        if highest > EXPONENT_MAX || highest < -EXPONENT_MAX - BITS as i64 {
            return Err(NotFinite::Invalid);
        }
        Ok(value)
    }

    fn hexadecimal(digits: &[u8]) -> Result<LongDouble, NotFinite> {
        let p = digits.iter().position(|byte| matches!(byte, b'p' | b'P'));
        let (plain, power) = digits.split_at(p.unwrap_or(digits.len()));
        let power = match power.split_first() {
            None => 0,
            Some((_, power)) => exponent(power)?,
        };
        let (all, decimals) = without_point(plain, u8::is_ascii_hexdigit)?;
        let number = BigUint::parse_bytes(&all, 16).ok_or(NotFinite::Invalid)?;
        Ok(LongDouble {
            mantissa: number.into(),
            exponent: power - 4 * decimals,
        })
    }

    /// With two bits more than are kept.
    fn decimal(digits: &[u8]) -> Result<LongDouble, NotFinite> {
        let e = digits.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (plain, power) = digits.split_at(e.unwrap_or(digits.len()));
        let power = match power.split_first() {
            None => 0,
            Some((_, power)) => exponent(power)?,
        };
        let (all, decimals) = without_point(plain, u8::is_ascii_digit)?;
        let number = BigUint::parse_bytes(&all, 10).ok_or(NotFinite::Invalid)?;
        let power = power - decimals;
        if number == BigUint::ZERO {
            return Ok(LongDouble::zero());
        }
        // Of what is printed with ten thousand decimals at most, all else is beyond every exponent.
        if power.abs() > DECIMAL_EXPONENT_MAX + TEXT_BYTES_MAX as i64 {
            return Err(NotFinite::Invalid);
        }
        let ten = |power: i64| BigUint::from(10_u8).pow(power.unsigned_abs() as u32);
        let (mut above, below) = match power >= 0 {
            true => (number * ten(power), BigUint::from(1_u8)),
            false => (number, ten(power)),
        };
        // As many bits of the quotient as are kept, and two more.
        let shift = (BITS + 2 + below.bits()).saturating_sub(above.bits());
        above <<= shift;
        let quotient = &above / &below;
        let is_exact = &quotient * &below == above;
        // What is below the last bit counts for rounding as one bit more.
        let mantissa = (quotient << 1_u8) + u8::from(!is_exact);
        Ok(LongDouble {
            mantissa: mantissa.into(),
            exponent: -(shift as i64) - 1,
        })
    }

    /// The sum, rounded; `None` when it is infinite.
    pub(super) fn plus(&self, other: &LongDouble) -> Option<LongDouble> {
        let exponent = self.exponent.min(other.exponent);
        let aligned = |one: &LongDouble| &one.mantissa << (one.exponent - exponent) as u64;
        let sum = LongDouble {
            mantissa: aligned(self) + aligned(other),
            exponent,
        };
        let sum = sum.rounded();
        (sum.mantissa.bits() as i64 + sum.exponent <= EXPONENT_MAX).then_some(sum)
    }

    /// With as many significant bits as there are, ties to even.
    fn rounded(self) -> LongDouble {
        let surplus = self.mantissa.bits().saturating_sub(BITS);
        LongDouble {
            mantissa: divided(self.mantissa, surplus),
            exponent: self.exponent + surplus as i64,
        }
    }

    /// As `%.17Lf` prints it, without zeros at the end.
    pub(super) fn text(&self) -> String {
        let scaled = &self.mantissa * BigInt::from(10_u8).pow(DECIMALS);
        let scaled = match self.exponent {
            up @ 0.. => scaled << up as u64,
            down => divided(scaled, down.unsigned_abs()),
        };
        let sign = if scaled.sign() == Sign::Minus {
            "-"
        } else {
            ""
        };
        let width = DECIMALS as usize + 1;
        let digits = format!("{:0>width$}", scaled.magnitude().to_string());
        let (whole, fraction) = digits.split_at(digits.len() - DECIMALS as usize);
        let text = format!("{sign}{whole}.{fraction}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// Divided by two to the power of `bits`, ties to even.
fn divided(value: BigInt, bits: u64) -> BigInt {
    if bits == 0 {
        return value;
    }
    let (sign, magnitude) = value.into_parts();
    let mut quotient = &magnitude >> bits;
    let rest = magnitude - (&quotient << bits);
    let half = BigUint::from(1_u8) << (bits - 1);
    let is_up = match rest.cmp(&half) {
        Ordering::Less => false,
        Ordering::Equal => quotient.bit(0),
        Ordering::Greater => true,
    };
    quotient += u8::from(is_up);
    BigInt::from_biguint(sign, quotient)
}

/// All digits in front of a point and behind it, of which there is one at least, and how many are behind it.
fn without_point(text: &[u8], is_digit: fn(&u8) -> bool) -> Result<(Vec<u8>, i64), NotFinite> {
    let point = text.iter().position(|byte| *byte == b'.');
    let (whole, rest) = text.split_at(point.unwrap_or(text.len()));
    let fraction = rest.split_first().map_or(&[][..], |(_, fraction)| fraction);
    let all = [whole, fraction].concat();
    if all.is_empty() || !all.iter().all(is_digit) {
        return Err(NotFinite::Invalid);
    }
    Ok((all, fraction.len() as i64))
}

/// The exponent behind an `e` or a `p`; ones beyond all numbers are cut.
fn exponent(text: &[u8]) -> Result<i64, NotFinite> {
    let (is_negative, digits) = signed(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NotFinite::Invalid);
    }
    let exponent = digits.iter().fold(0_i64, |exponent, digit| {
        (exponent * 10 + i64::from(digit - b'0')).min(1 << 20)
    });
    Ok(if is_negative { -exponent } else { exponent })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> Option<String> {
        let parsed = |text: &str| LongDouble::parse(text.as_bytes()).expect(text);
        parsed(a).plus(&parsed(b)).map(|sum| sum.text())
    }

    #[test]
    fn sums_are_those_of_redis() {
        for (a, b, expected) in [
            ("10.50", "0.1", "10.6"),
            ("0.1", "0.2", "0.3"),
            ("5.0e3", "2.0e2", "5200"),
            ("3", "-5", "-2"),
            ("1e20", "0.1", "100000000000000000000"),
            ("1", "1e-17", "1.00000000000000001"),
            ("1", "1e-18", "1"),
            ("-1e-18", "0", "0"),
            ("1.5", "-1.5", "0"),
            (".5", "5.", "5.5"),
            ("+7", "1e+2", "107"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551615", "2", "18446744073709551616"),
            ("0e999999999999", "1", "1"),
            ("9223372036854775807", "0.5", "9223372036854775807.5"),
            ("0x1p3", "-0XAp-1", "3"),
            ("0x.8", "0x1F.4", "31.75"),
            ("0x0p99999", "0x10", "16"),
            ("0x1ffffffffffffffff", "0", "36893488147419103232"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} + {b}");
        }
        assert_eq!(sum("1e4932", "1e4932"), None);
        assert!(sum("1e4931", "1").is_some_and(|text| text.len() == 4_932));
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "",
            " 1",
            "1 ",
            "x",
            "1x",
            ".",
            "-",
            "e5",
            "1e",
            "1e+",
            "--1",
            "1.2.3",
            "nan",
            "1e5000",
            "1e-5000",
            "1e99999999999999999999",
            "0x",
            "0xp1",
            "0x1p",
            "0x1g",
            "0x1p16384",
            "0x1p-17000",
            "0x1p99999999999999999999",
        ] {
            let parsed = LongDouble::parse(text.as_bytes());
            assert_eq!(parsed, Err(NotFinite::Invalid), "{text}");
        }
        for text in ["inf", "-INF", "Infinity"] {
            let parsed = LongDouble::parse(text.as_bytes());
            assert_eq!(parsed, Err(NotFinite::Infinite), "{text}");
        }
        let long = vec![b'1'; TEXT_BYTES_MAX + 1];
        assert_eq!(LongDouble::parse(&long), Err(NotFinite::Invalid));
    }
}
