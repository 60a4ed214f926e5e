use std::collections::BTreeMap;

use ephesus_wire::{MigrationId, PartitionId, ShardId};

use super::*;
use crate::command::{CoordinatorChange, Registration};
use crate::migration::{Abort, AbortReason, Purpose};
use crate::placement::{Move, Place};
use crate::state::tests::{id, online, register};

fn versions(max: u16) -> Versions {
    Versions { min: 1, max }
}

/// A start of a node that speaks this.
fn start(n: u8, name: &str, incarnation: u64, max: u16) -> Command {
    let Command::Register(registration) = register(n, name, incarnation, 1) else {
        panic!("a registration");
    };
    Command::Register(Registration {
        speaks: versions(max),
        ..registration
    })
}

fn coordinator(id: u64, max: u16) -> Command {
    Command::CoordinatorSpeaks {
        id: RaftId(id),
        speaks: versions(max),
    }
}

fn plan() -> Command {
    Command::PlanMoves {
        moves: vec![Move {
            partition: PartitionId(0),
            to: Place {
                node: id(2),
                shard: ShardId(0),
            },
        }],
        purpose: Purpose::Rebalance,
    }
}

fn drain(on: bool) -> Command {
    Command::Drain { node: id(3), on }
}

fn behind(state: &mut State) -> Vec<String> {
    let mut refusals = [
        plan(),
        drain(true),
        Command::RetryMigration { id: MigrationId(1) },
    ]
    .map(|command| {
        let before = state.clone();
        let refused = state.check_known(&command);
        assert_eq!(state.apply(&command).map(drop), refused);
        assert_eq!(*state, before, "nothing was changed");
        refused
    })
    .into_iter();
    let first = refusals.next().expect("three");
    assert!(refusals.all(|next| next == first));
    match first {
        Err(Refusal::NotUpgraded {
            needed: 2,
            behind,
            more: 0,
        }) => behind.iter().map(Behind::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn commands_wait_for_everybody_who_does_not_know_them() {
    let mut state = online();
    state.apply(&start(2, "byzantium", 2, 1)).expect("a member");
    state.apply(&coordinator(1, 1)).expect("a coordinator");
    let change = CoordinatorChange::Add {
        id: RaftId(2),
        address: "10.0.1.2:27379".to_owned(),
    };
    state.change_coordinators(&change).expect("new");
    let first = "coordinator 1 speaks protocol 1";
    let second = "coordinator 2 has not said yet what it speaks";
    let third = "node byzantium speaks protocol 1";
    assert_eq!(behind(&mut state), [first, second, third]);
    let refusal = state.check_known(&plan()).expect_err("refused").to_string();
    assert_eq!(
        refusal,
        format!("this needs protocol 2 everywhere: {first}, {second}, {third}")
    );
    state.apply(&coordinator(1, 2)).expect("a coordinator");
    assert_eq!(behind(&mut state), [second, third]);
    state.apply(&start(2, "byzantium", 3, 3)).expect("a member");
    assert_eq!(behind(&mut state), [second]);
    state.apply(&coordinator(2, 7)).expect("a coordinator");
    state.apply(&plan()).expect("everybody knows it");
    state.apply(&drain(true)).expect("everybody knows it");
}

#[test]
fn a_failed_member_counts_and_a_removed_one_does_not() {
    let mut state = online();
    state.apply(&start(4, "delos", 1, 1)).expect("new");
    let fail = Command::Fail {
        node: id(4),
        incarnation: 1,
    };
    state.apply(&fail).expect("a member");
    assert_eq!(behind(&mut state), ["node delos speaks protocol 1"]);
    let remove = Command::Remove {
        node: id(4),
        lose_data: true,
    };
    state.apply(&remove).expect("a member");
    state.apply(&plan()).expect("everybody knows it");
    let change = CoordinatorChange::Add {
        id: RaftId(2),
        address: "10.0.1.2:27379".to_owned(),
    };
    state.change_coordinators(&change).expect("new");
    state.apply(&coordinator(2, 1)).expect("a coordinator");
    assert_eq!(behind(&mut state), ["coordinator 2 speaks protocol 1"]);
    let remove = CoordinatorChange::Remove { id: RaftId(2) };
    state.change_coordinators(&remove).expect("one is left");
    state.apply(&drain(true)).expect("everybody knows it");
    let gone = state.apply(&coordinator(2, 2));
    assert_eq!(gone, Err(Refusal::UnknownCoordinator(RaftId(2))));
}

#[test]
fn what_was_begun_goes_on_though_an_older_member_comes() {
    let mut state = online();
    state.apply(&plan()).expect("everybody knows it");
    state.apply(&drain(true)).expect("everybody knows it");
    state.apply(&start(4, "delos", 1, 1)).expect("new");
    let (id, incarnation) = (MigrationId(1), 1);
    let begin = Command::BeginMigration { id, incarnation };
    state.apply(&begin).expect("it was planned");
    let abort = Abort {
        reason: AbortReason::Source,
        text: String::new(),
    };
    let abort = Command::AbortMigration { id, abort };
    state.apply(&abort).expect("it was planned");
    state.apply(&drain(false)).expect("ends what was begun");
    assert_eq!(state.retries().len(), 1);
    assert_eq!(behind(&mut state), ["node delos speaks protocol 1"]);
    assert_eq!(state.retries().len(), 1, "it waits");
}

#[test]
fn a_snapshot_carries_what_is_spoken_and_the_former_format_is_refused_by_name() {
    let mut state = online();
    state.apply(&start(2, "byzantium", 2, 1)).expect("a member");
    state.apply(&coordinator(1, 9)).expect("a coordinator");
    let bytes = state.to_snapshot();
    let mut restored = State::from_snapshot(&bytes).expect("our own");
    assert_eq!(
        restored.coordinator_speaks_now(RaftId(1)),
        Some(versions(9))
    );
    assert_eq!(behind(&mut restored), behind(&mut state));
    for format in [1, 2] {
        let former = [&[format], &bytes[1..]].concat();
        let error = State::from_snapshot(&former).expect_err("another layout");
        let text = format!("snapshot of format {format}: this release reads formats 3 to 5");
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn versions_that_make_no_sense_are_refused_and_many_are_only_counted() {
    let mut state = online();
    let (id, speaks) = (RaftId(1), Versions { min: 3, max: 2 });
    let senseless = Command::CoordinatorSpeaks { id, speaks };
    assert_eq!(state.apply(&senseless), Err(Refusal::Versions));
    let Command::Register(registration) = start(5, "samos", 1, 2) else {
        panic!("a registration");
    };
    let senseless = Command::Register(Registration {
        speaks,
        ..registration
    });
    assert_eq!(state.apply(&senseless), Err(Refusal::Versions));
    let names: BTreeMap<u8, String> = (10..30).map(|n| (n, format!("node-{n}"))).collect();
    for (n, name) in &names {
        state.apply(&start(*n, name, 1, 1)).expect("new");
    }
    let refusal = state.check_known(&plan()).expect_err("refused");
    let text = refusal.to_string();
    assert!(
        text.ends_with("node node-17 speaks protocol 1, and 12 more"),
        "{text}"
    );
}
