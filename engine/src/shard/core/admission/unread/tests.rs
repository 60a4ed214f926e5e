use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{Bed, Client, OUTPUT_TIMEOUT, key};
use crate::shard::connection::{KEYLESS_BYTES, OUTPUT_BYTES_MAX, TURN_BYTES};

const VALUE_BYTES: usize = 50_000;

/// A client that has begun to read the replies to `commands`, and goes on when the kernel has sent them.
fn asked(bed: &mut Bed, commands: &[u8]) -> Client {
    let value = "v".repeat(VALUE_BYTES);
    let client = bed.connect(0, Direct);
    bed.ask(client, &[&format!("SET {} {value}", key(0, 0))]);
    bed.stop_reading(client);
    bed.send_bytes(client, commands);
    bed.settle();
    client
}

fn gets(count: usize) -> Vec<u8> {
    format!("GET {}\r\n", key(0, 0)).repeat(count).into_bytes()
}

#[test]
fn a_client_that_does_not_read_is_owed_little_and_gets_everything_once_it_does() {
    let mut bed = Bed::new(1, &[]);
    let client = asked(&mut bed, &gets(500));
    let most = 2 * OUTPUT_BYTES_MAX + 2 * VALUE_BYTES;
    assert!(bed.held_bytes(client) < most, "{}", bed.held_bytes(client));
    bed.go_on_reading(client);
    bed.settle();
    let reply = 1 + 5 + 2 + VALUE_BYTES + 2;
    assert_eq!(bed.take(client).len(), 500 * reply);
}

#[test]
fn who_only_gets_errors_has_to_read_them_as_well() {
    let mut bed = Bed::new(1, &[]);
    for command in ["a\r\n", "GET\r\n"] {
        let client = asked(&mut bed, &command.repeat(1_000_000).into_bytes());
        bed.advance(10_000);
        let most = 2 * OUTPUT_BYTES_MAX + 5 * command.len() * 1_000_000;
        assert!(bed.held_bytes(client) < most, "{}", bed.held_bytes(client));
        let left = bed.input_bytes(client);
        assert!(left > 900_000 * command.len(), "{left} bytes are left");
    }
}

#[test]
fn many_small_replies_that_are_not_read_cost_what_they_are() {
    let mut bed = Bed::new(1, &[]);
    let client = asked(&mut bed, b"");
    let before = bed.held_bytes(client);
    let pings = 50_000;
    for _ in 0..pings {
        bed.send_bytes(client, b"PING\r\n");
    }
    let held = bed.held_bytes(client) - before;
    assert!(
        held < 2 * 7 * pings,
        "{held} bytes for {pings} replies of 7"
    );
}

#[test]
fn one_connection_takes_a_share_of_each_turn() {
    let mut bed = Bed::new(1, &[]);
    let [greedy, other] = [0, 0].map(|shard| bed.connect(shard, Direct));
    let looks_at_much = TURN_BYTES / KEYLESS_BYTES;
    for (command, most) in [
        ("TTL absent\r\n", TURN_BYTES / 12),
        ("DBSIZE\r\n", looks_at_much),
    ] {
        let count = 4 * TURN_BYTES / command.len();
        bed.send_bytes(greedy, &command.repeat(count).into_bytes());
        let replies = |text: String| text.lines().count();
        let first = replies(bed.take(greedy));
        assert!((1..=most + 1).contains(&first), "{first} in one turn");
        bed.send_bytes(other, b"PING\r\n");
        assert_eq!(bed.take(other), "+PONG\r\n");
        bed.settle();
        assert_eq!(first + replies(bed.take(greedy)), count);
    }
}

#[test]
fn who_takes_nothing_is_read_on_within_a_bound_and_closed_in_the_end() {
    let mut bed = Bed::new(1, &[]);
    let client = asked(&mut bed, &gets(20_000));
    assert!(!bed.wants_input(client), "it may be about to read");
    bed.advance(200);
    bed.advance(200);
    assert!(
        bed.wants_input(client),
        "it may want to send everything first"
    );
    let timeout = OUTPUT_TIMEOUT.as_millis() as u64;
    bed.advance(timeout - 1_000);
    assert!(bed.is_open(client));
    bed.advance(1_000);
    assert!(!bed.is_open(client));
    assert_eq!(bed.held_bytes(client), 0);
}

#[test]
fn who_takes_a_little_now_and_then_stays() {
    let mut bed = Bed::new(1, &[]);
    let client = asked(&mut bed, &gets(100));
    let timeout = OUTPUT_TIMEOUT.as_millis() as u64;
    for _ in 0..10 {
        bed.advance(timeout / 2);
        bed.read_once(client);
        bed.advance(timeout / 4);
        assert!(bed.is_open(client));
    }
}

#[test]
fn who_waits_for_replies_that_it_has_to_read_first_is_read_on_and_closed_in_the_end() {
    let mut bed = Bed::new(2, &[]);
    let large = key(1, 0);
    let client = bed.connect(0, Entry);
    let append = format!("APPEND {large} {}", "v".repeat(VALUE_BYTES));
    for count in 1..=OUTPUT_BYTES_MAX / VALUE_BYTES + 1 {
        let len = bed.ask(client, &[&append]);
        assert_eq!(len, format!(":{}\r\n", count * VALUE_BYTES));
    }
    bed.stop_reading(client);
    let gets = format!("GET {large}\r\n").repeat(10);
    // What is behind DBSIZE waits for its reply, which comes behind those that are not read.
    bed.send_bytes(client, format!("{gets}DBSIZE\r\n").as_bytes());
    bed.send_bytes(client, &b"PING\r\n".repeat(20_000));
    bed.settle();
    bed.advance(200);
    bed.advance(200);
    assert!(
        bed.wants_input(client),
        "it may want to send everything first"
    );
    bed.advance(OUTPUT_TIMEOUT.as_millis() as u64);
    assert!(!bed.is_open(client));
}

#[test]
fn who_leaves_replies_that_stop_no_command_is_closed_as_well() {
    let mut bed = Bed::new(1, &[]);
    let [leaves_much, leaves_little] = [2, 1].map(|count| asked(&mut bed, &gets(count)));
    bed.advance(200);
    let timeout = OUTPUT_TIMEOUT.as_millis() as u64;
    bed.advance(timeout - 1_000);
    assert!(bed.is_open(leaves_much));
    bed.advance(1_000);
    assert!(!bed.is_open(leaves_much));
    assert!(bed.is_open(leaves_little));
}
