//! What the prelude is given: functions of Rust, and above all `redis.call`.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::rc::Rc;

use ephesus_wire::limits::QUERY_BYTES_MAX;
use ephesus_wire::resp::reply::{self, Protocol};
use mlua::chunk::ChunkMode;
use mlua::state::RawLua;
use mlua::{Error, FromLuaMulti, Lua, LuaString, MultiValue, Table, Value, ffi};

use super::functions::{BYTES_MAX, OVERHEAD_BYTES};
use super::limits::{Limits, MEMORY_BYTES_MAX};
use super::native::{self, Outcome, Shared, fault};
use super::{Host, bits, cjson, cmsgpack, hex, number, replies, sha_of, structs, text};
use crate::command::info::REDIS_VERSION;

/// Replies that need no limit of their own: few values, by which the memory's limit may be passed.
const SMALL_REPLY_BYTES_MAX: usize = 4096;

/// Where the host of the script that runs is.
pub(super) type HostCell = Rc<Cell<Option<*mut dyn Host>>>;

/// What the prelude is given.
pub(super) fn natives(lua: &Lua, limits: &Shared, host: &HostCell) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    type Body = fn(&Lua, &Limits, &native::Arguments) -> Outcome<MultiValue>;
    let functions: [(&'static str, &'static str, Body); 27] = [
        ("find", "find", text::find),
        ("match", "match", text::match_),
        ("scan", "gmatch", text::scan),
        ("gsub", "gsub", text::gsub),
        ("rep", "rep", text::rep),
        ("lower", "lower", text::lower),
        ("upper", "upper", text::upper),
        ("reverse", "reverse", text::reverse),
        ("compile", "loadstring", compile),
        ("random", "random", random),
        ("randomseed", "randomseed", random_seed),
        ("json_encode", "encode", cjson::encode),
        ("json_decode", "decode", cjson::decode),
        (
            "json_sparse_array",
            "encode_sparse_array",
            cjson::sparse_array,
        ),
        (
            "json_encode_max_depth",
            "encode_max_depth",
            cjson::encode_max_depth,
        ),
        (
            "json_decode_max_depth",
            "decode_max_depth",
            cjson::decode_max_depth,
        ),
        (
            "json_number_precision",
            "encode_number_precision",
            cjson::number_precision,
        ),
        ("json_keep_buffer", "encode_keep_buffer", cjson::keep_buffer),
        (
            "json_encode_invalid",
            "encode_invalid_numbers",
            cjson::encode_invalid,
        ),
        (
            "json_decode_invalid",
            "decode_invalid_numbers",
            cjson::decode_invalid,
        ),
        ("msgpack_pack", "pack", cmsgpack::pack),
        ("msgpack_unpack", "unpack", cmsgpack::unpack),
        ("msgpack_unpack_one", "unpack_one", cmsgpack::unpack_one),
        (
            "msgpack_unpack_limit",
            "unpack_limit",
            cmsgpack::unpack_limit,
        ),
        ("struct_pack", "pack", structs::pack),
        ("struct_unpack", "unpack", structs::unpack),
        ("struct_size", "size", structs::size),
    ];
    for (name, shown, body) in functions {
        table.raw_set(name, native::function(lua, limits, shown, body)?)?;
    }
    table.raw_set("bit", bits::library(lua, limits)?)?;
    table.raw_set("null", cjson::NULL)?;
    table.raw_set("version", REDIS_VERSION)?;
    table.raw_set("version_number", version_number())?;
    table.raw_set("function_bytes", OVERHEAD_BYTES)?;
    table.raw_set("library_bytes_max", BYTES_MAX)?;
    let shared = Rc::clone(limits);
    table.raw_set("enter", lua.create_function(move |_, ()| shared.enter())?)?;
    let shared = Rc::clone(limits);
    let leave = lua.create_function(move |_, ()| {
        shared.leave();
        Ok(())
    })?;
    table.raw_set("leave", leave)?;
    let shared = Rc::clone(limits);
    let work = lua.create_function(move |_, units: usize| shared.work(units))?;
    table.raw_set("work", work)?;
    let shared = Rc::clone(limits);
    let setresp = lua.create_function(move |_, version: i64| {
        shared.is_resp3.set(version == 3);
        Ok(())
    })?;
    table.raw_set("setresp", setresp)?;
    let sha1 = |lua: &Lua, body: LuaString| lua.create_string(hex(&sha_of(&body.as_bytes())));
    table.raw_set("sha1hex", lua.create_function(sha1)?)?;
    let shared = Rc::clone(limits);
    let log = lua.create_function(move |_, (level, text)| {
        if shared.may_log() {
            log(level, &text);
        }
        Ok(())
    })?;
    table.raw_set("log", log)?;
    table.raw_set("error_text", lua.create_function(error_text)?)?;
    let (shared, host) = (Rc::clone(limits), Rc::clone(host));
    let call =
        lua.create_function(move |lua, call: Call| redis_call(lua, &shared, &host, &call))?;
    table.raw_set("pcall", &call)?;
    lua.set_named_registry_value(CALL, call)?;
    // SAFETY: it keeps Lua's rules for functions of C.
    table.raw_set("call", unsafe { lua.create_c_function(call_or_raise) }?)?;
    // SAFETY: it does so, too.
    table.raw_set("check", unsafe { lua.create_c_function(check) }?)?;
    Ok(table)
}

