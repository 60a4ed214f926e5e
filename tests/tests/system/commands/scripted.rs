//! Fixed requests, chosen for their edges.

use super::{PORTS, PROTOCOLS, Pair, Port};

/// Answered alike on both kinds of port, in this order, starting from nothing.
const SCRIPT: &str = "
PING
PING hello
PING a b
ECHO x
ECHO
ECHO a b
GET
GET a b
GET absent
SET
SET a
SET a 1
GET a
TYPE a
TYPE absent
STRLEN a
STRLEN absent
SETNX a 2
SETNX b 2
SETEX e 100 v
SETEX e 0 v
SETEX e -1 v
SETEX e x v
SETEX e 9223372036854775807 v
SETEX e 1
GETSET a 3
GETSET absent1 3
GETSET a
GETDEL absent1
GETDEL absent1
PSETEX e 100000 v
PSETEX e 0 v
PSETEX e x v
PSETEX e 9223372036854775807 v
PSETEX e 1
SORT
SORT absent
SORT absent x
SORT absent ASC DESC ALPHA
SORT absent LIMIT 0
SORT absent LIMIT 0 x
SORT absent LIMIT -1 99999999999999999999
SORT absent LIMIT 0 10
SORT absent BY nosort
SORT absent BY
SORT absent GET
SORT absent STORE
SORT {s}absent STORE {s}absent
SET {s}a 1
SORT {s}a
SORT {s}a x
SORT {s}a STORE {s}b
SORT {s}absent STORE {s}a
EXISTS {s}a
SORT_RO
SORT_RO absent
SORT_RO absent DESC LIMIT 0 1
SORT_RO {s}absent STORE {s}a
SET {s}a 1
SORT_RO {s}a
COMMAND GETKEYS SORT a
COMMAND GETKEYS SORT a LIMIT 0 1 STORE b
COMMAND GETKEYS SORT a STORE b STORE c
COMMAND GETKEYS SORT a BY store x
COMMAND GETKEYSANDFLAGS SORT a STORE b
COMMAND GETKEYSANDFLAGS SORT_RO a
MULTI
SORT {s}a
SORT {s}absent STORE {s}a
GET {s}a
EXEC
EVAL return{redis.call('sort',KEYS[1],'store',KEYS[2]),redis.pcall('sort',KEYS[1])} 2 {s}absent {s}a
GETEX
GETEX absent
GETEX absent EX x
GETEX e
GETEX e PERSIST
TTL e
GETEX e EX 100
GETEX e EX 100 EX 200
GETEX e EX 100 PX 200
GETEX e EX
GETEX e EX 0
GETEX e PX x
GETEX e PERSIST EX 100
GETEX e EX 100 PERSIST
GETEX e PERSIST PERSIST
GETEX e KEEPTTL
GETEX e EXAT 4102444800
EXPIRETIME e
PEXPIRETIME e
EXPIRETIME absent
GETEX e PXAT 1
EXISTS e
SET e v
EXPIREAT e 4102444800
EXPIREAT e 4102444800 NX
EXPIREAT e 4102444801 GT
EXPIREAT e 9223372036854775807
EXPIREAT e x
EXPIREAT absent 1
PEXPIREAT e 4102444800499
EXPIRETIME e
PEXPIREAT e 4102444800500
EXPIRETIME e
PEXPIRETIME e
PEXPIREAT e -9223372036854775808
EXISTS e
EXPIRETIME p
SET range 0123456789
GETRANGE range 0 3
GETRANGE range -3 -1
GETRANGE range -1 -3
GETRANGE range 0 -1
GETRANGE range 5 1
GETRANGE range 5 100
GETRANGE range 10 11
GETRANGE range -100 -50
GETRANGE range -100 2
GETRANGE range 9223372036854775807 -9223372036854775808
GETRANGE range x 1
GETRANGE range 1 x
GETRANGE range 1
GETRANGE absent 0 1
SUBSTR range 2 4
SETRANGE range 5 abc
GET range
SETRANGE range 12 z
GET range
SETRANGE range -1 a
SETRANGE range x a
SETRANGE range 9223372036854775807 a
SETRANGE range 0 ''
SETRANGE absent 5 ''
EXISTS absent
SETRANGE absent 3 x
GET absent
DEL absent
SETBIT absent 7 1
GET absent
SETBIT absent 7 0
SETBIT absent 100 0
STRLEN absent
SETBIT absent -1 1
SETBIT absent x 1
SETBIT absent 1 2
SETBIT absent 1 x
SETBIT absent 9223372036854775807 1
BITOP
BITOP foo {r}d {r}a
BITOP NOT {r}d {r}a {r}b
BITOP and {r}d {r}absent
BITOP or {r}d {r}absent {r}a
BITFIELD absent
BITFIELD absent GET u8 0
BITFIELD b7 GET
BITFIELD b7 GET u8
BITFIELD b7 GET u64 0
BITFIELD b7 GET i65 0
BITFIELD b7 GET x 0
BITFIELD b7 GET u8 x
BITFIELD b7 GET u8 -1
BITFIELD b7 GET u8 #1
BITFIELD b7 SET u8 0
BITFIELD b7 SET u8 0 x
BITFIELD b7 OVERFLOW foo
BITFIELD b7 OVERFLOW
BITFIELD b7 OVERFLOW fail INCRBY u2 0 100 GET u2 0
EXISTS b7
STRLEN b7
BITFIELD b7 SET u8 #1 -1 OVERFLOW sat SET u8 #1 -1 INCRBY i5 3 100 INCRBY i64 #2 -5 GET i64 #2
BITFIELD b7 INCRBY i64 0 9223372036854775807 INCRBY i64 0 9223372036854775807
BITFIELD_RO b7
BITFIELD_RO b7 GET u8 0
BITFIELD_RO b7 SET u8 0 1
BITFIELD_RO b7 OVERFLOW sat GET u8 0
GET b7
LCS
LCS a
LCS {r}a {r}b FOO
LCS {r}a {r}b LEN IDX
LCS {r}a {r}b MINMATCHLEN
LCS {r}a {r}b MINMATCHLEN x
LCS {r}a {r}b IDX
MSET {l}1 ohmytext {l}2 mynewtext
LCS {l}1 {l}2
LCS {l}1 {l}2 LEN
LCS {l}1 {l}2 IDX
LCS {l}1 {l}2 idx minmatchlen 4 withmatchlen
LCS {l}1 {l}2 IDX MINMATCHLEN -5 WITHMATCHLEN
LCS {l}1 {l}2 IDX MINMATCHLEN 9
LCS {l}1 {l}absent IDX
DUMP
DUMP absent
DUMP {l}1
SET n 12
DUMP n
SET n -300
DUMP n
SET n 70000
DUMP n
SET n 12345678901
DUMP n
SET n 007
DUMP n
RESTORE
RESTORE n 0 abc
RESTORE r0 -1 abc
RESTORE r0 x abc
RESTORE r0 0 abc
RESTORE r0 0 abcdefghijkl
RESTORE r0 0 abc FOO
RESTORE r0 0 abc IDLETIME
RESTORE r0 0 abc IDLETIME -1
RESTORE r0 0 abc FREQ 256
RESTORE r0 0 abc FREQ x
RESTORE r0 0 abc IDLETIME 1 FREQ 1
RESTORE n 0 abc REPLACE
OBJECT
OBJECT NOSUCH
OBJECT ENCODING
OBJECT ENCODING nosuchkey
OBJECT FREQ nosuchkey
OBJECT IDLETIME nosuchkey
OBJECT ENCODING n
OBJECT REFCOUNT n
SET n 12
OBJECT ENCODING n
OBJECT REFCOUNT n
SET n 12345
OBJECT REFCOUNT n
SET n xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
OBJECT ENCODING n
MEMORY
MEMORY NOSUCH
MEMORY USAGE
MEMORY USAGE nosuchkey
MEMORY USAGE n SAMPLES
MEMORY USAGE n SAMPLES x
MEMORY USAGE n SAMPLES -1
MEMORY USAGE n FOO BAR
MEMORY PURGE
MEMORY PURGE x
DEL n
GETBIT absent 7
GETBIT absent 1000
GETBIT absent -1
GETBIT range 2
DEL absent
GETBIT absent 0
SET bits foobar
BITCOUNT bits
BITCOUNT bits 0 0
BITCOUNT bits 1 1 BYTE
BITCOUNT bits 5 30 BIT
BITCOUNT bits 5 30 bits
BITCOUNT bits -2 -1
BITCOUNT bits -1 -2
BITCOUNT bits 0
BITCOUNT bits x 1
BITCOUNT bits 0 1 BIT 1
BITCOUNT absent
BITCOUNT absent 0 -1
BITPOS bits 1
BITPOS bits 0
BITPOS bits 1 2
BITPOS bits 1 2 -1
BITPOS bits 1 7 15 BIT
BITPOS bits 0 1 1 BIT
BITPOS bits 2
BITPOS bits x
BITPOS bits 1 x
BITPOS bits 1 0 1 bits
BITPOS bits 1 10 12
BITPOS bits 1 -10 -12
BITPOS bits 1 -1 -3
BITPOS absent 0
BITPOS absent 1
BITPOS absent
TOUCH
TOUCH a absent a
MSETNX
MSETNX a
MSETNX {m}a 1 {m}b 2
MSETNX {m}b 3 {m}c 4
EXISTS {m}c
MSETNX {m}d 1 {m}d 2
GET {m}d
RENAMENX {m}a {m}b
RENAMENX {m}a {m}a
RENAMENX {m}a {m}e
RENAMENX {m}a {m}e
RENAMENX {m}absent {m}absent
COPY {m}e
COPY {m}e {m}e
COPY {m}e {m}b
COPY {m}e {m}b REPLACE
GET {m}b
COPY {m}e {m}f DB 0
COPY {m}e {m}f DB
COPY {m}e {m}f DB x
COPY {m}e {m}f NOSUCH
COPY {m}absent {m}f
COPY {m}e {m}g DB 0 REPLACE
APPEND p abc
APPEND p def
APPEND p ''
APPEND absent2 ''
EXISTS absent2
STRLEN absent2
GET p
INCR n
INCR n
DECR n
INCRBY n 10
DECRBY n 3
INCRBY n notanumber
INCRBY n 1.0
INCRBY n 0x10
INCRBY n +5
INCRBY n 007
INCR p
SET f 10.50
INCRBYFLOAT f 0.1
INCRBYFLOAT f -5
INCRBYFLOAT f x
INCRBYFLOAT f ''
INCRBYFLOAT f 1e3
INCRBYFLOAT f inf
INCRBYFLOAT f nan
INCRBYFLOAT f 1e5000
INCRBYFLOAT f 1e-18
INCRBYFLOAT absent3 3.0
INCRBYFLOAT p 1
INCRBYFLOAT f
SET f 1e4931
INCRBYFLOAT f 1e4932
INCRBYFLOAT f 1e4932
SET n 9223372036854775807
INCR n
INCRBY n 1
DECRBY n -1
SET n -9223372036854775808
DECR n
DECRBY n 9223372036854775807
DECRBY n -9223372036854775808
SET n 9223372036854775808
INCR n
SET n -0
INCR n
SET n 01
INCR n
SET n ''
INCR n
DEL n
INCR n
EXISTS a a absent
EXISTS
DEL
DEL absent
UNLINK absent
TTL
TTL absent
TTL a
PTTL a
PTTL absent
PERSIST a
PERSIST absent
EXPIRE a
EXPIRE a x
EXPIRE a 100 NO
EXPIRE a 9223372036854775807
EXPIRE a -9223372036854775808
EXPIRE absent 10
PEXPIRE absent 10
PEXPIRE a 9223372036854775807
SET a 1
EXPIRE a 100
PERSIST a
PERSIST a
EXPIRE a -1
EXISTS a
SET a 1
PEXPIRE a 0
GET a
RENAME absent absent
RENAME {r}absent {r}other
RENAME a
RENAME p p
MSET
MSET a
MSET a 1 b
MSET a 1 a 2
GET a
MGET
MGET a a absent
DBSIZE x
RANDOMKEY x
KEYS
KEYS a b
SCAN
SCAN x
SCAN 0 COUNT 0
SCAN 0 COUNT -1
SCAN 0 COUNT x
SCAN 0 COUNT
SCAN 0 MATCH
SCAN 0 BAD 1
SCAN 0 TYPE
SELECT
SELECT x
SELECT 0
NOSUCH
NOSUCH a
nosuch a b c d e f g h i j k l m n o p q r s t u v w x y z aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
''
CLIENT
CLIENT NOSUCH
CLIENT SETNAME
CLIENT GETNAME
CLIENT SETNAME conn-1
CLIENT GETNAME
CLIENT SETNAME ''
CLIENT GETNAME
CLIENT ID x
COMMAND NOSUCH
COMMAND COUNT x
COMMAND GETKEYS
COMMAND GETKEYS get
COMMAND GETKEYS get a
COMMAND GETKEYS set a b
COMMAND GETKEYS mset a 1 b 2
COMMAND GETKEYS mget a b c
COMMAND GETKEYS rename a b
COMMAND GETKEYS nosuch a
COMMAND GETKEYS ping
COMMAND INFO nosuch
CONFIG
CONFIG NOSUCH
CONFIG GET
CONFIG GET nosuchparameter
HELLO x
HELLO 1
HELLO 4
HELLO 2 NOSUCH
FLUSHALL BAD
FLUSHDB BAD
FLUSHALL
DBSIZE
RANDOMKEY
KEYS *
FLUSHDB ASYNC
FLUSHALL SYNC
QUIT x
";

