//! Caches of clients: who is told of which changes, as Redis 7.0 does it, and what client libraries make of it.

use std::thread;
use std::time::{Duration, Instant};

use ephesus_tests::oracle::Oracle;
use ephesus_tests::resp::encode;
use ephesus_tests::slots::slot;
use ephesus_tests::{Client, Node, Options, Reply, TestCluster};

use super::{PORTS, PROTOCOLS, Port};

/// Who sends the commands of each line: `a` is told of changes, `d` may be told for it, `w` writes. `ID` is that of `d`.
const SCRIPT: &str = "
a CLIENT TRACKING
a CLIENT TRACKING foo
a CLIENT TRACKING on foo
a CLIENT TRACKING on REDIRECT
a CLIENT TRACKING on PREFIX a
a CLIENT TRACKING off PREFIX a
a CLIENT TRACKING on REDIRECT abc
a CLIENT TRACKING on REDIRECT -1
a CLIENT TRACKING on REDIRECT 0
a CLIENT TRACKING on REDIRECT 99999
a CLIENT TRACKING on OPTIN OPTOUT
a CLIENT TRACKING on BCAST OPTIN
a CLIENT CACHING
a CLIENT CACHING YES
a CLIENT TRACKINGINFO
a CLIENT GETREDIR
a CLIENT TRACKING ON
a CLIENT TRACKINGINFO
a CLIENT GETREDIR
a CLIENT CACHING maybe
a GET {x}k
w SET {x}k 1
w SET {x}k 2
a GET {x}k
a SET {x}k 3
a MGET {x}k {x}l {x}m
w MSET {x}k 1 {x}m 2
w DEL {x}l
w SETNX {x}l 1
a EXISTS {x}k {x}none
w EXPIRE {x}k 100
w DEL {x}none
a TTL {x}k
w PERSIST {x}k
w PERSIST {x}k
a GETRANGE {x}k a b
w APPEND {x}k x
a STRLEN {x}k
w RENAME {x}k {x}l
a MGET {x}k {x}l
w COPY {x}l {x}k
w GETEX {x}l EX 100
w GETDEL {x}l
a GETEX {x}k
w SET {x}k 1
a MULTI ; GET {x}k ; SET {x}k 2 ; GET {x}k ; EXEC
w INCR {x}k
a MULTI ; GET {x}k ; DISCARD
w INCR {x}k
a EVAL return(redis.call('get',KEYS[1])) 2 {x}k {x}l
w SET {x}l 1
w SET {x}k 1
a EVAL return(1) 1 {x}k
w SET {x}k 1
a GET {x}k
w EVAL return(redis.call('set',KEYS[1],'v')) 1 {x}k
a GET {x}k
w MULTI ; SET {x}k 5 ; SET {x}k 6 ; EXEC
a GET {x}k
w MULTI ; SET {x}k 5 ; DISCARD
w DEL {x}k
a GET {x}k
w FLUSHDB
w SET {x}k 1
a FLUSHALL
a CLIENT TRACKING ON NOLOOP
a GET {x}k
a SET {x}k 1
w SET {x}k 2
a GET {x}k
w SET {x}k 2
a CLIENT TRACKING OFF
a GET {x}k
w SET {x}k 3
a CLIENT TRACKING ON OPTIN
a GET {x}k
w SET {x}k 3
a CLIENT CACHING YES ; CLIENT TRACKINGINFO ; GET {x}k ; GET {x}l ; CLIENT TRACKINGINFO
w MSET {x}k 1 {x}l 1
a CLIENT CACHING YES ; MULTI ; PTTL {x}k ; GET {x}k ; EXEC
a GET {x}l
w MSET {x}k 1 {x}l 1
a CLIENT CACHING NO
a CLIENT TRACKING ON OPTOUT
a CLIENT TRACKING ON
a CLIENT TRACKING ON OPTOUT
a CLIENT CACHING NO ; GET {x}k ; GET {x}l
w MSET {x}k 1 {x}l 1
a CLIENT TRACKING ON BCAST
a CLIENT TRACKING OFF
a CLIENT TRACKING ON BCAST PREFIX {x}a PREFIX {x}b
a CLIENT TRACKING ON BCAST PREFIX {x}ab
a CLIENT TRACKINGINFO
w MSET {x}ab 1 {x}aa 2 {x}b 3 {x}c 4 {x}aa 3
a SET {x}a 1
a MULTI ; SET {x}a1 1 ; SET {x}a2 1 ; EXEC
w DEL {x}nosuch
w DEL {x}a
w FLUSHALL
a CLIENT TRACKING ON BCAST NOLOOP
a SET {x}a 1
w SET {x}a 1
a CLIENT TRACKING OFF
a CLIENT TRACKING ON REDIRECT ID
a CLIENT GETREDIR
a CLIENT TRACKINGINFO
a GET {x}k
w SET {x}k 1
d SUBSCRIBE foo
a GET {x}k
w SET {x}k 1
w FLUSHALL
d UNSUBSCRIBE foo
a CLIENT TRACKING OFF
a CLIENT TRACKING ON
a GET {x}k
a RESET
w SET {x}k 1
a CLIENT TRACKINGINFO
";

