//! Scripts: the same text, keys and arguments at a Redis; and what they may take.

use std::time::{Duration, Instant};

use super::{PROTOCOLS, Pair, Port, shown};
use ephesus_tests::{Client, Node, Options, Reply};

/// A script, and the keys (in one slot) and arguments that follow their number.
const SCRIPTS: &[(&str, &[&str])] = &[
    ("return 1", &["0"]),
    ("return 3.99", &["0"]),
    ("return -3.99", &["0"]),
    ("return 'text'", &["0"]),
    ("return true", &["0"]),
    ("return false", &["0"]),
    ("return nil", &["0"]),
    ("return {1,2,{3,'x',true,false},nil,5}", &["0"]),
    ("return {ok='FINE'}", &["0"]),
    ("return {err='BAD thing'}", &["0"]),
    ("return {double=1.5}", &["0"]),
    ("return {map={a=1}}", &["0"]),
    ("return {set={a=true}}", &["0"]),
    ("return redis.status_reply('S')", &["0"]),
    ("return redis.error_reply('MY error')", &["0"]),
    ("return KEYS", &["2", "{k}a", "{k}b", "x"]),
    ("return ARGV", &["2", "{k}a", "{k}b", "x", "y"]),
    ("return #ARGV", &["1", "{k}a"]),
    (
        "return redis.call('set', KEYS[1], ARGV[1])",
        &["1", "{k}a", "v"],
    ),
    ("return redis.call('get', KEYS[1])", &["1", "{k}a"]),
    ("return redis.call('get', KEYS[1])", &["1", "{k}absent"]),
    (
        "return redis.call('get', KEYS[1]) == false",
        &["1", "{k}absent"],
    ),
    ("return redis.call('incr', KEYS[1])", &["1", "{k}n"]),
    (
        "return redis.call('incrby', KEYS[1], 41) + 0.5",
        &["1", "{k}n"],
    ),
    (
        "return redis.call('mget', KEYS[1], KEYS[2])",
        &["2", "{k}a", "{k}none"],
    ),
    ("return redis.pcall('incr', KEYS[1])", &["1", "{k}a"]),
    (
        "local r = redis.pcall('incr', KEYS[1]) return r['err']",
        &["1", "{k}a"],
    ),
    ("return redis.call('ping')", &["0"]),
    ("return redis.call('echo', 'x')", &["0"]),
    ("return #redis.call('time')", &["0"]),
    ("return redis.sha1hex('x')", &["0"]),
    ("return tostring(1e15)", &["0"]),
    ("return tostring(0.1)", &["0"]),
    ("return cjson.encode({1,2,{a='x'}})", &["0"]),
    ("return cjson.encode({a=1.5})", &["0"]),
    (
        "return cjson.decode('{\"a\":[1,null,\"x\"]}')['a'][3]",
        &["0"],
    ),
    ("return cjson.decode('[1,2.5]')", &["0"]),
    (
        "return cmsgpack.unpack(cmsgpack.pack({1,'two',3.5}))",
        &["0"],
    ),
    ("return bit.band(12, 10) + bit.lshift(1, 4)", &["0"]),
    ("return bit.tohex(255)", &["0"]),
    ("return struct.pack('>I2', 258)", &["0"]),
    (
        "return {struct.unpack('<i4', struct.pack('<i4', -5))}",
        &["0"],
    ),
    (
        "return string.format('%05.1f|%s|%d', 3.14159, 'x', 42)",
        &["0"],
    ),
    ("return {string.find('hello', 'l+')}", &["0"]),
    ("return (string.gsub('hello', 'l', 'L'))", &["0"]),
    (
        "return {math.floor(2.7), math.max(1, 5), math.ceil(2.1)}",
        &["0"],
    ),
    ("return table.concat({1,2,3}, '-')", &["0"]),
    ("local t = {3,1,2} table.sort(t) return t", &["0"]),
    ("return {unpack({1,2,3})}", &["0"]),
    ("return type(redis.LOG_WARNING)", &["0"]),
    ("return redis.replicate_commands()", &["0"]),
    ("return redis.setresp(3)", &["0"]),
    ("redis.log(redis.LOG_DEBUG, 'x') return 1", &["0"]),
    ("return type(os.clock)", &["0"]),
    // Redis's documentation of lock, limit and cache scripts.
    (
        "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end",
        &["1", "{k}a", "v"],
    ),
    (
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end",
        &["1", "{k}n", "42", "10000"],
    ),
    (
        "redis.call('set', KEYS[1], 0, 'EX', ARGV[2], 'NX') local c = redis.call('incrby', KEYS[1], ARGV[1]) return {c, redis.call('ttl', KEYS[1])}",
        &["1", "{k}limit", "1", "60"],
    ),
    (
        "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])",
        &["1", "{k}add", "v", "60"],
    ),
    (
        "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])",
        &["1", "{k}add", "v", "60"],
    ),
    (
        "for i, key in ipairs(KEYS) do redis.call('set', key, ARGV[1]) end return #KEYS",
        &["3", "{k}x", "{k}y", "{k}z", "1"],
    ),
];

