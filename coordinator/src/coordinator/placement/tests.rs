use ephesus_wire::MigrationId;

use super::*;
use crate::coordinator::Event;
use crate::coordinator::FAILED_PATIENCE_MS;
use crate::coordinator::migrations::tests::bed::{
    CONFIRMATION, ask, beat, carry_out, cluster, join, planned, state, step,
};
use crate::coordinator::tests::{World, id};
use crate::migration::{Progress, Step};
use crate::placement::Ring;
use crate::protocol::Request;
use crate::report::{Query, Report};

fn show(world: &mut World, policy: Option<Policy>) -> PlacementReport {
    match ask(world, Query::Placement { policy }) {
        Report::Placement(report) => *report,
        other => panic!("{other:?}"),
    }
}

fn active(world: &World) -> usize {
    state(world).migrations().active.len()
}

#[test]
fn another_policy_is_shown_with_its_cost_set_and_reached() {
    let mut world = cluster(1, 2);
    let policy = Policy::Ring(Ring::default());
    let shown = show(&mut world, Some(policy));
    assert_eq!(
        (shown.current.as_str(), shown.policy.as_str()),
        ("contiguous", "ring")
    );
    assert!(shown.moves > 0 && shown.plan.len() as u64 == shown.moves);
    assert_eq!((shown.bytes_per_s, shown.seconds), (None, None));
    assert_eq!(shown.rebalance_moves, 8, "by sticky");
    assert_eq!(shown.imbalance_permille, 2_000);
    assert_eq!(active(&world), 0, "nothing is moved before it is set");

    let moves = shown.moves as usize;
    assert_eq!(
        ask(&mut world, Query::SetPlacement { policy }),
        Report::PlacementSet
    );
    beat(&mut world, 2, 400);
    assert_eq!(active(&world), moves);
    carry_out(&mut world, 2);
    beat(&mut world, 2, 400);
    let shown = show(&mut world, None);
    assert_eq!((shown.moves, shown.state), (0, PlacementState::Follows));
    assert_eq!(
        (shown.current.as_str(), shown.followed_by.as_str()),
        ("ring", "ring")
    );
    let partitions: u64 = shown.nodes.iter().map(|row| row.partitions).sum();
    assert_eq!(partitions, 16);
}

#[test]
fn cooperative_sticky_goes_step_by_step() {
    let mut world = cluster(1, 2);
    world.coordinators[0].moves_max = 3;
    beat(&mut world, 2, 400);
    let policy = Policy::CooperativeSticky;
    assert_eq!(
        ask(&mut world, Query::SetPlacement { policy }),
        Report::PlacementSet
    );
    let mut steps = 0;
    while state(&world).course() == Course::Changes {
        beat(&mut world, 2, 400);
        assert!(active(&world) <= 3);
        steps += 1;
        assert!(steps < 20, "it does not end");
        carry_out(&mut world, 2);
    }
    assert_eq!(state(&world).owned(id(2)).count(), 8);
    assert!(steps >= 3, "{steps}");
}

#[test]
fn what_operators_move_meanwhile_does_not_end_a_change() {
    let mut world = cluster(1, 2);
    world.coordinators[0].moves_max = 3;
    beat(&mut world, 2, 400);
    for partition in 0..3 {
        let (node, shard) = ("node-2".to_owned(), None);
        let query = Query::Move {
            partition,
            node,
            shard,
        };
        planned(ask(&mut world, query));
    }
    set(&mut world, Policy::CooperativeSticky);
    beat(&mut world, 2, 400);
    assert_eq!(active(&world), 6, "they take no room of the change");
    while active(&world) > 0 {
        carry_out(&mut world, 2);
        beat(&mut world, 2, 400);
    }
    assert_eq!(state(&world).owned(id(2)).count(), 8);
    assert_eq!(state(&world).course(), Course::Follows);
}

