//! Databases: the entry port against a standalone Redis, and what Redis has nothing to compare with.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{Pair, Port, shown};
use ephesus_tests::{Client, Node, Options, Reply, Rng};

const STEPS: usize = 1500;
const DATABASES: u64 = 4;

/// How keys of other databases begin in tables and logs: as a key of a client it is one like any other.
const MARK: &[u8] = b"\xff\x00ephdb\xfe";

fn word(text: impl ToString) -> Vec<u8> {
    text.to_string().into_bytes()
}

fn keys() -> Vec<Vec<u8>> {
    let tagged = (0..5).map(|n| word(format!("{{tag}}{n}")));
    let mut keys: Vec<_> = tagged
        .chain((0..5).map(|n| word(format!("k{n}"))))
        .collect();
    keys.push(Vec::new());
    keys.push(MARK.to_vec());
    keys.push([MARK, b"\x01k1"].concat());
    keys
}

fn step(rng: &mut Rng) -> Vec<Vec<u8>> {
    let key = rng.pick(&keys()).clone();
    let tagged = |rng: &mut Rng| word(format!("{{tag}}{}", rng.below(5)));
    let database = match rng.below(30) {
        0 => word(16),
        1 => word(-1),
        2 => word("x"),
        3 => word("99999999999"),
        _ => word(rng.below(DATABASES)),
    };
    match rng.below(40) {
        0..6 => vec![word("SELECT"), database],
        6..16 => vec![word("SET"), key, word(rng.below(100))],
        16..20 => vec![word("GET"), key],
        20..22 => vec![word("DEL"), key, rng.pick(&keys()).clone()],
        22..24 => vec![word("INCR"), key],
        24..28 => vec![word("MOVE"), key, database],
        28..30 => vec![word("COPY"), tagged(rng), tagged(rng), word("DB"), database],
        30 => vec![
            word("COPY"),
            tagged(rng),
            tagged(rng),
            word("REPLACE"),
            word("db"),
            database,
        ],
        31..33 => vec![word("RENAME"), tagged(rng), tagged(rng)],
        33 => vec![word("MGET"), key, rng.pick(&keys()).clone()],
        34 => vec![
            word("MSET"),
            key,
            word("m"),
            rng.pick(&keys()).clone(),
            word("n"),
        ],
        35 => vec![word("PERSIST"), key],
        36 => vec![word("EXPIRE"), key, word(1000)],
        37 => vec![word("EXISTS"), key],
        38 => vec![word("DBSIZE")],
        _ if rng.one_in(3) => vec![word("RESET")],
        _ if rng.one_in(4) => vec![word("FLUSHALL")],
        _ => vec![word("FLUSHDB")],
    }
}

fn scanned(client: &mut Client) -> BTreeSet<Vec<u8>> {
    let (mut found, mut cursor) = (BTreeSet::new(), b"0".to_vec());
    loop {
        let reply = client.call(&[b"SCAN".as_slice(), &cursor, b"COUNT", b"5"]);
        let [Reply::Bulk(next), Reply::Array(keys)] = &reply.items()[..] else {
            panic!("{reply:?}")
        };
        for key in keys {
            let Reply::Bulk(key) = key else {
                panic!("{key:?}")
            };
            found.insert(key.clone());
        }
        if next == b"0" {
            return found;
        }
        cursor = next.clone();
    }
}

