//! Replies as values of Lua, and values of Lua as replies: Redis's conversions.

use std::borrow::Cow;

use ephesus_wire::resp::reply::{self, Protocol};
use mlua::{Lua, Table, Value};

use super::cjson::next_pair;
use super::limits::Limits;
use super::native::number_of;
use super::number;

/// Tables within tables that become a reply.
const DEPTH_MAX: usize = 128;

/// The least that a value takes in a reply.
const ELEMENT_BYTES_MIN: usize = 3;

/// A reply as a script sees it, and whether it is an error.
///
/// # Errors
/// Memory.
pub fn to_lua(lua: &Lua, reply: &[u8]) -> mlua::Result<(Value, bool)> {
    let mut reader = Reader {
        lua,
        bytes: reply,
        at: 0,
    };
    let is_error = reply.first() == Some(&b'-');
    Ok((reader.value()?, is_error))
}

struct Reader<'a> {
    lua: &'a Lua,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|&byte| byte == b'\r');
        let line = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        self.at += line.len() + 2;
        line
    }

    fn number(&mut self) -> i64 {
        ephesus_wire::resp::request::integer(self.line()).unwrap_or(-1)
    }

    fn body(&mut self, len: i64) -> &'a [u8] {
        let len = usize::try_from(len).unwrap_or(0);
        let body = self.bytes.get(self.at..self.at + len);
        self.at += len + 2;
        body.unwrap_or_default()
    }

    /// A table of one field.
    fn field(&self, name: &str, value: impl mlua::IntoLua) -> mlua::Result<Value> {
        let table = self.lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    }

    fn text(&self, bytes: &[u8]) -> mlua::Result<Value> {
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    fn list(&mut self, len: i64) -> mlua::Result<Table> {
        let table = self.lua.create_table()?;
        for at in 1..=len {
            let value = self.value()?;
            table.raw_set(at, value)?;
        }
        Ok(table)
    }

    fn value(&mut self) -> mlua::Result<Value> {
        let kind = self.bytes.get(self.at).copied();
        self.at += 1;
        match kind {
            Some(b':') => Ok(Value::Number(self.number() as f64)),
            Some(b'$') => match self.number() {
                -1 => Ok(Value::Boolean(false)),
                len => {
                    let body = self.body(len);
                    self.text(body)
                }
            },
            Some(b'+') => {
                let line = self.line();
                let text = self.text(line)?;
                self.field("ok", text)
            }
            Some(b'-') => {
                let line = self.line();
                let text = self.text(line)?;
                self.field("err", text)
            }
            Some(b'*' | b'>') => match self.number() {
                -1 => Ok(Value::Boolean(false)),
                len => Ok(Value::Table(self.list(len)?)),
            },
            Some(b'_') => {
                self.line();
                Ok(Value::Nil)
            }
            Some(b'#') => Ok(Value::Boolean(self.line() == b"t")),
            Some(b',') => {
                let (value, _) = number::leading(self.line());
                self.field("double", value)
            }
            Some(b'(') => {
                let line = self.line();
                let text = self.text(line)?;
                self.field("big_number", text)
            }
            Some(b'=') => {
                let len = self.number();
                let body = self.body(len);
                let (format, text) = body.split_at_checked(4).unwrap_or_default();
                let inner = self.lua.create_table()?;
                inner.raw_set("format", self.text(format.get(..3).unwrap_or_default())?)?;
                inner.raw_set("string", self.text(text)?)?;
                self.field("verbatim_string", inner)
            }
            Some(b'%') => {
                let table = self.lua.create_table()?;
                for _ in 0..self.number() {
                    let key = self.value()?;
                    let value = self.value()?;
                    if !key.is_nil() {
                        table.raw_set(key, value)?;
                    }
                }
                self.field("map", table)
            }
            Some(b'~') => {
                let table = self.lua.create_table()?;
                for _ in 0..self.number() {
                    let key = self.value()?;
                    if !key.is_nil() {
                        table.raw_set(key, true)?;
                    }
                }
                self.field("set", table)
            }
            _ => Ok(Value::Nil),
        }
    }
}

/// Why a script's result is no reply.
pub enum NoReply {
    /// The client is told.
    TooDeep,
    TooLong,
    Lua(mlua::Error),
}

impl From<mlua::Error> for NoReply {
    fn from(error: mlua::Error) -> NoReply {
        NoReply::Lua(error)
    }
}

/// Writes the result of a script.
pub struct Writer<'a> {
    pub next: &'a mlua::Function,
    pub limits: &'a Limits,
    pub protocol: Protocol,
    pub bytes_max: usize,
    pub out: &'a mut Vec<u8>,
    /// What all that was written takes; `out` has only what is in the list that is being written.
    pub bytes: usize,
}

