//! The loss of a node: exactly its partitions are unavailable, and they come back with all data.

use std::time::{Duration, Instant};

use ephesus_tests::ledger::Unit;
use ephesus_tests::resp::encode;
use ephesus_tests::roaming::{Roaming, moved};
use ephesus_tests::whole::{count, info, listed};
use ephesus_tests::writer_pool::{Tolerance, WriterPool, verify};
use ephesus_tests::{Client, Reply, Rng, TestCluster};

use super::{
    FAILED_WITHIN, NAMES, NINE, SERVES_WITHIN, check, fill, is_down, key, key_of, ownership,
    row_of, slots_of,
};

/// Keys written before something happens.
const KEYS: u64 = 300;

/// Waits until the table of a node's client lists so many slots as failed.
fn failed_slots(client: &mut Client) -> u64 {
    info(client, "cluster_slots_fail")
        .parse()
        .expect("a number")
}

/// Slots in a range of CLUSTER SLOTS.
fn width(range: &Reply) -> u64 {
    let range = range.items();
    (range[1].integer() - range[0].integer() + 1) as u64
}

#[test]
fn a_killed_node_makes_its_own_partitions_unavailable_and_no_others() {
    let mut whole = TestCluster::started(&NINE, &NAMES, 2);
    let mut client = whole.client();
    fill(&mut client, 0..KEYS);
    let before = whole.table();
    let lost = slots_of(&before, "byzantium");

    let began = Instant::now();
    whole.node("byzantium").kill();
    let survivors: Vec<_> = ["athens", "cyrene"]
        .map(|name| whole.node(name).entry())
        .into();
    for entry in &survivors {
        let mut other = Client::connect_to(*entry).expect("connect");
        let left = FAILED_WITHIN.saturating_sub(began.elapsed());
        whole.within(left, "its slots count as failed", |_| {
            failed_slots(&mut other) == lost.len() as u64
        });
        assert_eq!(info(&mut other, "cluster_state"), "ok");
        assert_eq!(info(&mut other, "cluster_slots_assigned"), "16384");
        let (view, _) = listed(&mut other);
        let failed = view.iter().filter(|line| line.flags == "master,fail");
        let failed: Vec<_> = failed
            .inspect(|line| assert_eq!(line.link, "disconnected"))
            .collect();
        assert_eq!(failed.len(), 2, "both of its shards: {view:?}");
        let slots: u64 = failed.iter().map(|line| count(&line.slots)).sum();
        assert_eq!(slots, lost.len() as u64);
        let others = view.iter().filter(|line| line.flags == "master");
        assert_eq!(others.count(), 4, "{view:?}");
        let listed: u64 = other.say("CLUSTER SLOTS").items().iter().map(width).sum();
        assert_eq!(listed, 16384, "the lost ranges stay listed");
    }
    let took = began.elapsed();
    assert!(
        took > Duration::from_millis(1500),
        "given up after {took:?}"
    );

    let table = whole.table();
    assert_eq!(
        ownership(&table),
        ownership(&before),
        "nobody takes them over"
    );
    for row in &table {
        let expected = if row.node == "byzantium" {
            "failed"
        } else {
            "online"
        };
        assert_eq!(row.status, expected, "{row:?}");
    }
    let told = whole.core.ask(&["status"]);
    let owned = table.iter().filter(|row| row.node == "byzantium").count();
    told.assert(
        1,
        &[&format!(
            "node byzantium has failed and owns {owned} partitions"
        )],
    );
    let (gone, there): (Vec<u64>, Vec<u64>) =
        (0..KEYS).partition(|&n| row_of(&table, &key(n)).node == "byzantium");
    assert!(gone.len() > 50 && there.len() > 100);
    let mut client = whole.client();
    check(&mut client, there);
    for n in gone {
        let begin = Client::connect_to(survivors[0])
            .expect("connect")
            .call(&["GET", &key(n)]);
        assert!(moved(&begin).is_some(), "it leads to its owner: {begin:?}");
        client
            .try_call(&["GET", &key(n)])
            .expect_err("nobody has it");
    }

    whole.node("byzantium").restart();
    whole.until_healthy();
    check(&mut whole.client(), 0..KEYS);
    let after = whole.table();
    assert_eq!(ownership(&after), ownership(&before));
    for entry in &survivors {
        let mut other = Client::connect_to(*entry).expect("connect");
        whole.within(SERVES_WITHIN, "nothing is failed", |_| {
            failed_slots(&mut other) == 0
        });
    }
}

#[test]
fn a_restart_within_the_timeout_changes_nothing() {
    let mut whole = TestCluster::started(&NINE, &NAMES, 2);
    fill(&mut whole.client(), 0..KEYS);
    let before = whole.table();
    let cyrene = whole.node("cyrene").entry();
    for clean in [false, true] {
        let athens = whole.node("athens");
        if clean {
            athens.stop();
        } else {
            athens.kill();
        }
        athens.spawn();
        // It recovers within a fraction of the timeout; until then it is not said to have failed.
        let mut other = Client::connect_to(cyrene).expect("connect");
        whole.core.until("it lives", |_| {
            assert_eq!(failed_slots(&mut other), 0, "counted as failed");
            let statuses = whole.statuses();
            assert_ne!(statuses["athens"], "failed");
            statuses["athens"] == "live"
        });
        whole.node("athens").wait_ready().expect("it serves");
        whole.until_healthy();
        check(&mut whole.client(), 0..KEYS);
        assert_eq!(whole.table(), before);
    }
}

