//! One state of Lua: its libraries, its limits, and how a script is carried out in it.

use std::cell::Cell;
use std::ffi::c_int;
use std::rc::Rc;
use std::time::Duration;

use ephesus_wire::resp::reply;
use mlua::chunk::ChunkMode;
use mlua::state::{GcIncParams, GcMode};
use mlua::{
    Error, Function, HookTriggers, Lua, LuaOptions, LuaString, StdLib, Table, Value, VmState, ffi,
};

use super::limits::{INSTRUCTIONS_BETWEEN_LOOKS, Limits, MEMORY_BYTES_MAX, Stop};
use super::native::{self, Shared};
use super::offered::{HostCell, natives, without_limit};
use super::replies::{NoReply, Writer};
use super::{Flags, Host, NotDone, RunLimits, Script, cjson};

/// What a state carries out, and how that is called in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Scripts,
    /// Of libraries.
    Functions,
}

impl Purpose {
    const fn chunk(self) -> &'static str {
        match self {
            Purpose::Scripts => "@user_script",
            Purpose::Functions => "@user_function",
        }
    }
}

const PRELUDE: &str = include_str!("prelude.lua");

/// Memory beside what was live before, beyond which all garbage is collected between two scripts.
const GARBAGE_BYTES_MAX: usize = 4 << 20;

/// Percent of the live memory at which the next collection begins: early, so that what scripts use stays in the CPU's
/// caches.
const PAUSE: c_int = 150;

pub struct State {
    lua: Lua,
    limits: Shared,
    host: HostCell,
    purpose: Purpose,
    /// Runs a script and answers whether it has succeeded, and what it has answered.
    run: Function,
    /// The same for a function of a library, with its keys and arguments.
    call: Function,
    /// Has a library register its functions: true and these, or false and why not.
    load: Function,
    /// Global names that scripts see.
    globals: Table,
    next: Function,
    names: (LuaString, LuaString),
    /// What was live after the last full collection.
    live_bytes: usize,
    /// What is carried out is called by it, and Lua 5.1's parser does not hold on to it itself.
    _chunk: LuaString,
}

