//! HOTKEYS as Redis 8.6 documents it, at the entry port of several shards and at direct ports.

use std::time::Duration;

use ephesus_tests::slots::slot;
use ephesus_tests::{Client, Node, Options, Reply};

fn node() -> Node {
    Node::start(Options {
        shards: 3,
        partitions: Some(64),
        ..Options::default()
    })
}

fn ok(client: &mut Client, line: &str) {
    assert_eq!(client.say(line), Reply::ok(), "{line}");
}

fn refused(client: &mut Client, line: &str, text: &str) {
    let reply = client.say(line);
    let error = reply.error().unwrap_or_else(|| panic!("{line}: {reply:?}"));
    assert!(error.contains(text), "{line}: {error}");
}

/// What HOTKEYS GET tells.
fn found(client: &mut Client) -> Reply {
    let reply = client.say("HOTKEYS GET");
    let items = reply.items();
    assert_eq!(items.len(), 1, "{reply:?}");
    items[0].clone()
}

fn number(found: &Reply, name: &str) -> i64 {
    found
        .field(name)
        .unwrap_or_else(|| panic!("{name}: {found:?}"))
        .integer()
}

/// Keys and their numbers.
fn keys(found: &Reply, name: &str) -> Vec<(String, i64)> {
    let list = found
        .field(name)
        .unwrap_or_else(|| panic!("{name}: {found:?}"))
        .items();
    list.chunks(2)
        .map(|pair| (pair[0].text(), pair[1].integer()))
        .collect()
}

#[test]
fn a_session_finds_the_keys_of_all_shards() {
    let node = node();
    for protocol in ["2", "3"] {
        let mut client = node.client();
        client.call(&["HELLO", protocol]);
        assert!(client.say("HOTKEYS GET").is_nil());
        assert!(client.say("HOTKEYS STOP").is_nil());
        ok(&mut client, "HOTKEYS RESET");
        ok(&mut client, "HOTKEYS START METRICS 2 CPU NET COUNT 20");
        refused(
            &mut client,
            "HOTKEYS START METRICS 1 CPU",
            "already in progress",
        );
        refused(&mut client, "HOTKEYS RESET", "stop tracking first");
        for round in 0..400 {
            for key in 0..10 {
                client.call(&["SET", &format!("hot:{key}"), "value"]);
            }
            client.call(&["GET", &format!("cold:{round}")]);
            client.call(&["MSET", "hot:1", "x", "hot:2", "y"]);
        }
        client.say("MULTI");
        client.say("SET {t}multi value");
        client.say("EXEC");
        client.say("EVAL redis.call('set',KEYS[1],1) 1 scripted");
        let running = found(&mut client);
        assert_eq!(number(&running, "tracking-active"), 1);
        ok(&mut client, "HOTKEYS STOP");
        client.call(&["SET", "later", "x"]);
        let told = found(&mut client);
        assert_eq!(number(&told, "tracking-active"), 0);
        assert_eq!(number(&told, "sample-ratio"), 1);
        assert!(number(&told, "collection-start-time-unix-ms") > 1_600_000_000_000);
        assert!(number(&told, "all-commands-all-slots-us") > 0);
        assert!(told.field("all-commands-selected-slots-us").is_none());
        assert!(number(&told, "total-net-bytes") > 0);
        let slots = told.field("selected-slots").expect("slots").items();
        assert_eq!(slots.len(), 1);
        assert_eq!(slots[0].items()[1].integer(), 16383);
        let by_bytes = keys(&told, "by-net-bytes");
        let by_cpu = keys(&told, "by-cpu-time-us");
        for found in [&by_bytes, &by_cpu] {
            assert!(found.len() <= 20);
            // Of CPU time the first script of a shard takes as much as many commands, and a busy machine has its part.
            let first = found.iter().take(10);
            let hot = first.filter(|(key, _)| key.starts_with("hot:")).count();
            assert!(hot > 5, "{found:?}");
            assert!(
                found.windows(2).all(|pair| pair[0].1 >= pair[1].1),
                "{found:?}"
            );
        }
        assert!(
            by_bytes[0].0 == "hot:1" || by_bytes[0].0 == "hot:2",
            "{by_bytes:?}"
        );
        let bytes: i64 = by_bytes
            .iter()
            .filter(|(key, _)| key == "hot:5")
            .map(|(_, n)| n)
            .sum();
        // SET hot:5 value, and +OK.
        assert_eq!(bytes, 400 * (35 + 5), "{by_bytes:?}");
        ok(&mut client, "HOTKEYS RESET");
        assert!(client.say("HOTKEYS GET").is_nil());
    }
}

