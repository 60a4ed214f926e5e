//! Pub/Sub: who gets which messages, in which order, and what they look like.

use std::time::{Duration, Instant};

use ephesus_tests::resp::encode;
use ephesus_tests::{Client, Node, Options, Reply};

use super::{PORTS, PROTOCOLS, Pair};

/// Sent by one connection, which gets its own replies only. Names of several subscriptions are in an order of their own,
/// so that no line ends more than one.
const SCRIPT: &str = "
SUBSCRIBE
SUBSCRIBE a b
SUBSCRIBE a
PSUBSCRIBE n* h?llo
GET x
ECHO x
SET x 1
PING
PING hi
PING a b
NOSUCH
GET
UNSUBSCRIBE a zzz
UNSUBSCRIBE
UNSUBSCRIBE
UNSUBSCRIBE nosuch
PUNSUBSCRIBE n*
PUNSUBSCRIBE
PUNSUBSCRIBE
SSUBSCRIBE {x}s1 {x}s2
GET x
SUNSUBSCRIBE {x}s1
SUNSUBSCRIBE
SUNSUBSCRIBE
SUNSUBSCRIBE {x}nosuch
GET x
SUBSCRIBE q
RESET
GET x
PUBLISH
PUBLISH a
PUBLISH nobody x
SPUBLISH nobody
SPUBLISH nobody x
PUBSUB
PUBSUB NOSUCH
PUBSUB CHANNELS
PUBSUB CHANNELS a b
PUBSUB NUMSUB
PUBSUB NUMSUB a b
PUBSUB NUMPAT
PUBSUB NUMPAT x
PUBSUB SHARDCHANNELS
PUBSUB SHARDNUMSUB
PUBSUB SHARDNUMSUB a
";

/// Sends a line to both servers and compares all that comes.
fn same(pair: &mut Pair, line: &str, what: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let mut bytes = Vec::new();
    encode(&words, &mut bytes);
    // Ends the wait for what comes: allowed in any context.
    encode(&["PING", "that-is-all"], &mut bytes);
    let mut replies = [Vec::new(), Vec::new()];
    for (client, replies) in [&mut pair.ours, &mut pair.theirs]
        .into_iter()
        .zip(&mut replies)
    {
        client.send_raw(&bytes).expect("sent");
        loop {
            let reply = client.receive().expect("a reply");
            if format!("{reply:?}").contains(&format!("{:?}", Reply::bulk("that-is-all"))) {
                break;
            }
            replies.push(reply);
        }
    }
    let [ours, theirs] = replies;
    assert_eq!(ours, theirs, "{what}: {line}");
}

#[test]
fn subscriptions_are_answered_as_redis_answers() {
    for port in PORTS {
        for protocol in PROTOCOLS {
            let mut pair = Pair::new(port, protocol);
            let what = format!("{port:?} port, RESP{protocol}");
            for line in SCRIPT.lines().filter(|line| !line.is_empty()) {
                same(&mut pair, line, &what);
                if line == "RESET" && protocol == 3 {
                    pair.ours.say("HELLO 3");
                    pair.theirs.say("HELLO 3");
                }
            }
        }
    }
}

fn node(shards: u16) -> Node {
    Node::start(Options {
        shards,
        ..Options::default()
    })
}

/// The words of a message, or of what is told of a subscription.
fn words(reply: &Reply) -> Vec<String> {
    let word = |reply: &Reply| match reply {
        Reply::Integer(number) => number.to_string(),
        other => other.text(),
    };
    reply.items().iter().map(word).collect()
}

fn next(client: &mut Client) -> Vec<String> {
    words(&client.receive().expect("a message"))
}

