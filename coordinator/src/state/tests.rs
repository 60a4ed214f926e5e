use ephesus_wire::table::Role;
use ephesus_wire::{MigrationId, ShardId};
use proptest::prelude::*;

use super::*;
use crate::command::CoordinatorChange;
use crate::migration::{Abort, Confirmation, Phase, Purpose};
use crate::placement::{Place, Policy};
use crate::protocol::VERSIONS;

const CLUSTER: ClusterId = ClusterId([7; 16]);

pub(crate) fn id(n: u8) -> NodeId {
    NodeId([n; 16])
}

pub(crate) fn bootstrap(partitions: u16, min_nodes: u16, policy: Policy) -> Command {
    Command::Bootstrap {
        cluster: CLUSTER,
        options: ClusterOptions {
            partitions,
            min_nodes,
            policy,
            heartbeat_timeout_ms: 2_000,
        },
        coordinators: BTreeMap::from([(RaftId(1), "10.0.1.1:27379".to_owned())]),
    }
}

fn registration(n: u8, name: &str, incarnation: u64, shards: u16) -> Registration {
    Registration {
        node: id(n),
        cluster: None,
        name: name.to_owned(),
        incarnation,
        addresses: Addresses {
            entry: format!("10.0.0.{n}:7379"),
            tls_port: None,
            peer: format!("10.0.0.{n}:17379"),
            rack: String::new(),
        },
        shards,
        capacity: CAPACITY_DEFAULT,
        speaks: VERSIONS,
    }
}

pub(crate) fn register(n: u8, name: &str, incarnation: u64, shards: u16) -> Command {
    Command::Register(registration(n, name, incarnation, shards))
}

/// A state after commands none of which is refused; its coordinator says what it speaks.
pub(crate) fn after(commands: &[Command]) -> State {
    let mut state = State::default();
    for command in commands {
        state.apply(command).expect("not refused");
        if matches!(command, Command::Bootstrap { .. }) {
            let (id, speaks) = (RaftId(1), VERSIONS);
            let said = Command::CoordinatorSpeaks { id, speaks };
            state.apply(&said).expect("a coordinator");
        }
    }
    state
}

pub(crate) fn three_nodes(policy: Policy) -> State {
    after(&[
        bootstrap(9, 3, policy),
        register(1, "athens", 1, 1),
        register(2, "byzantium", 1, 1),
        register(3, "cyrene", 1, 1),
    ])
}

fn owners(state: &State) -> Vec<String> {
    let name = |entry: &PartitionEntry| match owner(entry) {
        Some(node) => state.members[&node].name.clone(),
        None => "-".to_owned(),
    };
    state.table.entries.iter().map(name).collect()
}

pub(crate) fn hosting(state: &State, n: u8) -> Command {
    let epoch = |partition: &PartitionId| state.table.entries[usize::from(partition.0)].epoch;
    let copies = state.owned(id(n)).map(|p| (p, epoch(&p))).collect();
    Command::Hosting {
        node: id(n),
        copies,
    }
}

/// Nine partitions, those of each node next to each other, all online.
pub(crate) fn online() -> State {
    let mut state = three_nodes(Policy::Contiguous);
    for n in 1..=3 {
        let all = hosting(&state, n);
        apply(&mut state, &all);
    }
    state
}

/// As [`online`]; all nodes serve, and so many moves may be under way.
pub(crate) fn serving(moves: u32) -> State {
    let mut state = online();
    for n in 1..=3 {
        let (node, incarnation) = (id(n), 1);
        apply(&mut state, &Command::Started { node, incarnation });
    }
    apply(&mut state, &Command::MovesMax { moves });
    state
}

pub(crate) fn apply(state: &mut State, command: &Command) -> Effects {
    let effects = state.apply(command);
    effects.unwrap_or_else(|refusal| panic!("{command:?}: {refusal}"))
}

