use ephesus_wire::table::PartitionStatus;
use ephesus_wire::{Epoch, ShardId};

use super::*;
use crate::command::{Addresses, Command, Registration};
use crate::migration::{
    Abort, AbortReason, Arrival, Confirmation, Decision, Migration, Phase, Purpose,
};
use crate::placement::{Move, Place, Policy};

fn register(n: u8, incarnation: u64) -> Command {
    Command::Register(Registration {
        node: NodeId([n; 16]),
        cluster: None,
        name: format!("node-{n}"),
        incarnation,
        addresses: Addresses {
            entry: format!("10.0.0.{n}:7379"),
            tls_port: None,
            peer: format!("10.0.0.{n}:17379"),
            rack: String::new(),
        },
        shards: 1,
        capacity: crate::state::CAPACITY_DEFAULT,
        speaks: crate::protocol::VERSIONS,
    })
}

struct World {
    state: State,
    history: History,
    views: Vec<View>,
}

impl World {
    fn new() -> World {
        let mut world = World {
            state: State::default(),
            history: History::default(),
            views: Vec::new(),
        };
        world.apply(&Command::Bootstrap {
            cluster: ClusterId([7; 16]),
            options: ClusterOptions {
                partitions: 32,
                min_nodes: 2,
                policy: Policy::Contiguous,
                heartbeat_timeout_ms: 2_000,
            },
            coordinators: BTreeMap::from([(RaftId(1), "10.0.1.1:27379".to_owned())]),
        });
        let (id, speaks) = (RaftId(1), crate::protocol::VERSIONS);
        let said = Command::CoordinatorSpeaks { id, speaks };
        world.state.apply(&said).expect("a coordinator");
        world
    }

    fn apply(&mut self, command: &Command) {
        let effects = self.state.apply(command).expect("not refused");
        self.history.record(self.state.table().version, effects);
        self.views
            .push(View::of(&self.state).expect("bootstrapped"));
    }

    /// A history with every kind of change.
    fn lively() -> World {
        let mut world = World::new();
        for n in 1..=4 {
            world.apply(&register(n, 1));
        }
        for n in 1..=2 {
            let copies = (0..32).map(|p| (PartitionId(p), Epoch(1))).collect();
            let node = NodeId([n; 16]);
            world.apply(&Command::Started {
                node,
                incarnation: 1,
            });
            world.apply(&Command::Hosting { node, copies });
        }
        let node = NodeId([4; 16]);
        world.apply(&Command::Fail {
            node,
            incarnation: 1,
        });
        let lose_data = false;
        world.apply(&Command::Remove { node, lose_data });
        world.migrate();
        world
    }

    /// Three migrations: one is committed, one is copying, one is aborted.
    fn migrate(&mut self) {
        let to = Place {
            node: NodeId([3; 16]),
            shard: ShardId(0),
        };
        let of = |p| Move {
            partition: PartitionId(p),
            to,
        };
        self.apply(&Command::PlanMoves {
            moves: vec![of(0), of(1), of(2)],
            purpose: Purpose::Move,
        });
        let incarnation = 1;
        for id in [1, 2, 3].map(MigrationId) {
            self.apply(&Command::BeginMigration { id, incarnation });
        }
        self.apply(&Command::CommitMigration {
            id: MigrationId(1),
            incarnation,
            confirmation: Confirmation::default(),
        });
        let abort = Abort {
            reason: AbortReason::Source,
            text: "enough".to_owned(),
        };
        let id = MigrationId(3);
        self.apply(&Command::AbortMigration { id, abort });
    }
}

#[test]
fn every_older_view_is_brought_up_to_date() {
    let world = World::lively();
    let newest = world.views.last().expect("some");
    let mut deltas = 0;
    for view in &world.views {
        let mut view = view.clone();
        match world.history.update(&world.state, view.version()) {
            None => assert_eq!(view.version(), newest.version()),
            Some(TableUpdate::Full(full)) => view = full,
            Some(TableUpdate::Delta(delta)) => {
                deltas += 1;
                view.update(delta).expect("fits");
            }
        }
        assert_eq!(view, *newest);
    }
    assert_eq!(deltas, 8);
    assert!(newest.members.len() == 3 && newest.check().is_ok());
    let online = |entry: &&PartitionEntry| entry.status == PartitionStatus::Online;
    assert_eq!(newest.table.entries.iter().filter(online).count(), 31);
    let decision = |id, p| {
        newest
            .migrations
            .decision_for_target(MigrationId(id), PartitionId(p))
    };
    assert_eq!(decision(1, 0), Decision::Committed);
    assert_eq!(decision(2, 1), Decision::Open);
    assert_eq!(decision(3, 2), Decision::Aborted);
}

