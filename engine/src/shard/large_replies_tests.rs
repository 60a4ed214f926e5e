//! Large replies of several shards to several clients are in one budget.

use std::sync::Arc;

use ephesus_wire::ShardId;

use crate::keyspace::large_replies::{ReplyRoom, Room, TAKEN_BYTES_MAX};
use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{Bed, Client, command, key};

const MIB: usize = 1 << 20;

/// Shards with a value of so many bytes each.
fn bed(shards: u16, value_bytes: usize, client_memory: usize) -> Bed {
    let mut bed = Bed::of_node(shards, &[], |node| {
        node.settings.max_client_memory = client_memory as u64;
    });
    for shard in 0..shards {
        let client = bed.connect(shard, Direct);
        let set = command(&["SET", &key(shard, 0), &"v".repeat(value_bytes)]);
        bed.send_bytes(client, &set);
        bed.settle();
        assert_eq!(bed.take(client), "+OK\r\n");
    }
    bed
}

/// Takes all room.
fn take_all(bed: &mut Bed) -> Room {
    let mut taken = ReplyRoom::new(Arc::clone(&bed.core(0).node.large_replies));
    taken.take(TAKEN_BYTES_MAX).expect("nobody has room");
    taken.hand_over()
}

/// Bytes of replies that were made for shards and not taken by them.
fn under_way(bed: &mut Bed) -> usize {
    let peers = bed.core(0).node.peers.iter();
    peers.map(|peer| peer.replies_bytes()).sum()
}

#[test]
fn replies_of_eight_shards_to_all_of_them_are_in_one_budget() {
    const VALUE: usize = 2 * MIB;
    let mut bed = bed(8, VALUE, 256 * MIB);
    let keys: Vec<String> = (0..8).map(|shard| key(shard, 0)).collect();
    let mut words = vec!["MGET"];
    words.extend(keys.iter().map(String::as_str));
    let mut requests = b"PING\r\n".repeat(64);
    requests.extend(command(&words));
    let clients: Vec<Client> = (0..8).map(|shard| bed.connect(shard, Entry)).collect();
    for &client in &clients {
        bed.send_bytes(client, &requests.repeat(3));
    }
    let one = 8 * (VALUE + 32);
    let (mut most, mut most_taken, mut idle) = (0, 0, 0);
    let mut messages = [7, 0, 0, 0, 0, 0, 0].into_iter();
    while idle < 3 {
        // First nobody takes replies, then one message in a turn.
        let taken = messages.next().unwrap_or(1);
        idle += usize::from(taken == 1);
        for shard in 0..8 {
            let any = bed.turn(shard, taken);
            if any || bed.core(shard).goes_on() || bed.core(shard).admission.has_released() {
                idle = 0;
            }
            most = most.max(under_way(&mut bed));
            most_taken = most_taken.max(bed.core(0).node.large_replies.taken());
        }
    }
    assert!(most > VALUE, "nothing was asked for");
    assert!(most < TAKEN_BYTES_MAX + 2 * VALUE, "{most} bytes under way");
    assert!(most_taken < TAKEN_BYTES_MAX + one, "{most_taken} bytes");
    assert_eq!(bed.core(0).node.large_replies.taken(), 0);
    let value = format!("${VALUE}\r\n{}\r\n", "v".repeat(VALUE));
    let expected = format!("{}*8\r\n{}", "+PONG\r\n".repeat(64), value.repeat(8));
    for client in clients {
        assert!(
            bed.take(client) == expected.repeat(3),
            "each gets all of it"
        );
    }
}