/// Those of which the texts of errors may differ: both refuse.
const REFUSED: &[(&str, &[&str])] = &[
    ("return redis.call('incr', KEYS[1])", &["1", "{k}text"]),
    ("this is no lua", &["0"]),
    ("return undefined_variable", &["0"]),
    ("x = 1", &["0"]),
    ("return redis.call('nosuch')", &["0"]),
    ("return redis.call('get')", &["0"]),
    ("return redis.call()", &["0"]),
    ("return redis.call('multi')", &["0"]),
    ("return redis.call('subscribe', 'c')", &["0"]),
    ("return redis.call('eval', 'return 1', 0)", &["0"]),
    ("error('mine')", &["0"]),
    ("error({err='MY own'})", &["0"]),
    ("return io.open('/etc/passwd')", &["0"]),
    ("return os.execute('true')", &["0"]),
    (
        "return loadstring(string.dump(function() return 1 end))()",
        &["0"],
    ),
    ("setmetatable(_G, {})", &["0"]),
    ("local function f() return f() + 1 end return f()", &["0"]),
    ("return redis.call('get', KEYS[1])", &["-1"]),
    ("return 1", &["2", "only"]),
    ("return 1", &["x"]),
];

fn eval(name: &str, script: &str, rest: &[&str]) -> Vec<String> {
    let head = [name, script].into_iter();
    head.chain(rest.iter().copied())
        .map(str::to_owned)
        .collect()
}

#[test]
fn scripts_answer_what_they_answer_in_redis() {
    for protocol in PROTOCOLS {
        let mut pair = Pair::new(Port::Entry, protocol);
        pair.same(&["SET", "{k}text", "no number"]);
        for (script, rest) in SCRIPTS {
            pair.same(&eval("EVAL", script, rest));
        }
        for (script, rest) in REFUSED {
            let request = eval("EVAL", script, rest);
            let (ours, theirs) = pair.ask(&request);
            assert!(
                ours.error().is_some() && theirs.error().is_some(),
                "{}: {ours:?} {theirs:?}",
                shown(&request)
            );
        }
        let (ours, theirs) = pair.ask(&["SCRIPT", "LOAD", "return ARGV[1]"]);
        assert_eq!(ours, theirs);
        let sha = ours.text();
        pair.same(&["EVALSHA", &sha, "0", "x"]);
        pair.same(&["EVALSHA", &sha.to_uppercase(), "0", "x"]);
        pair.same(&["EVALSHA_RO", &sha, "0", "x"]);
        pair.same(&[
            "EVAL_RO",
            "return redis.call('get', KEYS[1])",
            "1",
            "{k}text",
        ]);
        pair.same(&["SCRIPT", "EXISTS", &sha, "nosuch"]);
        pair.same(&["EVALSHA", "ffffffffffffffffffffffffffffffffffffffff", "0"]);
        pair.same(&["SCRIPT", "KILL"]);
        pair.same(&["SCRIPT", "FLUSH", "NOW"]);
        pair.same(&["SCRIPT", "FLUSH"]);
        pair.same(&["SCRIPT", "EXISTS", &sha]);
        pair.same(&["EVALSHA", &sha, "0", "x"]);
        let (ours, theirs) = pair.ask(&[
            "EVAL_RO",
            "return redis.call('set', KEYS[1], 1)",
            "1",
            "{k}text",
        ]);
        assert!(
            ours.error().is_some() && theirs.error().is_some(),
            "{ours:?} {theirs:?}"
        );
        for key in [
            "{k}a", "{k}n", "{k}text", "{k}limit", "{k}add", "{k}x", "{k}z",
        ] {
            pair.same(&["GET", key]);
        }
    }
}

/// The place where a script has failed is told also if it ends with the call that did.
#[test]
fn errors_name_the_place_of_a_call_at_the_end() {
    let mut pair = Pair::new(Port::Entry, PROTOCOLS[0]);
    for script in [
        "return cjson.encode(0/0)",
        "local x = cjson.encode(0/0) return x",
        "return cjson.decode('{')",
        "return string.find('x', '[')",
        "return cmsgpack.unpack('\\145')",
        "return struct.pack('<i99', 1)",
        "return bit.tobit({})",
        "return {pcall(cjson.encode, 0/0)}",
        "return string.rep()",
        "return math.random(0)",
        "return redis.call('nosuch')",
    ] {
        pair.same(&eval("EVAL", script, &["0"]));
    }
}

fn error_of(client: &mut Client, script: &str, rest: &[&str]) -> String {
    let reply = client.call(&eval("EVAL", script, rest));
    reply
        .error()
        .unwrap_or_else(|| panic!("{script}: {reply:?}"))
        .to_owned()
}