#[test]
fn scripted_edges_are_answered_as_redis_answers() {
    let mut different = Vec::new();
    for port in PORTS {
        for protocol in PROTOCOLS {
            let mut pair = Pair::new(port, protocol);
            for line in SCRIPT.lines().filter(|line| !line.is_empty()) {
                let line = if port == Port::Direct {
                    tagged(line)
                } else {
                    line.to_owned()
                };
                let words: Vec<&str> = line
                    .split_whitespace()
                    .map(|word| if word == "''" { "" } else { word })
                    .collect();
                if words[0] == "QUIT" {
                    continue;
                }
                let (ours, theirs) = pair.ask(&words);
                if ours != theirs {
                    different.push(format!(
                        "{port:?} port, RESP{protocol}, {line}: we say {ours:?}, Redis says {theirs:?}"
                    ));
                }
            }
        }
    }
    assert!(
        different.is_empty(),
        "{} differences:\n{}",
        different.len(),
        different.join("\n")
    );
}

/// Puts all one-word keys of a multi-key request into one slot.
fn tagged(line: &str) -> String {
    let mut words = line.split_whitespace();
    let Some(name @ ("MSET" | "MGET" | "EXISTS" | "DEL" | "RENAME")) = words.next() else {
        return line.to_owned();
    };
    let step = if name == "MSET" { 2 } else { 1 };
    let mut out = name.to_owned();
    for (index, word) in words.enumerate() {
        out.push(' ');
        out.push_str(if index % step == 0 { "{t}" } else { "" });
        out.push_str(word);
    }
    out
}

