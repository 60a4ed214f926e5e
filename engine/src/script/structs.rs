//! The `struct` library: values as C lays them out.

use mlua::{Lua, MultiValue, Value};

use super::limits::Limits;
use super::native::{Arguments, Outcome, fault, number_of, one, string};

/// Longest integer.
const INTEGER_BYTES_MAX: usize = 32;

/// The alignment of `!`.
const ALIGNMENT_DEFAULT: i64 = 8;

/// A format, as far as it was read.
struct Format<'a> {
    text: &'a [u8],
    at: usize,
    is_big: bool,
    align: usize,
}

impl Format<'_> {
    fn new(text: &[u8]) -> Format<'_> {
        Format {
            text,
            at: 0,
            is_big: false,
            align: 1,
        }
    }

    /// The next option and its size.
    fn next(&mut self) -> Outcome<Option<(u8, usize)>> {
        let Some(&option) = self.text.get(self.at).filter(|&&byte| byte != 0) else {
            return Ok(None);
        };
        self.at += 1;
        let size = match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'f' => 4,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'c' => self.number(1)? as usize,
            b'i' | b'I' => {
                let size = self.number(4)?;
                if size > INTEGER_BYTES_MAX as i64 {
                    return Err(fault(format!(
                        "integral size {size} is larger than limit of {INTEGER_BYTES_MAX}"
                    )));
                }
                size as usize
            }
            _ => 0,
        };
        Ok(Some((option, size)))
    }

    fn number(&mut self, default: i64) -> Outcome<i64> {
        let digits = self.text.get(self.at..).unwrap_or_default();
        let count = digits.iter().take_while(|byte| byte.is_ascii_digit());
        let count = count.count();
        let digits = digits.get(..count).unwrap_or_default();
        self.at += count;
        if digits.is_empty() {
            return Ok(default);
        }
        digits
            .iter()
            .try_fold(0i64, |all, byte| {
                let all = all * 10 + i64::from(byte - b'0');
                (all <= i64::from(i32::MAX)).then_some(all)
            })
            .ok_or_else(|| fault("integral size overflow"))
    }

    fn padding(&self, len: usize, (option, size): (u8, usize)) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.align);
        size.wrapping_sub(len & (size - 1)) & (size - 1)
    }

    fn control(&mut self, option: u8, arguments: &Arguments) -> Outcome<()> {
        match option {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'!' => {
                let align = self.number(ALIGNMENT_DEFAULT)?;
                if align <= 0 || align & (align - 1) != 0 {
                    return Err(fault(format!("alignment {align} is not a power of 2")));
                }
                self.align = align as usize;
            }
            _ => {
                let text = format!("invalid format option '{}'", char::from(option));
                return Err(arguments.bad(0, &text));
            }
        }
        Ok(())
    }

    fn put(&self, out: &mut Vec<u8>, mut bytes: Vec<u8>) {
        if self.is_big {
            bytes.reverse();
        }
        out.append(&mut bytes);
    }

    fn taken(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        if self.is_big {
            bytes.reverse();
        }
        bytes
    }
}

/// `struct.pack`.
pub fn pack(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    let text = arguments.text(0)?;
    let mut format = Format::new(&text);
    let (mut out, mut at) = (Vec::new(), 1);
    while let Some((option, size)) = format.next()? {
        let padding = format.padding(out.len(), (option, size));
        limits.write(out.len(), padding.saturating_add(INTEGER_BYTES_MAX))?;
        out.resize(out.len() + padding, 0);
        let number = |at: usize| {
            let missing = || arguments.bad(at, "number expected, got nil");
            match at < arguments.len() {
                true => arguments.number(at),
                false => Err(missing()),
            }
        };
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let value = number(at)?;
                let value = if value < 0.0 {
                    super::number::integer(value) as u64
                } else {
                    value as u64
                };
                let mut bytes = value.to_le_bytes().to_vec();
                bytes.resize(size.max(8), 0);
                bytes.truncate(size);
                format.put(&mut out, bytes);
                at += 1;
            }
            b'x' => out.push(0),
            b'f' => {
                format.put(&mut out, (number(at)? as f32).to_le_bytes().to_vec());
                at += 1;
            }
            b'd' => {
                format.put(&mut out, number(at)?.to_le_bytes().to_vec());
                at += 1;
            }
            b'c' | b's' => {
                let value = match at < arguments.len() {
                    true => arguments.text(at)?,
                    false => return Err(arguments.bad(at, "string expected, got nil")),
                };
                at += 1;
                let size = if size == 0 { value.len() } else { size };
                let bytes = value.get(..size);
                let bytes = bytes.ok_or_else(|| arguments.bad(at, "string too short"))?;
                limits.write(out.len(), bytes.len())?;
                out.extend_from_slice(bytes);
                if option == b's' {
                    out.push(0);
                }
            }
            other => format.control(other, arguments)?,
        }
    }
    Ok(one(Value::String(string(lua, limits, &out)?)))
}

