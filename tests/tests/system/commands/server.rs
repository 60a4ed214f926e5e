//! Commands about the server and about other connections.

use std::time::{Duration, Instant};

use ephesus_tests::oracle::Oracle;
use ephesus_tests::{Client, Node, Options, Reply};

use super::{PORTS, PROTOCOLS, Pair, Port};

/// Answered as Redis 7.0 answers it; what is newer comes from Valkey below.
const SCRIPT: &str = "
CLIENT KILL
CLIENT KILL 1.2.3.4:5
CLIENT KILL foo
CLIENT KILL foo bar
CLIENT KILL ID 0
CLIENT KILL ID x
CLIENT KILL ID 99999
CLIENT KILL ADDR 1.2.3.4:1
CLIENT KILL TYPE foo
CLIENT KILL TYPE replica
CLIENT KILL USER nosuch
CLIENT KILL SKIPME maybe
CLIENT KILL ID 99999 TYPE
CLIENT LIST TYPE foo
CLIENT LIST TYPE replica
CLIENT LIST ID x
CLIENT LIST ID
CLIENT REPLY
CLIENT REPLY foo
CLIENT REPLY ON
CLIENT PAUSE
CLIENT PAUSE x
CLIENT PAUSE -1
CLIENT PAUSE 1 foo
CLIENT PAUSE 99999999999999999999
CLIENT PAUSE 1 WRITE
CLIENT PAUSE 1 all
CLIENT PAUSE 1
CLIENT UNPAUSE
CLIENT UNPAUSE x
CLIENT NO-EVICT
CLIENT NO-EVICT foo
CLIENT NO-EVICT ON
CLIENT NO-EVICT off
CLIENT GETREDIR
CLIENT TRACKINGINFO
CLIENT UNBLOCK
CLIENT UNBLOCK x
CLIENT UNBLOCK 1 foo
CLIENT UNBLOCK 1
CLIENT UNBLOCK 1 ERROR
TIME x
ROLE
ROLE x
WAIT
WAIT 0 0
WAIT x 0
WAIT 1 x
WAIT 1 -1
WAIT 1 10
WAIT -1 0
LASTSAVE x
SAVE x
BGSAVE x
BGSAVE SCHEDULE x
BGREWRITEAOF x
SHUTDOWN foo
SHUTDOWN NOSAVE SAVE
SHUTDOWN ABORT
SHUTDOWN ABORT NOW
LOLWUT VERSION x
SAVE
LATENCY GRAPH
LATENCY GRAPH foo
LATENCY GRAPH command
LATENCY HELP
MODULE
MODULE foo
MODULE LIST
MODULE LIST x
MODULE LOAD
MODULE LOAD /x.so
MODULE LOADEX /x.so
MODULE UNLOAD
MODULE UNLOAD x
MODULE HELP
SCRIPT DEBUG
SCRIPT DEBUG x
SCRIPT DEBUG NO
SCRIPT HELP
SWAPDB 0
REPLICAOF a
SLAVEOF a
MULTI
MODULE LOAD /x.so
EXEC
MULTI
MODULE LIST
EXEC
";

/// What Redis refuses in a cluster, and this server at every port.
const REFUSED: &str = "
SWAPDB 0 1
SWAPDB x y
REPLICAOF NO ONE
REPLICAOF 127.0.0.1 1
SLAVEOF NO ONE
FAILOVER
FAILOVER ABORT
FAILOVER TO a b
FAILOVER x
SORT {a}x BY w_*
SORT {a}x GET #
SORT {a}x BY nosort GET w_*
SORT_RO {a}x BY w_*
SORT_RO {a}x GET w_*
SORT {a}x LIMIT x 1 GET #
MULTI
SWAPDB 0 1
SORT {a}x GET #
EXEC
";

#[test]
fn what_clusters_refuse_is_refused_at_every_port() {
    for protocol in PROTOCOLS {
        let mut pair = Pair::new(Port::Direct, protocol);
        let entry = Node::start(Options::default());
        let mut entry = entry.client();
        entry.say(&format!("HELLO {protocol}"));
        for line in REFUSED.lines().filter(|line| !line.is_empty()) {
            let reply = pair.same_line(line);
            assert_eq!(entry.say(line), reply, "{line}");
        }
    }
}

#[test]
fn there_is_no_debugger() {
    let node = Node::start(Options::default());
    for mode in ["YES", "sync"] {
        let reply = node.client().say(&format!("SCRIPT DEBUG {mode}"));
        assert_eq!(reply.error(), Some("ERR there is no debugger for scripts"));
    }
}

