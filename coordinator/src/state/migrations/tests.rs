use ephesus_wire::{Epoch, NodeId, ShardId};

use super::*;
use crate::command::Command;
use crate::migration::{Decision, Step, TEXT_BYTES_MAX};
use crate::placement::{Move, Policy};
use crate::state::tests::{after, apply, bootstrap, hosting, id, online, register, three_nodes};

const CONFIRMATION: Confirmation = Confirmation {
    count: 5,
    digest: [1, 2],
};

fn place(n: u8, shard: u16) -> Place {
    Place {
        node: id(n),
        shard: ShardId(shard),
    }
}

fn plan(partition: u16, to: Place, purpose: Purpose) -> Command {
    let partition = PartitionId(partition);
    Command::PlanMoves {
        moves: vec![Move { partition, to }],
        purpose,
    }
}

fn begin(migration: u64) -> Command {
    Command::BeginMigration {
        id: MigrationId(migration),
        incarnation: 1,
    }
}

fn commit(migration: u64) -> Command {
    commit_all(&[migration])
}

fn commit_all(migrations: &[u64]) -> Command {
    let confirmations = migrations.iter().map(|id| (MigrationId(*id), CONFIRMATION));
    Command::CommitMigrations {
        incarnation: 1,
        confirmations: confirmations.collect(),
    }
}

fn abort(migration: u64, reason: AbortReason) -> Command {
    let text = String::new();
    Command::AbortMigration {
        id: MigrationId(migration),
        abort: Abort { reason, text },
    }
}

fn retry(migration: u64) -> Command {
    let id = MigrationId(migration);
    Command::RetryMigration { id }
}

fn fail(n: u8) -> Command {
    Command::Fail {
        node: id(n),
        incarnation: 1,
    }
}

/// Migration 1, of partition 0 from node 1 to node 2, that copies.
fn copying(purpose: Purpose) -> State {
    let mut state = online();
    let effects = apply(&mut state, &plan(0, place(2, 0), purpose));
    assert_eq!(effects.planned[0].1, Ok(MigrationId(1)));
    apply(&mut state, &begin(1));
    state
}

fn entry(state: &State) -> (u64, PartitionStatus, NodeId) {
    let entry = &state.table.entries[0];
    let owner = entry.primary().expect("an owner").node;
    (entry.epoch.0, entry.status, owner)
}

fn phase_of(state: &State, migration: u64) -> Phase {
    let id = MigrationId(migration);
    let ended = state.ended_migrations().find(|(other, _)| *other == id);
    let ended = ended.map(|(_, migration)| migration);
    let found = state.migrations().active.get(&id).or(ended);
    found.expect("given out").phase.clone()
}

fn reason_of(state: &State, migration: u64) -> AbortReason {
    match phase_of(state, migration) {
        Phase::Aborted(abort) => abort.reason,
        other => panic!("{other:?}"),
    }
}

fn decision(state: &State, migration: u64) -> Decision {
    let table = state.migrations();
    table.decision_for_target(MigrationId(migration), PartitionId(0))
}

#[test]
fn a_partition_moves_by_plan_begin_and_commit() {
    let mut state = online();
    assert_eq!(decision(&state, 1), Decision::Open);
    let effects = apply(&mut state, &plan(0, place(2, 0), Purpose::Move));
    assert!(effects.partitions.is_empty(), "the table is as it was");
    assert_eq!(entry(&state), (1, PartitionStatus::Online, id(1)));
    assert_eq!(
        state.apply(&commit(1)),
        Err(Refusal::NotCopying(MigrationId(1)))
    );
    apply(&mut state, &begin(1));
    assert_eq!(entry(&state), (1, PartitionStatus::Migrating, id(1)));
    assert_eq!(apply(&mut state, &begin(1)), Effects::default(), "again");
    assert_eq!(decision(&state, 1), Decision::Open);
    let effects = apply(&mut state, &commit(1));
    assert_eq!(effects.partitions, BTreeSet::from([PartitionId(0)]));
    assert_eq!(entry(&state), (2, PartitionStatus::Online, id(2)));
    assert_eq!(decision(&state, 1), Decision::Committed);
    assert_eq!(phase_of(&state, 1), Phase::Committed(CONFIRMATION));
    assert!(state.migrations().active.is_empty());
    assert_eq!(apply(&mut state, &commit(1)), Effects::default(), "again");
}