impl State {
    /// A state with all that scripts see.
    pub fn new(purpose: Purpose) -> mlua::Result<State> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::DEBUG;
        // SAFETY: `debug` stays with the prelude, which uses it for places only.
        let lua = unsafe { Lua::unsafe_new_with(libraries, LuaOptions::default()) };
        let limits: Shared = Rc::new(Limits::default());
        let host: HostCell = Rc::default();
        let next: Function = lua.globals().raw_get("next")?;
        lua.set_named_registry_value(cjson::NEXT, &next)?;
        let chunk = lua.create_string(purpose.chunk())?;
        let native = natives(&lua, &limits, &host)?;
        native.raw_set("is_of_functions", purpose == Purpose::Functions)?;
        let globals = lua.create_table()?;
        let visible = lua.create_table()?;
        visible.raw_set("globals", &globals)?;
        visible.raw_set("stand_in", lua.globals())?;
        let prelude = lua.load(PRELUDE).set_name("=redis");
        let (run, call, load) = prelude.call((native, visible))?;
        let looked_at = Rc::clone(&limits);
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_BETWEEN_LOOKS);
        lua.set_global_hook(triggers, move |_, _| {
            looked_at.look()?;
            Ok(VmState::Continue)
        })?;
        lua.gc_collect()?;
        let mut params = GcIncParams::default();
        params.pause = Some(PAUSE);
        lua.gc_set_mode(GcMode::Incremental(params));
        lua.set_memory_limit(MEMORY_BYTES_MAX)?;
        let names = (lua.create_string("KEYS")?, lua.create_string("ARGV")?);
        Ok(State {
            lua,
            limits,
            host,
            purpose,
            run,
            call,
            load,
            globals,
            next,
            names,
            live_bytes: 0,
            _chunk: chunk,
        })
    }

    /// Compiles a script.
    pub fn compile(&self, code: &[u8]) -> mlua::Result<Function> {
        if code.first() == ffi::LUA_SIGNATURE.first() {
            return Err(Error::runtime("attempt to load a binary chunk"));
        }
        let chunk = self.lua.load(code).set_name(self.purpose.chunk());
        chunk.set_mode(ChunkMode::Text).into_function()
    }

    /// Carries out a script.
    pub fn run(
        &mut self,
        script: &Script,
        (keys, argv): (&[&[u8]], &[&[u8]]),
        host: &mut (dyn Host + '_),
        limits: RunLimits,
        out: &mut Vec<u8>,
    ) -> Result<(), NotDone> {
        let start = out.len();
        self.limits.begin(limits.time);
        // SAFETY: only the lifetime goes, and `Calling` takes the pointer away before the host can.
        let host: *mut (dyn Host + 'static) = unsafe { std::mem::transmute(host) };
        let outcome = {
            let _calling = Calling::begin(&self.host, host);
            self.carry_out(script, (keys, argv))
        };
        if let Some(why) = self.limits.stopped() {
            return Err(NotDone::Stopped(why));
        }
        let (succeeded, value) = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return self.failed(&error, out),
        };
        if !succeeded {
            return self.raised(script, &value, out);
        }
        let mut writer = Writer {
            next: &self.next,
            limits: &self.limits,
            protocol: limits.protocol,
            bytes_max: limits.reply_bytes,
            out,
            bytes: 0,
        };
        // What is written goes behind what is there: parts are put together from the end.
        let mut before = std::mem::take(writer.out);
        let written = writer.write(&value, 0);
        let out = writer.out;
        match written {
            Ok(()) if out.len() <= limits.reply_bytes => {
                before.append(out);
                *out = before;
                Ok(())
            }
            Ok(()) | Err(NoReply::TooLong) => {
                before.truncate(start);
                *out = before;
                Err(NotDone::ReplyTooLong)
            }
            Err(NoReply::TooDeep) => {
                reply::error(&mut before, "ERR reached lua stack limit");
                *out = before;
                Ok(())
            }
            Err(NoReply::Lua(error)) => {
                *out = before;
                match self.limits.stopped() {
                    Some(why) => Err(NotDone::Stopped(why)),
                    None => self.failed(&error, out),
                }
            }
        }
    }

    fn carry_out(
        &self,
        script: &Script,
        (keys, argv): (&[&[u8]], &[&[u8]]),
    ) -> mlua::Result<(bool, Value)> {
        let list = |args: &[&[u8]]| {
            let table = self.lua.create_table_with_capacity(args.len(), 0)?;
            for (at, arg) in (1..).zip(args) {
                table.raw_set(at, self.lua.create_string(arg)?)?;
            }
            Ok::<_, Error>(table)
        };
        if self.purpose == Purpose::Functions {
            let given = without_limit(&self.lua, || Ok((list(keys)?, list(argv)?)));
            let (keys, argv) = given?;
            return self.call.call((&script.function, keys, argv));
        }
        without_limit(&self.lua, || {
            self.globals.raw_set(&self.names.0, list(keys)?)?;
            self.globals.raw_set(&self.names.1, list(argv)?)
        })?;
        self.run.call(&script.function)
    }

    /// Has a library register its functions, which takes so long at most.
    ///
    /// # Errors
    /// Why it has none.
    pub fn load(&mut self, code: &[u8], time_max: Duration) -> Result<Vec<Registered>, NotLoaded> {
        let library = match self.compile(code) {
            Ok(library) => library,
            Err(error) if is_memory(&error) => return Err(NotLoaded::Stopped(Stop::Memory)),
            Err(error) => return Err(NotLoaded::Compiling(first_text(&error))),
        };
        self.limits.begin(time_max);
        let outcome = self.load.call::<(bool, Value)>(library);
        if let Some(why) = self.limits.stopped() {
            return Err(NotLoaded::Stopped(why));
        }
        match outcome {
            Ok((true, Value::Table(all))) => {
                let all: mlua::Result<Vec<Registered>> = all
                    .sequence_values()
                    .map(|entry| registered(entry?))
                    .collect();
                all.map_err(|_| NotLoaded::Stopped(Stop::Memory))
            }
            Ok((_, Value::String(text))) => {
                Err(NotLoaded::Registering(one_line(&text.to_string_lossy())))
            }
            Err(error) if !is_memory(&error) => Err(NotLoaded::Registering(first_text(&error))),
            _ => Err(NotLoaded::Stopped(Stop::Memory)),
        }
    }

    /// A script has ended with an error that is no table: it was ended, or Lua has failed.
    fn failed(&self, error: &Error, out: &mut Vec<u8>) -> Result<(), NotDone> {
        if is_memory(error) {
            return Err(NotDone::Stopped(Stop::Memory));
        }
        reply::error(out, &format!("ERR {}", first_text(error)));
        Ok(())
    }

    /// Writes the error that a script has raised.
    fn raised(&self, script: &Script, value: &Value, out: &mut Vec<u8>) -> Result<(), NotDone> {
        let text = |value: Value| native::Text::of(&value).map(|text| text.to_vec());
        let table = match value {
            Value::Table(table) => table,
            Value::Error(error) => return self.failed(error, out),
            Value::String(text) if *text == "not enough memory" => {
                return Err(NotDone::Stopped(Stop::Memory));
            }
            other => {
                let message = text(other.clone());
                let message = message.unwrap_or_else(|| b"unknown error".to_vec());
                let message = String::from_utf8_lossy(&message).into_owned();
                reply::error(out, &format!("ERR {message}"));
                return Ok(());
            }
        };
        let field = |name| Ok::<_, Error>(text(table.raw_get::<Value>(name)?));
        let fields = (field("err"), field("source"), field("line"));
        let (Ok(message), Ok(source), Ok(line)) = fields else {
            return Err(NotDone::Stopped(Stop::Memory));
        };
        let mut written = message.unwrap_or_else(|| b"ERR unknown error".to_vec());
        written.extend_from_slice(format!(" script: {}", script.name).as_bytes());
        if let (Some(source), Some(line)) = (source, line) {
            written.extend_from_slice(b", on ");
            written.extend_from_slice(&source);
            written.push(b':');
            written.extend_from_slice(&line);
            written.push(b'.');
        }
        out.push(b'-');
        out.extend(written.iter().map(|&byte| match byte {
            b'\r' | b'\n' => b' ',
            byte => byte,
        }));
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Makes room for the next script; false if the state is to be replaced.
    pub fn settle(&mut self) -> bool {
        if self.lua.used_memory() > self.live_bytes + GARBAGE_BYTES_MAX {
            if self.forget_given().is_err() || self.lua.gc_collect().is_err() {
                return false;
            }
            self.live_bytes = self.lua.used_memory();
            return self.live_bytes < MEMORY_BYTES_MAX / 2;
        }
        true
    }

    /// Empties KEYS and ARGV.
    fn forget_given(&self) -> mlua::Result<()> {
        if self.purpose == Purpose::Functions {
            return Ok(());
        }
        self.globals
            .raw_set(&self.names.0, self.lua.create_table()?)?;
        self.globals.raw_set(&self.names.1, Value::Nil)
    }

    /// Memory of what is not garbage.
    pub fn live_bytes(&self) -> usize {
        // What fails to be collected counts.
        let _ = self.lua.gc_collect();
        self.lua.used_memory()
    }

    pub fn memory_bytes(&self) -> usize {
        self.lua.used_memory()
    }
}

/// A function of a library.
pub struct Registered {
    pub name: Box<[u8]>,
    pub description: Option<Box<[u8]>>,
    pub flags: Flags,
    pub function: Function,
}

/// Why a library has no functions.
#[derive(Debug)]
pub enum NotLoaded {
    Compiling(String),
    Registering(String),
    Stopped(Stop),
}

/// A function as the prelude has noted it.
fn registered(entry: Table) -> mlua::Result<Registered> {
    let mut flags = Flags {
        is_declared: true,
        ..Flags::default()
    };
    for pair in entry.raw_get::<Table>("flags")?.pairs::<LuaString, bool>() {
        flags.set(&pair?.0.as_bytes());
    }
    let description: Option<LuaString> = entry.raw_get("description")?;
    Ok(Registered {
        name: (&*entry.raw_get::<LuaString>("name")?.as_bytes()).into(),
        description: description.map(|text| (&*text.as_bytes()).into()),
        flags,
        function: entry.raw_get("callback")?,
    })
}

/// Has the host where `redis.call` finds it, until dropped.
struct Calling<'a>(&'a Cell<Option<*mut dyn Host>>);

impl<'a> Calling<'a> {
    fn begin(cell: &'a Cell<Option<*mut dyn Host>>, host: *mut (dyn Host + 'static)) -> Self {
        cell.set(Some(host));
        Calling(cell)
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// Whether an error says that memory was refused.
pub fn is_memory(error: &Error) -> bool {
    match error {
        Error::MemoryError(_) => true,
        Error::CallbackError { cause, .. } | Error::WithContext { cause, .. } => is_memory(cause),
        _ => false,
    }
}

/// What is told of an error at most.
const TOLD_CHARS_MAX: usize = 1024;

/// A text as a part of an error's reply, which is one line.
fn one_line(text: &str) -> String {
    let is_end = |c| matches!(c, '\r' | '\n');
    let chars = text.chars().take(TOLD_CHARS_MAX);
    chars.map(|c| if is_end(c) { ' ' } else { c }).collect()
}

/// The first line of an error.
pub fn first_text(error: &Error) -> String {
    let text = match error {
        Error::SyntaxError { message, .. } | Error::RuntimeError(message) => message.clone(),
        Error::CallbackError { cause, .. } => first_text(cause),
        other => other.to_string(),
    };
    one_line(text.lines().next().unwrap_or_default())
}
