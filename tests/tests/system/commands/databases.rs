//! Databases: what Redis has nothing to compare with.

use std::time::{Duration, Instant};

use ephesus_tests::{Node, Options, Reply};

fn word(text: impl ToString) -> Vec<u8> {
    text.to_string().into_bytes()
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
