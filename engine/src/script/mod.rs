//! Scripts: Lua 5.1 in Redis's sandbox, for one shard.
//!
//! ```text
//! EVAL ─> Scripts::find ─> Script          compiled here, or known to the node (`library`)
//!               └─> Scripts::run ─> prelude.lua ─> the script ─> redis.call ─> Host::call
//! ```
//!
//! A shard has a state from its first script on. What a script may take is bounded (`limits`): its time by a hook of every 128
//! instructions and by looks in all that works long for one of them; its memory by the allocator's limit; the thread's
//! stack by Lua's own count of nested calls, and by bounds on what it does not count (coroutines, patterns). A script that
//! passes a limit cannot catch that, and its state is thrown away.
//!
//! *Invariant:* functions of Rust that Lua calls never call Lua, so the stack has no more than one of them at a time.

mod bits;
mod cjson;
mod cmsgpack;
mod flags;
pub mod functions;
pub mod library;
mod limits;
mod native;
mod number;
mod offered;
mod pattern;
mod random;
mod replies;
mod state;
mod structs;
mod text;

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use ephesus_wire::resp::reply::Protocol;
use sha1::{Digest, Sha1};

use crate::command::error::ClientError;
pub use flags::Flags;
use functions::{Functions, SharedLibraries};
use library::{Library, SCRIPT_BYTES_MAX, Sha};
pub use limits::{MEMORY_BYTES_MAX, Stop};
use state::{Purpose, State};

/// What scripts may call.
pub trait Host {
    /// Executes a command and appends its reply, which may be an error.
    ///
    /// # Errors
    /// The script has to end.
    fn call(&mut self, args: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>)
    -> Result<(), Stop>;
}

/// A script, or a function of a library, that was compiled by this shard.
pub struct Script {
    /// By which EVALSHA or FCALL calls it.
    pub name: Box<str>,
    pub flags: Flags,
    function: mlua::Function,
    is_of_library: bool,
}

/// Bytes of scripts that one shard has compiled; then it begins anew.
const COMPILED_BYTES_MAX: usize = 4 << 20;

/// What one counts beside its text.
const COMPILED_OVERHEAD_BYTES: usize = 4096;

/// The scripts of one shard.
#[derive(Default)]
pub struct Scripts {
    state: Option<Box<State>>,
    by_sha: HashMap<Sha, Rc<Script>, ahash::RandomState>,
    by_body: HashMap<Box<[u8]>, Rc<Script>, ahash::RandomState>,
    compiled_bytes: usize,
    /// Of the node's library, when these were compiled.
    flushes: u64,
    functions: Functions,
}

/// The name of a script's text.
#[must_use]
pub fn sha_of(body: &[u8]) -> Sha {
    Sha1::digest(body).into()
}

