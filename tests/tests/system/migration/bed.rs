//! Two nodes of which one has everything, writers at work, and what has to be so when each has its half.

use std::time::{Duration, Instant};

use ephesus_tests::ledger::Unit;
use ephesus_tests::writer_pool::{self, Tolerance, WriterPool};
use ephesus_tests::{Reply, Rng, TestCluster};
use serde_json::Value;

use super::{in_state, owned};

pub const NAMES: [&str; 2] = ["athens", "byzantium"];

/// What moves, and how fast.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Half of them move.
    pub partitions: usize,
    /// Each key that is written once has half of it on average.
    pub value_bytes_max: u64,
    /// MB per second that a node may send while [`Bed::begin`] is in force.
    pub limit: &'static str,
    /// Each writes units of its own.
    pub writers: u64,
    /// How long each rests after a write.
    pub rest: Duration,
}

/// Sixteen moves of 200 kB, for three seconds: at any time some of them wait for a decision.
pub const MANY: Load = Load {
    partitions: 32,
    value_bytes_max: 4 << 10,
    limit: "1",
    writers: 3,
    rest: Duration::ZERO,
};

/// One move of 12 MB, for three seconds: more than is sent without an acknowledgement.
pub const LARGE: Load = Load {
    partitions: 2,
    value_bytes_max: 16 << 10,
    limit: "4",
    writers: 3,
    rest: Duration::ZERO,
};

/// As [`LARGE`], with one writer that writes at most a thousand times per second, 1.5 kB on average: what is
/// written during a silence of 12 s has to be less than the 32 MiB a source keeps for its target.
pub const QUIETER: Load = Load {
    writers: 1,
    rest: Duration::from_millis(1),
    ..LARGE
};

/// Keys that are written once, so that partitions have something to move.
const STILL_KEYS: u64 = 3_000;
const BATCH: usize = 250;

const UNITS_PER_WRITER: u64 = 40;

/// How long it takes at most until the first partition is copied.
const BEGUN_WITHIN: Duration = Duration::from_secs(10);

/// How long moves may take once nothing is in their way, those that are tried again as well.
const SHARED_WITHIN: Duration = Duration::from_secs(40);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A cluster under load, of which half moves.
pub struct Bed {
    pub whole: TestCluster,
    load: Load,
    writers: WriterPool,
}

fn still_key(n: u64) -> String {
    format!("still:{n}")
}

fn still_value(n: u64, load: Load) -> Vec<u8> {
    let mut rng = Rng::new(n);
    let size = rng.below(load.value_bytes_max) as usize;
    rng.bytes(size)
}

impl Bed {
    /// Nodes of so many shards on loopback; `flags` are for the coordinators.
    pub fn start(
        what: &str,
        load: Load,
        flags: &[&str],
        shards: u16,
        tolerance: Tolerance,
    ) -> Self {
        let partitions = load.partitions.to_string();
        let flags = [&["--partitions", &partitions], flags].concat();
        let mut whole = TestCluster::started(&flags, &NAMES[..1], shards);
        whole.add(NAMES[1], shards).restart();
        Self::over(what, load, whole, tolerance)
    }

    /// The same in a cluster of the test's own, which has so many partitions, all of them at its first node.
    pub fn over(what: &str, load: Load, whole: TestCluster, tolerance: Tolerance) -> Self {
        let mut rng = Rng::new(ephesus_tests::seed_of_run(what));
        let mut client = whole.nodes[0].client();
        let numbers: Vec<u64> = (0..STILL_KEYS).collect();
        for batch in numbers.chunks(BATCH) {
            let set = |n: &u64| {
                let (key, value) = (still_key(*n), still_value(*n, load));
                vec![b"SET".to_vec(), key.into_bytes(), value]
            };
            let replies = client.pipeline(&batch.iter().map(set).collect::<Vec<_>>());
            assert!(replies.iter().all(|reply| *reply == Reply::ok()));
        }
        let units = |writer: u64| {
            let first = writer * UNITS_PER_WRITER;
            (first..first + UNITS_PER_WRITER).map(Unit::new).collect()
        };
        let units = (0..load.writers).map(units).collect();
        let manner = (tolerance, load.rest);
        let writers = WriterPool::start_resting(&whole.entries(), units, manner, &mut rng);
        Self {
            whole,
            load,
            writers,
        }
    }

    /// Has the second node get its half, slowly, and waits until some of it is copied.
    pub fn begin(&self) {
        let told = self
            .whole
            .core
            .ask(&["rebalance", "--limit", self.load.limit]);
        told.assert(0, &[]);
        self.until_copying();
    }

    pub fn until_copying(&self) {
        self.whole.within(BEGUN_WITHIN, "something moves", |whole| {
            in_state(whole, "copying") > 0
        });
    }

    /// All migrations, as the coordinators have them.
    pub fn migrations(&self) -> Vec<Value> {
        migrations(&self.whole)
    }

    /// Waits until each node has its half and no migration is on its way, of which nobody has to remind the
    /// cluster.
    pub fn until_shared(&self) {
        let share = self.load.partitions / 2;
        let is_shared = |whole: &TestCluster| {
            let owned = owned(whole);
            NAMES.iter().all(|name| owned.get(*name) == Some(&share)) && is_still(whole)
        };
        let began = Instant::now();
        while !is_shared(&self.whole) {
            let rows = self.migrations();
            assert!(began.elapsed() < SHARED_WITHIN, "not shared: {rows:#?}");
            std::thread::sleep(LOOK_EVERY);
        }
        self.whole.until_healthy();
    }

    /// Waits until so many more writes were acknowledged.
    pub fn goes_on(&self, more: u64, at_most: Duration) {
        self.writers.goes_on(more, at_most);
    }

    /// Errors and broken connections that patient writers have met.
    pub fn errors(&self) -> u64 {
        self.writers.errors()
    }

    /// Ends the load, and reads everything back: every unit is in a state it may be in, and no node has a
    /// key that should not be there.
    pub fn finish(self) -> TestCluster {
        let (acknowledged, errors) = (self.writers.acknowledged(), self.writers.errors());
        let mut units = self.writers.finish();
        eprintln!("{acknowledged} writes acknowledged, {errors} errors");
        assert!(acknowledged > 0, "nothing was written");
        let mut client = self.whole.client();
        let present = writer_pool::verify(&mut client, units.iter_mut().flatten()) as u64;
        for n in 0..STILL_KEYS {
            let (key, value) = (still_key(n), still_value(n, self.load));
            assert!(client.call(&["GET", &key]) == Reply::Bulk(value), "{key}");
        }
        let counted = self.whole.count_keys();
        assert_eq!(counted, present + STILL_KEYS, "keys of all nodes");
        self.whole
    }
}

/// All migrations, as the coordinators have them.
pub fn migrations(whole: &TestCluster) -> Vec<Value> {
    let report = whole.core.json("migrations");
    report["migrations"].as_array().expect("rows").clone()
}

/// Whether no migration is on its way, or is going to be.
pub fn is_still(whole: &TestCluster) -> bool {
    migrations(whole).iter().all(|row| {
        let is_over = row["state"] == "committed" || row["state"] == "aborted";
        is_over && row["will_retry"] == false
    })
}
