//! Requests of all commands, good and bad, and sequences of them.

use std::borrow::Cow;
use std::fmt;

use ephesus_tests::Rng;

use super::super::shown;
use super::grammar::Line;

/// How keys of other databases begin in tables and logs: as a key of a client it is one like any other.
const MARK: &[u8] = b"\xff\x00ephdb\xfe";

/// Databases that sequences use, and one more that is asked for.
pub const DATABASES: u64 = 4;

/// Known to Redis 7.0 and Valkey 9.1. What begins with `@` is for the run: see there.
const COMMON: &str = "
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
const NEWER: &str = "
12 DELIFEQ <key> <value>
12 SET <key> <value> [ GET ] IFEQ <value> [ EX <s> | PXAT <ms-at> | KEEPTTL ]
3 SET <key> <value> ( NX | XX | IFEQ <value> ) ( NX | XX | IFEQ <value> )
1 CLIENT NO-TOUCH ( ON | OFF | <junk> )
1 CLIENT SETINFO ( LIB-NAME | LIB-VER | <junk> ) <name>
1 WAITAOF ( 0 | -1 | x | 2 ) ( 0 | -1 | x ) ( 0 | -1 | x )
";

/// Answered in other words by Valkey 9.1, or not at all.
const OLDER: &str = "
1 CLIENT REPLY <junk>
2 SCAN <junk> [ MATCH <pattern> ] [ COUNT <junk> ]
1 @walk TYPE nosuch
";

/// What a request is answered with is another thing over all shards: not behind MULTI.
const OVER_ALL: &[&str] = &[
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
const OVER_ALL_CLIENTS: &[&str] = &["KILL", "PAUSE", "UNBLOCK"];

/// With one mistake they may wait, or set a time to live that is over soon.
const UNSPOILT: &[&str] = &[
    "COMMAND",
    "WAIT",
    "WAITAOF",
    "CLIENT",
    "EVAL",
    "EVAL_RO",
    "EVALSHA",
    "EVALSHA_RO",
];

/// About transactions, which are about keys of one shard.
const TRANSACTIONS: &[&str] = &["MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"];

/// Scripts, with what follows their text.
const SCRIPTS: &[(&str, &str)] = &[
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
const OLDER_SCRIPTS: &[(&str, &str)] = &[
    ("return redis.call('nosuch', KEYS[1])", "1 1 <same>"),
    ("return redis.pcall('get')", "1 0"),
    ("return redis.call()", "1 0"),
    ("return redis.call('multi')", "1 0"),
    ("return redis.call('get', KEYS[1], {})", "1 1 <same>"),
];

/// Neither a small number that could be a time to live, nor what would be accepted where it should not.
const JUNK: &[&str] = &[
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
const PAST: [&str; 2] = ["1", "1000000000"];

/// Strings as Redis 7.0 dumps them, and what is none.
const PAYLOADS: &[&[u8]] = &[
    b"\x00\x05hello\n\x00cr\xdfve4 \n",
    b"\x00\xc0\x0c\n\x00<*\xf8Q\\\x04\xbc\xd5",
    b"\x00\xc1\xd4\xfe\n\x00\xc6\xc4\x86#\xfe\xbe\xde.",
    b"\x00\xc3\n<\x02aba\xe0.\x01\x01ab\n\x00\xbb\x16\xd3\xeb\xaeo\xc5t",
    b"\x00\x05hello\n\x00cr\xdfve4 \x0b",
    b"\x00\x05hello\xff\xff\x91\xbf\xff\xb4}\xb2\xa4j",
    b"\x00\x05hel",
    b"",
];

/// From which keys are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    Any,
    /// All of one slot.
    OneSlot,
    /// Of one slot, and now and then of another, which is refused with others.
    Strays,
    /// Of several slots, but for commands that need one; no transactions and no scripts.
    Spread,
}

/// What sequences are made of.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    pub keys: Keys,
    /// Commands over all keys may be part of a transaction.
    pub over_all_in_multi: bool,
    pub databases: bool,
    pub newer: bool,
}

impl Profile {
    /// What is not sent behind MULTI, as it is another thing there.
    pub fn leaves_out_of_multi(&self, step: &Step) -> bool {
        let second = step.args.get(1).map(|arg| arg.to_ascii_uppercase());
        let is_client = second.is_some_and(|name| OVER_ALL_CLIENTS.contains(&&*text(&name)));
        let is_over_all =
            OVER_ALL.iter().any(|name| step.is(name)) || step.is("CLIENT") && is_client;
        // An error with which Valkey 9.1 refuses the whole transaction, and Redis 7.0 does in a cluster.
        let is_nested = step.is("MULTI") || step.is("WATCH");
        let refuses_all = self.newer || self.keys == Keys::Strays;
        (is_over_all && !self.over_all_in_multi) || (is_nested && refuses_all) || step.is_script()
    }
}

/// One request of one client.
#[derive(Clone, Debug)]
pub struct Step {
    pub who: usize,
    pub args: Vec<Vec<u8>>,
    /// A key of it is gone a millisecond later.
    pub lapses: bool,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.args.iter().map(|arg| match arg.is_empty() {
            true => b"''".as_slice(),
            false => arg.as_slice(),
        });
        write!(f, "{}: {}", self.who, shown(&words.collect::<Vec<_>>()))
    }
}

