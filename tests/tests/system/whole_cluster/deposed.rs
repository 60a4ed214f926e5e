//! A leader that is cut off from both followers, each coordinator in a network of its own: another
//! leads, and the deposed one decides nothing.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ephesus_tests::coordinator::{Core, ephesus};
use ephesus_tests::ledger::Unit;
use ephesus_tests::namespaces::{HOST, Namespaces, with_namespaces};
use ephesus_tests::writer_pool::{Tolerance, WriterPool, verify};
use ephesus_tests::{Client, Reply, Rng, TestCluster, paths};

use super::{LEASE_LOST_WITHIN, NAMES, NINE, SERVES_WITHIN, is_down, key_of, ownership, slots_of};

/// Namespace of the node that stays with the deposed leader; the coordinators have those before it.
const MINORITY: u8 = 4;

/// Clients are served without an error for so long while the cut lasts: more than a lease.
const SERVED_FOR: Duration = Duration::from_millis(1500);

/// Which packets between the leader and the followers vanish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    FromLeader,
    ToLeader,
    Both,
}

#[test]
fn a_leader_that_is_cut_off_from_its_followers_is_replaced_and_grants_no_lease() {
    with_namespaces(MINORITY, |networks| {
        let mut whole = settled(networks);
        let table = whole.table();
        let mut rng = Rng::new(ephesus_tests::seed_of_run(
            "whole cluster, a leader cut off",
        ));
        let lost = slots_of(&table, "cyrene");
        let all = (0..).map(Unit::new);
        let (stay, _): (Vec<Unit>, Vec<Unit>) =
            all.take(200).partition(|unit| !lost.contains(&unit.slot()));
        let units = stay.chunks(50).map(<[Unit]>::to_vec).collect();
        let writers = WriterPool::start(&whole.entries()[..2], units, Tolerance::Patient, &mut rng);
        for (round, cut) in [Cut::FromLeader, Cut::ToLeader, Cut::Both]
            .into_iter()
            .enumerate()
        {
            depose(&mut whole, networks, cut, round, &writers);
        }
        let mut units = writers.finish();
        verify(&mut whole.client(), units.iter_mut().flatten());
        let owned = ownership(&table);
        assert_eq!(ownership(&whole.table()), owned);
    });
}

/// What an operator proves beyond loopback.
fn secret_flag() -> (&'static str, String) {
    let file = paths::cluster_secret().display().to_string();
    ("--cluster-secret-file", file)
}

/// A coordinator in each of three namespaces, two nodes on the host and one in a namespace.
fn settled(networks: &Namespaces) -> TestCluster {
    let flags = [&NINE[..], &["--min-nodes", "3"]].concat();
    let places = [1, 2, 3].map(|n| networks.place(n));
    let mut core = Core::stopped_on(&places, &flags);
    core.found();
    let nodes = Vec::new();
    let mut whole = TestCluster { nodes, core };
    for name in NAMES {
        let place = match name {
            "cyrene" => networks.place(MINORITY),
            _ => (HOST, Vec::new()),
        };
        whole.add_at(name, 1, place).restart();
    }
    whole.until_healthy();
    whole
}

fn depose(
    whole: &mut TestCluster,
    networks: &Namespaces,
    cut: Cut,
    round: usize,
    writers: &WriterPool,
) {
    whole.until_settled();
    let leader = whole.core.leader();
    let followers: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    let host = |id: u64| networks.place(id as u8).0;
    let table = whole.table();
    let mut clients: Vec<(Client, String)> = whole
        .nodes
        .iter()
        .zip(NAMES)
        .map(|(node, name)| (node.client(), key_of(&table, name, 1)))
        .collect();
    let (mut minority, kept) = clients.pop().expect("cyrene's");
    let value = format!("{cut:?}");
    assert_eq!(minority.call(&["SET", &kept, &value]), Reply::ok());

    let began = Instant::now();
    sever(networks, host(leader), &followers, cut);
    whole.within(LEASE_LOST_WITHIN, "the deposed one grants nothing", |_| {
        is_down(&minority.call(&["GET", &kept]))
    });
    whole.core.until("another leads", |core| {
        core.try_status()
            .is_some_and(|status| status["leader"] != leader)
    });
    for (client, key) in &mut clients {
        whole.within(SERVES_WITHIN, "a lease of the new leader", |_| {
            client.call(&["GET", key]).error().is_none()
        });
    }
    eprintln!(
        "{cut:?}: served by the new leader after {:?}",
        began.elapsed()
    );
    let errors = writers.errors();
    let until = Instant::now() + SERVED_FOR;
    while Instant::now() < until {
        for (client, key) in &mut clients {
            assert_eq!(client.call(&["SET", key, "x"]), Reply::ok(), "{cut:?}");
        }
        let reply = minority.call(&["SET", &kept, "lost"]);
        assert!(is_down(&reply), "{cut:?}: {reply:?}");
    }
    writers.goes_on(50, SERVES_WITHIN);
    assert_eq!(
        writers.errors(),
        errors,
        "{cut:?}: once served, always served"
    );

    // The table goes on, and the deposed one has nothing to say about it.
    whole.until_node_is("cyrene", "failed");
    let guest = format!("guest-{round}");
    whole.add_at(&guest, 1, (HOST, Vec::new())).restart();
    whole.until_node_is(&guest, "live");
    let deposed = whole.core.address(leader);
    let secret = secret_flag();
    let secret = [secret.0, &secret.1];
    let status = ["status", "--coordinator", &deposed, "--timeout", "1500"];
    let told = ephesus(&[&status[..], &secret].concat());
    told.assert(1, &[&deposed]);
    assert!(told.out.is_empty(), "{cut:?}: {told:?}");

    networks.heal();
    whole.core.until("all follow one leader", |core| {
        let leads = |id: u64| {
            let address = core.address(id);
            let status = ["status", "--json", "--coordinator", &address];
            let told = ephesus(&[&status[..], &secret].concat());
            let status: serde_json::Value = serde_json::from_str(&told.out).ok()?;
            status["leader"].as_u64()
        };
        let one = leads(1);
        one.is_some() && (2..=3).all(|id| leads(id) == one) && core.is_complete()
    });
    whole.within(SERVES_WITHIN, "it serves again", |_| {
        minority.call(&["GET", &kept]) == Reply::bulk(&value)
    });
    whole.until_healthy();
    // Its directory stays its own: it cannot be used again.
    whole.node(&guest).kill();
    whole.until_node_is(&guest, "failed");
    let told = whole.core.ask(&["node", "remove", &guest, "--yes"]);
    told.assert(0, &["owns no partitions"]);
}

/// Cuts the leader off its followers, and the minority's node off them both ways.
fn sever(networks: &Namespaces, leader: Ipv4Addr, followers: &[u64], cut: Cut) {
    let (node, _) = networks.place(MINORITY);
    for id in followers {
        let (follower, _) = networks.place(*id as u8);
        networks.cut(node, follower);
        networks.cut(follower, node);
        if cut != Cut::ToLeader {
            networks.cut(leader, follower);
        }
        if cut != Cut::FromLeader {
            networks.cut(follower, leader);
        }
    }
}
