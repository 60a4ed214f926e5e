//! Random command sequences: every reply byte by byte, every gate, and the log.

use std::collections::BTreeMap;
use std::fmt;

use ephesus_wire::Lsn;
use ephesus_wire::resp::reply::Protocol;
use proptest::prelude::*;

use super::model::Model;
use super::tape::{Taped, attempt, contents};
use crate::command::spec::lookup;
use crate::keyspace::Reply;

const START_MS: u64 = 1_700_000_000_000;

#[derive(Clone, Debug)]
enum Step {
    Command(Line),
    Flush,
    /// What is one record, or nothing at all.
    Section(Vec<InSection>, bool),
    Advance(u64),
    Sweep,
    RemoveLapsed,
    Commit,
}

#[derive(Clone, Debug)]
enum InSection {
    Command(Line),
    Flush,
    Savepoint,
    /// To the last savepoint, or the beginning.
    RollBack,
    /// A section of its own, within the other one.
    Within(Vec<Line>, bool),
}

/// A command's arguments, shown as a line of text.
#[derive(Clone)]
struct Line(Vec<Vec<u8>>);

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let args: Vec<_> = self
            .0
            .iter()
            .map(|arg| String::from_utf8_lossy(arg))
            .collect();
        args.fmt(f)
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    (0..9u8).prop_map(|n| format!("k{n}").into_bytes())
}

fn text(values: &[&str]) -> BoxedStrategy<Vec<u8>> {
    let values: Vec<Vec<u8>> = values.iter().map(|v| v.as_bytes().to_vec()).collect();
    prop::sample::select(values).boxed()
}

fn value() -> BoxedStrategy<Vec<u8>> {
    prop_oneof![
        text(&[
            "",
            "a",
            "10",
            "-5",
            "007",
            "9223372036854775807",
            "-9223372036854775808"
        ]),
        prop::collection::vec(any::<u8>(), 0..600),
    ]
    .boxed()
}

fn amount() -> BoxedStrategy<Vec<u8>> {
    let small = (-3..2_000i64).prop_map(|n| n.to_string().into_bytes());
    let odd = text(&[
        "0",
        "x",
        "+1",
        "9223372036854775807",
        "-9223372036854775808",
        "9e3",
    ]);
    prop_oneof![6 => small, 1 => odd].boxed()
}

fn set_option() -> BoxedStrategy<Vec<Vec<u8>>> {
    let at = (-2_000..5_000i64).prop_map(|ms| START_MS.saturating_add_signed(ms));
    let pxat = at
        .clone()
        .prop_map(|ms| vec![b"PXAT".to_vec(), ms.to_string().into_bytes()]);
    let exat = at.prop_map(|ms| vec![b"exat".to_vec(), (ms / 1000).to_string().into_bytes()]);
    prop_oneof![
        text(&["NX", "XX", "nx", "GET", "KEEPTTL", "EX", "bogus"]).prop_map(|word| vec![word]),
        (text(&["EX", "PX", "px"]), amount()).prop_map(|(unit, n)| vec![unit, n]),
        value().prop_map(|value| vec![b"IFEQ".to_vec(), value]),
        pxat,
        exat,
    ]
    .boxed()
}