impl Writer<'_> {
    /// Appends the reply.
    ///
    /// # Errors
    /// There is none; what was appended is to be removed.
    pub fn write(&mut self, value: &Value, depth: usize) -> Result<(), NoReply> {
        self.count(ELEMENT_BYTES_MIN)?;
        match value {
            Value::String(text) => {
                let text = text.as_bytes();
                self.count(text.len())?;
                reply::bulk(self.out, &text);
            }
            Value::Boolean(value) if self.limits.is_resp3.get() => {
                reply::boolean(self.out, self.protocol, *value);
            }
            Value::Boolean(true) => reply::integer(self.out, 1),
            Value::Integer(value) => reply::integer(self.out, *value),
            Value::Number(value) => reply::integer(self.out, number::integer(*value)),
            Value::Table(table) => return self.table(table, depth),
            _ => reply::null(self.out, self.protocol),
        }
        Ok(())
    }

    /// Counts what is about to be written.
    fn count(&mut self, bytes: usize) -> Result<(), NoReply> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.bytes_max {
            return Err(NoReply::TooLong);
        }
        Ok(self.limits.work(bytes)?)
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<(), NoReply> {
        if depth >= DEPTH_MAX {
            return Err(NoReply::TooDeep);
        }
        if let Value::String(text) = table.raw_get("err")? {
            self.count(text.as_bytes().len())?;
            self.line(b'-', &text.as_bytes());
            return Ok(());
        }
        if let Value::String(text) = table.raw_get("ok")? {
            self.count(text.as_bytes().len())?;
            self.line(b'+', &text.as_bytes());
            return Ok(());
        }
        let double: Value = table.raw_get("double")?;
        if let (Value::Integer(_) | Value::Number(_), Some(value)) = (&double, number_of(&double)) {
            let text = number::general(value, 17);
            match self.protocol {
                Protocol::Resp2 => reply::bulk(self.out, &text),
                Protocol::Resp3 => self.line(b',', &text),
            }
            return Ok(());
        }
        if let Value::Table(map) = table.raw_get("map")? {
            return self.pairs(&map, depth, true);
        }
        if let Value::Table(set) = table.raw_get("set")? {
            return self.pairs(&set, depth, false);
        }
        if let Value::String(text) = table.raw_get("big_number")? {
            self.count(text.as_bytes().len())?;
            match self.protocol {
                Protocol::Resp2 => reply::bulk(self.out, &text.as_bytes()),
                Protocol::Resp3 => self.line(b'(', &text.as_bytes()),
            }
            return Ok(());
        }
        if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
            && let (Value::String(format), Value::String(text)) =
                (verbatim.raw_get("format")?, verbatim.raw_get("string")?)
        {
            self.count(text.as_bytes().len())?;
            let mut name: Vec<u8> = format.as_bytes().iter().copied().take(3).collect();
            name.resize(3, b' ');
            let name = String::from_utf8_lossy(&name);
            let name = if name.len() == 3 {
                name
            } else {
                Cow::Borrowed("txt")
            };
            reply::verbatim(self.out, self.protocol, &name, &text.as_bytes());
            return Ok(());
        }
        self.list(table, depth)
    }

    fn list(&mut self, table: &Table, depth: usize) -> Result<(), NoReply> {
        // The values end with the first nil, which need not be where Lua's length says.
        let (mut head, mut len) = (std::mem::take(self.out), 0i64);
        loop {
            let value: Value = table.raw_get(len + 1)?;
            if value.is_nil() {
                break;
            }
            len += 1;
            self.write(&value, depth + 1)?;
        }
        reply::array(&mut head, usize::try_from(len).unwrap_or(0));
        head.append(self.out);
        *self.out = head;
        Ok(())
    }

    fn pairs(&mut self, table: &Table, depth: usize, is_map: bool) -> Result<(), NoReply> {
        let mut head = std::mem::take(self.out);
        let (mut count, mut key) = (0, Value::Nil);
        while let Some((name, value)) = next_pair(self.next, table, &key)? {
            count += 1;
            self.write(&name, depth + 1)?;
            if is_map {
                self.write(&value, depth + 1)?;
            }
            key = name;
        }
        match is_map {
            true => reply::map(&mut head, self.protocol, count),
            false => reply::set(&mut head, self.protocol, count),
        }
        head.append(self.out);
        *self.out = head;
        Ok(())
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        let spaced = text.iter().map(|&byte| match byte {
            b'\r' | b'\n' => b' ',
            byte => byte,
        });
        self.out.extend(spaced);
        self.out.extend_from_slice(b"\r\n");
    }
}
