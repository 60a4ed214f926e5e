//! Functions: the same libraries and calls at a Redis; what they may take; and that they are durable.

use std::fs;
use std::time::{Duration, Instant};

use super::{PORTS, PROTOCOLS, Pair, Port, shown};
use ephesus_tests::{Client, Node, Options, Reply};

/// A library with most of what there is.
const LIBRARY: &str = "#!lua name=one
local calls = 0
local function reply(keys, args) return {keys, args} end
redis.register_function('given', reply)
redis.register_function('count', function(keys) return redis.call('incr', keys[1]) end)
redis.register_function('calls', function() calls = calls + 1 return calls end)
redis.register_function('fails', function() error('mine') end)
redis.register_function('fails_with', function() error({err='MY own'}) end)
redis.register_function('calls_wrong', function(keys) return redis.call('incr', keys[1], 'x') end)
redis.register_function('caught', function(keys) return redis.pcall('incr', keys[1]) end)
redis.register_function('unknown', function() return redis.call('nosuch') end)
redis.register_function('global', function() return nosuch end)
redis.register_function('sets_global', function() x = 1 end)
redis.register_function('keys', function() return KEYS end)
redis.register_function('registers', function() return redis.register_function('a', reply) end)
local register = redis.register_function
redis.register_function('registers_later', function() register('a', reply) end)
redis.register_function('has', function() return {type(redis.call), type(math), type(cjson), type(redis.replicate_commands),
  type(redis.breakpoint), type(redis.sha1hex), type(string.rep), type(_G)} end)
redis.register_function('resp3', function() redis.setresp(3) return true end)
redis.register_function{function_name='reads', callback=function(keys) return redis.call('get', keys[1]) end,
  flags={'no-writes'}, description='reads a key'}
redis.register_function{function_name='writes_all_the_same', callback=function(keys) return redis.call('set', keys[1], 1) end,
  flags={'no-writes', 'allow-stale', 'allow-oom'}}
redis.register_function{function_name='alone', callback=reply, flags={'no-cluster'}}
redis.register_function{FUNCTION_NAME='Last', Callback=reply, flags={'ALLOW-cross-slot-keys'}}
";

/// Texts that are no libraries, or not such ones.
const WRONG: &[&str] = &[
    "",
    "return 1",
    "#!lua name=a",
    "#!lua\n",
    "#!lua name=\n",
    "#!lua name=a-b\n",
    "#!lua name=a name=b\n",
    "#!lua foo=bar\n",
    "#!lua \"name=a\n",
    "#!js name=a\n",
    "#!js name=one\n",
    "#!lua name=one\nreturn 1",
    "#!lua name=a\nx x",
    "#!lua name=a\nreturn 1",
    "#!lua name=a\nx = 1",
    "#!lua name=a\nreturn x",
    "#!lua name=a\nreturn math.random()",
    "#!lua name=a\nredis.call('get', 'a')",
    "#!lua name=a\nredis.foo = 1",
    "#!lua name=a\nerror('x')",
    "#!lua name=a\nlocal x = nil x()",
    "#!lua name=a\nreturn ('x'):rep(3)()",
    "#!lua name=a\nredis.log(redis.LOG_NOTICE, 'x')",
    "#!lua name=a\nredis.log()",
    "#!lua name=a\nredis.register_function()",
    "#!lua name=a\nredis.register_function('a')",
    "#!lua name=a\nredis.register_function('a', 1)",
    "#!lua name=a\nredis.register_function({}, function() end)",
    "#!lua name=a\nredis.register_function('a', function() end, 1)",
    "#!lua name=a\nredis.register_function('a b', function() end)",
    "#!lua name=a\nredis.register_function('', function() end)",
    "#!lua name=a\nredis.register_function('a', function() end) redis.register_function('a', function() end)",
    "#!lua name=a\nredis.register_function{}",
    "#!lua name=a\nredis.register_function{function_name='a'}",
    "#!lua name=a\nredis.register_function{callback=function() end}",
    "#!lua name=a\nredis.register_function{function_name={}}",
    "#!lua name=a\nredis.register_function{callback='a'}",
    "#!lua name=a\nredis.register_function{description={}}",
    "#!lua name=a\nredis.register_function{flags='no-writes'}",
    "#!lua name=a\nredis.register_function{flags={'nosuch'}}",
    "#!lua name=a\nredis.register_function{flags={{}}}",
    "#!lua name=a\nredis.register_function{nosuch=1}",
    "#!lua name=a\nredis.register_function{[{}]=1}",
    "#!lua name=a\nredis.register_function('count', function() end)",
    "#!lua name=a\nredis.register_function('COUNT', function() end)",
];

