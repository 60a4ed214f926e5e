//! The loss of coordinators: of one nobody notices, of all everybody does.

use std::time::{Duration, Instant};

use ephesus_tests::coordinator::ephesus;
use ephesus_tests::ledger::Unit;
use ephesus_tests::stock::StockClient;
use ephesus_tests::writer_pool::{Tolerance, WriterPool, verify};
use ephesus_tests::{Reply, Rng, TestCluster};

use super::{LEASE_LOST_WITHIN, NAMES, NINE, SERVES_WITHIN, check, fill, is_down, own_keys};

/// Load goes on for so long after something was done: several leases.
const AFTERWARDS: Duration = Duration::from_millis(2500);

/// How long a node may take to end by itself.
const EXIT_LIMIT: Duration = Duration::from_secs(30);

/// Waits until another than `lost` leads.
fn wait_for_another(whole: &TestCluster, lost: u64) {
    whole.core.until("another leads", |core| {
        core.try_status()
            .is_some_and(|status| status["leader"] != lost)
    });
}

#[test]
fn no_client_notices_the_loss_of_one_coordinator() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run(
        "whole cluster, one coordinator lost",
    ));
    let mut whole = TestCluster::started(&NINE, &NAMES, 1);
    let units = |writer: u64| (0..50).map(|n| Unit::new(writer * 50 + n)).collect();
    let units = (0..3).map(units).collect();
    let writers = WriterPool::start(&whole.entries(), units, Tolerance::Strict, &mut rng);
    let stock = StockClient::start("steady.py", &whole);
    let go_on = |writers: &WriterPool| {
        std::thread::sleep(AFTERWARDS);
        writers.goes_on(100, SERVES_WITHIN);
    };

    let leader = whole.core.leader();
    whole.core.coordinator(leader).kill();
    wait_for_another(&whole, leader);
    go_on(&writers);
    whole.core.coordinator(leader).start();
    whole.until_settled();

    let follower = whole.core.leader() % 3 + 1;
    whole.core.coordinator(follower).kill();
    go_on(&writers);
    whole.core.coordinator(follower).start();
    whole.until_settled();

    let follower = whole.core.leader() % 3 + 1;
    whole.core.coordinator(follower).signal(libc::SIGSTOP);
    go_on(&writers);
    whole.core.coordinator(follower).signal(libc::SIGCONT);
    whole.until_settled();
    go_on(&writers);

    stock.finish();
    let mut units = writers.finish();
    verify(&mut whole.client(), units.iter_mut().flatten());
    for row in whole.table() {
        assert_eq!((row.status.as_str(), row.epoch), ("online", 1), "{row:?}");
    }
}

#[test]
fn a_stopped_leader_is_replaced_and_follows_when_it_goes_on() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run(
        "whole cluster, the leader stopped",
    ));
    let mut whole = TestCluster::started(&NINE, &NAMES, 1);
    let units = (0..2).map(|writer| (0..50).map(|n| Unit::new(writer * 50 + n)).collect());
    // A stopped process is noticed by its silence: a lease may run out meanwhile.
    let writers = WriterPool::start(
        &whole.entries(),
        units.collect(),
        Tolerance::Patient,
        &mut rng,
    );
    let keys = own_keys(&whole);
    let leader = whole.core.leader();
    whole.core.coordinator(leader).signal(libc::SIGSTOP);
    wait_for_another(&whole, leader);
    for (index, key) in &keys {
        let mut client = whole.nodes[*index].client();
        whole.within(SERVES_WITHIN, "a lease of the new leader", |_| {
            client.call(&["GET", key]).error().is_none()
        });
    }
    std::thread::sleep(AFTERWARDS);
    let errors = writers.errors();
    std::thread::sleep(AFTERWARDS / 2);
    whole.core.coordinator(leader).signal(libc::SIGCONT);
    whole.core.until("it follows", |core| {
        core.is_complete() && core.leader() != leader
    });
    std::thread::sleep(AFTERWARDS / 2);
    writers.goes_on(100, SERVES_WITHIN);
    assert_eq!(writers.errors(), errors, "nobody notices the old leader");
    let mut units = writers.finish();
    verify(&mut whole.client(), units.iter_mut().flatten());
    let table = whole.table();
    assert!(
        table
            .iter()
            .all(|row| (&*row.status, row.epoch) == ("online", 1)),
        "{table:?}"
    );
}

#[test]
fn without_coordinators_no_key_is_served_until_they_go_on() {
    let whole = TestCluster::started(&NINE, &NAMES, 1);
    let mut client = whole.client();
    fill(&mut client, 0..100);
    let keys = own_keys(&whole);
    let began = Instant::now();
    whole.signal_coordinators(libc::SIGSTOP);
    for (index, key) in &keys {
        let mut client = whole.nodes[*index].client();
        let left = LEASE_LOST_WITHIN.saturating_sub(began.elapsed());
        whole.within(left, "no lease", |_| is_down(&client.call(&["GET", key])));
        assert!(is_down(&client.call(&["SET", key, "lost"])));
        assert_eq!(client.say("PING"), Reply::Simple("PONG".into()));
        let info = ephesus_tests::whole::info(&mut client, "cluster_state");
        assert_eq!(info, "fail");
    }
    // Longer than the timeout: nobody was there to count the nodes as failed.
    std::thread::sleep(Duration::from_millis(2500).saturating_sub(began.elapsed()));
    whole.signal_coordinators(libc::SIGCONT);
    for (index, key) in &keys {
        let mut client = whole.nodes[*index].client();
        whole.within(SERVES_WITHIN, "a lease", |_| {
            client.call(&["GET", key]).error().is_none()
        });
        let reply = client.call(&["GET", key]);
        assert!(reply.is_nil(), "what was refused was not done: {reply:?}");
    }
    check(&mut client, 0..100);
    whole.until_healthy();
    assert!(whole.table().iter().all(|row| row.epoch == 1));
}

#[test]
fn nodes_start_again_after_a_coordinator_was_forced_and_keep_everything() {
    let mut whole = TestCluster::started(&NINE, &NAMES, 1);
    let mut client = whole.client();
    fill(&mut client, 0..200);
    let left = whole.core.leader() % 3 + 1;
    for id in 1..=3 {
        whole.core.coordinator(id).kill();
    }
    let directory = whole.core.home().join(format!("coordinator-{left}"));
    let directory = directory.to_str().expect("plain");
    let force = ["coordinator", "force", "--data-dir", directory, "--yes"];
    ephesus(&force).assert(0, &["never start these again"]);
    whole.core.coordinators.retain(|one| one.id == left);
    whole.core.coordinator(left).start();
    for node in &mut whole.nodes {
        node.wait_says(&["start the node again"], EXIT_LIMIT);
        assert!(!node.wait_exit(EXIT_LIMIT).success());
    }
    for node in &mut whole.nodes {
        node.spawn();
    }
    whole.until_healthy();
    for node in &mut whole.nodes {
        node.wait_ready().expect("a node that is live");
    }
    check(&mut whole.client(), 0..200);
}
