//! What INFO, SCAN and the like tell, and how soon.

use std::time::{Duration, Instant};

use super::{PROTOCOLS, Pair, Port};
use ephesus_tests::{Client, Node, Options, Reply};

fn node(shards: u16) -> Node {
    Node::start(Options {
        shards,
        ..Options::default()
    })
}

/// A field of a line of INFO, such as `db0:keys=1,expires=0,avg_ttl=0`.
fn field(client: &mut Client, line: &str, name: &str) -> Option<f64> {
    let text = client.say("INFO everything").text();
    let line = text
        .lines()
        .find_map(|found| found.strip_prefix(line)?.strip_prefix(':'))?;
    if name.is_empty() {
        return line.parse().ok();
    }
    let fields = line.split(',');
    let value = fields
        .filter_map(|field| field.split_once('='))
        .find(|(found, _)| *found == name)?;
    value.1.parse().ok()
}

#[test]
fn the_average_time_to_live_is_about_what_it_is() {
    let node = node(3);
    let mut client = node.client();
    for (database, ttl) in [(0, 100_000), (3, 500_000)] {
        client.say(&format!("SELECT {database}"));
        for n in 0..200 {
            client.say(&format!("SET k{n} x PX {ttl}"));
            client.say(&format!("SET forever{n} x"));
        }
    }
    let began = Instant::now();
    loop {
        let of = |client: &mut Client, line: &str| field(client, line, "avg_ttl").unwrap_or(0.0);
        let (first, other) = (of(&mut client, "db0"), of(&mut client, "db3"));
        let is_near = |average: f64, ttl: f64| average > ttl * 0.8 && average <= ttl;
        if is_near(first, 100_000.0) && is_near(other, 500_000.0) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{first} {other}");
        client.say("GET k1");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn clients_of_all_shards_are_counted_at_once() {
    let node = node(3);
    let mut client = node.client();
    for n in 0..20 {
        let mut others: Vec<Client> = (0..5).map(|_| node.client()).collect();
        for other in &mut others {
            other.say("PING");
        }
        assert_eq!(client.info("connected_clients"), 6, "round {n}");
        for other in &mut others {
            assert_eq!(other.say("QUIT"), Reply::ok());
        }
        drop(others);
        let began = Instant::now();
        while client.info("connected_clients") != 1 {
            assert!(began.elapsed() < Duration::from_secs(5));
        }
    }
}

#[test]
fn fragmentation_is_what_nothing_accounts_for() {
    let node = node(2);
    let mut client = node.client();
    std::thread::sleep(Duration::from_millis(2500));
    let empty = field(&mut client, "mem_fragmentation_ratio", "").expect("a ratio");
    assert!((0.5..2.0).contains(&empty), "{empty}");
    let value = "v".repeat(100);
    for n in 0..1000 {
        let words: Vec<String> = (0..100)
            .flat_map(|m| [format!("k{n}:{m}"), value.clone()])
            .collect();
        let request = [vec!["MSET".to_owned()], words].concat();
        assert_eq!(client.call(&request), Reply::ok());
    }
    std::thread::sleep(Duration::from_millis(1500));
    let full = field(&mut client, "mem_fragmentation_ratio", "").expect("a ratio");
    assert!((0.7..3.0).contains(&full), "{full}");
}

#[test]
fn a_scan_ends_where_there_are_no_more_keys() {
    for shards in [1, 3] {
        let node = node(shards);
        let mut client = node.client();
        let end = |client: &mut Client, line: &str| client.say(line).items()[0].text();
        assert_eq!(end(&mut client, "SCAN 0"), "0");
        client.say("SET only 1");
        let mut calls = 0;
        let (mut cursor, mut seen) = ("0".to_owned(), 0);
        loop {
            let items = client.call(&["SCAN", &cursor, "COUNT", "10"]).items();
            cursor = items[0].text();
            seen += items[1].items().len();
            calls += 1;
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen, 1);
        assert!(calls <= usize::from(shards), "{calls} calls");
        for n in 0..500 {
            client.call(&["SET", &format!("k{n}"), "x"]);
        }
        let (mut cursor, mut all) = ("0".to_owned(), Vec::new());
        loop {
            let items = client.call(&["SCAN", &cursor, "COUNT", "100"]).items();
            cursor = items[0].text();
            all.extend(items[1].items().iter().map(Reply::text));
            if cursor == "0" {
                break;
            }
        }
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 501);
        // A key of another shard is seen as soon as it is there.
        client.say("FLUSHALL");
        for n in 0..100 {
            client.call(&["SET", &format!("new{n}"), "x"]);
            let (mut cursor, mut found) = ("0".to_owned(), 0);
            loop {
                let items = client.call(&["SCAN", &cursor]).items();
                cursor = items[0].text();
                found += items[1].items().len();
                if cursor == "0" {
                    break;
                }
            }
            assert_eq!(found, 1, "new{n}");
            client.call(&["DEL", &format!("new{n}")]);
        }
    }
}

#[test]
fn slots_are_the_coordinators() {
    let node = node(1);
    let mut client = node.direct_client(0);
    let hint = "ERR nodes and slots are managed by the coordinator";
    for line in [
        "CLUSTER SETSLOT 1 NODE x",
        "CLUSTER addslots 1",
        "CLUSTER DELSLOTS 1",
        "CLUSTER MEET 127.0.0.1 7000",
        "CLUSTER FORGET x",
        "CLUSTER RESET",
    ] {
        let answer = client.say(line);
        let error = answer.error().unwrap_or_default();
        assert!(error.starts_with(hint), "{line}: {answer:?}");
    }
    assert!(
        client
            .say("CLUSTER NOSUCH")
            .error()
            .is_some_and(|error| !error.starts_with(hint))
    );
}

#[test]
fn slow_commands_have_their_clients_whatever_shard_executes_them() {
    let node = node(3);
    let mut client = node.client();
    client.say("CONFIG SET slowlog-log-slower-than 0");
    client.say("CLIENT SETNAME me");
    client.say("SLOWLOG RESET");
    for n in 0..30 {
        client.call(&["SET", &format!("k{n}"), "x"]);
    }
    let entries = client.say("SLOWLOG GET 100").items();
    let sets: Vec<Vec<Reply>> = entries
        .iter()
        .map(Reply::items)
        .filter(|entry| entry[3].items()[0].text().eq_ignore_ascii_case("set"))
        .collect();
    assert!(sets.len() >= 30, "{}", sets.len());
    let address = client.stream().local_addr().expect("bound").to_string();
    for entry in sets {
        assert_eq!(entry[4], Reply::bulk(&address), "{entry:?}");
        assert_eq!(entry[5], Reply::bulk("me"), "{entry:?}");
    }
}

#[test]
fn watched_keys_are_counted_once_and_the_time_has_microseconds() {
    for shards in [1, 3] {
        let node = node(shards);
        let mut client = node.client();
        client.say("WATCH a a a");
        client.say("WATCH a");
        let line = client.say("CLIENT LIST").text();
        assert!(line.contains(" watch=1 "), "{line}");
        let mut fractions = 0;
        let mut last = (0, 0);
        for _ in 0..50 {
            let time = client.say("TIME").items();
            let time: Vec<u64> = time
                .iter()
                .map(|part| part.text().parse().expect("a number"))
                .collect();
            fractions += u64::from(!time[1].is_multiple_of(1000));
            assert!((time[0], time[1]) >= last);
            last = (time[0], time[1]);
        }
        assert!(fractions > 10, "{fractions}");
    }
}

#[test]
fn saves_of_several_clients_are_all_answered() {
    let node = node(3);
    let mut clients: Vec<Client> = (0..4).map(|_| node.client()).collect();
    for round in 0..10 {
        clients[0].call(&["SET", &format!("k{round}"), "x"]);
        for client in &mut clients {
            client.send(&["SAVE"]).expect("sent");
        }
        let replies: Vec<Reply> = clients
            .iter_mut()
            .map(|client| client.receive().expect("a reply"))
            .collect();
        let busy = Reply::Error("ERR Background save already in progress".to_owned());
        assert!(replies.contains(&Reply::ok()), "{replies:?}");
        assert!(
            replies
                .iter()
                .all(|reply| *reply == Reply::ok() || *reply == busy)
        );
        assert_eq!(clients[1].say("SAVE"), Reply::ok());
    }
}

#[test]
fn misses_of_getex_are_told_of() {
    for protocol in PROTOCOLS {
        let mut pair = Pair::new(Port::Direct, protocol);
        pair.same_line("CONFIG SET notify-keyspace-events KEm");
        let [mut ours, mut theirs] = pair.others();
        for client in [&mut ours, &mut theirs] {
            client.say("PSUBSCRIBE *");
        }
        for line in [
            "GETEX absent",
            "GETEX absent EX 5",
            "GETDEL absent",
            "GETSET absent 1",
            "GET absent2",
        ] {
            pair.same_line(line);
        }
        for _ in 0..10 {
            let (ours, theirs) = (ours.receive(), theirs.receive());
            assert_eq!(ours.expect("an event"), theirs.expect("an event"));
        }
    }
}
