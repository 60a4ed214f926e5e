//! Runs that are told in full.

use ephesus_coordinator::command::{ClusterOptions, RaftId};
use ephesus_coordinator::placement::Policy;
use ephesus_coordinator::report::{Problem, Query, Report};

use crate::world::{Shape, What, World};

fn shape(nodes: usize, min_nodes: u16) -> Shape {
    Shape {
        coordinators: 3,
        nodes,
        options: ClusterOptions {
            partitions: 9,
            min_nodes,
            policy: Policy::RoundRobin,
            heartbeat_timeout_ms: 2_000,
        },
        is_plain: true,
    }
}

fn ask(world: &mut World, query: Query) -> Report {
    let leader = world.leader().expect("one leads");
    world.reports.clear();
    world.ask(leader, query);
    world.run_until(world.now + 300).expect("all is well");
    world.reports.pop().expect("an answer")
}

#[test]
fn nine_partitions_go_round_athens_byzantium_and_cyrene() {
    let mut world = World::new(1, shape(3, 3), None).expect("starts");
    world.heal().expect("all is well");
    let Report::Partitions(rows) = ask(&mut world, Query::Partitions) else {
        panic!("no rows");
    };
    let owners: Vec<_> = rows.iter().filter_map(|row| row.node.as_deref()).collect();
    assert_eq!(owners, ["athens", "byzantium", "cyrene"].repeat(3));
    assert!(
        rows.iter()
            .all(|row| row.status == "online" && row.epoch == 1)
    );
    assert_eq!((rows[0].first_slot, rows[8].last_slot), (0, 16_383));
    let Report::Status(status) = ask(&mut world, Query::Status) else {
        panic!("no status");
    };
    assert!(status.healthy, "{status:?}");
    assert_eq!(status.partitions["online"], 9);
    let Report::Nodes(nodes) = ask(&mut world, Query::Nodes) else {
        panic!("no nodes");
    };
    let names: Vec<_> = nodes
        .iter()
        .map(|row| (row.name.as_str(), row.partitions))
        .collect();
    assert_eq!(names, [("athens", 3), ("byzantium", 3), ("cyrene", 3)]);
    assert!(nodes.iter().all(|row| row.status == "live" && row.keys > 0));
    assert!(
        nodes
            .iter()
            .all(|row| row.last_heartbeat_ms.is_some_and(|ms| ms < 300))
    );
    let Report::Coordinators(rows) = ask(&mut world, Query::Coordinators) else {
        panic!("no coordinators");
    };
    assert_eq!(rows.iter().filter(|row| row.leader).count(), 1);
    assert!(rows.len() == 3 && rows.iter().all(|row| row.active));
}

#[test]
fn fewer_nodes_than_asked_for_are_not_enough() {
    let mut world = World::new(2, shape(2, 3), None).expect("starts");
    world.run_until(3_000).expect("all is well");
    let Report::Status(status) = ask(&mut world, Query::Status) else {
        panic!("no status");
    };
    let (present, needed) = (2, 3);
    let problem = Problem::NotEnoughNodes { present, needed };
    assert_eq!(
        problem.to_string(),
        "not enough nodes, 2 of 3: nothing is assigned yet"
    );
    assert_eq!(status.problems, [problem]);
    assert_eq!(status.partitions["unassigned"], 9);
}

#[test]
fn an_assignment_completes_once_though_the_leader_dies_in_its_middle() {
    for seed in 0..20 {
        let mut world = World::new(seed, shape(3, 3), None).expect("starts");
        // Until the table is assigned, and not yet confirmed.
        while world
            .checks
            .latest()
            .is_none_or(|view| view.members.len() < 3)
        {
            world.run_until(world.now + 1).expect("all is well");
            assert!(world.now < 5_000, "seed {seed}: nodes register");
        }
        let leader = world.leader().expect("one leads");
        world.stop_coordinator(leader, true);
        world.after(2_000, What::StartCoordinator(leader));
        world
            .heal()
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let latest = world.checks.latest().expect("a table");
        let mut entries = latest.table.entries.iter();
        assert!(
            entries.all(|entry| entry.epoch.0 == 1),
            "seed {seed}: assigned once"
        );
    }
}

#[test]
fn a_coordinator_is_replaced_while_the_cluster_goes_on() {
    let mut world = World::new(3, shape(3, 3), None).expect("starts");
    world.heal().expect("all is well");
    let leader = world.leader().expect("one leads");
    let Report::Busy = ask(&mut world, Query::RemoveCoordinator { id: RaftId(leader) }) else {
        panic!("a leader hands the lead over first");
    };
    world.run_until(world.now + 1_000).expect("all is well");
    let next = world.leader().expect("one leads");
    assert_ne!(next, leader);
    let removed = ask(&mut world, Query::RemoveCoordinator { id: RaftId(leader) });
    assert!(
        matches!(removed, Report::CoordinatorRemoved { .. }),
        "{removed:?}"
    );
    world.stop_coordinator(leader, true);
    world.coordinators.remove(&leader);
    let address = "coordinator-9:27379".to_owned();
    world.replacement = Some(Query::AddCoordinator {
        address: address.clone(),
    });
    let added = ask(&mut world, Query::AddCoordinator { address });
    let Report::CoordinatorAdded { id } = added else {
        panic!("{added:?}");
    };
    assert_eq!(id.0, 4, "numbers are never given again");
    world.heal().expect("the new one has everything");
    let failures = world.checks.failures;
    world.stop_coordinator(next, true);
    world.run_until(world.now + 2_000).expect("all is well");
    assert!(world.leader().is_some(), "the new one votes");
    assert_eq!(world.checks.failures, failures);
}

/// How many partitions each node owns, by name.
fn owned(world: &mut World) -> Vec<(String, u64)> {
    match ask(world, Query::Nodes) {
        Report::Nodes(rows) => rows
            .into_iter()
            .map(|row| (row.name, row.partitions))
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_fourth_node_gets_its_share_and_a_drained_one_ends_with_nothing() {
    let mut world = World::new(4, shape(4, 3), None).expect("starts");
    world.heal().expect("all is well");
    // Those who came first have everything.
    let of = |owned: &[(String, u64)]| {
        let mut counts: Vec<u64> = owned.iter().map(|(_, count)| *count).collect();
        counts.sort_unstable();
        counts
    };
    let before = owned(&mut world);
    assert_eq!(of(&before), [0, 3, 3, 3]);
    let Report::Planned(rows) = ask(&mut world, Query::Rebalance { dry_run: false }) else {
        panic!("nothing is planned");
    };
    let empty = before.iter().find(|(_, count)| *count == 0);
    let (last, _) = empty.expect("one came last");
    assert!(rows.len() == 2 && rows.iter().all(|row| row.to_node == *last));
    world.heal().expect("the moves are carried out");
    let balanced = owned(&mut world);
    assert_eq!(of(&balanced), [2, 2, 2, 3]);
    let (node, count) = balanced[0].clone();
    let on = true;
    let Report::Planned(rows) = ask(&mut world, Query::Drain { node, on }) else {
        panic!("nothing is planned");
    };
    assert_eq!(rows.len() as u64, count);
    world.heal().expect("the moves are carried out");
    let drained = owned(&mut world);
    assert_eq!((drained[0].1, of(&drained)), (0, vec![0, 3, 3, 3]));
    let Report::Migrations(report) = ask(&mut world, Query::Migrations) else {
        panic!("no migrations");
    };
    assert_eq!(report.migrations.len() as u64, 2 + count);
    assert!(report.migrations.iter().all(|row| row.state == "committed"));
    assert_eq!(report.draining[0].partitions, 0);
}