#[test]
fn the_first_of_commit_and_abort_counts() {
    let over = Err(Refusal::MigrationOver(MigrationId(1)));
    let mut state = copying(Purpose::Move);
    apply(&mut state, &abort(1, AbortReason::Source));
    assert_eq!(entry(&state), (1, PartitionStatus::Online, id(1)));
    assert_eq!(decision(&state, 1), Decision::Aborted);
    assert_eq!(state.apply(&commit(1)), over);
    assert_eq!(state.apply(&begin(1)), over);
    let again = apply(&mut state, &abort(1, AbortReason::TargetFailed));
    assert_eq!(again, Effects::default());
    assert_eq!(reason_of(&state, 1), AbortReason::Source);

    let mut state = copying(Purpose::Move);
    apply(&mut state, &commit(1));
    assert_eq!(state.apply(&abort(1, AbortReason::Cancelled)), over);
    assert_eq!(entry(&state), (2, PartitionStatus::Online, id(2)));
    let other = Command::CommitMigration {
        id: MigrationId(1),
        incarnation: 1,
        confirmation: Confirmation::default(),
    };
    assert_eq!(state.apply(&other), over, "another confirmation");
}

#[test]
fn a_later_start_of_the_source_is_not_bound_by_the_one_before() {
    let stale = Err(Refusal::Stale {
        node: id(1),
        found: 1,
        current: 2,
    });
    let mut state = copying(Purpose::Move);
    apply(&mut state, &register(1, "athens", 2, 1));
    assert_eq!(state.apply(&commit(1)), stale);
    assert_eq!(entry(&state).1, PartitionStatus::Migrating);
    let step = |state: &State, incarnation, step| {
        state.command_for(id(1), incarnation, MigrationId(1), &step)
    };
    let text = "the node was started again".to_owned();
    assert_eq!(step(&state, 1, Step::Abort(text.clone())), None);
    let command = step(&state, 2, Step::Abort(text.clone())).expect("its turn");
    apply(&mut state, &command);
    let reason = AbortReason::Source;
    assert_eq!(phase_of(&state, 1), Phase::Aborted(Abort { reason, text }));
    apply(&mut state, &plan(0, place(2, 0), Purpose::Move));
    let refused = Command::BeginMigration {
        id: MigrationId(2),
        incarnation: 1,
    };
    assert_eq!(state.apply(&refused), stale);
}

#[test]
fn a_batch_is_committed_as_a_whole_or_not_at_all() {
    let two = || {
        let mut state = copying(Purpose::Move);
        apply(&mut state, &plan(1, place(2, 0), Purpose::Move));
        apply(&mut state, &begin(2));
        state
    };
    let mut state = two();
    let version = state.table().version;
    apply(&mut state, &commit_all(&[1, 2]));
    assert_eq!(
        state.table().version,
        version + 1,
        "everybody sees both at once"
    );
    assert_eq!(
        [1, 2].map(|n| phase_of(&state, n)),
        [1, 2].map(|_| Phase::Committed(CONFIRMATION))
    );
    let again = apply(&mut state, &commit_all(&[1, 2]));
    assert_eq!(again, Effects::default());

    let mut state = two();
    apply(&mut state, &abort(2, AbortReason::Cancelled));
    let over = Err(Refusal::MigrationOver(MigrationId(2)));
    assert_eq!(state.apply(&commit_all(&[1, 2])), over);
    assert_eq!(phase_of(&state, 1), Phase::Copying);
    let confirmed = [1, 2].map(|n| (MigrationId(n), CONFIRMATION)).to_vec();
    let said = state.command_for(id(1), 1, MigrationId(1), &Step::Commit(confirmed));
    assert_eq!(said, None);
}

#[test]
fn only_those_who_take_part_are_listened_to() {
    let state = copying(Purpose::Move);
    let says = |n, step: Step| state.command_for(id(n), 1, MigrationId(1), &step);
    assert_eq!(says(1, Step::Begin), None, "it has begun");
    let confirmed = |migration| vec![(MigrationId(migration), CONFIRMATION)];
    assert_eq!(says(1, Step::Commit(confirmed(1))), Some(commit(1)));
    assert_eq!(says(2, Step::Commit(confirmed(1))), None);
    assert_eq!(says(1, Step::Commit(confirmed(2))), None, "there is none");
    let long = "x".repeat(TEXT_BYTES_MAX * 2);
    for (n, reason) in [(1, AbortReason::Source), (2, AbortReason::Target)] {
        let text = bounded(&long);
        let abort = Abort { reason, text };
        let id = MigrationId(1);
        let command = Command::AbortMigration { id, abort };
        assert_eq!(says(n, Step::Abort(long.clone())), Some(command));
    }
    assert_eq!(says(3, Step::Abort(long)), None);
    let unknown = state.command_for(id(1), 1, MigrationId(2), &Step::Begin);
    assert_eq!(unknown, None);
}