impl Step {
    pub fn is(&self, name: &str) -> bool {
        let first = self.args.first();
        first.is_some_and(|first| first.eq_ignore_ascii_case(name.as_bytes()))
    }

    pub fn is_script(&self) -> bool {
        let name = self.args[0].get(..4).unwrap_or_default();
        name.eq_ignore_ascii_case(b"EVAL")
    }
}

/// Makes requests.
pub struct Maker {
    lines: Vec<Line>,
    total: u64,
    scripts: Vec<(&'static str, String, Line)>,
    profile: Profile,
}

impl Maker {
    /// `sha_of` says by which name a script is known.
    pub fn new(profile: Profile, mut sha_of: impl FnMut(&str) -> String) -> Self {
        let others = if profile.newer { NEWER } else { OLDER };
        let lines = COMMON.lines().chain(others.lines());
        let lines = lines.filter(|line| !line.is_empty()).map(Line::read);
        let is_about = |line: &Line| {
            let name = line.first_word().unwrap_or_default();
            let is_of_one_shard = TRANSACTIONS.contains(&name) || name.starts_with("EVAL");
            let is_of_databases = name == "MOVE" || name == "SELECT";
            (profile.keys != Keys::Spread || !is_of_one_shard)
                && (profile.databases || !is_of_databases)
        };
        let lines: Vec<Line> = lines.filter(is_about).collect();
        let older = if profile.newer { &[] } else { OLDER_SCRIPTS };
        let scripts = SCRIPTS.iter().chain(older);
        Self {
            total: lines.iter().map(|line| line.weight).sum(),
            lines,
            scripts: scripts
                .map(|(text, rest)| (*text, sha_of(text), Line::read(rest)))
                .collect(),
            profile,
        }
    }

    /// Requests of two clients, which take turns.
    pub fn sequence(&self, len: usize, rng: &mut Rng) -> Vec<Step> {
        let mut steps = Vec::with_capacity(len + 2);
        for who in 0..2 {
            let protocol = *rng.pick(&["2", "3"]);
            steps.push(Step {
                who,
                args: vec![b"HELLO".to_vec(), protocol.into()],
                lapses: false,
            });
        }
        while steps.len() < len {
            let who = rng.below(2) as usize;
            for _ in 0..1 + rng.below(24) {
                let mut step = self.request(rng);
                step.who = who;
                steps.push(step);
            }
        }
        steps
    }

    fn request(&self, rng: &mut Rng) -> Step {
        let line = self.line(rng);
        let mut lapses = false;
        let args = line.make(rng, &mut |hole, rng, out| {
            lapses |= hole == "lapse";
            self.fill(hole, rng, out, &mut lapses);
        });
        let name = line.first_word().unwrap_or_default();
        // With such a time it is there for a moment.
        lapses |= name == "SET" && args.iter().skip(3).any(|arg| PAST.contains(&&*text(arg)));
        let mut step = Step {
            who: 0,
            args,
            lapses,
        };
        let is_plain = !lapses && !name.starts_with('@');
        // Keys that have to be together are to stay so.
        let may_spoil = match self.profile.keys {
            Keys::OneSlot => false,
            Keys::Spread => !line.has_hole("same"),
            Keys::Any | Keys::Strays => true,
        };
        if is_plain && may_spoil && !UNSPOILT.contains(&name) && rng.one_in(16) {
            spoil(&mut step.args, rng);
        }
        if is_plain && rng.one_in(10) {
            step.args[0].make_ascii_lowercase();
        }
        step
    }