#[test]
fn databases_are_as_in_redis() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("databases"));
    for protocol in [2, 3] {
        let mut pair = Pair::new(Port::Entry, protocol);
        let mut trail = Vec::new();
        for number in 1..=STEPS {
            let step = step(&mut rng);
            trail.push(shown(&step));
            let (ours, theirs) = pair.ask(&step);
            assert!(
                ours == theirs,
                "{}: we say {ours:?}, Redis says {theirs:?}; before:\n{}",
                shown(&step),
                trail[trail.len().saturating_sub(40)..].join("\n")
            );
            if number % 250 == 0 {
                for database in 0..DATABASES {
                    pair.same(&[word("SELECT"), word(database)]);
                    pair.same_unordered(&["KEYS", "*"]);
                    pair.same(&["DBSIZE"]);
                    let (ours, theirs) = (scanned(&mut pair.ours), scanned(&mut pair.theirs));
                    assert_eq!(ours, theirs);
                    let drawn = pair.ours.call(&["RANDOMKEY"]);
                    match drawn {
                        Reply::Bulk(key) => assert!(ours.contains(&key), "{key:?}"),
                        other => assert!(ours.is_empty(), "{other:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn databases_outlive_a_kill_and_are_not_forgotten_by_a_flag() {
    let mut node = Node::start(Options::default());
    for database in [0, 1, 9] {
        let mut client = node.client();
        assert_eq!(client.say(&format!("SELECT {database}")), Reply::ok());
        for n in 0..100 {
            let (key, value) = (format!("k{n}"), format!("{database}-{n}"));
            assert_eq!(client.call(&["SET", &key, &value]), Reply::ok());
        }
    }
    node.kill();
    node.restart();
    for database in [0, 1, 9, 2] {
        let mut client = node.client();
        client.say(&format!("SELECT {database}"));
        let keys = if database == 2 { 0 } else { 100 };
        assert_eq!(client.say("DBSIZE"), Reply::Integer(keys), "{database}");
        let found = client.say("GET k42");
        match database {
            2 => assert!(!matches!(found, Reply::Bulk(_)), "{found:?}"),
            _ => assert_eq!(found, Reply::Bulk(word(format!("{database}-42")))),
        }
    }
    let mut client = node.client();
    // Each shard publishes what it has with its first turn.
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let info = client.say("INFO keyspace").text();
        let expected = ["db0:keys=100,", "db1:keys=100,", "db9:keys=100,"];
        if expected.iter().all(|line| info.contains(line)) {
            break;
        }
        assert!(Instant::now() < deadline, "{info}");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Only its own keys go, although others share the tables.
    assert_eq!(client.say("SELECT 9"), Reply::ok());
    assert_eq!(client.say("FLUSHDB"), Reply::ok());
    assert_eq!(client.say("DBSIZE"), Reply::Integer(0));
    assert_eq!(client.say("SELECT 1"), Reply::ok());
    assert_eq!(client.say("DBSIZE"), Reply::Integer(100));
    let list = client.say("CLIENT INFO").text();
    assert!(list.contains(" db=1 "), "{list}");
    node.stop();

    node.options.flags = ["--databases", "1"].map(str::to_owned).to_vec();
    let refused = node.start_refused();
    refused.assert_says(&["database 1 has keys", "at least 2"]);
    node.options.flags = ["--databases", "2"].map(str::to_owned).to_vec();
    node.restart();
    let mut client = node.direct_client(0);
    let error = "ERR DB index is out of range";
    assert_eq!(client.say("SELECT 2").error(), Some(error));
    assert_eq!(client.say("SELECT 1"), Reply::ok());
}

#[test]
fn scripts_copy_into_other_databases() {
    let node = Node::start(Options::default());
    let mut client = node.client();
    let script = "return redis.call('COPY', KEYS[1], KEYS[2], unpack(ARGV))";
    let mut copy = |from: &str, to: &str, options: &[&str]| {
        let request = [&["EVAL", script, "2", from, to], options].concat();
        client.call(&request)
    };
    assert_eq!(copy("{k}a", "{k}b", &["DB", "3"]), Reply::Integer(0));
    let mut other = node.client();
    assert_eq!(other.say("SET {k}a here"), Reply::ok());
    assert_eq!(other.say("SET {k}b kept"), Reply::ok());
    assert_eq!(
        copy("{k}a", "{k}b", &["DB", "3", "REPLACE"]),
        Reply::Integer(1)
    );
    assert_eq!(copy("{k}a", "{k}a", &["DB", "3"]), Reply::Integer(1));
    assert_eq!(copy("{k}a", "{k}a", &["DB", "3"]), Reply::Integer(0));
    for wrong in [&["DB", "16"][..], &["DB", "x"], &["DB", "0"], &[]] {
        assert!(copy("{k}a", "{k}a", wrong).error().is_some(), "{wrong:?}");
    }
    assert_eq!(other.say("GET {k}b"), Reply::bulk("kept"));
    assert_eq!(other.say("SELECT 3"), Reply::ok());
    for key in ["{k}a", "{k}b"] {
        assert_eq!(other.call(&["GET", key]), Reply::bulk("here"));
    }
    // A key that it was not given has the name that the script knows.
    let script = "return redis.call('GET', 'elsewhere')";
    let refused = other.call(&["EVAL", script, "1", "{k}a"]);
    let error = refused.error().expect("an error");
    assert!(error.contains("access key 'elsewhere'"), "{error}");
    let script = "return redis.call('GET', KEYS[1])";
    assert_eq!(
        other.call(&["EVAL", script, "1", "{k}a"]),
        Reply::bulk("here")
    );
}

#[test]
fn keys_are_as_long_in_every_database() {
    let mut node = Node::start(Options::default());
    let (fits, too_long) = ("k".repeat(64 << 10), "k".repeat((64 << 10) + 1));
    let mut client = node.client();
    for database in ["0", "5"] {
        assert_eq!(client.call(&["SELECT", database]), Reply::ok());
        assert_eq!(client.call(&["SET", &fits, database]), Reply::ok());
        let refused = client.call(&["SET", &too_long, "v"]);
        let told = "ERR key exceeds maximum allowed size of 65536 bytes";
        assert_eq!(refused.error(), Some(told), "{database}");
        assert_eq!(
            client.call(&["MOVE", &fits, "7"]),
            Reply::Integer(i64::from(database == "0"))
        );
        assert_eq!(
            client.call(&["COPY", &fits, &fits, "DB", "9", "REPLACE"]),
            Reply::Integer(i64::from(database == "5"))
        );
    }
    assert_eq!(client.say("SAVE"), Reply::ok());
    node.kill();
    node.restart();
    let mut client = node.client();
    for (database, value) in [("5", "5"), ("7", "0"), ("9", "5")] {
        assert_eq!(client.call(&["SELECT", database]), Reply::ok());
        assert_eq!(client.call(&["GET", &fits]), Reply::bulk(value));
    }
}

#[test]
fn a_flush_tells_nobody_of_single_keys() {
    let node = Node::start(Options {
        flags: vec!["--notify-keyspace-events".to_owned(), "KEA".to_owned()],
        ..Options::default()
    });
    let (mut client, mut other) = (node.client(), node.client());
    assert_eq!(other.say("SET kept v"), Reply::ok());
    assert_eq!(client.say("SELECT 2"), Reply::ok());
    for n in 0..20 {
        assert_eq!(client.call(&["SET", &format!("k{n}"), "v"]), Reply::ok());
    }
    let mut subscriber = node.client();
    subscriber.say("PSUBSCRIBE __key*__:*");
    assert_eq!(client.say("RENAME k1 {k1}2"), Reply::ok());
    assert_eq!(client.say("FLUSHDB"), Reply::ok());
    assert_eq!(client.say("DBSIZE"), Reply::Integer(0));
    assert_eq!(client.say("SET last v"), Reply::ok());
    let mut events = Vec::new();
    loop {
        let message = subscriber.receive().expect("a message");
        let items = message.items();
        let text = |at: usize| items[at].text();
        events.push((text(2), text(3)));
        if text(3) == "last" {
            break;
        }
    }
    let removed = |(channel, name): &(String, String)| name == "del" || channel.ends_with(":del");
    assert!(!events.iter().any(removed), "{events:?}");
    let renamed = events.iter().filter(|(_, name)| name == "rename_from");
    assert_eq!(renamed.count(), 1, "{events:?}");
}