/// Requests that follow, each word by word.
const REQUESTS: &str = "
FUNCTION
FUNCTION NOSUCH
FUNCTION HELP
FUNCTION LOAD
FUNCTION LOAD REPLACE
FUNCTION LOAD a b
FUNCTION LOAD REPLACE b c
FUNCTION STATS
FUNCTION STATS x
FUNCTION KILL
FUNCTION LIST x
FUNCTION LIST LIBRARYNAME
FUNCTION LIST LIBRARYNAME a LIBRARYNAME b
FUNCTION LIST WITHCODE WITHCODE
FUNCTION LIST LIBRARYNAME nosuch*
FUNCTION DELETE
FUNCTION DELETE nosuch
FUNCTION FLUSH x
FUNCTION FLUSH SYNC x
FUNCTION DUMP x
FUNCTION RESTORE
FUNCTION RESTORE x
FUNCTION RESTORE x NOSUCH
FUNCTION RESTORE x FLUSH y
FCALL
FCALL given
FCALL nosuch 0
FCALL nosuch x
FCALL given x
FCALL given -1
FCALL given 1
FCALL given 2 {k}a
FCALL given 0
FCALL given 0 a b
FCALL given 2 {k}a {k}b c d
FCALL GIVEN 0
FCALL_RO given 0
FCALL count 1 {k}n
FCALL count 1 {k}n
FCALL_RO count 1 {k}n
FCALL calls 0
FCALL fails 0
FCALL fails_with 0
FCALL calls_wrong 1 {k}n
SET {k}text abc
FCALL count 1 {k}text
FCALL caught 1 {k}text
FCALL unknown 0
FCALL global 0
FCALL sets_global 0
FCALL keys 0
FCALL registers 0
FCALL registers_later 0
FCALL has 0
FCALL resp3 0
FCALL reads 1 {k}n
FCALL_RO reads 1 {k}n
FCALL writes_all_the_same 1 {k}n
FCALL_RO writes_all_the_same 1 {k}n
FCALL last 1 {k}n x
FCALL Fails 0
GET {k}n
MULTI
FCALL count 1 {k}n
FCALL nosuch 1 {k}n
FCALL reads 1 {k}n
FCALL fails 0
EXEC
COMMAND GETKEYS FCALL given 2 a b c
COMMAND GETKEYSANDFLAGS FCALL_RO given 1 a
";

/// What FUNCTION LIST answers, with libraries and functions in the order of their names.
fn listed(client: &mut Client, request: &[&str]) -> Vec<String> {
    let mut libraries: Vec<String> = client
        .call(request)
        .items()
        .iter()
        .map(|library| {
            let mut functions: Vec<String> = library
                .field("functions")
                .expect("functions")
                .items()
                .iter()
                .map(|function| format!("{function:?}"))
                .collect();
            functions.sort();
            let others = ["library_name", "engine"].map(|name| library.field(name));
            format!("{others:?} {functions:?}")
        })
        .collect();
    libraries.sort();
    libraries
}

fn same_list(pair: &mut Pair, request: &[&str]) {
    let theirs = listed(&mut pair.theirs, request);
    assert_eq!(listed(&mut pair.ours, request), theirs, "{request:?}");
}