fn is_told(reply: &Reply) -> bool {
    let text = format!("{reply:?}");
    // The array of a message, or a push.
    matches!(reply, Reply::Push(_) | Reply::Array(_))
        && (text.contains(&format!("{:?}", Reply::bulk("invalidate")))
            || text.contains(&format!("{:?}", Reply::bulk("__redis__:invalidate"))))
}

/// What a client gets until all before was answered, and told: replies, and what it is told besides. Redis tells at the
/// end of the turn in which it has answered, so what is asked in another turn is answered behind that.
fn taken(client: &mut Client) -> (Vec<Reply>, Vec<Reply>) {
    let mut bytes = Vec::new();
    encode(&["PING", "that-is-all"], &mut bytes);
    let end = format!("{:?}", Reply::bulk("that-is-all"));
    let (mut replies, mut told) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        client.send_raw(&bytes).expect("sent");
        loop {
            let reply = client.receive().expect("a reply");
            match format!("{reply:?}").contains(&end) {
                true => break,
                false if is_told(&reply) => told.push(reply),
                false => replies.push(reply),
            }
        }
    }
    (replies, told)
}

struct Side {
    a: Client,
    d: Client,
    w: Client,
    id: String,
}

impl Side {
    fn new(mut connect: impl FnMut() -> Client, protocol: u8) -> Side {
        // Nothing that is answered is as large as the client's number.
        let mut a = connect();
        while a.say("CLIENT ID").integer() < 50 {
            a = connect();
        }
        let [mut d, w] = [(); 2].map(|()| connect());
        if protocol == 3 {
            a.say("HELLO 3");
            d.say("HELLO 3");
        }
        let id = d.say("CLIENT ID").integer().to_string();
        Side { a, d, w, id }
    }

    /// Sends the commands of a line; answers what `w` gets.
    fn send(&mut self, line: &str) -> Vec<Reply> {
        let (who, commands) = line.split_once(' ').expect("somebody");
        let mut replies = Vec::new();
        for command in commands.split(" ; ") {
            let words = command.split(' ');
            let words = words.map(|word| if word == "ID" { &*self.id } else { word });
            let words: Vec<String> = words.map(str::to_owned).collect();
            match who {
                "a" => self.a.send(&words).expect("sent"),
                "d" => self.d.send(&words).expect("sent"),
                _ => replies.push(self.w.call(&words)),
            }
        }
        replies
    }

    /// What `a` and `d` have got; what they are told sorted, as shards tell of theirs in no order.
    fn taken(&mut self) -> [(Vec<Reply>, Vec<String>); 2] {
        [&mut self.a, &mut self.d].map(|client| {
            let (replies, told) = taken(client);
            let mut told: Vec<String> = told.iter().map(|reply| format!("{reply:?}")).collect();
            told.sort();
            (replies, told)
        })
    }
}