#[test]
fn messages_reach_subscribers_of_all_shards_in_order() {
    let node = node(3);
    let mut subscribers: Vec<Client> = (0..8).map(|_| node.client()).collect();
    subscribers.extend((0..3).map(|shard| node.direct_client(shard)));
    for (n, client) in subscribers.iter_mut().enumerate() {
        if n % 2 == 0 {
            client.say("HELLO 3");
        }
        assert_eq!(
            words(&client.say("SUBSCRIBE news")),
            ["subscribe", "news", "1"]
        );
        assert_eq!(
            words(&client.say("PSUBSCRIBE n*")),
            ["psubscribe", "n*", "2"]
        );
    }
    let everyone = 2 * subscribers.len() as i64;
    for mut publisher in [node.client(), node.client(), node.direct_client(1)] {
        let messages: Vec<Vec<Vec<u8>>> = (0..200)
            .map(|n| {
                ["PUBLISH", "news", &n.to_string()]
                    .map(|word| word.as_bytes().to_vec())
                    .to_vec()
            })
            .collect();
        for reply in publisher.pipeline(&messages) {
            assert_eq!(reply.integer(), everyone);
        }
        for client in &mut subscribers {
            for n in 0..200 {
                let n = n.to_string();
                assert_eq!(next(client), ["message", "news", &n]);
                assert_eq!(next(client), ["pmessage", "n*", "news", &n]);
            }
        }
    }
    let mut asking = node.client();
    let count = subscribers.len() as i64;
    assert_eq!(words(&asking.say("PUBSUB CHANNELS")), ["news"]);
    assert_eq!(asking.say("PUBSUB NUMPAT").integer(), 1);
    assert_eq!(asking.info("pubsub_patterns"), 3, "one of each shard");
    let numbers = words(&asking.say("PUBSUB NUMSUB nosuch news"));
    assert_eq!(numbers, ["nosuch", "0", "news", &count.to_string()]);
    let listed = asking.say("CLIENT LIST TYPE pubsub").text();
    assert_eq!(listed.lines().count(), subscribers.len());
    assert!(listed.contains(" flags=P ") && listed.contains(" sub=1 psub=1 ssub=0 "));
    // Who has gone is none any more.
    subscribers.truncate(5);
    let until = Instant::now() + Duration::from_secs(5);
    while asking.say("PUBLISH news x").integer() != 10 {
        assert!(Instant::now() < until);
    }
    assert_eq!(asking.say("CLIENT KILL TYPE pubsub").integer(), 5);
    while asking.say("PUBLISH news x").integer() != 0 {
        assert!(Instant::now() < until);
    }
    assert!(asking.say("PUBSUB CHANNELS").items().is_empty());
}

#[test]
fn a_client_gets_its_own_messages_under_resp3() {
    for shards in [1, 3] {
        let node = node(shards);
        let mut client = node.client();
        client.say("HELLO 3");
        client.say("SUBSCRIBE a");
        client.send(&["PUBLISH", "a", "x"]).expect("sent");
        let mut got = [(); 2].map(|()| client.receive().expect("two of them"));
        got.sort_by_key(|reply| matches!(reply, Reply::Integer(_)));
        assert_eq!(words(&got[0]), ["message", "a", "x"]);
        assert_eq!(got[1], Reply::Integer(1));
        assert_eq!(client.say("GET a"), Reply::Null);
        client.send(&["CLIENT", "REPLY", "OFF"]).expect("sent");
        client.send(&["PUBLISH", "a", "y"]).expect("sent");
        assert_eq!(next(&mut client), ["message", "a", "y"]);
    }
}

#[test]
fn sharded_channels_belong_to_their_slots_shard() {
    let node = node(2);
    let mut entry = node.client();
    assert_eq!(
        words(&entry.say("SSUBSCRIBE a b")),
        ["ssubscribe", "a", "1"]
    );
    assert_eq!(next(&mut entry), ["ssubscribe", "b", "2"]);
    let mut homes = Vec::new();
    for shard in 0..2 {
        let mut direct = node.direct_client(shard);
        let told = direct.say("SSUBSCRIBE a");
        match told.error() {
            Some(text) => assert!(text.starts_with("MOVED "), "{text}"),
            None => homes.push((shard, direct)),
        }
        let mut other = node.direct_client(shard);
        let crossed = other.say("SSUBSCRIBE a b");
        let text = crossed.error().expect("several slots");
        assert!(
            text.starts_with("CROSSSLOT") || text.starts_with("MOVED"),
            "{text}"
        );
    }
    assert_eq!(homes.len(), 1);
    let (home, mut direct) = homes.remove(0);
    for mut publisher in [node.client(), node.direct_client(home)] {
        assert_eq!(publisher.say("SPUBLISH a x").integer(), 2);
        assert_eq!(publisher.say("PUBLISH a x").integer(), 0);
        assert_eq!(next(&mut entry), ["smessage", "a", "x"]);
        assert_eq!(next(&mut direct), ["smessage", "a", "x"]);
    }
    let away = node.direct_client(1 - home).say("SPUBLISH a x");
    assert!(away.error().is_some_and(|text| text.starts_with("MOVED ")));
    assert_eq!(
        words(&node.client().say("PUBSUB SHARDNUMSUB a b")),
        ["a", "2", "b", "1"]
    );
}