#[test]
fn functions_are_answered_as_redis_answers() {
    for port in PORTS {
        for protocol in PROTOCOLS {
            let mut pair = Pair::new(port, protocol);
            same_list(&mut pair, &["FUNCTION", "LIST"]);
            pair.same(&["FUNCTION", "LOAD", LIBRARY]);
            pair.same(&["FUNCTION", "LOAD", LIBRARY]);
            pair.same(&["FUNCTION", "LOAD", "REPLACE", LIBRARY]);
            for text in WRONG {
                pair.same(&["FUNCTION", "LOAD", text]);
            }
            for line in REQUESTS.lines().filter(|line| !line.is_empty()) {
                pair.same_line(line);
            }
            // The entry port belongs to a node that is one of a cluster, too.
            let (ours, theirs) = pair.ask(&["FCALL", "alone", "0"]);
            assert!(port == Port::Entry || ours == theirs, "{ours:?} {theirs:?}");
            let no_cluster = "ERR Can not run script on cluster, 'no-cluster' flag is set.";
            assert_eq!(ours.error(), Some(no_cluster));
            let two = "#!lua name=Two\nredis.register_function('two', function() return 2 end)";
            pair.same(&["FUNCTION", "LOAD", two]);
            same_list(&mut pair, &["FUNCTION", "LIST"]);
            same_list(&mut pair, &["FUNCTION", "LIST", "LIBRARYNAME", "t?O"]);
            pair.same(&["FUNCTION", "LIST", "withcode", "libraryname", "TWO"]);
            pair.same(&["FUNCTION", "STATS"]);
            pair.same(&["FUNCTION", "DELETE", "one"]);
            pair.same(&["FCALL", "given", "0"]);
            pair.same(&["FCALL", "two", "0"]);
            let replaced =
                "#!lua name=Two\nredis.register_function('three', function() return 3 end)";
            pair.same(&["FUNCTION", "LOAD", "replace", replaced]);
            pair.same(&["FCALL", "two", "0"]);
            pair.same(&["FCALL", "three", "0"]);
            pair.same(&["FUNCTION", "FLUSH", "ASYNC"]);
            pair.same(&["FCALL", "three", "0"]);
            pair.same(&["FUNCTION", "LIST"]);
        }
    }
}

fn library(name: &str, function: &str, result: &str) -> String {
    format!(
        "#!lua name={name}\nredis.register_function('{function}', function() return {result} end)"
    )
}

fn bytes(reply: &Reply) -> Vec<u8> {
    match reply {
        Reply::Bulk(bytes) => bytes.clone(),
        other => panic!("no payload: {other:?}"),
    }
}

#[test]
fn payloads_go_to_redis_and_come_from_it() {
    let mut pair = Pair::new(Port::Entry, 2);
    let long = format!("'{}'", "long ".repeat(2000));
    for (name, function, result) in [("a", "fa", "1"), ("b", "fb", &long), ("c", "fc", "3")] {
        pair.same(&["FUNCTION", "LOAD", &library(name, function, result)]);
    }
    let theirs = bytes(&pair.theirs.call(&["FUNCTION", "DUMP"]));
    let ours = bytes(&pair.ours.call(&["FUNCTION", "DUMP"]));
    // Each gets both, and the same under every policy.
    for payload in [&theirs, &ours] {
        let restore = |policy: &'static str| -> Vec<&[u8]> {
            match policy {
                "" => vec![b"FUNCTION", b"RESTORE", payload],
                policy => vec![b"FUNCTION", b"RESTORE", payload, policy.as_bytes()],
            }
        };
        for line in [
            "FUNCTION FLUSH",
            "",
            "REPLACE",
            "FUNCTION DELETE b",
            "replace",
            "FUNCTION FLUSH",
            "FLUSH",
            "flush",
            "FUNCTION DELETE a",
            "FUNCTION DELETE b",
            "FUNCTION DELETE c",
            "APPEND",
            "FCALL fa 0",
            "FCALL fb 0",
        ] {
            match line.contains(' ') {
                true => pair.same_line(line),
                false => pair.same(&restore(line)),
            };
            same_list(&mut pair, &["FUNCTION", "LIST", "WITHCODE"]);
        }
        // All of them are there, one of these at least.
        let (ours, theirs) = pair.ask(&restore("append"));
        for reply in [ours, theirs] {
            let error = reply.error().unwrap_or_default().to_owned();
            assert!(error.contains(" already exists"), "{error}");
        }
        pair.same_line("FUNCTION FLUSH");
        pair.same(&["FUNCTION", "LOAD", &library("other", "fb", "2")]);
        pair.same(&restore("REPLACE"));
        same_list(&mut pair, &["FUNCTION", "LIST", "WITHCODE"]);
        for at in [0, 1, payload.len() / 2, payload.len() - 1] {
            let mut damaged = payload.clone();
            damaged[at] ^= 1;
            pair.same(&[b"FUNCTION".as_slice(), b"RESTORE", &damaged, b"FLUSH"]);
        }
        for len in [0, 9, 10, payload.len() - 1] {
            pair.same(&[
                b"FUNCTION".as_slice(),
                b"RESTORE",
                &payload[..len],
                b"FLUSH",
            ]);
        }
        pair.same_line("FUNCTION STATS");
    }
    // A value is no library.
    pair.same_line("SET k v");
    let value = bytes(&pair.theirs.call(&["DUMP", "k"]));
    pair.same(&[b"FUNCTION".as_slice(), b"RESTORE", &value]);
    pair.same_line("FUNCTION FLUSH");
    // Of none.
    let (ours, theirs) = pair.ask(&["FUNCTION", "DUMP"]);
    assert_eq!(ours, theirs);
    pair.same(&[b"FUNCTION".as_slice(), b"RESTORE", &bytes(&ours), b"FLUSH"]);
}

