//! ShardMigrations to their end.

use std::time::Duration;

use super::bed::{Bed, EPOCH, GIVE_UP, MOVING, OTHER, WIRES, Wire, clock};
use crate::keyspace::Partition;
use crate::keyspace::tests::tape::execute;
use crate::migration::ends::tests::workload::words;
use crate::migration::shard::source::HANDOFF_INTERVAL_MS;
use crate::migration::{Order, Report};

#[test]
fn a_partition_moves_under_writes_and_nothing_is_lost() {
    for wire in WIRES {
        for seed in 0..4 {
            let mut bed = Bed::new(seed);
            bed.load(3_000);
            bed.begin(wire);
            let mut turns = 0;
            while !bed.source.is_confirmed() {
                bed.write(20);
                bed.turn();
                turns += 1;
                assert!(turns < 20_000, "{wire:?} {seed}: it does not converge");
            }
            assert!(turns > 3, "writes came while it moved");
            bed.write(20);
            assert!(bed.held() > 0, "commands are held until it is decided");
            bed.commit();
            bed.compare();
            bed.write(100);
            bed.compare();
            let keys = bed.target.core.keyspace.len();
            assert_eq!(keys, bed.model.keys.len() as u64);
        }
    }
}

#[test]
fn the_size_of_a_partition_is_that_of_the_copy_that_is_served() {
    let mut bed = Bed::new(1);
    let size = |bed: &Bed| bed.source.core.node.partition_bytes[usize::from(MOVING.0)].get();
    assert_eq!(size(&bed), u64::MAX, "not known");
    bed.load(500);
    bed.source.core.publish_sizes();
    let before = size(&bed);
    assert!((1 << 20..2 << 20).contains(&before), "{before}");
    bed.begin(Wire::Inboxes);
    bed.until("the first records", |bed| bed.received() > 1);
    bed.target.core.publish_sizes();
    assert_eq!(size(&bed), before, "a staging copy has not the size");
    bed.until("the move", |bed| bed.source.is_confirmed());
    bed.commit();
    bed.execute(words("DEL large"));
    bed.target.core.publish_sizes();
    bed.source.core.publish_sizes();
    assert!(size(&bed) < 1 << 20, "{}", size(&bed));
}

#[test]
fn what_has_expired_is_removed_in_slices_before_a_stream_ends_and_takes_no_room_in_the_log() {
    const KEYS: u64 = 3_000;
    let mut bed = Bed::new(1);
    for n in 0..KEYS {
        let set = words(&format!("SET k{n} value PX 1000"));
        execute(&mut bed.source.core.keyspace, &set);
    }
    bed.begin(Wire::Inboxes);
    bed.until("the walk", |bed| {
        let copy = bed.source.core.keyspace.partition(MOVING);
        let outgoing = copy.and_then(Partition::outgoing);
        outgoing.is_some_and(|outgoing| outgoing.cursor().is_none())
    });
    bed.now_ms += 2_000;
    bed.source.core.note_log(true);
    let appended = bed.source.core.keyspace.log.appended();
    let expired = |bed: &Bed| bed.source.core.keyspace.counters.expired;
    let (mut before, mut most) = (expired(&bed), 0);
    bed.until("the end", |bed| {
        most = most.max(expired(bed) - before);
        before = expired(bed);
        bed.source.is_confirmed()
    });
    assert_eq!(before, KEYS, "all before the end of the stream");
    assert!(most <= 256, "{most} keys in one turn");
    assert_eq!(bed.source.core.keyspace.log.appended(), appended);
    bed.commit();
    assert_eq!(bed.target.core.keyspace.len(), 0);
}

#[test]
fn a_batch_is_held_in_one_turn_and_others_do_not_wait_for_it() {
    for (is_batch, wire) in WIRES.into_iter().flat_map(|w| [(true, w), (false, w)]) {
        let mut bed = Bed::of(2, 1);
        bed.fill(MOVING, 10_000);
        match is_batch {
            true => bed.begin_both(wire),
            false => {
                bed.begin(wire);
                bed.begin_other(wire);
            }
        }
        let is_held = |bed: &Bed, partition| bed.source.core.is_held(partition);
        bed.until("a hold", |bed| is_held(bed, OTHER));
        // The other one, which is empty, was ready long before.
        assert_eq!(is_held(&bed, MOVING), is_batch, "{wire:?}");
        let confirmed = |report: &Report| matches!(report, Report::Confirmed { .. });
        bed.pass(HANDOFF_INTERVAL_MS);
        let expected = if is_batch { 1 } else { 2 };
        bed.until("both", |bed| bed.source.count(confirmed) == expected);
    }
}

#[test]
fn an_empty_partition_moves() {
    for wire in WIRES {
        let mut bed = Bed::new(1);
        bed.begin(wire);
        bed.until("the move", |bed| bed.source.is_confirmed());
        bed.commit();
        bed.execute(words("SET a 1"));
        bed.compare();
    }
}

