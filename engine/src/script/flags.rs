//! What the first line of a script may say: `#!lua flags=no-writes,allow-oom`.

use crate::command::error::{ClientError, Quoted};

/// How a script says that it behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// It begins with such a line at all: then Redis takes its word, and else looks at each of its commands.
    pub is_declared: bool,
    pub no_writes: bool,
    pub allow_oom: bool,
    pub no_cluster: bool,
    pub allow_cross_slot_keys: bool,
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
            match name {
                b"no-writes" => flags.no_writes = true,
                b"allow-oom" => flags.allow_oom = true,
                b"no-cluster" => flags.no_cluster = true,
                b"allow-cross-slot-keys" => flags.allow_cross_slot_keys = true,
                b"allow-stale" => {}
                _ => return Err(ClientError::ScriptFlag(Quoted::new(name))),
            }
        }
    }
    Ok((flags, code))
}