fn call(client: &mut Client, function: &str) -> Reply {
    client.call(&["FCALL", function, "0"])
}

#[test]
fn libraries_are_those_of_the_node_and_survive_it() {
    let mut node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    let everywhere = |node: &Node, function: &str, expected: &Reply| {
        for mut client in (0..3)
            .map(|shard| node.direct_client(shard))
            .chain([node.client()])
        {
            let reply = call(&mut client, function);
            let is_expected = match expected {
                Reply::Integer(_) => reply == *expected,
                _ => reply.error() == Some("ERR Function not found"),
            };
            assert!(is_expected, "{function}: {reply:?}");
        }
    };
    let absent = Reply::bulk("");
    let load = |node: &Node, args: &[&str]| {
        let mut client = node.client();
        let args = [&["FUNCTION"], args].concat();
        let reply = client.call(&args);
        assert!(reply.error().is_none(), "{}: {reply:?}", shown(&args));
        reply
    };
    load(&node, &["LOAD", &library("a", "fa", "1")]);
    load(&node, &["LOAD", &library("b", "fb", "2")]);
    everywhere(&node, "fa", &Reply::Integer(1));
    node.kill();
    node.restart();
    everywhere(&node, "fa", &Reply::Integer(1));
    everywhere(&node, "fb", &Reply::Integer(2));
    load(&node, &["LOAD", "REPLACE", &library("a", "fa", "10")]);
    load(&node, &["DELETE", "b"]);
    everywhere(&node, "fa", &Reply::Integer(10));
    everywhere(&node, "fb", &absent);
    let payload = bytes(&load(&node, &["DUMP"]));
    node.kill();
    node.restart();
    everywhere(&node, "fa", &Reply::Integer(10));
    everywhere(&node, "fb", &absent);
    load(&node, &["FLUSH"]);
    node.kill();
    node.restart();
    everywhere(&node, "fa", &absent);
    let restored = node
        .client()
        .call(&[b"FUNCTION".as_slice(), b"RESTORE", &payload]);
    assert_eq!(restored, Reply::ok());
    node.kill();
    node.restart();
    everywhere(&node, "fa", &Reply::Integer(10));
    // FLUSHALL is about keys.
    node.client().say("FLUSHALL");
    everywhere(&node, "fa", &Reply::Integer(10));
    let info = node.client().say("INFO memory").text();
    for line in ["number_of_libraries:1", "number_of_functions:1"] {
        assert!(info.lines().any(|found| found == line), "{info}");
    }
}

#[test]
fn what_was_acknowledged_before_a_kill_is_there() {
    let mut node = Node::start(Options::default());
    for round in 0..3 {
        let mut client = node.client();
        let mut acknowledged = 0;
        for n in 1..20 {
            let text = library("a", "fa", &(100 * round + n).to_string());
            let reply = client.call(&["FUNCTION", "LOAD", "REPLACE", &text]);
            assert_eq!(reply, Reply::bulk("a"));
            acknowledged = 100 * round + n;
        }
        // One more is on its way.
        let text = library("a", "fa", &(acknowledged + 1).to_string());
        client
            .send(&["FUNCTION", "LOAD", "REPLACE", &text])
            .expect("sent");
        std::thread::sleep(Duration::from_millis(round as u64));
        node.kill();
        node.restart();
        let found = call(&mut node.client(), "fa");
        let is_one_of = [acknowledged, acknowledged + 1].map(Reply::Integer);
        assert!(is_one_of.contains(&found), "{found:?}, {acknowledged}");
    }
}

