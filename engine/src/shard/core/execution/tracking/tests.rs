//! Shards of one node, and clients that cache keys.

mod model;

use super::*;
use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{Bed, Client, key};

fn push(keys: &[&str]) -> String {
    let bulks = keys
        .iter()
        .map(|key| format!("${}\r\n{key}\r\n", key.len()));
    let bulks: String = bulks.collect();
    format!(">2\r\n$10\r\ninvalidate\r\n*{}\r\n{bulks}", keys.len())
}

const ALL: &str = ">2\r\n$10\r\ninvalidate\r\n_\r\n";

/// A client of that shard's entry port that is told of what it has read.
fn tracker(bed: &mut Bed, shard: u16, options: &str) -> Client {
    let client = bed.connect(shard, Entry);
    let told = bed.ask(
        client,
        &["HELLO 3", &format!("CLIENT TRACKING ON {options}")],
    );
    assert!(told.ends_with("+OK\r\n"), "{told}");
    client
}

#[test]
fn clients_of_all_shards_are_told_once_of_keys_of_all_shards() {
    let mut bed = Bed::new(3, &[]);
    let trackers = [0, 1, 2].map(|shard| tracker(&mut bed, shard, ""));
    let mut writer = bed.connect(1, Entry);
    for partition in 0..3 {
        let key = key(partition, 0);
        let (get, set) = (format!("GET {key}"), format!("SET {key} 1"));
        for client in trackers {
            let had = bed.ask(client, &[&get]);
            assert!(!had.starts_with('>'), "{had}");
        }
        assert_eq!(bed.ask(writer, &[&set, &set]), "+OK\r\n+OK\r\n");
        for client in trackers {
            assert_eq!(bed.take(client), push(&[&key]));
        }
        writer = bed.connect(partition, Entry);
    }
}

#[test]
fn nobody_is_told_before_it_is_committed() {
    let mut bed = Bed::new(2, &[]);
    let trackers = [0, 1].map(|shard| tracker(&mut bed, shard, ""));
    let (key, writer) = (key(0, 0), bed.connect(1, Entry));
    for client in trackers {
        bed.ask(client, &[&format!("GET {key}")]);
    }
    bed.hold_log();
    assert_eq!(bed.ask(writer, &[&format!("SET {key} 1")]), "");
    assert_eq!(trackers.map(|client| bed.take(client)), ["", ""]);
    // The reply to a read waits as well, and comes before.
    bed.send(trackers[1], &[&format!("GET {key}")]);
    bed.settle();
    assert_eq!(bed.take(trackers[1]), "");
    bed.release_log();
    assert_eq!(bed.take(writer), "+OK\r\n");
    assert_eq!(bed.take(trackers[0]), push(&[&key]));
    let told = bed.take(trackers[1]);
    assert!(
        told.ends_with(&push(&[&key])) && told.contains("$1\r\n1\r\n"),
        "{told}"
    );
}

#[test]
fn commands_of_several_shards_and_of_transactions_and_scripts_track_their_keys() {
    let mut bed = Bed::new(2, &[]);
    let writer = bed.connect(0, Entry);
    let [a, b] = [0, 1].map(|partition| key(partition, 0));
    for shard in [0, 1] {
        let client = tracker(&mut bed, shard, "");
        bed.ask(client, &[&format!("MGET {a} {b}")]);
        bed.ask(writer, &[&format!("MSET {a} 1 {b} 2")]);
        let told = bed.take(client);
        assert!(
            told.contains(&push(&[&a])) && told.contains(&push(&[&b])),
            "{told}"
        );
        assert_eq!(told.len(), push(&[&a]).len() + push(&[&b]).len());
        for key in [&a, &b] {
            bed.ask(client, &["MULTI", &format!("GET {key}"), "EXEC"]);
            bed.ask(writer, &[&format!("DEL {key}")]);
            assert_eq!(bed.take(client), push(&[key]));
            let script = format!("EVAL \"redis.call('get',KEYS[1])\" 1 {key}");
            bed.ask(client, &[&script]);
            bed.ask(writer, &[&format!("SET {key} 1")]);
            assert_eq!(bed.take(client), push(&[key]));
            let script = "EVAL \"redis.call('get',KEYS[1]) redis.call('set',KEYS[1],'x')\" 1";
            let told = bed.ask(client, &[&format!("{script} {key}")]);
            assert_eq!(told, format!("_\r\n{}", push(&[key])));
        }
    }
}

