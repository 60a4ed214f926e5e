//! MIGRATE: keys go to a redis-server and come from one.

use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::{PROTOCOLS, Pair, Port, shown};
use ephesus_tests::oracle::Oracle;
use ephesus_tests::{Client, Node, Options, Reply};

fn node(shards: u16) -> Node {
    Node::start(Options {
        shards,
        ..Options::default()
    })
}

fn migrate(client: &mut Client, port: u16, rest: &[&str]) -> Reply {
    let port = port.to_string();
    client.call(&[&["MIGRATE", "127.0.0.1", &port], rest].concat())
}

fn error(reply: &Reply) -> &str {
    reply.error().unwrap_or_else(|| panic!("{reply:?}"))
}

#[test]
fn keys_move_to_a_redis_and_back() {
    for shards in [1, 3] {
        let (node, oracle) = (node(shards), Oracle::standalone());
        let (mut ours, mut theirs) = (node.client(), oracle.client());
        let big = "b".repeat(3 << 20);
        for (database, expires) in [("0", false), ("3", true)] {
            ours.call(&["SELECT", database]);
            theirs.call(&["SELECT", database]);
            let values = ["", "12345", "text", &big];
            for (n, value) in values.into_iter().enumerate() {
                ours.call(&["SET", &format!("k{n}"), value]);
                if expires {
                    ours.call(&["PEXPIRE", &format!("k{n}"), "100000"]);
                }
                let key = format!("k{n}");
                let moved = migrate(&mut ours, oracle.port(), &[&key, database, "5000"]);
                assert_eq!(moved, Reply::ok());
                assert_eq!(ours.call(&["EXISTS", &key]), Reply::Integer(0));
                assert_eq!(theirs.call(&["GET", &key]), Reply::bulk(value));
                let ttl = theirs.call(&["PTTL", &key]).integer();
                assert_eq!(ttl > 90_000 && ttl <= 100_000, expires, "{ttl}");
                // And back, as an application that leaves Redis does.
                let entry = node.port();
                let back = migrate(&mut theirs, entry, &[&key, database, "5000", "COPY"]);
                assert_eq!(back, Reply::ok());
                assert_eq!(ours.call(&["GET", &key]), Reply::bulk(value));
                let back = migrate(&mut theirs, entry, &[&key, database, "5000"]);
                assert!(error(&back).contains("BUSYKEY"), "{back:?}");
                let back = migrate(&mut theirs, entry, &[&key, database, "5000", "REPLACE"]);
                assert_eq!(back, Reply::ok());
                assert_eq!(theirs.call(&["EXISTS", &key]), Reply::Integer(0));
            }
        }
    }
}

#[test]
fn many_keys_move_together_and_those_stay_that_the_target_refuses() {
    let (node, oracle) = (node(3), Oracle::standalone());
    let (mut ours, mut theirs) = (node.client(), oracle.client());
    let keys: Vec<String> = (0..50).map(|n| format!("{{k}}{n}")).collect();
    for key in &keys {
        ours.call(&["SET", key, key]);
    }
    let all: Vec<&str> = keys.iter().map(String::as_str).collect();
    theirs.call(&["SET", all[7], "busy"]);
    let rest = [&["", "0", "5000", "KEYS", "{k}absent"], &all[..]].concat();
    let reply = migrate(&mut ours, oracle.port(), &rest);
    let text = "ERR Target instance replied with error: BUSYKEY Target key name already exists.";
    assert_eq!(error(&reply), text);
    for (n, key) in all.iter().enumerate() {
        assert_eq!(ours.call(&["EXISTS", key]), Reply::Integer((n == 7).into()));
    }
    let rest = ["", "0", "5000", "COPY", "REPLACE", "KEYS", all[7]];
    assert_eq!(migrate(&mut ours, oracle.port(), &rest), Reply::ok());
    assert_eq!(theirs.call(&["GET", all[7]]), Reply::bulk(all[7]));
    assert_eq!(ours.call(&["EXISTS", all[7]]), Reply::Integer(1));
    assert_eq!(theirs.call(&["DBSIZE"]), Reply::Integer(50));
}

#[test]
fn what_is_wrong_is_told_in_redis_words() {
    let target = Oracle::standalone();
    target.client().say("CONFIG SET requirepass hunter2");
    let busy = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = target.port().to_string();
    let silent = busy.local_addr().expect("bound").port().to_string();
    for protocol in PROTOCOLS {
        let mut pair = Pair::new(Port::Entry, protocol);
        pair.same_line("SET k 1");
        for rest in [
            "127.0.0.1 1 k 0 100",
            "127.0.0.1 1 absent 0 100",
            "127.0.0.1 x k 0 100",
            "127.0.0.1 1 k x 100",
            "127.0.0.1 1 k 0 x",
            "127.0.0.1 1 k 0 100 KEYS k",
            "127.0.0.1 1 '' 0 100 KEYS",
            "127.0.0.1 1 '' 0 100 KEYS absent",
            "127.0.0.1 1 '' 0 100 FOO",
            "127.0.0.1 1 '' 0 100 AUTH",
            "127.0.0.1 1 k 0 100 AUTH2 x",
            "127.0.0.1 1 k 0",
            "no-such-host.invalid 1 k 0 100",
            &format!("127.0.0.1 {silent} k 0 100"),
            &format!("127.0.0.1 {port} k 0 1000"),
            &format!("127.0.0.1 {port} k 0 1000 AUTH wrong"),
            &format!("127.0.0.1 {port} k 99 1000 AUTH hunter2"),
            &format!("127.0.0.1 {port} k 0 1000 COPY REPLACE AUTH hunter2"),
            &format!("127.0.0.1 {port} k 0 1000 COPY REPLACE AUTH2 default hunter2"),
            &format!("127.0.0.1 {port} k 0 1000 COPY AUTH2 default hunter2"),
        ] {
            pair.same_line(&format!("MIGRATE {rest}"));
            pair.same_line("GET k");
        }
    }
}

