//! Functions of the `string` library that the prelude does not take from Lua.

use mlua::{Lua, MultiValue, Value};

use super::limits::{Limits, MEMORY_BYTES_MAX, Stop};
use super::native::{Arguments, Fault, Outcome, fault, one, string, type_name};
use super::pattern::{Capture, Matcher, PatternError, is_plain};

fn told(error: PatternError, limits: &Limits) -> Fault {
    match error {
        PatternError::Malformed(text) => fault(text),
        PatternError::Stopped => limits.stop(limits.stopped().unwrap_or(Stop::Time)).into(),
    }
}

/// Where a search begins, from an argument of the script: from 1, or from the end.
fn begin(init: i64, len: usize) -> usize {
    let init = if init < 0 {
        init.saturating_add(len as i64 + 1)
    } else {
        init
    };
    usize::try_from(init - 1).unwrap_or(0).min(len)
}

/// `string.find`.
pub fn find(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    found(lua, limits, arguments, true)
}

/// `string.match`.
pub fn match_(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    found(lua, limits, arguments, false)
}

fn found(lua: &Lua, limits: &Limits, arguments: &Arguments, is_find: bool) -> Outcome<MultiValue> {
    let (text, pattern) = (arguments.text(0)?, arguments.text(1)?);
    let at = begin(arguments.integer_or(2, 1)?, text.len());
    let is_raw = !matches!(arguments.value(3), Value::Nil | Value::Boolean(false));
    if is_find && (is_raw || is_plain(&pattern)) {
        let rest = text.get(at..).unwrap_or_default();
        let place = memchr::memmem::find(rest, &pattern).map(|place| place + at);
        return Ok(match place {
            None => one(Value::Nil),
            Some(place) => MultiValue::from_iter([
                Value::Integer(place as i64 + 1),
                Value::Integer((place + pattern.len()) as i64),
            ]),
        });
    }
    let mut matcher = Matcher::new(&text, &pattern, limits);
    let Some(span) = matcher.search(at, true).map_err(|e| told(e, limits))? else {
        return Ok(one(Value::Nil));
    };
    let mut results = MultiValue::new();
    if is_find {
        results.push_back(Value::Integer(span.0 as i64 + 1));
        results.push_back(Value::Integer(span.1 as i64));
    }
    let count = match matcher.captures() {
        0 if !is_find => 1,
        count => count,
    };
    push_captures(lua, limits, (&matcher, &text), (span, count), &mut results)?;
    Ok(results)
}

