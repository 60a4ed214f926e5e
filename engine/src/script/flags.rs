//! What the first line of a script may say: `#!lua flags=no-writes,allow-oom`.

use crate::command::error::{ClientError, Quoted};

/// How a script says that it behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// It begins with such a line at all: then Redis takes its word, and else looks at each of its commands.
    pub is_declared: bool,
    pub no_writes: bool,
    pub allow_oom: bool,
    pub allow_stale: bool,
    pub no_cluster: bool,
    pub allow_cross_slot_keys: bool,
}

impl Flags {
    /// Sets a flag by its name; false if there is none of that name.
    pub fn set(&mut self, name: &[u8]) -> bool {
        match name {
            b"no-writes" => self.no_writes = true,
            b"allow-oom" => self.allow_oom = true,
            b"allow-stale" => self.allow_stale = true,
            b"no-cluster" => self.no_cluster = true,
            b"allow-cross-slot-keys" => self.allow_cross_slot_keys = true,
            _ => return false,
        }
        true
    }

    /// The names of those that are set, in Redis's order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let all = [
            (self.no_writes, "no-writes"),
            (self.allow_oom, "allow-oom"),
            (self.allow_stale, "allow-stale"),
            (self.no_cluster, "no-cluster"),
            (self.allow_cross_slot_keys, "allow-cross-slot-keys"),
        ];
        all.into_iter()
            .filter(|(is_set, _)| *is_set)
            .map(|(_, name)| name)
    }
}

/// The flags of a script, and its code: line numbers stay what they are.
///
/// # Errors
/// A first line that cannot be read, in Redis's words.
pub fn parse(body: &[u8]) -> Result<(Flags, &[u8]), ClientError> {
    if !body.starts_with(b"#!") {
        return Ok((Flags::default(), body));
    }
    let end = body.iter().position(|&byte| byte == b'\n');
    let end = end.ok_or(ClientError::ScriptShebang)?;
    let (line, code) = body.split_at(end);
    let mut words = line.split(|&byte| byte == b' ').filter(|w| !w.is_empty());
    let engine = words.next().unwrap_or_default();
    if engine != b"#!lua" {
        return Err(ClientError::ScriptEngine(Quoted::new(engine)));
    }
    let mut flags = Flags {
        is_declared: true,
        ..Flags::default()
    };
    for word in words {
        let Some(names) = word.strip_prefix(b"flags=") else {
            return Err(ClientError::ScriptOption(Quoted::new(word)));
        };
        for name in names.split(|&byte| byte == b',').filter(|n| !n.is_empty()) {
            if !flags.set(name) {
                return Err(ClientError::ScriptFlag(Quoted::new(name)));
            }
        }
    }
    Ok((flags, code))
}