/// `struct.unpack`.
pub fn unpack(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    let (text, data) = (arguments.text(0)?, arguments.text(1)?);
    let too_short = || arguments.bad(1, "data string too short");
    let offset = arguments.integer_or(2, 1)?;
    if offset == 0 {
        return Err(arguments.bad(2, "offset must be 1 or greater"));
    }
    let mut at = usize::try_from(offset).map_err(|_| too_short())? - 1;
    let mut format = Format::new(&text);
    let mut values = MultiValue::new();
    while let Some((option, mut size)) = format.next()? {
        at = at.saturating_add(format.padding(at, (option, size)));
        let end = at.checked_add(size);
        let bytes = end.and_then(|end| data.get(at..end));
        let bytes = bytes.ok_or_else(too_short)?;
        if values.len() >= 7000 {
            return Err(fault("stack overflow (too many results)"));
        }
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let mut low = format.taken(bytes);
                low.truncate(8);
                let is_negative = option.is_ascii_lowercase()
                    && size <= 8
                    && low.last().is_some_and(|&byte| byte >= 0x80);
                low.resize(8, if is_negative { 0xff } else { 0 });
                let value = low.iter().rev();
                let value = value.fold(0u64, |all, &byte| (all << 8) | u64::from(byte));
                values.push_back(Value::Number(match option.is_ascii_lowercase() {
                    true => value as i64 as f64,
                    false => value as f64,
                }));
            }
            b'x' => {}
            b'f' => {
                let bytes = format.taken(bytes).first_chunk().copied();
                let value = f32::from_le_bytes(bytes.unwrap_or_default());
                values.push_back(Value::Number(f64::from(value)));
            }
            b'd' => {
                let bytes = format.taken(bytes).first_chunk().copied();
                values.push_back(Value::Number(f64::from_le_bytes(bytes.unwrap_or_default())));
            }
            b'c' => {
                if size == 0 {
                    let last = values.pop_back();
                    let last = last.as_ref().and_then(number_of);
                    let last = last.ok_or_else(|| fault("format 'c0' needs a previous size"))?;
                    size = last as usize;
                }
                let end = at.checked_add(size);
                let bytes = end.and_then(|end| data.get(at..end));
                let bytes = bytes.ok_or_else(too_short)?;
                values.push_back(Value::String(lua.create_string(bytes)?));
            }
            b's' => {
                let rest = data.get(at..).unwrap_or_default();
                let len = rest.iter().position(|&byte| byte == 0);
                let len = len.ok_or_else(|| fault("unfinished string in data"))?;
                let bytes = rest.get(..len).unwrap_or_default();
                values.push_back(Value::String(lua.create_string(bytes)?));
                size = len + 1;
            }
            other => format.control(other, arguments)?,
        }
        at += size;
        limits.work(size.saturating_add(1))?;
    }
    values.push_back(Value::Integer(at as i64 + 1));
    Ok(values)
}

/// `struct.size`.
pub fn size(_: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    let text = arguments.text(0)?;
    let mut format = Format::new(&text);
    let mut at = 0usize;
    while let Some((option, size)) = format.next()? {
        limits.work(1)?;
        at += format.padding(at, (option, size));
        if option == b's' {
            return Err(arguments.bad(0, "option 's' has no fixed size"));
        }
        if option == b'c' && size == 0 {
            return Err(arguments.bad(0, "option 'c0' has no fixed size"));
        }
        if !option.is_ascii_alphanumeric() {
            format.control(option, arguments)?;
        }
        at += size;
    }
    Ok(one(Value::Integer(at as i64)))
}