/// Partitions to the first shard of a node.
pub(crate) fn plan(partitions: &[u16], to: NodeId, purpose: Purpose) -> Command {
    let to = Place {
        node: to,
        shard: ShardId(0),
    };
    let moves = partitions.iter().map(|partition| Move {
        partition: PartitionId(*partition),
        to,
    });
    Command::PlanMoves {
        moves: moves.collect(),
        purpose,
    }
}

#[test]
fn nine_partitions_over_athens_byzantium_and_cyrene() {
    let state = three_nodes(Policy::RoundRobin);
    let round = ["athens", "byzantium", "cyrene"];
    assert_eq!(owners(&state), round.repeat(3));
    let state = three_nodes(Policy::Contiguous);
    let owners = owners(&state);
    assert!(owners[..3].iter().all(|name| name == "athens"));
    assert!(owners[6..].iter().all(|name| name == "cyrene"));
}

#[test]
fn nothing_is_assigned_before_enough_nodes_are_there() {
    let mut state = after(&[
        bootstrap(9, 3, Policy::Contiguous),
        register(1, "athens", 1, 1),
        register(2, "byzantium", 1, 1),
    ]);
    assert_eq!(state.missing_nodes(), 1);
    assert_eq!(owners(&state), ["-"; 9]);
    let fail = Command::Fail {
        node: id(2),
        incarnation: 1,
    };
    state.apply(&fail).expect("a member");
    state
        .apply(&register(3, "cyrene", 1, 1))
        .expect("a new node");
    assert_eq!(state.missing_nodes(), 1, "a failed node does not count");
    let effects = state
        .apply(&register(2, "byzantium", 2, 1))
        .expect("it is back");
    assert_eq!(effects.partitions.len(), 9);
    assert_eq!(state.missing_nodes(), 0);
}

#[test]
fn partitions_are_online_once_their_owner_hosts_them() {
    let mut state = three_nodes(Policy::RoundRobin);
    let early = Command::Hosting {
        node: id(2),
        copies: vec![(PartitionId(0), Epoch(1)), (PartitionId(1), Epoch(7))],
    };
    let effects = state.apply(&early).expect("a member");
    assert!(effects.is_empty(), "not its own, not this epoch");
    let all = hosting(&state, 2);
    let effects = state.apply(&all).expect("a member");
    assert_eq!(effects.partitions.len(), 3);
    let statuses = state.table.entries.iter().map(|entry| entry.status);
    let online = statuses.filter(|status| *status == PartitionStatus::Online);
    assert_eq!(online.count(), 3);
}

#[test]
fn a_restart_and_a_failure_leave_the_table_as_it_is() {
    let mut state = three_nodes(Policy::RoundRobin);
    for n in 1..=3 {
        let all = hosting(&state, n);
        state.apply(&all).expect("a member");
    }
    let entries = state.table.entries.clone();
    let fail = |incarnation| Command::Fail {
        node: id(1),
        incarnation,
    };
    state.apply(&register(1, "athens", 2, 1)).expect("restart");
    assert_eq!(state.members[&id(1)].status, MemberStatus::Starting);
    assert_eq!(
        state.apply(&fail(1)),
        Err(Refusal::Stale {
            node: id(1),
            found: 1,
            current: 2
        }),
        "a failure of the start before"
    );
    state.apply(&fail(2)).expect("a member");
    assert_eq!(state.members[&id(1)].status, MemberStatus::Failed);
    state
        .apply(&register(1, "athens", 2, 1))
        .expect("reached again");
    let started = Command::Started {
        node: id(1),
        incarnation: 2,
    };
    state.apply(&started).expect("a member");
    assert_eq!(state.members[&id(1)].status, MemberStatus::Live);
    assert_eq!(state.table.entries, entries);
}

#[test]
fn another_number_of_shards_spreads_what_the_node_owns() {
    let mut state = after(&[
        bootstrap(8, 1, Policy::Contiguous),
        register(1, "athens", 1, 2),
    ]);
    let effects = state.apply(&register(1, "athens", 2, 4)).expect("restart");
    let shards: Vec<u16> = state
        .table
        .entries
        .iter()
        .map(|entry| entry.primary().expect("assigned").shard.0)
        .collect();
    assert_eq!(shards, [0, 0, 1, 1, 2, 2, 3, 3]);
    let epochs: Vec<u64> = state
        .table
        .entries
        .iter()
        .map(|entry| entry.epoch.0)
        .collect();
    assert_eq!(
        epochs, [2; 8],
        "every partition gets a new log, so a new epoch"
    );
    assert_eq!(effects.partitions.len(), 8);
}

