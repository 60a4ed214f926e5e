//! The `bit` library: 32-bit integers.

use mlua::{Lua, MultiValue, Table, Value};

use super::limits::Limits;
use super::native::{Arguments, Outcome, Shared, function, one};
use super::number;

/// The library's functions.
///
/// # Errors
/// Memory.
pub fn library(lua: &Lua, shared: &Shared) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    type Body = fn(&Lua, &Limits, &Arguments) -> Outcome<MultiValue>;
    let functions: [(&'static str, Body); 12] = [
        ("tobit", |_, _, a| signed(bits(a, 0)?)),
        ("bnot", |_, _, a| signed(!bits(a, 0)?)),
        ("bswap", |_, _, a| signed(bits(a, 0)?.swap_bytes())),
        ("band", |_, _, a| folded(a, |x, y| x & y)),
        ("bor", |_, _, a| folded(a, |x, y| x | y)),
        ("bxor", |_, _, a| folded(a, |x, y| x ^ y)),
        ("lshift", |_, _, a| shifted(a, |x, n| x << n)),
        ("rshift", |_, _, a| shifted(a, |x, n| x >> n)),
        ("arshift", |_, _, a| {
            shifted(a, |x, n| ((x as i32) >> n) as u32)
        }),
        ("rol", |_, _, a| shifted(a, u32::rotate_left)),
        ("ror", |_, _, a| shifted(a, u32::rotate_right)),
        ("tohex", to_hex),
    ];
    for (name, body) in functions {
        table.raw_set(name, function(lua, shared, name, body)?)?;
    }
    Ok(table)
}

fn bits(arguments: &Arguments, at: usize) -> Outcome<u32> {
    Ok(number::bits(arguments.number(at)?))
}

fn signed(bits: u32) -> Outcome<MultiValue> {
    Ok(one(Value::Integer(i64::from(bits as i32))))
}

fn folded(arguments: &Arguments, join: fn(u32, u32) -> u32) -> Outcome<MultiValue> {
    let mut all = bits(arguments, 0)?;
    for at in 1..arguments.len() {
        all = join(all, bits(arguments, at)?);
    }
    signed(all)
}

fn shifted(arguments: &Arguments, shift: fn(u32, u32) -> u32) -> Outcome<MultiValue> {
    let value = bits(arguments, 0)?;
    signed(shift(value, bits(arguments, 1)? & 31))
}

fn to_hex(lua: &Lua, _: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    let value = bits(arguments, 0)?;
    let digits = match arguments.value(1) {
        Value::Nil => 8,
        _ => bits(arguments, 1)? as i32,
    };
    let count = (digits.unsigned_abs() as usize).min(8);
    let text = if digits < 0 {
        format!("{value:08X}")
    } else {
        format!("{value:08x}")
    };
    let text = text.get(8 - count..).unwrap_or_default();
    Ok(one(Value::String(lua.create_string(text)?)))
}
