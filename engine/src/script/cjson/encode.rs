//! `cjson.encode`.

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::{DEPTH_MAX, Invalid, JsonSettings, NEXT, next_pair, wrong_count};
use crate::script::limits::Limits;
use crate::script::native::{Arguments, Fault, Outcome, fault, number_of, one, string, type_name};
use crate::script::number;

/// About what is written for an element beside its text: a number or a word, punctuation.
const ELEMENT_BYTES: usize = 32;

/// Bytes of a string that are quoted between two looks at what a script may take.
const QUOTED_AT_ONCE: usize = 4096;
/// `cjson.encode`.
pub fn encode(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    wrong_count(1, arguments)?;
    let settings = *limits.json.borrow();
    let mut encoder = Encoder {
        next: lua.named_registry_value(NEXT)?,
        out: Vec::new(),
        settings,
        limits,
    };
    encoder.encode(arguments.value(0).clone())?;
    let text = string(lua, limits, &encoder.out)?;
    Ok(one(Value::String(text)))
}

/// What is being written.
enum Open {
    Array {
        table: Table,
        at: i64,
        len: i64,
    },
    Object {
        table: Table,
        key: Value,
        is_first: bool,
    },
}

struct Encoder<'a> {
    next: Function,
    out: Vec<u8>,
    settings: JsonSettings,
    limits: &'a Limits,
}

impl Encoder<'_> {
    fn encode(&mut self, value: Value) -> Outcome<()> {
        let mut open: Vec<Open> = Vec::new();
        let mut next = Some(value);
        loop {
            self.limits.write(self.out.len(), ELEMENT_BYTES)?;
            if let Some(value) = next.take() {
                if let Value::Table(table) = value {
                    let depth = open.len() as i64 + 1;
                    if depth > self.settings.encode_depth.min(DEPTH_MAX) {
                        return Err(fault(format!(
                            "Cannot serialise, excessive nesting ({depth})"
                        )));
                    }
                    match self.array_len(&table)? {
                        Some(len) if len > 0 => {
                            self.out.push(b'[');
                            open.push(Open::Array { table, at: 0, len });
                        }
                        _ => {
                            self.out.push(b'{');
                            let (key, is_first) = (Value::Nil, true);
                            open.push(Open::Object {
                                table,
                                key,
                                is_first,
                            });
                        }
                    }
                } else {
                    self.scalar(&value)?;
                }
            }
            match open.last_mut() {
                None => return Ok(()),
                Some(Open::Array { table, at, len }) => {
                    if at == len {
                        self.out.push(b']');
                        open.pop();
                        continue;
                    }
                    if *at > 0 {
                        self.out.push(b',');
                    }
                    *at += 1;
                    next = Some(table.raw_get(*at)?);
                }
                Some(Open::Object {
                    table,
                    key,
                    is_first,
                }) => {
                    let Some((name, value)) = next_pair(&self.next, table, key)? else {
                        self.out.push(b'}');
                        open.pop();
                        continue;
                    };
                    if !std::mem::take(is_first) {
                        self.out.push(b',');
                    }
                    match &name {
                        Value::String(name) => self.quote(&name.as_bytes())?,
                        Value::Integer(_) | Value::Number(_) => {
                            self.out.push(b'"');
                            let number = number_of(&name).unwrap_or_default();
                            Self::number(&mut self.out, &self.settings, number)?;
                            self.out.push(b'"');
                        }
                        other => {
                            return Err(cannot(other, "table key must be a number or string"));
                        }
                    }
                    self.out.push(b':');
                    *key = name;
                    next = Some(value);
                }
            }
        }
    }

    fn quote(&mut self, text: &[u8]) -> Outcome<()> {
        self.out.push(b'"');
        for part in text.chunks(QUOTED_AT_ONCE) {
            self.limits.write(self.out.len(), part.len())?;
            escape(&mut self.out, part);
        }
        self.out.push(b'"');
        Ok(())
    }

    fn scalar(&mut self, value: &Value) -> Outcome<()> {
        match value {
            Value::String(text) => self.quote(&text.as_bytes())?,
            Value::Integer(_) | Value::Number(_) => {
                let number = number_of(value).unwrap_or_default();
                Self::number(&mut self.out, &self.settings, number)?;
            }
            Value::Boolean(value) => self.out.extend_from_slice(match value {
                true => b"true",
                false => b"false",
            }),
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => {
                self.out.extend_from_slice(b"null");
            }
            other => return Err(cannot(other, "type not supported")),
        }
        Ok(())
    }

    fn number(out: &mut Vec<u8>, settings: &JsonSettings, value: f64) -> Outcome<()> {
        if !value.is_finite() {
            match settings.encode_invalid {
                Invalid::Refused => {
                    return Err(cannot(&Value::Number(value), "must not be NaN or Inf"));
                }
                Invalid::Written => {}
                Invalid::Null => {
                    out.extend_from_slice(b"null");
                    return Ok(());
                }
            }
            let text: &[u8] = match value {
                value if value.is_nan() => b"nan",
                value if value > 0.0 => b"inf",
                _ => b"-inf",
            };
            out.extend_from_slice(text);
            return Ok(());
        }
        out.extend_from_slice(&number::general(value, settings.precision));
        Ok(())
    }

    /// How many elements a table has that is a list.
    fn array_len(&self, table: &Table) -> Outcome<Option<i64>> {
        let (mut max, mut items) = (0i64, 0i64);
        for pair in table.pairs::<Value, Value>() {
            let (key, _) = pair?;
            match key {
                Value::Integer(key) if key > 0 => {
                    max = max.max(key);
                    items += 1;
                    self.limits.work(1)?;
                }
                _ => return Ok(None),
            }
        }
        let JsonSettings {
            sparse_convert,
            sparse_ratio,
            sparse_safe,
            ..
        } = self.settings;
        if sparse_ratio > 0 && max > items.saturating_mul(sparse_ratio) && max > sparse_safe {
            if !sparse_convert {
                return Err(fault("Cannot serialise table: excessively sparse array"));
            }
            return Ok(None);
        }
        Ok(Some(max))
    }
}

fn cannot(value: &Value, why: &str) -> Fault {
    fault(format!("Cannot serialise {}: {why}", type_name(value)))
}

/// Appends text as it stands within quotes.
fn escape(out: &mut Vec<u8>, text: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for &byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'/' => out.extend_from_slice(b"\\/"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 | 0x7f => {
                out.extend_from_slice(b"\\u00");
                out.extend(HEX.get(usize::from(byte >> 4)));
                out.extend(HEX.get(usize::from(byte & 15)));
            }
            _ => out.push(byte),
        }
    }
}
