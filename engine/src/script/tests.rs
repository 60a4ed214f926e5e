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
    ] {
        let _ = run(&mut scripts, body.as_bytes(), &[]);
        let next = run(&mut scripts, b"return ARGV[1]", &[b"next"]);
        assert_eq!(next, Ok(b"$4\r\nnext\r\n".to_vec()), "after {body}");
    }
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
