mod random;

use ephesus_wire::{PartitionId, ShardId, slot_of};

use crate::command::spec::Cmd;
use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{BYZANTIUM, Bed, command, key};

const OK: &str = "+OK\r\n";
const CROSSSLOT: &str = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";

fn moved(key: &str, to: &str) -> String {
    format!("-MOVED {} {to}\r\n", slot_of(key.as_bytes()))
}

#[test]
fn commands_wait_for_a_prepared_copy_and_are_executed_once_it_is_served() {
    let mut bed = Bed::new(2, &[0]);
    let clients = [(1, Direct), (1, Entry), (0, Entry), (0, Direct)];
    let clients = clients.map(|(shard, kind)| bed.connect(shard, kind));
    let key = key(0, 0);
    let (incr, there) = (format!("INCR {key}"), moved(&key, "byzantium:8001"));
    bed.begin_staging(0, 1);
    bed.follow();
    for client in clients {
        let reply = bed.ask(client, &[&incr]);
        assert_eq!(reply, there, "the copy is not complete");
    }
    bed.fill_staging(0, 1, &key, "41");
    for client in &clients[..3] {
        assert_eq!(bed.ask(*client, &[&incr]), "", "it may be served already");
    }
    assert_eq!(bed.ask(clients[3], &[&incr]), there, "not this shard's");
    let target = &mut bed.core(1).keyspace;
    target.activate(PartitionId(0)).expect("it is prepared");
    bed.settle();
    let mut replies = [0, 1, 2].map(|at| bed.take(clients[at]));
    replies.sort();
    assert_eq!(replies, [":42\r\n", ":43\r\n", ":44\r\n"]);
    assert_eq!(
        bed.ask(clients[2], &[&incr]),
        ":45\r\n",
        "before the routes"
    );
    bed.end_staging(0);
    bed.give(0, (crate::shard::bed::ATHENS, ShardId(1)));
    bed.follow();
    assert_eq!(bed.ask(clients[2], &[&incr]), ":46\r\n");
    assert_eq!(bed.ask(clients[1], &[&incr]), ":47\r\n");
    assert_eq!(bed.ask(clients[3], &[&incr]), moved(&key, "127.0.0.1:7002"));
}

#[test]
fn after_a_wipe_what_has_waited_is_answered_as_the_table_says() {
    let mut bed = Bed::new(2, &[0]);
    let clients = [(1, Direct), (1, Entry), (0, Entry)];
    let clients = clients.map(|(shard, kind)| bed.connect(shard, kind));
    let key = key(0, 0);
    bed.begin_staging(0, 1);
    bed.follow();
    bed.fill_staging(0, 1, &key, "41");
    for client in clients {
        assert_eq!(bed.ask(client, &[&format!("INCR {key}")]), "");
    }
    assert_eq!(bed.ask(clients[0], &["DBSIZE"]), "", "it is behind");
    bed.core(1).keyspace.wipe(PartitionId(0)).expect("prepared");
    bed.settle();
    let there = moved(&key, "byzantium:8001");
    assert_eq!(bed.take(clients[0]), there.clone() + ":0\r\n");
    assert_eq!(bed.take(clients[1]), there);
    assert_eq!(bed.take(clients[2]), there);
}

#[test]
fn a_start_with_a_prepared_copy_that_the_table_has_given_here_waits_for_the_word() {
    let mut bed = Bed::new(1, &[0]);
    let client = bed.connect(0, Direct);
    let key = key(0, 0);
    bed.begin_staging(0, 0);
    bed.fill_staging(0, 0, &key, "41");
    // The routes are the first that come, and nothing was said of the decision yet.
    bed.give(0, (crate::shard::bed::ATHENS, ShardId(0)));
    bed.follow();
    assert_eq!(bed.ask(client, &[&format!("INCR {key}")]), "");
    assert!(bed.core(0).keyspace.activate(PartitionId(0)).is_some());
    bed.settle();
    assert_eq!(bed.take(client), ":42\r\n");
}

/// Two shards; partition 0 has moved from shard 0 to shard 1, and only shards in `know` know.
fn moved_within(know: &[u16]) -> Bed {
    let mut bed = Bed::new(3, &[]);
    bed.prepare_within(0, 1);
    bed.commit_within(0);
    bed.send_routes(know);
    bed.settle();
    bed
}

#[test]
fn a_command_that_was_sent_to_a_shard_that_its_key_has_left_is_led_on() {
    let mut bed = moved_within(&[0, 1]);
    let client = bed.connect(2, Entry);
    let key = key(0, 0);
    let set = format!("SET {key} 7");
    let get = format!("GET {key}");
    let slot = slot_of(key.as_bytes());
    let count = format!("CLUSTER COUNTKEYSINSLOT {slot}");
    let replies = bed.ask(client, &[&set, &get, &count]);
    assert_eq!(replies, "+OK\r\n$1\r\n7\r\n:1\r\n");
    bed.follow();
    assert_eq!(bed.ask(client, &[&get]), "$1\r\n7\r\n");
    assert_eq!(bed.core(2).unanswered(), 0, "who was asked is credited");
}