#[test]
fn caching_is_said_for_the_next_command_or_transaction() {
    let mut bed = Bed::new(2, &[]);
    let writer = bed.connect(0, Entry);
    let [a, b] = [0, 1].map(|partition| key(partition, 0));
    let set = format!("MSET {a} 1 {b} 1");
    let (get_a, get_b) = (format!("GET {a}"), format!("GET {b}"));
    for shard in [0, 1] {
        let client = tracker(&mut bed, shard, "OPTIN");
        for (commands, expected) in [
            (vec![&*get_a], ""),
            (vec!["CLIENT CACHING YES", &get_a, &get_b], &a),
            (vec!["CLIENT CACHING YES", "CLIENT ID", &get_b, &get_a], &b),
            (vec!["CLIENT CACHING YES", "NOSUCH", &get_b], ""),
            (vec!["CLIENT CACHING YES", "PING", &get_b], ""),
            (
                vec!["CLIENT CACHING YES", "MULTI", &get_b, "EXEC", &get_a],
                &b,
            ),
            (
                vec!["CLIENT CACHING YES", "MULTI", &get_b, "DISCARD", &get_a],
                "",
            ),
            (
                vec!["MULTI", "CLIENT CACHING YES", &get_b, "EXEC", &get_a],
                &b,
            ),
        ] {
            bed.ask(client, &commands);
            bed.ask(writer, &[&set]);
            let expected = match expected {
                "" => String::new(),
                key => push(&[key]),
            };
            assert_eq!(bed.take(client), expected, "{commands:?}");
        }
    }
}

#[test]
fn a_partition_that_moves_is_told_of_before_others_serve_it() {
    let mut bed = Bed::new(2, &[]);
    let client = tracker(&mut bed, 1, "");
    let (key, writer) = (key(0, 0), bed.connect(0, Entry));
    bed.ask(writer, &[&format!("SET {key} 1")]);
    bed.ask(client, &[&format!("GET {key}")]);
    bed.prepare_within(0, 1);
    bed.settle();
    assert_eq!(bed.take(client), push(&[&key]));
    bed.commit_within(0);
    bed.follow();
    bed.ask(writer, &[&format!("SET {key} 2")]);
    assert_eq!(bed.take(client), "");
    assert_eq!(bed.ask(client, &[&format!("GET {key}")]), "$1\r\n2\r\n");
    bed.move_away(0);
    bed.settle();
    assert_eq!(bed.take(client), push(&[&key]));
}

#[test]
fn clients_with_prefixes_are_told_of_a_partition_that_leaves() {
    let mut bed = Bed::new(2, &[]);
    let client = tracker(&mut bed, 1, "BCAST PREFIX nosuch");
    let other = tracker(&mut bed, 1, "");
    bed.move_away(0);
    bed.settle();
    assert_eq!(bed.take(client), ALL);
    assert_eq!(bed.take(other), "");
}

#[test]
fn a_client_is_told_of_what_expires_when_it_reads_it_itself() {
    let mut bed = Bed::new(2, &[]);
    let (key, writer) = (key(0, 0), bed.connect(0, Entry));
    for shard in [0, 1] {
        let client = tracker(&mut bed, shard, "NOLOOP");
        bed.ask(writer, &[&format!("SET {key} 1 PX 5")]);
        let get = format!("GET {key}");
        assert_eq!(bed.ask(client, &[&get]), "$1\r\n1\r\n");
        bed.advance(10);
        assert_eq!(bed.ask(client, &[&get]), format!("_\r\n{}", push(&[&key])));
        bed.kill(client);
    }
}

#[test]
fn flushes_are_told_of_by_each_shard_to_clients_with_prefixes() {
    let mut bed = Bed::new(3, &[]);
    let (client, writer) = (tracker(&mut bed, 0, "BCAST"), bed.connect(1, Entry));
    bed.ask(writer, &["FLUSHALL"]);
    assert_eq!(bed.take(client), ALL.repeat(3));
}

