//! Numbers as C and Redis write and read them.

use std::ffi::CString;

/// Longest text of a number: a sign, digits of the precision, a point, and an exponent.
const TEXT_BYTES_MAX: usize = 64;

/// A number as C's `%.{precision}g` writes it.
#[must_use]
pub fn general(value: f64, precision: u8) -> Vec<u8> {
    let mut text = [0u8; TEXT_BYTES_MAX];
    // SAFETY: the buffer has the length that is told, and the format takes an int and a double.
    let len = unsafe {
        libc::snprintf(
            text.as_mut_ptr().cast(),
            text.len(),
            c"%.*g".as_ptr(),
            libc::c_int::from(precision),
            value,
        )
    };
    let len = usize::try_from(len).unwrap_or(0);
    text.get(..len).unwrap_or_default().to_vec()
}

/// The number at the begin of a text, as C reads it, and its length; 0 if there is none.
#[must_use]
pub fn leading(text: &[u8]) -> (f64, usize) {
    // What follows cannot be part of it.
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-._()".contains(byte);
    let end = text.iter().position(|byte| !is_part(byte));
    let text = end.and_then(|end| text.get(..end)).unwrap_or(text);
    let Ok(text) = CString::new(text) else {
        return (0.0, 0);
    };
    let begin = text.as_ptr();
    let mut end = std::ptr::null_mut();
    // SAFETY: the text ends with a NUL, and `end` takes a pointer into it.
    let (value, len) = unsafe {
        let value = libc::strtod(begin, &raw mut end);
        (value, end.cast_const().offset_from(begin))
    };
    (value, usize::try_from(len).unwrap_or(0))
}

/// The low 32 bits of a number, rounded, as the `bit` library takes them.
#[must_use]
pub fn bits(value: f64) -> u32 {
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    (value + MAGIC).to_bits() as u32
}

/// A number as C's 64-bit integer.
#[must_use]
pub fn integer(value: f64) -> i64 {
    // What does not fit is the smallest one, as on x86.
    if value.is_nan() || !(-9.3e18..9_223_372_036_854_775_808.0).contains(&value) {
        i64::MIN
    } else {
        value as i64
    }
}
