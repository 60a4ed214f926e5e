//! Moves whose nodes fail, which come back or do not.

use super::*;
use crate::report::{MigrationRow, MigrationState};
use crate::state::MemberStatus;

/// Node 2 is not heard of any more, and node 1 is.
fn lose_node_2(world: &mut World) {
    let since = world.now;
    while state(world).members()[&id(2)].status != MemberStatus::Failed {
        beat(world, 1, 200);
        assert!(world.now < since + 4_000, "it is failed");
    }
}

#[test]
fn a_failed_target_ends_its_migrations_until_it_is_back() {
    let mut world = cluster(1, 2);
    planned(ask(&mut world, Query::Rebalance { dry_run: false }));
    step(&mut world, 1, 1, Step::Begin);
    // Only node 1 is heard of.
    beat(&mut world, 1, 2_600);
    assert_eq!(
        state(&world).migrations().active.len(),
        7,
        "those not begun wait"
    );
    assert_eq!(state(&world).retries().len(), 1);
    let row = migrations(&mut world).pop().expect("planned");
    assert_eq!(row.last_error, "waits for node-2: the target has failed");
    beat(&mut world, 1, 3_000);
    assert_eq!(state(&world).retries().len(), 1, "it is still away");
    join(&mut world, 2);
    beat(&mut world, 2, 400);
    let active = &state(&world).migrations().active;
    assert_eq!(active.len(), 8);
    assert_eq!(active[&MigrationId(9)].attempt, 2, "under another id");
    let row = migrations(&mut world).pop().expect("planned again");
    assert_eq!(
        (row.id, row.last_error.as_str()),
        (9, "the target has failed")
    );
    carry_out(&mut world, 2);
    assert_eq!(state(&world).owned(id(2)).count(), 8);
}

#[test]
fn a_planned_move_waits_for_its_failed_target_and_ends_after_a_while() {
    let mut world = cluster(1, 2);
    move_to(&mut world, 3, "node-2");
    lose_node_2(&mut world);
    beat(&mut world, 1, FAILED_PATIENCE_MS - 2_000);
    assert_eq!(phase(&world, 1), Some(Phase::Planned));
    beat(&mut world, 1, 2_600);
    let rows = migrations(&mut world);
    assert_eq!(
        (rows[0].state, rows[0].will_retry),
        (MigrationState::Aborted, false)
    );
    assert_eq!(rows[0].last_error, "the target has failed");
}

#[test]
fn a_move_waits_for_its_failed_source_and_goes_on_with_it_or_ends() {
    for comes_back in [true, false] {
        let mut world = cluster(1, 2);
        // Everything is with node 1: let one partition go, and then back.
        move_to(&mut world, 3, "node-2");
        step(&mut world, 1, 1, Step::Begin);
        step(&mut world, 1, 1, commit(1));
        move_to(&mut world, 3, "node-1");
        step(&mut world, 2, 2, Step::Begin);
        lose_node_2(&mut world);
        beat(&mut world, 1, FAILED_PATIENCE_MS - 2_000);
        assert_eq!(phase(&world, 2), Some(Phase::Copying));
        let row = migrations(&mut world).pop().expect("under way");
        assert_eq!(row.last_error, "waits for node-2: the source has failed");
        if comes_back {
            join(&mut world, 2);
            beat(&mut world, 2, 4_000);
            assert_eq!(phase(&world, 2), Some(Phase::Copying));
            step(&mut world, 2, 2, commit(2));
            assert_eq!(owner(&world, 3), id(1));
        } else {
            beat(&mut world, 1, 2_600);
            assert!(matches!(phase(&world, 2), Some(Phase::Aborted(_))));
            let row = migrations(&mut world).pop().expect("kept");
            assert_eq!(row.last_error, "the source has failed");
            assert_eq!(owner(&world, 3), id(2), "its data is there");
        }
    }
}

#[test]
fn a_failed_node_that_is_removed_ends_its_moves_at_once() {
    let mut world = cluster(1, 2);
    planned(ask(&mut world, Query::Rebalance { dry_run: false }));
    lose_node_2(&mut world);
    assert_eq!(state(&world).migrations().active.len(), 8);
    let (node, lose_data) = ("node-2".to_owned(), false);
    ask(&mut world, Query::RemoveNode { node, lose_data });
    assert!(state(&world).migrations().active.is_empty());
    let rows = migrations(&mut world);
    let is_removed = |row: &MigrationRow| row.last_error == "its node was removed";
    assert!(rows.iter().all(|row| is_removed(row) && !row.will_retry));
}

#[test]
fn a_retry_whose_node_stays_away_is_given_up() {
    let mut world = cluster(1, 2);
    planned(ask(&mut world, Query::Rebalance { dry_run: false }));
    step(&mut world, 1, 1, Step::Begin);
    lose_node_2(&mut world);
    beat(&mut world, 1, RETRY_PATIENCE_MS - 2_000);
    assert_eq!(state(&world).retries().len(), 8);
    beat(&mut world, 1, FAILED_PATIENCE_MS + 4_000);
    assert!(state(&world).retries().is_empty());
    join(&mut world, 2);
    beat(&mut world, 2, 4_000);
    assert!(state(&world).migrations().active.is_empty());
    let rows = migrations(&mut world);
    let is_kept = |row: &MigrationRow| row.last_error == "the target has failed";
    assert!(rows.iter().all(|row| is_kept(row) && !row.will_retry));
}
