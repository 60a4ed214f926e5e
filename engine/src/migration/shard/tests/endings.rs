//! ShardMigrations that end before their end, at every point: the source serves, nothing is lost or held.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use ephesus_coordinator::link::PeerStream;
use ephesus_wire::MigrationId;
use ephesus_wire::stream::Message;

use super::bed::{Bed, EPOCH, MOVING, OTHER, TO, WIRES, Wire, open, orders, sockets};
use super::sealed::sealed;
use crate::keyspace::Partition;
use crate::migration::ends::tests::workload::words;
use crate::migration::shard::source::{HANDOFF_INTERVAL_MS, HOLD_MAX, OVERDUE_AFTER};
use crate::migration::{Order, Report, Way};
use crate::planted::{Bug, Planted};

/// What ends a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Aborted,
    Cut,
    DiskFull,
    SourceRestarts,
    TargetRestarts,
}

const ENDINGS: [Ending; 5] = [
    Ending::Aborted,
    Ending::Cut,
    Ending::DiskFull,
    Ending::SourceRestarts,
    Ending::TargetRestarts,
];

/// Lets a move go on for so many turns, ends it, and moves the partition as a whole after that.
fn end(wire: Wire, ending: Ending, turns: u64, seed: u64) {
    let mut bed = Bed::new(seed);
    bed.load(1_500);
    let mut cut = None;
    match wire {
        Wire::Inboxes => bed.begin(wire),
        Wire::Sockets | Wire::Sealed => {
            let both = sockets();
            cut = Some(both[0].try_clone().expect("a descriptor"));
            let ways = match wire {
                Wire::Sealed => sealed(both),
                _ => both.map(PeerStream::from),
            };
            bed.begin_over(ways.map(Way::Node));
        }
    }
    for _ in 0..turns {
        bed.write(10);
        bed.turn();
    }
    let was_confirmed = bed.source.is_confirmed();
    let now = bed.now;
    match ending {
        Ending::Aborted => {}
        Ending::Cut => {
            if let Some(cut) = cut {
                cut.shutdown(Shutdown::Both).expect("a socket");
            }
        }
        Ending::DiskFull => {
            bed.target.core.node.disk.set(true, 0, 0);
        }
        Ending::SourceRestarts => {
            bed.source.restart(now);
            // Replay does not know of moves that were going on.
            bed.source.core.keyspace.end_outgoing(MOVING);
            bed.source.core.resume(MOVING);
        }
        Ending::TargetRestarts => {
            bed.target.restart(now);
            bed.target.core.keyspace.stream_broken(MOVING);
        }
    }
    bed.settle();
    bed.target.core.node.disk.set(false, 0, 0);
    if was_confirmed && ending != Ending::SourceRestarts {
        assert_eq!(
            bed.source.reason(),
            None,
            "what is confirmed is decided by the table"
        );
        assert!(bed.source.core.is_held(MOVING));
    }
    bed.abort();
    assert!(!bed.source.core.is_held(MOVING));
    bed.compare();
    bed.write(50);
    bed.begin(wire);
    bed.until("the next move", |bed| bed.source.is_confirmed());
    bed.commit();
    bed.compare();
}

#[test]
fn a_move_may_end_at_any_point() {
    for (at, ending) in (0..).zip(ENDINGS) {
        for wire in WIRES {
            for turns in [0, 1, 2, 3, 4, 6, 8, 11, 15, 20, 30, 60] {
                end(wire, ending, turns, 100 * at + turns);
            }
        }
    }
}

/// A move of so many keys that has begun over sockets, and one of these, to cut the stream with.
fn begun_over_sockets(keys: u64, bug: Option<Bug>) -> (Bed, TcpStream) {
    let mut bed = Bed::new(3);
    bed.target.core.keyspace.planted = Planted::new(bug);
    bed.load(keys);
    let both = sockets();
    let cut = both[0].try_clone().expect("a descriptor");
    bed.begin_over(both.map(|end| Way::Node(end.into())));
    (bed, cut)
}

/// Whether the target has wiped a copy.
fn has_wiped(bed: &Bed) -> bool {
    let is_wiped = |report: &Report| matches!(report, Report::Wiped { .. });
    bed.target.has_told(is_wiped)
}

/// A move whose stream breaks once the target has prepared, and that is committed after that.
fn broken_behind_prepared(bug: Option<Bug>) -> Bed {
    let (mut bed, cut) = begun_over_sockets(500, bug);
    bed.until("the move", |bed| bed.source.is_confirmed());
    cut.shutdown(Shutdown::Both).expect("a socket");
    bed.settle();
    bed
}

#[test]
fn a_prepared_copy_outlives_its_stream() {
    let mut bed = broken_behind_prepared(None);
    assert!(!has_wiped(&bed), "without the table's word");
    bed.commit();
    bed.compare();
}