#[test]
fn moves_are_taken_or_refused_one_by_one() {
    let mut state = online();
    apply(&mut state, &plan(1, place(2, 0), Purpose::Move));
    apply(&mut state, &fail(3));
    let to = |partition, to| Move {
        partition: PartitionId(partition),
        to,
    };
    let moves = vec![
        to(0, place(2, 0)),
        to(1, place(2, 0)),
        to(1, place(1, 0)),
        to(2, place(1, 0)),
        to(2, place(2, 1)),
        to(2, place(3, 0)),
        to(6, place(1, 0)),
        to(9, place(1, 0)),
        to(2, place(8, 0)),
    ];
    let purpose = Purpose::Rebalance;
    let command = Command::PlanMoves { moves, purpose };
    let effects = apply(&mut state, &command);
    let outcomes: Vec<_> = effects.planned.into_iter().map(|(_, o)| o).collect();
    let failed = Err(Refusal::NodeFailed("cyrene".to_owned()));
    let expected = [
        Ok(MigrationId(2)),
        Ok(MigrationId(1)),
        Err(Refusal::Moving {
            partition: PartitionId(1),
            migration: MigrationId(1),
        }),
        Err(Refusal::AlreadyThere(PartitionId(2))),
        Err(Refusal::NoSuchShard {
            name: "byzantium".to_owned(),
            shard: ShardId(1),
            shards: 1,
        }),
        failed.clone(),
        failed,
        Err(Refusal::NoSuchPartition(PartitionId(9))),
        Err(Refusal::Unknown(id(8))),
    ];
    assert_eq!(outcomes, expected);
    let mut early = after(&[bootstrap(9, 2, Policy::Contiguous), register(1, "a", 1, 1)]);
    let effects = apply(&mut early, &plan(0, place(1, 0), Purpose::Move));
    let unowned = Err(Refusal::Unowned(PartitionId(0)));
    assert_eq!(effects.planned[0].1, unowned);
}

#[test]
fn a_migration_begins_once_its_partition_is_online() {
    let mut state = three_nodes(Policy::Contiguous);
    apply(&mut state, &plan(0, place(2, 0), Purpose::Move));
    let refused = Err(Refusal::NotOnline(PartitionId(0)));
    assert_eq!(state.apply(&begin(1)), refused);
    let says = |state: &State| state.command_for(id(1), 1, MigrationId(1), &Step::Begin);
    assert_eq!(says(&state), None);
    let all = hosting(&state, 1);
    apply(&mut state, &all);
    assert_eq!(says(&state), Some(begin(1)));
    apply(&mut state, &begin(1));
    for unknown in [0, 2] {
        let none = Err(Refusal::NoSuchMigration(MigrationId(unknown)));
        assert_eq!(state.apply(&begin(unknown)), none);
        assert_eq!(state.apply(&retry(unknown)), none);
    }
}

#[test]
fn a_rebalance_tries_again_under_other_ids_but_not_for_ever() {
    let mut state = copying(Purpose::Rebalance);
    for attempt in 1..=u64::from(ATTEMPTS_MAX) {
        apply(&mut state, &abort(attempt, AbortReason::Source));
        let waits = state.retries().get(&MigrationId(attempt)).copied();
        if attempt == u64::from(ATTEMPTS_MAX) {
            assert_eq!(waits, None);
            break;
        }
        assert_eq!(waits.map(|w| u64::from(w.attempt)), Some(attempt + 1));
        apply(&mut state, &retry(attempt));
        let id = MigrationId(attempt + 1);
        let again = &state.migrations().active[&id];
        assert_eq!(u64::from(again.attempt), attempt + 1);
        assert_eq!(apply(&mut state, &retry(attempt)), Effects::default());
    }
    let mut state = copying(Purpose::Move);
    apply(&mut state, &abort(1, AbortReason::Source));
    assert!(state.retries().is_empty(), "one move is one attempt");
}

