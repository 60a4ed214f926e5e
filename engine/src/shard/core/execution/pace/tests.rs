//! What takes long is bounded, whoever sends how much of it.

use ephesus_wire::Lsn;
use ephesus_wire::resp::reply::Protocol;

use super::{STEPS_PER_LOOK, TIME_MAX, WORK_PER_LOOK};
use crate::command::error::ClientError;
use crate::command::spec::Cmd;
use crate::keyspace::WalkFilter;
use crate::net::ListenerKind::{Direct, Entry};
use crate::shard::bed::{Bed, Client, command, key};
use crate::shard::connection::Blocked;
use crate::shard::core::Asker;
use crate::shard::core::admission::LONG_TURN_BYTES;

/// Takes some milliseconds.
const LOOP: &str = "redis.call('TIME') for n = 1, 1000000 do end return 1";

fn calls(bed: &mut Bed, shard: u16, cmd: Cmd) -> u64 {
    bed.core(shard).stats().of(cmd).calls.get()
}

/// Two keys of a partition whose values take milliseconds to compare.
fn compared(bed: &mut Bed, client: Client, partition: u16) -> String {
    let tag = key(partition, 0);
    for (name, letter) in [("a", "x"), ("b", "y")] {
        let name = format!("{{{tag}}}{name}");
        bed.send_bytes(client, &command(&["SET", &name, &letter.repeat(1_400)]));
        bed.settle();
        bed.take(client);
    }
    format!("LCS {{{tag}}}a {{{tag}}}b LEN")
}

/// What takes long, as a client sends it, what it is answered at the end, and the command that is counted.
fn long_requests(bed: &mut Bed, partition: u16) -> [(Vec<u8>, &'static str, Cmd); 2] {
    let client = bed.connect(0, Entry);
    let lcs = compared(bed, client, partition);
    [
        (
            command(&["EVAL", LOOP, "1", &key(partition, 0)]),
            ":1\r\n",
            Cmd::Time,
        ),
        (
            format!("MULTI\r\n{lcs}\r\nEXEC\r\n").into_bytes(),
            "*1\r\n:0\r\n",
            Cmd::Lcs,
        ),
    ]
}

#[test]
fn a_turn_begins_no_more_scripts_and_transactions_once_it_has_spent_some_time_in_them() {
    let mut bed = Bed::new(1, &[]);
    for (request, answer, cmd) in long_requests(&mut bed, 0) {
        let clients: Vec<_> = (0..3).map(|_| bed.connect(0, Direct)).collect();
        let before = calls(&mut bed, 0, cmd);
        for client in &clients {
            // In one turn.
            bed.core(0).received(client.token, &request.repeat(3));
        }
        assert_eq!(calls(&mut bed, 0, cmd) - before, 1);
        for client in &clients {
            let connection = bed.core(0).connections.get(client.token);
            let blocked = connection.and_then(|connection| connection.blocked);
            assert!(matches!(
                blocked,
                Some(Blocked::LongTurn | Blocked::NextTurn)
            ));
        }
        // All have their turn.
        let mut answered = vec![0; clients.len()];
        for turns in 1..=9 {
            assert_eq!(calls(&mut bed, 0, cmd) - before, turns);
            bed.turn(0, 0);
            for (count, client) in answered.iter_mut().zip(&clients) {
                *count += bed.take(*client).matches(answer).count();
            }
            let (least, most) = (answered.iter().min(), answered.iter().max());
            let is_even = most
                .zip(least)
                .is_some_and(|(most, least)| most - least <= 2);
            assert!(is_even, "{answered:?}");
        }
        assert_eq!(answered, [3; 3]);
    }
}

#[test]
fn a_turn_executes_little_of_what_takes_long_for_other_shards() {
    let mut bed = Bed::new(2, &[]);
    for (request, answer, cmd) in long_requests(&mut bed, 0) {
        let client = bed.connect(1, Entry);
        let before = calls(&mut bed, 0, cmd);
        bed.send_bytes(client, &request.repeat(4));
        for turns in 1..=4 {
            bed.turn(0, usize::MAX);
            assert_eq!(calls(&mut bed, 0, cmd) - before, turns);
        }
        bed.settle();
        assert_eq!(bed.take(client).matches(answer).count(), 4);
    }
}

#[test]
fn few_commands_that_take_long_each_are_seen() {
    let mut bed = Bed::new(1, &[]);
    let core = bed.core(0);
    core.begin_pace();
    if let Some(pace) = &mut core.execution.pace {
        pace.since -= 2 * TIME_MAX;
    }
    for _ in 1..STEPS_PER_LOOK {
        assert_eq!(core.step(), Ok(()));
    }
    let too_long = ClientError::TransactionTime(1_000);
    assert_eq!(core.step(), Err(too_long.clone()));
    assert_eq!(core.step(), Ok(()));
    core.keyspace.add_work(WORK_PER_LOOK);
    assert_eq!(core.step(), Err(too_long));
    core.end_pace();
    // About two seconds are many turns.
    assert!(core.keyspace.take_work() > 1000 * LONG_TURN_BYTES);
}

#[test]
fn a_walk_behind_multi_ends_where_its_effects_are_too_large() {
    let mut bed = Bed::new(1, &[]);
    let client = bed.connect(0, Direct);
    bed.ask(client, &["SELECT 1", "SET a v", "SELECT 0"]);
    let long = "a".repeat(60_000);
    for n in 0..200 {
        bed.ask(client, &[&format!("SET {long}{n} v")]);
    }
    bed.take(client);
    let core = bed.core(0);
    core.keyspace.begin_atomic(1 << 20);
    let (mut out, mut gate) = (Vec::new(), Lsn::ZERO);
    let mut asker = Asker::Transaction {
        tracks: false,
        connection: None,
        client: (core.id, client.token),
        protocol: Protocol::Resp2,
        out: &mut out,
        gate: &mut gate,
    };
    let walked = core.begin_walk(&mut asker, WalkFilter::Remove);
    assert_eq!(walked, Err(ClientError::CommandTooLarge(1 << 20)));
    core.keyspace.roll_back_atomic();
    assert_eq!(core.keyspace.len(), 201);
    let replies = bed.ask(client, &["MULTI", "FLUSHDB", "EXEC", "DBSIZE"]);
    assert!(
        replies.contains("-ERR the command's effects exceed"),
        "{replies}"
    );
    assert!(replies.ends_with(":200\r\n"));
}