#[test]
fn a_node_that_returns_empty_is_a_new_node() {
    let mut state = three_nodes(Policy::RoundRobin);
    let empty = register(9, "athens", 1, 1);
    assert_eq!(
        state.apply(&empty),
        Err(Refusal::NameTaken {
            name: "athens".to_owned(),
            owner: id(1)
        })
    );
    let fail = Command::Fail {
        node: id(1),
        incarnation: 1,
    };
    state.apply(&fail).expect("a member");
    state.apply(&empty).expect("a new node");
    assert_eq!(state.owned(id(9)).count(), 0);
    assert_eq!(state.owned(id(1)).count(), 3, "lost only when given up");
}

#[test]
fn a_node_is_removed_only_if_nothing_or_nobody_is_lost_by_it() {
    let mut state = three_nodes(Policy::RoundRobin);
    let remove = |lose_data| Command::Remove {
        node: id(1),
        lose_data,
    };
    let owns = Refusal::OwnsPartitions {
        node: id(1),
        partitions: 3,
    };
    assert_eq!(state.apply(&remove(false)), Err(owns));
    assert_eq!(state.apply(&remove(true)), Err(Refusal::NotFailed(id(1))));
    let fail = Command::Fail {
        node: id(1),
        incarnation: 1,
    };
    state.apply(&fail).expect("a member");
    let effects = state.apply(&remove(true)).expect("given up");
    assert_eq!(effects.partitions.len(), 3);
    assert!(!owners(&state).contains(&"-".to_owned()));
    assert_eq!(state.table.entries[0].epoch, Epoch(2));
    let back = state.apply(&register(1, "athens", 2, 1));
    assert_eq!(back, Err(Refusal::Removed(id(1))));
    assert_eq!(state.apply(&remove(true)), Ok(Effects::default()));
}

#[test]
fn what_does_not_belong_is_refused() {
    let mut state = State::default();
    let athens = registration(1, "athens", 1, 1);
    let apply = |state: &mut State, r: &Registration| state.apply(&Command::Register(r.clone()));
    assert_eq!(apply(&mut state, &athens), Err(Refusal::NotBootstrapped));
    let none = state.apply(&bootstrap(0, 1, Policy::Contiguous));
    assert_eq!(none, Err(Refusal::Partitions(0)));
    let mut alone = bootstrap(9, 1, Policy::Contiguous);
    if let Command::Bootstrap { coordinators, .. } = &mut alone {
        coordinators.clear();
    }
    assert_eq!(state.apply(&alone), Err(Refusal::NoCoordinators));
    let mut hasty = bootstrap(9, 1, Policy::Contiguous);
    if let Command::Bootstrap { options, .. } = &mut hasty {
        options.heartbeat_timeout_ms = 999;
    }
    let hasty = state.apply(&hasty);
    assert_eq!(hasty, Err(Refusal::HeartbeatTimeout(999)));
    state
        .apply(&bootstrap(9, 1, Policy::Contiguous))
        .expect("the first");
    let again = state.apply(&bootstrap(9, 1, Policy::Contiguous));
    assert_eq!(again, Ok(Effects::default()));
    let other = Command::Bootstrap {
        cluster: ClusterId([8; 16]),
        options: state.options().expect("bootstrapped"),
        coordinators: BTreeMap::new(),
    };
    assert_eq!(state.apply(&other), Err(Refusal::OtherCluster(CLUSTER)));
    let foreign = Registration {
        cluster: Some(ClusterId([8; 16])),
        ..athens.clone()
    };
    assert_eq!(
        apply(&mut state, &foreign),
        Err(Refusal::OtherCluster(CLUSTER))
    );
    for name in ["", "two words", "tab\t", &"x".repeat(65)] {
        let unnamed = Registration {
            name: name.to_owned(),
            ..athens.clone()
        };
        assert_eq!(apply(&mut state, &unnamed), Err(Refusal::Name));
    }
    for rack in ["two words", "tab\t", &"x".repeat(65)] {
        let mut elsewhere = athens.clone();
        elsewhere.addresses.rack = rack.to_owned();
        assert_eq!(apply(&mut state, &elsewhere), Err(Refusal::Rack));
    }
    let shardless = Registration {
        shards: 0,
        ..athens.clone()
    };
    assert_eq!(apply(&mut state, &shardless), Err(Refusal::NoShards));
    apply(&mut state, &registration(1, "athens", 5, 1)).expect("a new node");
    let stale = Refusal::Stale {
        node: id(1),
        found: 1,
        current: 5,
    };
    assert_eq!(apply(&mut state, &athens), Err(stale));
    assert_eq!(state.table.version, 2, "refusals change nothing");
}