#[test]
fn a_prepared_copy_that_goes_with_its_stream_is_caught() {
    let bed = broken_behind_prepared(Some(Bug::PreparedWiped));
    assert!(has_wiped(&bed));
}

#[test]
fn a_copy_without_its_end_goes_with_its_stream() {
    let (mut bed, cut) = begun_over_sockets(2_000, None);
    bed.until("the first records", |bed| bed.received() > 1);
    let copy = bed.target.core.keyspace.partition(MOVING);
    assert!(!copy.expect("a copy").is_prepared(), "more has to come");
    cut.shutdown(Shutdown::Both).expect("a socket");
    bed.forget_staging();
    bed.compare();
}

#[test]
fn a_copy_whose_end_is_not_durable_yet_outlives_its_stream() {
    let (mut bed, cut) = begun_over_sockets(500, None);
    bed.until("the hold", |bed| bed.source.core.is_held(MOVING));
    bed.target.commits = false;
    let has_end = |bed: &Bed| {
        let copy = bed.target.core.keyspace.partition(MOVING);
        copy.is_some_and(Partition::is_prepared)
    };
    bed.until("the end of the stream", has_end);
    cut.shutdown(Shutdown::Both).expect("a socket");
    bed.settle();
    bed.target.commits = true;
    bed.settle();
    assert!(has_end(&bed) && !has_wiped(&bed));
    // Its source cannot know, and nobody has committed.
    bed.abort();
    bed.compare();
}

#[test]
fn a_copy_that_is_served_outlives_its_stream() {
    // The stream breaks before, with or after the table's word.
    for turns in [0, 1, 20] {
        for is_cut_first in [true, false] {
            let (mut bed, cut) = begun_over_sockets(500, None);
            bed.until("the move", |bed| bed.source.is_confirmed());
            let cut = || cut.shutdown(Shutdown::Both);
            if is_cut_first {
                cut().expect("a socket");
            } else {
                bed.order_target(bed.committed());
            }
            for _ in 0..turns {
                bed.turn();
            }
            if is_cut_first {
                bed.order_target(bed.committed());
            } else {
                // Whoever was told to has closed it before.
                let _ = cut();
            }
            bed.settle();
            assert!(bed.target.core.keyspace.owns(MOVING) && !has_wiped(&bed));
            bed.commit();
            bed.compare();
        }
    }
}

#[test]
fn a_target_that_is_occupied_refuses_with_its_reason() {
    for wire in WIRES {
        let mut bed = Bed::new(1);
        bed.load(100);
        let other = crate::keyspace::tests::tape::Taped::of(
            1,
            vec![Partition::new(MOVING, EPOCH)],
            [1, 2, 3, 4],
            0,
        );
        let free = std::mem::replace(&mut bed.target.core.keyspace, other.keyspace);
        bed.begin(wire);
        bed.until("a refusal", |bed| bed.source.reason().is_some());
        bed.until("the end of streams", Bed::is_quiet);
        let reason = "a copy of partition 0 with epoch 2 is here";
        assert_eq!(bed.target.reason(), Some(reason));
        let reason = format!("the target: {reason}");
        assert_eq!(bed.source.reason(), Some(&reason[..]));
        bed.target.core.keyspace = free;
        bed.compare();
    }
}

#[test]
fn a_source_that_does_not_serve_gives_up_at_once() {
    let mut bed = Bed::new(1);
    bed.load(100);
    bed.begin(Wire::Sockets);
    bed.until("the move", |bed| bed.source.is_confirmed());
    bed.commit();
    bed.begin(Wire::Sockets);
    bed.until("the end", |bed| bed.source.reason().is_some());
    assert_eq!(bed.source.reason(), Some("partition 0 is not served here"));
}

/// A move whose target's disk stands still once commands are held.
fn held(wire: Wire) -> Bed {
    let mut bed = Bed::new(1);
    bed.load(500);
    bed.begin(wire);
    bed.until("the hold", |bed| bed.source.core.is_held(MOVING));
    bed.target.commits = false;
    bed
}

#[test]
fn a_hold_that_takes_too_long_is_rolled_back() {
    for wire in WIRES {
        let mut bed = held(wire);
        bed.execute(words("SET a 1"));
        bed.settle();
        assert!(!bed.source.is_confirmed() && bed.held() == 1);
        bed.pass(HOLD_MAX.as_millis() as u64 - 1);
        bed.settle();
        assert_eq!(bed.source.reason(), None);
        bed.pass(1);
        bed.settle();
        let reason = "the target has not confirmed within 300 ms";
        assert_eq!(bed.source.reason(), Some(reason));
        bed.release();
        bed.target.commits = true;
        bed.abort();
        bed.compare();
    }
}

