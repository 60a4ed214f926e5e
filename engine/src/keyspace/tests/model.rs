//! The string commands once more, as simply as possible, after Redis's documentation.

use std::collections::BTreeMap;

type Bytes = Vec<u8>;

/// Keys with value and expiry (`None`: never), expired ones removed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    pub(crate) keys: BTreeMap<Bytes, (Bytes, Option<i128>)>,
    pub(crate) now: i128,
}

const OK: &str = "+OK\r\n";
const SYNTAX: &str = "-ERR syntax error\r\n";
const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range\r\n";

fn int(n: i128) -> Bytes {
    format!(":{n}\r\n").into_bytes()
}

fn bulk(value: Option<&Bytes>) -> Bytes {
    let Some(value) = value else {
        return b"$-1\r\n".to_vec();
    };
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

/// Canonical decimal within 64 bits.
fn number(text: &[u8]) -> Result<i128, Bytes> {
    let parsed = std::str::from_utf8(text)
        .ok()
        .and_then(|t| t.parse::<i64>().ok());
    match parsed {
        Some(n) if n.to_string().as_bytes() == text => Ok(n.into()),
        _ => Err(NOT_AN_INTEGER.into()),
    }
}

fn within(n: i128) -> bool {
    i128::from(i64::MIN) <= n && n <= i128::from(i64::MAX)
}

/// The places of a range with both its ends, which count from the end when they are negative; BITPOS `turns` them.
fn places((start, end): (i128, i128), turns: bool, len: usize) -> impl Iterator<Item = usize> {
    let len = len as i128;
    let from_front = |at: i128| if at < 0 { len + at } else { at };
    let is_turned = !turns && start < 0 && end < 0 && start > end;
    // An end that is before the front is the front.
    let (start, end) = (from_front(start).max(0), from_front(end).max(0));
    let places = start..=end.min(len - 1);
    places
        .filter(move |_| !is_turned)
        .map(|place| place as usize)
}

fn bits(value: &[u8]) -> Vec<bool> {
    let bits = value
        .iter()
        .flat_map(|byte| (0..8).map(move |n| byte >> (7 - n) & 1 == 1));
    bits.collect()
}

fn bytes(bits: &[bool]) -> Bytes {
    let byte = |bits: &[bool]| bits.iter().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    bits.chunks(8).map(byte).collect()
}

fn bit_offset(text: &[u8]) -> Result<usize, Bytes> {
    let offset = number(text).ok().and_then(|n| usize::try_from(n).ok());
    let offset = offset.filter(|offset| offset / 8 < 8 << 20);
    offset.ok_or_else(|| b"-ERR bit offset is not an integer or out of range\r\n".to_vec())
}

/// All bits of a value, and the places of those in `[start end [BYTE|BIT]]`.
fn bits_of(
    value: &[u8],
    range: &[Bytes],
    turns: bool,
) -> Result<(Vec<bool>, std::vec::IntoIter<usize>), Bytes> {
    let bits = bits(value);
    let found: Vec<usize> = match range {
        [] => (0..bits.len()).collect(),
        [start, end, unit @ ..] => {
            let is_unit = |unit: &Bytes| {
                unit.eq_ignore_ascii_case(b"bit") || unit.eq_ignore_ascii_case(b"byte")
            };
            let start = number(start)?;
            // BITPOS looks at the unit before it looks at the end.
            if turns && unit.len() == 1 && !unit.iter().all(is_unit) {
                return Err(SYNTAX.into());
            }
            let ends = (start, number(end)?);
            match unit {
                [unit] if unit.eq_ignore_ascii_case(b"bit") => {
                    places(ends, turns, bits.len()).collect()
                }
                [unit] if !unit.eq_ignore_ascii_case(b"byte") => return Err(SYNTAX.into()),
                [] | [_] => places(ends, turns, value.len())
                    .flat_map(|byte| 8 * byte..8 * byte + 8)
                    .collect(),
                _ => return Err(SYNTAX.into()),
            }
        }
        _ => return Err(SYNTAX.into()),
    };
    Ok((bits, found.into_iter()))
}

impl Model {
    pub(crate) fn set_now(&mut self, now: i128) {
        self.now = now;
        self.keys.retain(|_, (_, at)| at.is_none_or(|at| at > now));
    }

    pub(crate) fn run(&mut self, args: &[Bytes]) -> Bytes {
        self.execute(args).unwrap_or_else(|error| error)
    }

    fn execute(&mut self, args: &[Bytes]) -> Result<Bytes, Bytes> {
        let key = args[1].clone();
        let old = self.keys.get(&key).cloned();
        let value = old.as_ref().map(|(value, _)| value);
        Ok(match &args[0][..] {
            b"GET" => bulk(value),
            b"SET" => return self.set(args),
            b"SETNX" => {
                if old.is_none() {
                    self.keys.insert(key, (args[2].clone(), None));
                }
                int(old.is_none().into())
            }
            b"SETEX" | b"PSETEX" => {
                let (name, unit_ms) = match args[0][0] {
                    b'P' => ("psetex", 1),
                    _ => ("setex", 1000),
                };
                let at = self.deadline(name, number(&args[2])? * unit_ms, self.now)?;
                self.keys.insert(key, (args[3].clone(), Some(at)));
                OK.into()
            }
            b"GETEX" => return self.get_and_expire(args),
            b"GETRANGE" | b"SUBSTR" => {
                let ends = (number(&args[2])?, number(&args[3])?);
                let value = value.cloned().unwrap_or_default();
                let part = places(ends, false, value.len()).map(|place| value[place]);
                bulk(Some(&part.collect()))
            }
            b"SETRANGE" => {
                let offset = usize::try_from(number(&args[2])?);
                let offset = offset.map_err(|_| b"-ERR offset is out of range\r\n".to_vec())?;
                let (mut value, at) = old.unwrap_or_default();
                if !args[3].is_empty() {
                    let end = offset.saturating_add(args[3].len());
                    if end > 8 << 20 {
                        let text =
                            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n";
                        return Err(text.into());
                    }
                    value.resize(value.len().max(end), 0);
                    value[offset..end].copy_from_slice(&args[3]);
                    self.keys.insert(key, (value.clone(), at));
                }
                int(value.len() as i128)
            }
            b"SETBIT" => {
                let at = bit_offset(&args[2])?;
                let is_set = match number(&args[3]) {
                    Ok(bit @ 0..=1) => bit == 1,
                    _ => return Err(b"-ERR bit is not an integer or out of range\r\n".to_vec()),
                };
                let (value, expiry) = old.unwrap_or_default();
                let mut bits = bits(&value);
                bits.resize(bits.len().max(at / 8 * 8 + 8), false);
                let was_set = std::mem::replace(&mut bits[at], is_set);
                self.keys.insert(key, (bytes(&bits), expiry));
                int(was_set.into())
            }
            b"GETBIT" => {
                let at = bit_offset(&args[2])?;
                let bits = bits(&value.cloned().unwrap_or_default());
                int(bits.get(at).copied().unwrap_or(false).into())
            }
            b"BITCOUNT" => {
                let (bits, places) =
                    bits_of(&value.cloned().unwrap_or_default(), &args[2..], false)?;
                int(places.filter(|place| bits[*place]).count() as i128)
            }
            b"BITPOS" => {
                let bit = match number(&args[2])? {
                    bit @ 0..=1 => bit == 1,
                    _ => return Err(b"-ERR The bit argument must be 1 or 0.\r\n".to_vec()),
                };
                let (mut range, is_open) = (args[3..].to_vec(), args.len() < 5);
                if args.len() == 4 {
                    range.push(b"-1".to_vec());
                }
                let (bits, places) = bits_of(&value.cloned().unwrap_or_default(), &range, true)?;
                let places: Vec<usize> = places.collect();
                let end = (is_open && !bit && !places.is_empty()).then_some(bits.len());
                let absent = (value.is_none() && !bit).then_some(0);
                let found = places.into_iter().find(|place| bits[*place] == bit);
                int(found.or(end).or(absent).map_or(-1, |place| place as i128))
            }
            b"GETSET" => {
                self.keys.insert(key, (args[2].clone(), None));
                bulk(value)
            }
            b"GETDEL" => {
                self.keys.remove(&key);
                bulk(value)
            }
            b"STRLEN" => int(value.map_or(0, Vec::len) as i128),
            b"APPEND" => {
                let (mut value, at) = old.unwrap_or_default();
                value.extend_from_slice(&args[2]);
                let len = value.len();
                self.keys.insert(key, (value, at));
                int(len as i128)
            }
            b"INCR" => return self.add(key, 1),
            b"DECR" => return self.add(key, -1),
            b"INCRBY" => return self.add(key, number(&args[2])?),
            b"DECRBY" => {
                let by = number(&args[2])?;
                if by == i128::from(i64::MIN) {
                    return Err(b"-ERR decrement would overflow\r\n".to_vec());
                }
                return self.add(key, -by);
            }
            b"MGET" => {
                let values = args[1..].iter().map(|key| self.keys.get(key));
                let bulks = values.flat_map(|found| bulk(found.map(|(value, _)| value)));
                let header = format!("*{}\r\n", args.len() - 1).into_bytes();
                header.into_iter().chain(bulks).collect()
            }
            b"MSET" => {
                for pair in args[1..].chunks(2) {
                    self.keys.insert(pair[0].clone(), (pair[1].clone(), None));
                }
                OK.into()
            }
            b"MSETNX" => {
                let are_free = args[1..]
                    .chunks(2)
                    .all(|pair| !self.keys.contains_key(&pair[0]));
                for pair in args[1..].chunks(2).filter(|_| are_free) {
                    self.keys.insert(pair[0].clone(), (pair[1].clone(), None));
                }
                int(are_free.into())
            }
            b"BITOP" => return self.combine_bits(args),
            b"BITFIELD" => return self.bitfield(args),
            b"LCS" => {
                let value = |key| self.keys.get(key).map_or(&[][..], |(value, _)| value);
                let (a, b) = (value(&args[1]), value(&args[2]));
                if (a.len() + 1) * (b.len() + 1) > 2 << 20 {
                    let text = "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len\r\n";
                    return Err(text.into());
                }
                let mut lens = vec![0; b.len() + 1];
                for x in a {
                    let mut diagonal = 0;
                    for (j, y) in (1..).zip(b) {
                        let above = lens[j];
                        lens[j] = if x == y {
                            diagonal + 1
                        } else {
                            above.max(lens[j - 1])
                        };
                        diagonal = above;
                    }
                }
                int(lens[b.len()])
            }
            b"DELIFEQ" => {
                let is_equal = value == Some(&args[2]);
                if is_equal {
                    self.keys.remove(&key);
                }
                int(is_equal.into())
            }
            b"DEL" | b"UNLINK" => int(args[1..]
                .iter()
                .filter(|k| self.keys.remove(*k).is_some())
                .count() as i128),
            b"EXISTS" | b"TOUCH" => int(args[1..]
                .iter()
                .filter(|k| self.keys.contains_key(*k))
                .count() as i128),
            b"TYPE" => if old.is_some() {
                "+string\r\n"
            } else {
                "+none\r\n"
            }
            .into(),
            b"RENAME" => {
                let Some(entry) = self.keys.remove(&key) else {
                    return Err(b"-ERR no such key\r\n".to_vec());
                };
                self.keys.insert(args[2].clone(), entry);
                OK.into()
            }
            b"RENAMENX" => {
                let Some(entry) = old else {
                    return Err(b"-ERR no such key\r\n".to_vec());
                };
                let is_free = !self.keys.contains_key(&args[2]);
                if is_free {
                    self.keys.remove(&key);
                    self.keys.insert(args[2].clone(), entry);
                }
                int(is_free.into())
            }
            b"COPY" => {
                if key == args[2] {
                    return Err(b"-ERR source and destination objects are the same\r\n".to_vec());
                }
                let may_write = args.len() > 3 || !self.keys.contains_key(&args[2]);
                let copied = old.filter(|_| may_write);
                let is_copied = copied.is_some();
                if let Some(entry) = copied {
                    self.keys.insert(args[2].clone(), entry);
                }
                int(is_copied.into())
            }
            b"EXPIRE" => return self.expire(args, 1000, self.now, "expire"),
            b"PEXPIRE" => return self.expire(args, 1, self.now, "pexpire"),
            b"EXPIREAT" => return self.expire(args, 1000, 0, "expireat"),
            b"PEXPIREAT" => return self.expire(args, 1, 0, "pexpireat"),
            b"EXPIRETIME" | b"PEXPIRETIME" => match old {
                None => int(-2),
                Some((_, None)) => int(-1),
                Some((_, Some(at))) if args[0][0] == b'P' => int(at),
                Some((_, Some(at))) => int((at + 500) / 1000),
            },
            b"TTL" | b"PTTL" => match old {
                None => int(-2),
                Some((_, None)) => int(-1),
                Some((_, Some(at))) if args[0] == b"PTTL" => int(at - self.now),
                Some((_, Some(at))) => int((at - self.now + 500) / 1000),
            },
            b"PERSIST" => match self.keys.get_mut(&key) {
                Some((_, at @ Some(_))) => {
                    *at = None;
                    int(1)
                }
                _ => int(0),
            },
            other => unreachable!("{other:?}"),
        })
    }

    fn combine_bits(&mut self, args: &[Bytes]) -> Result<Bytes, Bytes> {
        let values = args[3..].iter().map(|key| self.keys.get(key));
        let values: Vec<Bytes> = values
            .map(|found| found.cloned().unwrap_or_default().0)
            .collect();
        let len = values.iter().map(Vec::len).max().unwrap_or(0);
        let is_not = args[1] == b"NOT";
        if is_not && values.len() > 1 {
            return Err(b"-ERR BITOP NOT must be called with a single source key.\r\n".to_vec());
        }
        let byte = |at: usize| {
            let mut bytes = values
                .iter()
                .map(|value| value.get(at).copied().unwrap_or(0));
            let first = bytes.next().unwrap_or(0);
            match &args[1][..] {
                b"AND" => bytes.fold(first, |a, b| a & b),
                b"OR" => bytes.fold(first, |a, b| a | b),
                b"XOR" => bytes.fold(first, |a, b| a ^ b),
                _ => !first,
            }
        };
        let result: Bytes = (0..len).map(byte).collect();
        self.keys.remove(&args[2]);
        if len > 0 {
            self.keys.insert(args[2].clone(), (result, None));
        }
        Ok(int(len as i128))
    }

    /// BITFIELD whose arguments are right, with offsets in bits.
    fn bitfield(&mut self, args: &[Bytes]) -> Result<Bytes, Bytes> {
        let word = |at: usize| String::from_utf8_lossy(&args[at]).into_owned();
        let field = |at: usize| {
            let (kind, offset) = (word(at), word(at + 1));
            let width: usize = kind[1..].parse().expect("a width");
            (
                kind.starts_with('i'),
                width,
                offset.parse::<usize>().expect("an offset"),
            )
        };
        let (old, expiry) = self.keys.get(&args[1]).cloned().unwrap_or_default();
        let mut all = bits(&old);
        let (mut at, mut writes) = (2, false);
        while at < args.len() {
            let name = word(at);
            match &name[..] {
                "OVERFLOW" => at += 2,
                "GET" => at += 3,
                _ => {
                    let (_, width, offset) = field(at + 1);
                    let len = (offset + width).div_ceil(8) * 8;
                    all.resize(all.len().max(len), false);
                    writes = true;
                    at += 4;
                }
            }
        }
        let (mut answers, mut overflow, mut at) = (Vec::new(), "WRAP".to_owned(), 2);
        while at < args.len() {
            let name = word(at);
            if name == "OVERFLOW" {
                overflow = word(at + 1);
                at += 2;
                continue;
            }
            let (is_signed, width, offset) = field(at + 1);
            let bit = |place: usize| i128::from(all.get(place).copied().unwrap_or(false));
            let raw = (offset..offset + width).fold(0, |n, place| n << 1 | bit(place));
            let modulus = 1_i128 << width;
            let signed = |n: i128| {
                if is_signed && n >= modulus / 2 {
                    n - modulus
                } else {
                    n
                }
            };
            let old = signed(raw);
            if name == "GET" {
                answers.push(int(old));
                at += 3;
                continue;
            }
            let operand: i64 = word(at + 3).parse().expect("a number");
            let wanted = match (&name[..], is_signed) {
                ("INCRBY", _) => old + i128::from(operand),
                (_, true) => operand.into(),
                (_, false) => (operand as u64).into(),
            };
            let (min, max) = if is_signed {
                (-modulus / 2, modulus / 2 - 1)
            } else {
                (0, modulus - 1)
            };
            let new = match &overflow[..] {
                _ if min <= wanted && wanted <= max => Some(wanted),
                "SAT" if name == "SET" && is_signed && max - wanted > i64::MAX.into() => Some(max),
                "SAT" => Some(if wanted < min { min } else { max }),
                "WRAP" => Some(signed(wanted.rem_euclid(modulus))),
                _ => None,
            };
            answers.push(match new {
                Some(new) if name == "INCRBY" => int(new),
                Some(_) => int(old),
                None => bulk(None),
            });
            for place in 0..width {
                if let Some(new) = new {
                    all[offset + place] = new >> (width - 1 - place) & 1 == 1;
                }
            }
            at += 4;
        }
        if writes {
            self.keys.insert(args[1].clone(), (bytes(&all), expiry));
        }
        let header = format!("*{}\r\n", answers.len()).into_bytes();
        Ok([header, answers.concat()].concat())
    }

    fn deadline(&self, command: &str, ms: i128, from: i128) -> Result<i128, Bytes> {
        let at = ms + from;
        if ms <= 0 || !within(ms) || !within(at) {
            return Err(format!("-ERR invalid expire time in '{command}' command\r\n").into());
        }
        Ok(at)
    }

    fn set(&mut self, args: &[Bytes]) -> Result<Bytes, Bytes> {
        let (mut condition, mut get, mut keep) = (None, false, false);
        let mut time: Option<(String, Bytes)> = None;
        let mut rest = args[3..].iter();
        while let Some(word) = rest.next() {
            let word = String::from_utf8_lossy(word).to_ascii_uppercase();
            match &word[..] {
                "NX" | "XX" => {
                    if condition.as_ref().is_some_and(|(other, _)| *other != word) {
                        return Err(SYNTAX.into());
                    }
                    condition = Some((word, Vec::new()));
                }
                "IFEQ" => match rest.next() {
                    Some(value) if condition.is_none() => condition = Some((word, value.clone())),
                    _ => return Err(SYNTAX.into()),
                },
                "GET" => get = true,
                "KEEPTTL" if time.is_none() => keep = true,
                "EX" | "PX" | "EXAT" | "PXAT" if !keep => {
                    if time.as_ref().is_some_and(|(other, _)| *other != word) {
                        return Err(SYNTAX.into());
                    }
                    time = Some((word, rest.next().ok_or(SYNTAX)?.clone()));
                }
                _ => return Err(SYNTAX.into()),
            }
        }
        let old = self.keys.get(&args[1]).cloned();
        let mut at = old.as_ref().and_then(|(_, at)| at.filter(|_| keep));
        if let Some((unit, value)) = time {
            let unit_ms = if unit.starts_with('P') { 1 } else { 1000 };
            let from = if unit.ends_with("AT") { 0 } else { self.now };
            at = Some(self.deadline("set", number(&value)? * unit_ms, from)?);
        }
        let holds = match &condition {
            None => true,
            Some((word, _)) if word == "NX" => old.is_none(),
            Some((word, _)) if word == "XX" => old.is_some(),
            Some((_, value)) => old.as_ref().is_some_and(|(old, _)| old == value),
        };
        if holds {
            self.keys.insert(args[1].clone(), (args[2].clone(), at));
            self.set_now(self.now);
        }
        Ok(match (get, holds) {
            (true, _) => bulk(old.as_ref().map(|(value, _)| value)),
            (false, true) => OK.into(),
            (false, false) => bulk(None),
        })
    }

    fn add(&mut self, key: Bytes, by: i128) -> Result<Bytes, Bytes> {
        let (old, at) = self
            .keys
            .get(&key)
            .cloned()
            .unwrap_or((b"0".to_vec(), None));
        let new = number(&old)? + by;
        if !within(new) {
            return Err(b"-ERR increment or decrement would overflow\r\n".to_vec());
        }
        self.keys.insert(key, (new.to_string().into_bytes(), at));
        Ok(int(new))
    }

    fn get_and_expire(&mut self, args: &[Bytes]) -> Result<Bytes, Bytes> {
        let mut option: Option<(String, Bytes)> = None;
        let mut rest = args[2..].iter();
        while let Some(word) = rest.next() {
            let word = String::from_utf8_lossy(word).to_ascii_uppercase();
            let time = match &word[..] {
                "PERSIST" => Vec::new(),
                "EX" | "PX" | "EXAT" | "PXAT" => rest.next().ok_or(SYNTAX)?.clone(),
                _ => return Err(SYNTAX.into()),
            };
            if option.as_ref().is_some_and(|(other, _)| *other != word) {
                return Err(SYNTAX.into());
            }
            option = Some((word, time));
        }
        let Some((value, old_at)) = self.keys.get(&args[1]).cloned() else {
            return Ok(bulk(None));
        };
        let at = match option {
            None => old_at,
            Some((word, _)) if word == "PERSIST" => None,
            Some((unit, time)) => {
                let unit_ms = if unit.starts_with('P') { 1 } else { 1000 };
                let from = if unit.ends_with("AT") { 0 } else { self.now };
                Some(self.deadline("getex", number(&time)? * unit_ms, from)?)
            }
        };
        self.keys.insert(args[1].clone(), (value.clone(), at));
        self.set_now(self.now);
        Ok(bulk(Some(&value)))
    }

    fn expire(
        &mut self,
        args: &[Bytes],
        unit_ms: i128,
        from: i128,
        name: &str,
    ) -> Result<Bytes, Bytes> {
        let has = |word: &[u8]| args[3..].iter().any(|arg| arg.eq_ignore_ascii_case(word));
        let (nx, xx, gt, lt) = (has(b"NX"), has(b"XX"), has(b"GT"), has(b"LT"));
        if nx && (xx || gt || lt) {
            let text = "-ERR NX and XX, GT or LT options at the same time are not compatible\r\n";
            return Err(text.into());
        }
        if gt && lt {
            let text = "-ERR GT and LT options at the same time are not compatible\r\n";
            return Err(text.into());
        }
        let ms = number(&args[2])? * unit_ms;
        let new = ms + from;
        if !within(ms) || !within(new) {
            return Err(format!("-ERR invalid expire time in '{name}' command\r\n").into());
        }
        let Some((_, at)) = self.keys.get_mut(&args[1]) else {
            return Ok(int(0));
        };
        let never = i128::MAX;
        let current = at.unwrap_or(never);
        let refused = nx && at.is_some()
            || xx && at.is_none()
            || gt && new <= current
            || lt && new >= current;
        if refused {
            return Ok(int(0));
        }
        *at = Some(new);
        self.set_now(self.now);
        Ok(int(1))
    }
}