    fn line(&self, rng: &mut Rng) -> &Line {
        let mut at = rng.below(self.total);
        let mut lines = self.lines.iter();
        loop {
            let line = lines.next().expect("the weights are the total");
            if at < line.weight {
                return line;
            }
            at -= line.weight;
        }
    }

    fn script(&self, rng: &mut Rng) -> &(&'static str, String, Line) {
        let total = self.scripts.iter().map(|script| script.2.weight).sum();
        let mut at = rng.below(total);
        let mut scripts = self.scripts.iter();
        loop {
            let script = scripts.next().expect("the weights are the total");
            if at < script.2.weight {
                return script;
            }
            at -= script.2.weight;
        }
    }

    fn key(&self, rng: &mut Rng) -> Vec<u8> {
        let tagged = format!("{{t}}{}", rng.below(5)).into_bytes();
        match self.profile.keys {
            Keys::OneSlot => tagged,
            Keys::Strays if !rng.one_in(50) => tagged,
            _ => match rng.below(16) {
                0 => Vec::new(),
                1 => MARK.to_vec(),
                2 => [MARK, b"\x01k1"].concat(),
                3..8 => tagged,
                _ => format!("k{}", rng.below(5)).into_bytes(),
            },
        }
    }

    /// One of those that may be together in any command.
    fn same(&self, rng: &mut Rng) -> Vec<u8> {
        match self.profile.keys {
            Keys::Spread => format!("{{t}}{}", rng.below(5)).into_bytes(),
            _ => self.key(rng),
        }
    }

