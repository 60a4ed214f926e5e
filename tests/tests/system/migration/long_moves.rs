//! A move that brings more than the target's log has room for, and a client of that target: images make
//! room for the move, and only the move waits for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use ephesus_tests::whole::Row;
use ephesus_tests::{Options, Reply, Rng, TestCluster};

use super::shapes::tags;
use super::{move_to, row};

const FLAGS: [&str; 4] = ["--partitions", "2", "--assignment", "round-robin"];

const NAMES: [&str; 2] = ["athens", "byzantium"];

/// Of each node: eight segments.
const WAL_BUDGET: u64 = 128 << 20;

const VALUE_BYTES: usize = 100_000;

/// Values of the target's own partition, and twice what its log may hold for the move.
const OWN: u64 = 300;
const MOVED: u64 = 2_600;

/// How often the client writes.
const EVERY: Duration = Duration::from_millis(2);
const WRITES_MAX: usize = 30_000;

/// Fills a partition.
fn fill(whole: &TestCluster, row: &Row, values: u64, rng: &mut Rng) {
    let mut client = whole.client();
    for (n, tag) in (0..values).zip(tags(row)) {
        let value = rng.bytes(VALUE_BYTES);
        let words = [
            b"SET".to_vec(),
            format!("{{{tag}}}:{n}").into_bytes(),
            value,
        ];
        assert_eq!(client.call(&words), Reply::ok());
    }
}

#[test]
fn clients_of_a_target_do_not_wait_for_the_images_of_what_moves() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("long moves"));
    let whole = TestCluster::started_with(&FLAGS, &NAMES, |whole, name| Options {
        wal_budget: Some(WAL_BUDGET),
        ..whole.options(name, 1)
    });
    let [moved, own] = NAMES.map(|name| {
        let rows = whole.table();
        let mut rows = rows.into_iter().filter(|row| row.node == name);
        rows.next().expect("one partition each")
    });
    fill(&whole, &own, OWN, &mut rng);
    fill(&whole, &moved, MOVED, &mut rng);
    let target = &whole.nodes[1];
    let before = target.client().info("wal_full");
    let (is_over, has_waited) = (AtomicBool::new(false), AtomicBool::new(false));
    let tag = tags(&own).next().expect("a tag");
    scope(|scope| {
        scope.spawn(|| {
            let mut client = target.client();
            for _ in 0..WRITES_MAX {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let waits = target.client().info("migrations_wait_for_images");
                has_waited.fetch_or(waits == 1, Ordering::Relaxed);
                let key = format!("{{{tag}}}:client");
                assert_eq!(client.call(&["SET", &key, "a value"]), Reply::ok());
                sleep(EVERY);
            }
        });
        move_to(&whole, moved.partition, NAMES[1], 0);
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(
        target.client().info("wal_full"),
        before,
        "the target's log was full"
    );
    assert!(
        has_waited.into_inner(),
        "the move has waited for images to make room"
    );
    let here = row(&whole, moved.partition);
    let mut client = whole.client();
    for (n, tag) in (0..MOVED).zip(tags(&here)) {
        let length = client.call(&["STRLEN", &format!("{{{tag}}}:{n}")]);
        assert_eq!(length, Reply::Integer(VALUE_BYTES as i64));
    }
}
