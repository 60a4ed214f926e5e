use super::*;
use crate::coordinator::migrations::tests::bed::{
    ask, beat, carry_out, cluster, join, planned, state, step,
};
use crate::coordinator::tests::{World, heartbeat, id};
use crate::load::{Amount, Board, Counted};
use crate::migration::Step;
use crate::protocol::Request;
use crate::report::{Query, Report};

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

/// A node that has these partitions, each with so many thousandths of a CPU.
fn busy(partitions: &[(u16, u64)]) -> Board {
    let counted = |id: u16, ms: u64| {
        let found = partitions.iter().find(|(partition, _)| *partition == id);
        found.map(|(_, permille)| Counted {
            amount: Amount {
                ops: 1,
                cpu_ns: permille * ms * 1_000,
                ..Amount::default()
            },
            bytes: 1 << 20,
        })
    };
    let shard = |ms: u64| Amount {
        cpu_ns: partitions
            .iter()
            .map(|(_, permille)| permille * ms * 1_000)
            .sum(),
        ..Amount::default()
    };
    let mut board = Board::new(1, 16, 199);
    for ms in [0, 200] {
        board.look(
            200 + ms,
            [shard(ms)].into_iter(),
            (0..16).map(|id| counted(id, ms)),
        );
    }
    board
}

fn tell(world: &mut World, n: u8, board: &mut Board) {
    for _ in 0..16 {
        let leader = world.leader();
        let version = state(world).table().version;
        let Request::Heartbeat(beat, _) = heartbeat(n, world.now, version) else {
            panic!("a heartbeat");
        };
        world.say(leader, n.into(), Request::Heartbeat(beat, board.report()));
    }
}

/// What each node has, so many thousandths of a CPU each.
fn told(world: &mut World, permille: [u64; 2]) {
    for (n, permille) in (1..).zip(permille) {
        let owned = state(world).owned(id(n));
        let owned: Vec<_> = owned.map(|partition| (partition.0, permille)).collect();
        tell(world, n, &mut busy(&owned));
    }
}

#[test]
fn by_load_a_new_node_gets_its_number_and_then_what_evens_load_out() {
    let mut world = balancing(2);
    world.coordinators[0].auto_rebalance = Some(Balance::Load);
    beat(&mut world, 2, AUTO_REBALANCE_AFTER_MS + 400);
    assert_eq!(active(&world), 8, "it owns nothing");
    carry_out(&mut world, 2);
    told(&mut world, [100, 10]);
    beat(&mut world, 2, BY_LOAD_AFTER_MS - 2_000);
    assert_eq!(active(&world), 0, "what was moved is not measured yet");
    beat(&mut world, 2, 14_000);
    let moves = active(&world);
    assert!((3..=4).contains(&moves), "{moves}");
    carry_out(&mut world, 2);
    let left = state(&world).owned(id(1)).count();
    assert_eq!(left, 8 - moves);
    // The same all over: a leader that comes next finds nothing to do.
    let n = |count: usize| 400 / count as u64;
    let others = state(&world).owned(id(2)).count();
    told(&mut world, [n(left), n(others)]);
    beat(&mut world, 2, 3 * BY_LOAD_AFTER_MS);
    assert_eq!(active(&world), 0);
}

#[test]
fn unasked_little_load_and_load_that_is_not_known_move_nothing() {
    let mut world = balancing(2);
    beat(&mut world, 2, AUTO_REBALANCE_AFTER_MS + 400);
    carry_out(&mut world, 2);
    world.coordinators[0].auto_rebalance = Some(Balance::Load);
    let owned: Vec<_> = state(&world).owned(id(1)).map(|p| (p.0, 100)).collect();
    tell(&mut world, 1, &mut busy(&owned));
    beat(&mut world, 2, BY_LOAD_AFTER_MS + 20_000);
    assert_eq!(active(&world), 0, "node 2 has told nothing");
    told(&mut world, [20, 1]);
    beat(&mut world, 2, 20_000);
    assert_eq!(active(&world), 0, "no shard takes a fifth of its CPU");
    let asked = Query::RebalanceByLoad { dry_run: true };
    match ask(&mut world, asked) {
        Report::PlannedByLoad { plan, bytes, .. } => {
            assert!(!plan.is_empty());
            assert!(bytes >= plan.len() as u64 * (7 << 17), "{bytes}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(active(&world), 0, "it was only asked for");
    let asked = Query::RebalanceByLoad { dry_run: false };
    let rows = planned(ask(&mut world, asked));
    assert_eq!(active(&world), rows.len());
}

#[test]
fn who_asks_for_moves_by_load_is_told_what_will_move_them_back() {
    let mut world = balancing(2);
    beat(&mut world, 2, AUTO_REBALANCE_AFTER_MS + 400);
    carry_out(&mut world, 2);
    told(&mut world, [100, 10]);
    let unmet = |world: &mut World, by: Option<Balance>| {
        world.coordinators[0].auto_rebalance = by;
        match ask(world, Query::RebalanceByLoad { dry_run: true }) {
            Report::PlannedByLoad { unmet, .. } => unmet,
            other => panic!("{other:?}"),
        }
    };
    for by in [None, Some(Balance::Load)] {
        assert_eq!(unmet(&mut world, by), [""; 0]);
    }
    let by_count = unmet(&mut world, Some(Balance::Count));
    let sentence =
        "the leader balances by the number of partitions: what moves now will be moved back";
    assert_eq!(by_count, [sentence]);
}