#[test]
fn what_was_cancelled_or_planned_otherwise_is_not_tried_again() {
    let mut state = copying(Purpose::Rebalance);
    apply(&mut state, &abort(1, AbortReason::Cancelled));
    assert!(state.retries().is_empty());

    let mut state = copying(Purpose::Rebalance);
    apply(&mut state, &abort(1, AbortReason::Source));
    apply(&mut state, &abort(1, AbortReason::Cancelled));
    assert!(state.retries().is_empty(), "cancelled while it waits");

    let mut state = copying(Purpose::Rebalance);
    apply(&mut state, &abort(1, AbortReason::Target));
    apply(&mut state, &plan(0, place(3, 0), Purpose::Move));
    assert!(state.retries().is_empty(), "it goes elsewhere");
    assert_eq!(apply(&mut state, &retry(1)), Effects::default());
}

#[test]
fn a_retry_waits_for_a_failed_node_and_ends_with_a_removed_one() {
    let mut state = copying(Purpose::Rebalance);
    apply(&mut state, &fail(2));
    let stranded = |state: &State| -> Vec<_> {
        let stranded = state.stranded();
        stranded.map(|(id, _, reason)| (id.0, reason)).collect()
    };
    assert_eq!(stranded(&state), [(1, AbortReason::TargetFailed)]);
    let mut other = copying(Purpose::Rebalance);
    assert_eq!(stranded(&other), []);
    apply(&mut other, &fail(1));
    assert_eq!(stranded(&other), [(1, AbortReason::SourceFailed)]);
    apply(&mut state, &abort(1, AbortReason::TargetFailed));
    let wait = state.retries()[&MigrationId(1)];
    assert!(!state.can_retry(&wait));
    let failed = Err(Refusal::NodeFailed("byzantium".to_owned()));
    assert_eq!(state.apply(&retry(1)), failed);
    apply(&mut state, &register(2, "byzantium", 2, 1));
    assert!(
        !state.can_retry(&wait) && state.awaits(&wait),
        "it recovers"
    );
    for (n, incarnation) in [(1, 1), (2, 2)] {
        let node = id(n);
        apply(&mut state, &Command::Started { node, incarnation });
    }
    assert!(state.can_retry(&wait));
    let mut back = state.clone();
    apply(&mut back, &retry(1));
    assert_eq!(back.migrations().active.len(), 1);
    apply(
        &mut state,
        &Command::Fail {
            node: id(2),
            incarnation: 2,
        },
    );
    let node = id(2);
    let lose_data = true;
    apply(&mut state, &Command::Remove { node, lose_data });
    assert!(state.retries().is_empty());
}

#[test]
fn a_removed_node_ends_its_migrations() {
    for (gone, target) in [(1, 2), (2, 2)] {
        let mut state = copying(Purpose::Rebalance);
        apply(&mut state, &fail(gone));
        let lose_data = true;
        let node = id(gone);
        apply(&mut state, &Command::Remove { node, lose_data });
        assert_eq!(reason_of(&state, 1), AbortReason::Removed);
        assert!(state.retries().is_empty() && state.migrations().active.is_empty());
        assert_eq!(decision(&state, 1), Decision::Aborted, "{target}");
        let (epoch, status, owner) = entry(&state);
        let expected = if gone == 1 {
            (2, PartitionStatus::Assigned)
        } else {
            (1, PartitionStatus::Online)
        };
        assert_eq!((epoch, status), expected);
        assert_ne!(owner, node);
    }
}

#[test]
fn data_that_was_given_up_has_not_arrived() {
    let mut state = copying(Purpose::Move);
    apply(&mut state, &commit(1));
    apply(&mut state, &fail(2));
    let lose_data = true;
    let node = id(2);
    apply(&mut state, &Command::Remove { node, lose_data });
    assert_eq!(decision(&state, 1), Decision::Aborted);
    let (epoch, _, owner) = entry(&state);
    assert_eq!((epoch, owner), (3, id(1)), "its old owner's again");
    let is_current = |epoch| state.migrations().is_current(PartitionId(0), Epoch(epoch));
    assert_eq!([1, 2, 3].map(is_current), [false, false, true]);
}