#[test]
fn what_is_in_vain_is_tried_again_ever_more_rarely_until_it_is_cancelled() {
    let mut world = cluster(1, 2);
    let policy = Policy::Sticky;
    assert_eq!(
        ask(&mut world, Query::SetPlacement { policy }),
        Report::PlacementSet
    );
    let mut firsts = Vec::new();
    let mut last = 0;
    while firsts.len() < 3 && world.now < 400_000 {
        beat(&mut world, 2, 400);
        let migrations = state(&world).migrations();
        let is_first = migrations.active.values().all(|m| m.attempt == 1);
        if migrations.last.0 > last && is_first && !migrations.active.is_empty() {
            firsts.push(world.now);
        }
        last = migrations.last.0;
        let ids: Vec<u64> = migrations.active.keys().map(|id| id.0).collect();
        for migration in ids {
            step(&mut world, 1, migration, Step::Begin);
            step(&mut world, 1, migration, Step::Abort("no".to_owned()));
        }
    }
    assert_eq!(firsts.len(), 3, "{firsts:?}");
    assert!(firsts[2] - firsts[1] > firsts[1] - firsts[0], "{firsts:?}");
    let cancelled = ask(&mut world, Query::CancelPlacement);
    assert!(
        matches!(cancelled, Report::PlacementCancelled { .. }),
        "{cancelled:?}"
    );
    let last = state(&world).migrations().last;
    beat(&mut world, 2, 60_000);
    assert_eq!(state(&world).migrations().last, last, "it rests");
    assert_eq!(show(&mut world, None).state, PlacementState::Rests);
}

fn set(world: &mut World, policy: Policy) {
    let report = ask(world, Query::SetPlacement { policy });
    assert_eq!(report, Report::PlacementSet);
}

/// Nodes that have the partitions where this policy says.
fn placed(nodes: u8, policy: Policy) -> World {
    let mut world = cluster(1, nodes);
    set(&mut world, policy);
    beat(&mut world, nodes, 400);
    carry_out(&mut world, nodes);
    beat(&mut world, nodes, 400);
    assert_eq!(state(&world).course(), Course::Follows);
    world
}

/// A node whose policy is cooperative-sticky, and another one that has come; three moves at a time.
fn joined() -> World {
    let mut world = placed(1, Policy::CooperativeSticky);
    world.coordinators[0].moves_max = 3;
    join(&mut world, 2);
    beat(&mut world, 2, 400);
    assert_eq!((state(&world).moves_max(), active(&world)), (3, 0));
    world
}

#[test]
fn what_operators_ask_of_cooperative_sticky_is_planned_as_a_whole() {
    let mut world = joined();
    let all = planned(ask(&mut world, Query::Rebalance { dry_run: false }));
    assert_eq!(all.len(), 8);
    while active(&world) > 0 {
        carry_out(&mut world, 2);
    }
    let (node, on) = ("node-2".to_owned(), true);
    let all = planned(ask(&mut world, Query::Drain { node, on }));
    assert_eq!(all.len(), 8);
}

#[test]
fn a_leader_that_balances_by_cooperative_sticky_plans_the_whole() {
    let mut world = joined();
    world.coordinators[0].auto_rebalance = Some(crate::coordinator::balance::Balance::Count);
    beat(&mut world, 2, 11_000);
    assert_eq!(active(&world), 8);
}

#[test]
fn a_change_waits_for_nodes_that_are_away() {
    let mut world = cluster(1, 3);
    beat(&mut world, 2, 3_000);
    set(&mut world, Policy::Ring(Ring::default()));
    beat(&mut world, 2, 400);
    carry_out(&mut world, 2);
    beat(&mut world, 2, 1_000);
    let shown = show(&mut world, None);
    assert_eq!((shown.moves, shown.state), (0, PlacementState::Changes));
    let unmet = shown.unmet.iter();
    let away = unmet.filter(|unmet| unmet.contains("wait for nodes that are away"));
    assert_eq!(away.count(), 1, "{:?}", shown.unmet);
    join(&mut world, 3);
    beat(&mut world, 3, 400);
    let mut to = state(&world).migrations().active.values();
    assert!(to.all(|migration| migration.target.node == id(3)));
    assert!(active(&world) > 0);
    carry_out(&mut world, 3);
    beat(&mut world, 3, 400);
    let shown = show(&mut world, None);
    assert_eq!((shown.moves, shown.state), (0, PlacementState::Follows));
}