#[test]
fn what_clients_write_is_looked_at_once_in_a_while() {
    let mut bed = Bed::new(1);
    bed.execute(words("SET small v"));
    bed.target.commits = false;
    // It holds no commands yet.
    bed.source.migrations.handoff = bed.now + Duration::from_millis(HANDOFF_INTERVAL_MS);
    bed.begin(Wire::Sockets);
    bed.until("the walk", |bed| bed.received() > 0);
    bed.settle();
    let looks = |bed: &mut Bed| bed.source.migrations.has_news(&bed.source.core, bed.now);
    assert!(!looks(&mut bed), "nothing has happened");
    bed.source.commits = false;
    bed.execute(words("SET a 1"));
    assert!(!looks(&mut bed), "a write alone");
    bed.pass(20);
    assert!(looks(&mut bed), "captured writes leave");
    bed.source.commits = true;
    bed.settle();
    bed.source.migrations.is_touched = true;
    assert!(looks(&mut bed) && !looks(&mut bed), "something has come");
    bed.target.commits = true;
    bed.pass(HANDOFF_INTERVAL_MS);
    bed.until("the move", |bed| bed.source.is_confirmed());
    bed.commit();
    bed.compare();
}

#[test]
fn what_is_confirmed_was_durable_at_the_target() {
    let mut bed = Bed::new(1);
    bed.load(100);
    bed.begin(Wire::Sockets);
    bed.target.commits = false;
    for _ in 0..200 {
        bed.turn();
    }
    assert!(!bed.source.is_confirmed());
    bed.target.commits = true;
    bed.until("the move", |bed| bed.source.is_confirmed());
    bed.commit();
    bed.compare();
}

#[test]
fn the_node_hears_of_progress_and_of_the_hold() {
    let mut bed = Bed::new(1);
    bed.load(2_000);
    bed.begin(Wire::Inboxes);
    bed.until("the move", |bed| bed.source.is_confirmed());
    bed.pass(5);
    bed.commit();
    let mut progress = bed.source.told.iter().filter_map(|report| match report {
        Report::Progress {
            keys,
            bytes,
            hold_us,
            ..
        } => Some((*keys, *bytes, *hold_us)),
        _ => None,
    });
    let (keys, bytes, hold_us) = progress.next_back().expect("some");
    assert_eq!(keys, 2_001);
    assert!(bytes > 1 << 20);
    assert!(hold_us >= 5_000, "{hold_us}");
}

#[test]
fn a_limit_slows_a_move_down_and_lets_it_end() {
    for wire in WIRES {
        let mut bed = Bed::new(1);
        bed.load(1_000);
        bed.order_source(Order::Limit(4_000_000));
        bed.begin(wire);
        let started = bed.now;
        let deadline = clock() + Duration::from_secs(20);
        while !bed.source.is_confirmed() {
            bed.turn();
            bed.pass(1);
            assert!(clock() < deadline, "it takes too long");
        }
        let took = bed.now - started;
        // A little over a MB at 4 MB/s.
        assert!(took > Duration::from_millis(180), "{took:?}");
        bed.commit();
        bed.compare();
    }
}

#[test]
fn the_next_handoff_keeps_its_distance() {
    let mut bed = Bed::new(1);
    bed.load(100);
    let now = bed.now;
    bed.source.migrations.handoff = now + Duration::from_millis(HANDOFF_INTERVAL_MS);
    bed.begin(Wire::Inboxes);
    for _ in 0..HANDOFF_INTERVAL_MS {
        bed.turn();
        assert!(!bed.source.core.is_held(MOVING));
        bed.pass(1);
    }
    bed.until("the target's word", |bed| bed.source.is_confirmed());
    bed.commit();
    bed.compare();
}

#[test]
fn writes_beyond_a_limit_do_not_keep_a_move_from_its_end() {
    let mut bed = Bed::new(1);
    bed.load(1_000);
    bed.order_source(Order::Limit(4_000_000));
    bed.begin(Wire::Inboxes);
    let deadline = clock() + Duration::from_secs(20);
    let mut turns = 0;
    while !bed.source.is_confirmed() {
        if bed.held() == 0 {
            // About 10 MB per second.
            bed.write(20);
        }
        bed.turn();
        bed.pass(1);
        turns += 1;
        assert!(clock() < deadline && turns < 2_000, "it takes too long");
    }
    bed.commit();
    bed.compare();
}

#[test]
fn a_prepared_copy_of_a_restarted_target_is_activated() {
    for wire in WIRES {
        let mut bed = Bed::new(1);
        bed.load(500);
        bed.begin(wire);
        bed.until("the move", |bed| bed.source.is_confirmed());
        let now = bed.now;
        bed.target.restart(now);
        bed.settle();
        bed.commit();
        bed.compare();
    }
}

#[test]
fn orders_may_come_twice() {
    let mut bed = Bed::new(1);
    bed.load(500);
    bed.begin(Wire::Inboxes);
    bed.until("the move", |bed| bed.source.is_confirmed());
    for _ in 0..2 {
        bed.order_source(GIVE_UP);
        bed.order_target(bed.committed());
        bed.settle();
    }
    let activated = |report: &Report| matches!(report, Report::Activated { epoch: EPOCH, .. });
    assert_eq!(bed.target.count(activated), 2);
    bed.commit();
    bed.order_source(GIVE_UP);
    bed.order_target(bed.aborted());
    bed.order_source(Order::Forget {
        partition: MOVING,
        epoch: EPOCH,
    });
    bed.settle();
    bed.compare();
}
