//! Functions that are offered to Lua: their arguments, and how they fail.
//!
//! Each answers true and its results, or false and a message, which the prelude raises at the place of the script's
//! call. What ends the script is an error of `mlua`, which no script can catch.

use std::rc::Rc;

use mlua::{Function, Lua, LuaString, MultiValue, Value};

use super::limits::Limits;
use super::number;

/// Why a native function has no result.
#[derive(Debug)]
pub enum Fault {
    /// Told to the script.
    Text(Vec<u8>),
    /// Ends the script, or lies with Lua.
    Lua(mlua::Error),
}

impl From<mlua::Error> for Fault {
    fn from(error: mlua::Error) -> Fault {
        Fault::Lua(error)
    }
}

/// A message for the script.
pub fn fault(text: impl AsRef<[u8]>) -> Fault {
    Fault::Text(text.as_ref().to_vec())
}

pub type Outcome<T> = Result<T, Fault>;

/// Arguments of a call, by place from 0; the name is what messages call the function.
pub struct Arguments {
    values: Vec<Value>,
    name: &'static str,
}

impl Arguments {
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    #[must_use]
    pub fn value(&self, at: usize) -> &Value {
        self.values.get(at).unwrap_or(&Value::Nil)
    }

    /// The arguments in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Value> {
        self.values.iter()
    }

    /// The fault of an argument.
    #[must_use]
    pub fn bad(&self, at: usize, what: &str) -> Fault {
        fault(format!(
            "bad argument #{} to '{}' ({what})",
            at + 1,
            self.name
        ))
    }

    fn expected(&self, at: usize, what: &str) -> Fault {
        let got = match self.values.get(at) {
            None => "no value",
            Some(value) => type_name(value),
        };
        self.bad(at, &format!("{what} expected, got {got}"))
    }

    /// A string; numbers are taken for their text, as everywhere in Lua.
    ///
    /// # Errors
    /// It is none.
    pub fn text(&self, at: usize) -> Outcome<Text> {
        Text::of(self.value(at)).ok_or_else(|| self.expected(at, "string"))
    }

    /// A number; strings are taken for theirs.
    ///
    /// # Errors
    /// It is none.
    pub fn number(&self, at: usize) -> Outcome<f64> {
        number_of(self.value(at)).ok_or_else(|| self.expected(at, "number"))
    }

    /// [`Arguments::number`] without its fraction, or `default` where there is none.
    ///
    /// # Errors
    /// It is something else.
    pub fn integer_or(&self, at: usize, default: i64) -> Outcome<i64> {
        match self.value(at) {
            Value::Nil => Ok(default),
            _ => Ok(number::integer(self.number(at)?)),
        }
    }
}

/// Bytes of a string, or the text of a number.
pub enum Text {
    Lua(mlua::BorrowedBytes),
    Number(Vec<u8>),
}

impl Text {
    #[must_use]
    pub fn of(value: &Value) -> Option<Text> {
        match value {
            Value::String(text) => Some(Text::Lua(text.as_bytes())),
            Value::Integer(_) | Value::Number(_) => {
                Some(Text::Number(number::general(number_of(value)?, 14)))
            }
            _ => None,
        }
    }
}

impl std::ops::Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Text::Lua(bytes) => bytes,
            Text::Number(bytes) => bytes,
        }
    }
}

/// The number that a value is, or that a string reads as.
#[must_use]
pub fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(value) => Some(*value as f64),
        Value::Number(value) => Some(*value),
        Value::String(text) => {
            let bytes = text.as_bytes();
            let trimmed = bytes.trim_ascii();
            let (value, len) = number::leading(trimmed);
            (len > 0 && len == trimmed.len()).then_some(value)
        }
        _ => None,
    }
}

/// What Lua calls the type of a value.
#[must_use]
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        Value::LightUserData(_) | Value::Error(_) => "userdata",
        other => other.type_name(),
    }
}

/// A string for Lua.
///
/// # Errors
/// It does not fit.
pub fn string(lua: &Lua, limits: &Limits, bytes: &[u8]) -> Outcome<LuaString> {
    limits.check_bytes(bytes.len())?;
    Ok(lua.create_string(bytes)?)
}

/// What the functions of one state share.
pub type Shared = Rc<Limits>;

/// Makes a function of Lua of one of Rust.
///
/// # Errors
/// Memory.
pub fn function(
    lua: &Lua,
    shared: &Shared,
    name: &'static str,
    body: fn(&Lua, &Limits, &Arguments) -> Outcome<MultiValue>,
) -> mlua::Result<Function> {
    let shared = Rc::clone(shared);
    lua.create_function(move |lua, values: MultiValue| {
        let values = values.into_vec();
        match body(lua, &shared, &Arguments { values, name }) {
            Ok(mut results) => {
                results.push_front(Value::Boolean(true));
                Ok(results)
            }
            Err(Fault::Text(text)) => {
                let text = lua.create_string(&text)?;
                Ok(MultiValue::from_iter([
                    Value::Boolean(false),
                    Value::String(text),
                ]))
            }
            Err(Fault::Lua(error)) => Err(error),
        }
    })
}

/// One result.
pub fn one(value: Value) -> MultiValue {
    MultiValue::from_iter([value])
}