#[test]
fn a_part_whose_keys_have_parted_is_divided_again() {
    let mut bed = moved_within(&[0, 1]);
    let client = bed.connect(2, Entry);
    // Partitions 0, 3 and 6 were on shard 0.
    let (a, b, c) = (key(0, 0), key(3, 0), key(1, 0));
    let own = key(2, 0);
    let mset = format!("MSET {b} 2 {a} 1 {c} 3 {own} 4");
    let mget = format!("MGET {a} {own} {c} nothing {b} {a}");
    let mget = mget.replace("nothing", &key(6, 0));
    let exists = format!("EXISTS {a} {b}");
    assert_eq!(bed.ask(client, &[&mset]), OK);
    let values = "*6\r\n$1\r\n1\r\n$1\r\n4\r\n$1\r\n3\r\n$-1\r\n$1\r\n2\r\n$1\r\n1\r\n";
    assert_eq!(bed.ask(client, &[&mget]), values);
    assert_eq!(bed.ask(client, &[&exists]), ":2\r\n");
    let del = format!("DEL {a} {b} {c}");
    assert_eq!(bed.ask(client, &[&del]), ":3\r\n");
    assert_eq!(bed.ask(client, &["DBSIZE"]), ":1\r\n");
    assert_eq!(bed.core(2).unanswered(), 0);
}

#[test]
fn a_part_that_waits_keeps_its_reply_back_and_is_divided_when_it_goes_on() {
    let mut bed = Bed::new(2, &[]);
    let client = bed.connect(1, Entry);
    let (a, b, c) = (key(0, 0), key(2, 0), key(1, 0));
    bed.prepare_within(0, 1);
    bed.follow();
    let commands = [
        format!("MSET {a} 1 {b} 2 {c} 3"),
        format!("MGET {c} {b} {a}"),
    ];
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    assert_eq!(bed.ask(client, &commands), "");
    bed.commit_within(0);
    bed.follow();
    let expected = "+OK\r\n*3\r\n$1\r\n3\r\n$1\r\n2\r\n$1\r\n1\r\n";
    assert_eq!(bed.take(client), expected);
    assert_eq!(bed.core(1).unanswered(), 0);
}

#[test]
fn a_command_on_keys_of_this_node_and_another_is_refused_as_a_whole() {
    let mut bed = Bed::new(2, &[]);
    let client = bed.connect(1, Entry);
    let (a, b) = (key(0, 0), key(2, 0));
    bed.core(0).hold(PartitionId(0));
    // All of it is on shard 0, so that it is one part.
    let mset = format!("MSET {a} 1 {b} 2");
    assert_eq!(bed.ask(client, &[&mset, "PING"]), "");
    bed.move_away(0);
    assert_eq!(bed.take(client), CROSSSLOT.to_owned() + "+PONG\r\n");
    assert_eq!(bed.ask(client, &[&format!("EXISTS {b}")]), ":0\r\n");
}

#[test]
fn a_write_that_was_done_in_part_is_not_answered_at_all() {
    let mut bed = Bed::new(2, &[]);
    let (client, reader) = (bed.connect(1, Entry), bed.connect(1, Entry));
    let (away, here) = (key(0, 0), key(1, 0));
    bed.core(0).hold(PartitionId(0));
    let mset = format!("MSET {away} 1 {here} 2");
    let mget = format!("MGET {away} {here}");
    assert_eq!(bed.ask(client, &["PING", &mset, "PING"]), "+PONG\r\n");
    assert_eq!(bed.ask(reader, &[&mget, "PING"]), "");
    bed.move_away(0);
    assert_eq!(bed.take(client), "");
    assert!(!bed.is_open(client));
    assert_eq!(bed.take(reader), CROSSSLOT.to_owned() + "+PONG\r\n");
    assert!(bed.is_open(reader), "reading has done nothing");
}

#[test]
fn a_write_that_was_divided_on_its_way_and_done_in_part_is_not_answered_either() {
    let mut bed = moved_within(&[0, 1]);
    let client = bed.connect(2, Entry);
    let (away, here) = (key(0, 0), key(3, 0));
    bed.core(1).hold(PartitionId(0));
    let mset = format!("MSET {away} 1 {here} 2");
    assert_eq!(bed.ask(client, &["PING", &mset, "PING"]), "+PONG\r\n");
    bed.move_away(0);
    assert_eq!(bed.take(client), "");
    assert!(!bed.is_open(client));
    assert_eq!(bed.core(2).unanswered(), 0);
}

#[test]
fn commands_of_a_connection_keep_their_order_when_their_key_turns_to_another_shard() {
    let mut bed = Bed::new(3, &[]);
    let client = bed.connect(2, Entry);
    let key = key(0, 0);
    bed.prepare_within(0, 1);
    bed.follow();
    assert_eq!(bed.ask(client, &[&format!("SET {key} first")]), "");
    bed.commit_within(0);
    // The asking shard knows the new place, the old one does not lead the first command on yet.
    bed.send_routes(&[1, 2]);
    bed.settle();
    let (append, get) = (format!("APPEND {key} -second"), format!("GET {key}"));
    assert_eq!(bed.ask(client, &[&append, &get]), "");
    bed.send_routes(&[0]);
    bed.settle();
    let expected = "+OK\r\n:12\r\n$12\r\nfirst-second\r\n";
    assert_eq!(bed.take(client), expected);
}

