use ephesus_wire::{PartitionId, ShardId};

use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{BYZANTIUM, Bed, key};

const OK: &str = "+OK\r\n";
const REFUSED: &str =
    "-CLUSTERDOWN The slot is being moved and the coordinator cannot be reached\r\n";

/// Of a bed with two shards: on shard 0 are the even partitions, on shard 1 the odd ones.
const HELD: PartitionId = PartitionId(0);

fn moved(partition: u16, to: &str) -> String {
    use ephesus_wire::slot_of;
    format!("-MOVED {} {to}\r\n", slot_of(key(partition, 0).as_bytes()))
}

#[test]
fn a_connection_stops_at_a_held_command_and_others_go_on() {
    let mut bed = Bed::new(1, &[]);
    let (one, other) = (bed.connect(0, Direct), bed.connect(0, Entry));
    let (held, free) = (key(0, 0), key(1, 0));
    bed.core(0).hold(HELD);
    assert!(bed.core(0).is_held(HELD));
    let commands = [
        format!("SET {free} 1"),
        format!("SET {held} 1"),
        format!("INCR {free}"),
        format!("INCR {held}"),
    ];
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    assert_eq!(bed.ask(one, &commands), OK, "up to the held one");
    assert_eq!(bed.core(0).admission.held_commands(), 1);
    assert_eq!(bed.ask(one, &["PING"]), "", "it is behind them");
    assert_eq!(bed.ask(other, &[&format!("INCR {free}")]), ":2\r\n");
    bed.advance(500);
    assert_eq!(bed.take(one), "");
    bed.core(0).resume(HELD);
    bed.settle();
    assert_eq!(bed.take(one), "+OK\r\n:3\r\n:2\r\n+PONG\r\n");
    assert_eq!(bed.core(0).admission.held_commands(), 0);
    assert!(!bed.core(0).is_held(HELD));
}

#[test]
fn forwarded_commands_wait_in_order_and_do_not_keep_other_clients_back() {
    let mut bed = Bed::new(2, &[]);
    let (one, other) = (bed.connect(1, Entry), bed.connect(1, Entry));
    let (held, same_shard) = (key(0, 0), key(2, 0));
    bed.core(0).hold(HELD);
    let commands = [
        format!("SET {held} 1"),
        format!("SET {same_shard} 7"),
        format!("INCR {held}"),
        format!("DEL {same_shard} {held}"),
    ];
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    assert_eq!(bed.ask(one, &commands), "");
    assert_eq!(bed.core(0).admission.held_commands(), 4);
    let get = format!("GET {same_shard}");
    assert_eq!(bed.ask(other, &[&get]), "$-1\r\n", "not executed yet");
    assert_eq!(bed.ask(other, &[&format!("SET {same_shard} 5")]), OK);
    bed.core(0).resume(HELD);
    bed.settle();
    assert_eq!(bed.take(one), "+OK\r\n+OK\r\n:2\r\n:2\r\n");
    assert_eq!(bed.core(0).admission.held_commands(), 0);
}

#[test]
fn held_commands_are_led_to_another_node_once_the_routes_say_so() {
    let mut bed = Bed::new(2, &[]);
    let (direct, forwarded) = (bed.connect(0, Direct), bed.connect(1, Entry));
    let incr = format!("INCR {}", key(0, 0));
    bed.core(0).hold(HELD);
    assert_eq!(bed.ask(direct, &[&incr, "PING"]), "");
    assert_eq!(bed.ask(forwarded, &[&incr, "PING"]), "");
    let given_up = bed.core(0).keyspace.drop_copy(HELD);
    given_up.expect("it is served");
    bed.core(0).reroute(HELD);
    bed.settle();
    assert_eq!(bed.take(direct), "", "the routes still lead here");
    assert_eq!(bed.take(forwarded), "");
    assert!(bed.core(0).is_held(HELD));
    bed.give(0, (BYZANTIUM, ShardId(0)));
    bed.follow();
    let expected = moved(0, "byzantium:8001") + "+PONG\r\n";
    assert_eq!(bed.take(direct), expected);
    assert_eq!(bed.take(forwarded), expected);
    assert!(!bed.core(0).is_held(HELD));
    assert_eq!(bed.core(0).admission.held_commands(), 0);
}

#[test]
fn held_commands_go_to_the_shard_of_the_node_that_has_their_keys_now() {
    let mut bed = Bed::new(2, &[]);
    let clients = [(0, Direct), (0, Entry), (1, Entry), (1, Direct)];
    let clients = clients.map(|(shard, kind)| bed.connect(shard, kind));
    let key = key(0, 0);
    assert_eq!(bed.ask(clients[0], &[&format!("SET {key} 10")]), OK);
    bed.prepare_within(0, 1);
    bed.follow();
    for client in clients {
        assert_eq!(bed.ask(client, &[&format!("INCR {key}")]), "");
    }
    bed.commit_within(0);
    bed.follow();
    let replies = clients.map(|client| bed.take(client));
    assert_eq!(replies[0], moved(0, "127.0.0.1:7002"));
    let mut executed = [&replies[1], &replies[2], &replies[3]];
    executed.sort();
    assert_eq!(executed, [":11\r\n", ":12\r\n", ":13\r\n"]);
}

