use super::*;
use crate::command::{Addresses, ClusterId, ClusterOptions, Command, Registration};
use crate::placement::Policy;

const NODE: NodeId = NodeId([1; 16]);

fn state() -> State {
    let mut state = State::default();
    for command in [
        Command::Bootstrap {
            cluster: ClusterId([7; 16]),
            options: ClusterOptions {
                partitions: 4,
                min_nodes: 1,
                policy: Policy::Contiguous,
                heartbeat_timeout_ms: 2_000,
            },
            coordinators: BTreeMap::new(),
        },
        Command::Register(Registration {
            node: NODE,
            cluster: None,
            name: "athens".to_owned(),
            incarnation: 1,
            addresses: Addresses {
                entry: "a:1".to_owned(),
                peer: "a:2".to_owned(),
            },
            shards: 1,
            capacity: crate::state::CAPACITY_DEFAULT,
            speaks: crate::protocol::VERSIONS,
        }),
    ] {
        state.apply(&command).expect("not refused");
    }
    state
}

fn heartbeat(sent_ms: u64) -> Heartbeat {
    Heartbeat {
        node: NODE,
        incarnation: 1,
        sent_ms,
        table_version: 0,
        figures: Figures::default(),
    }
}

/// Lets time pass as a leader that is awake sees it.
fn pass(liveness: &mut Liveness<u8>, now_ms: &mut u64, ms: u64) {
    for _ in 0..ms / 10 {
        *now_ms += 10;
        liveness.pass(*now_ms);
    }
}

#[test]
fn a_node_is_overdue_after_the_timeout_and_not_twice() {
    let (state, mut now) = (state(), 5);
    let mut liveness = Liveness::new();
    liveness.pass(now);
    liveness.lead();
    assert_eq!(liveness.overdue(&state), []);
    pass(&mut liveness, &mut now, 1_990);
    assert_eq!(
        liveness.overdue(&state),
        [],
        "a new leader grants the full timeout"
    );
    liveness.heard(0, heartbeat(1));
    pass(&mut liveness, &mut now, 1_990);
    assert_eq!(liveness.overdue(&state), []);
    pass(&mut liveness, &mut now, 10);
    assert_eq!(liveness.overdue(&state), [(NODE, 1)], "starting or not");
    liveness.failing(NODE, Ticket(9));
    assert_eq!(liveness.overdue(&state), []);
    liveness.decided(Ticket(8));
    assert_eq!(liveness.overdue(&state), []);
    liveness.decided(Ticket(9));
    assert_eq!(
        liveness.overdue(&state),
        [(NODE, 1)],
        "the proposal came to nothing"
    );
    liveness.lead();
    assert_eq!(liveness.overdue(&state), []);
}

#[test]
fn what_a_leader_slept_through_is_no_silence() {
    let (state, mut now) = (state(), 5);
    let mut liveness = Liveness::new();
    liveness.pass(now);
    liveness.lead();
    liveness.heard(0, heartbeat(1));
    for _ in 0..15 {
        now += 60_000;
        liveness.pass(now);
        assert_eq!(liveness.overdue(&state), []);
    }
}

#[test]
fn a_round_is_for_the_heartbeats_before_it() {
    let mut liveness = Liveness::new();
    let mut now = 0;
    liveness.pass(now);
    assert!(!liveness.begin_round(Ticket(1)), "for nobody");
    liveness.heard(1, heartbeat(10));
    liveness.heard(2, heartbeat(20));
    assert!(liveness.begin_round(Ticket(2)));
    liveness.heard(3, heartbeat(30));
    assert!(!liveness.begin_round(Ticket(3)), "one at a time");
    assert!(liveness.end_round(Ticket(3)).is_empty());
    let answered: Vec<u8> = liveness
        .end_round(Ticket(2))
        .iter()
        .map(|w| w.session)
        .collect();
    assert_eq!(answered, [1, 2]);
    assert!(liveness.begin_round(Ticket(4)));
    pass(&mut liveness, &mut now, ROUND_MS_MAX);
    liveness.heard(4, heartbeat(40));
    assert!(liveness.begin_round(Ticket(5)), "the one before was lost");
    assert!(liveness.end_round(Ticket(4)).is_empty());
    let answered: Vec<u8> = liveness
        .end_round(Ticket(5))
        .iter()
        .map(|w| w.session)
        .collect();
    assert_eq!(answered, [3, 4]);
}

#[test]
fn a_lease_is_at_most_half_the_timeout_and_for_members_that_are_up() {
    let mut state = state();
    let mut liveness = Liveness::<u8>::new();
    assert_eq!(liveness.lease_ms(&heartbeat(1), &state), 1_000);
    let earlier = Heartbeat {
        incarnation: 0,
        ..heartbeat(1)
    };
    assert_eq!(liveness.lease_ms(&earlier, &state), 0);
    let stranger = Heartbeat {
        node: NodeId([2; 16]),
        ..heartbeat(1)
    };
    assert_eq!(liveness.lease_ms(&stranger, &state), 0);
    liveness.failing(NODE, Ticket(1));
    assert_eq!(
        liveness.lease_ms(&heartbeat(1), &state),
        0,
        "it may be failed already"
    );
    liveness.decided(Ticket(1));
    assert_eq!(liveness.lease_ms(&heartbeat(1), &state), 1_000);
    let fail = Command::Fail {
        node: NODE,
        incarnation: 1,
    };
    state.apply(&fail).expect("a member");
    assert_eq!(liveness.lease_ms(&heartbeat(1), &state), 0);
}
