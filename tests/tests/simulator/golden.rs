//! Runs that are told in full.

use ephesus_coordinator::command::{ClusterOptions, RaftId};
use ephesus_coordinator::coordinator::Balance;
use ephesus_coordinator::placement::Policy;
use ephesus_coordinator::protocol::PROTOCOL_VERSION;
use ephesus_coordinator::report::{MigrationState, Problem, Query, Report};
use ephesus_coordinator::state::{Behind, MOVES_MAX, Refusal, Speaker};

use crate::network::End;
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
        auto_rebalance: None,
        moves_max: MOVES_MAX,
        speaks: PROTOCOL_VERSION,
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
    assert!(
        report
            .migrations
            .iter()
            .all(|row| row.state == MigrationState::Committed)
    );
    assert_eq!(report.draining[0].partitions, 0);
}

/// Asks for a move of partition 0 to a node that does not own it, and for what else came with moves.
fn ask_for_moves(world: &mut World) -> Vec<Report> {
    let rows = owned(world);
    let Report::Partitions(partitions) = ask(world, Query::Partitions) else {
        panic!("no partitions");
    };
    let other = rows
        .iter()
        .find(|(name, _)| Some(name) != partitions[0].node.as_ref());
    let node = other.expect("another node").0.clone();
    let on = true;
    let drain = Query::Drain {
        node: node.clone(),
        on,
    };
    let queries = [
        Query::Move {
            partition: 0,
            node,
            shard: None,
        },
        drain,
    ];
    queries.map(|query| ask(world, query)).into()
}

/// Who does not know moves yet, as every refusal tells.
fn behind(reports: &[Report]) -> Vec<Behind> {
    let mut all = reports.iter().map(|report| match report {
        Report::Refused(Refusal::NotUpgraded {
            needed: 2,
            behind,
            more: 0,
        }) => behind.clone(),
        other => panic!("{other:?}"),
    });
    let first = all.next().expect("an answer");
    assert!(all.all(|next| next == first));
    first
}

#[test]
fn moves_wait_until_the_last_member_is_upgraded() {
    for seed in 0..10 {
        let shape = Shape {
            speaks: 1,
            ..shape(3, 3)
        };
        let mut world = World::new(seed, shape, None).expect("starts");
        world.heal().expect("all is well");
        let everybody = behind(&ask_for_moves(&mut world));
        assert_eq!(everybody.len(), 6, "seed {seed}: {everybody:?}");
        assert!(everybody.iter().all(|one| one.speaks == Some(1)));
        // The coordinators first, the leader last, or the nodes first; one by one.
        let leader = world.leader().expect("one leads");
        let mut coordinators: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
        coordinators.push(leader);
        let nodes_first = seed % 2 == 1;
        for step in 0..6 {
            if (step < 3) == nodes_first {
                let node = step % 3;
                world.stop_node(node);
                world.start_node(node);
            } else {
                let id = coordinators[step % 3];
                world.stop_coordinator(id, false);
                world.start_coordinator(id).expect("starts");
            }
            world
                .heal()
                .unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
            if step < 5 {
                let left = behind(&ask_for_moves(&mut world));
                assert_eq!(left.len(), 5 - step, "seed {seed}, step {step}: {left:?}");
            }
        }
        let reports = ask_for_moves(&mut world);
        assert!(
            matches!(&reports[..], [Report::Planned(rows), Report::Planned(_)] if rows[0].migration == Some(1)),
            "seed {seed}: {reports:?}"
        );
        world
            .heal()
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(world.checks.arrivals > 0, "seed {seed}: nothing has moved");
    }
}