/// What differs by the client's own number.
fn without_id(side: &Side, text: String) -> String {
    let ends = [",", "]", ")", "}"];
    ends.into_iter().fold(text, |text, end| {
        text.replace(&format!(":{}{end}", side.id), &format!(":ID{end}"))
    })
}

#[test]
fn clients_are_told_what_redis_tells_them() {
    for (port, protocol) in PORTS
        .into_iter()
        .flat_map(|port| PROTOCOLS.map(|protocol| (port, protocol)))
    {
        let (oracle, shards) = match port {
            Port::Entry => (Oracle::standalone(), 3),
            Port::Direct => (Oracle::cluster(), 1),
        };
        let node = node(shards);
        let connect = || match port {
            Port::Entry => node.client(),
            Port::Direct => node.direct_client(0),
        };
        let mut ours = Side::new(connect, protocol);
        let mut theirs = Side::new(|| oracle.client(), protocol);
        for line in SCRIPT.lines().filter(|line| !line.is_empty()) {
            let what = format!("{port:?} port, RESP{protocol}: {line}");
            let (sent, expected) = (ours.send(line), theirs.send(line));
            assert_eq!(sent, expected, "{what}");
            let expected = theirs.taken();
            let expected = without_id(&theirs, format!("{expected:?}"));
            // With prefixes each shard tells of its part of a flush.
            let nulls = if expected.contains("null") { 1 } else { 0 };
            let keep = |told: &mut Vec<String>| {
                let mut seen = 0;
                told.retain(|text| {
                    seen += usize::from(text.contains("null"));
                    !text.contains("null") || seen <= nulls
                });
            };
            let mut all = ours.taken();
            all.iter_mut().for_each(|(_, told)| keep(told));
            let until = Instant::now() + Duration::from_secs(5);
            loop {
                let got = without_id(&ours, format!("{all:?}"));
                if got == expected {
                    break;
                }
                assert!(Instant::now() < until, "{what}: {got}, Redis: {expected}");
                thread::sleep(Duration::from_millis(2));
                for (all, more) in all.iter_mut().zip(ours.taken()) {
                    all.0.extend(more.0);
                    all.1.extend(more.1);
                    all.1.sort();
                    keep(&mut all.1);
                }
            }
            if line == "a RESET" && protocol == 3 {
                ours.a.say("HELLO 3");
                theirs.a.say("HELLO 3");
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

/// Waits for the next push.
fn next_told(client: &mut Client) -> Vec<Reply> {
    let reply = client.receive().expect("a push");
    assert!(is_told(&reply), "{reply:?}");
    reply.items()
}

#[test]
fn what_rueidis_sends_is_cached_until_it_changes() {
    for shards in [1, 3] {
        let node = node(shards);
        let (mut client, mut writer) = (node.client(), node.client());
        client.say("HELLO 3");
        assert_eq!(client.say("CLIENT TRACKING ON OPTIN"), Reply::ok());
        for n in 0..20 {
            let key = format!("key:{n}");
            writer.call(&["SET", &key, "before", "PX", "60000"]);
            let mut bytes = Vec::new();
            encode(&["CLIENT", "CACHING", "YES"], &mut bytes);
            encode(&["MULTI"], &mut bytes);
            encode(&["PTTL", &key], &mut bytes);
            encode(&["GET", &key], &mut bytes);
            encode(&["EXEC"], &mut bytes);
            client.send_raw(&bytes).expect("sent");
            let replies = [(); 5].map(|()| client.receive().expect("a reply"));
            let values = replies[4].items();
            assert!(values[0].integer() > 50_000, "{replies:?}");
            assert_eq!(values[1], Reply::bulk("before"));
            writer.call(&["SET", &key, "after"]);
            let told = next_told(&mut client);
            assert_eq!(told[1].items(), [Reply::bulk(&key)]);
        }
    }
}

#[test]
fn tables_are_counted_and_go_with_their_clients() {
    let node = node(2);
    let mut asking = node.client();
    let until = |asking: &mut Client, name: &str, expected: u64| {
        let until = Instant::now() + Duration::from_secs(10);
        while asking.info(name) != expected {
            assert!(Instant::now() < until, "{name}: {}", asking.info(name));
            thread::sleep(Duration::from_millis(10));
        }
    };
    let mut clients: Vec<Client> = (0..4).map(|_| node.client()).collect();
    for client in &mut clients {
        client.say("HELLO 3");
        assert_eq!(client.say("CLIENT TRACKING ON"), Reply::ok());
        for n in 0..100 {
            client.call(&["GET", &format!("key:{n}")]);
        }
    }
    let mut broad = node.client();
    broad.say("CLIENT TRACKING ON BCAST PREFIX a PREFIX b");
    until(&mut asking, "tracking_clients", 5);
    until(&mut asking, "tracking_total_keys", 100);
    until(&mut asking, "tracking_total_items", 400);
    until(&mut asking, "tracking_total_prefixes", 2);
    let id = broad.say("CLIENT ID").integer().to_string();
    let listed = asking.say(&format!("CLIENT LIST ID {id}")).text();
    assert!(
        listed.contains(" flags=tB ") && listed.contains(" redir=0 "),
        "{listed}"
    );
    assert_eq!(asking.say(&format!("CLIENT KILL ID {id}")).integer(), 1);
    until(&mut asking, "tracking_total_prefixes", 0);
    clients.truncate(1);
    until(&mut asking, "tracking_clients", 1);
    until(&mut asking, "tracking_total_items", 100);
    clients.clear();
    until(&mut asking, "tracking_clients", 0);
    until(&mut asking, "tracking_total_items", 0);
    until(&mut asking, "tracking_total_keys", 0);
}

#[test]
fn what_expires_is_told_of() {
    let node = node(2);
    let (mut client, mut writer) = (node.client(), node.client());
    client.say("HELLO 3");
    client.say("CLIENT TRACKING ON");
    for n in 0..10 {
        let key = format!("key:{n}");
        writer.call(&["SET", &key, "v", "PX", "30"]);
        if client.call(&["GET", &key]) != Reply::bulk("v") {
            continue;
        }
        let told = next_told(&mut client);
        assert_eq!(told[1].items(), [Reply::bulk(&key)]);
        assert_eq!(writer.call(&["EXISTS", &key]).integer(), 0);
    }
}

#[test]
fn keys_of_a_partition_that_moves_are_told_of() {
    let flags = ["--partitions", "5"];
    let mut whole = TestCluster::started(&flags, &["athens", "byzantium"], 1);
    let row = whole.table().into_iter().next().expect("a partition");
    let (first, last) = row.slots;
    let names = (0..).map(|n: u64| format!("key:{n}"));
    let mut here = names.filter(|key| (first..=last).contains(&slot(key.as_bytes())));
    let key = here.next().expect("there is no last one");
    let mut client = whole.node(&row.node).client();
    client.say("HELLO 3");
    assert_eq!(client.say("CLIENT TRACKING ON"), Reply::ok());
    assert_eq!(client.call(&["SET", &key, "1"]), Reply::ok());
    assert_eq!(client.call(&["GET", &key]), Reply::bulk("1"));
    let other = match &*row.node {
        "athens" => "byzantium",
        _ => "athens",
    };
    let number = row.partition.to_string();
    let told = whole
        .core
        .ask(&["move", "--partition", &number, "--to", other, "--wait"]);
    assert_eq!(told.code, Some(0), "{}", told.err);
    let told = next_told(&mut client);
    assert_eq!(told[1].items(), [Reply::bulk(&key)]);
}