#[test]
fn commands_about_the_server_are_answered_as_redis_answers() {
    for port in PORTS {
        for protocol in PROTOCOLS {
            let mut pair = Pair::new(port, protocol);
            for line in SCRIPT.lines().filter(|line| !line.is_empty()) {
                let words: Vec<&str> = line.split(' ').collect();
                let (ours, theirs) = pair.ask(&words);
                assert_eq!(ours, theirs, "{port:?} port, RESP{protocol}, {line}");
            }
        }
    }
}

#[test]
fn what_is_newer_is_answered_as_valkey_answers() {
    let valkey = Oracle::valkey();
    let node = Node::start(Options::default());
    for (mut ours, mut theirs) in [
        (node.client(), valkey.client()),
        (node.direct_client(0), valkey.client()),
    ] {
        for line in [
            "CLIENT NO-TOUCH ON",
            "CLIENT NO-TOUCH foo",
            "CLIENT KILL MAXAGE 1000000",
            "CLIENT KILL MAXAGE x",
            "CLIENT KILL MAXAGE 0",
            "CLIENT KILL ID 99998 99999",
            "WAITAOF 2 0 0",
            "WAITAOF -1 0 0",
            "WAITAOF x 0 0",
            "WAITAOF 0 -1 0",
            "WAITAOF 0 0 x",
            "WAITAOF 0 0 -1",
            "WAITAOF 0 0",
        ] {
            assert_eq!(ours.say(line), theirs.say(line), "{line}");
        }
    }
}

#[test]
fn time_is_that_of_the_node() {
    let node = Node::start(Options::default());
    let mut client = node.client();
    let time = client.say("TIME").items();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.expect("after 1970").as_secs();
    let seconds: u64 = time[0].text().parse().expect("seconds");
    assert!(seconds.abs_diff(now) <= 2, "{seconds} at {now}");
    assert!(time[1].text().parse::<u32>().expect("microseconds") < 1_000_000);
    assert!(
        client
            .say("LOLWUT")
            .text()
            .ends_with("Ephesus ver. 0.1.0\n")
    );
}

/// Connections of the entry port, of several shards; which ones is the kernel's choice.
fn named(node: &Node, count: usize) -> Vec<Client> {
    let make = |n: usize| {
        let mut client = node.client();
        assert_eq!(client.say(&format!("CLIENT SETNAME c{n}")), Reply::ok());
        client
    };
    (0..count).map(make).collect()
}

fn is_closed(client: &mut Client) -> bool {
    client.drain(Duration::from_secs(5)).1
}

#[test]
fn client_kill_reaches_connections_of_all_shards() {
    let node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    let mut clients = named(&node, 12);
    let mut admin = node.client();
    let mut direct = node.direct_client(1);
    let ids: Vec<i64> = clients
        .iter_mut()
        .map(|c| c.say("CLIENT ID").integer())
        .collect();
    for (client, id) in clients.iter_mut().zip(&ids).take(4) {
        assert_eq!(admin.say(&format!("CLIENT KILL ID {id}")).integer(), 1);
        assert!(is_closed(client));
    }
    let address = clients[4].stream().local_addr().expect("bound").to_string();
    assert_eq!(admin.say(&format!("CLIENT KILL {address}")), Reply::ok());
    assert!(is_closed(&mut clients[4]));
    assert!(
        admin
            .say(&format!("CLIENT KILL {address}"))
            .error()
            .is_some()
    );
    let some = format!("CLIENT KILL ID {} {} {}", ids[5], ids[6], ids[0]);
    assert_eq!(admin.say(&some).integer(), 2);
    // The rest, and the one of the direct port; not the one that asks.
    let killed = admin.say("CLIENT KILL TYPE normal").integer();
    assert_eq!(killed, 6);
    assert!(clients[5..].iter_mut().all(is_closed) && is_closed(&mut direct));
    assert_eq!(admin.say("PING"), Reply::Simple("PONG".to_owned()));
    let own = admin.say("CLIENT ID").integer();
    assert_eq!(admin.say(&format!("CLIENT KILL ID {own}")).integer(), 0);
    let killed = admin.say(&format!("CLIENT KILL ID {own} SKIPME no"));
    assert_eq!(killed.integer(), 1, "it is answered, and closed");
    assert!(is_closed(&mut admin));
    let mut direct = node.direct_client(0);
    let address = direct.stream().local_addr().expect("bound").to_string();
    assert_eq!(direct.say(&format!("CLIENT KILL {address}")), Reply::ok());
    assert!(is_closed(&mut direct));
}