fn any_command() -> impl Strategy<Value = Command> {
    let node = 1u8..6;
    let names = prop::sample::select(vec!["athens", "byzantium", "cyrene", "delos", "ephesus"]);
    let copies = prop::collection::vec((0u16..12, 1u64..5), 0..12);
    prop_oneof![
        4 => (node.clone(), names, 1u64..4, 1u16..5)
            .prop_map(|(n, name, incarnation, shards)| register(n, name, incarnation, shards)),
        2 => (node.clone(), 1u64..4)
            .prop_map(|(n, incarnation)| Command::Started { node: id(n), incarnation }),
        3 => (node.clone(), copies).prop_map(|(n, copies)| Command::Hosting {
            node: id(n),
            copies: copies.into_iter().map(|(p, e)| (PartitionId(p), Epoch(e))).collect(),
        }),
        2 => (node.clone(), 1u64..4)
            .prop_map(|(n, incarnation)| Command::Fail { node: id(n), incarnation }),
        1 => (node.clone(), any::<bool>())
            .prop_map(|(n, lose_data)| Command::Remove { node: id(n), lose_data }),
        4 => any_migration_command(),
        1 => (node, any::<bool>()).prop_map(|(n, on)| Command::Drain { node: id(n), on }),
    ]
}

fn any_migration_command() -> impl Strategy<Value = Command> {
    let migration = (1u64..12).prop_map(MigrationId);
    let place = (1u8..6, 0u16..4).prop_map(|(n, shard)| Place {
        node: id(n),
        shard: ShardId(shard),
    });
    let moves = prop::collection::vec((0u16..13, place), 1..6).prop_map(|moves| {
        let moves = moves.into_iter();
        let each = moves.map(|(p, to)| Move {
            partition: PartitionId(p),
            to,
        });
        each.collect::<Vec<_>>()
    });
    let purposes = prop::sample::select(vec![Purpose::Move, Purpose::Rebalance]);
    let reasons = prop::sample::select(vec![
        AbortReason::Source,
        AbortReason::TargetFailed,
        AbortReason::Cancelled,
    ]);
    prop_oneof![
        3 => (moves, purposes).prop_map(|(moves, purpose)| Command::PlanMoves { moves, purpose }),
        3 => (migration.clone(), 1u64..4)
            .prop_map(|(id, incarnation)| Command::BeginMigration { id, incarnation }),
        2 => (migration.clone(), 1u64..4, 0u64..2).prop_map(|(id, incarnation, count)| {
            let confirmation = Confirmation { count, digest: [count; 2] };
            let confirmations = vec![(id, confirmation), (MigrationId(1), confirmation)];
            match count {
                0 => Command::CommitMigration { id, incarnation, confirmation },
                _ => Command::CommitMigrations { incarnation, confirmations },
            }
        }),
        2 => (migration.clone(), reasons).prop_map(|(id, reason)| {
            let abort = Abort { reason, text: "because".to_owned() };
            Command::AbortMigration { id, abort }
        }),
        1 => migration.prop_map(|id| Command::RetryMigration { id }),
        1 => (0u32..3).prop_map(|mb_s| Command::LimitMoves { mb_s }),
        1 => (0u32..4).prop_map(|moves| Command::MovesMax { moves }),
    ]
}

