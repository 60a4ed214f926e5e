//! What a partition leaves behind where it was: nothing, however often it comes and goes.

use std::time::Duration;

use ephesus_tests::scale::rounds;
use ephesus_tests::{Node, Reply, Rng, TestCluster};

use super::bed::NAMES;
use super::small_logs::{self, stored};
use super::{all_committed, move_to, row};

/// There and back again so often before anything is measured: stores fill their caches.
const TRIPS_BEFORE: u64 = 4;

/// And so often afterwards, without `EPHESUS_CRASH_ROUNDS`.
const TRIPS: u64 = 12;

/// What moves: 8 MB.
const PARTITION: u16 = 0;
const KEYS: u64 = 2_000;
const VALUE_BYTES: usize = 4_000;

/// Keys that are written anew before each move.
const REWRITTEN: u64 = 200;

/// How much more each node may have at the end, of what has come and gone many times.
const RESIDENT_GROWTH_MAX: u64 = 16 << 20;
const STORED_GROWTH_MAX: u64 = 32 << 20;

/// How long it may take until memory is given back.
const WITHIN: Duration = Duration::from_secs(20);

fn resident(node: &Node) -> u64 {
    node.process().resident_bytes()
}

/// Writes a key, all of which are in one partition.
fn write(whole: &TestCluster, tag: &str, rng: &mut Rng, numbers: impl Iterator<Item = u64>) {
    let mut client = whole.client();
    for n in numbers {
        let key = format!("{{{tag}}}:{n}");
        let words = [b"SET".to_vec(), key.into_bytes(), rng.bytes(VALUE_BYTES)];
        assert_eq!(client.call(&words), Reply::ok());
    }
}

/// There and back again, changed a little on the way.
fn travel(whole: &TestCluster, tag: &str, rng: &mut Rng, trips: u64) {
    for _ in 0..2 * trips {
        let at = row(whole, PARTITION);
        let to = NAMES[usize::from(at.node == NAMES[0])];
        let numbers: Vec<u64> = (0..REWRITTEN).map(|_| rng.below(KEYS)).collect();
        write(whole, tag, rng, numbers.into_iter());
        move_to(whole, PARTITION, to, 0);
    }
}

#[test]
fn a_partition_that_comes_and_goes_leaves_neither_memory_nor_files_behind() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("traces"));
    // What a node uses, not what lies beside it in huge pages, which is up to 50 MB and another amount each time.
    let whole = small_logs::started_under(&["env", "MIMALLOC_ALLOW_THP=0"], &["--partitions", "4"]);
    let tag = super::shapes::tags(&row(&whole, PARTITION)).next();
    let tag = tag.expect("a tag");
    write(&whole, &tag, &mut rng, 0..KEYS);
    travel(&whole, &tag, &mut rng, TRIPS_BEFORE);
    let weigh = |whole: &TestCluster| -> Vec<(u64, u64)> {
        let nodes = whole.nodes.iter();
        nodes.map(|node| (resident(node), stored(node))).collect()
    };
    let before = weigh(&whole);
    let trips = rounds(TRIPS);
    travel(&whole, &tag, &mut rng, trips);
    eprintln!("{before:?}, and {:?} after {trips} more", weigh(&whole));
    whole.within(WITHIN, "it is given back", |whole| {
        let now = weigh(whole);
        let mut pairs = now.iter().zip(&before);
        pairs.all(|(now, before)| {
            now.0 <= before.0 + RESIDENT_GROWTH_MAX && now.1 <= before.1 + STORED_GROWTH_MAX
        })
    });
    all_committed(&whole);
    assert_eq!(whole.count_keys(), KEYS);
}