fn command() -> BoxedStrategy<Vec<Vec<u8>>> {
    let words = |name: &'static str, args: Vec<BoxedStrategy<Vec<u8>>>| {
        args.prop_map(move |mut args| {
            args.insert(0, name.as_bytes().to_vec());
            args
        })
        .boxed()
    };
    let many = |name: &'static str, of: BoxedStrategy<Vec<Vec<u8>>>| {
        prop::collection::vec(of, 1..6)
            .prop_map(move |args| {
                [vec![vec![name.as_bytes().to_vec()]], args]
                    .concat()
                    .concat()
            })
            .boxed()
    };
    let k = || key().boxed();
    let pair = || (key(), value()).prop_map(|(k, v)| vec![k, v]).boxed();
    let one = || key().prop_map(|k| vec![k]).boxed();
    let set = (pair(), prop::collection::vec(set_option(), 0..3))
        .prop_map(|(pair, options)| [vec![b"SET".to_vec()], pair, options.concat()].concat());
    let conditions = prop::collection::vec(text(&["NX", "XX", "GT", "LT", "gt"]), 0..2);
    let expire = (text(&["EXPIRE", "PEXPIRE"]), k(), amount(), conditions)
        .prop_map(|(name, key, n, conditions)| [vec![name, key, n], conditions].concat());
    let simple = [
        "GET",
        "GETDEL",
        "STRLEN",
        "INCR",
        "DECR",
        "TYPE",
        "TTL",
        "PTTL",
        "PERSIST",
        "EXPIRETIME",
        "PEXPIRETIME",
    ];
    let at = (text(&["EXPIREAT", "PEXPIREAT"]), k(), -2_000..5_000i64);
    let expire_at = at.prop_map(|(name, key, ms)| {
        let at = START_MS.saturating_add_signed(ms);
        let at = if name[0] == b'P' { at } else { at / 1000 };
        vec![name, key, at.to_string().into_bytes()]
    });
    let getex_option = prop_oneof![
        2 => set_option(),
        1 => Just(vec![b"persist".to_vec()]),
        1 => Just(vec![]),
    ];
    let getex = (k(), prop::collection::vec(getex_option, 0..2))
        .prop_map(|(key, options)| [vec![b"GETEX".to_vec(), key], options.concat()].concat());
    let place = || {
        let near = (-40..700i64).prop_map(|n| n.to_string().into_bytes());
        let far = text(&["0", "-1", "x", "9223372036854775807", "4000"]);
        prop_oneof![6 => near, 1 => far].boxed()
    };
    let unit = prop::option::of(text(&["BIT", "byte", "Bits"]));
    let range = prop::option::of((place(), place(), unit)).prop_map(|range| {
        let range = range.map(|(start, end, unit)| {
            let mut range = vec![start, end];
            range.extend(unit);
            range
        });
        range.unwrap_or_default()
    });
    let bitcount = (k(), range.clone())
        .prop_map(|(key, range)| [vec![b"BITCOUNT".to_vec(), key], range].concat());
    let bitpos = (k(), text(&["0", "1", "2"]), range)
        .prop_map(|(key, bit, range)| [vec![b"BITPOS".to_vec(), key, bit], range].concat());
    let operation = text(&["AND", "OR", "XOR", "NOT"]);
    let bitop = (operation, k(), prop::collection::vec(k(), 1..4))
        .prop_map(|(operation, to, from)| [vec![b"BITOP".to_vec(), operation, to], from].concat());
    let field = || {
        let kind = (any::<bool>(), 1..=63u8);
        let kind = kind.prop_map(|(signed, bits)| {
            format!("{}{bits}", if signed { 'i' } else { 'u' }).into_bytes()
        });
        (kind, 0..600u32).prop_map(|(kind, at)| vec![kind, at.to_string().into_bytes()])
    };
    let number = prop_oneof![-300..300i64, any::<i64>()];
    let number = number.prop_map(|n| n.to_string().into_bytes());
    let change = (text(&["SET", "INCRBY"]), field(), number)
        .prop_map(|(name, field, number)| [vec![name], field, vec![number]].concat());
    let action = prop_oneof![
        1 => field().prop_map(|field| [vec![b"GET".to_vec()], field].concat()),
        3 => change,
        1 => text(&["WRAP", "SAT", "FAIL"]).prop_map(|how| vec![b"OVERFLOW".to_vec(), how]),
    ];
    let bitfield = (k(), prop::collection::vec(action, 0..5))
        .prop_map(|(key, actions)| [vec![b"BITFIELD".to_vec(), key], actions.concat()].concat());
    let simple = (text(&simple), k()).prop_map(|(name, key)| vec![name, key]);
    prop_oneof![
        6 => simple,
        5 => set,
        4 => expire,
        2 => expire_at,
        2 => getex,
        1 => bitcount,
        1 => bitpos,
        1 => bitop,
        2 => bitfield,
        1 => words("LCS", vec![k(), k(), text(&["LEN"])]),
        1 => words("DELIFEQ", vec![k(), value()]),
        1 => words("GETRANGE", vec![k(), place(), place()]),
        1 => words("SUBSTR", vec![k(), place(), place()]),
        1 => words("SETRANGE", vec![k(), place(), value()]),
        1 => words("SETBIT", vec![k(), place(), text(&["0", "1", "2"])]),
        1 => words("GETBIT", vec![k(), place()]),
        1 => words("BITPOS", vec![k(), text(&["0", "1"]), place()]),
        1 => words("COPY", vec![k(), k()]),
        1 => words("COPY", vec![k(), k(), text(&["replace"])]),
        2 => words("RENAMENX", vec![k(), k()]),
        1 => words("PSETEX", vec![k(), amount(), value()]),
        1 => words("SETNX", vec![k(), value()]),
        1 => words("SETEX", vec![k(), amount(), value()]),
        1 => words("GETSET", vec![k(), value()]),
        2 => words("APPEND", vec![k(), value()]),
        1 => words("INCRBY", vec![k(), amount()]),
        1 => words("DECRBY", vec![k(), amount()]),
        2 => words("RENAME", vec![k(), k()]),
        1 => many("MGET", one()),
        2 => many("MSET", pair()),
        1 => many("MSETNX", pair()),
        1 => many("TOUCH", one()),
        2 => many("DEL", one()),
        1 => many("UNLINK", one()),
        1 => many("EXISTS", one()),
    ]
    .boxed()
}

