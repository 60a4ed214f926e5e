//! Coordinators that balance the cluster of their own accord.

use std::time::Duration;

use ephesus_tests::Whole;
use ephesus_tests::crowd::Temper;

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
    let mut whole = Whole::started(&flags, &NAMES[..1], 2);
    whole.add(NAMES[1], 2).restart();
    let bed = Bed::over("a node joins", MANY, whole, Temper::Strict);
    assert_eq!(owned(&bed.whole).get(NAMES[1]), None, "so soon");
    bed.whole
        .within(CALM + LATE_MAX, "something moves", |whole| {
            !migrations(whole).is_empty()
        });
    bed.until_shared();
    let moves = bed.migrations();
    assert_eq!(moves.len(), MANY.partitions / 2, "{moves:?}");
    bed.finish();
}
