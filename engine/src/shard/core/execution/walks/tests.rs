use super::*;
use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{self, Bed, key};

/// Two shards with four keys each, so long that a walk takes two slices, which come when a test says so.
fn standing() -> Bed {
    let mut bed = Bed::new(2, &[]);
    let client = bed.connect(0, Entry);
    for partition in 0..bed::PARTITIONS {
        let set = format!("SET {{{}}}{} v", key(partition, 0), "a".repeat(60_000));
        assert_eq!(bed.ask(client, &[&set]), "+OK\r\n");
    }
    bed.slices_max = 0;
    bed
}

/// How many walks of a shard go on, and how many wait.
fn walks(bed: &mut Bed, shard: u16) -> (usize, usize) {
    let walks = &bed.core(shard).execution.walks;
    (walks.running.len(), walks.waiting.len())
}

fn go_on(bed: &mut Bed) {
    bed.slices_max = usize::MAX;
    // What waits for a walk of its own shard goes on a turn later.
    for _ in 0..5 {
        bed.settle();
    }
}

#[test]
fn few_walks_of_a_shard_hold_what_they_have_found_and_the_others_wait() {
    let mut bed = standing();
    let clients: Vec<_> = (0..WALKS_MAX + 5).map(|_| bed.connect(1, Entry)).collect();
    for &client in &clients {
        bed.send(client, &["KEYS *", "PING"]);
    }
    bed.settle();
    for shard in [0, 1] {
        assert_eq!(walks(&mut bed, shard), (0, clients.len()));
        assert!(bed.core(shard).walk_slice());
        assert_eq!(walks(&mut bed, shard), (WALKS_MAX, 5));
    }
    go_on(&mut bed);
    for client in clients {
        let reply = bed.take(client);
        let (all, _) = reply.rsplit_once("+PONG").expect("answered in order");
        assert!(all.starts_with("*8\r\n"), "{all}");
    }
}

#[test]
fn one_connection_has_one_walk_wherever_it_is() {
    let mut bed = standing();
    let slot = ephesus_wire::slot_of(key(1, 0).as_bytes());
    let commands = [
        "KEYS *".to_owned(),
        format!("CLUSTER GETKEYSINSLOT {slot} 9"),
        format!("CLUSTER COUNTKEYSINSLOT {slot}"),
    ];
    for (shard, kind) in [(0, Entry), (1, Entry), (1, Direct)] {
        for command in &commands {
            let client = bed.connect(shard, kind);
            bed.send(client, &[command; 5].map(String::as_str));
            bed.settle();
            for shard in [0, 1] {
                let (running, waiting) = walks(&mut bed, shard);
                assert!(running + waiting <= 1, "{command}");
            }
            go_on(&mut bed);
            let replies = bed.take(client);
            let first = &replies[..replies.len() / 5];
            assert_eq!(replies, first.repeat(5));
            bed.slices_max = 0;
        }
    }
}

#[test]
fn walks_stop_when_their_client_is_gone() {
    let mut bed = standing();
    let clients = [(0, Entry), (1, Entry), (0, Direct)];
    let clients = clients.map(|(shard, kind)| bed.connect(shard, kind));
    for client in clients {
        bed.send(client, &["KEYS *"]);
    }
    bed.settle();
    // One of shard 0 goes on, all others wait.
    assert_eq!((walks(&mut bed, 0), walks(&mut bed, 1)), ((0, 3), (0, 2)));
    for client in clients {
        bed.kill(client);
    }
    bed.settle();
    assert_eq!((walks(&mut bed, 0), walks(&mut bed, 1)), ((0, 0), (0, 0)));
    assert_eq!(bed.core(0).unanswered() + bed.core(1).unanswered(), 0);

    let client = bed.connect(0, Entry);
    bed.send(client, &["KEYS *"]);
    bed.slices_max = 1;
    bed.turn(1, usize::MAX);
    assert_eq!(walks(&mut bed, 1).0, 1, "under way");
    bed.kill(client);
    bed.settle();
    assert_eq!((walks(&mut bed, 0), walks(&mut bed, 1)), ((0, 0), (0, 0)));
}

