//! MULTI, EXEC, DISCARD, WATCH and UNWATCH: two clients in turn, against a Redis that is told the same.

use ephesus_tests::{Client, Reply};

use super::{PORTS, PROTOCOLS, Pair, Port};

/// Answered alike on both kinds of port. A `|` in front: the other client.
const SCRIPT: &str = "
EXEC
DISCARD
UNWATCH
MULTI
MULTI
SET a 1
EXEC
EXEC
MULTI
WATCH a
SET a 1
EXEC
MULTI
FOO x
SET a 2
EXEC
MULTI
GET
EXEC
GET a
MULTI
SET a b
INCR a
GET a
UNWATCH
PING
ECHO x
EXEC
MULTI
SET a 7
RESET
EXEC
GET a
MULTI x
EXEC x
DISCARD x
WATCH
UNWATCH a
MULTI
DISCARD x
SET a 1
EXEC
MULTI
EXEC x
SET a 1
EXEC
WATCH a
|SET a 2
MULTI
GET a
EXEC
MULTI
GET a
EXEC
WATCH a
SET a 3
MULTI
EXEC
WATCH a {a}b
|DEL {a}b
MULTI
EXEC
WATCH a
|SET a 4
UNWATCH
MULTI
EXEC
WATCH a
|SET a 5
MULTI
DISCARD
MULTI
EXEC
WATCH absent
|FLUSHALL
MULTI
EXEC
SET a 1
WATCH a
|FLUSHALL
MULTI
EXEC
WATCH a
|SET a 1
MULTI
GET
EXEC
MULTI
EXEC
WATCH a
|EXPIRE a 100
MULTI
EXEC
WATCH a
|SETNX a 100
|GETDEL absent
|COPY a {a}b
MULTI
EXEC
WATCH a
|RENAME a a
MULTI
EXEC
MULTI
DISCARD
DISCARD
MULTI
CLIENT SETNAME x
CLIENT GETNAME
SELECT 0
EXEC
MULTI
MSET a
EXEC
MULTI
MSET a 1 a
SET a 1 EX 0
SETEX a x 1
EXEC
MULTI
HELLO 9
EXEC
MULTI
HELLO 3
GET absent
HELLO 2
GET absent
EXEC
MULTI
QUIT
";

#[test]
fn fixed_transactions_are_answered_as_redis_answers() {
    for port in PORTS {
        let mut pair = Pair::new(port, 2);
        let mut others = (other_client(&pair, port), pair._oracle.client());
        for line in SCRIPT.lines().filter(|line| !line.is_empty()) {
            let Some(line) = line.strip_prefix('|') else {
                // The rest of HELLO's reply differs.
                if line == "EXEC" {
                    let words = ["EXEC"];
                    let (ours, theirs) = pair.ask(&words);
                    assert_eq!(without_hello(ours), without_hello(theirs), "{line}");
                } else {
                    pair.same_line(line);
                }
                continue;
            };
            // Keys of several slots are one shard's here, and one slot's nowhere.
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(others.0.call(&words), others.1.call(&words), "{line}");
        }
    }
}

/// What is selected behind MULTI is selected when it is executed, and keys behind it are of that database.
const DATABASES: &str = "
SET k 0
MULTI
SELECT 3
SET k 3
GET k
SELECT 99
GET k
SELECT 0
GET k
SELECT 4
EXEC
GET k
SELECT 3
GET k
WATCH k
SELECT 0
SET k 1
SELECT 3
MULTI
EXEC
WATCH k
SET k 4
MULTI
SELECT 0
DISCARD
GET k
FLUSHDB
SELECT 0
GET k
";

#[test]
fn databases_are_selected_within_transactions() {
    for protocol in PROTOCOLS {
        let mut pair = Pair::new(Port::Entry, protocol);
        for line in DATABASES.lines().filter(|line| !line.is_empty()) {
            pair.same_line(line);
        }
    }
}

/// A reply to EXEC in which replies to HELLO are nothing but that.
fn without_hello(reply: Reply) -> String {
    let Reply::Array(items) = &reply else {
        return format!("{reply:?}");
    };
    let is_hello = |item: &Reply| {
        matches!(item, Reply::Array(_) | Reply::Map(_)) && item.field("proto").is_some()
    };
    if items.iter().any(is_hello) {
        let kept = items.iter().map(|item| match is_hello(item) {
            true => format!("HELLO {:?}", item.field("proto")),
            false => format!("{item:?}"),
        });
        return kept.collect::<Vec<_>>().join(", ");
    }
    format!("{reply:?}")
}

fn other_client(pair: &Pair, port: Port) -> Client {
    match port {
        Port::Entry => pair._node.client(),
        Port::Direct => pair._node.direct_client(0),
    }
}
