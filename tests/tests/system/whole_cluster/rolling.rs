//! Everything is restarted, one after the other, while clients write.

use std::time::Duration;

use ephesus_tests::ledger::Unit;
use ephesus_tests::writer_pool::{Tolerance, WriterPool, verify};
use ephesus_tests::{Rng, TestCluster};

use super::{NAMES, NINE, ownership};

const WRITERS: u64 = 3;
const UNITS_PER_WRITER: u64 = 60;

/// How much is written after each restart, and how long that may take.
const BETWEEN: u64 = 200;
const WITHIN: Duration = Duration::from_secs(30);

#[test]
fn a_rolling_restart_of_everything_loses_no_acknowledged_write() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("whole cluster, rolling restart"));
    let mut whole = TestCluster::started(&NINE, &NAMES, 2);
    let before = whole.table();
    let units = |writer: u64| {
        let first = writer * UNITS_PER_WRITER;
        (first..first + UNITS_PER_WRITER).map(Unit::new).collect()
    };
    let units = (0..WRITERS).map(units).collect();
    let writers = WriterPool::start(&whole.entries(), units, Tolerance::Patient, &mut rng);
    for id in 1..=3 {
        whole.core.coordinator(id).stop();
        whole.core.coordinator(id).start();
        whole.until_settled();
        writers.goes_on(BETWEEN, WITHIN);
    }
    let until_then = writers.errors();
    assert_eq!(
        until_then, 0,
        "clients have noticed the coordinators' restarts"
    );
    for name in NAMES {
        whole.node(name).stop();
        whole.node(name).restart();
        whole.until_healthy();
        writers.goes_on(BETWEEN, WITHIN);
    }
    assert!(!writers.is_broken(), "a writer has given up");
    let (acknowledged, errors) = (writers.acknowledged(), writers.errors());
    let mut units = writers.finish();
    let present = verify(&mut whole.client(), units.iter_mut().flatten());
    eprintln!("{acknowledged} acknowledged writes, {errors} errors, {present} keys");
    assert!(acknowledged > 1_000, "{acknowledged} writes only");
    assert!(errors > 0, "the restarts of nodes were not under load");
    assert_eq!(
        whole.count_keys(),
        present as u64,
        "keys came back or vanished"
    );
    assert_eq!(ownership(&whole.table()), ownership(&before));
}
