//! Coordinators that balance the cluster of their own accord.

use std::time::Duration;

use ephesus_tests::TestCluster;
use ephesus_tests::writer_pool::Tolerance;

use super::bed::{Bed, MANY, NAMES, migrations};
use super::owned;

/// The members have to be the same for ten seconds before.
const CALM: Duration = Duration::from_secs(10);

/// How much later the first partition is on its way.
const LATE_MAX: Duration = Duration::from_secs(8);

#[test]
fn a_node_that_joins_gets_its_share_although_nobody_asks_for_it() {
    let partitions = MANY.partitions.to_string();
    let flags = ["--partitions", &partitions, "--auto-rebalance"];
    let whole = TestCluster::started(&flags, &NAMES[..1], 2);
    let mut bed = Bed::over("a node joins", MANY, whole, Tolerance::Strict);
    bed.whole.add(NAMES[1], 2).restart();
    bed.goes_on(100, LATE_MAX);
    assert_eq!(owned(&bed.whole).get(NAMES[1]), None, "so soon");
    bed.whole
        .within(CALM + LATE_MAX, "something moves", |whole| {
            !migrations(whole).is_empty()
        });
    bed.until_shared();
    let rows = bed.migrations();
    let committed = rows.iter().filter(|row| row["state"] == "committed");
    assert_eq!(committed.count(), MANY.partitions / 2, "{rows:?}");
    bed.finish();
}