#[test]
fn a_change_to_what_keeps_owners_waits_for_owners_that_are_away() {
    let mut world = cluster(1, 3);
    beat(&mut world, 3, 0);
    let all = planned(ask(&mut world, Query::Rebalance { dry_run: false }));
    assert!(!all.is_empty());
    carry_out(&mut world, 3);
    beat(&mut world, 2, 3_000);
    set(&mut world, Policy::Sticky);
    beat(&mut world, 2, 1_000);
    assert_eq!(state(&world).course(), Course::Changes);
    assert_eq!(active(&world), 0);
    join(&mut world, 3);
    beat(&mut world, 3, 1_000);
    assert_eq!(state(&world).course(), Course::Follows);
}

#[test]
fn who_has_failed_is_shown_with_what_it_owns_and_gets_no_share() {
    let mut world = placed(2, Policy::Sticky);
    beat(&mut world, 1, 3_000);
    let shown = show(&mut world, None);
    let row = |node: &str| {
        let mut rows = shown.nodes.iter();
        let row = rows.find(|row| row.node == node).expect("a row");
        (row.partitions, row.share_ppm, row.fair_ppm)
    };
    assert_eq!(row("node-1"), (8, 500_000, 1_000_000));
    assert_eq!(row("node-2"), (8, 500_000, 0));
    let failed = "node node-2 has failed and owns 8 partitions";
    assert!(
        shown.unmet.iter().any(|unmet| unmet == failed),
        "{:?}",
        shown.unmet
    );
}

#[test]
fn racks_add_up_where_some_nodes_have_none() {
    let row = |node: &str, rack: &str, share_ppm| PlacementRow {
        node: node.to_owned(),
        rack: rack.to_owned(),
        share_ppm,
        ..PlacementRow::default()
    };
    let rows = [row("a", "east", 250_000), row("b", "", 750_000)];
    let racks = summed(&rows, |row| row.rack.clone());
    let racks: Vec<_> = racks
        .iter()
        .map(|row| (row.node.as_str(), row.share_ppm))
        .collect();
    assert_eq!(racks, [("", 750_000), ("east", 250_000)]);
}

#[test]
fn a_change_waits_for_a_node_that_is_away_and_has_nothing_yet() {
    let mut world = placed(1, Policy::Sticky);
    join(&mut world, 2);
    beat(&mut world, 1, 3_000);
    set(&mut world, Policy::Sticky);
    beat(&mut world, 1, 2_000);
    let shown = show(&mut world, None);
    let away = "8 partitions wait for nodes that are away";
    assert!(shown.unmet.iter().any(|unmet| unmet == away), "{shown:?}");
    assert_eq!(shown.state, PlacementState::Changes);
    join(&mut world, 2);
    beat(&mut world, 2, 400);
    assert_eq!(active(&world), 8);
}

#[test]
fn a_change_goes_on_without_a_node_that_stays_away() {
    let mut world = placed(1, Policy::CooperativeSticky);
    world.coordinators[0].moves_max = 2;
    join(&mut world, 3);
    beat(&mut world, 3, 400);
    set(&mut world, Policy::CooperativeSticky);
    beat(&mut world, 3, 400);
    assert_eq!(active(&world), 2, "one to each");
    let until = world.now + FAILED_PATIENCE_MS + 20_000;
    while world.now < until {
        beat(&mut world, 2, 1_000);
        let active = state(&world).migrations().active.iter();
        let to_second = active.filter(|(_, migration)| migration.target.node == id(2));
        let to_second: Vec<u64> = to_second.map(|(id, _)| id.0).collect();
        for migration in to_second {
            step(&mut world, 1, migration, Step::Begin);
            let confirmed = vec![(MigrationId(migration), CONFIRMATION)];
            step(&mut world, 1, migration, Step::Commit(confirmed));
        }
    }
    assert_eq!(state(&world).owned(id(2)).count(), 8);
}