#[test]
fn keys_and_scan_find_what_redis_finds() {
    let mut pair = Pair::new(Port::Entry, 2);
    for i in 0..300 {
        pair.same(&["SET", &format!("user:{i}"), "x"]);
    }
    for odd in [
        "a[b]c", "a*c", "a?c", "a\\c", "h[llo", "hello", "hallo", "hxllo", "^", "-",
    ] {
        pair.same(&["SET", odd, "x"]);
    }
    for pattern in [
        "*",
        "user:1*",
        "user:?",
        "user:[12]?",
        "h[ae]llo",
        "h[^e]llo",
        "h[a-f]llo",
        "a\\*c",
        "a\\[*",
        "",
        "?",
        "**",
        "*:*9",
        "h[llo",
        "h\\[llo",
        "[",
        "a[b]c",
        "[^]",
        "[z-a]*",
        "user:[0-9][0-9]",
        "\\",
        "a\\\\c",
        "[\\-]",
        "nomatch*",
    ] {
        pair.same_unordered(&["KEYS", pattern]);
        let ours = scan_all(&mut pair.ours, pattern);
        let theirs = scan_all(&mut pair.theirs, pattern);
        assert_eq!(ours, theirs, "SCAN MATCH {pattern:?}");
    }
    assert_eq!(
        pair.ours.say("SCAN 0 TYPE list COUNT 100000").items()[1]
            .items()
            .len(),
        0
    );
    let all = pair.ours.say("SCAN 0 TYPE string COUNT 100000").items()[1]
        .items()
        .len();
    assert!(all > 0);
    for _ in 0..50 {
        let key = pair.ours.say("RANDOMKEY").text();
        assert_eq!(
            pair.theirs.call(&["EXISTS", &key]).integer(),
            1,
            "RANDOMKEY gave {key:?}"
        );
    }
}