#[test]
fn what_the_target_says_behind_its_confirmation_changes_nothing() {
    for wire in WIRES {
        let mut bed = Bed::new(1);
        bed.load(500);
        bed.begin(wire);
        bed.until("the hold", |bed| bed.source.core.is_held(MOVING));
        bed.turn();
        bed.source.runs = false;
        let is_prepared = |bed: &Bed| {
            let copy = bed.target.core.keyspace.partition(MOVING);
            copy.is_some_and(Partition::is_prepared)
        };
        bed.until("the end of the stream", is_prepared);
        bed.settle();
        // Somebody has cancelled the move, and the target hears of it first: PREPARED and END are one read.
        bed.order_target(bed.aborted());
        bed.settle();
        bed.source.runs = true;
        bed.settle();
        assert!(bed.source.is_confirmed());
        assert_eq!(bed.source.reason(), None);
        assert!(bed.source.core.is_held(MOVING), "the table decides");
        bed.abort();
        bed.compare();
    }
}

#[test]
fn a_decision_that_is_overdue_is_asked_for_once_and_waited_for() {
    for commits in [true, false] {
        let mut bed = Bed::new(1);
        bed.load(500);
        bed.begin(Wire::Sockets);
        bed.until("the move", |bed| bed.source.is_confirmed());
        let is_overdue = |report: &Report| matches!(report, Report::Overdue { .. });
        bed.settle();
        assert_eq!(bed.source.count(is_overdue), 0);
        bed.pass(OVERDUE_AFTER.as_millis() as u64);
        bed.settle();
        bed.pass(60_000);
        bed.settle();
        assert_eq!(bed.source.count(is_overdue), 1);
        bed.execute(words("SET a 1"));
        assert_eq!(bed.held(), 1);
        match commits {
            true => bed.commit(),
            false => bed.abort(),
        }
        bed.compare();
        assert_eq!(bed.target.core.keyspace.owns(MOVING), commits);
    }
}

#[test]
fn a_silent_target_is_given_up() {
    for wire in WIRES {
        let mut bed = Bed::new(1);
        bed.load(500);
        bed.begin(wire);
        bed.turn();
        bed.target.runs = false;
        bed.settle();
        bed.pass(9_999);
        bed.settle();
        assert_eq!(bed.source.reason(), None);
        bed.pass(251);
        bed.settle();
        let reason = "the target has been silent for 10 s";
        assert_eq!(bed.source.reason(), Some(reason));
        bed.target.runs = true;
        bed.forget_staging();
        bed.compare();
    }
}

#[test]
fn a_silent_source_leaves_no_staging_copy() {
    for wire in WIRES {
        let mut bed = Bed::new(1);
        bed.load(500);
        bed.begin(wire);
        bed.turn();
        bed.source.runs = false;
        bed.settle();
        bed.pass(10_000);
        bed.until("wiping", |bed| bed.target.reason().is_some());
        let reason = "the source has been silent for 10 s";
        assert_eq!(bed.target.reason(), Some(reason));
    }
}

#[test]
fn a_source_that_waits_for_its_turn_or_a_limit_is_not_silent() {
    for wire in WIRES {
        let mut bed = Bed::of(2, 1);
        bed.fill(MOVING, 2_000);
        bed.fill(OTHER, 2_000);
        // One batch is walked at a time, and takes half an hour.
        bed.order_source(Order::Limit(1_000));
        bed.begin(wire);
        bed.begin_other(wire);
        bed.until("the first records", |bed| bed.received() > 1);
        for _ in 0..13 {
            bed.settle();
            let next = bed.source.migrations.next_look();
            assert!(next.is_none_or(|next| next > bed.now), "nothing is due");
            bed.pass(2_000);
        }
        assert_eq!((bed.source.reason(), bed.target.reason()), (None, None));
        assert!(!bed.source.is_confirmed(), "both are under way");
        bed.order_source(Order::Limit(0));
        let is_confirmed = |report: &Report| matches!(report, Report::Confirmed { .. });
        bed.until("the first", |bed| bed.source.is_confirmed());
        bed.pass(HANDOFF_INTERVAL_MS);
        bed.until("both", |bed| bed.source.count(is_confirmed) == 2);
    }
}

#[test]
fn nothing_is_due_at_a_source_with_a_limit_whose_target_takes_nothing() {
    let mut bed = Bed::new(1);
    bed.fill(MOVING, 2_000);
    bed.order_source(Order::Limit(1_000));
    bed.begin(Wire::Sockets);
    bed.until("the first records", |bed| bed.received() > 1);
    bed.target.core.admission.log_room.has_room_for_moves = false;
    for _ in 0..60 {
        bed.settle();
        let next = bed.source.migrations.next_look();
        assert!(
            next.is_none_or(|next| next > bed.now),
            "it is looked at without end"
        );
        bed.pass(1_000);
    }
}