/// What `state/migrations.rs` promises.
fn check_migrations(before: &State, state: &State, effects: &Effects) -> Result<(), TestCaseError> {
    let (old, new) = (before.migrations(), state.migrations());
    prop_assert!(new.last >= old.last);
    let mut moving = BTreeSet::new();
    for (id, migration) in &new.active {
        prop_assert!(
            moving.insert(migration.partition),
            "two of {}",
            migration.partition
        );
        prop_assert!(*id <= new.last && (old.active.contains_key(id) || *id > old.last));
        let entry = &state.table.entries[usize::from(migration.partition.0)];
        prop_assert_eq!(entry.epoch, migration.epoch);
        let owner = entry.primary().map(|p| Place {
            node: p.node,
            shard: p.shard,
        });
        prop_assert_eq!(owner, Some(migration.source));
        let is_copying = migration.phase == Phase::Copying;
        prop_assert_eq!(entry.status == PartitionStatus::Migrating, is_copying);
        prop_assert!(is_copying || matches!(migration.phase, Phase::Planned | Phase::Waiting));
        for place in [migration.source, migration.target] {
            let member = state.members.get(&place.node);
            prop_assert!(member.is_some_and(|member| place.shard.0 < member.shards));
        }
        prop_assert!(!state.draining().contains(&migration.target.node));
    }
    check_turns(before, state)?;
    for (index, entry) in state.table.entries.iter().enumerate() {
        let is_migrating = entry.status == PartitionStatus::Migrating;
        prop_assert!(!is_migrating || moving.contains(&PartitionId(index as u16)));
    }
    for id in old.active.keys().chain(new.active.keys()) {
        let is_changed = old.active.get(id) != new.active.get(id);
        prop_assert_eq!(effects.migrations.contains(id), is_changed);
    }
    for (index, entry) in state.table.entries.iter().enumerate() {
        let partition = PartitionId(index as u16);
        let arrival = new.arrivals.get(&partition);
        prop_assert_eq!(arrival.is_some(), entry.primary().is_some());
        let is_older = arrival.is_some_and(|arrival| arrival.epoch <= entry.epoch);
        prop_assert!(arrival.is_none() || is_older);
        if old.arrivals.get(&partition) != arrival {
            prop_assert!(effects.partitions.contains(&partition));
            let brought = arrival.map_or(0, |arrival| arrival.migration.0);
            prop_assert!(brought == 0 || old.active.contains_key(&MigrationId(brought)));
        }
    }
    let is_member = |node| state.members.contains_key(node);
    prop_assert!(state.draining().iter().all(is_member));
    for retry in state.retries().values() {
        let member = state.members.get(&retry.target.node);
        prop_assert!(member.is_some_and(|member| retry.target.shard.0 < member.shards));
        prop_assert!(!moving.contains(&retry.partition));
    }
    prop_assert!(state.ended_migrations().count() <= ENDED_KEPT);
    Ok(())
}

/// What `state/migrations/turns.rs` promises.
fn check_turns(before: &State, state: &State) -> Result<(), TestCaseError> {
    let is_live = |place: Place| is_live(&state.members[&place.node]);
    let active = state.migrations().active.values();
    let moved = active.filter(|migration| migration.purpose == Purpose::Rebalance);
    let can_go = |migration: &&Migration| is_live(migration.source) && is_live(migration.target);
    let has = |phase: Phase| move |migration: &&Migration| migration.phase == phase;
    let copying = moved.clone().filter(has(Phase::Copying)).count();
    let planned = moved.clone().filter(has(Phase::Planned)).count();
    let waiting = moved.filter(has(Phase::Waiting));
    let moves_max = state.moves_max() as usize;
    if moves_max == 0 {
        prop_assert_eq!(waiting.count(), 0);
        return Ok(());
    }
    // A lower bound lets what is under way go on.
    if before.moves_max() == state.moves_max() {
        let old = before.migrations().active.values();
        let old = old.filter(|m| m.purpose == Purpose::Rebalance && m.phase != Phase::Waiting);
        prop_assert!(copying + planned <= moves_max.max(old.count()));
    }
    let is_full = copying + planned >= moves_max;
    prop_assert!(is_full || waiting.filter(can_go).count() == 0);
    Ok(())
}

