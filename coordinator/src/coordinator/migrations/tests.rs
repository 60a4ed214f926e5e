//! Migrations as operators ask for them, sources carry them out and leaders follow them.

pub(in crate::coordinator) mod bed;
mod failed;

use ephesus_wire::{Epoch, PartitionId};

use self::bed::*;
use super::*;
use crate::coordinator::tests::{World, id, register};
use crate::coordinator::{Event, SessionId, TICK_MS};
use crate::migration::{ATTEMPTS_MAX, Arrival, Phase};
use crate::protocol::{Answer, Request};
use crate::report::{MigrationState, MoveRow, Query, Report};
use crate::state::Refusal;
use crate::view::TableUpdate;

#[test]
fn the_outcome_of_an_earlier_proposal_does_not_stand_for_that_of_a_later_one() {
    let mut migrating = Migrating::default();
    let (id, later) = (MigrationId(1), Ticket(2));
    migrating.proposed.insert(id, later);
    migrating.settle(id, Ticket(1));
    assert_eq!(migrating.proposed.get(&id), Some(&later));
    migrating.settle(id, later);
    assert!(migrating.proposed.is_empty());
}

#[test]
fn a_partition_moves_as_its_source_says_and_everybody_sees_it() {
    let mut world = cluster(1, 2);
    let rows = move_to(&mut world, 3, "node-2");
    let row = MoveRow {
        partition: 3,
        migration: Some(1),
        from_node: Some("node-1".to_owned()),
        from_shard: Some(0),
        to_node: "node-2".to_owned(),
        to_shard: 0,
        refusal: None,
    };
    assert_eq!(rows, [row]);
    beat(&mut world, 2, 0);
    world.told();
    step(&mut world, 2, 1, Step::Begin);
    assert_eq!(
        phase(&world, 1),
        Some(Phase::Planned),
        "not the target's turn"
    );
    step(&mut world, 1, 1, Step::Begin);
    assert_eq!(phase(&world, 1), Some(Phase::Copying));
    step(&mut world, 1, 1, commit(1));
    assert_eq!(phase(&world, 1), Some(Phase::Committed(CONFIRMATION)));
    assert_eq!(owner(&world, 3), id(2));
    let deltas = world
        .told()
        .into_iter()
        .filter_map(|(session, answer)| match answer {
            Answer::Table(update) => match *update {
                TableUpdate::Delta(delta) => {
                    Some((session, delta.migrations.len(), delta.arrivals))
                }
                TableUpdate::Full(_) => None,
            },
            _ => None,
        });
    let arrival = |migration, epoch| {
        let (migration, epoch) = (MigrationId(migration), Epoch(epoch));
        vec![(PartitionId(3), Arrival { migration, epoch })]
    };
    let expected = [
        (1, 1, arrival(0, 1)),
        (2, 1, arrival(0, 1)),
        (1, 1, arrival(1, 2)),
        (2, 1, arrival(1, 2)),
    ];
    assert_eq!(deltas.collect::<Vec<_>>(), expected);
    let committed = world.coordinators[0].member().committed();
    step(&mut world, 1, 1, commit(1));
    step(&mut world, 2, 1, Step::Abort("late".to_owned()));
    assert_eq!(world.coordinators[0].member().committed(), committed);
}

#[test]
fn what_cannot_be_done_is_told() {
    let mut world = cluster(1, 2);
    let ask_move = |world: &mut World, partition, node: &str, shard| {
        let node = node.to_owned();
        ask(
            world,
            Query::Move {
                partition,
                node,
                shard,
            },
        )
    };
    let there = Refusal::AlreadyThere(PartitionId(3));
    let told = ask_move(&mut world, 3, "node-1", None);
    assert_eq!(told, Report::Refused(there), "it has one shard");
    let told = ask_move(&mut world, 3, "nobody", None);
    assert_eq!(told, Report::NoSuchNode("nobody".to_owned()));
    let told = ask_move(&mut world, 16, "node-2", Some(0));
    let missing = Refusal::NoSuchPartition(PartitionId(16));
    assert_eq!(told, Report::Refused(missing));
    let told = ask(&mut world, Query::CancelMigration { id: 1 });
    let unknown = Refusal::NoSuchMigration(MigrationId(1));
    assert_eq!(told, Report::Refused(unknown));
    let drain = |name: &str| Query::Drain {
        node: name.to_owned(),
        on: true,
    };
    assert_eq!(
        ask(&mut world, drain("nobody")),
        Report::NoSuchNode("nobody".to_owned())
    );
    planned(ask(&mut world, drain("node-2")));
    let nowhere = Refusal::NowhereToGo("node-1".to_owned());
    assert_eq!(ask(&mut world, drain("node-1")), Report::Refused(nowhere));
    let draining = Refusal::Draining("node-2".to_owned());
    let told = ask_move(&mut world, 3, "node-2", None);
    assert_eq!(told, Report::Refused(draining));
}