/// Where [`call_or_raise`] finds what it calls.
const CALL: &str = "redis.call";
const CALL_NAME: &CStr = c"redis.call";

/// `redis.call`, which raises errors. As it is one of C, a script that ends with `return redis.call(...)` is still there
/// to be named when it raises one.
unsafe extern "C-unwind" fn call_or_raise(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: Lua gives every function of C room for twenty values beside its arguments; nothing here is dropped when
    // Lua leaves it by a jump.
    unsafe {
        let count = ffi::lua_gettop(state);
        ffi::lua_getfield(state, ffi::LUA_REGISTRYINDEX, CALL_NAME.as_ptr());
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, count, 2);
        let is_error = ffi::lua_toboolean(state, -1) != 0;
        ffi::lua_settop(state, -2);
        if is_error {
            ffi::lua_error(state);
        }
    }
    1
}

/// Makes a function of one that answers true and its results, or false and a message: it raises the message, at the place
/// of its call. It is one of C for the same reason.
unsafe extern "C-unwind" fn check(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        ffi::lua_settop(state, 1);
        ffi::lua_pushcclosure(state, call_checked, 1);
    }
    1
}

unsafe extern "C-unwind" fn call_checked(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as above; the function is the only value that this one keeps.
    unsafe {
        let count = ffi::lua_gettop(state);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, count, ffi::LUA_MULTRET);
        if ffi::lua_toboolean(state, 1) == 0 {
            ffi::luaL_where(state, 1);
            ffi::lua_pushvalue(state, 2);
            ffi::lua_concat(state, 2);
            ffi::lua_error(state);
        }
        ffi::lua_gettop(state) - 1
    }
}

/// A command: its reply, and true if it is an error.
fn redis_call(
    lua: &Lua,
    limits: &Limits,
    host: &Cell<Option<*mut dyn Host>>,
    call: &Call,
) -> mlua::Result<(Value, Option<bool>)> {
    limits.look()?;
    let error = |text: &str| {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set("err", text)?;
        Ok((Value::Table(table), Some(true)))
    };
    if let Some(text) = call.fault {
        return error(text);
    }
    let Some(host) = host.get() else {
        return error("ERR redis.call outside of a script");
    };
    let protocol = match limits.is_resp3.get() {
        true => Protocol::Resp3,
        false => Protocol::Resp2,
    };
    let mut reply = Vec::new();
    // SAFETY: `Calling` has the host here while the script runs, which nobody else uses meanwhile, and a host does not
    // call Lua.
    let called = unsafe { (*host).call(&call.args(), protocol, &mut reply) };
    called.map_err(|why| limits.stop(why))?;
    let (value, is_error) = match reply.len() {
        ..=SMALL_REPLY_BYTES_MAX => without_limit(lua, || replies::to_lua(lua, &reply))?,
        _ => replies::to_lua(lua, &reply)?,
    };
    Ok((value, is_error.then_some(true)))
}

/// Makes values whose size is bounded otherwise, so that the memory's limit needs not end it in the middle: as long as
/// it may, each step is a protected call, with closures that are garbage afterwards. What is made is counted.
pub(super) fn without_limit<T>(
    lua: &Lua,
    make: impl FnOnce() -> mlua::Result<T>,
) -> mlua::Result<T> {
    if lua.used_memory() >= MEMORY_BYTES_MAX {
        return make();
    }
    lua.set_memory_limit(0)?;
    let made = make();
    lua.set_memory_limit(MEMORY_BYTES_MAX)?;
    made
}

fn compile(lua: &Lua, limits: &Limits, arguments: &native::Arguments) -> Outcome<MultiValue> {
    let (text, name) = (arguments.text(0)?, arguments.text(1)?);
    limits.work(text.len())?;
    if text.first() == ffi::LUA_SIGNATURE.first() {
        return Err(fault("attempt to load a binary chunk"));
    }
    let end = name.iter().position(|&byte| byte == 0);
    let name = name.get(..end.unwrap_or(name.len())).unwrap_or_default();
    let name = String::from_utf8_lossy(name).into_owned();
    // Lua 5.1's parser does not hold on to the name itself.
    let anchor = lua.create_string(&name)?;
    let chunk = lua.load(&*text).set_name(name).set_mode(ChunkMode::Text);
    let compiled = chunk.into_function();
    drop(anchor);
    match compiled {
        Ok(function) => Ok(native::one(Value::Function(function))),
        Err(Error::SyntaxError { message, .. }) => Err(fault(message)),
        Err(error) => Err(error.into()),
    }
}

