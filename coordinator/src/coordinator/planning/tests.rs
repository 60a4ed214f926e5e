use ephesus_wire::ShardId;
use futures_lite::future::block_on;

use super::*;
use crate::coordinator::migrations::tests::bed::{beat, cluster};
use crate::coordinator::tests::{heartbeat, id};
use crate::coordinator::{Event, PLAN_PATIENCE_MS};
use crate::protocol::Request;
use crate::report::Query;
use crate::state::tests::{after, bootstrap, register};

/// The plans that are to be made.
fn jobs(actions: impl Iterator<Item = Action>) -> impl Iterator<Item = Box<PlanJob>> {
    actions.filter_map(|action| match action {
        Action::Plan(job) => Some(job),
        _ => None,
    })
}

#[test]
fn one_plan_is_made_at_a_time_and_those_that_nobody_waits_for_are_not() {
    let mut world = cluster(1, 2);
    beat(&mut world, 2, 400);
    let coordinator = &mut world.coordinators[0];
    let mut now_ms = world.now;
    let mut turn = |event: Option<Event>, passed_ms: u64| {
        now_ms += passed_ms;
        let turn = coordinator.turn(event, now_ms, 0, drop);
        let actions = block_on(turn).expect("runs").into_iter();
        jobs(actions).collect::<Vec<_>>()
    };
    let asked = |session: u64| {
        let query = Query::RebalanceByLoad { dry_run: false };
        let request = Request::Operator { id: 1, query };
        Some(Event::Request(SessionId(session), request))
    };
    let planned = |job: &PlanJob| Some(Event::Planned(Box::new(job.run())));
    let first = turn(asked(96), 0);
    assert_eq!(first.len(), 1);
    assert!(turn(asked(97), 0).is_empty() && turn(asked(98), 0).is_empty());
    turn(Some(Event::Closed(SessionId(97))), 0);
    let third = turn(planned(&first[0]), 0);
    assert_eq!(third.len(), 1);
    assert!(third[0].ticket.0 > first[0].ticket.0 + 1);
    // The one that is made takes too long; another one waits by then.
    turn(None, PLAN_PATIENCE_MS - 1);
    assert!(turn(asked(99), 0).is_empty());
    assert_eq!(turn(None, 1).len(), 1);
    assert!(turn(planned(&third[0]), 0).is_empty());
}

#[test]
fn what_empties_a_node_is_not_moved_once_it_is_not_to_be_emptied() {
    let mut world = cluster(1, 2);
    beat(&mut world, 2, 400);
    let coordinator = &mut world.coordinators[0];
    let mut now_ms = world.now;
    let mut turn = |event: Option<Event>| {
        now_ms += 30;
        let turn = coordinator.turn(event, now_ms, 0, drop);
        let actions = block_on(turn).expect("runs").into_iter();
        let mut jobs = jobs(actions);
        let migrations = coordinator.state().migrations();
        (jobs.next(), migrations.active.len())
    };
    for ends in [true, false] {
        let drain = |on| {
            let node = "node-1".to_owned();
            let query = Query::Drain { node, on };
            Event::Request(SessionId(98), Request::Operator { id: 1, query })
        };
        let (job, _) = turn(Some(drain(true)));
        let job = job.or_else(|| turn(None).0).expect("a plan");
        if ends {
            turn(Some(drain(false)));
            turn(None);
        }
        turn(Some(Event::Planned(Box::new(job.run()))));
        let (_, active) = turn(None);
        assert_eq!(active, if ends { 0 } else { 16 });
    }
}

#[test]
fn a_partition_of_which_no_size_is_told_has_what_its_node_s_usually_have() {
    let mut world = cluster(1, 1);
    let Request::Heartbeat(mut beat, load) = heartbeat(1, world.now, 0) else {
        panic!("a heartbeat");
    };
    beat.figures.bytes = 1_600;
    world.say(1, 1, Request::Heartbeat(beat, load));
    let loaded = world.coordinators[0].loaded();
    assert_eq!(loaded.len(), 16);
    assert!(loaded.iter().all(|one| one.bytes == 100), "{loaded:?}");
    assert_eq!(world.coordinators[0].state().owned(id(1)).count(), 16);
}

#[test]
fn nodes_take_turns_to_give_a_batch_each() {
    let state = after(&[
        bootstrap(80, 2, Policy::Contiguous),
        register(1, "athens", 1, 1),
        register(2, "byzantium", 1, 1),
    ]);
    let to = |n: u8| Place {
        node: id(n),
        shard: ShardId(0),
    };
    // What node 1 gives goes to two nodes in turn.
    let moves = (0..80).map(|n| Move {
        partition: PartitionId(n),
        to: to(if n < 40 { 3 + (n % 2) as u8 } else { 3 }),
    });
    let ordered = in_turns(moves.rev().collect(), &state);
    let ordered: Vec<u16> = ordered.iter().map(|one| one.partition.0).collect();
    let expected = [
        (0..32).step_by(2).collect::<Vec<u16>>(),
        (40..56).collect(),
        (1..32).step_by(2).collect(),
        (56..72).collect(),
        (32..40).step_by(2).collect(),
        (72..80).collect(),
        (33..40).step_by(2).collect(),
    ];
    assert_eq!(ordered, expected.concat());
}