#[test]
fn a_rebalance_is_shown_then_planned_and_balances() {
    let mut world = cluster(1, 2);
    let shown = planned(ask(&mut world, Query::Rebalance { dry_run: true }));
    assert_eq!(shown.len(), 8);
    assert!(
        shown
            .iter()
            .all(|row| row.migration.is_none() && row.refusal.is_none())
    );
    assert!(state(&world).migrations().active.is_empty());
    let rows = planned(ask(&mut world, Query::Rebalance { dry_run: false }));
    let ids: Vec<_> = rows.iter().filter_map(|row| row.migration).collect();
    assert_eq!(ids, (1..=8).collect::<Vec<_>>());
    assert_eq!(
        planned(ask(&mut world, Query::Rebalance { dry_run: false })),
        []
    );
    carry_out(&mut world, 2);
    assert_eq!(state(&world).owned(id(2)).count(), 8);
}

#[test]
fn a_drained_node_ends_with_nothing_and_can_go() {
    let mut world = cluster(1, 3);
    planned(ask(&mut world, Query::Rebalance { dry_run: false }));
    carry_out(&mut world, 3);
    let counts = |world: &World| [1, 2, 3].map(|n| state(world).owned(id(n)).count());
    assert_eq!(counts(&world), [6, 5, 5]);
    let on = true;
    let node = "node-2".to_owned();
    let rows = planned(ask(
        &mut world,
        Query::Drain {
            node: node.clone(),
            on,
        },
    ));
    assert_eq!(rows.len(), 5);
    assert!(
        rows.iter()
            .all(|row| row.from_node.as_deref() == Some("node-2"))
    );
    // The first attempt of one goes wrong.
    let first = rows[0].migration.expect("planned");
    step(&mut world, 2, first, Step::Begin);
    step(
        &mut world,
        2,
        first,
        Step::Abort("the link broke".to_owned()),
    );
    carry_out(&mut world, 3);
    assert_eq!(counts(&world)[1], 1);
    let failed = migrations(&mut world)
        .into_iter()
        .find(|row| row.id == first);
    let failed = failed.expect("kept");
    assert!(failed.will_retry);
    assert_eq!(failed.last_error, "the source gave up: the link broke");
    beat(&mut world, 3, RETRY_MS + 400);
    carry_out(&mut world, 3);
    assert_eq!(counts(&world), [8, 0, 8]);
    let again = planned(ask(
        &mut world,
        Query::Drain {
            node: node.clone(),
            on,
        },
    ));
    assert_eq!(again, []);
    let Report::Migrations(report) = ask(&mut world, Query::Migrations) else {
        panic!("no migrations");
    };
    assert_eq!(
        (
            report.draining[0].node.as_str(),
            report.draining[0].partitions
        ),
        ("node-2", 0)
    );
    let lose_data = false;
    let removed = ask(&mut world, Query::RemoveNode { node, lose_data });
    assert!(matches!(removed, Report::NodeRemoved { .. }), "{removed:?}");
}

#[test]
fn a_drain_can_be_ended() {
    let mut world = cluster(1, 2);
    let node = "node-2".to_owned();
    planned(ask(
        &mut world,
        Query::Drain {
            node: node.clone(),
            on: true,
        },
    ));
    assert_eq!(
        planned(ask(&mut world, Query::Rebalance { dry_run: true })),
        []
    );
    let told = ask(
        &mut world,
        Query::Drain {
            node: node.clone(),
            on: false,
        },
    );
    assert_eq!(told, Report::NotDraining { node });
    assert_eq!(
        planned(ask(&mut world, Query::Rebalance { dry_run: true })).len(),
        8
    );
}

