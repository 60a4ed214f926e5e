use ephesus_wire::MigrationId;

use crate::command::Command;
use crate::migration::{Abort, AbortReason, Phase, Purpose};
use crate::placement::{BoundedRing, Policy, Ring};
use crate::state::tests::{apply, id, plan, serving};
use crate::state::{Course, Refusal, State};

fn phases(state: &State) -> Vec<Phase> {
    let active = state.migrations().active.values();
    active.map(|migration| migration.phase.clone()).collect()
}

#[test]
fn a_policy_is_set_followed_and_in_snapshots() {
    let mut state = serving(2);
    assert_eq!(
        (state.policy(), state.standing_policy()),
        (Policy::Contiguous, Policy::Sticky)
    );
    let policy = Policy::Ring(Ring::default());
    apply(&mut state, &Command::SetPolicy { policy });
    assert_eq!((state.policy(), state.course()), (policy, Course::Changes));
    assert_eq!(state.standing_policy(), policy);
    let restored = State::from_snapshot(&state.to_snapshot()).expect("our own");
    assert_eq!(restored, state);
    let former = Policy::Sticky;
    apply(&mut state, &Command::EndChange { policy: former });
    assert_eq!(state.course(), Course::Changes, "that of another one");
    apply(&mut state, &Command::EndChange { policy });
    assert_eq!((state.policy(), state.course()), (policy, Course::Follows));

    let senseless = Policy::BoundedRing(BoundedRing {
        vnodes: 0,
        ..BoundedRing::default()
    });
    let refused = state.apply(&Command::SetPolicy { policy: senseless });
    assert!(matches!(refused, Err(Refusal::Policy(_))), "{refused:?}");
    assert_eq!(state.policy(), policy);
}

#[test]
fn another_policy_drops_what_waits_and_leaves_what_is_under_way() {
    let mut state = serving(2);
    apply(&mut state, &plan(&[0, 1, 2, 3], id(3), Purpose::Rebalance));
    assert_eq!(phases(&state).len(), 4);
    let policy = Policy::Sticky;
    apply(&mut state, &Command::SetPolicy { policy });
    assert_eq!(phases(&state), [Phase::Planned, Phase::Planned]);
}

#[test]
fn what_is_cancelled_rests_until_somebody_asks() {
    let mut state = serving(2);
    let policy = Policy::Sticky;
    apply(&mut state, &Command::SetPolicy { policy });
    apply(&mut state, &plan(&[0, 1, 2], id(3), Purpose::Rebalance));
    apply(&mut state, &plan(&[4], id(3), Purpose::Move));
    apply(&mut state, &Command::CancelMoves);
    assert_eq!(state.course(), Course::Rests);
    assert_eq!(
        phases(&state),
        [Phase::Planned],
        "what an operator moves by itself goes on"
    );
    apply(&mut state, &plan(&[5], id(3), Purpose::Move));
    assert_eq!(state.course(), Course::Rests);
    apply(&mut state, &plan(&[0], id(3), Purpose::Rebalance));
    assert_eq!(state.course(), Course::Follows);
}

fn own(partitions: &[u16], change: Option<Policy>) -> Command {
    let Command::PlanMoves { moves, .. } = plan(partitions, id(3), Purpose::Rebalance) else {
        panic!("moves");
    };
    Command::PlanOwn { moves, change }
}

#[test]
fn what_a_leader_has_planned_before_an_operator_decided_otherwise_is_refused() {
    let mut state = serving(2);
    let policy = Policy::Sticky;
    apply(&mut state, &own(&[0], None));
    apply(&mut state, &Command::SetPolicy { policy });
    let overtaken = Err(Refusal::Overtaken);
    assert_eq!(state.apply(&own(&[1], None)), overtaken);
    let former = Some(Policy::Contiguous);
    assert_eq!(state.apply(&own(&[1], former)), overtaken);
    apply(&mut state, &own(&[1], Some(policy)));
    apply(&mut state, &Command::CancelMoves);
    for change in [None, Some(policy)] {
        assert_eq!(state.apply(&own(&[2], change)), overtaken);
    }
    assert_eq!((state.course(), phases(&state)), (Course::Rests, vec![]));
    apply(&mut state, &plan(&[2], id(3), Purpose::Rebalance));
    assert_eq!(state.course(), Course::Follows);
}

#[test]
fn what_waits_for_a_drain_ends_with_it() {
    let mut state = serving(2);
    let drain = |on| Command::Drain { node: id(1), on };
    apply(&mut state, &drain(true));
    apply(&mut state, &plan(&[0, 1, 2, 3], id(3), Purpose::Rebalance));
    let waits = Phase::Waiting;
    let before = [Phase::Planned, Phase::Planned, waits.clone(), waits.clone()];
    assert_eq!(phases(&state), before);
    apply(&mut state, &drain(false));
    assert_eq!(
        phases(&state),
        [Phase::Planned, Phase::Planned, waits],
        "that of another node still waits"
    );
    apply(&mut state, &plan(&[2], id(3), Purpose::Rebalance));
    apply(&mut state, &drain(false));
    assert_eq!(phases(&state).len(), 4, "there was no drain to end");
    apply(&mut state, &drain(true));
    let abort = Abort {
        reason: AbortReason::Target,
        text: String::new(),
    };
    for id in [1, 4].map(MigrationId) {
        let abort = abort.clone();
        apply(&mut state, &Command::AbortMigration { id, abort });
    }
    assert_eq!(state.retries().len(), 2);
    apply(&mut state, &drain(false));
    let left: Vec<_> = state.retries().keys().collect();
    assert_eq!(
        left,
        [&MigrationId(4)],
        "what is to be tried again waits, too"
    );
}