fn push_captures(
    lua: &Lua,
    limits: &Limits,
    (matcher, text): (&Matcher<'_>, &[u8]),
    (span, count): ((usize, usize), usize),
    results: &mut MultiValue,
) -> Outcome<()> {
    for index in 0..count {
        let capture = matcher.capture(index, span);
        results.push_back(match capture.map_err(|e| told(e, limits))? {
            Capture::Place(place) => Value::Integer(place as i64 + 1),
            Capture::Text(from, len) => {
                let caught = text.get(from..from + len).unwrap_or_default();
                Value::String(lua.create_string(caught)?)
            }
        });
    }
    Ok(())
}

/// The next match from a place on: where it begins, what is behind it, its captures; nothing if there is none.
pub fn scan(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    let (text, pattern) = (arguments.text(0)?, arguments.text(1)?);
    let at = begin(arguments.integer_or(2, 1)?, text.len());
    let may_anchor = matches!(arguments.value(3), Value::Boolean(true));
    let mut matcher = Matcher::new(&text, &pattern, limits);
    let span = matcher
        .search(at, may_anchor)
        .map_err(|e| told(e, limits))?;
    let Some(span) = span else {
        return Ok(MultiValue::new());
    };
    let mut results = MultiValue::from_iter([
        Value::Integer(span.0 as i64 + 1),
        Value::Integer(span.1 as i64 + 1),
    ]);
    let count = matcher.captures().max(1);
    push_captures(lua, limits, (&matcher, &text), (span, count), &mut results)?;
    Ok(results)
}

/// `string.gsub` with a string that replaces.
pub fn gsub(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    let (text, pattern) = (arguments.text(0)?, arguments.text(1)?);
    let replacement = arguments.text(2)?;
    let most = arguments.integer_or(3, text.len() as i64 + 1)?;
    let is_anchored = pattern.first() == Some(&b'^');
    let mut matcher = Matcher::new(&text, &pattern, limits);
    let (mut out, mut count, mut at) = (Vec::new(), 0, 0);
    while count < most {
        let span = matcher.search(at, true).map_err(|e| told(e, limits))?;
        let Some((from, end)) = span else { break };
        count += 1;
        let before = text.get(at..from).unwrap_or_default();
        limits.write(out.len(), before.len())?;
        out.extend_from_slice(before);
        let mut bytes = replacement.iter();
        while let Some(&byte) = bytes.next() {
            limits.write(out.len(), 1)?;
            match (byte, byte == b'%') {
                (_, true) => match bytes.next() {
                    Some(digit @ b'0'..=b'9') => {
                        let capture = match digit {
                            b'0' => Ok(Capture::Text(from, end - from)),
                            digit => matcher.capture(usize::from(digit - b'1'), (from, end)),
                        };
                        match capture.map_err(|e| told(e, limits))? {
                            Capture::Place(place) => {
                                out.extend_from_slice((place + 1).to_string().as_bytes());
                            }
                            Capture::Text(from, len) => {
                                limits.write(out.len(), len)?;
                                let caught = text.get(from..from + len);
                                out.extend_from_slice(caught.unwrap_or_default());
                            }
                        }
                    }
                    Some(&other) => out.push(other),
                    None => {}
                },
                _ => out.push(byte),
            }
        }
        at = end;
        if from == end {
            out.extend(text.get(at));
            at += 1;
        }
        if at > text.len() || is_anchored {
            break;
        }
    }
    let rest = text.get(at..).unwrap_or_default();
    limits.write(out.len(), rest.len())?;
    out.extend_from_slice(rest);
    let out = string(lua, limits, &out)?;
    Ok(MultiValue::from_iter([
        Value::String(out),
        Value::Integer(count),
    ]))
}

/// `string.lower`.
pub fn lower(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    changed(lua, limits, arguments, <[u8]>::make_ascii_lowercase)
}

/// `string.upper`.
pub fn upper(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    changed(lua, limits, arguments, <[u8]>::make_ascii_uppercase)
}

/// `string.reverse`.
pub fn reverse(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    changed(lua, limits, arguments, <[u8]>::reverse)
}

fn changed(
    lua: &Lua,
    limits: &Limits,
    arguments: &Arguments,
    change: fn(&mut [u8]),
) -> Outcome<MultiValue> {
    let mut text = arguments.text(0)?.to_vec();
    limits.work(text.len())?;
    change(&mut text);
    Ok(one(Value::String(string(lua, limits, &text)?)))
}

/// `string.rep`.
pub fn rep(lua: &Lua, limits: &Limits, arguments: &Arguments) -> Outcome<MultiValue> {
    let text = arguments.text(0)?;
    if arguments.len() < 2 || matches!(arguments.value(1), Value::Nil) {
        let got = if arguments.len() < 2 {
            "no value"
        } else {
            type_name(&Value::Nil)
        };
        return Err(arguments.bad(1, &format!("number expected, got {got}")));
    }
    let count = usize::try_from(arguments.integer_or(1, 0)?).unwrap_or(0);
    let bytes = text.len().checked_mul(count);
    let bytes = bytes.filter(|&bytes| bytes <= MEMORY_BYTES_MAX);
    let Some(bytes) = bytes else {
        return Err(limits.stop(Stop::Memory).into());
    };
    limits.work(bytes)?;
    let out = if bytes == 0 {
        Vec::new()
    } else {
        text.repeat(count)
    };
    Ok(one(Value::String(string(lua, limits, &out)?)))
}
