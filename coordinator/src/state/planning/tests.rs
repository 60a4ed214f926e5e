use ephesus_wire::ShardId;

use super::*;
use crate::command::{Command, Registration};
use crate::migration::Purpose;
use crate::placement::Policy;
use crate::placement::{Move, rebalance};
use crate::state::Refusal;
use crate::state::tests::{after, bootstrap, id, register};

fn planned(state: &mut State, moves: Vec<Move>) {
    let purpose = Purpose::Rebalance;
    let effects = state.apply(&Command::PlanMoves { moves, purpose });
    let planned = effects.expect("planned").planned;
    assert!(planned.iter().all(|(_, outcome)| outcome.is_ok()));
}

/// How many partitions each node has, when what is under way is done.
fn counts(state: &State, nodes: u8) -> Vec<usize> {
    let located = state.located();
    let of = |n| located.iter().filter(|l| l.place.node == id(n)).count();
    (1..=nodes).map(of).collect()
}

fn thirty() -> State {
    let mut state = after(&[
        bootstrap(30, 3, Policy::Contiguous),
        register(1, "athens", 1, 1),
        register(2, "byzantium", 1, 1),
        register(3, "cyrene", 1, 1),
        register(4, "ephesus", 1, 1),
    ]);
    serve(&mut state);
    state
}

/// All members have recovered.
fn serve(state: &mut State) {
    let members = state.members().iter();
    let starts: Vec<_> = members.map(|(id, m)| (*id, m.incarnation)).collect();
    for (node, incarnation) in starts {
        let started = Command::Started { node, incarnation };
        state.apply(&started).expect("a member");
    }
}

#[test]
fn a_new_node_gets_its_share_once() {
    let mut state = thirty();
    assert_eq!(counts(&state, 4), [10, 10, 10, 0]);
    let moves = rebalanced(&state);
    assert_eq!(moves.len(), 7);
    assert!(moves.iter().all(|m| m.to.node == id(4)));
    planned(&mut state, moves);
    assert_eq!(counts(&state, 4), [8, 8, 7, 7]);
    assert_eq!(rebalanced(&state), [], "it is under way");
}

#[test]
fn a_draining_node_is_emptied_and_a_failed_one_left_alone() {
    let mut state = thirty();
    let (node, on) = (id(1), true);
    state.apply(&Command::Drain { node, on }).expect("a member");
    let fail = Command::Fail {
        node: id(2),
        incarnation: 1,
    };
    state.apply(&fail).expect("a member");
    let moves = rebalanced(&state);
    planned(&mut state, moves);
    assert_eq!(counts(&state, 4), [0, 10, 10, 10]);
}

#[test]
fn the_lightest_other_shard_is_found() {
    let mut state = after(&[
        bootstrap(8, 1, Policy::Contiguous),
        register(1, "athens", 1, 2),
        register(2, "byzantium", 1, 1),
    ]);
    let place = |n, shard| Place {
        node: id(n),
        shard: ShardId(shard),
    };
    let lightest = |state: &State, n, p| state.lightest_shard(id(n), PartitionId(p));
    assert_eq!(lightest(&state, 1, 0), Some(place(1, 1)));
    assert_eq!(lightest(&state, 1, 7), Some(place(1, 0)));
    assert_eq!(lightest(&state, 2, 7), Some(place(2, 0)));
    assert_eq!(lightest(&state, 3, 7), None);
    let to = place(2, 0);
    let partition = PartitionId(7);
    planned(&mut state, vec![Move { partition, to }]);
    assert_eq!(
        lightest(&state, 1, 9),
        Some(place(1, 1)),
        "one is leaving it"
    );
}

fn node(n: u8, incarnation: u64, shards: u16, capacity: u32) -> Command {
    let names = ["athens", "byzantium", "cyrene", "delos"];
    let name = names[usize::from(n) - 1];
    let Command::Register(registration) = register(n, name, incarnation, shards) else {
        panic!("a registration");
    };
    Command::Register(Registration {
        capacity,
        ..registration
    })
}

#[test]
fn unequal_nodes_get_what_their_shards_can_take() {
    for policy in [Policy::Contiguous, Policy::RoundRobin] {
        let mut state = after(&[
            bootstrap(60, 3, policy),
            node(1, 1, 1, 100),
            node(2, 1, 2, 100),
            node(3, 1, 1, 300),
        ]);
        serve(&mut state);
        assert_eq!(counts(&state, 3), [10, 20, 30]);
        assert_eq!(rebalanced(&state), [], "the first assignment was fair");
        // A node that comes gets from all in proportion.
        state.apply(&node(4, 1, 1, 400)).expect("new");
        serve(&mut state);
        let moves = rebalanced(&state);
        assert!(moves.iter().all(|m| m.to.node == id(4)));
        assert_eq!(moves.len(), 24);
        planned(&mut state, moves);
        assert_eq!(counts(&state, 4), [6, 12, 18, 24]);
    }
}

#[test]
fn a_node_that_comes_back_stronger_gets_more_with_the_next_rebalance() {
    let mut state = after(&[
        bootstrap(30, 3, Policy::Contiguous),
        node(1, 1, 1, 100),
        node(2, 1, 1, 100),
        node(3, 1, 1, 100),
    ]);
    serve(&mut state);
    assert_eq!(rebalanced(&state), []);
    state.apply(&node(3, 2, 1, 400)).expect("a member");
    serve(&mut state);
    let moves = rebalanced(&state);
    assert!(moves.iter().all(|m| m.to.node == id(3)));
    planned(&mut state, moves);
    assert_eq!(counts(&state, 3), [5, 5, 20]);
    for capacity in [0, 10_001] {
        let refused = state.apply(&node(3, 3, 1, capacity));
        assert_eq!(refused, Err(Refusal::Capacity(capacity)));
    }
}

#[test]
fn a_node_that_recovers_gets_nothing_and_gives_only_when_it_is_drained() {
    let mut state = thirty();
    let again = |state: &mut State, n, name| {
        state.apply(&register(n, name, 2, 1)).expect("a member");
    };
    again(&mut state, 4, "ephesus");
    assert_eq!(rebalanced(&state), [], "the new one has started again");
    again(&mut state, 1, "athens");
    let (node, on) = (id(1), true);
    state.apply(&Command::Drain { node, on }).expect("a member");
    let moves = rebalanced(&state);
    assert!(moves.iter().all(|m| [id(2), id(3)].contains(&m.to.node)));
    planned(&mut state, moves);
    assert_eq!(counts(&state, 4), [0, 15, 15, 0]);
}

/// What a rebalance would move.
fn rebalanced(state: &State) -> Vec<Move> {
    let scene = state.scene();
    let shares: Vec<_> = scene.able.iter().map(|(share, _)| *share).collect();
    rebalance(&scene.current, &[], &shares)
}