fn scan_all(client: &mut ephesus_tests::Client, pattern: &str) -> Vec<String> {
    let mut found = std::collections::BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let reply = client
            .call(&["SCAN", &cursor, "MATCH", pattern, "COUNT", "7"])
            .items();
        found.extend(reply[1].items().iter().map(|key| key.text()));
        cursor = reply[0].text();
        if cursor == "0" {
            return found.into_iter().collect();
        }
    }
}

#[test]
fn keys_of_several_slots_are_refused_on_a_direct_port_as_redis_refuses_them() {
    let mut pair = Pair::new(Port::Direct, 2);
    for line in [
        "MSET a 1 b 2",
        "MGET a b",
        "DEL a b",
        "UNLINK a b",
        "EXISTS a b",
        "RENAME a b",
        "SELECT 0",
        "MSET {x}a 1 {x}b 2",
        "MGET {x}a {x}b",
        "CLUSTER KEYSLOT a",
        "CLUSTER KEYSLOT {x}a",
        "CLUSTER KEYSLOT ''",
        "CLUSTER KEYSLOT {}a",
        "CLUSTER KEYSLOT",
        "CLUSTER NOSUCH",
        "CLUSTER",
        "CLUSTER COUNTKEYSINSLOT 16287",
        "CLUSTER COUNTKEYSINSLOT 16384",
        "CLUSTER COUNTKEYSINSLOT x",
        "CLUSTER COUNTKEYSINSLOT -1",
        "CLUSTER GETKEYSINSLOT 0 10",
        "CLUSTER GETKEYSINSLOT 99999 10",
        "CLUSTER GETKEYSINSLOT 0 -1",
        "ASKING",
        "READONLY",
        "READWRITE",
        "READONLY x",
    ] {
        pair.same_line(line);
    }
    pair.same_unordered(&["CLUSTER", "GETKEYSINSLOT", "16287", "10"]);
}

