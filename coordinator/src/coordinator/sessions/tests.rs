use super::*;
use crate::command::Command;
use crate::placement::Policy;
use crate::state::tests::{bootstrap, id, register};

/// A state of so many versions, all of which its history remembers, in which a node comes back and again.
fn state_of(versions: u64) -> (State, History) {
    let (mut state, mut history) = (State::default(), History::default());
    let mut apply = |command: &Command| {
        let effects = state.apply(command).expect("not refused");
        history.record(state.table().version, effects);
    };
    apply(&bootstrap(4096, 1, Policy::Contiguous));
    for start in 2..=versions {
        apply(&register(1, "athens", start, 1));
    }
    assert_eq!(state.table().version, versions);
    (state, history)
}

/// Sessions of nodes that have these versions.
fn sessions_with(held: impl Iterator<Item = u64>) -> Sessions {
    let mut sessions = Sessions::default();
    for (number, version) in (1..).zip(held) {
        sessions.heard(SessionId(number), id(number as u8), version);
    }
    sessions
}

fn push(sessions: &mut Sessions, of: &(State, History)) -> Vec<(Vec<SessionId>, TableUpdate)> {
    let mut actions = Vec::new();
    sessions.push_tables(&of.0, &of.1, 1_000, &mut actions);
    let update = |action| match action {
        Action::AnswerAll(to, Answer::Table(update)) => (to, *update),
        other => panic!("{other:?}"),
    };
    actions.into_iter().map(update).collect()
}

#[test]
fn nodes_of_many_different_versions_are_served_over_several_turns_the_oldest_first() {
    let of = state_of(700);
    // Version 2 has the first assignment, behind which all is remembered, and little is changed.
    let mut sessions = sessions_with(2..700);
    let mut served = Vec::new();
    let mut turns = 0;
    loop {
        let updates = push(&mut sessions, &of);
        let walked = |(_, update): &(_, TableUpdate)| match update {
            TableUpdate::Delta(delta) => (delta.to - delta.from) as usize + delta.len(),
            TableUpdate::Full(_) => panic!("a delta is enough"),
        };
        let changes: usize = updates.iter().map(walked).sum();
        assert!(changes < CHANGES_PER_TURN + 1_000, "{changes} in a turn");
        served.extend(updates.into_iter().flat_map(|(to, _)| to));
        turns += 1;
        if !sessions.is_behind() {
            break;
        }
    }
    assert!(turns > 10, "{turns}");
    let all: Vec<SessionId> = (1..=698).map(SessionId).collect();
    assert_eq!(served, all, "each once, in the order of their versions");
    assert!(push(&mut sessions, &of).is_empty());
}

#[test]
fn nodes_of_different_versions_that_need_everything_share_one_copy() {
    let of = state_of(2_000);
    let mut sessions = sessions_with((0..200).chain([1_990, 1_990]));
    let updates = push(&mut sessions, &of);
    assert!(!sessions.is_behind());
    let [(_, TableUpdate::Delta(_)), (to, TableUpdate::Full(_))] = &*updates else {
        panic!("one copy and one delta, not {}", updates.len());
    };
    assert_eq!(to.len(), 200);
}

#[test]
fn a_newer_connection_of_a_node_replaces_its_older_ones_alone() {
    let mut sessions = Sessions::default();
    for (session, node) in [(1, 1), (2, 2), (3, 1), (4, 3)] {
        sessions.heard(SessionId(session), id(node), 1);
    }
    let older = sessions.registered(SessionId(5), id(1));
    assert_eq!(older, [SessionId(1), SessionId(3)]);
    assert!(sessions.registered(SessionId(5), id(1)).is_empty());
    sessions.closed(SessionId(5));
    assert!(sessions.registered(SessionId(6), id(1)).is_empty());
    assert_eq!(sessions.abandon().count(), 3);
}