#[test]
fn what_an_operator_cancels_is_not_tried_again() {
    let mut world = cluster(1, 2);
    planned(ask(&mut world, Query::Rebalance { dry_run: false }));
    step(&mut world, 1, 1, Step::Begin);
    step(&mut world, 1, 2, Step::Abort(String::new()));
    for id in [1, 2] {
        let cancelled = ask(&mut world, Query::CancelMigration { id });
        assert_eq!(cancelled, Report::MigrationCancelled { id });
    }
    step(&mut world, 1, 1, commit(1));
    assert_eq!(owner(&world, 8), id(1));
    beat(&mut world, 2, RETRY_MS * 2);
    let rows = migrations(&mut world);
    assert_eq!(rows.len(), 8, "no more were planned: {rows:?}");
    let words: Vec<_> = rows[..3].iter().map(|row| row.state).collect();
    assert_eq!(
        words,
        [
            MigrationState::Aborted,
            MigrationState::Aborted,
            MigrationState::Planned
        ]
    );
    assert_eq!(rows[0].last_error, "cancelled");
    assert!(rows.iter().all(|row| !row.will_retry));
}

#[test]
fn progress_of_sources_is_reported_with_rates() {
    let mut world = cluster(1, 2);
    move_to(&mut world, 3, "node-2");
    step(&mut world, 1, 1, Step::Begin);
    let mut say = |n: u8, keys, last_error: &str| {
        let progress = Progress {
            keys,
            bytes: keys * 100,
            hold_us: 0,
            last_error: last_error.to_owned(),
        };
        let request = Request::Progress {
            node: id(n),
            incarnation: 1,
            progress: vec![(MigrationId(1), progress)],
        };
        world.say(1, n.into(), request);
        world.pass(500);
    };
    say(1, 1_000, "");
    say(2, 9, "only the source knows");
    say(1, 3_000, "slow");
    let rows = migrations(&mut world);
    let row = &rows[0];
    assert_eq!(
        (row.state, row.keys, row.bytes),
        (MigrationState::Copying, 3_000, 300_000)
    );
    assert_eq!((row.keys_per_s, row.bytes_per_s), (2_000, 200_000));
    assert_eq!((row.last_error.as_str(), row.attempt), ("slow", 1));
    step(&mut world, 1, 1, commit(1));
    let rows = migrations(&mut world);
    assert_eq!(
        (rows[0].state, rows[0].keys),
        (MigrationState::Committed, 40)
    );
}

#[test]
fn another_leader_takes_migrations_up() {
    for commits in [true, false] {
        let mut world = cluster(3, 2);
        move_to(&mut world, 3, "node-2");
        step(&mut world, 1, 1, Step::Begin);
        assert_eq!(phase(&world, 1), Some(Phase::Copying));
        let lost = world.leader();
        world.cut_off = vec![lost];
        // What the old leader proposes now is never decided.
        let abort = Step::Abort("too late".to_owned());
        step(&mut world, 1, 1, if commits { abort } else { commit(1) });
        for other in world.others(lost) {
            world.turn(other, Some(Event::Lost(crate::command::RaftId(lost))));
        }
        world.pass(4 * TICK_MS);
        assert_ne!(world.leader(), lost);
        assert_eq!(phase(&world, 1), Some(Phase::Copying));
        join(&mut world, 2);
        let abort = Step::Abort("enough".to_owned());
        step(&mut world, 1, 1, if commits { commit(1) } else { abort });
        assert_eq!(owner(&world, 3), if commits { id(2) } else { id(1) });
        world.cut_off.clear();
        world.pass(1_000);
        let version = state(&world).table().version;
        for coordinator in &world.coordinators {
            let state = coordinator.state();
            assert!(state.migrations().active.is_empty());
            assert_eq!(state.table().version, version);
        }
    }
}