fn forced(mut state: State) -> State {
    let coordinator = state.voters().next().expect("one");
    state.force(coordinator).expect("a coordinator");
    state
}

#[test]
fn what_only_nodes_know_of_a_migration_has_ended_once_a_coordinator_is_forced() {
    let mut state = forced(online());
    assert_eq!(decision(&state, 9), Decision::Aborted, "its target wipes");
    let of_source = |state: &State, epoch| {
        let table = state.migrations();
        table.decision_for_source(MigrationId(9), PartitionId(0), Epoch(epoch))
    };
    assert_eq!(
        of_source(&state, 1),
        Decision::Aborted,
        "its source goes on"
    );
    let effects = apply(&mut state, &plan(0, place(2, 0), Purpose::Move));
    let (_, planned) = &effects.planned[0];
    assert!(
        planned.as_ref().is_ok_and(|id| id.0 > 1 << 32),
        "{planned:?}"
    );
    let mut state = copying(Purpose::Move);
    apply(&mut state, &commit(1));
    let mut state = forced(state);
    assert_eq!(
        decision(&state, 1),
        Decision::Committed,
        "as it knows itself"
    );
    state.migrations.table.last = MigrationId(u64::MAX - 1);
    assert_eq!(forced(state).migrations().last, MigrationId(u64::MAX));
}

#[test]
fn a_table_says_whether_a_coordinator_was_forced_since_another() {
    let state = online();
    let view = |state: &State| crate::view::View::of(state).expect("a cluster");
    let (before, after) = (view(&state), view(&forced(state)));
    assert!(after.is_forced_since(&before));
    assert!(!after.is_forced_since(&after) && !before.is_forced_since(&after));
    assert!(!before.is_forced_since(&before));
}

#[test]
fn what_was_hosted_begins_empty_nowhere_once_a_coordinator_is_forced() {
    let before = online();
    let state = forced(before.clone());
    let (then, now) = (before.migrations(), state.migrations());
    assert_eq!(now.arrivals.len(), 9);
    for (partition, arrival) in &now.arrivals {
        assert_eq!(arrival.migration, now.last);
        assert_eq!(arrival.epoch, then.arrivals[partition].epoch);
        assert!(now.is_current(*partition, arrival.epoch), "the copy counts");
    }
    let again = forced(state.clone());
    assert_eq!(again.migrations().arrivals, now.arrivals);
    // What nobody has confirmed may still have to begin.
    let assigned = three_nodes(Policy::Contiguous);
    let mut arrivals = forced(assigned).migrations().arrivals.clone().into_values();
    assert!(arrivals.all(|arrival| arrival.migration == MigrationId(0)));
}

#[test]
fn another_number_of_shards_ends_the_migrations_of_a_node() {
    for n in [1, 2] {
        let name = ["athens", "byzantium"][usize::from(n) - 1];
        let mut state = copying(Purpose::Rebalance);
        apply(&mut state, &register(n, name, 2, 1));
        assert_eq!(phase_of(&state, 1), Phase::Copying, "only another start");
        let effects = apply(&mut state, &register(n, name, 3, 2));
        assert_eq!(reason_of(&state, 1), AbortReason::Resharded);
        assert!(effects.partitions.contains(&PartitionId(0)));
        let (epoch, status, owner) = entry(&state);
        let expected = if n == 1 {
            (2, PartitionStatus::Assigned)
        } else {
            (1, PartitionStatus::Online)
        };
        assert_eq!((epoch, status, owner), (expected.0, expected.1, id(1)));
        assert!(state.retries().contains_key(&MigrationId(1)));
        apply(&mut state, &retry(1));
        let again = &state.migrations().active[&MigrationId(2)];
        assert_eq!((again.epoch.0, again.attempt), (epoch, 2));
    }
    // The shard it would be tried again with is gone.
    let mut state = after(&[
        bootstrap(4, 2, Policy::Contiguous),
        register(1, "athens", 1, 1),
        register(2, "byzantium", 1, 2),
    ]);
    apply(&mut state, &plan(0, place(2, 1), Purpose::Rebalance));
    apply(&mut state, &register(2, "byzantium", 2, 1));
    assert_eq!(reason_of(&state, 1), AbortReason::Resharded);
    assert!(state.retries().is_empty());
}