#[test]
fn one_flush_of_the_node_is_told_of_once_and_one_of_a_shard_to_those_who_may_have_its_keys() {
    let mut bed = Bed::new(3, &[]);
    let entry = [0, 1, 2].map(|shard| tracker(&mut bed, shard, ""));
    let direct = [0, 1].map(|shard| {
        let client = bed.connect(shard, Direct);
        bed.ask(client, &["HELLO 3", "CLIENT TRACKING ON"]);
        client
    });
    let writer = bed.connect(1, Entry);
    bed.ask(writer, &["FLUSHALL"]);
    for client in entry.into_iter().chain(direct) {
        assert_eq!(bed.take(client), ALL);
        bed.ask(client, &["PING"]);
    }
    bed.ask(writer, &["FLUSHDB"]);
    for client in entry.into_iter().chain(direct) {
        assert_eq!(bed.take(client), ALL);
    }
    let at_shard = bed.connect(1, Direct);
    bed.ask(entry[0], &["PING"]);
    bed.ask(at_shard, &["FLUSHALL"]);
    assert_eq!(bed.take(entry[0]), ALL);
    assert_eq!(bed.take(direct[0]), "");
}

#[test]
fn flushing_one_database_of_several_is_told_of_at_its_end() {
    let mut bed = Bed::new(2, &[]);
    let (client, writer) = (tracker(&mut bed, 0, ""), bed.connect(1, Entry));
    for key in [key(0, 0), key(1, 0)] {
        bed.ask(
            writer,
            &[
                &format!("SET {key} 1"),
                "SELECT 1",
                &format!("SET {key} 1"),
                "SELECT 0",
            ],
        );
        bed.ask(client, &[&format!("GET {key}")]);
    }
    assert_eq!(bed.ask(writer, &["FLUSHDB"]), "+OK\r\n");
    assert_eq!(bed.take(client), ALL);
}

#[test]
fn prefixes_are_told_of_whatever_was_read() {
    let mut bed = Bed::new(2, &[]);
    let writer = bed.connect(0, Entry);
    let [a, b] = [0, 1].map(|partition| key(partition, 0));
    let all = tracker(&mut bed, 0, "BCAST");
    let some = tracker(&mut bed, 1, &format!("BCAST PREFIX {a} PREFIX nosuch"));
    let own = tracker(&mut bed, 1, "BCAST NOLOOP");
    let direct = bed.connect(1, Direct);
    bed.ask(direct, &["HELLO 3", "CLIENT TRACKING ON BCAST"]);
    bed.ask(writer, &[&format!("MSET {a} 1 {b} 2")]);
    let told = |bed: &mut Bed, client| {
        let told = bed.take(client);
        (
            told.matches(&push(&[&a])).count(),
            told.matches(&push(&[&b])).count(),
            told.len(),
        )
    };
    let both = push(&[&a]).len() + push(&[&b]).len();
    assert_eq!(told(&mut bed, all), (1, 1, both));
    assert_eq!(told(&mut bed, own), (1, 1, both));
    assert_eq!(bed.take(some), push(&[&a]));
    assert_eq!(bed.take(direct), push(&[&b]), "of its shard");
    assert_eq!(bed.ask(own, &[&format!("SET {a} 3")]), "+OK\r\n");
    assert_eq!(
        [all, some].map(|client| bed.take(client)),
        [push(&[&a]), push(&[&a])]
    );
    // Nobody is told any more, and nothing of them is left.
    for client in [all, some, own, direct] {
        bed.ask(client, &["CLIENT TRACKING OFF"]);
    }
    bed.ask(writer, &[&format!("SET {a} 4")]);
    assert_eq!(bed.take(all), "");
    assert!(bed.core(0).node.prefixes.newest().is_empty());
    assert!(!bed.core(0).keyspace.is_observed());
}