fn check(before: &State, state: &State, effects: &Effects) -> Result<(), TestCaseError> {
    let entries = before.table.entries.iter().zip(&state.table.entries);
    for (index, (old, new)) in entries.enumerate() {
        let partition = PartitionId(index as u16);
        prop_assert!(new.epoch >= old.epoch, "epoch of {partition} went back");
        let place = |entry: &PartitionEntry| entry.primary().map(|p| (p.node, p.shard));
        if place(new).is_some() && place(new) != place(old) {
            prop_assert!(new.epoch > old.epoch, "{partition} moved within an epoch");
        }
        prop_assert_eq!(effects.partitions.contains(&partition), old != new);
        let primaries = new.replicas.iter().filter(|r| r.role == Role::Primary);
        let expected = usize::from(new.status != PartitionStatus::Unassigned);
        prop_assert_eq!(primaries.count(), expected);
        if let Some(primary) = new.primary() {
            let member = state.members.get(&primary.node);
            prop_assert!(member.is_some_and(|member| primary.shard.0 < member.shards));
        }
    }
    for node in before.members.keys().chain(state.members.keys()) {
        let changed = before.members.get(node) != state.members.get(node);
        prop_assert_eq!(effects.members.contains(node), changed);
    }
    let grows = u64::from(!effects.is_empty());
    prop_assert_eq!(state.table.version, before.table.version + grows);
    check_migrations(before, state, effects)
}

#[test]
fn coordinators_never_get_a_number_twice() {
    let add = |id, address: &str| CoordinatorChange::Add {
        id: RaftId(id),
        address: address.to_owned(),
    };
    let remove = |id| CoordinatorChange::Remove { id: RaftId(id) };
    let mut state = State::default();
    let early = state.change_coordinators(&add(2, "b:1"));
    assert_eq!(early, Err(Refusal::NotBootstrapped));
    state = after(&[bootstrap(9, 1, Policy::Contiguous)]);
    let last = state.change_coordinators(&remove(1));
    assert_eq!(last, Err(Refusal::LastCoordinator(RaftId(1))));
    let version = state.table().version;
    let effects = state.change_coordinators(&add(2, "b:1")).expect("new");
    assert!(effects.coordinators && state.table().version == version + 1);
    let again = state.change_coordinators(&add(2, "b:1"));
    assert_eq!(again, Ok(Effects::default()), "said twice");
    let taken = state.change_coordinators(&add(3, "b:1"));
    assert_eq!(taken, Err(Refusal::AddressTaken(RaftId(2))));
    state.change_coordinators(&remove(2)).expect("one is left");
    let again = state.change_coordinators(&remove(2));
    assert_eq!(again, Ok(Effects::default()), "said twice");
    let (found, used) = (RaftId(2), RaftId(2));
    let reused = state.change_coordinators(&add(2, "b:1"));
    assert_eq!(reused, Err(Refusal::CoordinatorId { found, used }));
    assert_eq!(state.next_coordinator(), RaftId(3));
    let unknown = state.change_coordinators(&remove(9));
    assert_eq!(unknown, Err(Refusal::UnknownCoordinator(RaftId(9))));
}