/// It may only have closed its own direction. But most that have ended have left.
#[test]
fn a_client_that_has_ended_is_walked_for_while_nobody_waits() {
    for others in [0, WALKS_MAX] {
        let mut bed = standing();
        let ended = bed.connect(0, Entry);
        bed.send(ended, &["KEYS *"]);
        bed.end_input(ended);
        let waiting: Vec<_> = (0..others).map(|_| bed.connect(1, Entry)).collect();
        for &client in &waiting {
            bed.send(client, &["KEYS *"]);
        }
        bed.settle();
        go_on(&mut bed);
        let reply = bed.take(ended);
        let error = ClientError::ClientHasLeft.to_string();
        assert!(
            reply.contains(if others > 0 { &error } else { "*8\r\n" }),
            "{reply}"
        );
        for client in waiting {
            assert!(bed.take(client).starts_with("*8\r\n"));
        }
    }
}

#[test]
fn a_walk_that_finds_too_much_is_an_error_and_holds_nothing() {
    let mut bed = standing();
    let keyspace = &mut bed.core(0).keyspace;
    let filter = WalkFilter::Matching(b"*".to_vec());
    let mut walk = keyspace.walk(Database::ZERO, &filter, 16);
    while keyspace.walk_slice(&mut walk).is_none() {}
    assert_eq!(walk.bytes(), 0);
    assert_eq!(walk.finish(), Err(ClientError::ReplyTooLarge(16)));
    let mut walk = keyspace.walk(Database::ZERO, &filter, 1 << 20);
    while keyspace.walk_slice(&mut walk).is_none() {}
    assert!(
        walk.finish()
            .is_ok_and(|reply| reply.starts_with(b"*4\r\n"))
    );
}

/// A slice counts what it takes to match keys, not only how many there are.
#[test]
fn long_keys_and_patterns_make_slices_and_scans_of_few_keys() {
    let mut bed = Bed::new(1, &[]);
    let client = bed.connect(0, Direct);
    let long = "a".repeat(60_000);
    let keys = 64;
    for n in 0..keys {
        let set = format!(
            "*3\r\n$3\r\nSET\r\n${}\r\n{long}{n:02}\r\n$1\r\nv",
            long.len() + 2
        );
        assert_eq!(bed.ask(client, &[&set]), "+OK\r\n");
    }
    let keyspace = &mut bed.core(0).keyspace;
    let pattern = format!("*{}b", "a".repeat(1_000));
    let mut slices = |pattern: &str| {
        let filter = WalkFilter::Matching(pattern.into());
        let mut walk = keyspace.walk(Database::ZERO, &filter, usize::MAX);
        (1..)
            .find(|_| keyspace.walk_slice(&mut walk).is_some())
            .expect("it ends")
    };
    assert!(slices(&pattern) > 8, "{}", slices(&pattern));
    assert!(slices(&pattern) > slices("*"));
    let scan = bed.ask(client, &[&format!("SCAN 0 COUNT 1000 MATCH {pattern}")]);
    assert!(!scan.starts_with("*2\r\n$1\r\n0"), "{scan}");
    let scan = bed.ask(client, &["SCAN 0 COUNT 1000"]);
    assert!(scan.len() < 20 * long.len(), "{}", scan.len());
}

#[test]
fn walks_are_given_up_when_clients_hold_too_much() {
    let mut bed = Bed::new(1, &[]);
    let client = bed.connect(0, Direct);
    let long = "a".repeat(60_000);
    for n in 0..200 {
        assert_eq!(
            bed.ask(client, &[&format!("SET {long}{n:03} v")]),
            "+OK\r\n"
        );
    }
    let clients: Vec<_> = (0..WALKS_MAX).map(|_| bed.connect(0, Direct)).collect();
    bed.slices_max = 1;
    for &client in &clients {
        bed.send(client, &["KEYS *"]);
    }
    while !bed.core(0).execution.walks.is_empty() {
        bed.turn(0, usize::MAX);
        let held = bed.core(0).client_bytes();
        assert!(held <= bed::CLIENT_MEMORY, "{held}");
    }
    let replies = clients.iter().map(|&client| bed.take(client));
    let error = ClientError::ClientMemory.to_string();
    let given_up = replies.filter(|reply| reply.contains(&error)).count();
    assert!((1..=4).contains(&given_up), "{given_up}");
    assert!(clients.iter().all(|&client| bed.is_open(client)));
}

