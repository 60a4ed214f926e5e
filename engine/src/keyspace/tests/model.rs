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
            b"SETEX" => {
                let at = self.deadline("setex", number(&args[2])? * 1000, self.now)?;
                self.keys.insert(key, (args[3].clone(), Some(at)));
                OK.into()
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
            b"DEL" | b"UNLINK" => int(args[1..]
                .iter()
                .filter(|k| self.keys.remove(*k).is_some())
                .count() as i128),
            b"EXISTS" => int(args[1..]
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
            b"EXPIRE" => return self.expire(args, 1000, "expire"),
            b"PEXPIRE" => return self.expire(args, 1, "pexpire"),
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

    fn expire(&mut self, args: &[Bytes], unit_ms: i128, name: &str) -> Result<Bytes, Bytes> {
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
        let new = ms + self.now;
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