#[test]
fn a_copy_that_has_arrived_is_told_apart_after_other_shards() {
    let mut state = copying(Purpose::Move);
    apply(&mut state, &commit(1));
    apply(&mut state, &register(2, "byzantium", 2, 4));
    assert_eq!(entry(&state).0, 3);
    assert_eq!(decision(&state, 1), Decision::Committed);
    let mut state = copying(Purpose::Move);
    apply(&mut state, &abort(1, AbortReason::Target));
    apply(&mut state, &register(1, "athens", 2, 4));
    assert_eq!(
        entry(&state).0,
        2,
        "the epoch that a commit would have made"
    );
    assert_eq!(decision(&state, 1), Decision::Aborted);
}

#[test]
fn a_drained_node_gets_nothing() {
    let drain = |n, on| Command::Drain { node: id(n), on };
    let mut state = copying(Purpose::Rebalance);
    apply(&mut state, &drain(2, true));
    assert_eq!(reason_of(&state, 1), AbortReason::Draining);
    assert!(state.retries().is_empty());
    let draining = Err(Refusal::Draining("byzantium".to_owned()));
    let effects = apply(&mut state, &plan(0, place(2, 0), Purpose::Move));
    assert_eq!(effects.planned[0].1, draining);
    assert_eq!(apply(&mut state, &drain(2, true)), Effects::default());
    apply(&mut state, &drain(1, true));
    let nowhere = Err(Refusal::NowhereToGo("cyrene".to_owned()));
    assert_eq!(state.apply(&drain(3, true)), nowhere);
    assert_eq!(state.apply(&drain(9, true)), Err(Refusal::Unknown(id(9))));
    // What is given up goes to the node that is left.
    apply(&mut state, &fail(1));
    let lose_data = true;
    let node = id(1);
    apply(&mut state, &Command::Remove { node, lose_data });
    assert_eq!(entry(&state).2, id(3));
    assert!(!state.draining().contains(&id(1)));
    apply(&mut state, &drain(2, false));
    let effects = apply(&mut state, &plan(0, place(2, 0), Purpose::Move));
    assert_eq!(effects.planned[0].1, Ok(MigrationId(2)));
}

#[test]
fn a_limit_ends_with_the_last_move() {
    let mut state = online();
    let limit = |mb_s| Command::LimitMoves { mb_s };
    let version = state.table().version;
    assert!(apply(&mut state, &limit(20)).limit);
    assert!(apply(&mut state, &limit(20)).is_empty(), "it is the same");
    assert_eq!(state.table().version, version + 1);
    apply(&mut state, &plan(0, place(2, 0), Purpose::Rebalance));
    apply(&mut state, &plan(1, place(2, 0), Purpose::Move));
    apply(&mut state, &abort(2, AbortReason::Cancelled));
    apply(&mut state, &abort(1, AbortReason::Source));
    assert_eq!(state.migrations().limit_mb_s, 20, "one is tried again");
    let effects = apply(&mut state, &abort(1, AbortReason::Cancelled));
    assert!(effects.limit);
    assert_eq!(state.migrations().limit_mb_s, 0);
}

#[test]
fn the_last_ended_migrations_are_kept() {
    let mut state = online();
    let count = ENDED_KEPT as u64 + 10;
    for id in 1..=count {
        apply(&mut state, &plan(0, place(2, 0), Purpose::Move));
        apply(&mut state, &abort(id, AbortReason::Source));
    }
    let ended: Vec<u64> = state.ended_migrations().map(|(id, _)| id.0).collect();
    assert_eq!(ended, (11..=count).collect::<Vec<_>>());
    let over = Err(Refusal::MigrationOver(MigrationId(1)));
    assert_eq!(state.apply(&abort(1, AbortReason::Source)), over);
    assert_eq!(decision(&state, 1), Decision::Aborted);
}

#[test]
fn snapshots_hold_migrations_and_damaged_ones_are_refused() {
    let moving = copying(Purpose::Rebalance);
    let mut snapshot = moving.to_snapshot();
    assert_eq!(State::from_snapshot(&snapshot).expect("our own"), moving);
    snapshot[0] = 1;
    assert!(State::from_snapshot(&snapshot).is_err(), "of no release");
    let mut damaged = moving;
    let active = &mut damaged.migrations.table.active;
    let migration = active.get_mut(&MigrationId(1)).expect("copying");
    migration.partition = PartitionId(9);
    assert!(State::from_snapshot(&damaged.to_snapshot()).is_err());
}