    fn fill(&self, hole: &str, rng: &mut Rng, out: &mut Vec<Vec<u8>>, lapses: &mut bool) {
        let few = |rng: &mut Rng| 1 + rng.below(4) * u64::from(rng.one_in(2));
        match hole {
            "key" => out.push(self.key(rng)),
            "same" => out.push(self.same(rng)),
            "keys" => (0..few(rng)).for_each(|_| out.push(self.key(rng))),
            "watched" | "same-keys" => (0..few(rng)).for_each(|_| out.push(self.same(rng))),
            "pairs" => (0..few(rng)).for_each(|_| out.extend([self.key(rng), value(rng)])),
            "same-pairs" => (0..few(rng)).for_each(|_| out.extend([self.same(rng), value(rng)])),
            "value" => out.push(value(rng)),
            "db" if !self.profile.databases => out.push(b"0".to_vec()),
            "db" => out.push(match rng.below(24) {
                0 => b"16".to_vec(),
                1 => rng.pick(JUNK).as_bytes().to_vec(),
                _ => rng.below(DATABASES).to_string().into(),
            }),
            "lapse" => out.push(b"1".to_vec()),
            "field" => {
                let (kind, at) = (filled("type", rng), filled("field-at", rng));
                match *rng.pick(&["GET", "SET", "INCRBY"]) {
                    "GET" => out.extend([b"GET".to_vec(), kind, at]),
                    name => out.extend([name.into(), kind, at, filled("amount", rng)]),
                }
            }
            "request" => {
                let line = self.line(rng);
                let inner = line.make(rng, &mut |hole, rng, out| match hole {
                    "request" => out.push(b"PING".to_vec()),
                    hole => self.fill(hole, rng, out, &mut false),
                });
                out.extend(inner);
                if out.len() == 3 {
                    out.push(b"x".to_vec());
                }
            }
            "text" => out.push(self.script(rng).0.into()),
            "sha" => out.push(self.script(rng).1.clone().into()),
            "script" | "sha-script" => {
                let (text, sha, rest) = self.script(rng);
                let name = if hole == "script" {
                    *text
                } else {
                    sha.as_str()
                };
                out.push(name.into());
                let mut inner = false;
                out.extend(rest.make(rng, &mut |hole, rng, out| {
                    inner |= hole == "lapse";
                    self.fill(hole, rng, out, &mut false);
                }));
                *lapses |= inner;
            }
            _ => out.push(filled(hole, rng)),
        }
    }
}

/// A hole that needs nothing but chance.
fn filled(hole: &str, rng: &mut Rng) -> Vec<u8> {
    let far = |unit: u64, rng: &mut Rng| rng.between(10_000 * unit, 10_000_000 * unit).to_string();
    let odd = rng.one_in(12);
    let text = match hole {
        "junk" => (*rng.pick(JUNK)).to_owned(),
        "s" | "ms" | "s-at" | "ms-at" | "amount" | "float" | "at" | "offset" | "bit-at"
        | "field-at" | "bit" | "type" | "count"
            if odd =>
        {
            (*rng.pick(JUNK)).to_owned()
        }
        // Far from each other, so that which of two is later does not depend on the moment.
        "s" => far(1, rng),
        "ms" => far(1000, rng),
        "s-at" if rng.one_in(8) => (*rng.pick(&PAST)).to_owned(),
        "s-at" => (4_000_000_000 + rng.below(100) * 1_000_000).to_string(),
        "ms-at" if rng.one_in(8) => (*rng.pick(&PAST)).to_owned(),
        "ms-at" => (4_000_000_000_000 + rng.below(100_000_000_000)).to_string(),
        // Redis adds the largest number to the time, and then it is past.
        "life" if odd => (*rng.pick(&["", "x", "-1", "1.5"])).to_owned(),
        "life" => far(1000, rng),
        "amount" => match rng.below(4) {
            0 => {
                (*rng.pick(&["9223372036854775807", "-9223372036854775808", "0", "255"])).to_owned()
            }
            _ => (rng.below(2000) as i64 - 1000).to_string(),
        },
        "float" => (*rng.pick(&[
            "0.1",
            "-2.5",
            "3",
            "1e10",
            "1e-5",
            "10.50",
            "1e400",
            "inf",
            "-inf",
            "3.0e3",
            "0",
            "1e17",
            "123456789.123456789",
            "-0.0",
            ".5",
            "5.",
            "1e4932",
            "0x1p3",
            " 1",
            "1 ",
        ]))
        .to_owned(),
        "at" => (rng.below(60) as i64 - 20).to_string(),
        "offset" => match rng.below(12) {
            0 => "5000".to_owned(),
            1 => "9000000000".to_owned(),
            _ => rng.below(24).to_string(),
        },
        "bit-at" => match rng.below(12) {
            0 => "40000".to_owned(),
            _ => rng.below(120).to_string(),
        },
        "bit" => rng.below(2).to_string(),
        "type" => match rng.below(12) {
            0 => (*rng.pick(&["u0", "u64", "i65", "i0", "x8", "u", "U8"])).to_owned(),
            _ => format!("{}{}", rng.pick(&["u", "i"]), rng.between(1, 64)),
        },
        "field-at" => match rng.one_in(3) {
            true => format!("#{}", rng.below(8)),
            false => rng.below(100).to_string(),
        },
        "far" => "99999999999".to_owned(),
        "count" => rng.between(1, 12).to_string(),
        "name" => (*rng.pick(&["n", "name-1", "a b", "", "\u{e9}"])).to_owned(),
        "pattern" => (*rng.pick(&[
            "*", "*1", "k?", "{t}[0-2]", "{t}[^1]", "nosuch*", "", "[", "\\{t}*", "k[a-", "**0",
        ]))
        .to_owned(),
        "payload" => return rng.pick(PAYLOADS).to_vec(),
        other => panic!("no such hole: <{other}>"),
    };
    text.into_bytes()
}

fn text(arg: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(arg)
}

fn value(rng: &mut Rng) -> Vec<u8> {
    match rng.below(20) {
        0..6 => rng.below(12).to_string().into(),
        6..10 => (*rng.pick(&["a", "abc", "hello", "foobar", "ab"])).into(),
        10 => Vec::new(),
        11 => rng.pick(JUNK).as_bytes().to_vec(),
        12 => (*rng.pick(&["9223372036854775806", "-9223372036854775808", "3.25", "1e3"])).into(),
        13 => {
            let len = rng.below(80) as usize;
            rng.bytes(len)
        }
        14 if rng.one_in(20) => b"long ".repeat(4000),
        _ => {
            let letters: Vec<u8> = (0..rng.below(30)).map(|_| *rng.pick(b"abc")).collect();
            letters
        }
    }
}

/// Makes one mistake.
fn spoil(args: &mut Vec<Vec<u8>>, rng: &mut Rng) {
    let at = rng.below(args.len() as u64) as usize;
    match rng.below(4) {
        // What is left may not be another command, such as SYNC.
        0 if at > 0 => drop(args.remove(at)),
        1 => args.insert(at, args[at].clone()),
        2 => args.push(rng.pick(JUNK).as_bytes().to_vec()),
        _ => args[at] = rng.pick(JUNK).as_bytes().to_vec(),
    }
    if args.is_empty() {
        args.push(b"PING".to_vec());
    }
}
