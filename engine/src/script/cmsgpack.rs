//! The `cmsgpack` library, as lua-cmsgpack 0.4.0 does it.

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::cjson::{NEXT, next_pair};
use super::limits::Limits;
use super::native::{Arguments, Outcome, fault, number_of, one, string};

/// Tables within tables that are written; deeper ones become nil.
const ENCODED_DEPTH_MAX: usize = 16;

/// The most that is written for an element beside its text.
const ELEMENT_BYTES: usize = 9;

/// Nesting that is read.
const DECODED_DEPTH_MAX: usize = 128;

/// `cmsgpack.pack`.
pub fn pack(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    if arguments.len() == 0 {
        return Err(fault(
            "bad argument #0 to 'pack' (MessagePack pack needs input.)",
        ));
    }
    let mut packer = Packer {
        next: lua.named_registry_value(NEXT)?,
        out: Vec::new(),
        limits,
    };
    for value in arguments.iter() {
        packer.pack(value, 0)?;
    }
    let text = string(lua, limits, &packer.out)?;
    Ok(one(Value::String(text)))
}

struct Packer<'a> {
    next: Function,
    out: Vec<u8>,
    limits: &'a Limits,
}

impl Packer<'_> {
    fn pack(&mut self, value: &Value, depth: usize) -> Outcome<()> {
        self.limits.write(self.out.len(), ELEMENT_BYTES)?;
        match value {
            Value::String(text) => {
                let bytes = text.as_bytes();
                self.limits.write(self.out.len(), bytes.len())?;
                match bytes.len() {
                    len @ 0..32 => self.out.push(0xa0 | len as u8),
                    len @ 32..0x100 => self.out.extend_from_slice(&[0xd9, len as u8]),
                    len @ 0x100..0x1_0000 => self.tagged(0xda, &(len as u16).to_be_bytes()),
                    len => self.tagged(0xdb, &(len as u32).to_be_bytes()),
                }
                self.out.extend_from_slice(&bytes);
            }
            Value::Boolean(value) => self.out.push(if *value { 0xc3 } else { 0xc2 }),
            Value::Integer(_) | Value::Number(_) => {
                self.number(number_of(value).unwrap_or_default());
            }
            Value::Table(table) if depth < ENCODED_DEPTH_MAX => self.table(table, depth)?,
            _ => self.out.push(0xc0),
        }
        Ok(())
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.out.push(tag);
        self.out.extend_from_slice(bytes);
    }

    fn number(&mut self, value: f64) {
        if value < 9_223_372_036_854_775_808.0 && value == (value as i64) as f64 {
            let value = value as i64;
            match value {
                0..=0x7f => self.out.push(value as u8),
                0x80..=0xff => self.out.extend_from_slice(&[0xcc, value as u8]),
                0x100..=0xffff => self.tagged(0xcd, &(value as u16).to_be_bytes()),
                0x1_0000..=0xffff_ffff => self.tagged(0xce, &(value as u32).to_be_bytes()),
                0x1_0000_0000.. => self.tagged(0xcf, &value.to_be_bytes()),
                -32..=-1 => self.out.push(value as u8),
                -0x80..=-33 => self.out.extend_from_slice(&[0xd0, value as u8]),
                -0x8000..=-0x81 => self.tagged(0xd1, &(value as i16).to_be_bytes()),
                -0x8000_0000..=-0x8001 => self.tagged(0xd2, &(value as i32).to_be_bytes()),
                _ => self.tagged(0xd3, &value.to_be_bytes()),
            }
        } else if f64::from(value as f32) == value {
            self.tagged(0xca, &(value as f32).to_be_bytes());
        } else {
            self.tagged(0xcb, &value.to_be_bytes());
        }
    }

    fn header(&mut self, len: i64, (short, long): (u8, u8)) {
        match len {
            0..16 => self.out.push(short | len as u8),
            16..0x1_0000 => self.tagged(long, &(len as u16).to_be_bytes()),
            _ => self.tagged(long + 1, &(len as u32).to_be_bytes()),
        }
    }

    fn table(&mut self, table: &Table, depth: usize) -> Outcome<()> {
        let (mut max, mut count, mut is_list) = (0, 0, true);
        for pair in table.pairs::<Value, Value>() {
            self.limits.work(1)?;
            count += 1;
            match pair?.0 {
                Value::Integer(key) if key > 0 => max = max.max(key),
                _ => is_list = false,
            }
        }
        if is_list && max == count {
            self.header(count, (0x90, 0xdc));
            for at in 1..=count {
                self.pack(&table.raw_get(at)?, depth + 1)?;
            }
            return Ok(());
        }
        self.header(count, (0x80, 0xde));
        let mut key = Value::Nil;
        while let Some((name, value)) = next_pair(&self.next, table, &key)? {
            self.pack(&name, depth + 1)?;
            self.pack(&value, depth + 1)?;
            key = name;
        }
        Ok(())
    }
}

/// `cmsgpack.unpack`.
pub fn unpack(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    unpacked(lua, limits, arguments, (0, 0))
}

/// `cmsgpack.unpack_one`.
pub fn unpack_one(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    let offset = arguments.integer_or(1, 0)?;
    unpacked(lua, limits, arguments, (1, offset))
}