#[test]
fn a_rest_ends_once_an_operator_asks_whether_something_has_to_move_or_not() {
    let drain = Query::Drain {
        node: "node-3".to_owned(),
        on: true,
    };
    for asked in [Query::Rebalance { dry_run: false }, drain] {
        let mut world = placed(2, Policy::Sticky);
        join(&mut world, 3);
        beat(&mut world, 3, 400);
        if let Query::Rebalance { .. } = asked {
            planned(ask(&mut world, asked.clone()));
            carry_out(&mut world, 3);
        }
        ask(&mut world, Query::CancelPlacement);
        assert_eq!(state(&world).course(), Course::Rests);
        assert_eq!(planned(ask(&mut world, asked)), []);
        assert_eq!(state(&world).course(), Course::Follows);
    }
}

/// What the source of the first migration has copied of it so far.
fn say_copied(world: &mut World, bytes: u64) {
    let leader = world.leader();
    let progress = Progress {
        bytes,
        ..Progress::default()
    };
    let request = Request::Progress {
        node: id(1),
        incarnation: 1,
        progress: vec![(MigrationId(1), progress)],
    };
    world.say(leader, 1, request);
}

#[test]
fn what_was_copied_before_a_leader_looks_is_not_of_its_rate() {
    let mut world = cluster(3, 2);
    let query = Query::Move {
        partition: 0,
        node: "node-2".to_owned(),
        shard: None,
    };
    planned(ask(&mut world, query));
    step(&mut world, 1, 1, Step::Begin);
    let mut copied = 0;
    let mut copy = |world: &mut World| {
        for _ in 0..100 {
            beat(world, 2, 1_000);
            copied += 10_000_000;
            say_copied(world, copied);
        }
        let rate = show(world, None).bytes_per_s;
        assert!(
            rate.is_some_and(|rate| (9_000_000..=10_000_000).contains(&rate)),
            "{rate:?}"
        );
    };
    copy(&mut world);
    let first = world.leader();
    world.turn(first, Some(Event::StepAside));
    world.pass(1_500);
    assert_ne!(world.leader(), first);
    join(&mut world, 2);
    copy(&mut world);
}

#[test]
fn time_in_which_nothing_can_move_is_not_of_the_rate() {
    let mut world = cluster(1, 3);
    for (partition, node) in [(0, "node-2"), (1, "node-3")] {
        let (node, shard) = (node.to_owned(), None);
        let query = Query::Move {
            partition,
            node,
            shard,
        };
        planned(ask(&mut world, query));
    }
    step(&mut world, 1, 1, Step::Begin);
    for copied in 1..=60 {
        beat(&mut world, 3, 1_000);
        say_copied(&mut world, copied * 10_000_000);
    }
    let confirmed = vec![(MigrationId(1), CONFIRMATION)];
    step(&mut world, 1, 1, Step::Commit(confirmed));
    // The other one waits for a node that has failed.
    beat(&mut world, 2, 55_000);
    let rate = show(&mut world, None).bytes_per_s;
    assert!(rate.is_some_and(|rate| rate > 9_000_000), "{rate:?}");
}

#[test]
fn a_node_is_emptied_while_others_are_away() {
    for policy in [
        Policy::Ring(Ring::default()),
        Policy::Rendezvous(crate::placement::Rendezvous::default()),
    ] {
        let mut world = placed(3, policy);
        beat(&mut world, 2, 3_000);
        let owned = state(&world).owned(id(2)).count();
        let (node, on) = ("node-2".to_owned(), true);
        let all = planned(ask(&mut world, Query::Drain { node, on }));
        assert_eq!(all.len(), owned, "{policy}");
        assert!(all.iter().all(|row| row.to_node == "node-1"), "{all:?}");
        carry_out(&mut world, 2);
        assert_eq!(state(&world).owned(id(2)).count(), 0);
    }
}

#[test]
fn what_is_cancelled_by_itself_is_not_planned_again_at_once() {
    let mut world = cluster(1, 2);
    set(&mut world, Policy::Sticky);
    beat(&mut world, 2, 400);
    assert_eq!(active(&world), 8);
    let id = state(&world).migrations().last.0;
    ask(&mut world, Query::CancelMigration { id });
    carry_out(&mut world, 2);
    beat(&mut world, 2, 9_000);
    assert_eq!(active(&world), 0);
    beat(&mut world, 2, 2_000);
    assert_eq!(active(&world), 1);
    carry_out(&mut world, 2);
    beat(&mut world, 2, 400);
    assert_eq!(state(&world).course(), Course::Follows);
}
