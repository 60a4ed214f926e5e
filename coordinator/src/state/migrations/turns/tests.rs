use ephesus_wire::MigrationId;

use crate::command::Command;
use crate::migration::{Abort, AbortReason, Confirmation, Phase, Purpose};
use crate::state::tests::{apply, id, plan, serving};
use crate::state::{Refusal, SNAPSHOT_FORMAT, State};

fn started(n: u8) -> Command {
    Command::Started {
        node: id(n),
        incarnation: 1,
    }
}

fn begin(migration: u64) -> Command {
    Command::BeginMigration {
        id: MigrationId(migration),
        incarnation: 1,
    }
}

fn commit(migration: u64) -> Command {
    Command::CommitMigrations {
        incarnation: 1,
        confirmations: vec![(MigrationId(migration), Confirmation::default())],
    }
}

/// The ids of those that wait.
fn waiting(state: &State) -> Vec<u64> {
    let active = state.migrations().active.iter();
    let waiting = active.filter(|(_, migration)| migration.phase == Phase::Waiting);
    waiting.map(|(id, _)| id.0).collect()
}

#[test]
fn what_is_planned_beyond_the_bound_waits_in_order() {
    let mut state = serving(2);
    apply(
        &mut state,
        &plan(&[0, 1, 2, 3, 4], id(3), Purpose::Rebalance),
    );
    assert_eq!(waiting(&state), [3, 4, 5]);
    let early = state.apply(&begin(3));
    assert_eq!(early, Err(Refusal::NotItsTurn(MigrationId(3))));
    apply(&mut state, &begin(1));
    assert_eq!(waiting(&state), [3, 4, 5]);
    apply(&mut state, &commit(1));
    assert_eq!(waiting(&state), [4, 5]);
    apply(&mut state, &Command::MovesMax { moves: 3 });
    assert_eq!(waiting(&state), [5]);
    apply(&mut state, &begin(3));
    apply(&mut state, &Command::MovesMax { moves: 1 });
    assert_eq!(waiting(&state), [5], "what is under way goes on");
    for migration in [2, 4] {
        apply(&mut state, &begin(migration));
        apply(&mut state, &commit(migration));
    }
    assert_eq!(waiting(&state), [5]);
    apply(&mut state, &commit(3));
    assert_eq!(waiting(&state), []);
}

#[test]
fn what_an_operator_moves_by_itself_neither_waits_nor_counts() {
    let mut state = serving(1);
    apply(&mut state, &plan(&[0, 1], id(3), Purpose::Move));
    apply(&mut state, &plan(&[2, 3], id(3), Purpose::Rebalance));
    assert_eq!(waiting(&state), [4]);
}

#[test]
fn a_cancelled_one_gives_its_turn_to_the_next() {
    let mut state = serving(1);
    apply(&mut state, &plan(&[0, 1, 2], id(3), Purpose::Rebalance));
    for (cancelled, left) in [(2, vec![3]), (1, vec![])] {
        let text = String::new();
        let reason = AbortReason::Cancelled;
        let abort = Command::AbortMigration {
            id: MigrationId(cancelled),
            abort: Abort { reason, text },
        };
        apply(&mut state, &abort);
        assert_eq!(waiting(&state), left);
    }
}

#[test]
fn one_whose_node_does_not_serve_gives_its_turn_away_until_it_does() {
    let mut state = serving(1);
    let moves = plan(&[0, 1], id(3), Purpose::Rebalance);
    apply(&mut state, &moves);
    apply(&mut state, &plan(&[2], id(2), Purpose::Rebalance));
    assert_eq!(waiting(&state), [2, 3]);
    let (node, incarnation) = (id(3), 1);
    apply(&mut state, &Command::Fail { node, incarnation });
    assert_eq!(waiting(&state), [1, 2]);
    apply(&mut state, &started(3));
    assert_eq!(waiting(&state), [1, 2], "one is under way");
    apply(&mut state, &begin(3));
    apply(&mut state, &commit(3));
    assert_eq!(waiting(&state), [2]);
}

#[test]
fn what_belongs_to_one_that_has_begun_keeps_its_turn() {
    let mut state = serving(3);
    apply(&mut state, &plan(&[0, 1], id(3), Purpose::Rebalance));
    apply(&mut state, &plan(&[3], id(3), Purpose::Rebalance));
    apply(&mut state, &begin(1));
    let (node, incarnation) = (id(3), 1);
    apply(&mut state, &Command::Fail { node, incarnation });
    // The second is of the same batch as the first, the third has another source.
    assert_eq!(waiting(&state), [3]);
    apply(&mut state, &Command::MovesMax { moves: 1 });
    apply(&mut state, &started(3));
    assert_eq!(waiting(&state), [3]);
    apply(&mut state, &begin(2));
}

#[test]
fn the_bound_is_in_snapshots_and_there_is_none_before_a_leader_has_said() {
    let mut state = serving(2);
    apply(&mut state, &plan(&[0, 1, 2], id(3), Purpose::Rebalance));
    let bytes = state.to_snapshot();
    assert_eq!(bytes[0], SNAPSHOT_FORMAT);
    assert_eq!(State::from_snapshot(&bytes).expect("our own"), state);
    assert!(State::from_snapshot(&bytes[..bytes.len() - 1]).is_err());

    let mut earlier = serving(0);
    apply(&mut earlier, &plan(&[0, 1, 2], id(3), Purpose::Rebalance));
    assert_eq!(waiting(&earlier), []);
    assert_eq!(
        earlier.to_snapshot()[0],
        3,
        "members of earlier releases read it"
    );
}
