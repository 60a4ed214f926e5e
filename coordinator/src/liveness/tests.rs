use super::*;
use crate::command::{Addresses, ClusterId, ClusterOptions, Command, RaftId, Registration};
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
            coordinators: BTreeMap::from([(RaftId(1), "10.0.1.1:27379".to_owned())]),
        },
        Command::Register(Registration {
            node: NODE,
            cluster: None,
            name: "athens".to_owned(),
            incarnation: 1,
            addresses: Addresses {
                entry: "a:1".to_owned(),
                tls_port: None,
                peer: "a:2".to_owned(),
                rack: String::new(),
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
        acted_version: u64::MAX,
        idle_ms: 0,
        is_sole: true,
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
    liveness.heard(0, heartbeat(1), &state);
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
    liveness.heard(0, heartbeat(1), &state);
    for _ in 0..15 {
        now += 60_000;
        liveness.pass(now);
        assert_eq!(liveness.overdue(&state), []);
    }
}

#[test]
fn a_round_is_for_the_heartbeats_before_it() {
    let (state, mut now) = (state(), 0);
    let mut liveness = Liveness::new();
    liveness.pass(now);
    assert!(!liveness.begin_round(Ticket(1)), "for nobody");
    liveness.heard(1, heartbeat(10), &state);
    liveness.heard(2, heartbeat(20), &state);
    assert!(liveness.begin_round(Ticket(2)));
    liveness.heard(3, heartbeat(30), &state);
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
    liveness.heard(4, heartbeat(40), &state);
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
    liveness.registered(NODE, 1, &state);
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

/// The state after another start of the node.
fn started_again(state: &State, incarnation: u64) -> State {
    let mut state = state.clone();
    let member = &state.members()[&NODE];
    let register = Command::Register(Registration {
        node: NODE,
        cluster: None,
        name: member.name.clone(),
        incarnation,
        addresses: member.addresses.clone(),
        shards: member.shards,
        capacity: member.capacity,
        speaks: member.speaks,
    });
    state.apply(&register).expect("not refused");
    state
}

#[test]
fn a_node_is_heard_and_gets_its_lease_as_of_the_last_turn_of_the_shard_that_is_furthest_behind() {
    let (state, mut now) = (state(), 5);
    let mut liveness = Liveness::new();
    liveness.pass(now);
    liveness.registered(NODE, 1, &state);
    let idle = |idle_ms| Heartbeat {
        idle_ms,
        ..heartbeat(1)
    };
    for idle_ms in (200..2_000).step_by(200) {
        pass(&mut liveness, &mut now, 200);
        liveness.heard(0, idle(idle_ms), &state);
        let left_ms = 1_000_u32.saturating_sub(idle_ms);
        assert_eq!(liveness.lease_ms(&idle(idle_ms), &state), left_ms);
        assert_eq!(liveness.overdue(&state), []);
    }
    pass(&mut liveness, &mut now, 200);
    liveness.heard(0, idle(u32::MAX), &state);
    assert_eq!(liveness.lease_ms(&idle(u32::MAX), &state), 0);
    assert_eq!(liveness.overdue(&state), [(NODE, 1)]);
    liveness.heard(0, idle(300), &state);
    assert_eq!(liveness.overdue(&state), [], "it goes on");
    pass(&mut liveness, &mut now, 1_690);
    assert_eq!(liveness.overdue(&state), []);
    pass(&mut liveness, &mut now, 10);
    assert_eq!(liveness.overdue(&state), [(NODE, 1)]);
}

#[test]
fn shards_that_are_slow_and_go_on_cost_no_lease() {
    let (state, mut now) = (state(), 5);
    let mut liveness = Liveness::new();
    liveness.pass(now);
    liveness.registered(NODE, 1, &state);
    let mut until_ms = now + 1_000;
    // A turn of the slowest takes more than three heartbeats.
    for n in 1..50 {
        pass(&mut liveness, &mut now, 200);
        let idle = Heartbeat {
            idle_ms: (n * 200 % 700) as u32,
            ..heartbeat(now)
        };
        assert!(now < until_ms, "it never has none");
        liveness.heard(0, idle, &state);
        let lease_ms = u64::from(liveness.lease_ms(&idle, &state));
        until_ms = until_ms.max(now + lease_ms);
        assert_eq!(liveness.overdue(&state), []);
    }
}

#[test]
fn a_lease_is_for_a_node_whose_shards_act_on_the_table_at_which_it_has_registered() {
    let first = state();
    let acting = |version| Heartbeat {
        acted_version: version,
        table_version: u64::MAX,
        ..heartbeat(1)
    };
    let lease_ms = |liveness: &Liveness<u8>, state: &State| {
        let version = state.table().version;
        let versions = [version - 1, version, version + 1];
        versions.map(|version| liveness.lease_ms(&acting(version), state))
    };
    let mut liveness = Liveness::<u8>::new();
    liveness.lead();
    assert_eq!(liveness.overdue(&first), []);
    assert_eq!(lease_ms(&liveness, &first), [0, 1_000, 1_000], "a new lead");
    let second = started_again(&first, 2);
    let again = |version| Heartbeat {
        incarnation: 2,
        ..acting(version)
    };
    liveness.registered(NODE, 2, &second);
    let version = second.table().version;
    assert!(version > first.table().version);
    assert_eq!(liveness.lease_ms(&again(version - 1), &second), 0);
    assert_eq!(liveness.lease_ms(&again(version), &second), 1_000);
    // What changes later was asked for by the node, or does not concern it.
    let third = started_again(&second, 3);
    liveness.heard(0, again(version), &third);
    assert_eq!(liveness.overdue(&third), []);
    let member = third.members()[&NODE].incarnation;
    let again = Heartbeat {
        incarnation: member,
        ..acting(version)
    };
    assert_eq!(liveness.lease_ms(&again, &third), 1_000);
}

#[test]
fn a_new_start_gets_no_lease_before_those_of_earlier_starts_are_over() {
    let (state, mut now) = (state(), 5);
    let mut liveness = Liveness::<u8>::new();
    liveness.pass(now);
    liveness.lead();
    liveness.registered(NODE, 1, &state);
    assert_eq!(liveness.lease_ms(&heartbeat(1), &state), 1_000);
    pass(&mut liveness, &mut now, 5_000);
    let state = started_again(&state, 2);
    let sole = Heartbeat {
        incarnation: 2,
        ..heartbeat(1)
    };
    let unknown = Heartbeat {
        is_sole: false,
        ..sole
    };
    for lead in ["the same", "the next"] {
        // A connection that breaks makes no other start of it.
        for ms in [990, 1_000] {
            liveness.registered(NODE, 2, &state);
            pass(&mut liveness, &mut now, ms);
            assert_eq!(liveness.lease_ms(&unknown, &state), 0, "{lead}");
            assert_eq!(liveness.lease_ms(&sole, &state), 1_000, "they are gone");
        }
        pass(&mut liveness, &mut now, 10);
        assert_eq!(liveness.lease_ms(&unknown, &state), 1_000, "{lead}");
        // It does not know what the one before has granted.
        liveness.lead();
    }
}