#[test]
fn a_subscriber_that_does_not_read_is_closed_and_nobody_waits_for_it() {
    let node = node(2);
    let mut lazy: Vec<Client> = (0..4).map(|_| node.client()).collect();
    let mut reading = node.client();
    for client in lazy.iter_mut().chain([&mut reading]) {
        client.say("SUBSCRIBE a");
    }
    let mut publisher = node.client();
    let payload = "x".repeat(256 << 10);
    let (mut receivers, begun) = (5, Instant::now());
    let mut sent = 0;
    while receivers > 1 {
        receivers = publisher.call(&["PUBLISH", "a", &payload]).integer();
        assert_eq!(next(&mut reading)[2].len(), payload.len());
        sent += 1;
        assert!(
            sent < 1000 && begun.elapsed() < Duration::from_secs(60),
            "{receivers} are left"
        );
    }
    assert!(publisher.info("mem_clients_normal") < 64 << 20);
}

#[test]
fn messages_of_a_transaction_leave_once_it_is_executed() {
    let node = node(3);
    let mut subscribers: Vec<Client> = (0..6).map(|_| node.client()).collect();
    for client in &mut subscribers {
        client.say("SUBSCRIBE results");
    }
    for n in 0..12 {
        let mut worker = node.client();
        worker.say("MULTI");
        assert_eq!(
            worker.say(&format!("SETEX result:{n} 100 x")).text(),
            "QUEUED"
        );
        assert_eq!(worker.say(&format!("PUBLISH results {n}")).text(), "QUEUED");
        if n % 3 == 2 {
            assert_eq!(worker.say("DISCARD"), Reply::ok());
            continue;
        }
        let replies = worker.say("EXEC").items();
        assert_eq!(replies[0], Reply::ok());
        assert!(matches!(replies[1], Reply::Integer(_)), "{:?}", replies[1]);
        for client in &mut subscribers {
            assert_eq!(next(client), ["message", "results", &n.to_string()]);
        }
    }
}

/// Commands, each with the keys of one slot.
const CHANGES: &str = "
SET {a}k 1
SET {a}k 1 EX 100
SET {a}k 1 KEEPTTL
SET {a}k 1 NX
SETNX {a}n 1
SETEX {a}k 100 x
PSETEX {a}k 100000 x
GETSET {a}k x
APPEND {a}k y
SETRANGE {a}k 1 z
SETBIT {a}b 3 1
BITFIELD {a}b SET u8 0 7
BITOP NOT {a}c {a}b
BITOP NOT {a}c {a}absent
INCR {a}i
INCRBY {a}i 5
DECR {a}i
DECRBY {a}i 2
INCRBYFLOAT {a}i 1.5
MSET {a}m1 1 {a}m2 2
MSETNX {a}m3 1 {a}m4 2
MSETNX {a}m3 1 {a}m4 2
EXPIRE {a}k 1000
PEXPIREAT {a}k 4102444800000
PERSIST {a}k
PERSIST {a}k
GETEX {a}k EX 100
GETEX {a}k PERSIST
GETEX {a}k
GET {a}k
GET {a}absent
GETDEL {a}k
RENAME {a}i {a}j
RENAMENX {a}j {a}i
COPY {a}i {a}copied
COPY {a}i {a}copied REPLACE
EXPIRE {a}copied -1
DEL {a}m1 {a}absent {a}m2
UNLINK {a}m3
INCR {a}n x
SORT {a}absent STORE {a}n
SORT {a}absent STORE {a}n
SET {a}n 1
SORT {a}n STORE {a}b
MULTI
SET {a}t 1
DEL {a}t
EXEC
";

#[test]
fn events_of_keys_are_those_of_redis() {
    for port in PORTS {
        let mut pair = Pair::new(port, 2);
        let mut subscribers = pair.others();
        for client in &mut subscribers {
            client.say("PSUBSCRIBE __key*@*__:*");
        }
        for letters in ["KEA", "Kg$", "Ex", "KEAm", "Em$", "KEn", ""] {
            pair.same(&["CONFIG", "SET", "notify-keyspace-events", letters]);
            // Shards look at it once a turn.
            std::thread::sleep(Duration::from_millis(150));
            pair.same(&["FLUSHALL"]);
            let mut got = [Vec::new(), Vec::new()];
            for line in CHANGES.lines().filter(|line| !line.is_empty()) {
                pair.same_line(line);
            }
            for (client, got) in subscribers.iter_mut().zip(&mut got) {
                client.send(&["PSUBSCRIBE", "end"]).expect("sent");
                std::thread::sleep(Duration::from_millis(100));
                client.send(&["PUNSUBSCRIBE", "end"]).expect("sent");
                loop {
                    let words = next(client);
                    match &words[0][..] {
                        "punsubscribe" => break,
                        "pmessage" => got.push(words[2..].join(" ")),
                        _ => {}
                    }
                }
            }
            let [ours, theirs] = got;
            assert_eq!(ours, theirs, "{port:?} port, {letters}");
        }
    }
}