#[test]
fn a_removed_member_keeps_nobody_from_moving() {
    let shape = Shape {
        speaks: 1,
        ..shape(3, 2)
    };
    let mut world = World::new(5, shape, None).expect("starts");
    world.heal().expect("all is well");
    for id in 1..=3 {
        world.stop_coordinator(id, false);
        world.start_coordinator(id).expect("starts");
        world.heal().expect("all is well");
    }
    for node in 0..2 {
        world.stop_node(node);
        world.start_node(node);
    }
    world.heal().expect("all is well");
    let last = world.nodes[2].name.clone();
    let expected = Behind {
        who: Speaker::Node(last.clone()),
        speaks: Some(1),
    };
    let left = behind(&ask_for_moves(&mut world));
    assert_eq!(left, std::slice::from_ref(&expected));
    world.stop_node(2);
    world.run_until(world.now + 4_000).expect("all is well");
    let left = behind(&ask_for_moves(&mut world));
    assert_eq!(
        left,
        [expected],
        "one that has failed may come back as it was"
    );
    world.checks.given_up.insert(world.nodes[2].disk.id);
    let removed = ask(
        &mut world,
        Query::RemoveNode {
            node: last,
            lose_data: true,
        },
    );
    assert!(matches!(removed, Report::NodeRemoved { .. }), "{removed:?}");
    world.run_until(world.now + 1_000).expect("all is well");
    let reports = ask_for_moves(&mut world);
    assert!(matches!(reports[0], Report::Planned(_)), "{reports:?}");
}

#[test]
fn a_node_is_registered_though_the_leader_dies_before_that_is_decided() {
    let mut taken_up = 0;
    for seed in 0..40 {
        let mut world = World::new(seed, shape(3, 2), None).expect("starts");
        world.nodes[2].paused_until = u64::MAX;
        world.run_until(3_000).expect("all is well");
        let leader = world.leader().expect("one leads");
        // The followers hear nothing more: what the leader takes on from now on is never decided by it.
        let trouble = world.number();
        for other in (1..=3).filter(|id| *id != leader) {
            let (from, to) = (End::Coordinator(leader), End::Coordinator(other));
            world.network.cut(trouble, from, to);
        }
        let before = world.coordinators[&leader].last_entry();
        world.nodes[2].paused_until = 0;
        world.after(0, What::ResumeNode(2));
        let id = world.nodes[2].disk.id;
        let end = world.now + 250;
        while world.now < end && world.coordinators[&leader].last_entry() == before {
            world.run_until(world.now + 1).expect("all is well");
        }
        let is_decided = |world: &World| {
            let latest = world.checks.latest().expect("a table");
            latest.members.contains_key(&id)
        };
        let is_proposed = world.coordinators[&leader].last_entry() > before;
        assert!(!is_decided(&world), "seed {seed}: nobody could decide it");
        taken_up += u64::from(is_proposed);
        world.stop_coordinator(leader, seed % 2 == 0);
        world.network.mend(trouble);
        let later = if seed % 3 == 0 { 50 } else { 4_000 };
        world.after(later, What::StartCoordinator(leader));
        let registered = world.now + 5_000;
        while !is_decided(&world) {
            world
                .run_until(world.now + 10)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert!(
                world.now < registered,
                "seed {seed}: the registration is lost for good"
            );
        }
        world.run_until(world.now + 5_000).expect("all is well");
        world
            .heal()
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let latest = world.checks.latest().expect("a table");
        assert_eq!(latest.members.len(), 3, "seed {seed}: it is there once");
        assert_eq!(latest.members[&id].incarnation, 1, "seed {seed}");
        world
            .checks
            .promises()
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(
        taken_up >= 10,
        "{taken_up} leaders died with a registration under way"
    );
}

#[test]
fn a_leader_that_balances_by_itself_gives_a_stronger_node_its_share() {
    let shape = Shape {
        auto_rebalance: Some(Balance::Count),
        ..shape(4, 3)
    };
    let mut world = World::new(6, shape, None).expect("starts");
    for node in &mut world.nodes {
        node.capacity = if node.name == "delphi" { 300 } else { 200 };
    }
    world.heal().expect("all is well");
    let others: Vec<_> = owned(&mut world)
        .into_iter()
        .filter(|(name, _)| name != "delphi")
        .collect();
    let share = |world: &mut World| {
        let rows = owned(world);
        rows.into_iter()
            .find(|(name, _)| name == "delphi")
            .expect("a node")
            .1
    };
    let first = share(&mut world);
    assert!(others.iter().all(|(_, count)| *count > 0) || first > 0);
    world.run_until(world.now + 12_000).expect("all is well");
    world.heal().expect("the moves are carried out");
    // Nine partitions, 300 of 900 per cent.
    assert_eq!(share(&mut world), 3);
    let rows = owned(&mut world);
    assert!(
        rows.iter()
            .all(|(name, count)| name == "delphi" || *count == 2),
        "{rows:?}"
    );
}
