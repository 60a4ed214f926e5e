use super::*;
use crate::coordinator::migrations::tests::bed::{
    ask, beat, carry_out, cluster, join, planned, state, step,
};
use crate::coordinator::tests::{World, id};
use crate::migration::Step;
use crate::report::Query;

fn balancing(nodes: u8) -> World {
    let mut world = cluster(1, nodes);
    world.coordinators[0].auto_rebalance = Some(Balance::Count);
    world
}

fn active(world: &World) -> usize {
    state(world).migrations().active.len()
}

#[test]
fn without_being_told_to_a_leader_moves_nothing() {
    let mut world = cluster(1, 2);
    beat(&mut world, 2, 2 * AUTO_REBALANCE_AFTER_MS);
    assert_eq!(active(&world), 0);
}

#[test]
fn a_new_node_gets_its_share_when_nothing_has_changed_for_a_while() {
    let mut world = balancing(2);
    beat(&mut world, 2, AUTO_REBALANCE_AFTER_MS - 1_000);
    assert_eq!(active(&world), 0, "it may be the first of several");
    beat(&mut world, 2, 1_400);
    assert_eq!(active(&world), 8);
    carry_out(&mut world, 2);
    assert_eq!(state(&world).owned(id(2)).count(), 8);
    beat(&mut world, 2, 8 * AUTO_REBALANCE_AFTER_MS);
    assert_eq!(state(&world).migrations().last.0, 8, "it is balanced");
}

#[test]
fn nothing_is_planned_while_a_node_is_away_or_starts_or_something_moves() {
    let mut world = balancing(2);
    beat(&mut world, 2, 5_000);
    // Node 2 is failed, then starting.
    beat(&mut world, 1, 2 * AUTO_REBALANCE_AFTER_MS);
    assert_eq!(active(&world), 0);
    let register = crate::coordinator::tests::register(2);
    world.say(1, 2, register);
    beat(&mut world, 2, 2 * AUTO_REBALANCE_AFTER_MS);
    assert_eq!(
        state(&world).members()[&id(2)].status,
        MemberStatus::Starting
    );
    assert_eq!(active(&world), 0);
    join(&mut world, 2);
    let query = Query::Move {
        partition: 0,
        node: "node-2".to_owned(),
        shard: None,
    };
    planned(ask(&mut world, query));
    beat(&mut world, 2, 2 * AUTO_REBALANCE_AFTER_MS);
    assert_eq!(active(&world), 1, "only what the operator wants");
    carry_out(&mut world, 2);
    beat(&mut world, 2, AUTO_REBALANCE_AFTER_MS - 1_000);
    assert_eq!(active(&world), 0);
    beat(&mut world, 2, 1_400);
    assert_eq!(active(&world), 7);
}

#[test]
fn what_goes_wrong_again_and_again_is_tried_ever_more_rarely() {
    let mut world = balancing(2);
    let mut plans = Vec::new();
    let mut last = 0;
    while plans.len() < 4 && world.now < 400_000 {
        beat(&mut world, 2, 400);
        let state = state(&world);
        let migrations = state.migrations();
        let first = migrations.active.values().all(|m| m.attempt == 1);
        if migrations.last.0 > last && first && !migrations.active.is_empty() {
            plans.push(world.now);
        }
        last = migrations.last.0;
        let ids: Vec<u64> = migrations.active.keys().map(|id| id.0).collect();
        for migration in ids {
            step(&mut world, 1, migration, Step::Begin);
            step(&mut world, 1, migration, Step::Abort("no".to_owned()));
        }
    }
    let gaps: Vec<u64> = plans.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps.len(), 3, "{plans:?}");
    assert!(gaps.is_sorted_by(|a, b| a * 5 / 4 < *b), "{gaps:?}");
}

#[test]
fn a_drained_node_is_emptied_without_another_word() {
    let mut world = balancing(3);
    beat(&mut world, 3, AUTO_REBALANCE_AFTER_MS + 400);
    carry_out(&mut world, 3);
    let (node, on) = ("node-2".to_owned(), true);
    let rows = planned(ask(&mut world, Query::Drain { node, on }));
    // The operator's attempt is cancelled; the leader's own follows.
    for row in rows {
        let id = row.migration.expect("planned");
        ask(&mut world, Query::CancelMigration { id });
    }
    beat(&mut world, 3, AUTO_REBALANCE_AFTER_MS + 400);
    carry_out(&mut world, 3);
    assert_eq!(state(&world).owned(id(2)).count(), 0);
}