/// `cmsgpack.unpack_limit`.
pub fn unpack_limit(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    let limit = number_argument(arguments, 1)?;
    let offset = arguments.integer_or(2, 0)?;
    unpacked(lua, limits, arguments, (limit, offset))
}

fn number_argument(arguments: &Arguments, at: usize) -> Outcome<i64> {
    Ok(super::number::integer(arguments.number(at)?))
}

/// Up to so many values from a place on, or all; before those how it goes on, if they are limited.
fn unpacked(
    lua: &Lua,
    limits: &Limits,
    arguments: &Arguments,
    (limit, offset): (i64, i64),
) -> Outcome<MultiValue> {
    let text = arguments.text(0)?;
    let len = text.len() as i64;
    if offset < 0 || limit < 0 {
        return Err(fault(format!(
            "Invalid request to unpack with offset of {offset} and limit of {len}."
        )));
    }
    if offset > len {
        return Err(fault(format!(
            "Start offset {offset} greater than input length {len}."
        )));
    }
    let mut unpacker = Unpacker {
        lua,
        limits,
        bytes: &text,
        at: offset as usize,
    };
    let is_all = limit == 0 && offset == 0;
    let mut values = MultiValue::new();
    while unpacker.at < text.len() && (is_all || (values.len() as i64) < limit) {
        if values.len() >= 7000 {
            return Err(fault(
                "too many return values at once; use unpack_one or unpack_limit instead.",
            ));
        }
        values.push_back(unpacker.value(0)?);
    }
    if !is_all {
        let rest = if unpacker.at == text.len() {
            -1
        } else {
            unpacker.at as i64
        };
        values.push_front(Value::Integer(rest));
    }
    Ok(values)
}

struct Unpacker<'a> {
    lua: &'a Lua,
    limits: &'a Limits,
    bytes: &'a [u8],
    at: usize,
}

impl Unpacker<'_> {
    fn take(&mut self, len: usize) -> Outcome<&[u8]> {
        let end = self.at.checked_add(len);
        let bytes = end.and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or_else(|| fault("Missing bytes in input."))?;
        self.limits.work(len)?;
        self.at += len;
        Ok(bytes)
    }

    /// An unsigned integer of so many bytes.
    fn unsigned(&mut self, len: usize) -> Outcome<u64> {
        let bytes = self.take(len)?;
        Ok(bytes
            .iter()
            .fold(0, |all, &byte| (all << 8) | u64::from(byte)))
    }

    fn signed(&mut self, len: usize) -> Outcome<Value> {
        let bits = 64 - 8 * len as u32;
        let value = (self.unsigned(len)? << bits) as i64 >> bits;
        Ok(Value::Number(value as f64))
    }

    fn text(&mut self, len: u64) -> Outcome<Value> {
        let lua = self.lua;
        let bytes = self.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        Ok(Value::String(lua.create_string(bytes)?))
    }

    fn value(&mut self, depth: usize) -> Outcome<Value> {
        if depth > DECODED_DEPTH_MAX {
            return Err(fault("Bad data format in input."));
        }
        let tag = self.unsigned(1)? as u8;
        match tag {
            0..=0x7f => Ok(Value::Number(f64::from(tag))),
            0x80..=0x8f => self.map(u64::from(tag & 15), depth),
            0x90..=0x9f => self.list(u64::from(tag & 15), depth),
            0xa0..=0xbf => self.text(u64::from(tag & 31)),
            0xc0 => Ok(Value::Nil),
            0xc2 | 0xc3 => Ok(Value::Boolean(tag == 0xc3)),
            0xca => {
                let bits = self.unsigned(4)? as u32;
                Ok(Value::Number(f64::from(f32::from_bits(bits))))
            }
            0xcb => Ok(Value::Number(f64::from_bits(self.unsigned(8)?))),
            0xcc..=0xcf => {
                let value = self.unsigned(1 << (tag - 0xcc))?;
                Ok(Value::Number(value as f64))
            }
            0xd0..=0xd3 => self.signed(1 << (tag - 0xd0)),
            0xc4 | 0xd9 => {
                let len = self.unsigned(1)?;
                self.text(len)
            }
            0xc5 | 0xda => {
                let len = self.unsigned(2)?;
                self.text(len)
            }
            0xc6 | 0xdb => {
                let len = self.unsigned(4)?;
                self.text(len)
            }
            0xdc | 0xdd => {
                let len = self.unsigned(2 << (tag - 0xdc))?;
                self.list(len, depth)
            }
            0xde | 0xdf => {
                let len = self.unsigned(2 << (tag - 0xde))?;
                self.map(len, depth)
            }
            0xe0..=0xff => Ok(Value::Number(f64::from(tag as i8))),
            _ => Err(fault("Bad data format in input.")),
        }
    }

    fn list(&mut self, len: u64, depth: usize) -> Outcome<Value> {
        let table = self.lua.create_table()?;
        for at in 1..=len {
            let value = self.value(depth + 1)?;
            table.raw_set(at, value)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, len: u64, depth: usize) -> Outcome<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..len {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            let is_no_number = matches!(key, Value::Number(key) if key.is_nan());
            if key.is_nil() || is_no_number {
                let what = if key.is_nil() { "nil" } else { "NaN" };
                return Err(fault(format!("table index is {what}")));
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }
}
