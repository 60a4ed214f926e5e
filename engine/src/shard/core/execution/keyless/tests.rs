use std::collections::BTreeSet;

use ephesus_wire::PartitionId;

use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{Bed, Client, key};

const OK: &str = "+OK\r\n";

/// `count` keys in every partition.
fn fill(bed: &mut Bed, client: Client, count: usize) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for partition in 0..crate::shard::bed::PARTITIONS {
        for n in 0..count {
            let key = key(partition, n);
            assert_eq!(bed.ask(client, &[&format!("SET {key} v")]), OK);
            keys.insert(key);
        }
    }
    keys
}

/// The strings of a reply.
fn words(reply: &str) -> Vec<String> {
    let lines = reply.split("\r\n");
    lines
        .filter(|line| !line.is_empty() && !line.starts_with(['*', '$', ':']))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_flush_waits_for_the_decision_and_removes_what_has_moved_within_the_node() {
    let mut bed = Bed::new(2, &[]);
    let clients = [(0, Entry), (1, Entry)];
    let clients = clients.map(|(shard, kind)| bed.connect(shard, kind));
    fill(&mut bed, clients[0], 3);
    bed.prepare_within(0, 1);
    bed.follow();
    for client in clients {
        assert_eq!(bed.ask(client, &["FLUSHALL"]), "");
    }
    bed.commit_within(0);
    bed.follow();
    for client in clients {
        assert_eq!(bed.take(client), OK);
    }
    assert_eq!(bed.ask(clients[0], &["DBSIZE"]), ":0\r\n");
}

#[test]
fn a_flush_whose_parts_were_before_and_behind_a_move_is_done_again() {
    let mut bed = Bed::new(3, &[]);
    let client = bed.connect(2, Entry);
    fill(&mut bed, client, 3);
    bed.prepare_within(0, 1);
    bed.follow();
    let moved = key(0, 0);
    // Shard 1 flushes, shard 0 waits, and the move is committed in between.
    let set = format!("SET {moved} after");
    bed.send(client, &["FLUSHALL", &set]);
    bed.settle();
    assert_eq!(bed.take(client), "");
    bed.commit_within(0);
    bed.follow();
    assert_eq!(bed.take(client), "+OK\r\n+OK\r\n");
    let get = format!("GET {moved}");
    assert_eq!(bed.ask(client, &["DBSIZE", &get]), ":1\r\n$5\r\nafter\r\n");
}

#[test]
fn a_flush_of_a_shard_waits_at_its_own_port() {
    let mut bed = Bed::new(1, &[]);
    let (direct, other) = (bed.connect(0, Direct), bed.connect(0, Direct));
    fill(&mut bed, direct, 1);
    bed.core(0).hold(PartitionId(0));
    assert_eq!(bed.ask(direct, &["FLUSHDB", "DBSIZE"]), "");
    assert_eq!(bed.ask(other, &["DBSIZE"]), ":8\r\n");
    let error = bed.ask(other, &["FLUSHALL now"]);
    assert_eq!(error, "-ERR syntax error\r\n");
    bed.core(0).resume(PartitionId(0));
    bed.settle();
    assert_eq!(bed.take(direct), "+OK\r\n:0\r\n");
}

#[test]
fn a_move_within_the_node_shows_in_no_count_and_no_list() {
    let mut bed = Bed::new(3, &[]);
    let (asking, client) = (bed.connect(2, Entry), bed.connect(2, Entry));
    let keys = fill(&mut bed, client, 3);
    let all = format!(":{}\r\n", keys.len());
    bed.prepare_within(0, 1);
    bed.follow();
    assert_eq!(bed.ask(client, &["DBSIZE"]), all, "staging does not count");
    let listed: BTreeSet<_> = words(&bed.ask(client, &["KEYS *"])).into_iter().collect();
    assert_eq!(listed, keys);
    // The target answers before it serves the copy, the source after it has given its own up.
    bed.send(asking, &["DBSIZE"]);
    bed.send(client, &["KEYS *"]);
    bed.turn(1, usize::MAX);
    bed.commit_within(0);
    bed.follow();
    assert_eq!(bed.take(asking), all);
    let listed = words(&bed.take(client));
    assert_eq!(listed.len(), keys.len(), "none twice");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), keys);
    // And the other way round: the source answers before, the target after.
    bed.prepare_within(3, 1);
    bed.send(asking, &["DBSIZE"]);
    bed.send(client, &["KEYS *"]);
    bed.turn(0, usize::MAX);
    bed.commit_within(3);
    bed.settle();
    assert_eq!(bed.take(asking), "", "the routes are on their way");
    bed.follow();
    assert_eq!(bed.take(asking), all);
    assert_eq!(words(&bed.take(client)).len(), keys.len(), "none twice");
}