#[test]
fn an_mset_over_all_slots_of_the_node_works_on_the_entry_port() {
    let mut pair = Pair::new(Port::Entry, 2);
    let mut mset = vec!["MSET".to_owned()];
    let mut mget = vec!["MGET".to_owned()];
    for i in 0..500 {
        mset.extend([format!("key:{i}"), format!("value:{i}")]);
        mget.push(format!("key:{}", i * 2));
    }
    pair.same(&mset);
    pair.same(&mget);
    mget[0] = "EXISTS".to_owned();
    pair.same(&mget);
    mget[0] = "UNLINK".to_owned();
    pair.same(&mget);
    pair.same(&["DBSIZE"]);
}

/// Redis packs longer strings; its dumps are read here, and ours there.
#[test]
fn dumps_are_restored_by_either_server() {
    let mut pair = Pair::new(Port::Entry, 2);
    let mut rng = ephesus_tests::Rng::new(ephesus_tests::seed_of_run("dumps"));
    let mut values = vec![
        b"a".repeat(50),
        b"abc".repeat(40_000),
        b"-2147483649".to_vec(),
    ];
    for len in [0, 1, 11, 12, 63, 64, 300, 20_000] {
        values.push(rng.bytes(len));
        let text = (0..len).map(|_| *rng.pick(b"aaab")).collect();
        values.push(text);
    }
    for (n, value) in values.iter().enumerate() {
        let key = format!("dumped:{n}");
        pair.same(&[b"SET".as_slice(), key.as_bytes(), value]);
        let (ours, theirs) = pair.ask(&["DUMP", &key]);
        let (ours, theirs) = (ours.bytes(), theirs.bytes());
        let target = format!("restored:{n}");
        let restore = |client: &mut ephesus_tests::Client, dump: &[u8]| {
            let reply = client.call(&[b"RESTORE".as_slice(), target.as_bytes(), b"0", dump]);
            assert_eq!(reply, ephesus_tests::Reply::ok(), "{n}");
            let busy = client.call(&[b"RESTORE".as_slice(), target.as_bytes(), b"0", dump]);
            assert!(busy.error().is_some_and(|text| text.starts_with("BUSYKEY")));
        };
        restore(&mut pair.ours, &theirs);
        restore(&mut pair.theirs, &ours);
        assert_eq!(pair.same(&["GET", &target]).bytes(), *value);
        let expiring = [
            b"RESTORE".as_slice(),
            target.as_bytes(),
            b"100000",
            &ours,
            b"REPLACE",
            b"IDLETIME",
            b"5",
        ];
        pair.same(&expiring);
        pair.close(&["PTTL", &target], 3000);
        let at = [
            b"RESTORE".as_slice(),
            target.as_bytes(),
            b"4102444800000",
            &ours,
            b"REPLACE",
            b"ABSTTL",
            b"FREQ",
            b"5",
        ];
        pair.same(&at);
        pair.same(&["PEXPIRETIME", &target]);
        let past = [
            b"RESTORE".as_slice(),
            target.as_bytes(),
            b"1",
            &ours,
            b"REPLACE",
            b"ABSTTL",
        ];
        pair.same(&past);
        pair.same(&["EXISTS", &target]);
    }
    let list = pair.theirs.say("RPUSH list a b");
    assert_eq!(list.integer(), 2);
    let dump = pair.theirs.say("DUMP list").bytes();
    let refused = pair
        .ours
        .call(&[b"RESTORE".as_slice(), b"list", b"0", &dump]);
    assert!(
        refused
            .error()
            .is_some_and(|text| text.contains("only strings"))
    );
}

