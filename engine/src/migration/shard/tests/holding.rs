//! When commands of clients come to be held.

use super::bed::{Bed, GIVE_UP, MOVING, OTHER, WIRES, Wire};
use crate::migration::Report;
use crate::migration::shard::source::HANDOFF_INTERVAL_MS;

/// Two partitions that fit into one message.
fn bed() -> Bed {
    Bed::of(2, 1)
}

fn are_held(bed: &Bed) -> [bool; 2] {
    [MOVING, OTHER].map(|partition| bed.source.core.is_held(partition))
}

#[test]
fn batches_of_a_source_hold_one_after_the_other() {
    for wire in WIRES {
        let mut bed = bed();
        bed.begin(wire);
        bed.until("a hold", |bed| bed.source.is_confirmed());
        bed.begin_other(wire);
        bed.settle();
        assert_eq!(are_held(&bed), [true, false], "{wire:?}");
        bed.order_source(GIVE_UP);
        bed.order_target(bed.committed());
        bed.until("the next one", |bed| are_held(bed)[1]);
    }
}

#[test]
fn a_decision_that_does_not_come_keeps_the_next_batch_back_for_a_moment_only() {
    let mut bed = bed();
    bed.begin(Wire::Sockets);
    bed.until("a hold", |bed| bed.source.is_confirmed());
    bed.begin_other(Wire::Sockets);
    bed.settle();
    assert_eq!(are_held(&bed), [true, false]);
    bed.pass(HANDOFF_INTERVAL_MS);
    bed.until("the next one", |bed| are_held(bed)[1]);
}

#[test]
fn what_shards_tell_in_a_turn_the_node_hears_at_once() {
    let mut bed = bed();
    bed.target.commits = false;
    bed.begin_both(Wire::Inboxes);
    bed.until("holds", |bed| are_held(bed) == [true; 2]);
    bed.settle();
    bed.target.commits = true;
    let confirmed = |report: &Report| matches!(report, Report::Confirmed { contents, .. } if contents.len() == 2);
    bed.until("a word", |bed| bed.source.count(confirmed) > 0);
    // With how far each of them is.
    assert_eq!(bed.source.messages.last(), Some(&3));
}