#[test]
fn a_scan_of_the_node_misses_nothing_that_moves_between_its_shards() {
    for moves_at in 0..60 {
        let mut bed = Bed::new(2, &[]);
        let client = bed.connect(1, Entry);
        let keys = fill(&mut bed, client, 12);
        let mut found = BTreeSet::new();
        let mut cursor = "0".to_owned();
        for call in 0.. {
            assert!(call < 1_000, "the scan ends");
            match call {
                _ if call == moves_at => bed.prepare_within(2, 1),
                _ if call == moves_at + 1 => {
                    bed.commit_within(2);
                    // Only the source knows at first.
                    bed.send_routes(&[0]);
                }
                _ if call == moves_at + 2 => bed.follow(),
                _ => {}
            }
            let mut words = words(&bed.ask(client, &[&format!("SCAN {cursor} COUNT 3")]));
            cursor = words.remove(0);
            found.extend(words);
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(found, keys, "moved at call {moves_at}");
    }
}

#[test]
fn keys_that_have_expired_stay_in_a_copy_whose_stream_has_ended() {
    let mut bed = Bed::new(2, &[]);
    let client = bed.connect(0, Direct);
    let (held, free) = (key(0, 0), key(2, 0));
    for key in [&held, &free] {
        assert_eq!(bed.ask(client, &[&format!("SET {key} v PX 50")]), OK);
    }
    let get = format!("GET {held}");
    bed.advance(49);
    assert_eq!(bed.ask(client, &[&get]), "$1\r\nv\r\n");
    bed.prepare_within(0, 1);
    bed.follow();
    bed.advance(2);
    let seq = |bed: &mut Bed| {
        let copy = bed.core(0).keyspace.partition(PartitionId(0));
        copy.expect("it is here").seq()
    };
    let before = seq(&mut bed);
    while !bed.core(0).keyspace.sweep_slice() {}
    bed.settle();
    assert_eq!(seq(&mut bed), before, "nothing may be logged of it");
    assert_eq!(
        bed.ask(client, &["DBSIZE"]),
        ":1\r\n",
        "the other one is gone"
    );
    bed.core(0).keyspace.end_outgoing(PartitionId(0));
    bed.core(0).resume(PartitionId(0));
    while !bed.core(0).keyspace.sweep_slice() {}
    assert_eq!(bed.ask(client, &["DBSIZE"]), ":0\r\n");
}

#[test]
fn a_slot_that_leaves_while_its_keys_are_counted_has_none() {
    let mut bed = Bed::new(1, &[]);
    let client = bed.connect(0, Direct);
    fill(&mut bed, client, 3);
    let slot = ephesus_wire::slot_of(key(0, 0).as_bytes());
    let count = format!("CLUSTER COUNTKEYSINSLOT {slot}");
    assert_eq!(bed.ask(client, &[&count]), ":1\r\n");
    bed.core(0).hold(PartitionId(0));
    assert_eq!(bed.ask(client, &[&count]), ":1\r\n", "reading goes on");
    bed.move_away(0);
    assert_eq!(bed.ask(client, &[&count]), ":0\r\n");
}

#[test]
fn a_random_key_of_the_node_is_found_wherever_it_is() {
    let mut bed = Bed::new(3, &[]);
    let client = bed.connect(0, Entry);
    assert_eq!(bed.ask(client, &["RANDOMKEY"]), "$-1\r\n");
    for partition in 0..3 {
        let only = key(partition, 0);
        let (set, del) = (format!("SET {only} v"), format!("DEL {only}"));
        // The number of keys that shards have published is that of before.
        let asked = bed.ask(client, &[&set, "RANDOMKEY", &del, "RANDOMKEY"]);
        let found = format!("+OK\r\n${}\r\n{only}\r\n:1\r\n$-1\r\n", only.len());
        assert_eq!(asked, found);
    }
}

#[test]
fn the_entry_port_is_one_primary_whichever_shard_has_the_connection() {
    let mut bed = Bed::new(3, &[]);
    for ask in ["CLUSTER MYID", "CLUSTER NODES"] {
        let entries: BTreeSet<String> = (0..3)
            .map(|shard| {
                let client = bed.connect(shard, Entry);
                bed.ask(client, &[ask])
            })
            .collect();
        assert_eq!(entries.len(), 1, "{ask}");
        let direct: BTreeSet<String> = (0..3)
            .map(|shard| {
                let client = bed.connect(shard, Direct);
                bed.ask(client, &[ask])
            })
            .collect();
        assert_eq!(direct.len(), 3, "{ask}");
        assert!(direct.is_superset(&entries), "{ask}");
    }
}

#[test]
fn absent_keys_count_towards_no_limit_of_a_deletion() {
    let mut bed = Bed::new(2, &[]);
    for kind in [Entry, Direct] {
        let client = bed.connect(0, kind);
        let present = key(0, 0);
        assert_eq!(bed.ask(client, &[&format!("SET {present} v")]), OK);
        // More than fits a record, if all of them were deleted; each of them is in the slot of the present one.
        let names = (0..200_000).map(|n| format!("{{{present}}}{n}"));
        let keys: Vec<String> = names.chain([present.clone()]).collect();
        for (command, count) in [("EXISTS", 1), ("DEL", 1), ("UNLINK", 0)] {
            let mut request = format!("*{}\r\n${}\r\n{command}\r\n", keys.len() + 1, command.len());
            for key in &keys {
                request.push_str(&format!("${}\r\n{key}\r\n", key.len()));
            }
            bed.send_bytes(client, request.as_bytes());
            bed.settle();
            assert_eq!(bed.take(client), format!(":{count}\r\n"), "{command}");
        }
    }
}

/// The body of a web page's request is commands, as far as anyone can tell.
#[test]
fn nothing_behind_a_line_of_an_http_request_is_executed() {
    let mut bed = Bed::new(2, &[]);
    for (shard, kind) in [(0, Entry), (1, Entry), (1, Direct)] {
        for line in [
            "POST / HTTP/1.1",
            "post x",
            "Host: 127.0.0.1:7379",
            "*1\r\n$5\r\nhOsT:",
        ] {
            let client = bed.connect(shard, kind);
            let commands = [line, "", "SET owned 1", "FLUSHALL"];
            assert_eq!(bed.ask(client, &commands), "", "{line}");
            assert!(!bed.is_open(client), "{line}");
        }
    }
    let client = bed.connect(0, Entry);
    assert_eq!(bed.ask(client, &["EXISTS owned"]), ":0\r\n");
    assert!(
        bed.ask(client, &["INFO stats"])
            .contains("http_connections_closed:12\r\n")
    );
}

#[test]
fn a_full_disk_takes_no_removals_of_expired_keys() {
    let mut bed = Bed::new(1, &[]);
    let client = bed.connect(0, Direct);
    assert_eq!(bed.ask(client, &["SET k v PX 50"]), "+OK\r\n");
    bed.advance(100);
    let appended = |bed: &mut Bed| bed.core(0).keyspace.log.appended();
    let before = appended(&mut bed);
    bed.core(0).node.disk.set(true, 0, 0);
    assert_eq!(bed.ask(client, &["GET k"]), "$-1\r\n", "invisible");
    assert_eq!(appended(&mut bed), before, "and still here");
    bed.core(0).node.disk.set(false, 0, 0);
    assert_eq!(bed.ask(client, &["GET k"]), "$-1\r\n");
    assert_eq!(appended(&mut bed), before.next());
    assert_eq!(bed.ask(client, &["DBSIZE"]), ":0\r\n");
}

#[test]
fn a_large_request_in_pieces_is_parsed_on_and_counted_until_it_is_executed() {
    let mut bed = Bed::new(2, &[]);
    for kind in [Entry, Direct] {
        let client = bed.connect(0, kind);
        let present = key(0, 0);
        assert_eq!(bed.ask(client, &[&format!("SET {present} v")]), OK);
        let count = 20_000;
        let mut request = format!("*{}\r\n$6\r\nEXISTS\r\n", count + 1);
        for _ in 0..count {
            request.push_str(&format!("${}\r\n{present}\r\n", present.len()));
        }
        request.push_str("PING\r\n");
        let end = request.len() - 9;
        for piece in request.as_bytes()[..end].chunks(10_000) {
            bed.send_bytes(client, piece);
        }
        let connection = bed.core(0).connections.get_mut(client.token);
        let connection = connection.expect("open");
        let begun = connection.begun.as_ref().expect("all but the last keys");
        assert!(begun.len() > count / 2, "{}", begun.len());
        let parsed = begun.held_bytes();
        assert!(connection.held_bytes() > end + parsed);
        bed.send_bytes(client, &request.as_bytes()[end..]);
        bed.settle();
        assert_eq!(bed.take(client), format!(":{count}\r\n+PONG\r\n"));
        let connection = bed.core(0).connections.get_mut(client.token);
        assert!(connection.is_some_and(|c| c.begun.is_none()));
    }
}
