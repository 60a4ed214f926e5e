//! The policy of placement is changed while clients write.

use std::time::Duration;

use ephesus_tests::TestCluster;
use ephesus_tests::writer_pool::Tolerance;
use serde_json::Value;

use super::bed::{Bed, MANY, is_still, migrations};
use super::{all_committed, owned};

const NAMES: [&str; 4] = ["athens", "byzantium", "cyrene", "delphi"];

/// So many moves may be under way at a time.
const MOVES_MAX: usize = 4;

/// Four nodes, of which the first has everything, and writers at work.
fn bed(what: &str) -> Bed {
    let (partitions, moves_max) = (MANY.partitions.to_string(), MOVES_MAX.to_string());
    let flags = ["--partitions", &partitions, "--moves-max", &moves_max];
    let mut whole = TestCluster::started(&flags, &NAMES[..1], 1);
    for name in &NAMES[1..] {
        whole.add(name, 1).restart();
    }
    Bed::over(what, MANY, whole, Tolerance::Strict)
}

fn placement(whole: &TestCluster) -> Value {
    let told = whole.core.ask(&["placement", "show", "--json"]);
    told.assert(0, &[]);
    serde_json::from_str(&told.out).expect("JSON")
}

/// Has an operator's command carried out, which says this.
fn says(whole: &TestCluster, words: &[&str], what: &str) {
    let told = whole.core.ask(words);
    told.assert(0, &[]);
    assert!(told.out.contains(what), "no {what:?} in {}", told.out);
}

#[test]
fn a_cluster_of_four_nodes_gets_another_policy_without_an_error() {
    let bed = bed("placement");
    let shown = placement(&bed.whole);
    assert_eq!(
        (&shown["policy"], &shown["moves"]),
        (&"contiguous".into(), &24.into()),
        "{shown}"
    );
    for policy in ["cooperative-sticky", "ring:vnodes=64", "round-robin"] {
        says(
            &bed.whole,
            &["placement", "set", policy, "--dry-run"],
            "partitions move",
        );
        says(
            &bed.whole,
            &["placement", "set", policy, "--yes", "--wait"],
            policy,
        );
        let shown = placement(&bed.whole);
        assert_eq!(
            (&shown["policy"], &shown["moves"]),
            (&policy.into(), &0.into()),
            "{shown}"
        );
        assert_eq!(shown["state"], "follows", "{shown}");
        assert_eq!(owned(&bed.whole).len(), NAMES.len());
        bed.goes_on(100, Duration::from_secs(10));
    }
    let shown = placement(&bed.whole);
    assert_eq!(shown["imbalance_permille"], 1_000, "eight each: {shown}");
    assert!(shown["bytes_per_s"].as_u64() > Some(0), "{shown}");
    says(&bed.whole, &["rebalance"], "nothing has to move");
    all_committed(&bed.whole);
    bed.finish();
}

#[test]
fn a_change_is_made_a_few_at_a_time_and_stops_when_it_is_cancelled() {
    let bed = bed("a cancelled placement");
    // Slowly: it is to be stopped in its middle.
    let limit = ["rebalance", "--limit", MANY.limit];
    bed.whole.core.ask(&limit).assert(0, &[]);
    bed.until_copying();
    let rows = migrations(&bed.whole);
    let count = |state: &str| rows.iter().filter(|row| row["state"] == state).count();
    let under_way = count("planned") + count("copying");
    assert!(under_way <= MOVES_MAX, "{rows:#?}");
    assert!(count("waiting") > 0, "{rows:#?}");
    says(&bed.whole, &["placement", "cancel"], "cancelled");
    bed.whole
        .within(Duration::from_secs(10), "all is still", is_still);
    let left = owned(&bed.whole)[NAMES[0]];
    assert!(left > MANY.partitions / NAMES.len(), "{left} are left");
    let shown = placement(&bed.whole);
    assert_eq!(shown["state"], "rests", "{shown}");
    bed.whole.core.ask(&["rebalance", "--wait"]).assert(0, &[]);
    assert_eq!(placement(&bed.whole)["state"], "follows");
    assert_eq!(owned(&bed.whole)[NAMES[0]], MANY.partitions / NAMES.len());
    bed.finish();
}

#[test]
fn an_unknown_policy_or_parameter_is_answered_with_the_list() {
    let whole = TestCluster::started(&["--partitions", "4"], &NAMES[..1], 1);
    for wrong in [
        "crush",
        "ring:colour=red",
        "maglev:seed=x",
        "bounded-ring:epsilon=0",
    ] {
        let told = whole.core.ask(&["placement", "set", wrong, "--yes"]);
        assert_eq!(told.code, Some(2), "{wrong}");
        assert!(
            told.err.contains("policy")
                || told.err.contains("policies")
                || told.err.contains("number"),
            "{}",
            told.err
        );
    }
    let told = whole.core.ask(&["placement", "set", "crush", "--yes"]);
    told.assert(2, &["rendezvous", "bounded-ring"]);
    let piped = whole.core.ask(&["placement", "set", "ring"]);
    piped.assert(2, &["--yes"]);
}