fn section() -> impl Strategy<Value = Step> {
    let one = prop_oneof![
        12 => command().prop_map(|args| InSection::Command(Line(args))),
        1 => Just(InSection::Flush),
        1 => Just(InSection::Savepoint),
        1 => Just(InSection::RollBack),
        1 => (prop::collection::vec(command().prop_map(Line), 0..4), any::<bool>())
            .prop_map(|(lines, commits)| InSection::Within(lines, commits)),
    ];
    let steps = prop::collection::vec(one, 0..12);
    (steps, any::<bool>()).prop_map(|(steps, commits)| Step::Section(steps, commits))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => command().prop_map(|args| Step::Command(Line(args))),
        1 => Just(Step::Flush),
        6 => section(),
        5 => (0..1_500u64).prop_map(Step::Advance),
        2 => Just(Step::Sweep),
        2 => Just(Step::RemoveLapsed),
        2 => Just(Step::Commit),
    ]
}

/// The keyspace, the model, and the last write of each key as the test has seen it.
struct Pair {
    taped: Taped,
    model: Model,
    last_writes: BTreeMap<Vec<u8>, Lsn>,
}

impl Pair {
    fn new(partitions: u16) -> Pair {
        let mut model = Model::default();
        model.set_now(START_MS.into());
        Pair {
            taped: Taped::new(partitions, START_MS),
            model,
            last_writes: BTreeMap::new(),
        }
    }