#[test]
fn another_connection_is_told_instead() {
    let mut bed = Bed::new(3, &[]);
    let (key, writer) = (key(2, 0), bed.connect(0, Entry));
    for target_shard in [0, 1, 2] {
        let (client, target) = (bed.connect(1, Entry), bed.connect(target_shard, Entry));
        let id = bed.ask(target, &["CLIENT ID"]);
        let id = id.trim_matches([':', '\r', '\n']).to_owned();
        let on = format!("CLIENT TRACKING ON REDIRECT {id}");
        assert_eq!(
            bed.ask(client, &[&on, "CLIENT GETREDIR"]),
            format!("+OK\r\n:{id}\r\n")
        );
        let get = format!("GET {key}");
        let set = format!("SET {key} 1");
        bed.ask(client, &[&get]);
        bed.ask(writer, &[&set]);
        assert_eq!(bed.take(target), "", "it has not subscribed");
        bed.ask(target, &["SUBSCRIBE __redis__:invalidate"]);
        bed.ask(client, &[&get]);
        bed.ask(writer, &[&set]);
        let head = "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n";
        let keys = format!("*1\r\n${}\r\n{key}\r\n", key.len());
        assert_eq!(bed.take(target), format!("{head}{keys}"));
        bed.ask(writer, &["FLUSHALL"]);
        let told = bed.take(target);
        assert!(told.starts_with(&format!("{head}$-1\r\n")), "{told}");
        bed.ask(target, &["UNSUBSCRIBE", "HELLO 3"]);
        bed.ask(client, &[&get]);
        bed.ask(writer, &[&set]);
        assert_eq!(bed.take(target), push(&[&key]));
        // It goes, and the client is told when there is something to tell.
        bed.kill(target);
        bed.settle();
        bed.ask(client, &["HELLO 3"]);
        let info = bed.ask(client, &["CLIENT TRACKINGINFO"]);
        assert!(!info.contains("broken"), "{info}");
        bed.ask(client, &[&get]);
        bed.ask(writer, &[&set]);
        let broken = format!(">2\r\n$21\r\ntracking-redir-broken\r\n:{id}\r\n");
        assert_eq!(bed.take(client), broken);
        let info = bed.ask(client, &["CLIENT TRACKINGINFO", "CLIENT INFO"]);
        assert!(
            info.contains("broken_redirect") && info.contains(" flags=tR "),
            "{info}"
        );
        let other = format!("CLIENT TRACKING ON REDIRECT {id}");
        assert_eq!(
            bed.ask(client, &[&other, "CLIENT GETREDIR"]),
            format!("-ERR The client ID you want redirect to does not exist\r\n:{id}\r\n")
        );
        bed.kill(client);
        bed.settle();
    }
}

#[test]
fn a_client_may_be_told_on_its_own_connection_under_resp2() {
    let mut bed = Bed::new(2, &[]);
    let (client, writer) = (bed.connect(0, Entry), bed.connect(1, Entry));
    let id = bed.ask(client, &["CLIENT ID"]);
    let on = format!(
        "CLIENT TRACKING ON REDIRECT {}",
        id.trim_matches([':', '\r', '\n'])
    );
    let key = key(1, 0);
    bed.ask(client, &[&on, &format!("GET {key}"), "SUBSCRIBE x"]);
    bed.ask(writer, &[&format!("SET {key} 1")]);
    let told = bed.take(client);
    assert!(told.starts_with("*3\r\n$7\r\nmessage\r\n"), "{told}");
}

#[test]
fn clients_that_leave_free_the_tables() {
    let mut bed = Bed::new(2, &[]);
    for shard in [0, 1] {
        let client = tracker(&mut bed, shard, "");
        for partition in 0..4 {
            bed.ask(client, &[&format!("GET {}", key(partition, 0))]);
        }
        let tracked = [0, 1].map(|shard| bed.core(shard).keyspace.tracked());
        assert_eq!(tracked, [(2, 2); 2]);
        assert_eq!(bed.core(shard).stats().tracking_clients.get(), 1);
        bed.kill(client);
        bed.settle();
        for shard in [0, 1] {
            while bed.core(shard).keyspace.free_slice(1) {}
            assert_eq!(bed.core(shard).keyspace.tracked(), (0, 0));
        }
        assert_eq!(bed.core(shard).stats().tracking_clients.get(), 0);
        assert!(bed.core(shard).execution.tracking.clients.is_empty());
    }
}