#[test]
fn a_target_whose_disk_is_slow_is_not_silent() {
    for wire in WIRES {
        let mut bed = Bed::new(1);
        bed.load(500);
        bed.begin(wire);
        bed.turn();
        bed.target.commits = false;
        for _ in 0..13 {
            bed.settle();
            bed.pass(2_000);
        }
        assert_eq!((bed.source.reason(), bed.target.reason()), (None, None));
        bed.target.commits = true;
        bed.until("the move", |bed| bed.source.is_confirmed());
        bed.commit();
        bed.compare();
    }
}

#[test]
fn a_target_without_room_takes_nothing_and_nobody_gives_up() {
    for wire in WIRES {
        let mut bed = Bed::new(1);
        bed.load(5_000);
        for n in 0..16 {
            let key = format!("large-{n}").into_bytes();
            bed.execute(vec![b"SET".to_vec(), key, vec![b'x'; 1 << 20]]);
        }
        bed.begin(wire);
        bed.until("the first records", |bed| bed.received() > 100);
        bed.target.core.admission.log_room.has_room_for_moves = false;
        let mut before = None;
        let mut far = (bed.walked(), bed.received());
        while before.replace(far) != Some(far) {
            bed.settle();
            far = (bed.walked(), bed.received());
        }
        assert!(far.0.is_some(), "the walk is not over");
        for round in 0..13 {
            for n in 0..200 {
                bed.execute(words(&format!("SET new-{round}-{n} x")));
            }
            bed.settle();
            bed.pass(2_000);
        }
        assert_eq!((bed.walked(), bed.received()), far);
        assert_eq!((bed.source.reason(), bed.target.reason()), (None, None));
        bed.target.core.admission.log_room.has_room_for_moves = true;
        bed.until("the move", |bed| bed.source.is_confirmed());
        bed.commit();
        bed.compare();
    }
}

#[test]
fn writes_that_come_faster_than_they_leave_end_the_move() {
    let mut bed = Bed::new(1);
    for n in 0..100 {
        let key = format!("key-{n}").into_bytes();
        bed.execute(vec![b"SET".to_vec(), key, vec![b'v'; 100_000]]);
    }
    bed.begin(Wire::Inboxes);
    bed.until("the first records", |bed| bed.received() > 1);
    bed.until("half of the walk", |bed| bed.walked() > Some(u64::MAX / 2));
    bed.target.runs = false;
    let value = vec![b'v'; 1 << 20];
    for n in 0..80 {
        let key = format!("large-{n}").into_bytes();
        bed.execute(vec![b"SET".to_vec(), key, value.clone()]);
        bed.turn();
    }
    let reason = bed.source.reason().expect("it has given up");
    assert!(reason.starts_with("writes come faster"), "{reason}");
    bed.target.runs = true;
    bed.forget_staging();
    bed.compare();
}

#[test]
fn whatever_comes_over_a_socket_does_no_harm() {
    let garbage: [&[u8]; 3] = [b"GET / HTTP/1.1\r\n\r\n", &[0; 64], b"EphF\0\0\0\0\0\0\0\0"];
    let mut message = Vec::new();
    let mut frames = Vec::new();
    Message::Data(b"no record").encode(MigrationId(1), 1, &mut message);
    frames.push(message.clone());
    message.clear();
    Message::Data(b"another's").encode(MigrationId(9), 1, &mut message);
    frames.push(message.clone());
    message.clear();
    Message::Accepted.encode(MigrationId(1), 1, &mut message);
    frames.push(message.clone());
    message.clear();
    Message::Data(b"too late").encode(MigrationId(1), 5, &mut message);
    frames.push(message);
    let mut twice = Vec::new();
    for sequence in [1, 2] {
        Message::Keys(1).encode(MigrationId(1), sequence, &mut twice);
    }
    frames.push(twice);
    let all = garbage.into_iter().chain(frames.iter().map(|f| &f[..]));
    for (at, bytes) in all.enumerate() {
        let mut bed = Bed::new(1);
        let [mut from, to] = sockets();
        bed.migration = MigrationId(1);
        let ways = [Way::Shard(TO), Way::Node(to.into())];
        let [receive, _] = orders(&[(bed.migration, open())], ways);
        bed.order_target(receive);
        bed.settle();
        from.write_all(bytes).expect("a socket");
        if at == 2 {
            from.shutdown(Shutdown::Write).expect("a socket");
        }
        bed.forget_staging();
        assert!(bed.target.reason().is_some_and(|text| !text.is_empty()));
        drop(from);
        bed.until("the end of streams", Bed::is_quiet);
    }
}