#[test]
fn after_a_second_held_commands_are_refused_unexecuted_and_the_hold_goes_on() {
    let mut bed = Bed::new(2, &[]);
    let (direct, forwarded) = (bed.connect(0, Direct), bed.connect(1, Entry));
    let (incr, free) = (format!("INCR {}", key(0, 0)), format!("INCR {}", key(2, 0)));
    bed.core(0).hold(HELD);
    let commands = [incr.as_str(), incr.as_str(), free.as_str()];
    assert_eq!(bed.ask(direct, &commands), "");
    assert_eq!(bed.ask(forwarded, &commands), "");
    bed.advance(600);
    assert_eq!(bed.ask(direct, &[&incr]), "", "it comes later");
    assert_eq!(bed.ask(forwarded, &[&incr]), "");
    bed.advance(399);
    assert_eq!(bed.take(direct) + &bed.take(forwarded), "");
    bed.advance(1);
    assert_eq!(bed.take(direct), format!("{REFUSED}{REFUSED}:2\r\n"));
    assert_eq!(bed.take(forwarded), format!("{REFUSED}{REFUSED}:1\r\n"));
    assert!(bed.core(0).is_held(HELD));
    assert_eq!(bed.core(0).admission.held_commands(), 2, "the later ones");
    bed.advance(1000);
    assert_eq!(bed.take(direct), REFUSED);
    assert_eq!(bed.take(forwarded), REFUSED);
    bed.core(0).resume(HELD);
    bed.settle();
    assert_eq!(bed.ask(direct, &[&incr]), ":1\r\n", "none was executed");
}

#[test]
fn what_is_refused_does_not_shorten_the_time_of_what_came_later() {
    let mut bed = Bed::new(1, &[]);
    let client = bed.connect(0, Direct);
    let incr = format!("INCR {}", key(0, 0));
    bed.core(0).hold(HELD);
    assert_eq!(bed.ask(client, &[&incr]), "");
    bed.advance(900);
    assert_eq!(bed.ask(client, &[&incr]), "");
    bed.advance(100);
    assert_eq!(bed.take(client), REFUSED);
    bed.core(0).resume(HELD);
    bed.settle();
    assert_eq!(bed.take(client), ":1\r\n");
}

#[test]
fn a_connection_that_ends_while_it_waits_still_has_its_command_executed() {
    let mut bed = Bed::new(1, &[]);
    let (ended, other) = (bed.connect(0, Direct), bed.connect(0, Direct));
    let key = key(0, 0);
    bed.core(0).hold(HELD);
    assert_eq!(bed.ask(ended, &[&format!("SET {key} 1")]), "");
    bed.end_input(ended);
    bed.settle();
    assert!(bed.is_open(ended), "it is owed an answer");
    bed.core(0).resume(HELD);
    bed.settle();
    assert_eq!(bed.take(ended), OK);
    assert!(!bed.is_open(ended));
    assert_eq!(bed.ask(other, &[&format!("GET {key}")]), "$1\r\n1\r\n");
}

#[test]
fn two_holds_end_independently() {
    let mut bed = Bed::new(1, &[]);
    let clients = [bed.connect(0, Direct), bed.connect(0, Direct)];
    let incr = |partition| format!("INCR {}", key(partition, 0));
    bed.core(0).hold(PartitionId(0));
    bed.core(0).hold(PartitionId(1));
    assert_eq!(bed.ask(clients[0], &[&incr(0), &incr(1)]), "");
    assert_eq!(bed.ask(clients[1], &[&incr(1)]), "");
    bed.core(0).resume(PartitionId(0));
    bed.settle();
    assert_eq!(
        bed.take(clients[0]),
        ":1\r\n",
        "then it waits for the other"
    );
    bed.core(0).resume(PartitionId(1));
    bed.settle();
    let mut replies = clients.map(|client| bed.take(client));
    replies.sort();
    assert_eq!(replies, [":1\r\n", ":2\r\n"]);
}

#[test]
fn routes_that_change_for_another_reason_release_nothing() {
    let mut bed = Bed::new(2, &[]);
    let client = bed.connect(0, Direct);
    bed.core(0).hold(HELD);
    assert_eq!(bed.ask(client, &[&format!("GET {}", key(0, 0))]), "");
    bed.give(2, (BYZANTIUM, ShardId(0)));
    bed.follow();
    assert_eq!(bed.take(client), "");
    bed.core(0).keyspace.drop_copy(HELD).expect("it is served");
    bed.core(0).reroute(HELD);
    bed.follow();
    assert_eq!(bed.take(client), "", "they still lead here");
    bed.give(0, (BYZANTIUM, ShardId(0)));
    bed.follow();
    assert_eq!(bed.take(client), moved(0, "byzantium:8001"));
}

#[test]
fn routes_that_come_before_the_order_to_follow_them_change_nothing() {
    let mut bed = Bed::new(2, &[]);
    let client = bed.connect(0, Direct);
    bed.core(0).hold(HELD);
    bed.give(0, (BYZANTIUM, ShardId(0)));
    bed.follow();
    let get = format!("GET {}", key(0, 0));
    assert_eq!(
        bed.ask(client, &[&get]),
        "",
        "held, whatever the routes say"
    );
    bed.core(0).keyspace.drop_copy(HELD).expect("it is served");
    bed.core(0).reroute(HELD);
    bed.settle();
    assert_eq!(bed.take(client), moved(0, "byzantium:8001"));
}