#[test]
fn a_script_that_takes_too_much_is_stopped_and_leaves_nothing() {
    let node = Node::start(Options {
        flags: ["--lua-time-limit", "1000"].map(str::to_owned).to_vec(),
        ..Options::default()
    });
    let mut client = node.client();
    for (script, says) in [
        (
            "redis.call('set', KEYS[1], 1) while true do end",
            "stopped after 1000 ms",
        ),
        (
            "redis.call('set', KEYS[1], 1) while true do pcall(function() while true do end end) end",
            "stopped after 1000 ms",
        ),
        (
            "redis.call('set', KEYS[1], 1) return string.rep('x', 1e9)",
            "memory",
        ),
        (
            "redis.call('set', KEYS[1], 1) local t = {} while true do t[#t + 1] = string.rep('x', 1000) .. #t end",
            "stopped",
        ),
        (
            "local v = string.rep('x', 1e6) for i = 1, 20 do redis.call('set', KEYS[1], v) end",
            "exceed",
        ),
        (
            "redis.call('set', KEYS[1], 1) return string.rep('a', 40):find(string.rep('a?', 40) .. string.rep('a', 40) .. 'b')",
            "stopped",
        ),
    ] {
        let began = Instant::now();
        let error = error_of(&mut client, script, &["1", "k"]);
        assert!(error.contains(says), "{script}: {error}");
        assert!(began.elapsed() < Duration::from_secs(10), "{script}");
        assert_eq!(client.say("EXISTS k"), Reply::Integer(0), "{script}");
        assert_eq!(
            client.call(&eval("EVAL", "return 1", &["0"])),
            Reply::Integer(1)
        );
    }
    // An error undoes nothing.
    let error = error_of(
        &mut client,
        "redis.call('set', KEYS[1], 1) error('later')",
        &["1", "k"],
    );
    assert!(error.contains("later"), "{error}");
    assert_eq!(client.say("GET k"), Reply::bulk("1"));
}

#[test]
fn scripts_use_the_keys_they_name_where_these_are() {
    let mut node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    let mut client = node.client();
    let set = "return redis.call('set', KEYS[1], ARGV[1])";
    for n in 0..60 {
        client.say(&format!("SELECT {}", n % 3));
        let reply = client.call(&eval("EVAL", set, &["1", &format!("k{n}"), &n.to_string()]));
        assert_eq!(reply, Reply::ok());
        let named = client.call(&eval("EVAL", "return KEYS[1]", &["1", &format!("k{n}")]));
        assert_eq!(named, Reply::bulk(format!("k{n}")));
    }
    node.kill();
    node.restart();
    let mut client = node.client();
    for n in 0..60 {
        client.say(&format!("SELECT {}", n % 3));
        assert_eq!(
            client.call(&["GET", &format!("k{n}")]),
            Reply::bulk(n.to_string())
        );
    }
    let error = error_of(
        &mut client,
        "return redis.call('get', 'other')",
        &["1", "k1"],
    );
    assert!(error.contains("KEYS"), "{error}");
    let mut direct = node.direct_client(0);
    let replies: Vec<Reply> = (0..20)
        .map(|n| direct.call(&eval("EVAL", set, &["1", &format!("k{n}"), "x"])))
        .collect();
    assert!(replies.iter().any(|reply| *reply == Reply::ok()));
    assert!(replies.iter().any(|reply| {
        reply
            .error()
            .is_some_and(|error| error.starts_with("MOVED "))
    }));
}

#[test]
fn scripts_copy_into_other_databases() {
    let mut pair = Pair::new(Port::Entry, PROTOCOLS[0]);
    let copy = "return redis.call('COPY', KEYS[1], KEYS[2], 'DB', ARGV[1], 'REPLACE')";
    pair.same(&["SET", "{k}a", "one"]);
    pair.same(&["SET", "{k}b", "two"]);
    pair.same(&eval("EVAL", copy, &["2", "{k}a", "{k}b", "3"]));
    pair.same(&eval("EVAL", copy, &["2", "{k}a", "{k}a", "3"]));
    pair.same(&eval("EVAL", copy, &["2", "{k}a", "{k}b", "99"]));
    for database in ["0", "3"] {
        pair.same(&["SELECT", database]);
        pair.same(&["MGET", "{k}a", "{k}b"]);
    }
    pair.same(&eval("EVAL", copy, &["2", "{k}a", "{k}c", "0"]));
    pair.same(&["SELECT", "0"]);
    pair.same(&["GET", "{k}c"]);
    // What a script did not name is called by its name, whatever the database.
    let client = &mut pair.ours;
    client.say("SELECT 3");
    let error = error_of(client, "return redis.call('get', 'other')", &["0"]);
    assert!(error.contains("'other'"), "{error}");
}

#[test]
fn scripts_read_and_answer_large_values() {
    let node = Node::start(Options::default());
    let mut client = node.client();
    let value = vec![b'v'; 8 << 20];
    assert_eq!(client.call(&[&b"SET"[..], b"large", &value]), Reply::ok());
    let lengths = "return #redis.call('get', KEYS[1]) + #redis.call('get', KEYS[1])";
    assert_eq!(
        client.call(&eval("EVAL", lengths, &["1", "large"])),
        Reply::Integer(16 << 20)
    );
    let get = "return redis.call('get', KEYS[1])";
    let reply = client.call(&eval("EVAL", get, &["1", "large"]));
    assert_eq!(reply, Reply::bulk(value));
}
