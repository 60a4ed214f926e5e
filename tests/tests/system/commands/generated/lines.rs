//! Which requests there are, with their weights, and what they are made of.

/// Known to Redis 7.0 and Valkey 9.1. What begins with `@` is for the run: see there.
pub const COMMON: &str = "
30 GET <key>
30 SET <key> <value>
20 SET <key> <value> [ NX | XX ] [ GET ] [ EX <s> | PX <ms> | EXAT <s-at> | PXAT <ms-at> | KEEPTTL ]
6 SET <key> <value> [ EX <s> | GET | NX ] [ PX <ms> | KEEPTTL | XX ] [ EXAT <s-at> | NX ]
6 SETNX <key> <value>
6 SETEX <key> <s> <value>
6 PSETEX <key> <ms> <value>
6 GETSET <key> <value>
8 GETDEL <key>
12 GETEX <key> [ EX <s> | PX <ms> | EXAT <s-at> | PXAT <ms-at> | PERSIST ]
2 GETEX <key> PERSIST EX <s>
12 MGET <keys>
10 MSET <pairs>
6 MSETNX <same-pairs>
8 STRLEN <key>
14 APPEND <key> <value>
10 GETRANGE <key> <at> <at>
4 SUBSTR <key> <at> <at>
10 SETRANGE <key> <offset> <value>
12 INCR <key>
8 DECR <key>
12 INCRBY <key> <amount>
8 DECRBY <key> <amount>
12 INCRBYFLOAT <key> <float>
8 LCS <same> <same> [ LEN | IDX ] [ MINMATCHLEN <at> ] [ WITHMATCHLEN ]
10 SETBIT <key> <bit-at> <bit>
8 GETBIT <key> <bit-at>
8 BITCOUNT <key>
8 BITCOUNT <key> <at> <at> [ BYTE | BIT ]
10 BITPOS <key> <bit> [ <at> [ <at> [ BYTE | BIT ] ] ]
8 BITOP ( AND | OR | XOR ) <same> <same> <same-keys>
4 BITOP NOT <same> <same>
14 BITFIELD <key> [ OVERFLOW ( WRAP | SAT ) ] <field> [ OVERFLOW ( WRAP | SAT ) ] <field> [ <field> ]
5 BITFIELD <key> SET u1 120 0 SET u1 120 1 OVERFLOW FAIL <field> <field>
3 BITFIELD <key> [ <field> ]
5 BITFIELD_RO <key> GET <type> <field-at> [ GET <type> <field-at> ]
14 DEL <keys>
8 UNLINK <keys>
10 EXISTS <keys>
6 TOUCH <keys>
8 TYPE <key>
10 RENAME <same> <same>
8 RENAMENX <same> <same>
12 COPY <same> <same> [ DB <db> ] [ REPLACE ]
10 MOVE <key> <db>
12 EXPIRE <key> <s> [ NX | XX | GT | LT ]
2 EXPIRE <key> <s> ( NX | XX | GT | LT ) ( NX | XX | GT | LT )
8 PEXPIRE <key> <ms> [ NX | XX | GT | LT ]
8 EXPIREAT <key> <s-at> [ NX | XX | GT | LT ]
8 PEXPIREAT <key> <ms-at> [ NX | XX | GT | LT ]
10 TTL <key>
10 PTTL <key>
6 EXPIRETIME <key>
6 PEXPIRETIME <key>
8 PERSIST <key>
4 SORT <same> [ ASC | DESC | x ] [ ALPHA ] [ LIMIT <at> <at> ] [ STORE <same> ]
2 SORT_RO <key> [ ALPHA ] [ LIMIT <at> <at> | STORE <key> ] [ BY nosort ]
4 DUMP <key>
8 RESTORE <key> ( 0 | <life> | <ms-at> ABSTTL ) <payload> [ REPLACE ] [ ABSTTL ] [ IDLETIME <amount> | FREQ <amount> ]
10 @exchange <same> <same> ( 0 | <life> ) [ REPLACE ]
6 OBJECT ( ENCODING | FREQ | REFCOUNT ) <key>
2 MEMORY USAGE <key> [ SAMPLES <amount> ]
8 KEYS <pattern>
3 RANDOMKEY
8 @walk [ MATCH <pattern> ] [ COUNT <count> ] [ TYPE ( string | list | STRING ) ]
2 SCAN ( x | 1.5 | 0 ) [ MATCH <pattern> ] [ COUNT ( <junk> | 0 | -1 ) ]
8 DBSIZE
1 FLUSHDB [ ASYNC | SYNC ]
1 FLUSHALL [ ASYNC | SYNC ]
4 PING [ <value> ]
4 ECHO <value>
2 TIME
1 LASTSAVE
18 SELECT <db>
3 HELLO ( 2 | 3 ) [ SETNAME <name> ]
1 HELLO <junk>
2 RESET
2 @reconnect
2 @skip ( SET <key> <value> | INCR <key> | GET <key> | DEL <key> )
30 MULTI
30 EXEC
4 DISCARD
24 WATCH <watched>
4 UNWATCH
2 CLIENT SETNAME <name>
2 CLIENT GETNAME
1 CLIENT ID
1 CLIENT NO-EVICT ( ON | OFF | <junk> )
1 CLIENT UNBLOCK <far> [ TIMEOUT | ERROR | <junk> ]
1 CLIENT GETREDIR
1 CLIENT TRACKINGINFO
1 CLIENT KILL <junk>
1 CLIENT PAUSE ( x | -1 ) [ ALL | WRITE | nosuch ]
2 WAIT ( 0 | -1 | x ) ( 0 | -1 | x )
1 ROLE
2 PUBLISH <name> <value>
1 PUBSUB NUMSUB <name>
1 PUBSUB CHANNELS <pattern>
3 COMMAND GETKEYS <request>
1 OBJECT <junk> <key>
1 LATENCY GRAPH <junk>
1 SCRIPT <junk>
14 EVAL <script>
4 EVAL_RO <script>
10 EVALSHA <sha-script>
3 EVALSHA_RO <sha-script>
6 SCRIPT LOAD <text>
3 SCRIPT EXISTS <sha> [ <sha> ] [ <junk> ]
1 SCRIPT FLUSH [ ASYNC | SYNC | <junk> ]
1 SCRIPT KILL
2 SET <key> <value> PX <lapse>
2 PEXPIRE <key> <lapse>
1 PSETEX <key> <lapse> <value>
1 GETEX <key> PX <lapse>
1 RESTORE <key> <lapse> <payload> REPLACE
2 <junk> <key> <value>
";