/// As 40 hex digits.
#[must_use]
pub fn hex(sha: &Sha) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(40);
    for byte in sha {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The name of a script that a client gives, in any case.
#[must_use]
pub fn parse_sha(name: &[u8]) -> Option<Sha> {
    let mut sha = Sha::default();
    if name.len() != 40 {
        return None;
    }
    for (byte, digits) in sha.iter_mut().zip(name.chunks_exact(2)) {
        let digits = std::str::from_utf8(digits).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(sha)
}

impl Scripts {
    /// Forgets what was compiled before the node's scripts were flushed.
    fn review(&mut self, library: &Library) {
        let flushes = library.flushes();
        if self.flushes != flushes {
            self.flushes = flushes;
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.by_sha.clear();
        self.by_body.clear();
        self.compiled_bytes = 0;
        self.state = None;
    }

    /// The script of a text, for EVAL.
    ///
    /// # Errors
    /// It does not compile, or is too long.
    pub fn of_body(&mut self, library: &Library, body: &[u8]) -> Result<Rc<Script>, ClientError> {
        self.review(library);
        if let Some(script) = self.by_body.get(body) {
            return Ok(Rc::clone(script));
        }
        let sha = sha_of(body);
        let script = self.compiled(sha, body)?;
        library.add(sha, body, false)?;
        self.by_body.insert(body.into(), Rc::clone(&script));
        Ok(script)
    }

    /// The script of a name, for EVALSHA.
    ///
    /// # Errors
    /// [`ClientError::NoScript`].
    pub fn of_name(&mut self, library: &Library, name: &[u8]) -> Result<Rc<Script>, ClientError> {
        self.review(library);
        let sha = parse_sha(name).ok_or(ClientError::NoScript)?;
        if let Some(script) = self.by_sha.get(&sha) {
            return Ok(Rc::clone(script));
        }
        let body = library.get(&sha).ok_or(ClientError::NoScript)?;
        self.compiled(sha, &body)
    }

    /// Keeps a script for the node, for SCRIPT LOAD.
    ///
    /// # Errors
    /// It does not compile, or there is no room.
    pub fn load(&mut self, library: &Library, body: &[u8]) -> Result<Sha, ClientError> {
        self.review(library);
        let sha = sha_of(body);
        self.compiled(sha, body)?;
        library.add(sha, body, true)?;
        Ok(sha)
    }

    fn compiled(&mut self, sha: Sha, body: &[u8]) -> Result<Rc<Script>, ClientError> {
        if let Some(script) = self.by_sha.get(&sha) {
            return Ok(Rc::clone(script));
        }
        if body.len() > SCRIPT_BYTES_MAX {
            return Err(ClientError::ArgumentTooLong("script", SCRIPT_BYTES_MAX));
        }
        let (flags, code) = flags::parse(body)?;
        let bytes = body.len() + COMPILED_OVERHEAD_BYTES;
        if self.compiled_bytes + bytes > COMPILED_BYTES_MAX {
            self.forget();
        }
        let function = match self.state()?.compile(code) {
            Ok(function) => function,
            Err(error) => {
                let text = state::first_text(&error);
                if state::is_memory(&error) {
                    self.forget();
                }
                return Err(ClientError::ScriptSyntax(text.into()));
            }
        };
        let script = Rc::new(Script {
            name: hex(&sha).into(),
            flags,
            function,
            is_of_library: false,
        });
        self.compiled_bytes += bytes;
        self.by_sha.insert(sha, Rc::clone(&script));
        Ok(script)
    }

    fn state(&mut self) -> Result<&mut State, ClientError> {
        match &mut self.state {
            Some(state) => Ok(state),
            none => Ok(none.insert(new_state(Purpose::Scripts)?)),
        }
    }

    /// The function of a name, for FCALL; a library that was not needed before is loaded.
    ///
    /// # Errors
    /// There is none, or its library cannot be loaded here now.
    pub fn of_library(
        &mut self,
        libraries: &SharedLibraries,
        name: &[u8],
        time_max: Duration,
    ) -> Result<Rc<Script>, ClientError> {
        self.functions.find(libraries, name, time_max)
    }

    /// Carries out a script and appends its reply, which may be an error.
    ///
    /// # Errors
    /// It was ended: nothing that it has done may stay.
    pub fn run(
        &mut self,
        script: &Script,
        (keys, argv): (&[&[u8]], &[&[u8]]),
        host: &mut dyn Host,
        limits: RunLimits,
        out: &mut Vec<u8>,
    ) -> Result<(), NotDone> {
        if script.is_of_library {
            return self.functions.run(script, (keys, argv), host, limits, out);
        }
        let Some(state) = &mut self.state else {
            return Err(NotDone::Stopped(Stop::Memory));
        };
        let outcome = state.run(script, (keys, argv), host, limits, out);
        let is_broken = matches!(outcome, Err(NotDone::Stopped(_)));
        if is_broken || !state.settle() {
            self.forget();
        }
        outcome
    }

    /// Memory of the states: of scripts, and of functions.
    #[must_use]
    pub fn memory_bytes(&self) -> (usize, usize) {
        let scripts = self.state.as_ref().map_or(0, |state| state.memory_bytes());
        (scripts, self.functions.memory_bytes())
    }
}

fn new_state(purpose: Purpose) -> Result<Box<State>, ClientError> {
    State::new(purpose).map(Box::new).map_err(|error| {
        tracing::error!(%error, "Lua does not start");
        ClientError::ScriptMemory(limits::MEMORY_BYTES_MAX)
    })
}

/// What one run may take, and how its reply is written.
#[derive(Clone, Copy)]
pub struct RunLimits {
    pub time: Duration,
    pub reply_bytes: usize,
    pub protocol: Protocol,
}

/// Why a script has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDone {
    Stopped(Stop),
    /// Its reply is too long.
    ReplyTooLong,
}

#[cfg(test)]
mod tests;