#[test]
fn a_damaged_file_of_libraries_is_refused() {
    let mut node = Node::start(Options::default());
    let reply = node
        .client()
        .call(&["FUNCTION", "LOAD", &library("a", "fa", "1")]);
    assert_eq!(reply, Reply::bulk("a"));
    node.stop();
    let file = node.data_dir().join("functions");
    let whole = fs::read(&file).expect("the file of libraries");
    let (code, text) = node.check();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("functions: 1 libraries"), "{text}");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [&flipped[..], &whole[..whole.len() - 1], b""] {
        fs::write(&file, damaged).expect("written");
        let refused = node.start_refused();
        refused.assert_says(&[
            "functions is damaged",
            "remove it and load the libraries again",
        ]);
        let (code, text) = node.check();
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("functions is damaged"), "{text}");
    }
    fs::write(&file, &whole).expect("written");
    node.restart();
    assert_eq!(call(&mut node.client(), "fa"), Reply::Integer(1));
}

#[test]
fn a_function_that_takes_too_much_is_stopped_and_leaves_nothing() {
    let node = Node::start(Options {
        flags: ["--lua-time-limit", "1000"].map(str::to_owned).to_vec(),
        ..Options::default()
    });
    let mut client = node.client();
    let text = "#!lua name=a
local function set(keys) redis.call('set', keys[1], 1) end
redis.register_function('time', function(keys) set(keys) while true do end end)
redis.register_function('caught', function(keys) set(keys) while true do pcall(function() while true do end end) end end)
redis.register_function('memory', function(keys) set(keys) return string.rep('x', 1e9) end)
redis.register_function('effects', function(keys)
  local v = string.rep('x', 1e6) for i = 1, 20 do redis.call('set', keys[1], v .. i) end end)
redis.register_function('fine', function(keys) set(keys) return 1 end)
redis.register_function('other_key', function(keys) return redis.call('get', 'other') end)";
    assert_eq!(client.call(&["FUNCTION", "LOAD", text]), Reply::bulk("a"));
    for (function, says) in [
        ("time", "stopped after 1000 ms"),
        ("caught", "stopped after 1000 ms"),
        ("memory", "memory"),
        ("effects", "exceed"),
        ("other_key", "'other', which is not among its KEYS"),
    ] {
        let began = Instant::now();
        let reply = client.call(&["FCALL", function, "1", "k"]);
        let error = reply.error().unwrap_or_default();
        assert!(error.contains(says), "{function}: {reply:?}");
        assert!(began.elapsed() < Duration::from_secs(10), "{function}");
        assert_eq!(client.say("EXISTS k"), Reply::Integer(0), "{function}");
        assert_eq!(client.say("FCALL fine 1 k"), Reply::Integer(1));
        client.say("DEL k");
    }
    // What is loaded may not take much either, and keeps nobody waiting.
    let mut other = node.client();
    for (code, says) in [
        ("while true do end", "FUNCTION LOAD timeout"),
        ("local s = ('x'):rep(2^26)", "memory"),
        (
            "local s = ('x'):rep(2^25) redis.register_function('f', function() return s end)",
            "together would take more",
        ),
    ] {
        let text = format!("#!lua name=b\n{code}");
        client.send(&["FUNCTION", "LOAD", &text]).expect("sent");
        let began = Instant::now();
        assert_eq!(other.say("PING").text(), "PONG");
        assert!(began.elapsed() < Duration::from_millis(400), "{code}");
        let reply = client.receive().expect("a reply");
        let error = reply.error().unwrap_or_default();
        assert!(error.contains(says), "{code}: {reply:?}");
    }
    // What is told of it is one reply.
    let broken = "#!lua name=b\nlocal y = redis['a\\r\\n+INJECTED']";
    let reply = client.call(&["FUNCTION", "LOAD", broken]);
    assert!(
        reply
            .error()
            .is_some_and(|error| error.contains("+INJECTED"))
    );
    // Nor may all together.
    let comment = "x".repeat(1 << 19);
    let loaded = (0..20)
        .map(|n| {
            format!(
                "{} --{comment}",
                library(&format!("l{n}"), &format!("f{n}"), "1")
            )
        })
        .map(|text| client.call(&["FUNCTION", "LOAD", &text]))
        .take_while(|reply| reply.error().is_none())
        .count();
    assert_eq!(loaded, 15);
    for n in 0..loaded {
        assert_eq!(call(&mut client, &format!("f{n}")), Reply::Integer(1));
    }
    let long = format!("{} --{}", library("b", "f", "1"), "x".repeat(1 << 20));
    let reply = client.call(&["FUNCTION", "LOAD", &long]);
    assert!(
        reply
            .error()
            .is_some_and(|error| error.contains("1048576 bytes"))
    );
    assert_eq!(client.say("FCALL fine 1 k"), Reply::Integer(1));
}