/// Known to Valkey 9.1 only.
pub const NEWER: &str = "
12 DELIFEQ <key> <value>
12 SET <key> <value> [ GET ] IFEQ <value> [ EX <s> | PXAT <ms-at> | KEEPTTL ]
3 SET <key> <value> ( NX | XX | IFEQ <value> ) ( NX | XX | IFEQ <value> )
1 CLIENT NO-TOUCH ( ON | OFF | <junk> )
1 CLIENT SETINFO ( LIB-NAME | LIB-VER | <junk> ) <name>
1 WAITAOF ( 0 | -1 | x | 2 ) ( 0 | -1 | x ) ( 0 | -1 | x )
";

/// Answered in other words by Valkey 9.1, or not at all.
pub const OLDER: &str = "
1 CLIENT REPLY <junk>
1 MODULE LIST
1 MODULE ( LOAD | UNLOAD | <junk> ) <name>
2 SCAN <junk> [ MATCH <pattern> ] [ COUNT <junk> ]
1 @walk TYPE nosuch
14 FCALL <function>
5 FCALL_RO <function>
1 FCALL <junk> <junk>
1 FUNCTION ( STATS | KILL | <junk> )
1 FUNCTION LIST ( LIBRARYNAME <junk> | WITHCODE <junk> )
";

/// What a request is answered with is another thing over all shards: not behind MULTI.
pub const OVER_ALL: &[&str] = &[
    "KEYS",
    "DBSIZE",
    "FLUSHALL",
    "FLUSHDB",
    "RANDOMKEY",
    "SCAN",
    "SCRIPT",
    "PUBSUB",
    "PUBLISH",
    "WAIT",
    "WAITAOF",
];

/// The same of `CLIENT`.
pub const OVER_ALL_CLIENTS: &[&str] = &["KILL", "PAUSE", "UNBLOCK"];

/// With one mistake they may wait, or set a time to live that is over soon.
pub const UNSPOILT: &[&str] = &[
    "COMMAND",
    "HELLO",
    "WAIT",
    "WAITAOF",
    "CLIENT",
    "EVAL",
    "EVAL_RO",
    "EVALSHA",
    "EVALSHA_RO",
    "FCALL",
    "FCALL_RO",
    "FUNCTION",
];

