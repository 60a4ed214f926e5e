//! A node that is cut off from the coordinators, in a network of the test's own.

use ephesus_tests::coordinator::Core;
use ephesus_tests::network::{self, Direction, Netns, with_own_network};
use ephesus_tests::whole::info;
use ephesus_tests::{Reply, TestCluster};

use super::{FAILED_WITHIN, LEASE_LOST_WITHIN, NINE, SERVES_WITHIN, is_down, key_of, ownership};

#[test]
fn a_node_that_is_cut_off_one_way_stops_serving_and_no_other_does() {
    with_own_network(|netns| {
        let whole = cluster_of(netns);
        for direction in [Direction::ToCoordinators, Direction::FromCoordinators] {
            cut_and_heal(&whole, netns, direction);
        }
    });
}

/// Coordinators, two nodes on their side, and one in the namespace.
fn cluster_of(netns: &Netns) -> TestCluster {
    let flags = [&NINE[..], &["--min-nodes", "3"]].concat();
    let mut core = Core::stopped_at(network::COORDINATORS, 3, &flags);
    core.found();
    let nodes = Vec::new();
    let mut whole = TestCluster { nodes, core };
    for name in ["athens", "byzantium"] {
        whole.add_at(name, 1, (network::HOST, Vec::new())).restart();
    }
    let place = (network::NETNS, netns.wrapper());
    whole.add_at("cyrene", 1, place).restart();
    whole.until_healthy();
    whole
}

fn cut_and_heal(whole: &TestCluster, netns: &Netns, direction: Direction) {
    let table = whole.table();
    let mut clients = whole.nodes.iter().map(|node| {
        let name = node.options.name.as_deref().expect("a name");
        (node.client(), key_of(&table, name, 1))
    });
    let others: [_; 2] = [clients.next(), clients.next()].map(|one| one.expect("a node"));
    let (mut cut_off, key) = clients.next().expect("the namespace's");
    let mut others = others;
    whole.within(SERVES_WITHIN, "it serves", |_| {
        cut_off.call(&["SET", &key, "kept"]) == Reply::ok()
    });

    netns.cut(direction);
    whole.within(LEASE_LOST_WITHIN, "it stops", |_| {
        is_down(&cut_off.call(&["GET", &key]))
    });
    assert!(
        is_down(&cut_off.call(&["SET", &key, "lost"])),
        "{direction:?}"
    );
    assert_eq!(cut_off.say("PING"), Reply::Simple("PONG".into()));
    let serve = |others: &mut [(ephesus_tests::Client, String); 2]| {
        for (client, key) in others {
            assert_eq!(
                client.call(&["SET", key, "x"]),
                Reply::ok(),
                "{direction:?}"
            );
        }
    };
    serve(&mut others);
    whole.within(FAILED_WITHIN, "it counts as failed", |_| {
        serve(&mut others);
        let failed = info(&mut others[0].0, "cluster_slots_fail");
        failed.parse::<u64>().expect("a number") > 0
    });
    assert_eq!(whole.statuses()["cyrene"], "failed");
    assert!(is_down(&cut_off.call(&["GET", &key])), "{direction:?}");

    netns.heal(direction);
    whole.within(SERVES_WITHIN, "it serves again", |_| {
        cut_off.call(&["GET", &key]) == Reply::bulk("kept")
    });
    serve(&mut others);
    whole.until_healthy();
    assert_eq!(ownership(&whole.table()), ownership(&table));
}
