//! The `cjson` library, as lua-cjson 2.1.0 does it.
//!
//! Nesting is followed with a list of what is open instead of the stack.

use mlua::{Function, LightUserData, Lua, MultiValue, Table, Value};

use super::limits::Limits;
use super::native::{Arguments, Fault, Outcome, fault, number_of, one, string, type_name};
use super::number;

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
        let mut count = 0u32;
        loop {
            count = count.wrapping_add(1);
            if count.is_multiple_of(1024) {
                self.limits.look()?;
                self.limits.check_bytes(self.out.len())?;
            }
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
                        Value::String(name) => quote(&mut self.out, &name.as_bytes()),
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

    fn scalar(&mut self, value: &Value) -> Outcome<()> {
        match value {
            Value::String(text) => quote(&mut self.out, &text.as_bytes()),
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
                    if items % 1024 == 0 {
                        self.limits.look()?;
                    }
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

fn cannot(value: &Value, why: &str) -> Fault {
    fault(format!("Cannot serialise {}: {why}", type_name(value)))
}

fn quote(out: &mut Vec<u8>, text: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
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
    out.push(b'"');
}

/// `cjson.decode`.
pub fn decode(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    wrong_count(1, arguments)?;
    let text = arguments.text(0)?;
    if let [a, b, ..] = *text
        && (a == 0 || b == 0)
    {
        return Err(fault("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut decoder = Decoder {
        lua,
        limits,
        settings: *limits.json.borrow(),
        text: &text,
        at: 0,
    };
    Ok(one(decoder.decode()?))
}

#[derive(Debug)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(text) => text,
        }
    }
}

/// What is being read.
enum Reading {
    Array { table: Table, len: i64 },
    Object { table: Table, key: Value },
}

struct Decoder<'a> {
    lua: &'a Lua,
    limits: &'a Limits,
    settings: JsonSettings,
    text: &'a [u8],
    at: usize,
}

impl Decoder<'_> {
    fn decode(&mut self) -> Outcome<Value> {
        let mut open: Vec<Reading> = Vec::new();
        let mut token = self.next()?;
        let mut count = 0u32;
        loop {
            count = count.wrapping_add(1);
            if count.is_multiple_of(1024) {
                self.limits.look()?;
            }
            // A value begins.
            let mut value = match token.1 {
                Token::String(text) => Value::String(self.lua.create_string(&text)?),
                Token::Number(value) => Value::Number(value),
                Token::Boolean(value) => Value::Boolean(value),
                Token::Null => NULL,
                Token::ArrayBegin => {
                    self.descend(open.len())?;
                    let table = self.lua.create_table()?;
                    token = self.next()?;
                    if !matches!(token.1, Token::ArrayEnd) {
                        open.push(Reading::Array { table, len: 0 });
                        continue;
                    }
                    Value::Table(table)
                }
                Token::ObjectBegin => {
                    self.descend(open.len())?;
                    let table = self.lua.create_table()?;
                    token = self.next()?;
                    if !matches!(token.1, Token::ObjectEnd) {
                        let key = self.key(token)?;
                        open.push(Reading::Object { table, key });
                        token = self.next()?;
                        continue;
                    }
                    Value::Table(table)
                }
                _ => return Err(wrong("value", &token)),
            };
            // It is complete, and perhaps what it is in.
            loop {
                token = self.next()?;
                match open.last_mut() {
                    None => {
                        return match token.1 {
                            Token::End => Ok(value),
                            _ => Err(wrong("the end", &token)),
                        };
                    }
                    Some(Reading::Array { table, len }) => {
                        *len += 1;
                        table.raw_set(*len, &value)?;
                        match token.1 {
                            Token::ArrayEnd => value = Value::Table(table.clone()),
                            Token::Comma => {
                                token = self.next()?;
                                break;
                            }
                            _ => return Err(wrong("comma or array end", &token)),
                        }
                    }
                    Some(Reading::Object { table, key }) => {
                        table.raw_set(&*key, &value)?;
                        match token.1 {
                            Token::ObjectEnd => value = Value::Table(table.clone()),
                            Token::Comma => {
                                let next = self.next()?;
                                *key = self.key(next)?;
                                token = self.next()?;
                                break;
                            }
                            _ => return Err(wrong("comma or object end", &token)),
                        }
                    }
                }
                open.pop();
            }
        }
    }

    /// A key and the colon behind it.
    fn key(&mut self, token: (usize, Token)) -> Outcome<Value> {
        let Token::String(key) = token.1 else {
            return Err(wrong("object key string", &token));
        };
        let key = Value::String(self.lua.create_string(&key)?);
        match self.next()? {
            (_, Token::Colon) => Ok(key),
            other => Err(wrong("colon", &other)),
        }
    }

    fn descend(&self, open: usize) -> Outcome<()> {
        let depth = open as i64 + 1;
        if depth > self.settings.decode_depth.min(DEPTH_MAX) {
            return Err(fault(format!(
                "Found too many nested data structures ({depth}) at character {}",
                self.at
            )));
        }
        Ok(())
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// The next token and where it begins.
    #[expect(clippy::unnecessary_wraps, reason = "as its callers use it")]
    fn next(&mut self) -> Outcome<(usize, Token)> {
        while matches!(self.peek(0), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let begin = self.at;
        let punctuation = match self.peek(0) {
            b'{' => Some(Token::ObjectBegin),
            b'}' => Some(Token::ObjectEnd),
            b'[' => Some(Token::ArrayBegin),
            b']' => Some(Token::ArrayEnd),
            b':' => Some(Token::Colon),
            b',' => Some(Token::Comma),
            _ => None,
        };
        if let Some(token) = punctuation {
            self.at += 1;
            return Ok((begin, token));
        }
        let rest = self.text.get(self.at..).unwrap_or_default();
        let words: [(&[u8], Token); 3] = [
            (b"true", Token::Boolean(true)),
            (b"false", Token::Boolean(false)),
            (b"null", Token::Null),
        ];
        let token = match self.peek(0) {
            0 => Token::End,
            b'"' => match self.string() {
                Ok(text) => Token::String(text),
                Err(why) => return Ok((self.at, Token::Error(why))),
            },
            b'-' | b'0'..=b'9' => {
                if !self.settings.decode_invalid && self.is_invalid_number() {
                    Token::Error("invalid number")
                } else {
                    self.number()
                }
            }
            b't' | b'f' | b'n' | b'i' | b'I' | b'N' | b'+' => {
                let word = words.into_iter().find(|(word, _)| rest.starts_with(word));
                if let Some((word, token)) = word {
                    self.at += word.len();
                    token
                } else if self.settings.decode_invalid && self.is_invalid_number() {
                    self.number()
                } else {
                    Token::Error("invalid token")
                }
            }
            _ => Token::Error("invalid token"),
        };
        Ok((begin, token))
    }

    fn number(&mut self) -> Token {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let (value, len) = number::leading(rest);
        if len == 0 {
            return Token::Error("invalid number");
        }
        self.at += len;
        Token::Number(value)
    }

    /// Whether C reads what is here as a number that JSON does not have.
    fn is_invalid_number(&self) -> bool {
        if self.peek(0) == b'+' {
            return true;
        }
        let sign = usize::from(self.peek(0) == b'-');
        let first = self.peek(sign);
        if first == b'0' {
            let second = self.peek(sign + 1);
            return (second | 0x20) == b'x' || second.is_ascii_digit();
        }
        if first <= b'9' {
            return false;
        }
        let word = self.text.get(self.at + sign..self.at + sign + 3);
        word.is_some_and(|w| w.eq_ignore_ascii_case(b"inf") || w.eq_ignore_ascii_case(b"nan"))
    }

    fn string(&mut self) -> Result<Vec<u8>, &'static str> {
        let mut out = Vec::new();
        self.at += 1;
        loop {
            match self.peek(0) {
                b'"' => {
                    self.at += 1;
                    return Ok(out);
                }
                0 => return Err("unexpected end of string"),
                b'\\' => {
                    let byte = match self.peek(1) {
                        b'u' => {
                            let (code, len) =
                                self.code_point().ok_or("invalid unicode escape code")?;
                            let mut bytes = [0; 4];
                            out.extend_from_slice(code.encode_utf8(&mut bytes).as_bytes());
                            self.at += len;
                            continue;
                        }
                        byte @ (b'"' | b'\\' | b'/') => byte,
                        b'b' => 0x08,
                        b'f' => 0x0c,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        _ => return Err("invalid escape code"),
                    };
                    out.push(byte);
                    self.at += 2;
                }
                byte => {
                    out.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    /// The character of an escape, and how long that is.
    fn code_point(&self) -> Option<(char, usize)> {
        let hex = |from: usize| {
            let digits = self.text.get(self.at + from..self.at + from + 4)?;
            let digits = std::str::from_utf8(digits).ok()?;
            let all_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            all_digits.then(|| u32::from_str_radix(digits, 16).ok())?
        };
        let high = hex(2)?;
        if high & 0xF800 != 0xD800 {
            return Some((char::from_u32(high)?, 6));
        }
        if high & 0x400 != 0 || self.peek(6) != b'\\' || self.peek(7) != b'u' {
            return None;
        }
        let low = hex(8)?;
        if low & 0xFC00 != 0xDC00 {
            return None;
        }
        let code = (((high & 0x3FF) << 10) | (low & 0x3FF)) + 0x1_0000;
        Some((char::from_u32(code)?, 12))
    }
}

fn wrong(expected: &str, (at, token): &(usize, Token)) -> Fault {
    let text = format!(
        "Expected {expected} but found {} at character {}",
        token.name(),
        at + 1
    );
    fault(text)
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