#[test]
fn others_go_on_meanwhile_and_no_write_is_lost() {
    let node = node(2);
    let target = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = target.local_addr().expect("bound").port();
    // What others do meanwhile, and what is there afterwards if it is not removed.
    let changes = [
        ("SET k 2", Some(Reply::bulk("2"))),
        ("SET k 1", Some(Reply::bulk("1"))),
        ("DEL k", Some(Reply::NullBulk)),
        ("FLUSHALL", Some(Reply::NullBulk)),
        ("PEXPIRE k -1", Some(Reply::NullBulk)),
        ("GET k", None),
    ];
    for (line, left) in changes {
        let (mut ours, mut other) = (node.client(), node.client());
        ours.say("SET k 1");
        let waits = std::thread::spawn(move || {
            let reply = migrate(&mut ours, port, &["k", "0", "5000"]);
            (ours, reply)
        });
        let (mut stream, _) = target.accept().expect("it comes");
        let mut head = [0; 20];
        stream.read_exact(&mut head).expect("a command");
        // Nobody waits for the target.
        let began = Instant::now();
        for n in 0..200 {
            assert_eq!(other.call(&["SET", &format!("k{n}"), "x"]), Reply::ok());
        }
        assert!(began.elapsed() < Duration::from_secs(4));
        assert_eq!(other.say(line).error(), None, "{line}");
        std::io::Write::write_all(&mut stream, b"+OK\r\n+OK\r\n").expect("written");
        let (mut ours, reply) = waits.join().expect("answered");
        match left {
            Some(left) => {
                assert!(error(&reply).contains("changed"), "{line}: {reply:?}");
                assert_eq!(ours.say("GET k"), left, "{line}");
            }
            None => {
                assert_eq!(reply, Reply::ok());
                assert!(ours.say("GET k").is_nil());
            }
        }
    }
}

#[test]
fn a_key_that_expires_meanwhile_has_moved() {
    let node = node(1);
    let target = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = target.local_addr().expect("bound").port();
    let mut ours = node.client();
    ours.say("SET k 1 PX 300");
    let waits = std::thread::spawn(move || migrate(&mut ours, port, &["k", "0", "5000"]));
    let (mut stream, _) = target.accept().expect("it comes");
    let mut other = node.client();
    while other.say("EXISTS k") != Reply::Integer(0) {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::io::Write::write_all(&mut stream, b"+OK\r\n+OK\r\n").expect("written");
    assert_eq!(waits.join().expect("answered"), Reply::ok());
}

#[test]
fn a_key_that_is_given_to_its_own_node_stays() {
    let node = node(2);
    let mut ours = node.client();
    for port in [node.port(), node.direct_port(0), node.direct_port(1)] {
        for expires in [false, true] {
            let set = ["SET", "k", "v", "EX", "1000"];
            ours.call(&set[..if expires { 5 } else { 3 }]);
            let moved = migrate(&mut ours, port, &["k", "0", "5000", "REPLACE"]);
            // The port of another shard leads elsewhere.
            let text = error(&moved);
            assert!(text.contains("changed") || text.contains("MOVED"), "{text}");
            assert_eq!(ours.say("GET k"), Reply::bulk("v"));
            let busy = migrate(&mut ours, port, &["k", "0", "5000"]);
            assert!(error(&busy).starts_with("ERR Target"), "{busy:?}");
            assert_eq!(ours.say("GET k"), Reply::bulk("v"));
        }
    }
    // Another database has another key.
    let moved = migrate(&mut ours, node.port(), &["k", "1", "5000"]);
    assert_eq!(moved, Reply::ok());
    assert!(ours.say("GET k").is_nil());
    ours.say("SELECT 1");
    assert_eq!(ours.say("GET k"), Reply::bulk("v"));
}

#[test]
fn it_is_no_part_of_transactions_or_scripts_and_its_password_is_shown_nowhere() {
    let node = node(1);
    let mut client = node.client();
    let mut monitor = node.client();
    assert_eq!(monitor.say("MONITOR"), Reply::ok());
    client.say("CONFIG SET slowlog-log-slower-than 0");
    client.say("SET k 1");
    let request = [
        "MIGRATE",
        "127.0.0.1",
        "1",
        "k",
        "0",
        "100",
        "AUTH2",
        "bob",
        "hunter2",
    ];
    assert!(error(&client.call(&request)).starts_with("IOERR "));
    let script = "return redis.call('migrate', '127.0.0.1', '1', KEYS[1], 0, 100)";
    assert!(client.call(&["EVAL", script, "1", "k"]).error().is_some());
    client.say("MULTI");
    assert!(
        client.call(&request).error().is_some(),
        "{}",
        shown(&request)
    );
    assert!(client.say("EXEC").error().is_some());
    let log = format!("{:?}", client.say("SLOWLOG GET 100"));
    assert!(
        log.contains("(redacted)") && !log.contains("hunter2"),
        "{log}"
    );
    client.say("ECHO that-is-all");
    let mut lines = String::new();
    while !lines.contains("that-is-all") {
        lines.push_str(&monitor.receive().expect("a line").text());
    }
    assert!(
        lines.contains("AUTH2") && !lines.contains("hunter2"),
        "{lines}"
    );
}
