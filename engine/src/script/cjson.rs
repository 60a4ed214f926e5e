//! The `cjson` library, as lua-cjson 2.1.0 does it.
//!
//! Nesting is followed with a list of what is open instead of the stack.

use mlua::{Function, LightUserData, Lua, MultiValue, Table, Value};

use super::limits::Limits;
use super::native::{Arguments, Outcome, fault, one};
use super::number;

mod decode;
mod encode;

pub use decode::decode;
pub use encode::encode;

/// What scripts may set, until they end.
#[derive(Clone, Copy, Debug)]
pub struct JsonSettings {
    sparse_convert: bool,
    sparse_ratio: i64,
    sparse_safe: i64,
    encode_depth: i64,
    decode_depth: i64,
    encode_invalid: Invalid,
    decode_invalid: bool,
    keep_buffer: bool,
    precision: u8,
}

/// What becomes of a number that JSON does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invalid {
    Refused,
    Written,
    Null,
}

impl Default for JsonSettings {
    fn default() -> JsonSettings {
        JsonSettings {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth: 1000,
            decode_depth: 1000,
            encode_invalid: Invalid::Refused,
            decode_invalid: true,
            keep_buffer: true,
            precision: 14,
        }
    }
}

/// Nesting that no setting allows to be passed.
const DEPTH_MAX: i64 = 2500;

/// `cjson.null`.
pub const NULL: Value = Value::LightUserData(LightUserData(std::ptr::null_mut()));

fn wrong_count(expected: usize, arguments: &Arguments) -> Outcome<()> {
    if arguments.len() == expected {
        return Ok(());
    }
    let text = format!(
        "expected {expected} argument{}",
        if expected == 1 { "" } else { "s" }
    );
    Err(arguments.bad(0, &text))
}

/// Lua's `next`, under the name that the state has it.
pub const NEXT: &str = "next";

/// What comes behind a key of a table.
///
/// # Errors
/// The table was changed meanwhile.
pub fn next_pair(
    next: &Function,
    table: &Table,
    key: &Value,
) -> mlua::Result<Option<(Value, Value)>> {
    let (key, value): (Value, Value) = next.call((table, key))?;
    Ok(match key {
        Value::Nil => None,
        key => Some((key, value)),
    })
}

fn optional_integer(
    arguments: &Arguments,
    at: usize,
    (min, max): (i64, i64),
    old: i64,
) -> Outcome<i64> {
    if matches!(arguments.value(at), Value::Nil) {
        return Ok(old);
    }
    let value = number::integer(arguments.number(at)?);
    if !(min..=max).contains(&value) {
        let text = format!("expected integer between {min} and {max}");
        return Err(arguments.bad(at, &text));
    }
    Ok(value)
}

fn at_most(arguments: &Arguments, most: usize) -> Outcome<()> {
    if arguments.len() > most {
        return Err(arguments.bad(most, "found too many arguments"));
    }
    Ok(())
}

const INT_MAX: i64 = i32::MAX as i64;

fn switched(arguments: &Arguments, old: bool) -> Outcome<bool> {
    match arguments.value(0) {
        Value::Nil => Ok(old),
        Value::Boolean(value) => Ok(*value),
        Value::String(text) if *text == "on" => Ok(true),
        Value::String(text) if *text == "off" => Ok(false),
        Value::String(text) => {
            let text = format!("invalid option '{}'", text.to_string_lossy());
            Err(arguments.bad(0, &text))
        }
        _ => Err(arguments
            .text(0)
            .err()
            .unwrap_or_else(|| fault("invalid option"))),
    }
}

/// `cjson.encode_sparse_array`.
pub fn sparse_array(_: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    at_most(arguments, 3)?;
    let mut settings = limits.json.borrow_mut();
    settings.sparse_convert = switched(arguments, settings.sparse_convert)?;
    settings.sparse_ratio = optional_integer(arguments, 1, (0, INT_MAX), settings.sparse_ratio)?;
    settings.sparse_safe = optional_integer(arguments, 2, (0, INT_MAX), settings.sparse_safe)?;
    Ok(MultiValue::from_iter([
        Value::Boolean(settings.sparse_convert),
        Value::Integer(settings.sparse_ratio),
        Value::Integer(settings.sparse_safe),
    ]))
}

/// `cjson.encode_max_depth`.
pub fn encode_max_depth(_: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    at_most(arguments, 1)?;
    let mut settings = limits.json.borrow_mut();
    settings.encode_depth = optional_integer(arguments, 0, (1, INT_MAX), settings.encode_depth)?;
    Ok(one(Value::Integer(settings.encode_depth)))
}

/// `cjson.decode_max_depth`.
pub fn decode_max_depth(_: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    at_most(arguments, 1)?;
    let mut settings = limits.json.borrow_mut();
    settings.decode_depth = optional_integer(arguments, 0, (1, INT_MAX), settings.decode_depth)?;
    Ok(one(Value::Integer(settings.decode_depth)))
}

/// `cjson.encode_number_precision`.
pub fn number_precision(_: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    at_most(arguments, 1)?;
    let mut settings = limits.json.borrow_mut();
    let precision = optional_integer(arguments, 0, (1, 14), i64::from(settings.precision))?;
    settings.precision = precision as u8;
    Ok(one(Value::Integer(precision)))
}

/// `cjson.encode_keep_buffer`, which changes nothing that can be seen.
pub fn keep_buffer(_: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    at_most(arguments, 1)?;
    let mut settings = limits.json.borrow_mut();
    settings.keep_buffer = switched(arguments, settings.keep_buffer)?;
    Ok(one(Value::Boolean(settings.keep_buffer)))
}

/// `cjson.encode_invalid_numbers`.
pub fn encode_invalid(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    at_most(arguments, 1)?;
    let mut settings = limits.json.borrow_mut();
    let is_null = matches!(arguments.value(0), Value::String(text) if *text == "null");
    settings.encode_invalid = match (is_null, arguments.value(0)) {
        (true, _) => Invalid::Null,
        (_, Value::Nil) => settings.encode_invalid,
        _ if switched(arguments, false)? => Invalid::Written,
        _ => Invalid::Refused,
    };
    Ok(one(match settings.encode_invalid {
        Invalid::Refused => Value::Boolean(false),
        Invalid::Written => Value::Boolean(true),
        Invalid::Null => Value::String(lua.create_string("null")?),
    }))
}

/// `cjson.decode_invalid_numbers`.
pub fn decode_invalid(_: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    at_most(arguments, 1)?;
    let mut settings = limits.json.borrow_mut();
    settings.decode_invalid = switched(arguments, settings.decode_invalid)?;
    Ok(one(Value::Boolean(settings.decode_invalid)))
}
