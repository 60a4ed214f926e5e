//! `cjson.decode`.

use mlua::{Lua, MultiValue, Table, Value};

use super::{DEPTH_MAX, JsonSettings, NULL, wrong_count};
use crate::script::limits::Limits;
use crate::script::native::{Arguments, Fault, Outcome, fault, one};
use crate::script::number;

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
        loop {
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
    fn next(&mut self) -> Outcome<(usize, Token)> {
        let from = self.at;
        let token = self.read();
        self.limits.work(self.at - from + 1)?;
        Ok(token)
    }

    fn read(&mut self) -> (usize, Token) {
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
            return (begin, token);
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
                Err(why) => return (self.at, Token::Error(why)),
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
        (begin, token)
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
