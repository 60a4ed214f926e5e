use ephesus_wire::resp::reply;
use proptest::prelude::*;

use super::*;

/// Answers every command with its arguments.
struct Echo;

impl Host for Echo {
    fn call(&mut self, args: &[&[u8]], _protocol: Protocol, out: &mut Vec<u8>) -> Result<(), Stop> {
        reply::command(out, args);
        Ok(())
    }
}

const LIMITS: RunLimits = RunLimits {
    time: Duration::from_millis(500),
    reply_bytes: 1 << 20,
    protocol: Protocol::Resp2,
};

fn run(scripts: &mut Scripts, body: &[u8], argv: &[&[u8]]) -> Result<Vec<u8>, NotDone> {
    let library = Library::default();
    let script = match scripts.of_body(&library, body) {
        Ok(script) => script,
        Err(error) => return Ok(format!("-{error}\r\n").into_bytes()),
    };
    let mut out = Vec::new();
    scripts.run(&script, (&[], argv), &mut Echo, LIMITS, &mut out)?;
    Ok(out)
}

/// The reply of a script, as text.
fn said(body: &str) -> String {
    let out = run(&mut Scripts::default(), body.as_bytes(), &[]).expect("it ends by itself");
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn what_is_not_for_scripts_is_not_there() {
    for name in [
        "io",
        "os.execute",
        "os.remove",
        "os.getenv",
        "require",
        "dofile",
        "loadfile",
        "package",
        "debug",
        "module",
        "newproxy",
        "print",
    ] {
        let reply = said(&format!("return type({name})"));
        assert!(
            reply.starts_with('-') || reply.contains("nil"),
            "{name}: {reply}"
        );
    }
    for body in [
        "x = 1",
        "_G.x = 1",
        "rawset(_G, 'x', 1)",
        "setmetatable(_G, {})",
        "getmetatable('').__index = {}",
        "redis.call = nil",
        "return loadstring('\\27Lua')()",
        "local sent = false return load(function() if not sent then sent = true return '\\27Lua' end end)()",
    ] {
        let reply = said(body);
        assert!(reply.starts_with('-'), "{body}: {reply}");
    }
}

#[test]
fn whatever_a_script_does_the_next_one_is_carried_out() {
    let mut scripts = Scripts::default();
    for body in [
        "while true do end",
        "local function f() return f() end return f()",
        "local function f() return 1 + f() end return f()",
        "return string.rep('x', 1e10)",
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local t = {} t[1] = t return t",
        "local t = {} for i = 1, 100000 do t = {t} end return t",
        "local t = {} for i = 1, 100000 do t = {t} end return cjson.encode(t)",
        "return cjson.decode(string.rep('[', 100000))",
        "return cmsgpack.unpack(string.rep('\\145', 100000))",
        "error(setmetatable({}, {__tostring = function() while true do end end}))",
        "return setmetatable({}, {__index = function(t, k) return t[k + 1] end})[1]",
        "local co = coroutine.wrap(function() while true do coroutine.yield(1) end end) while true do co() end",
        "local function f() return coroutine.wrap(f)() end return f()",
        "xpcall(function() error('x') end, function() while true do end end)",
        "return string.rep('a', 40):find(string.rep('a?', 40) .. string.rep('a', 40) .. 'b')",
        "return string.format('%99999d', 1)",
        "return struct.pack('i99999', 1)",
        "return table.concat(setmetatable({}, {__len = function() return 1e9 end}), 'x', 1, 1e9)",
        "return unpack({}, 1, 1e9)",
        "return pcall(struct.unpack, string.rep('b', 19), string.rep('x', 19))",
        "return struct.unpack(string.rep('b', 7900), string.rep('x', 7900))",
    ] {
        let _ = run(&mut scripts, body.as_bytes(), &[]);
        let next = run(&mut scripts, b"return ARGV[1]", &[b"next"]);
        assert_eq!(next, Ok(b"$4\r\nnext\r\n".to_vec()), "after {body}");
    }
}

/// Whatever works long in Rust or in Lua's own libraries: each would take minutes, or gigabytes.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "how long a script takes is measured"
)]
fn what_takes_too_much_is_stopped() {
    let limits = RunLimits {
        time: Duration::from_millis(100),
        ..LIMITS
    };
    for body in [
        "local function f(n) if n > 0 then coroutine.wrap(f)(n - 1) coroutine.wrap(f)(n - 1) end end coroutine.wrap(f)(60)",
        "local s = string.rep('\\1', 2^22) local t = {} for i = 1, 1000 do t[i] = s end return #cjson.encode(t)",
        "local t = {} for i = 1, 40 do t = {t, t} end return #cjson.encode(t)",
        "local t = {} for i = 1, 1000 do t[i] = i end for i = 1, 9 do local u = {} for j = 1, 1000 do u[j] = t end t = u end \
         return #cmsgpack.pack(t)",
        "return #string.gsub(('x'):rep(2^20), '.*', ('%0'):rep(2^19))",
        "return #string.gsub(('x'):rep(2^20), '(.*)', ('%1'):rep(2^19))",
        "return string.find(('a'):rep(20000), '[' .. ('b'):rep(2^24) .. ']')",
        "return string.find(('a'):rep(2^20), ('a*'):rep(50) .. 'b')",
        "return string.find(('a'):rep(20000), '(.*)' .. ('%1'):rep(50) .. 'b')",
        "return string.find(('a'):rep(20000), ('%f[' .. ('b'):rep(2^20) .. ']'):rep(2) .. 'c')",
        "local t = {} for i = 1, 100 do t = {t, t} end return t",
        "local t = {map = {}} for i = 1, 100 do t = {map = {a = t, b = t}} end return t",
        "local t = {} for i = 1, 2^20 do t[i] = 1 end while true do table.sort(t, rawequal) end",
        "local t = {} for i = 1, 1000 do t[i] = ('x'):rep(2^14) .. i end while true do table.sort(t) table.sort(t, function(a, b) return a > b end) end",
        "local t = {} for i = 1, 2^20 do t[i] = 1 end while true do table.remove(t, 1) table.insert(t, 1, 1) end",
        "local t = {} for i = 1, 2^20 do t[i] = 1 end while true do table.foreachi(t, rawequal) end",
        "local s = ('x'):rep(2^20) while true do s = s:upper():lower():reverse() end",
        "local s = ('x'):rep(2^20) while true do redis.sha1hex(s) end",
        "local s = 'return ' .. ('-1'):rep(2^16) while true do loadstring(s) end",
        "local s = ('b'):rep(2^20) while true do pcall(struct.pack, s, unpack(ARGV)) end",
        "while true do pcall(struct.size, ('b'):rep(2^20)) end",
        "while true do pcall(cjson.decode, '\"' .. ('x'):rep(2^20) .. '\"') end",
    ] {
        let began = std::time::Instant::now();
        let mut scripts = Scripts::default();
        let script = scripts.of_body(&Library::default(), body.as_bytes());
        let script = script.expect("it compiles");
        let mut out = Vec::new();
        let outcome = scripts.run(
            &script,
            (&[], &[&b"1"[..]; 7000]),
            &mut Echo,
            limits,
            &mut out,
        );
        let took = began.elapsed();
        let reply = String::from_utf8_lossy(&out);
        assert!(outcome.is_err(), "{body}: {reply}");
        assert!(took < Duration::from_secs(10), "{body}: {took:?}");
        assert!(out.capacity() <= 4 * MEMORY_BYTES_MAX, "{body}");
    }
}

