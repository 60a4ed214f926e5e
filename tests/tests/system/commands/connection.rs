//! HELLO, CLIENT, COMMAND, CONFIG and INFO: what clients look at before they do anything.

use std::collections::BTreeSet;

use super::{PROTOCOLS, Pair, Port};
use ephesus_tests::oracle::Oracle;
use ephesus_tests::{Client, Node, Options, Reply, paths};

/// Commands whose key positions clients take from `COMMAND`.
const COMMANDS: &str = "get set setnx setex psetex getset getdel getex mget mset msetnx del unlink exists touch strlen \
    append getrange substr setrange setbit getbit bitcount bitpos incr decr incrby decrby incrbyfloat renamenx copy expire pexpire \
    expireat pexpireat expiretime pexpiretime ttl pttl persist type rename scan keys dbsize randomkey \
    flushall flushdb ping echo hello select quit reset multi exec discard watch unwatch client command config info readonly readwrite \
    asking cluster bitop bitfield bitfield_ro lcs dump restore object memory time role wait lastsave save bgsave \
    bgrewriteaof shutdown lolwut subscribe unsubscribe psubscribe punsubscribe ssubscribe sunsubscribe publish spublish pubsub monitor";

#[test]
fn command_names_arity_and_keys_as_redis_does() {
    for protocol in PROTOCOLS {
        let mut pair = Pair::new(Port::Direct, protocol);
        for name in COMMANDS.split_whitespace() {
            let (ours, theirs) = pair.ask(&["COMMAND", "INFO", name]);
            let (ours, theirs) = (ours.items()[0].clone(), theirs.items()[0].clone());
            assert!(!ours.is_nil(), "COMMAND INFO {name} knows nothing");
            let (ours, theirs) = (ours.items(), theirs.items());
            for (index, what) in [
                (0, "name"),
                (1, "arity"),
                (3, "first"),
                (4, "last"),
                (5, "step"),
            ] {
                assert_eq!(ours[index], theirs[index], "COMMAND INFO {name}: {what}");
            }
            let flags: Vec<String> = ours[2].items().iter().map(Reply::text).collect();
            let their_flags: Vec<String> = theirs[2].items().iter().map(Reply::text).collect();
            for flag in ["write", "readonly", "denyoom"] {
                assert_eq!(
                    flags.iter().any(|ours| ours == flag),
                    their_flags.iter().any(|theirs| theirs == flag),
                    "COMMAND INFO {name}: the flag {flag}"
                );
            }
        }
        let count = pair.ours.say("COMMAND COUNT").integer();
        assert_eq!(pair.ours.say("COMMAND").items().len() as i64, count);
        assert_eq!(pair.ours.say("COMMAND INFO").items().len() as i64, count);
        assert!(pair.ours.say("COMMAND LIST").items().len() as i64 >= count);
        assert!(!pair.ours.say("COMMAND DOCS get").items().is_empty());
        assert!(pair.ours.say("COMMAND DOCS").items().len() as i64 >= count);
    }
}

#[test]
fn hello_switches_the_protocol_and_says_what_clients_look_for() {
    let node = Node::start(Options::default());
    let mut client = node.client();
    let two = client.say("HELLO");
    assert!(
        matches!(two, Reply::Array(_)),
        "HELLO under RESP2 answered {two:?}"
    );
    assert_eq!(two.field("proto"), Some(Reply::Integer(2)));
    assert_eq!(client.say("GET absent"), Reply::NullBulk);
    let three = client.say("HELLO 3 SETNAME tester");
    assert!(matches!(three, Reply::Map(_)), "HELLO 3 answered {three:?}");
    assert_eq!(three.field("server"), Some(Reply::bulk("redis")));
    assert_eq!(three.field("proto"), Some(Reply::Integer(3)));
    assert_eq!(three.field("mode"), Some(Reply::bulk("cluster")));
    assert_eq!(three.field("role"), Some(Reply::bulk("master")));
    assert!(matches!(three.field("id"), Some(Reply::Integer(_))));
    assert!(three.field("version").is_some());
    assert_eq!(
        three.field("modules").map(|modules| modules.items()),
        Some(vec![])
    );
    assert_eq!(client.say("CLIENT GETNAME"), Reply::bulk("tester"));
    assert_eq!(client.say("GET absent"), Reply::Null);
    assert_eq!(client.say("RESET"), Reply::Simple("RESET".to_owned()));
    assert_eq!(
        client.say("GET absent"),
        Reply::NullBulk,
        "RESET returns to RESP2"
    );
    assert_eq!(client.say("CLIENT GETNAME"), Reply::NullBulk);
    assert_eq!(client.say("QUIT"), Reply::ok());
    assert!(client.receive().is_err(), "QUIT closes");
}