#[test]
fn a_learner_does_not_vote_until_it_is_promoted() {
    let mut state = after(&[bootstrap(9, 1, Policy::Contiguous)]);
    let before = state.to_snapshot();
    assert_eq!(before[0], 3, "members of the release before read it");
    let add = CoordinatorChange::AddLearner {
        id: RaftId(2),
        address: "b:1".to_owned(),
    };
    assert!(state.change_coordinators(&add).expect("new").coordinators);
    assert_eq!(state.change_coordinators(&add), Ok(Effects::default()));
    assert!(state.voters().eq([RaftId(1)]));
    let remove = |id| CoordinatorChange::Remove { id: RaftId(id) };
    let last = state.change_coordinators(&remove(1));
    assert_eq!(last, Err(Refusal::LastCoordinator(RaftId(1))));
    let bytes = state.to_snapshot();
    assert_eq!(bytes[0], 4);
    assert_eq!(State::from_snapshot(&bytes).expect("our own"), state);
    let torn = State::from_snapshot(&bytes[..bytes.len() - 1]);
    assert!(torn.is_err());

    let promote = CoordinatorChange::Promote { id: RaftId(2) };
    let unheard = state.change_coordinators(&promote);
    assert!(
        matches!(unheard, Err(Refusal::NotUpgraded { .. })),
        "{unheard:?}"
    );
    let (id, speaks) = (RaftId(2), VERSIONS);
    let said = Command::CoordinatorSpeaks { id, speaks };
    state.apply(&said).expect("a coordinator");
    assert!(
        state
            .change_coordinators(&promote)
            .expect("it has said so")
            .coordinators
    );
    assert_eq!(state.change_coordinators(&promote), Ok(Effects::default()));
    assert!(state.voters().eq([1, 2].map(RaftId)));
    assert_eq!(state.to_snapshot()[0], 3, "nothing in it is new any more");
    state.change_coordinators(&remove(1)).expect("one is left");
    let unknown = CoordinatorChange::Promote { id: RaftId(7) };
    assert!(state.change_coordinators(&unknown).is_err());
}

#[test]
fn the_coordinator_in_a_nodes_process_is_found_by_its_address() {
    let mut state = three_nodes(Policy::Contiguous);
    assert_eq!(state.embedded_in(id(1)), None);
    let add = CoordinatorChange::AddLearner {
        id: RaftId(2),
        address: "10.0.0.2:27379".to_owned(),
    };
    state.change_coordinators(&add).expect("new");
    assert_eq!(state.embedded_in(id(2)), Some(RaftId(2)));
    assert_eq!(state.embedded_in(id(9)), None);
    let entry = |entry: &str| Addresses {
        entry: entry.to_owned(),
        tls_port: None,
        peer: String::new(),
        rack: String::new(),
    };
    assert_eq!(entry("h:50000").embedded(), None);
    assert_eq!(entry("h").embedded(), None);
    assert_eq!(entry("[::1]:1").embedded().as_deref(), Some("[::1]:20001"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_the_invariants(
        min_nodes in 1u16..4,
        commands in prop::collection::vec(any_command(), 1..60),
    ) {
        let mut state = after(&[bootstrap(12, min_nodes, Policy::Contiguous)]);
        for command in &commands {
            let before = state.clone();
            match state.apply(command) {
                Ok(effects) => {
                    check(&before, &state, &effects)?;
                    let once = state.clone();
                    if let Ok(again) = state.apply(command) {
                        prop_assert!(again.is_empty(), "{:?} twice: {:?}", command, again);
                    }
                    prop_assert_eq!(&state, &once);
                }
                Err(_) => prop_assert_eq!(&state, &before),
            }
        }
    }

    #[test]
    fn a_snapshot_in_the_middle_changes_nothing(
        commands in prop::collection::vec(any_command(), 1..60),
        at in 0usize..60,
    ) {
        let mut state = after(&[bootstrap(12, 2, Policy::RoundRobin)]);
        let mut restored = state.clone();
        for (index, command) in commands.iter().enumerate() {
            if index == at {
                restored = State::from_snapshot(&restored.to_snapshot()).expect("our own");
            }
            prop_assert_eq!(state.apply(command), restored.apply(command));
        }
        prop_assert_eq!(state.to_snapshot(), restored.to_snapshot());
    }

    #[test]
    fn any_bytes_are_refused_as_snapshot_or_are_one(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(state) = State::from_snapshot(&bytes) {
            let again = State::from_snapshot(&state.to_snapshot()).expect("our own");
            prop_assert_eq!(again, state);
        }
    }
}