#[test]
fn a_delta_fits_one_version_only() {
    let world = World::lively();
    let count = world.views.len();
    let held = world.views[count - 3].version();
    let Some(TableUpdate::Delta(delta)) = world.history.update(&world.state, held) else {
        panic!("no delta");
    };
    for view in world.views.iter().filter(|view| view.version() != held) {
        let (mut updated, from) = (view.clone(), held);
        let held = view.version();
        let refused = updated.update(delta.clone());
        assert_eq!(refused, Err(UpdateError::Base { from, held }));
        assert_eq!(updated, *view);
    }
    let mut missing = delta;
    missing
        .partitions
        .push((PartitionId(32), PartitionEntry::default()));
    let mut view = world.views[count - 3].clone();
    let refused = view.update(missing);
    assert_eq!(refused, Err(UpdateError::Partition(PartitionId(32))));
    assert_eq!(view, world.views[count - 3]);
}

#[test]
fn what_is_not_remembered_is_sent_as_a_whole() {
    let mut world = World::lively();
    let newest = world.state.table().version;
    for held in [0, 1] {
        let update = world.history.update(&world.state, held);
        assert!(
            matches!(update, Some(TableUpdate::Full(_))),
            "version {held}: {update:?}"
        );
    }
    assert_eq!(world.history.update(&world.state, newest), None);
    assert_eq!(world.history.update(&world.state, newest + 1), None);
    world.history.clear();
    let update = world.history.update(&world.state, newest - 1);
    assert!(matches!(update, Some(TableUpdate::Full(_))));
}

#[test]
fn a_history_is_bounded() {
    let mut world = World::lively();
    for incarnation in 2..HISTORY_CHANGES_MAX as u64 + 100 {
        world.apply(&register(1, incarnation));
    }
    assert_eq!(world.history.changes.len(), HISTORY_CHANGES_MAX);
    let newest = world.state.table().version;
    let oldest = newest - HISTORY_CHANGES_MAX as u64;
    let update = world.history.update(&world.state, oldest);
    assert!(matches!(update, Some(TableUpdate::Delta(_))));
    let update = world.history.update(&world.state, oldest - 1);
    assert!(matches!(update, Some(TableUpdate::Full(_))));
}

fn without_changes(from: u64) -> Delta {
    Delta {
        from,
        to: from + 1,
        coordinators: None,
        members: Vec::new(),
        partitions: Vec::new(),
        last_migration: MigrationId(1),
        migrations: Vec::new(),
        arrivals: Vec::new(),
        limit_mb_s: 0,
    }
}

#[test]
fn a_table_without_coordinators_is_refused() {
    let world = World::new();
    let view = world.views.last().expect("a view");
    let mut full = view.clone();
    full.coordinators.clear();
    assert_eq!(full.check(), Err(UpdateError::NoCoordinators));
    let mut held = view.clone();
    let mut delta = without_changes(held.version());
    delta.coordinators = Some(BTreeMap::new());
    assert_eq!(held.update(delta), Err(UpdateError::NoCoordinators));
    assert_eq!(held, *view, "nothing was changed");
}

#[test]
fn a_table_with_migrations_of_partitions_that_are_not_there_is_refused() {
    let mut world = World::new();
    world.apply(&register(1, 1));
    let view = world.views.last().expect("a view").clone();
    let arrival = Arrival {
        migration: MigrationId(1),
        epoch: Epoch(1),
    };
    let place = Place {
        node: NodeId([1; 16]),
        shard: ShardId(0),
    };
    let migration = Migration {
        partition: PartitionId(32),
        epoch: Epoch(1),
        source: place,
        target: place,
        phase: Phase::Planned,
        attempt: 1,
        purpose: Purpose::Move,
    };
    let missing = Err(UpdateError::Partition(PartitionId(32)));
    let mut full = view.clone();
    let arrivals = &mut full.migrations.arrivals;
    arrivals.insert(PartitionId(32), arrival);
    assert_eq!(full.check(), missing);
    let mut full = view.clone();
    let active = &mut full.migrations.active;
    active.insert(MigrationId(1), migration.clone());
    assert_eq!(full.check(), missing);
    let mut held = view.clone();
    let mut delta = without_changes(held.version());
    delta.arrivals.push((PartitionId(32), arrival));
    assert_eq!(held.update(delta), missing);
    let mut delta = without_changes(held.version());
    delta.migrations.push((MigrationId(1), Some(migration)));
    assert_eq!(held.update(delta), missing);
    assert_eq!(held, view, "nothing was changed");
}
