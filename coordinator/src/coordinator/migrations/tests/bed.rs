//! Coordinators, nodes that do as they are told, and an operator.

use ephesus_wire::{MigrationId, NodeId, PartitionId};

use crate::coordinator::TICK_MS;
use crate::coordinator::tests::{World, heartbeat, id, register};
use crate::migration::{Confirmation, Phase, Step};
use crate::protocol::{Answer, Request};
use crate::report::{MigrationRow, MoveRow, Query, Report};
use crate::state::State;

/// The operator's session; that of a node is its number.
const OPERATOR: u64 = 99;

pub(in crate::coordinator) const CONFIRMATION: Confirmation = Confirmation {
    count: 40,
    digest: [1, 2],
};

/// `nodes` live nodes, the first of which owns all 16 partitions.
pub(in crate::coordinator) fn cluster(coordinators: u64, nodes: u8) -> World {
    let mut world = World::new(coordinators);
    world.pass(2_000);
    join(&mut world, nodes);
    world
}

/// Nodes connect to the leader, and say that they are there and host what they own.
pub(in crate::coordinator) fn join(world: &mut World, nodes: u8) {
    let leader = world.leader();
    for n in 1..=nodes {
        let (node, incarnation) = (id(n), 1);
        let session = u64::from(n);
        world.say(leader, session, register(n));
        world.say(leader, session, Request::Started { node, incarnation });
        let state = state(world);
        let epoch = |p: &PartitionId| state.table().entries[usize::from(p.0)].epoch;
        let copies = state.owned(node).map(|p| (p, epoch(&p))).collect();
        world.say(leader, session, Request::Hosting { node, copies });
    }
    beat(world, nodes, 0);
}

/// Time passes, and nodes are heard of.
pub(in crate::coordinator) fn beat(world: &mut World, nodes: u8, ms: u64) {
    let end = world.now + ms;
    loop {
        let leader = world.leader();
        let version = state(world).table().version;
        for n in 1..=nodes {
            let now = world.now;
            world.say(leader, n.into(), heartbeat(n, now, version));
        }
        if world.now >= end {
            return;
        }
        world.pass(200.min(end - world.now));
    }
}

pub(in crate::coordinator) fn state(world: &World) -> &State {
    world.coordinators[world.leader() as usize - 1].state()
}

pub(in crate::coordinator) fn ask(world: &mut World, query: Query) -> Report {
    world.told();
    let leader = world.leader();
    world.say(leader, OPERATOR, Request::Operator { id: 1, query });
    world.pass(2 * TICK_MS);
    let mut reports = world
        .told()
        .into_iter()
        .filter_map(|(_, answer)| match answer {
            Answer::Operator { report, .. } => Some(*report),
            _ => None,
        });
    reports.next().expect("an answer")
}

pub(in crate::coordinator) fn planned(report: Report) -> Vec<MoveRow> {
    match report {
        Report::Planned(rows) => rows,
        other => panic!("{other:?}"),
    }
}

pub(super) fn migrations(world: &mut World) -> Vec<MigrationRow> {
    match ask(world, Query::Migrations) {
        Report::Migrations(report) => report.migrations,
        other => panic!("{other:?}"),
    }
}

pub(in crate::coordinator) fn step(world: &mut World, n: u8, migration: u64, step: Step) {
    let leader = world.leader();
    let request = Request::Steps {
        node: id(n),
        incarnation: 1,
        steps: vec![(MigrationId(migration), step)],
    };
    world.say(leader, n.into(), request);
}

/// What a source says of a batch of one that its target has prepared.
pub(super) fn commit(migration: u64) -> Step {
    Step::Commit(vec![(MigrationId(migration), CONFIRMATION)])
}

pub(super) fn move_to(world: &mut World, partition: u16, node: &str) -> Vec<MoveRow> {
    let query = Query::Move {
        partition,
        node: node.to_owned(),
        shard: None,
    };
    planned(ask(world, query))
}

pub(super) fn phase(world: &World, migration: u64) -> Option<Phase> {
    let id = MigrationId(migration);
    let state = state(world);
    let ended = state.ended_migrations().find(|(other, _)| *other == id);
    let ended = ended.map(|(_, migration)| migration);
    let found = state.migrations().active.get(&id).or(ended);
    found.map(|migration| migration.phase.clone())
}

pub(super) fn owner(world: &World, partition: u16) -> NodeId {
    let entry = state(world).table().entry(PartitionId(partition));
    entry.and_then(|e| e.primary()).expect("an owner").node
}

/// Every source begins and commits what is planned.
pub(in crate::coordinator) fn carry_out(world: &mut World, nodes: u8) {
    let active: Vec<_> = state(world)
        .migrations()
        .active
        .iter()
        .map(|(id, m)| (id.0, m.source.node.0[0]))
        .collect();
    for (migration, n) in active {
        step(world, n, migration, Step::Begin);
        step(world, n, migration, commit(migration));
    }
    beat(world, nodes, 0);
}