/// About transactions, which are about keys of one shard.
pub const TRANSACTIONS: &[&str] = &["MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"];

/// Scripts, with what follows their text.
pub const SCRIPTS: &[(&str, &str)] = &[
    ("return 1", "1 0"),
    ("return {1,2,{3,'x',true,false},nil,5}", "1 0 <value>"),
    ("return {KEYS, ARGV}", "1 2 <same> <same> <value> <value>"),
    ("return redis.status_reply(ARGV[1])", "1 0 <name>"),
    ("return redis.error_reply('MY error')", "1 0"),
    ("return redis.error_reply('noprefix')", "1 0"),
    ("return {err='MY own', ok='x'}", "1 0"),
    ("return tonumber(ARGV[1])", "1 0 <float>"),
    ("return redis.sha1hex(ARGV[1])", "1 0 <value>"),
    ("return redis.call('get', KEYS[1])", "4 1 <same>"),
    (
        "return redis.call('set', KEYS[1], ARGV[1])",
        "4 1 <same> <value>",
    ),
    ("return redis.call('incr', KEYS[1])", "3 1 <same>"),
    (
        "return redis.pcall('incrby', KEYS[1], ARGV[1])",
        "3 1 <same> <amount>",
    ),
    (
        "local r = redis.pcall('incr', KEYS[1]) if type(r) == 'table' then return r['err'] end return r",
        "2 1 <same>",
    ),
    (
        "redis.call('set', KEYS[2], ARGV[1]) redis.call('incr', KEYS[1]) redis.call('set', KEYS[2], ARGV[2])",
        "3 2 <same> <same> <value> <value>",
    ),
    (
        "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end",
        "4 1 <same> <value>",
    ),
    (
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('psetex', KEYS[1], ARGV[3], ARGV[2]) else return 0 end",
        "2 1 <same> <value> <value> <ms>",
    ),
    (
        "redis.call('set', KEYS[1], 0, 'EX', ARGV[2], 'NX') local c = redis.call('incrby', KEYS[1], ARGV[1]) return {c, redis.call('pttl', KEYS[1])}",
        "3 1 <same> <amount> <s>",
    ),
    (
        "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])",
        "2 1 <same> <value> <s>",
    ),
    (
        "for i, key in ipairs(KEYS) do redis.call('append', key, ARGV[1]) end return redis.call('mget', unpack(KEYS))",
        "3 3 <same> <same> <same> <value>",
    ),
    (
        "return redis.call('rename', KEYS[1], KEYS[2])",
        "2 2 <same> <same>",
    ),
    (
        "return redis.call('pexpire', KEYS[1], ARGV[1])",
        "2 1 <same> <lapse>",
    ),
    (
        "return redis.call('set', KEYS[1], ARGV[1], 'GET', 'KEEPTTL')",
        "2 1 <same> <value>",
    ),
    (
        "return {redis.call('type', KEYS[1]), redis.call('strlen', KEYS[1])}",
        "2 1 <same>",
    ),
    (
        "return redis.call('bitfield', KEYS[1], 'incrby', 'u4', '#1', ARGV[1])",
        "2 1 <same> <amount>",
    ),
    (
        "return redis.call('incrbyfloat', KEYS[1], ARGV[1])",
        "2 1 <same> <float>",
    ),
    (
        "redis.setresp(3) return redis.call('get', KEYS[1])",
        "2 1 <same>",
    ),
    (
        "return cjson.encode({redis.call('get', KEYS[1]), tonumber(ARGV[1])})",
        "1 1 <same> <amount>",
    ),
    ("error('mine')", "1 0"),
    ("error({err='MY own'})", "1 0"),
    (
        "redis.call('incr', KEYS[1]) return undefined_variable",
        "1 1 <same>",
    ),
    ("x = 1", "1 0"),
    ("this is no lua", "1 0"),
    ("return redis.call('set', KEYS[1], 1.5)", "1 1 <same>"),
    ("return 1", "1 -1 <same>"),
    ("return 1", "1 3 <same>"),
    ("return 1", "1 <junk>"),
];

