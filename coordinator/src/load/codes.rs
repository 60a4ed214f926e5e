//! Numbers as reports carry them: floats with fewer bits.
//!
//! ```text
//! two bytes  the upper half of a float: 8 bits of exponent, 7 of mantissa, 0.4% wide
//! one byte   5 bits of exponent from a smallest number on, 3 of mantissa, 12% wide; 0 is 0
//! ```
//!
//! Whatever bytes say, what is read is finite, not negative, and no more than one byte can tell of its kind, which is
//! more than a shard can do: 56 CPUs, 58 million operations or 15 GB per second.

/// Bits of a float's mantissa that one byte leaves out, and that two leave out.
const CUT_OF_ONE: u32 = 20;
const CUT_OF_TWO: u32 = 16;

/// Exponent of the smallest number that one byte tells, as a power of two: of shares of a CPU, of operations per
/// second, of bytes per second, of bytes.
pub(super) const CPU: i32 = -26;
pub(super) const OPS: i32 = -6;
pub(super) const TRAFFIC: i32 = 2;
pub(super) const SIZE: i32 = 6;

fn base(smallest: i32) -> i64 {
    i64::from((127 + smallest) << (23 - CUT_OF_ONE))
}

/// The nearest number that one byte tells.
pub(super) fn one(value: f32, smallest: i32) -> u8 {
    if value.is_nan() || value <= 0.0 {
        return 0;
    }
    let rounded = value.min(f32::MAX / 2.0).to_bits() + (1 << (CUT_OF_ONE - 1));
    let code = i64::from(rounded >> CUT_OF_ONE) - base(smallest) + 1;
    code.clamp(0, i64::from(u8::MAX)) as u8
}

pub(super) fn of_one(code: u8, smallest: i32) -> f32 {
    match code {
        0 => 0.0,
        code => f32::from_bits(((i64::from(code) - 1 + base(smallest)) as u32) << CUT_OF_ONE),
    }
}

/// The nearest number that two bytes tell.
pub(super) fn two(value: f32) -> [u8; 2] {
    let value = if value.is_nan() { 0.0 } else { value };
    let rounded = value.clamp(0.0, f32::MAX / 2.0).to_bits() + (1 << (CUT_OF_TWO - 1));
    ((rounded >> CUT_OF_TWO) as u16).to_le_bytes()
}

/// What is no number that can be told is 0.
pub(super) fn of_two(code: [u8; 2], smallest: i32) -> f32 {
    let value = f32::from_bits(u32::from(u16::from_le_bytes(code)) << CUT_OF_TWO);
    match value.is_finite() && value > 0.0 {
        true => value.min(of_one(u8::MAX, smallest)),
        false => 0.0,
    }
}
