//! SET with every sequence of up to three options.

use super::{PROTOCOLS, Pair, Port, shown};
use ephesus_tests::oracle::Oracle;
use ephesus_tests::{Node, Options, Reply};

const OPTIONS: [&[&str]; 9] = [
    &["NX"],
    &["XX"],
    &["GET"],
    &["KEEPTTL"],
    &["EX", "100"],
    &["PX", "100000"],
    &["EXAT", "4102444800"],
    &["PXAT", "4102444800000"],
    &["EX"],
];

/// How the key is before each SET.
const BEFORE: [&[&str]; 3] = [
    &["DEL", "k"],
    &["SET", "k", "old"],
    &["SET", "k", "old", "EX", "500"],
];

#[test]
fn every_combination_of_set_options_does_what_redis_does() {
    let mut combinations: Vec<Vec<&str>> = vec![vec![]];
    for a in OPTIONS {
        combinations.push(a.to_vec());
        for b in OPTIONS {
            combinations.push([a, b].concat());
            for c in OPTIONS {
                combinations.push([a, b, c].concat());
            }
        }
    }
    for protocol in PROTOCOLS {
        let mut pair = Pair::new(Port::Direct, protocol);
        for before in BEFORE {
            for options in &combinations {
                pair.same(before);
                let request = [&["SET", "k", "new"], options.as_slice()].concat();
                pair.same(&request);
                let (ours, theirs) = pair.ask(&["GET", "k"]);
                assert_eq!(
                    ours,
                    theirs,
                    "the value after {} / {}",
                    shown(before),
                    shown(&request)
                );
                pair.close(&["TTL", "k"], 3);
            }
        }
    }
}

#[test]
fn lifetimes_of_set_are_checked_as_redis_checks_them() {
    let mut pair = Pair::new(Port::Direct, 2);
    for option in ["EX", "PX", "EXAT", "PXAT"] {
        for lifetime in [
            "0",
            "-1",
            "x",
            "1.5",
            "",
            "9223372036854775807",
            "-9223372036854775808",
            "99999999999999999999",
        ] {
            pair.same(&["SET", "k", "v", option, lifetime]);
            pair.same(&["EXISTS", "k"]);
        }
        pair.same(&["DEL", "k"]);
    }
    pair.same(&["SET", "k", "v", "EXAT", "1"]);
    pair.same(&["EXISTS", "k"]);
}

#[test]
fn set_ifeq_does_what_valkey_does() {
    let valkey = Oracle::valkey();
    let node = Node::start(Options::default());
    let (mut ours, mut theirs) = (node.client(), valkey.client());
    for line in [
        "SET k new IFEQ old",
        "EXISTS k",
        "SET k v1",
        "SET k v2 IFEQ other",
        "GET k",
        "SET k v2 IFEQ v1",
        "GET k",
        "SET k v3 IFEQ v2 GET",
        "SET k v4 IFEQ nothing GET",
        "SET absent v IFEQ x GET",
        "SET k v5 IFEQ v3 EX 100",
        "TTL k",
        "SET k v6 IFEQ v5 KEEPTTL",
        "TTL k",
        "SET k v7 IFEQ v6 NX",
        "SET k v7 XX IFEQ v6",
        "SET k v7 IFEQ",
        "GET k",
    ] {
        let (ours, theirs) = (ours.say(line), theirs.say(line));
        let close = matches!((&ours, &theirs), (Reply::Integer(a), Reply::Integer(b)) if (a - b).abs() <= 3);
        assert!(
            ours == theirs || close,
            "{line}: we say {ours:?}, Valkey says {theirs:?}"
        );
    }
}