/// Answered in other words by Valkey 9.1.
pub const OLDER_SCRIPTS: &[(&str, &str)] = &[
    ("return redis.call('nosuch', KEYS[1])", "1 1 <same>"),
    ("return redis.pcall('get')", "1 0"),
    ("return redis.call()", "1 0"),
    ("return redis.call('multi')", "1 0"),
    ("return redis.call('get', KEYS[1], {})", "1 1 <same>"),
];

/// Functions of the one library that there is, each with its body and with what follows its name. Those of which the name
/// begins with `ro_` have the flag no-writes.
pub const FUNCTIONS: &[(&str, &str, &str)] = &[
    ("given", "return {KEYS, ARGV}", "2 2 <same> <same> <value>"),
    ("ro_get", "return redis.call('get', KEYS[1])", "4 1 <same>"),
    (
        "set",
        "return redis.call('set', KEYS[1], ARGV[1])",
        "4 1 <same> <value>",
    ),
    ("incr", "return redis.call('incr', KEYS[1])", "3 1 <same>"),
    (
        "caught",
        "local r = redis.pcall('incr', KEYS[1]) if type(r) == 'table' then return r['err'] end return r",
        "2 1 <same>",
    ),
    (
        "two",
        "redis.call('set', KEYS[2], ARGV[1]) redis.call('incr', KEYS[1]) redis.call('set', KEYS[2], ARGV[2])",
        "3 2 <same> <same> <value> <value>",
    ),
    (
        "compare_and_delete",
        "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end",
        "4 1 <same> <value>",
    ),
    (
        "append",
        "for i, key in ipairs(KEYS) do redis.call('append', key, ARGV[1]) end return redis.call('mget', unpack(KEYS))",
        "3 3 <same> <same> <same> <value>",
    ),
    (
        "lapse",
        "return redis.call('pexpire', KEYS[1], ARGV[1])",
        "1 1 <same> <lapse>",
    ),
    (
        "ro_sets",
        "return redis.call('set', KEYS[1], ARGV[1])",
        "1 1 <same> <value>",
    ),
    ("ro_keys", "return KEYS[1] == nil", "1 0"),
    ("FAILS", "error('mine')", "1 0"),
    (
        "fails_with",
        "redis.call('incr', KEYS[1]) error({err='MY own'})",
        "1 1 <same>",
    ),
    ("given", "", "1 -1 <same>"),
    ("given", "", "1 3 <same>"),
    ("given", "", "1 <junk>"),
    ("nosuch", "", "1 1 <same>"),
];

/// The library of these.
pub fn library() -> String {
    let functions = FUNCTIONS.iter().filter(|(_, body, _)| !body.is_empty());
    let functions = functions.map(|(name, body, _)| {
        let flags = if name.starts_with("ro_") { "'no-writes'" } else { "" };
        format!(
            "redis.register_function{{function_name='{name}', flags={{{flags}}}, callback=function(KEYS, ARGV) {body} end}}\n"
        )
    });
    format!("#!lua name=generated\n{}", functions.collect::<String>())
}

/// Neither a small number that could be a time to live, nor what would be accepted where it should not.
pub const JUNK: &[&str] = &[
    "",
    "x",
    "-1",
    "0",
    "1.5",
    "1e3",
    "+100000",
    " 100000",
    "0x10",
    "007",
    "nan",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "99999999999999999999",
    "4294967296",
    "NOSUCH",
    "nosuch\r\n\x01\"quoted\"",
];

/// Times that are past, in seconds and in milliseconds.
pub const PAST: [&str; 2] = ["1", "1000000000"];

/// Strings as Redis 7.0 dumps them, and what is none.
pub const PAYLOADS: &[&[u8]] = &[
    b"\x00\x05hello\n\x00cr\xdfve4 \n",
    b"\x00\xc0\x0c\n\x00<*\xf8Q\\\x04\xbc\xd5",
    b"\x00\xc1\xd4\xfe\n\x00\xc6\xc4\x86#\xfe\xbe\xde.",
    b"\x00\xc3\n<\x02aba\xe0.\x01\x01ab\n\x00\xbb\x16\xd3\xeb\xaeo\xc5t",
    b"\x00\x05hello\n\x00cr\xdfve4 \x0b",
    b"\x00\x05hello\xff\xff\x91\xbf\xff\xb4}\xb2\xa4j",
    b"\x00\x05hel",
    b"",
];
