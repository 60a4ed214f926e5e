use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{Bed, key};

#[test]
fn what_is_executed_when_the_lease_has_run_out_is_not_answered() {
    let mut bed = Bed::new(2, &[]);
    let clients = [(0, Direct), (0, Entry)].map(|(shard, kind)| bed.connect(shard, kind));
    let idle = bed.connect(0, Entry);
    let key = key(0, 0);
    for client in clients {
        bed.stand_still_in_turn();
        let sent = ["PING", &format!("SET {key} 1"), &format!("GET {key}")];
        assert_eq!(bed.ask(client, &sent), "");
        assert!(!bed.is_open(client));
        bed.renew_lease();
    }
    assert!(bed.is_open(idle), "it was told nothing before");
    let get = format!("GET {key}");
    assert_eq!(bed.ask(idle, &[&get]), "$1\r\n1\r\n", "it was executed");
}

#[test]
fn what_was_executed_before_is_answered_once_the_log_has_it() {
    let mut bed = Bed::new(1, &[]);
    let client = bed.connect(0, Direct);
    bed.hold_log();
    assert_eq!(bed.ask(client, &[&format!("SET {} 1", key(0, 0))]), "");
    bed.end_lease();
    bed.release_log();
    assert_eq!(bed.take(client), "+OK\r\n");
    let down = "-CLUSTERDOWN The cluster is down\r\n";
    for command in ["DBSIZE", "KEYS *", "FLUSHALL"] {
        assert_eq!(bed.ask(client, &[command]), down);
    }
}

#[test]
fn neither_is_what_a_shard_executes_for_another_one() {
    for command in ["SET", "MSET", "DBSIZE", "FLUSHALL"] {
        let mut bed = Bed::new(2, &[]);
        let client = bed.connect(1, Entry);
        let (there, here) = (key(0, 0), key(1, 0));
        let command = match command {
            "SET" => format!("SET {there} 1"),
            "MSET" => format!("MSET {there} 1 {here} 2"),
            other => other.to_owned(),
        };
        bed.send(client, &[&command, "PING"]);
        bed.stand_still_in_turn();
        bed.turn(0, usize::MAX);
        bed.renew_lease();
        bed.settle();
        assert_eq!(bed.take(client), "", "{command}");
        assert!(!bed.is_open(client), "{command}");
        assert_eq!(bed.core(1).unanswered(), 0);
    }
}

#[test]
fn keyless_commands_of_other_shards_need_the_lease_too() {
    for command in ["DBSIZE", "FLUSHALL", "KEYS *", "SCAN 0", "RANDOMKEY"] {
        let mut bed = Bed::new(2, &[]);
        let client = bed.connect(1, Entry);
        let set = format!("SET {} 1", key(0, 0));
        assert_eq!(bed.ask(client, &[&set]), "+OK\r\n");
        bed.send(client, &[command]);
        bed.end_lease();
        bed.settle();
        let reply = bed.take(client);
        assert!(reply.starts_with("-CLUSTERDOWN"), "{command}: {reply}");
        bed.renew_lease();
        assert_eq!(bed.ask(client, &["DBSIZE"]), ":1\r\n");
    }
}
