//! What ACL LOG shows: who tried what it may not.

use std::collections::VecDeque;

use ephesus_wire::resp::reply::{self, Protocol};

/// Entries that are kept if nobody says how many.
pub const ENTRIES_MAX_DEFAULT: usize = 128;

/// The same within so many milliseconds is counted instead of noted again.
const SAME_MS: u64 = 60_000;

/// The last entries that are compared with a new one.
const COMPARED: usize = 10;

/// Longest part of a key or of a user's name that is kept, bytes.
const KEPT_BYTES: usize = 256;

/// Where a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    Toplevel,
    Multi,
    Script,
}

impl Context {
    fn name(self) -> &'static str {
        match self {
            Context::Toplevel => "toplevel",
            Context::Multi => "multi",
            Context::Script => "lua",
        }
    }
}

/// One thing that was refused. There is no password in it.
#[derive(Clone, Debug)]
pub struct Attempt<'a> {
    /// `auth`, `command`, `key` or `channel`.
    pub reason: &'static str,
    pub context: Context,
    /// The command, the key or the channel.
    pub object: &'a [u8],
    pub user: &'a [u8],
    /// As CLIENT LIST shows the connection.
    pub client: String,
}

#[derive(Debug)]
struct Entry {
    count: u64,
    reason: &'static str,
    context: Context,
    object: Box<[u8]>,
    user: Box<[u8]>,
    client: String,
    id: u64,
    created_ms: u64,
    updated_ms: u64,
}

/// The newest entries, the last one first.
#[derive(Debug, Default)]
pub struct DeniedLog {
    entries: VecDeque<Entry>,
    next_id: u64,
}

impl DeniedLog {
    /// Notes an attempt at `now_ms`; at most `entries_max` are kept.
    pub fn add(&mut self, attempt: Attempt<'_>, now_ms: u64, entries_max: usize) {
        let (object, user) = (kept(attempt.object), kept(attempt.user));
        let last = self.entries.iter().take(COMPARED);
        let same = last.into_iter().position(|entry| {
            (entry.reason, entry.context) == (attempt.reason, attempt.context)
                && now_ms.saturating_sub(entry.updated_ms) <= SAME_MS
                && (&*entry.object, &*entry.user) == (object, user)
        });
        let entry = match same.and_then(|index| self.entries.remove(index)) {
            Some(entry) => Entry {
                count: entry.count + 1,
                client: attempt.client,
                updated_ms: now_ms,
                ..entry
            },
            None => {
                self.next_id += 1;
                Entry {
                    count: 1,
                    reason: attempt.reason,
                    context: attempt.context,
                    object: object.into(),
                    user: user.into(),
                    client: attempt.client,
                    id: self.next_id - 1,
                    created_ms: now_ms,
                    updated_ms: now_ms,
                }
            }
        };
        self.entries.push_front(entry);
        self.entries.truncate(entries_max);
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Appends the reply with the last `count` entries.
    pub fn write(&self, out: &mut Vec<u8>, protocol: Protocol, count: usize, now_ms: u64) {
        let count = count.min(self.entries.len());
        reply::array(out, count);
        for entry in self.entries.iter().take(count) {
            entry.write(out, protocol, now_ms);
        }
    }
}

impl Entry {
    fn write(&self, out: &mut Vec<u8>, protocol: Protocol, now_ms: u64) {
        reply::map(out, protocol, 10);
        reply::bulk(out, b"count");
        reply::integer(out, self.count.cast_signed());
        let texts: [(&str, &[u8]); 4] = [
            ("reason", self.reason.as_bytes()),
            ("context", self.context.name().as_bytes()),
            ("object", &self.object),
            ("username", &self.user),
        ];
        for (name, text) in texts {
            reply::bulk(out, name.as_bytes());
            reply::bulk(out, text);
        }
        reply::bulk(out, b"age-seconds");
        let age_ms = now_ms.saturating_sub(self.updated_ms);
        reply::double(out, protocol, age_ms as f64 / 1000.0);
        reply::bulk(out, b"client-info");
        reply::bulk(out, self.client.as_bytes());
        let numbers = [
            ("entry-id", self.id),
            ("timestamp-created", self.created_ms),
            ("timestamp-last-updated", self.updated_ms),
        ];
        for (name, number) in numbers {
            reply::bulk(out, name.as_bytes());
            reply::integer(out, number.cast_signed());
        }
    }
}

/// As much of it as is kept.
pub fn kept(text: &[u8]) -> &[u8] {
    text.get(..KEPT_BYTES).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use ephesus_wire::resp::value::{Value, decode};

    use super::*;

    fn attempt(object: &str) -> Attempt<'_> {
        Attempt {
            reason: "key",
            context: Context::Toplevel,
            object: object.as_bytes(),
            user: b"alice",
            client: "id=1".to_owned(),
        }
    }

    fn shown(log: &DeniedLog, now_ms: u64) -> Vec<(i64, String)> {
        let mut out = Vec::new();
        log.write(&mut out, Protocol::Resp3, usize::MAX, now_ms);
        let (value, _) = decode(&out).expect("valid").expect("complete");
        let Value::Array(entries) = value else {
            panic!("not a list: {value:?}")
        };
        let entries = entries.into_iter().map(|entry| {
            let Value::Map(fields) = entry else {
                panic!("not a map: {entry:?}")
            };
            assert_eq!(fields.len(), 10);
            let (Value::Integer(count), Value::Bulk(object)) = (&fields[0].1, &fields[3].1) else {
                panic!("not as Redis has it: {fields:?}")
            };
            (*count, String::from_utf8_lossy(object).into_owned())
        });
        entries.collect()
    }

    #[test]
    fn what_is_tried_again_within_a_minute_is_counted_and_comes_first() {
        let mut log = DeniedLog::default();
        log.add(attempt("a"), 1_000, 3);
        log.add(attempt("b"), 2_000, 3);
        log.add(attempt("a"), 61_000, 3);
        let all = [(2, "a".to_owned()), (1, "b".to_owned())];
        assert_eq!(shown(&log, 61_000), all);
        log.add(attempt("a"), 200_000, 3);
        log.add(attempt("c"), 200_000, 3);
        let all = [
            (1, "c".to_owned()),
            (1, "a".to_owned()),
            (2, "a".to_owned()),
        ];
        assert_eq!(shown(&log, 200_000), all);
        log.clear();
        assert_eq!(shown(&log, 200_000), []);
    }

    #[test]
    fn long_keys_are_cut() {
        let mut log = DeniedLog::default();
        log.add(attempt(&"k".repeat(10_000)), 0, 1);
        assert_eq!(shown(&log, 0)[0].1.len(), KEPT_BYTES);
    }
}