#[test]
fn what_was_led_on_behind_later_commands_of_a_stopped_client_is_executed() {
    let mut bed = moved_within(&[0, 1]);
    let client = bed.connect(2, Entry);
    let (moved, large) = (key(0, 0), key(1, 0));
    let half = "v".repeat(50_000);
    let writes = ["SET", "APPEND"].map(|write| format!("{write} {large} {half}"));
    assert_eq!(
        bed.ask(client, &[&writes[0], &writes[1]]),
        "+OK\r\n:100000\r\n"
    );
    let get = format!("GET {large}");
    bed.send(client, &[&format!("EXISTS {moved}"), &get, &get]);
    // The large replies are made, and the client is stopped, before the first command comes to the same shard.
    bed.turn(1, usize::MAX);
    bed.turn(2, usize::MAX);
    bed.settle();
    let reply = format!("$100000\r\n{half}{half}\r\n");
    let replies = bed.take(client);
    assert!(
        replies == format!(":0\r\n{reply}{reply}"),
        "{} bytes",
        replies.len()
    );
    assert!(!bed.core(1).has_blocked());
}

#[test]
fn shards_whose_routes_contradict_each_other_do_not_send_a_command_round_for_ever() {
    let mut bed = Bed::new(3, &[]);
    let client = bed.connect(2, Entry);
    bed.core(0)
        .keyspace
        .drop_copy(PartitionId(0))
        .expect("served");
    bed.give(0, (crate::shard::bed::ATHENS, ShardId(1)));
    bed.send_routes(&[0]);
    bed.settle();
    // Shard 1 still has the routes that say shard 0.
    let reply = bed.ask(client, &[&format!("GET {}", key(0, 0)), "PING"]);
    assert_eq!(reply, "-CLUSTERDOWN Hash slot not served\r\n+PONG\r\n");
}

#[test]
fn a_copy_whose_partition_has_moved_on_is_not_served_whatever_the_shard_holds() {
    let mut bed = Bed::new(2, &[]);
    let key = key(0, 0);
    let clients = [(0, Direct), (0, Entry), (1, Entry)];
    let clients = clients.map(|(shard, kind)| bed.connect(shard, kind));
    let get = format!("GET {key}");
    assert_eq!(bed.ask(clients[0], &[&format!("SET {key} old")]), OK);
    // The shard has missed the word to give its copy up.
    bed.give(0, (BYZANTIUM, ShardId(0)));
    bed.follow();
    for client in clients {
        assert_eq!(bed.ask(client, &[&get]), moved(&key, "byzantium:8001"));
    }
    // The table gives it back, at a higher epoch: that is another copy.
    bed.give(0, (BYZANTIUM, ShardId(0)));
    bed.give(0, (crate::shard::bed::ATHENS, ShardId(1)));
    bed.follow();
    let there = moved(&key, "127.0.0.1:7002");
    assert_eq!(bed.ask(clients[0], &[&get]), there);
    assert_eq!(bed.ask(clients[0], &["DBSIZE"]).len(), ":1\r\n".len());
}

#[test]
fn what_was_forwarded_before_is_not_executed_on_a_copy_that_has_become_void() {
    let mut bed = Bed::new(2, &[]);
    let client = bed.connect(1, Entry);
    let key = key(0, 0);
    assert_eq!(bed.ask(client, &[&format!("SET {key} old")]), OK);
    bed.give(0, (BYZANTIUM, ShardId(0)));
    bed.send_routes(&[0]);
    // Shard 1 forwards it in front of its own routes.
    let reply = bed.ask(client, &[&format!("APPEND {key} x")]);
    assert_eq!(reply, moved(&key, "byzantium:8001"));
    let copy = bed.core(0).keyspace.partition(PartitionId(0));
    assert_eq!(copy.expect("still here").seq(), 1);
}

#[test]
fn a_command_that_is_redirected_is_rejected_and_no_call() {
    let mut bed = Bed::new(2, &[]);
    let client = bed.connect(0, Direct);
    let there = key(1, 0);
    for (words, cmd) in [
        (vec!["GET", &there], Cmd::Get),
        (vec!["WATCH", &there], Cmd::Watch),
        (vec!["EVAL", "return 1", "1", &there], Cmd::Eval),
        (vec!["SPUBLISH", &there, "x"], Cmd::Spublish),
    ] {
        bed.send_bytes(client, &command(&words));
        bed.settle();
        assert_eq!(bed.take(client), moved(&there, "127.0.0.1:7002"), "{cmd:?}");
        let stats = bed.core(0).stats().of(cmd);
        let counted = (stats.calls.get(), stats.rejected.get(), stats.failed.get());
        assert_eq!(counted, (0, 1, 0), "{cmd:?}");
    }
    let stats = bed.core(0).stats();
    assert!(stats.errors().any(|error| error == ("MOVED", 4)));
}
