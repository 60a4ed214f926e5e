//! Load that is uneven is evened out while clients go on.

use std::collections::BTreeMap;
use std::time::Duration;

use ephesus_tests::uneven::{Uneven, cpu_of_shards, figures, hottest, zipfian};
use ephesus_tests::{Rng, TestCluster};

const NAMES: [&str; 3] = ["athens", "byzantium", "cyrene"];

const PARTITIONS: u16 = 256;

/// The hottest of 256 partitions has an eighth of it: less than half of what a shard of three has.
const THETA: f64 = 0.9;

/// Bytes of a value, and clients.
const LOAD: (usize, usize) = (128 << 10, 2);

/// How long shards are looked at.
const LOOKED_AT: Duration = Duration::from_secs(20);

#[test]
fn a_rebalance_by_load_brings_the_hottest_shard_within_a_fifth_of_the_mean() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("by load"));
    let partitions = PARTITIONS.to_string();
    let flags = ["--partitions", &partitions];
    // Neighbours are together, and the first ones are the hottest.
    let whole = TestCluster::started(&flags, &NAMES, 1);
    let load = Uneven::start(&whole, &zipfian(PARTITIONS, THETA), LOAD, &mut rng);
    whole.within(Duration::from_secs(30), "all is told", |whole| {
        let rows = figures(whole)["partitions"].clone();
        rows.as_array()
            .is_some_and(|rows| rows.iter().all(|row| !row["cpu_us_per_s"].is_null()))
    });
    let before = cpu_of_shards(&whole, LOOKED_AT);
    assert!(hottest(&before) > 1.5, "{before:?}");
    let dry = whole.core.ask(&["rebalance", "--by", "load", "--dry-run"]);
    dry.assert(0, &[]);
    assert!(dry.out.contains("would be planned"), "{}", dry.out);
    let mut after = evened(&whole);
    // Of what is asked for rarely more is known a little later.
    if hottest(&after) > 1.2 {
        after = evened(&whole);
    }
    eprintln!("CPU by shard, us per second: before {before:?}, after {after:?}");
    assert!(hottest(&after) <= 1.2, "before {before:?}, after {after:?}");
    assert!(load.finish() > 1_000);
    super::all_committed(&whole);
}

/// Balances by load, and looks at what shards do then.
fn evened(whole: &TestCluster) -> BTreeMap<String, f64> {
    let told = whole.core.ask(&["rebalance", "--by", "load", "--wait"]);
    told.assert(0, &[]);
    eprintln!("{}", told.out);
    // The rate of the last second has to be that of now.
    std::thread::sleep(Duration::from_secs(3));
    cpu_of_shards(whole, LOOKED_AT)
}
