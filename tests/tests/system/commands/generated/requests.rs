//! Requests of all commands, good and bad, and sequences of them.

use std::borrow::Cow;
use std::fmt;

use ephesus_tests::Rng;

use super::super::shown;
use super::grammar::Line;
use super::lines::{
    COMMON, FUNCTIONS, JUNK, NEWER, OLDER, OLDER_SCRIPTS, OVER_ALL, OVER_ALL_CLIENTS, PAST,
    PAYLOADS, SCRIPTS, TRANSACTIONS, UNSPOILT,
};

/// How keys of other databases begin in tables and logs: as a key of a client it is one like any other.
const MARK: &[u8] = b"\xff\x00ephdb\xfe";

/// Databases that sequences use, and one more that is asked for.
pub const DATABASES: u64 = 4;

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
        (is_over_all && !self.over_all_in_multi) || (is_nested && refuses_all)
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
    functions: Vec<(&'static str, Line)>,
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
            let is_of_one_shard = TRANSACTIONS.contains(&name)
                || name.starts_with("EVAL")
                || name.starts_with("FCALL");
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
            functions: FUNCTIONS
                .iter()
                .map(|(name, _, rest)| (*name, Line::read(rest)))
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
        lapses |= name == "SET" && args.iter().skip(3).any(|arg| is_past(arg));
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

    fn function(&self, rng: &mut Rng) -> &(&'static str, Line) {
        let total = self
            .functions
            .iter()
            .map(|function| function.1.weight)
            .sum();
        let mut at = rng.below(total);
        let mut functions = self.functions.iter();
        loop {
            let function = functions.next().expect("the weights are the total");
            if at < function.1.weight {
                return function;
            }
            at -= function.1.weight;
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
                *lapses |= self.fill_rest(rest, rng, out);
            }
            "function" => {
                let (name, rest) = self.function(rng);
                out.push((*name).into());
                *lapses |= self.fill_rest(rest, rng, out);
            }
            _ => out.push(filled(hole, rng)),
        }
    }

    /// What follows the name of a script or a function; whether it has a key lapse.
    fn fill_rest(&self, rest: &Line, rng: &mut Rng, out: &mut Vec<Vec<u8>>) -> bool {
        let mut lapses = false;
        out.extend(rest.make(rng, &mut |hole, rng, out| {
            lapses |= hole == "lapse";
            self.fill(hole, rng, out, &mut false);
        }));
        lapses
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

/// Whether it is a time that has passed, which SET takes all the same.
fn is_past(arg: &[u8]) -> bool {
    PAST.contains(&&*text(arg)) || arg == b"4294967296"
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