fn random(_: &Lua, limits: &Limits, arguments: &native::Arguments) -> Outcome<MultiValue> {
    let (fraction, next) = limits.random.get().next();
    let (from, to) = match arguments.len() {
        0 => {
            limits.random.set(next);
            return Ok(native::one(Value::Number(fraction)));
        }
        1 => (1.0, arguments.number(0)?.trunc()),
        2 => (arguments.number(0)?.trunc(), arguments.number(1)?.trunc()),
        _ => return Err(fault("wrong number of arguments")),
    };
    if from > to {
        return Err(arguments.bad(arguments.len() - 1, "interval is empty"));
    }
    limits.random.set(next);
    let value = (fraction * (to - from + 1.0)).floor() + from;
    Ok(native::one(Value::Number(value)))
}

fn random_seed(_: &Lua, limits: &Limits, arguments: &native::Arguments) -> Outcome<MultiValue> {
    let seed = number::integer(arguments.number(0)?) as i32;
    limits.random.set(super::random::Random::seeded(seed));
    Ok(MultiValue::new())
}

fn log(level: f64, text: &LuaString) {
    let text = text.to_string_lossy();
    let text: String = text.chars().take(1024).collect();
    match level as i64 {
        0 => tracing::trace!(text, "a script says"),
        1 => tracing::debug!(text, "a script says"),
        2 => tracing::info!(text, "a script says"),
        _ => tracing::warn!(text, "a script says"),
    }
}

/// What `redis.error_reply` makes of a text: one with a code.
fn error_text(lua: &Lua, text: LuaString) -> mlua::Result<LuaString> {
    let bytes = text.as_bytes();
    let bytes = bytes.strip_prefix(b"-").unwrap_or(&bytes);
    if bytes.contains(&b' ') {
        return lua.create_string(bytes);
    }
    lua.create_string([b"ERR ", bytes].concat())
}

fn version_number() -> i64 {
    let parts = REDIS_VERSION
        .split('.')
        .map(|part| part.parse().unwrap_or(0));
    parts.fold(0, |all, part: i64| (all << 8) | part)
}

/// Arguments of `redis.call`, copied.
struct Call {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    fault: Option<&'static str>,
}

impl FromLuaMulti for Call {
    fn from_lua_multi(values: MultiValue, _: &Lua) -> mlua::Result<Call> {
        let mut call = Call::new(values.len());
        for value in &values {
            match value {
                Value::String(text) => call.push(&text.as_bytes()),
                Value::Integer(value) => call.push(value.to_string().as_bytes()),
                Value::Number(value) => call.push(&number::general(*value, 17)),
                _ => call.fault = Some(NOT_TEXT),
            }
        }
        Ok(call)
    }

    unsafe fn from_stack_multi(count: c_int, lua: &RawLua) -> mlua::Result<Call> {
        let state = lua.state();
        let mut call = Call::new(usize::try_from(count).unwrap_or(0));
        for at in -count..0 {
            // SAFETY: there are `count` values on the stack, and a string stays where it is while it is there. What is
            // called neither allocates nor raises: strings and numbers are read as what they are.
            unsafe {
                match ffi::lua_type(state, at) {
                    ffi::LUA_TSTRING => {
                        let mut len = 0;
                        let bytes = ffi::lua_tolstring(state, at, &raw mut len);
                        call.push(std::slice::from_raw_parts(bytes.cast(), len));
                    }
                    ffi::LUA_TNUMBER => {
                        let value = ffi::lua_tonumber(state, at);
                        if value.to_bits() == ((value as i64) as f64).to_bits()
                            && value.abs() < 1e15
                        {
                            let mut digits = [0; reply::INTEGER_BYTES_MAX];
                            call.push(reply::decimal(&mut digits, value as i64));
                        } else {
                            call.push(&number::general(value, 17));
                        }
                    }
                    _ => call.fault = Some(NOT_TEXT),
                }
            }
        }
        Ok(call)
    }
}

/// RESP has no more than that around an argument, nor in front of the first one.
const FRAMING_BYTES: usize = 16;

const NOT_TEXT: &str = "ERR Lua redis lib command arguments must be strings or integers";

impl Call {
    fn new(count: usize) -> Call {
        Call {
            bytes: Vec::with_capacity(64),
            ends: Vec::with_capacity(count.min(64)),
            fault: (count == 0)
                .then_some("ERR Please specify at least one argument for this redis lib call"),
        }
    }

    /// What is called is as long as a client's request may be, also with what RESP has around arguments: other shards may
    /// have to be sent it.
    fn push(&mut self, arg: &[u8]) {
        let framing = (self.ends.len() + 2) * FRAMING_BYTES;
        if self.bytes.len() + arg.len() + framing > QUERY_BYTES_MAX {
            self.fault = Some("ERR the arguments of one command are too long");
        } else {
            self.bytes.extend_from_slice(arg);
        }
        self.ends.push(self.bytes.len());
    }

    fn args(&self) -> Vec<&[u8]> {
        let mut from = 0;
        let arg = |&end: &usize| {
            let arg = self.bytes.get(from..end).unwrap_or_default();
            from = end;
            arg
        };
        self.ends.iter().map(arg).collect()
    }
}
