//! When commands of clients come to be held.

use ephesus_wire::stream::Open;
use ephesus_wire::{MigrationId, NodeId};

use super::bed::{BOTH, Bed, GIVE_UP, MOVING, OTHER, Wire, open_other, orders};
use crate::migration::Report;
use crate::migration::tests::workload::words;
use crate::shard::moves::PAUSED_MAX;
use crate::shard::moves::source::ENDING_MAX;

/// Partitions that fit into one message, clients at the source, and a log of the target that is not written.
fn bed(partitions: u16) -> Bed {
    let mut bed = Bed::of(partitions, 1);
    if partitions == 1 {
        bed.execute(words("SET small v"));
    }
    bed.source.has_clients = true;
    bed.target.commits = false;
    bed
}

fn are_held(bed: &Bed) -> [bool; 2] {
    [MOVING, OTHER].map(|partition| bed.source.core.is_held(partition))
}

/// Begins to move the other partition, as if another node sent it.
fn begin_from_elsewhere(bed: &mut Bed, wire: Wire) {
    let migration = MigrationId(bed.migration.0 + 1);
    let open = Open {
        source: NodeId([9; 16]),
        ..open_other()
    };
    bed.order_both(orders(migration, migration.0, open, wire.ways()));
}

#[test]
fn clients_are_held_once_nothing_is_in_front_on_the_way_to_the_targets_disk() {
    for (wire, ends_by_itself) in BOTH.into_iter().flat_map(|w| [(w, false), (w, true)]) {
        let mut bed = bed(2);
        bed.fill(OTHER, 2_000);
        bed.order_both(orders(MigrationId(7), 7, open_other(), wire.ways()));
        bed.until("an import", |bed| {
            bed.target.core.keyspace.log.unwritten_bytes() > 16_000
        });
        bed.begin(wire);
        let asks = |bed: &Bed| {
            let mut targets = bed.target.moves.targets.iter();
            targets.any(|target| target.asked_since().is_some())
        };
        bed.until("the question", asks);
        bed.settle();
        assert!(asks(&bed) && !are_held(&bed)[0], "{wire:?}: too early");
        if ends_by_itself {
            bed.pass(ENDING_MAX.as_millis() as u64);
        } else {
            bed.target.commits = true;
        }
        bed.until("a hold", |bed| are_held(bed)[0]);
        bed.target.commits = true;
        bed.until("the target's word", |bed| bed.source.is_confirmed());
    }
}

#[test]
fn without_clients_nobody_is_asked() {
    for wire in BOTH {
        let mut bed = bed(1);
        bed.source.has_clients = false;
        bed.begin(wire);
        bed.until("a hold", |bed| are_held(bed)[0]);
    }
}

#[test]
fn what_clients_write_meanwhile_is_imported_though_nothing_else_is() {
    for wire in BOTH {
        let mut bed = bed(1);
        bed.begin(wire);
        bed.settle();
        assert!(bed.target.moves.pauses(bed.now), "{wire:?}");
        let large = "v".repeat(100_000);
        bed.execute(words(&format!("SET large {large}")));
        bed.target.commits = true;
        bed.until("the target's word", |bed| bed.source.is_confirmed());
        bed.commit();
        bed.compare();
    }
}

#[test]
fn groups_of_a_source_hold_one_after_the_other() {
    for wire in BOTH {
        let mut bed = bed(2);
        bed.target.commits = true;
        bed.begin(wire);
        bed.until("a hold", |bed| bed.source.is_confirmed());
        bed.begin_other(wire, 7);
        bed.settle();
        assert_eq!(are_held(&bed), [true, false], "{wire:?}");
        bed.order_source(GIVE_UP);
        bed.order_target(bed.committed());
        bed.until("the next one", |bed| are_held(bed)[1]);
    }
}

#[test]
fn a_decision_that_does_not_come_keeps_the_next_group_back_for_a_moment_only() {
    let mut bed = bed(2);
    bed.target.commits = true;
    bed.begin(Wire::Sockets);
    bed.until("a hold", |bed| bed.source.is_confirmed());
    bed.begin_other(Wire::Sockets, 7);
    bed.settle();
    assert_eq!(are_held(&bed), [true, false]);
    bed.pass(PAUSED_MAX.as_millis() as u64);
    bed.until("the next one", |bed| are_held(bed)[1]);
}

#[test]
fn a_target_lets_one_source_hold_after_the_other() {
    for wire in BOTH {
        let mut bed = bed(2);
        bed.begin(wire);
        begin_from_elsewhere(&mut bed, wire);
        bed.settle();
        bed.target.commits = true;
        let waits = |bed: &Bed| {
            let waiting = bed.target.moves.targets.iter();
            waiting.filter(|t| t.asked_since().is_some()).count()
        };
        bed.until("a hold", |bed| are_held(bed) != [false; 2]);
        bed.settle();
        assert_eq!(waits(&bed), 1, "{wire:?}");
        bed.pass(PAUSED_MAX.as_millis() as u64);
        bed.until("the other one", |bed| waits(bed) == 0);
        let confirmed = |report: &Report| matches!(report, Report::Confirmed { .. });
        bed.until("both", |bed| bed.source.count(confirmed) == 2);
    }
}

#[test]
fn what_shards_tell_in_a_turn_the_node_hears_at_once() {
    let mut bed = bed(2);
    bed.source.has_clients = false;
    bed.begin(Wire::Inboxes);
    bed.begin_other(Wire::Inboxes, bed.migration.0);
    bed.target.commits = true;
    let confirmed = |report: &Report| matches!(report, Report::Confirmed { .. });
    bed.until("a word", |bed| bed.source.count(confirmed) > 0);
    assert_eq!(bed.source.count(confirmed), 2);
    assert!(*bed.source.messages.last().expect("a message") >= 2);
}