    fn command(&mut self, args: &[Vec<u8>]) {
        let spec = lookup(&args[0]).expect("a command");
        let before = self.model.clone();
        let expected = self.model.run(args);
        let keyspace = &mut self.taped.keyspace;
        let (mut out, gate, executed) = attempt(keyspace, args);
        if let Err(error) = executed {
            assert!(out.is_empty(), "an error is the whole reply");
            error.write(&mut out);
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&out), text(&expected), "reply to {args:?}");
        assert_eq!(out, expected);
        let lsn = keyspace.log.appended();
        let keys: Vec<&Vec<u8>> = spec.key_indices(args.len()).map(|at| &args[at]).collect();
        for key in &keys {
            if before.keys.get(*key) != self.model.keys.get(*key) {
                self.last_writes.insert(key.to_vec(), lsn);
            }
        }
        let committed = keyspace.log.committed();
        let refused_unseen = out[0] == b'-' && gate == Lsn::ZERO;
        for key in keys.iter().filter(|_| !refused_unseen) {
            let last = self.last_writes.get(*key).copied().unwrap_or(Lsn::ZERO);
            let is_committed = last <= committed;
            assert!(
                gate >= last || is_committed,
                "gate {gate} of {args:?}, last write {last}"
            );
        }
    }

    fn flush(&mut self) {
        let flushed = std::mem::take(&mut self.model.keys);
        let mut out = Vec::new();
        let mut reply = Reply {
            out: &mut out,
            protocol: Protocol::Resp2,
            gate: Lsn::ZERO,
        };
        let keyspace = &mut self.taped.keyspace;
        keyspace.flush(&mut reply);
        assert!(reply.gate >= keyspace.log.appended());
        let flushed = flushed.into_keys().map(|key| (key, reply.gate));
        self.last_writes.extend(flushed);
    }

    fn section(&mut self, steps: &[InSection], commits: bool) {
        let before = self.model.clone();
        let keyspace = &mut self.taped.keyspace;
        let appended = keyspace.log.appended();
        keyspace.begin_atomic(usize::MAX);
        let mut saved = (keyspace.savepoint(), before.clone());
        for step in steps {
            let mut out = Vec::new();
            let mut reply = Reply {
                out: &mut out,
                protocol: Protocol::Resp2,
                gate: Lsn::ZERO,
            };
            match step {
                InSection::Command(Line(args)) => {
                    let (mut out, _, executed) = attempt(keyspace, args);
                    if let Err(error) = executed {
                        error.write(&mut out);
                    }
                    assert_eq!(out, self.model.run(args), "reply to {args:?}");
                }
                InSection::Flush => {
                    keyspace.flush(&mut reply);
                    self.model.keys.clear();
                }
                InSection::Within(lines, commits) => {
                    let outside = self.model.clone();
                    keyspace.begin_atomic(usize::MAX);
                    assert!(!keyspace.atomic_has_written());
                    for Line(args) in lines {
                        let (mut out, _, executed) = attempt(keyspace, args);
                        if let Err(error) = executed {
                            error.write(&mut out);
                        }
                        assert_eq!(out, self.model.run(args), "reply to {args:?}");
                    }
                    if *commits {
                        keyspace.commit_atomic(&mut reply).expect("it fits");
                        assert_eq!(reply.gate, Lsn::ZERO);
                    } else {
                        keyspace.roll_back_atomic();
                        self.model = outside;
                    }
                    assert!(keyspace.is_atomic());
                }
                InSection::Savepoint => saved = (keyspace.savepoint(), self.model.clone()),
                InSection::RollBack => {
                    keyspace.roll_back_to(saved.0);
                    self.model = saved.1.clone();
                }
            }
        }
        assert_eq!(keyspace.log.appended(), appended);
        if !commits {
            keyspace.roll_back_atomic();
            self.model = before;
            return;
        }
        let mut reply = Reply {
            out: &mut Vec::new(),
            protocol: Protocol::Resp2,
            gate: Lsn::ZERO,
        };
        let has_written = keyspace.atomic_has_written();
        keyspace.commit_atomic(&mut reply).expect("it fits");
        let lsn = keyspace.log.appended();
        assert_eq!(lsn.0, appended.0 + u64::from(has_written), "one record");
        let changed = before.keys.keys().chain(self.model.keys.keys());
        let changed = changed.filter(|key| before.keys.get(*key) != self.model.keys.get(*key));
        for key in changed {
            assert_eq!(reply.gate, lsn);
            self.last_writes.insert(key.clone(), lsn);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Command(Line(args)) => self.command(args),
            Step::Flush => self.flush(),
            Step::Section(steps, commits) => self.section(steps, *commits),
            Step::Advance(ms) => {
                let now_ms = self.taped.keyspace.now_ms() + ms;
                self.taped.keyspace.set_now(now_ms);
                self.model.set_now(now_ms.into());
            }
            Step::Sweep => while !self.taped.keyspace.sweep_slice() {},
            Step::RemoveLapsed => self.taped.keyspace.remove_lapsed(true),
            Step::Commit => self.taped.commit(),
        }
        let keyspace = &self.taped.keyspace;
        let physical: usize = keyspace.partitions().map(|p| p.table.len()).sum();
        assert_eq!(keyspace.len(), physical as u64);
    }

    /// Compares everything visible, then the log.
    fn finish(mut self) {
        let now_ms = self.taped.keyspace.now_ms();
        let mut found = contents(self.taped.keyspace.partitions());
        found.retain(|_, (_, at)| *at == 0 || *at > now_ms);
        let expected = self.model.keys.iter().map(|(key, (value, at))| {
            let at = at.map_or(0, |at| u64::try_from(at).expect("a time"));
            (key.clone(), (value.clone(), at))
        });
        assert_eq!(found, expected.collect());
        self.taped.assert_replays();
        while !self.taped.keyspace.sweep_slice() {}
        assert_eq!(self.taped.keyspace.len(), found.len() as u64);
        self.taped.assert_replays();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn replies_gates_and_the_log_agree_with_the_model(
        partitions in 1..6u16,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut pair = Pair::new(partitions);
        steps.iter().for_each(|step| pair.step(step));
        pair.finish();
    }
}

