use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{Bed, key};

const OK: &str = "+OK\r\n";
const NULL: &str = "$-1\r\n";
const START: &str = "HOTKEYS START METRICS 2 CPU NET COUNT 64";

#[test]
fn what_a_session_has_found_stands_still_once_it_is_over() {
    for shards in [1, 2] {
        let mut bed = Bed::new(shards, &[]);
        let client = bed.connect(0, Entry);
        assert_eq!(bed.ask(client, &["HOTKEYS STOP"]), NULL);
        for ends_by_itself in [true, false] {
            let duration = if ends_by_itself { " DURATION 1" } else { "" };
            assert_eq!(bed.ask(client, &[&format!("{START}{duration}")]), OK);
            let sets: Vec<String> = (0..50).map(|n| format!("SET {} v", key(1, n))).collect();
            let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
            bed.ask(client, &sets[..9]);
            let running = bed.ask(client, &["HOTKEYS GET"]);
            assert!(running.contains("tracking-active\r\n:1\r\n"), "{running}");
            bed.advance(1_000);
            let answer = bed.ask(client, &["HOTKEYS STOP"]);
            assert_eq!(answer, if ends_by_itself { NULL } else { OK });
            assert_eq!(bed.ask(client, &["HOTKEYS STOP"]), NULL);
            let found = bed.ask(client, &["HOTKEYS GET"]);
            assert!(found.contains("tracking-active\r\n:0\r\n"), "{found}");
            assert!(found.contains(&key(1, 8)) && !found.contains(&key(1, 9)));
            for _ in 0..50 {
                bed.ask(client, &sets);
            }
            bed.ask(client, &["CONFIG RESETSTAT"]);
            bed.advance(1_000);
            assert_eq!(bed.ask(client, &["HOTKEYS GET"]), found);
        }
        assert_eq!(bed.ask(client, &["HOTKEYS RESET"]), OK);
        assert_eq!(bed.ask(client, &["HOTKEYS GET"]), NULL);
    }
}

#[test]
fn keys_that_are_shown_alike_are_not_added_up() {
    for shards in [1, 2] {
        let mut bed = Bed::new(shards, &[]);
        let client = bed.connect(0, Entry);
        let long = format!("{{{}}}{}", key(0, 0), "x".repeat(128));
        assert_eq!(bed.ask(client, &[START]), OK);
        bed.ask(client, &[&format!("GET {long}1"), &format!("GET {long}2")]);
        let name = key(1, 0);
        for database in ["SELECT 0", "SELECT 1"] {
            bed.ask(client, &[database, &format!("GET {name}")]);
        }
        let found = bed.ask(client, &["HOTKEYS GET"]);
        let (_, by_bytes) = found.split_once("by-net-bytes").expect("told");
        assert!(by_bytes.starts_with("\r\n*8\r\n"), "{by_bytes}");
        assert_eq!(by_bytes.matches(&format!("\r\n{name}\r\n:")).count(), 2);
    }
}

#[test]
fn the_entry_port_tells_of_one_session() {
    let mut bed = Bed::new(2, &[]);
    let (entry, direct) = (bed.connect(0, Entry), bed.connect(1, Direct));
    let sets = [0, 1].map(|partition| format!("SET {} v", key(partition, 0)));
    assert_eq!(bed.ask(entry, &[START]), OK);
    assert!(bed.ask(direct, &[START]).contains("already in progress"));
    bed.ask(entry, &[&sets[0]]);
    assert_eq!(bed.ask(entry, &["HOTKEYS STOP"]), OK);
    assert_eq!(bed.ask(direct, &["HOTKEYS START METRICS 1 NET"]), OK);
    assert!(bed.ask(entry, &[START]).contains("already in progress"));
    bed.ask(entry, &[&sets[1]]);
    let found = bed.ask(entry, &["HOTKEYS GET"]);
    assert!(
        !found.contains(&key(0, 0)) && !found.contains("by-cpu"),
        "{found}"
    );
    assert_eq!(found, bed.ask(direct, &["HOTKEYS GET"]));
    assert_eq!(bed.ask(entry, &["HOTKEYS STOP"]), OK);
    assert_eq!(bed.ask(direct, &["HOTKEYS STOP"]), NULL);
}

#[test]
fn clients_of_all_shards_who_start_at_once_have_one_session() {
    let mut bed = Bed::new(3, &[]);
    let clients = [0, 1, 2].map(|shard| bed.connect(shard, Entry));
    for _ in 0..3 {
        for (n, client) in (1..).zip(clients) {
            bed.send(
                client,
                &[&format!("HOTKEYS START METRICS 1 NET SAMPLE {n}")],
            );
        }
        bed.settle();
        let answers = clients.map(|client| bed.take(client));
        assert_eq!(
            answers.iter().filter(|answer| *answer == OK).count(),
            1,
            "{answers:?}"
        );
        let tracked = [0, 1, 2].map(|shard| {
            let tracking = bed.core(shard).keyspace.tracking.as_ref().expect("begun");
            (tracking.session().number, tracking.session().wanted.ratio)
        });
        assert!(
            tracked.iter().all(|session| *session == tracked[0]),
            "{tracked:?}"
        );
        // Whose parts come late, or behind those of what follows.
        bed.send(clients[2], &["HOTKEYS STOP", "HOTKEYS RESET"]);
        bed.send(
            clients[1],
            &["HOTKEYS START METRICS 1 NET SAMPLE 9", "HOTKEYS STOP"],
        );
        bed.send(clients[0], &["HOTKEYS RESET"]);
        bed.settle();
        clients.iter().for_each(|client| drop(bed.take(*client)));
        assert!(
            [0, 1, 2]
                .iter()
                .all(|shard| bed.core(*shard).keyspace.tracking.is_none())
        );
    }
}
