use super::*;
use crate::coordinator::migrations::tests::bed::{ask, beat, carry_out, cluster, state, step};
use crate::coordinator::tests::{World, id};
use crate::migration::Step;
use crate::placement::Ring;
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