/// Redis has executed it when its client leaves: half a flush is none.
#[test]
fn a_flush_goes_on_whoever_has_asked_for_it() {
    let mut bed = standing();
    let client = bed.connect(1, Entry);
    let selected = "+OK\r\n";
    assert_eq!(bed.ask(client, &["SELECT 3"]), selected);
    for partition in 0..bed::PARTITIONS {
        let set = format!("SET {} v", key(partition, 0));
        assert_eq!(bed.ask(client, &[&set]), "+OK\r\n");
    }
    let leaving: Vec<_> = (0..20).map(|_| bed.connect(0, Entry)).collect();
    for &leaver in &leaving {
        assert_eq!(bed.ask(leaver, &["SELECT 3"]), selected);
        bed.send(leaver, &["FLUSHDB"]);
    }
    bed.settle();
    assert!(walks(&mut bed, 1).1 >= leaving.len());
    for leaver in leaving {
        bed.kill(leaver);
    }
    bed.settle();
    assert_eq!(walks(&mut bed, 1), (0, 1), "one of them does for all");
    assert_eq!(bed.ask(client, &["DBSIZE"]), ":8\r\n");
    go_on(&mut bed);
    assert_eq!(bed.ask(client, &["DBSIZE", "SELECT 0"]), ":0\r\n+OK\r\n");
    assert_eq!(bed.ask(client, &["DBSIZE"]), ":8\r\n");
    assert_eq!(bed.core(0).unanswered() + bed.core(1).unanswered(), 0);
}

/// Thousands of other keys were looked at in one turn, up to a hundred times.
#[test]
fn a_random_key_among_many_others_is_walked_for() {
    let mut bed = Bed::new(1, &[]);
    let client = bed.connect(0, Direct);
    let sets: Vec<String> = (0..5_000).map(|n| format!("SET k{n} v")).collect();
    for sets in sets.chunks(500) {
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        bed.ask(client, &sets);
    }
    assert_eq!(bed.ask(client, &["SELECT 3"]), "+OK\r\n");
    assert_eq!(bed.ask(client, &["RANDOMKEY"]), "$-1\r\n");
    assert_eq!(bed.ask(client, &["SET one v PX 1000"]), "+OK\r\n");
    let mut walked_for = 0;
    for _ in 0..20 {
        bed.slices_max = 0;
        bed.send(client, &["RANDOMKEY"]);
        walked_for += walks(&mut bed, 0).1;
        go_on(&mut bed);
        assert_eq!(bed.take(client), "$3\r\none\r\n");
    }
    assert!(walked_for > 10, "{walked_for}");
    bed.advance(1000);
    assert_eq!(bed.ask(client, &["RANDOMKEY"]), "$-1\r\n");
    let walked = bed.ask(client, &["MULTI", "RANDOMKEY", "EXEC"]);
    assert!(walked.ends_with("*1\r\n$-1\r\n"), "{walked}");
}

#[test]
fn a_slot_is_that_of_the_key_as_it_is_named() {
    use ephesus_wire::{resp::reply, slot_of};
    let mut bed = Bed::new(1, &[]);
    let client = bed.connect(0, Direct);
    // It begins as stored keys of database 5 do.
    let name = Database(5).stored(b"key");
    let slot = slot_of(&Database::ZERO.stored(&name));
    assert_ne!(slot, slot_of(&name));
    let mut set = Vec::new();
    reply::command(&mut set, &[&b"SET"[..], &name, b"v"]);
    bed.send_bytes(client, &set);
    bed.settle();
    assert_eq!(bed.take(client), "+OK\r\n");
    let count = |slot| format!("CLUSTER COUNTKEYSINSLOT {slot}");
    assert_eq!(bed.ask(client, &[&count(slot)]), ":1\r\n");
    assert_eq!(bed.ask(client, &[&count(slot_of(&name))]), ":0\r\n");
}