#[test]
fn keys_that_expire_are_told_of_although_nobody_looks() {
    let node = Node::start(Options {
        shards: 3,
        flags: vec!["--notify-keyspace-events".to_owned(), "Ex".to_owned()],
        ..Options::default()
    });
    let mut client = node.client();
    let mut subscriber = node.client();
    assert_eq!(
        client
            .say("CONFIG GET notify-keyspace-events")
            .field("notify-keyspace-events"),
        Some(Reply::bulk("xE"))
    );
    subscriber.say("SUBSCRIBE __keyevent@0__:expired");
    let mut expected = Vec::new();
    for n in 0..30 {
        client.say(&format!("SET key:{n} x PX 50"));
        expected.push(format!("key:{n}"));
    }
    let mut expired: Vec<String> = (0..30).map(|_| next(&mut subscriber).remove(2)).collect();
    expired.sort();
    expected.sort();
    assert_eq!(expired, expected);
    client.say("SELECT 3");
    client.say("SET x 1 PX 1");
    subscriber.say("SUBSCRIBE __keyevent@3__:expired");
    assert_eq!(
        next(&mut subscriber),
        ["message", "__keyevent@3__:expired", "x"]
    );
}

#[test]
fn monitors_see_what_clients_of_all_shards_send_but_no_secrets() {
    let node = node(3);
    let mut monitors: Vec<Client> = (0..4).map(|_| node.client()).collect();
    monitors.push(node.direct_client(1));
    for client in &mut monitors {
        assert_eq!(client.say("MONITOR"), Reply::ok());
    }
    // Shards look at it once a turn.
    std::thread::sleep(Duration::from_millis(250));
    for mut client in [node.client(), node.client(), node.direct_client(0)] {
        let address = client.stream().local_addr().expect("bound").to_string();
        client.call(&[&b"ECHO"[..], b"a \"b\"\r\n\x00\xff\\"]);
        client.say("HELLO 2 AUTH default secret-word SETNAME x");
        client.say("CONFIG SET maxmemory 0");
        client.say("CLIENT LIST");
        client.say("NOSUCH x");
        client.say("SELECT 3");
        client.say("MULTI");
        client.say("GET {x}a");
        client.say("DISCARD");
        client.call(&["ECHO", &"y".repeat(100_000)]);
        let expected = [
            format!("[0 {address}] \"ECHO\" \"a \\\"b\\\"\\r\\n\\x00\\xff\\\\\""),
            format!(
                "[0 {address}] \"HELLO\" \"2\" \"AUTH\" \"(redacted)\" \"(redacted)\" \"(redacted)\" \"(redacted)\""
            ),
            format!("[0 {address}] \"SELECT\" \"3\""),
            format!("[3 {address}] \"MULTI\""),
            format!("[3 {address}] \"GET\" \"{{x}}a\""),
            format!("[3 {address}] \"DISCARD\""),
        ];
        for monitor in &mut monitors {
            for expected in &expected {
                let line = monitor.receive().expect("a line").text();
                let (time, rest) = line.split_once(' ').expect("a time");
                assert!(time.parse::<f64>().is_ok(), "{line}");
                assert_eq!(rest, expected);
            }
            let long = monitor.receive().expect("a line").text();
            assert!(
                long.len() < 20_000 && long.ends_with("...\""),
                "{} bytes",
                long.len()
            );
        }
    }
    assert!(
        node.client()
            .say("CLIENT LIST")
            .text()
            .contains(" flags=O ")
    );
    let mut first = monitors.remove(0);
    first.send(&["RESET"]).expect("sent");
    while first.receive().expect("RESET").text() != "RESET" {}
    drop(monitors);
    std::thread::sleep(Duration::from_millis(250));
    node.client().say("ECHO nobody");
    assert_eq!(first.say("ECHO again"), Reply::bulk("again"));
}