#[test]
fn what_a_client_says_ends_with_reset() {
    let mut bed = Bed::new(2, &[]);
    let client = tracker(&mut bed, 0, "BCAST PREFIX a");
    assert!(bed.ask(client, &["CLIENT INFO"]).contains(" flags=tB "));
    bed.ask(client, &["RESET"]);
    let info = bed.ask(client, &["CLIENT INFO", "CLIENT GETREDIR"]);
    assert!(
        info.contains(" flags=N ") && info.contains(" redir=-1 "),
        "{info}"
    );
    assert!(info.ends_with(":-1\r\n"));
    assert!(bed.core(0).node.prefixes.newest().is_empty());
    let refused = bed.ask(client, &["MULTI", "CLIENT TRACKING ON", "EXEC"]);
    assert!(
        refused.contains("-ERR Command not allowed inside a transaction"),
        "{refused}"
    );
}

#[test]
fn a_client_that_does_not_read_is_closed() {
    let mut bed = Bed::new(1, &[]);
    let (client, writer) = (tracker(&mut bed, 0, "BCAST"), bed.connect(0, Entry));
    bed.stop_reading(client);
    let key = "k".repeat(60_000);
    for _ in 0..1000 {
        bed.ask(writer, &[&format!("SET {key} 1")]);
        if !bed.is_open(client) {
            return;
        }
    }
    panic!("it holds {} bytes", bed.held_bytes(client));
}

#[test]
fn clients_are_told_that_all_has_changed_where_there_is_too_much_to_tell() {
    let mut bed = Bed::new(2, &[]);
    let (client, writer) = (tracker(&mut bed, 0, ""), bed.connect(1, Entry));
    let name = |n: usize| format!("{{{}}}{n:060000}", key(1, 0));
    let count = 40;
    for n in 0..count {
        bed.ask(client, &[&format!("GET {}", name(n))]);
    }
    let limits = TrackedLimits {
        keys: 10,
        bytes: 1 << 20,
        ..TrackedLimits::default()
    };
    bed.core(1).keyspace.set_tracked_limits(limits);
    bed.ask(client, &["GET a", &format!("GET {}", key(1, 7))]);
    let told = bed.take(client);
    assert_eq!(told, "", "it was taken with the replies");
    assert!(bed.core(1).keyspace.tracked().0 <= 10);
    bed.core(1).keyspace.invalidate_all();
    bed.ask(writer, &["PING"]);
    assert_eq!(bed.take(client), ALL);
    assert_eq!(bed.core(1).keyspace.tracked(), (0, 0));
}

#[test]
fn a_key_with_many_prefixes_is_not_queued_beyond_the_bound() {
    const CLIENTS: usize = 200;
    const KEY: usize = 60_000;
    for shards in [1, 2] {
        let mut bed = Bed::new(shards, &[]);
        let clients: Vec<Client> = (1..=CLIENTS)
            .map(|n| {
                let shard = n as u16 % shards;
                tracker(&mut bed, shard, &format!("BCAST PREFIX {}", "k".repeat(n)))
            })
            .collect();
        let key = "k".repeat(KEY);
        let writer = bed.connect(0, Entry);
        bed.send(writer, &[&format!("SET {key} 1")]);
        let held = |bed: &mut Bed| {
            (0..shards)
                .map(|shard| {
                    let core = bed.core(shard);
                    let bytes = core.execution.pubsub.held_bytes();
                    let max = core.admission.client_budget.queue_bytes_max;
                    assert!(bytes <= max + 2 * KEY, "{bytes} of {max} bytes");
                    bytes
                })
                .sum::<usize>()
        };
        let mut most = 0;
        for turn in 0..400 {
            bed.turn(turn % shards, 4);
            most = most.max(held(&mut bed));
        }
        assert!(shards > 1 || most > 1 << 20, "{most}: nothing has waited");
        bed.settle();
        let told = clients.into_iter().map(|client| bed.take(client));
        let (of_key, of_all): (Vec<_>, Vec<_>) = told
            .map(|told| (told.contains(&push(&[&key])), told.ends_with(ALL)))
            .unzip();
        assert!(of_key.iter().zip(&of_all).all(|(key, all)| *key || *all));
        let count = of_key.into_iter().filter(|told| *told).count();
        assert!(
            (10..CLIENTS - 10).contains(&count),
            "{count} told of the key"
        );
    }
}