#[test]
fn client_list_and_info_name_the_connection() {
    let node = Node::start(Options::default());
    let mut first = node.client();
    let mut second = node.direct_client(1);
    first.say("CLIENT SETNAME first");
    second.say("CLIENT SETNAME second");
    let (one, two) = (
        first.say("CLIENT ID").integer(),
        second.say("CLIENT ID").integer(),
    );
    assert_ne!(one, two);
    let info = first.say("CLIENT INFO").text();
    for part in [
        format!("id={one} "),
        "addr=127.0.0.1:".into(),
        "name=first ".into(),
    ] {
        assert!(info.contains(&part), "CLIENT INFO lacks {part:?}: {info}");
    }
    let list = first.say("CLIENT LIST").text();
    assert!(
        list.contains("name=first ") && list.contains("name=second "),
        "CLIENT LIST: {list}"
    );
    let named = list.lines().filter(|line| !line.contains(" name= "));
    assert_eq!(named.count(), 2, "CLIENT LIST: {list}");
    assert!(
        first
            .call(&["CLIENT", "SETNAME", "two words"])
            .error()
            .is_some()
    );
}

#[test]
fn client_setinfo_does_what_valkey_does() {
    let valkey = Oracle::valkey();
    let node = Node::start(Options::default());
    let (mut ours, mut theirs) = (node.client(), valkey.client());
    for line in [
        "CLIENT SETINFO LIB-NAME redis-py",
        "CLIENT SETINFO lib-ver 8.1.0",
        "CLIENT SETINFO LIB-NAME",
        "CLIENT SETINFO NOSUCH x",
    ] {
        let (ours, theirs) = (ours.say(line), theirs.say(line));
        assert_eq!(ours, theirs, "{line}");
    }
}

#[test]
fn config_get_answers_what_tools_ask_for() {
    let node = Node::start(Options::default());
    for protocol in PROTOCOLS {
        let mut client = node.client();
        client.call(&["HELLO", &protocol.to_string()]);
        for name in [
            "save",
            "appendonly",
            "maxmemory",
            "timeout",
            "databases",
            "replica-read-only",
        ] {
            let reply = client.call(&["CONFIG", "GET", name]);
            assert_eq!(
                matches!(reply, Reply::Map(_)),
                protocol == 3,
                "CONFIG GET {name}: {reply:?}"
            );
            assert!(reply.field(name).is_some(), "CONFIG GET {name}: {reply:?}");
        }
        let both = client.say("CONFIG GET save append*");
        assert!(
            both.field("save").is_some() && both.field("appendonly").is_some(),
            "{both:?}"
        );
        assert!(client.say("CONFIG GET *").items().len() >= 12);
    }
}

/// Names of all lines but those of databases and of errors, which depend on what was done.
fn info_fields(client: &mut Client) -> BTreeSet<String> {
    let info = client.say("INFO everything").text();
    let names = info
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0));
    let varying = ["db0", "errorstat_", "cmdstat_", "latency_percentiles_"];
    let fixed = names.filter(|name| !varying.iter().any(|prefix| name.starts_with(prefix)));
    fixed.map(str::to_owned).collect()
}

#[test]
fn fields_that_only_this_server_has_are_documented() {
    let node = Node::start(Options::default());
    let (redis, valkey) = (Oracle::standalone(), Oracle::valkey());
    let known = [redis.client(), valkey.client()].map(|mut client| info_fields(&mut client));
    let pages = ["operations", "time"].map(|page| {
        let file = paths::workspace().join(format!("docs/{page}.md"));
        std::fs::read_to_string(file).expect("a page")
    });
    let pages = pages.concat();
    let own = info_fields(&mut node.client());
    let own = own
        .iter()
        .filter(|name| !known.iter().any(|known| known.contains(*name)));
    let missing: Vec<&String> = own
        .filter(|name| !pages.contains(&format!("`{name}`")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/operations.md does not explain {missing:?}"
    );
}

#[test]
fn info_has_the_lines_that_tools_read() {
    let node = Node::start(Options::default());
    let mut client = node.client();
    for i in 0..10 {
        client.call(&["SET", &format!("key:{i}"), "x"]);
    }
    let info = client.say("INFO").text();
    for line in [
        "redis_version:",
        "cluster_enabled:1",
        "loading:0",
        "role:master",
        "used_memory:",
    ] {
        assert!(
            info.split("\r\n").any(|found| found.starts_with(line)),
            "INFO lacks {line:?}:\n{info}"
        );
    }
    assert!(info.contains("db0:keys=10,"), "INFO keyspace:\n{info}");
    assert!(client.say("INFO server").text().contains("tcp_port:"));
    assert!(!client.say("INFO server").text().contains("db0:"));
}
