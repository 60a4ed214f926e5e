//! Nodes that die in the middle of moves and come back with another number of shards: nothing is lost, and
//! the moves end.

use std::time::{Duration, Instant};

use ephesus_tests::scale::rounds;
use ephesus_tests::writer_pool::Tolerance;
use ephesus_tests::{Failpoints, Options, Rng, TestCluster};

use super::bed::{Bed, MANY, NAMES, is_still};
use super::deaths::ORDERS;
use super::owned;

/// Everything moves, and a node may send so many MB per second.
const LIMIT: &str = "4";

/// Numbers of shards to choose from.
const SHARDS_MAX: u64 = 4;

/// How soon an order is given.
const MOMENT_WITHIN: Duration = Duration::from_secs(10);

/// How long everything may take to move, with attempts that are repeated.
const DONE_WITHIN: Duration = Duration::from_secs(40);

/// Has everything go from one node to the other, and goes on asking for it until it is done.
fn complete(whole: &TestCluster, from: &str) {
    let began = Instant::now();
    while !is_still(whole) || owned(whole).contains_key(from) {
        if is_still(whole) {
            whole.core.ask(&["drain", from]);
        }
        assert!(began.elapsed() < DONE_WITHIN, "{from} is not emptied");
        std::thread::sleep(Duration::from_millis(50));
    }
    whole.until_healthy();
}

#[test]
fn other_numbers_of_shards_in_the_middle_of_moves_lose_nothing() {
    let partitions = MANY.partitions.to_string();
    let mut whole = TestCluster::founded(&["--partitions", &partitions]);
    let failpoints = Failpoints::default();
    for name in NAMES {
        let options = Options {
            failpoints: Some(failpoints.clone()),
            ..whole.options(name, 2)
        };
        whole.add_with(options).restart();
        // The first one gets everything.
        whole.until_healthy();
    }
    let what = "other numbers of shards during moves";
    let mut rng = Rng::new(ephesus_tests::seed_of_run(what));
    let mut bed = Bed::over(what, MANY, whole, Tolerance::Patient);
    // Each order once in CI.
    for round in 0..rounds(ORDERS.len() as u64) as usize {
        let (from, to) = (NAMES[round % 2], NAMES[1 - round % 2]);
        let order = ORDERS[round % ORDERS.len()];
        failpoints.arm(order);
        let core = &bed.whole.core;
        core.ask(&["drain", to, "--end"]).assert(0, &[]);
        core.ask(&["drain", from]).assert(0, &[]);
        core.ask(&["rebalance", "--limit", LIMIT]).assert(0, &[]);
        let victim = bed.whole.until_stopped(MOMENT_WITHIN);
        let node = &mut bed.whole.nodes[victim];
        node.kill();
        let others = (1..=SHARDS_MAX as u16).filter(|shards| *shards != node.options.shards);
        node.options.shards = *rng.pick(&others.collect::<Vec<_>>());
        eprintln!(
            "round {round}: {from} is emptied; {} dies at {order} and has {} shards",
            NAMES[victim], node.options.shards
        );
        node.restart();
        complete(&bed.whole, from);
    }
    bed.finish();
}