/// A connection that has written requests which nobody has read yet.
fn ask_ahead(client: &mut Client, key: &str, value: &str) {
    let mut bytes = Vec::new();
    encode(&["GET", key], &mut bytes);
    encode(&["SET", key, value], &mut bytes);
    encode(&["GET", key], &mut bytes);
    client.send_raw(&bytes).expect("send");
}

#[test]
fn a_stopped_node_serves_again_only_once_it_has_a_lease() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("whole cluster, a node stopped"));
    let mut whole = TestCluster::started(&NINE, &NAMES, 1);
    let table = whole.table();
    let units = (0..3).map(|writer| (0..40).map(|n| Unit::new(writer * 40 + n)).collect());
    let writers = WriterPool::start(
        &whole.entries(),
        units.collect(),
        Tolerance::Patient,
        &mut rng,
    );
    let key = key_of(&table, "cyrene", 7);
    let mut client = whole.node("cyrene").client();
    // Below the timeout but above the lease; and above the timeout.
    let (mut pauses, mut round) = (vec![3000, 1500], 0);
    while let Some(&pause_ms) = pauses.last() {
        round += 1;
        assert!(round <= 6, "it was always stopped in the middle of a turn");
        let value = format!("before {round}");
        assert_eq!(client.call(&["SET", &key, &value]), Reply::ok());
        whole.node("cyrene").signal(libc::SIGSTOP);
        ask_ahead(&mut client, &key, "while stopped");
        std::thread::sleep(Duration::from_millis(pause_ms));
        let is_failed = whole.statuses()["cyrene"] == "failed";
        assert_eq!(is_failed, pause_ms > 2000);
        whole.node("cyrene").signal(libc::SIGCONT);
        let answers: Vec<Reply> = (0..3).map_while(|_| client.receive().ok()).collect();
        let fresh = [
            Reply::bulk(&value),
            Reply::ok(),
            Reply::bulk("while stopped"),
        ];
        let mut is_written = false;
        for (n, (answer, fresh)) in answers.iter().zip(fresh).enumerate() {
            // A lease may come between two of them, and never goes.
            let expected = if n == 2 && !is_written {
                Reply::bulk(&value)
            } else {
                fresh
            };
            assert!(is_down(answer) || *answer == expected, "{n}: {answers:?}");
            is_written |= n == 1 && !is_down(answer);
        }
        if answers.len() == 3 {
            pauses.pop();
        } else {
            // It was stopped in the middle of a turn, of which clients are told nothing: once more.
            client = whole.node("cyrene").client();
        }
        whole.within(SERVES_WITHIN, "it serves again", |_| {
            client.call(&["GET", &key]).error().is_none()
        });
        whole.until_healthy();
    }
    let mut units = writers.finish();
    verify(&mut whole.client(), units.iter_mut().flatten());
    assert_eq!(ownership(&whole.table()), ownership(&table));
}

#[test]
fn a_node_that_was_given_up_while_it_was_stopped_answers_nothing_stale() {
    let mut whole = TestCluster::started(&NINE, &NAMES, 1);
    let table = whole.table();
    let key = key_of(&table, "cyrene", 3);
    let mut old = whole.node("cyrene").client();
    let mut idle = whole.node("cyrene").client();
    assert_eq!(old.call(&["SET", &key, "old"]), Reply::ok());
    assert_eq!(idle.say("PING"), Reply::Simple("PONG".into()));
    whole.node("cyrene").signal(libc::SIGSTOP);
    whole.until_node_is("cyrene", "failed");
    let told = whole.core.ask(&["node", "remove", "cyrene", "--yes"]);
    told.assert(0, &["lost for good"]);
    whole.core.until("others have its partitions", |core| {
        core.ask(&["status"]).code == Some(0)
    });
    let mut client = Roaming::new(whole.entries()[..2].to_vec());
    assert!(
        client.insist(&["GET", &key], SERVES_WITHIN).is_nil(),
        "it is empty there"
    );
    assert_eq!(client.call(&["SET", &key, "new"]), Reply::ok());

    ask_ahead(&mut old, &key, "late");
    whole.node("cyrene").signal(libc::SIGCONT);
    for _ in 0..3 {
        match old.receive() {
            Ok(reply) => {
                let is_refused = is_down(&reply) || moved(&reply).is_some();
                assert!(is_refused, "the old owner answers {reply:?}");
            }
            Err(_) => break,
        }
    }
    let deadline = Instant::now() + SERVES_WITHIN;
    while let Ok(reply) = idle.try_call(&["GET", &key]) {
        let is_refused = is_down(&reply) || moved(&reply).is_some();
        assert!(is_refused, "the old owner answers {reply:?}");
        assert!(Instant::now() < deadline, "it ends");
        std::thread::sleep(Duration::from_millis(5));
    }
    let status = whole.node("cyrene").wait_exit(SERVES_WITHIN);
    assert_eq!(status.code(), Some(1), "it has no place any more");
    assert_eq!(client.call(&["GET", &key]), Reply::bulk("new"));
    // A start on the same data is refused as well.
    let refused = whole.node("cyrene").start_refused();
    assert_eq!(refused.code(), 1, "{}", refused.output);
    refused.assert_says(&["was removed from the cluster", "empty data directory"]);
}
