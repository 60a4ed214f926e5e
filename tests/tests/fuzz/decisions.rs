//! What coordinators decide, whatever their log holds: commands and snapshots, each of a later release, of a damaged disk,
//! or of a leader that is mistaken.

use std::collections::BTreeMap;

use ephesus_coordinator::command::{
    Addresses, ClusterId, ClusterOptions, Nonce, RaftId, Registration, StartProof,
};
use ephesus_coordinator::migration::{Abort, AbortReason, Confirmation, Purpose};
use ephesus_coordinator::placement::{Move, Place, Policy};
use ephesus_coordinator::protocol::VERSIONS;
use ephesus_coordinator::view::{Delta, History, View};
use ephesus_coordinator::{Command, State};
use ephesus_wire::{Epoch, MigrationId, NodeId, PartitionId, ShardId};

use super::mutations::fuzz;

/// Commands of one input at most.
const COMMANDS_MAX: usize = 64;

fn node(n: u8) -> NodeId {
    NodeId([n; 16])
}

pub(crate) fn registration(n: u8) -> Registration {
    Registration {
        node: node(n),
        cluster: None,
        name: format!("node-{n}"),
        incarnation: 1,
        addresses: Addresses {
            entry: format!("10.0.0.{n}:7379"),
            tls_port: None,
            peer: format!("10.0.0.{n}:17379"),
            rack: String::new(),
        },
        shards: 2,
        capacity: 100,
        speaks: VERSIONS,
    }
}

/// The life of a small cluster, as nodes are told of it: each table as a whole, and what has changed since the one before.
pub(crate) fn tables() -> Vec<(View, Option<Delta>)> {
    let (mut state, mut told) = (State::default(), History::default());
    let mut tables = Vec::new();
    for command in history() {
        let held = state.table().version;
        let effects = state.apply(&command).expect("each is carried out");
        told.record(state.table().version, effects);
        tables.extend(View::of(&state).map(|view| (view, told.delta(&state, held))));
    }
    tables
}

/// The life of a small cluster: each command has an effect on what those before have led to.
pub(crate) fn history() -> Vec<Command> {
    let id = MigrationId;
    let to = |partition, n, shard| Move {
        partition: PartitionId(partition),
        to: Place {
            node: node(n),
            shard: ShardId(shard),
        },
    };
    let mut commands = vec![
        Command::Bootstrap {
            cluster: ClusterId([7; 16]),
            options: ClusterOptions {
                partitions: 8,
                min_nodes: 2,
                policy: Policy::RoundRobin,
                heartbeat_timeout_ms: 2_000,
            },
            coordinators: BTreeMap::from([(RaftId(1), "10.0.1.1:27379".to_owned())]),
        },
        Command::CoordinatorSpeaks {
            id: RaftId(1),
            speaks: VERSIONS,
        },
        Command::Register(registration(1)),
        Command::Register(registration(2)),
        Command::RegisterStart {
            registration: registration(3),
            start: StartProof {
                previous: None,
                nonce: Nonce([3; 16]),
                accepts_old: false,
            },
        },
    ];
    let incarnation = 1;
    for n in 1..=3 {
        let node = node(n);
        commands.push(Command::Started { node, incarnation });
        let copies = (0..8).map(|p| (PartitionId(p), Epoch(1))).collect();
        commands.push(Command::Hosting { node, copies });
    }
    let confirmation = Confirmation {
        count: 3,
        digest: [1, 2],
    };
    let abort = Abort {
        reason: AbortReason::Target,
        text: "no room".to_owned(),
    };
    let begin = |number| Command::BeginMigration {
        id: id(number),
        incarnation,
    };
    let node = node(3);
    commands.extend([
        Command::PlanMoves {
            moves: vec![to(0, 3, 0), to(1, 3, 1), to(2, 3, 0), to(3, 3, 0)],
            purpose: Purpose::Rebalance,
        },
        Command::LimitMoves { mb_s: 40 },
        begin(1),
        Command::CommitMigration {
            id: id(1),
            incarnation,
            confirmation,
        },
        Command::AbortMigration { id: id(2), abort },
        begin(3),
        begin(4),
        Command::CommitMigrations {
            incarnation,
            confirmations: vec![(id(3), confirmation), (id(4), confirmation)],
        },
        Command::RetryMigration { id: id(2) },
        Command::Drain { node, on: true },
        Command::Fail { node, incarnation },
        Command::Remove {
            node,
            lose_data: true,
        },
    ]);
    commands
}

fn encoded(commands: &[Command]) -> Vec<u8> {
    let encode = |command| postcard::to_allocvec(command).expect("commands encode");
    commands.iter().flat_map(encode).collect()
}

/// Carries out the commands that the bytes are, and checks what they lead to.
fn follow(state: &mut State, mut bytes: &[u8]) {
    for _ in 0..COMMANDS_MAX {
        let Ok((command, rest)) = postcard::take_from_bytes::<Command>(bytes) else {
            break;
        };
        bytes = rest;
        let before = state.clone();
        if let Err(refusal) = state.apply(&command) {
            assert!(*state == before, "{refusal} and a change");
        }
    }
    check(state);
}

/// What holds of every state.
fn check(state: &State) {
    let again = State::from_snapshot(&state.to_snapshot()).expect("our own snapshot");
    assert!(again == *state);
    if let Some(view) = View::of(state) {
        view.check().expect("a view of partitions that there are");
    }
}

#[test]
fn commands_of_a_log() {
    let history = history();
    let mut states = vec![State::default()];
    let mut seeds = vec![encoded(&history)];
    for (at, command) in history.iter().enumerate() {
        let mut state = states[at].clone();
        state.apply(command).expect("each is carried out");
        states.push(state);
        seeds.push(encoded(&history[at..]));
        seeds.push(encoded(&history[at..=at]));
    }
    let mut turn = 0;
    fuzz("commands", seeds, |bytes| {
        turn += 1;
        follow(&mut states[turn % states.len()].clone(), bytes);
    });
}

#[test]
fn snapshots_of_a_state() {
    let history = history();
    let mut state = State::default();
    let mut seeds = Vec::new();
    for command in &history {
        state.apply(command).expect("each is carried out");
        seeds.push(state.to_snapshot());
    }
    let commands = encoded(&history);
    fuzz("snapshots", seeds, |bytes| {
        if let Ok(mut state) = State::from_snapshot(bytes) {
            if let Some(view) = View::of(&state) {
                view.check().expect("a view of partitions that there are");
            }
            follow(&mut state, &commands);
        }
    });
}