#[test]
fn replies_are_left_out_as_client_reply_says() {
    let node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    for mut client in [node.client(), node.direct_client(0)] {
        let keys: Vec<String> = (0..40).map(|n| format!("{{k{n}}}")).collect();
        let mut bytes = Vec::new();
        let mut add = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            ephesus_tests::resp::encode(&words, &mut bytes);
        };
        add("CLIENT REPLY SKIP");
        add("SET a 1");
        add("ECHO one");
        add("CLIENT REPLY OFF");
        for key in &keys {
            add(&format!("SET {key} x"));
            add(&format!("GET {key}"));
        }
        add("NOSUCH");
        add("DBSIZE");
        add("CLIENT REPLY SKIP");
        add("CLIENT REPLY ON");
        add("ECHO two");
        add("CLIENT REPLY SKIP");
        add("CLIENT REPLY SKIP");
        add("MGET {a}1 {b}2");
        add("ECHO three");
        client.send_raw(&bytes).expect("sent");
        for expected in ["one", "OK", "two", "three"] {
            assert_eq!(client.receive().expect("a reply").text(), expected);
        }
    }
    assert!(node.client().say("DBSIZE").integer() >= 40);
}

#[test]
fn paused_clients_go_on_later() {
    let node = Node::start(Options {
        shards: 3,
        ..Options::default()
    });
    let mut admin = node.client();
    let mut clients = named(&node, 6);
    clients.push(node.direct_client(0));
    admin.say("SET {b}a 1");
    assert_eq!(admin.say("CLIENT PAUSE 20000 WRITE"), Reply::ok());
    for client in &mut clients {
        assert!(client.say("PING").error().is_none(), "reads go on");
        client.send(&["INCR", "{b}a"]).expect("sent");
    }
    assert_eq!(admin.say("GET {b}a"), Reply::bulk("1"));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(admin.say("GET {b}a"), Reply::bulk("1"));
    assert_eq!(admin.say("CLIENT UNPAUSE"), Reply::ok());
    for client in &mut clients {
        client.receive().expect("it goes on");
    }
    let begun = Instant::now();
    assert_eq!(admin.say("CLIENT PAUSE 500 ALL"), Reply::ok());
    assert!(clients[0].say("PING").error().is_none());
    assert!(
        begun.elapsed() >= Duration::from_millis(450),
        "{:?}",
        begun.elapsed()
    );
    let begun = Instant::now();
    assert!(clients[1].say("PING").error().is_none());
    assert!(
        begun.elapsed() < Duration::from_millis(400),
        "it is over for all"
    );
}

#[test]
fn saves_write_images_of_everything() {
    let node = Node::start(Options::default());
    let mut client = node.client();
    for n in 0..200 {
        client.say(&format!("SET key:{n} x"));
    }
    let before = client.say("LASTSAVE").integer();
    let written = client.info("images_written");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(client.say("SAVE"), Reply::ok());
    assert!(client.say("LASTSAVE").integer() > before);
    let until = Instant::now() + Duration::from_secs(5);
    while client.info("images_written") == written {
        assert!(Instant::now() < until, "SAVE has written no image");
    }
    client.say("SET key:0 y");
    let started = Reply::Simple("Background saving started".to_owned());
    assert_eq!(client.say("BGSAVE"), started);
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let reply = client.say("BGREWRITEAOF");
        let text = "Background append only file rewriting started";
        if reply == Reply::Simple(text.to_owned()) {
            break;
        }
        assert!(Instant::now() < until, "{reply:?}");
    }
}

#[test]
fn waitaof_waits_for_the_device() {
    for durability in ["strict", "relaxed"] {
        let node = Node::start(Options {
            durability: Some(durability),
            ..Options::default()
        });
        for mut client in [node.client(), node.direct_client(0)] {
            let acknowledged = Reply::Array(vec![Reply::Integer(1), Reply::Integer(0)]);
            for n in 0..20 {
                client.say(&format!("SET {n} x"));
            }
            assert_eq!(client.say("WAITAOF 1 0 0"), acknowledged, "{durability}");
            assert_eq!(client.say("WAITAOF 0 0 0"), acknowledged, "{durability}");
            assert_eq!(client.say("WAITAOF 1 5 5000"), acknowledged, "{durability}");
        }
    }
}

#[test]
fn shutdown_ends_the_node_with_all_data() {
    let mut node = Node::start(Options::default());
    let mut client = node.client();
    assert_eq!(client.say("SET a 1"), Reply::ok());
    client.send(&["SHUTDOWN", "NOSAVE"]).expect("sent");
    assert!(is_closed(&mut client));
    let status = node.wait_exit(Duration::from_secs(20));
    assert_eq!(status.code(), Some(0));
    node.restart();
    assert_eq!(node.client().say("GET a"), Reply::bulk("1"));
}