#[test]
fn commands_that_wait_for_room_are_answered_in_their_order_and_small_ones_do_not_wait() {
    const VALUE: usize = MIB + 5;
    let mut bed = bed(2, VALUE, 256 * MIB);
    let (own, other) = (key(0, 0), key(1, 0));
    let setter = bed.connect(0, Entry);
    let long = "k".repeat(60 << 10);
    for n in 0..40 {
        let name = format!("{long}{n}");
        bed.send_bytes(setter, &command(&["SET", &name, "v"]));
    }
    bed.settle();
    let value = format!("${VALUE}\r\n{}\r\n", "v".repeat(VALUE));
    let both = format!("*2\r\n{value}{value}");
    let room = take_all(&mut bed);
    let cases = [
        (vec!["GET", &own], value.clone()),
        (vec!["GET", &other], value.clone()),
        (vec!["MGET", &own, &own], both.clone()),
        (vec!["MGET", &other, &own], both.clone()),
        (vec!["SET", &own, "new", "GET"], value.clone()),
        (vec!["GETSET", &other, "new"], value.clone()),
    ];
    let client = bed.connect(0, Entry);
    let small = bed.connect(0, Entry);
    let walker = bed.connect(0, Entry);
    let mut expected = String::new();
    for (words, reply) in &cases {
        bed.send_bytes(client, &command(words));
        bed.send_bytes(client, &command(&["STRLEN", &own]));
        let is_new = words.first() == Some(&"SET") || words.first() == Some(&"GETSET");
        let len = if is_new { 3 } else { VALUE };
        expected += &format!("{reply}:{len}\r\n");
    }
    bed.send_bytes(walker, &command(&["KEYS", "k*"]));
    assert_eq!(
        bed.ask(small, &["PING", &format!("STRLEN {own}")]),
        format!("+PONG\r\n:{VALUE}\r\n")
    );
    assert!(bed.take(client).is_empty());
    assert!(bed.take(walker).is_empty());
    drop(room);
    bed.advance(1);
    assert!(bed.take(client) == expected, "in order");
    assert!(bed.take(walker).len() > 40 * long.len());
    assert_eq!(bed.core(0).node.large_replies.taken(), 0);
}

#[test]
fn what_waits_for_room_dies_with_its_client() {
    let mut bed = bed(2, 2 * MIB, 256 * MIB);
    let room = take_all(&mut bed);
    let client = bed.connect(0, Entry);
    let gets = command(&["GET", &key(1, 0)]).repeat(1000);
    bed.send_bytes(client, &gets);
    bed.settle();
    assert!(!bed.core(1).admission.deferred.is_empty());
    bed.kill(client);
    bed.settle();
    assert!(bed.core(1).admission.deferred.is_empty());
    assert_eq!(bed.core(0).router.peers[ShardId(1)].unanswered_bytes(), 0);
    drop(room);
}

#[test]
fn a_transaction_that_is_tried_again_begins_in_the_database_of_its_client() {
    let mut bed = bed(1, 2 * MIB, 256 * MIB);
    let client = bed.connect(0, Entry);
    let big = key(0, 0);
    bed.send_bytes(client, &command(&["MOVE", &big, "1"]));
    bed.ask(client, &["SET a 1", "SELECT 1", "SET a 1", "SELECT 0"]);
    let room = take_all(&mut bed);
    let get = format!("GET {big}");
    let transaction = ["MULTI", "FLUSHDB", "SELECT 1", "DBSIZE", &get, "EXEC"];
    bed.ask(client, &transaction);
    drop(room);
    bed.advance(1);
    let replies = bed.take(client);
    let expected = format!("*4\r\n+OK\r\n+OK\r\n:2\r\n${}\r\n", 2 * MIB);
    assert!(replies.starts_with(&expected), "{replies:.200}");
    assert_eq!(
        bed.ask(client, &["DBSIZE", "SELECT 0", "DBSIZE"]),
        ":2\r\n+OK\r\n:0\r\n"
    );
}

#[test]
fn what_a_transaction_cannot_take_back_is_done_once() {
    let mut bed = bed(1, 2 * MIB, 256 * MIB);
    let client = bed.connect(0, Entry);
    let room = take_all(&mut bed);
    let get = format!("GET {}", key(0, 0));
    let transaction = [
        "MULTI",
        "SET a 1",
        "CONFIG RESETSTAT",
        "BGSAVE",
        &get,
        "EXEC",
    ];
    bed.ask(client, &transaction);
    drop(room);
    bed.advance(1);
    let replies = bed.take(client);
    let expected = "*4\r\n+OK\r\n+OK\r\n+Background saving started\r\n";
    assert!(replies.starts_with(expected), "{replies:.200}");
}

#[test]
fn a_walk_that_waits_for_room_is_answered_once() {
    let mut bed = bed(1, MIB, 256 * MIB);
    let client = bed.connect(0, Entry);
    bed.ask(client, &["CONFIG SET cluster-slot-stats-enabled yes"]);
    let asked = "CLUSTER SLOT-STATS ORDERBY cpu-usec LIMIT 16384";
    let before = bed.ask(client, &[asked]);
    assert!(before.len() > MIB, "{} bytes need no room", before.len());
    let room = take_all(&mut bed);
    bed.ask(client, &[asked]);
    bed.advance(1);
    bed.advance(1);
    drop(room);
    bed.advance(1);
    let replies = bed.take(client);
    let arrays = replies.matches("*16384\r\n").count();
    assert_eq!(arrays, 1, "{} bytes", replies.len());
}