#[test]
fn a_new_leader_plans_aborted_moves_again() {
    let mut world = cluster(3, 2);
    planned(ask(&mut world, Query::Rebalance { dry_run: false }));
    step(&mut world, 1, 5, Step::Begin);
    step(&mut world, 1, 5, Step::Abort("a broken link".to_owned()));
    let lost = world.leader();
    world.turn(lost, Some(Event::StepAside));
    world.pass(2 * TICK_MS);
    assert_ne!(world.leader(), lost);
    join(&mut world, 2);
    assert_eq!(state(&world).migrations().active.len(), 7);
    beat(&mut world, 2, RETRY_MS + 400);
    let active = &state(&world).migrations().active;
    assert_eq!(active.len(), 8);
    assert_eq!(active[&MigrationId(9)].attempt, 2);
    assert!(state(&world).retries().is_empty());
}

#[test]
fn an_earlier_start_is_not_listened_to() {
    let mut world = cluster(1, 2);
    move_to(&mut world, 3, "node-2");
    step(&mut world, 1, 1, Step::Begin);
    let Request::Register(mut registration) = register(1) else {
        panic!("a registration");
    };
    registration.incarnation = 2;
    world.say(1, 5, Request::Register(registration));
    step(&mut world, 1, 1, commit(1));
    assert_eq!(phase(&world, 1), Some(Phase::Copying));
    let request = Request::Steps {
        node: id(1),
        incarnation: 2,
        steps: vec![(MigrationId(1), Step::Abort("started again".to_owned()))],
    };
    world.turn(1, Some(Event::Request(SessionId(5), request)));
    assert!(matches!(phase(&world, 1), Some(Phase::Aborted(_))));
}

#[test]
fn attempts_are_bounded_wait_longer_each_time_and_keep_the_last_error() {
    let mut world = cluster(1, 2);
    planned(ask(&mut world, Query::Rebalance { dry_run: false }));
    for migration in 2..=8 {
        step(&mut world, 1, migration, Step::Begin);
        step(&mut world, 1, migration, commit(migration));
    }
    let mut waits = Vec::new();
    let mut migration = 1;
    for attempt in 1..=ATTEMPTS_MAX {
        let rows = migrations(&mut world);
        let row = rows.iter().find(|row| row.id == migration);
        let row = row.expect("planned");
        assert_eq!((row.state, row.attempt), (MigrationState::Planned, attempt));
        if attempt > 1 {
            let text = format!("the source gave up: attempt {}", attempt - 1);
            assert_eq!(row.last_error, text, "while it is planned again");
        }
        step(&mut world, 1, migration, Step::Begin);
        step(
            &mut world,
            1,
            migration,
            Step::Abort(format!("attempt {attempt}")),
        );
        let since = world.now;
        while state(&world).migrations().active.is_empty() && world.now < since + 30_000 {
            beat(&mut world, 2, 100);
        }
        waits.push(world.now - since);
        migration = state(&world).migrations().last.0;
    }
    let (last, waits) = waits.split_last().expect("attempts");
    assert!(*last >= 30_000, "there is no attempt more");
    assert!(waits.is_sorted_by(|a, b| a * 3 / 2 < *b), "{waits:?}");
    let rows = migrations(&mut world);
    let row = rows.iter().find(|row| row.id == migration);
    let row = row.expect("kept");
    assert_eq!(
        row.last_error,
        format!("the source gave up: attempt {ATTEMPTS_MAX}")
    );
    assert!(!row.will_retry);
}

#[test]
fn what_is_copied_counts_once_and_however_much_it_is() {
    let earlier = Some(MigrationId(0));
    let mut migrating = Migrating {
        earlier,
        ..Migrating::default()
    };
    let progress = |bytes| Progress {
        bytes,
        ..Progress::default()
    };
    migrating.note(MigrationId(1), progress(100), 1_000);
    migrating.note(MigrationId(1), progress(200), 1_000);
    assert_eq!(migrating.pace.bytes, 100, "twice within a moment");
    migrating.note(MigrationId(1), progress(200), 1_001);
    assert_eq!(migrating.pace.bytes, 200);
    for id in 2..4 {
        migrating.note(MigrationId(id), progress(u64::MAX), 1_001);
    }
    assert_eq!(migrating.pace.bytes, u64::MAX);
}