#[test]
fn what_only_valkey_has_is_answered_as_it_answers() {
    let valkey = ephesus_tests::oracle::Oracle::valkey();
    let node = ephesus_tests::Node::start(ephesus_tests::Options::default());
    let (mut ours, mut theirs) = (node.client(), valkey.client());
    for line in [
        "DELIFEQ",
        "DELIFEQ a",
        "DELIFEQ a 1",
        "SET a 1",
        "DELIFEQ a 2",
        "DELIFEQ a 1",
        "GET a",
        "DELIFEQ a 1 2",
    ] {
        assert_eq!(ours.say(line), theirs.say(line), "{line}");
    }
    theirs.say("SET a hello");
    let dump = theirs.say("DUMP a").bytes();
    let restored = ours.call(&[b"RESTORE".as_slice(), b"b", b"0", &dump]);
    assert_eq!(restored, ephesus_tests::Reply::ok());
    assert_eq!(ours.say("GET b"), ephesus_tests::Reply::bulk("hello"));
}

#[test]
fn memory_commands_tell_of_the_node() {
    let node = ephesus_tests::Node::start(ephesus_tests::Options::default());
    for protocol in PROTOCOLS {
        for mut client in [node.client(), node.direct_client(0)] {
            client.call(&["HELLO", &protocol.to_string()]);
            client.say("SET {x}a 1");
            let usage = client.say("MEMORY USAGE {x}a");
            assert!(usage.error().is_some() || usage.integer() > 16, "{usage:?}");
            assert_eq!(client.say("MEMORY DOCTOR").text(), "No issues were found.");
            assert!(client.say("MEMORY MALLOC-STATS").text().len() > 50);
            assert!(
                client
                    .say("MEMORY STATS")
                    .field("total.allocated")
                    .is_some()
            );
            assert_eq!(client.say("MEMORY PURGE"), ephesus_tests::Reply::ok());
            assert!(client.say("MEMORY HELP").items().len() > 10);
        }
    }
}