#[test]
fn functions_do_what_their_user_may() {
    let node = Node::start(Options::default());
    let mut client = node.client();
    let text = "#!lua name=a
redis.register_function('get', function(keys) return redis.call('get', keys[1]) end)
redis.register_function('set', function(keys, args) return redis.call('set', keys[1], args[1]) end)";
    assert_eq!(client.call(&["FUNCTION", "LOAD", text]), Reply::bulk("a"));
    client.say("ACL SETUSER reader on >p ~k* +fcall +get +function|list");
    client.say("SET k1 v");
    client.say("AUTH reader p");
    assert_eq!(client.say("FCALL get 1 k1"), Reply::bulk("v"));
    for (line, says) in [
        ("FCALL get 1 other", "NOPERM No permissions to access a key"),
        ("FCALL set 1 k1 w", "ACL failure in script"),
        ("FCALL_RO get 1 k1", "NOPERM"),
        ("FUNCTION FLUSH", "NOPERM"),
        ("FUNCTION DUMP", "NOPERM"),
    ] {
        let reply = client.say(line);
        let error = reply.error().unwrap_or_default();
        assert!(error.contains(says), "{line}: {reply:?}");
    }
    assert_eq!(client.say("FUNCTION LIST").items().len(), 1);
    assert_eq!(client.say("FCALL get 1 k1"), Reply::bulk("v"));
}

#[test]
fn libraries_are_not_changed_in_transactions() {
    let node = Node::start(Options::default());
    let mut client = node.client();
    client.say("MULTI");
    let reply = client.call(&["FUNCTION", "LOAD", &library("a", "fa", "1")]);
    let refused = "ERR Command not allowed inside a transaction";
    assert_eq!(reply.error(), Some(refused));
    assert!(client.say("EXEC").error().is_some());
    let reply = client.call(&["EVAL", "return redis.call('function', 'flush')", "0"]);
    assert!(
        reply
            .error()
            .is_some_and(|error| error.contains("not allowed from script"))
    );
}

/// As clients of a cluster do: to every primary, one after the other.
#[test]
fn changes_may_be_repeated_at_every_primary() {
    let mut node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    let everywhere = |node: &Node, args: &[&[u8]], expected: &Reply| {
        for shard in 0..3 {
            let reply = node.direct_client(shard).call(args);
            assert_eq!(reply, *expected, "shard {shard}: {}", shown(args));
        }
    };
    let text = library("a", "fa", "1").into_bytes();
    let load: [&[u8]; 3] = [b"FUNCTION", b"LOAD", &text];
    let delete: [&[u8]; 3] = [b"FUNCTION", b"DELETE", b"a"];
    let exists = Reply::Error("ERR Library 'a' already exists".to_owned());
    let absent = Reply::Error("ERR Library not found".to_owned());
    for _ in 0..2 {
        everywhere(&node, &load, &Reply::bulk("a"));
        everywhere(&node, &load, &exists);
        assert_eq!(node.client().call(&load), exists);
        everywhere(&node, &delete, &Reply::ok());
        everywhere(&node, &delete, &absent);
        assert_eq!(node.client().call(&delete), absent);
    }
    everywhere(&node, &load, &Reply::bulk("a"));
    let payload = bytes(&node.client().call(&["FUNCTION", "DUMP"]));
    let restore: [&[u8]; 3] = [b"FUNCTION", b"RESTORE", &payload];
    everywhere(&node, &[b"FUNCTION", b"FLUSH"], &Reply::ok());
    everywhere(&node, &restore, &Reply::ok());
    let restored = Reply::Error("ERR Library a already exists".to_owned());
    everywhere(&node, &restore, &restored);
    // Another text is another library, and at the entry port there is one server.
    let other = library("a", "fa", "2").into_bytes();
    everywhere(&node, &[b"FUNCTION", b"LOAD", &other], &exists);
    everywhere(
        &node,
        &[b"FUNCTION", b"LOAD", b"REPLACE", &other],
        &Reply::bulk("a"),
    );
    assert_eq!(node.client().call(&delete), Reply::ok());
    everywhere(&node, &delete, &absent);
    assert_eq!(node.client().call(&load), Reply::bulk("a"));
    everywhere(&node, &load, &exists);
    node.kill();
    node.restart();
    everywhere(&node, &load, &exists);
    everywhere(&node, &[b"FCALL", b"fa", b"0"], &Reply::Integer(1));
}