#[test]
fn a_delete_that_meets_an_expired_key_keeps_the_sequence_dense() {
    let mut pair = Pair::new(1);
    let args = |line: &str| -> Vec<Vec<u8>> {
        line.split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect()
    };
    pair.command(&args("MSET k1 a k3 c"));
    pair.command(&args("SET k2 b PX 5"));
    pair.step(&Step::Advance(10));
    pair.command(&args("DEL k1 k2 k3"));
    pair.finish();
}

#[test]
fn a_section_whose_effects_are_too_many_has_none() {
    let mut pair = Pair::new(2);
    let args = |line: &str| -> Vec<Vec<u8>> {
        line.split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect()
    };
    pair.command(&args("SET k1 a PX 5000"));
    let (before, keyspace) = (pair.model.clone(), &mut pair.taped.keyspace);
    keyspace.begin_atomic(1000);
    let mut out = Vec::new();
    let mut reply = Reply {
        out: &mut out,
        protocol: Protocol::Resp2,
        gate: Lsn::ZERO,
    };
    for _ in 0..30 {
        attempt(keyspace, &args("APPEND k1 bc"))
            .2
            .expect("a string");
        attempt(keyspace, &args("PERSIST k1")).2.expect("a key");
    }
    assert!(keyspace.atomic_overflow().is_some());
    assert!(keyspace.commit_atomic(&mut reply).is_err() && !keyspace.is_atomic());
    assert_eq!(keyspace.log.appended(), Lsn(1));
    pair.model = before;
    pair.command(&args("GET k1"));
    pair.command(&args("PTTL k1"));
    pair.finish();
}

#[test]
fn many_keys_of_one_command_are_taken_one_after_the_other() {
    let mut pair = Pair::new(3);
    for count in [1, 2, 31, 32, 33, 64, 65, 200] {
        // Some are named twice.
        let keys = || (0..count).map(|n| format!("k{}", n * 2 / 3).into_bytes());
        let named = |name: &str| {
            std::iter::once(name.into())
                .chain(keys())
                .collect::<Vec<_>>()
        };
        let pairs = keys()
            .enumerate()
            .flat_map(|(n, key)| [key, n.to_string().into_bytes()]);
        let mset: Vec<Vec<u8>> = std::iter::once(b"MSET".to_vec()).chain(pairs).collect();
        pair.command(&mset);
        for name in ["MGET", "EXISTS", "DEL", "MGET", "EXISTS", "DEL"] {
            pair.command(&named(name));
        }
        pair.command(&mset);
    }
    pair.finish();
}

#[test]
fn an_absent_key_waits_for_its_delete() {
    let mut pair = Pair::new(1);
    pair.command(&[b"SET".to_vec(), b"k1".to_vec(), b"v".to_vec()]);
    pair.command(&[b"DEL".to_vec(), b"k1".to_vec()]);
    assert_eq!(pair.last_writes[&b"k1"[..]], Lsn(2));
    pair.command(&[b"GET".to_vec(), b"k1".to_vec()]);
    pair.command(&[b"EXISTS".to_vec(), b"k1".to_vec()]);
}