#[test]
fn a_session_may_be_of_some_metrics_slots_and_seconds() {
    let node = node();
    let mut client = node.client();
    ok(&mut client, "HOTKEYS START METRICS 1 NET");
    client.call(&["SET", "a", "1"]);
    let told = found(&mut client);
    assert!(
        told.field("by-cpu-time-us").is_none() && told.field("total-cpu-time-user-ms").is_none()
    );
    assert_eq!(keys(&told, "by-net-bytes"), [("a".to_owned(), 27 + 5)]);
    ok(&mut client, "HOTKEYS STOP");
    let (a, b) = (slot(b"a"), slot(b"b"));
    let line = format!("HOTKEYS START METRICS 1 CPU SAMPLE 3 SLOTS 2 {} {a}", a + 1);
    ok(&mut client, &line);
    assert_ne!(a + 1, b);
    for _ in 0..300 {
        client.call(&["SET", "a", "1"]);
        client.call(&["SET", "b", "1"]);
    }
    let told = found(&mut client);
    let names: Vec<String> = keys(&told, "by-cpu-time-us")
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(names, ["a"]);
    let all = number(&told, "net-bytes-all-commands-all-slots");
    let selected = number(&told, "net-bytes-all-commands-selected-slots");
    let sampled = number(&told, "net-bytes-sampled-commands-selected-slots");
    assert_eq!((all, selected), (600 * 32, 300 * 32));
    assert!((selected / 5..selected / 2).contains(&sampled), "{sampled}");
    let slots = told.field("selected-slots").expect("slots").items();
    assert_eq!(slots[0].items()[0].integer(), i64::from(a));
    ok(&mut client, "HOTKEYS STOP");
    ok(&mut client, "HOTKEYS START METRICS 1 CPU DURATION 1");
    std::thread::sleep(Duration::from_millis(1_200));
    let told = found(&mut client);
    assert_eq!(number(&told, "tracking-active"), 0);
    assert_eq!(number(&told, "collection-duration-ms"), 1_000);
    ok(&mut client, "HOTKEYS RESET");
    // Each direct port is a primary of its own.
    let mut direct = node.direct_client(0);
    refused(
        &mut direct,
        "HOTKEYS START METRICS 1 CPU SLOTS 1 16383",
        "slot 16383 not handled",
    );
    ok(&mut direct, "HOTKEYS START METRICS 1 NET");
    let mut other = node.direct_client(1);
    assert!(other.say("HOTKEYS GET").is_nil());
    ok(&mut other, "HOTKEYS START METRICS 1 NET");
    refused(
        &mut client,
        "HOTKEYS START METRICS 1 NET",
        "already in progress",
    );
    ok(&mut client, "HOTKEYS STOP");
    assert!(direct.say("HOTKEYS STOP").is_nil());
}

#[test]
fn keys_are_told_to_those_who_may_ask_only() {
    let node = node();
    let mut client = node.client();
    client.say("ACL SETUSER reader on >secret ~* +@all -@dangerous");
    ok(&mut client, "HOTKEYS START METRICS 1 NET");
    let mut reader = node.client();
    assert_eq!(reader.say("AUTH reader secret"), Reply::ok());
    for line in [
        "HOTKEYS GET",
        "HOTKEYS STOP",
        "HOTKEYS START METRICS 1 CPU",
        "HOTKEYS RESET",
    ] {
        refused(&mut reader, line, "NOPERM");
    }
    assert_eq!(number(&found(&mut client), "tracking-active"), 1);
}