#[test]
fn scripts_that_are_large_together_are_not_compiled_again_and_again() {
    let mut scripts = Scripts::default();
    let library = Library::default();
    let body = |n: usize| format!("local t = {{{}}} return {n}", "'a',".repeat(50_000 + n));
    for n in 0..15 {
        let script = scripts.of_body(&library, body(n).as_bytes());
        let script = script.expect("it compiles");
        let mut out = Vec::new();
        let ended = scripts.run(&script, (&[], &[]), &mut Echo, LIMITS, &mut out);
        assert_eq!(ended, Ok(()));
    }
    assert_eq!(scripts.by_body.len(), 15);
}

#[test]
fn a_library_that_is_full_of_loaded_scripts_still_lets_others_be_carried_out() {
    let (mut scripts, library) = (Scripts::default(), Library::default());
    let loaded = (0..).take_while(|n| {
        let body = format!("return {n} --{}", "x".repeat(1_000_000));
        scripts.load(&library, body.as_bytes()).is_ok()
    });
    assert!(loaded.count() > 20);
    let script = scripts.of_body(&library, b"return 1");
    assert!(script.is_ok());
    let name = hex(&sha_of(b"return 1"));
    assert!(scripts.of_name(&library, name.as_bytes()).is_ok());
}

#[test]
fn what_scripts_collect_and_catch() {
    assert!(said("return collectgarbage('count')").starts_with(':'));
    assert_eq!(said("return collectgarbage()"), ":0\r\n");
    let caught = "local ok, e = pcall(error, cjson.null) return {ok == false, e == cjson.null}";
    assert_eq!(said(caught), "*2\r\n:1\r\n:1\r\n");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn strings_of_any_bytes_pass_through(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut scripts = Scripts::default();
        for body in [
            &b"return ARGV[1]"[..],
            b"return redis.call('x', ARGV[1])[2]",
            b"return cmsgpack.unpack(cmsgpack.pack(ARGV[1]))",
            b"return cmsgpack.unpack(cmsgpack.pack({ARGV[1]}))[1]",
        ] {
            let out = run(&mut scripts, body, &[&text]);
            let mut expected = Vec::new();
            reply::bulk(&mut expected, &text);
            prop_assert_eq!(out, Ok(expected));
        }
    }

    #[test]
    fn no_text_is_a_script_that_panics(body in "[ -~\n]{0,60}", argument: Vec<u8>) {
        let mut scripts = Scripts::default();
        let _ = run(&mut scripts, body.as_bytes(), &[&argument]);
        for call in ["cjson.decode", "cmsgpack.unpack", "struct.unpack", "string.format", "string.find"] {
            let body = format!("return pcall({call}, ARGV[1], ARGV[1], ARGV[1])");
            let _ = run(&mut scripts, body.as_bytes(), &[&argument]);
        }
    }
}
