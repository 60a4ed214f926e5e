//! Nodes that do not reach each other in the middle of moves, while clients and coordinators reach both:
//! the moves go on or are tried again, and no client notices.

use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::Duration;

use ephesus_tests::TestCluster;
use ephesus_tests::coordinator::Core;
use ephesus_tests::namespaces::{HOST, Namespaces, with_namespaces};
use ephesus_tests::scale::has_own_rounds;
use ephesus_tests::writer_pool::Tolerance;

use super::bed::{Bed, Load, MANY, NAMES, QUIETER};

/// Moves are under way for so long before a cut.
const PART: Duration = Duration::from_millis(300);

/// As long as a connection easily outlives.
const SHORT: Duration = Duration::from_millis(1_500);

/// Longer than either end of a stream waits for the other, 10 s.
const LONG: Duration = Duration::from_millis(12_500);

/// How long writers may take for what they are to do during a cut.
const DURING: Duration = Duration::from_secs(5);

/// Which packets between the two vanish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    ToTarget,
    ToSource,
    Both,
}

const CUTS: [Cut; 3] = [Cut::ToTarget, Cut::ToSource, Cut::Both];

impl Cut {
    fn apply(self, networks: &Namespaces) {
        let [source, target]: [Ipv4Addr; 2] = [1, 2].map(|n| networks.place(n).0);
        if self != Cut::ToSource {
            networks.cut(source, target);
        }
        if self != Cut::ToTarget {
            networks.cut(target, source);
        }
    }
}

/// A node in each of two namespaces, coordinators and clients on the host.
fn bed(what: &str, load: Load, networks: &Namespaces) -> Bed {
    let partitions = load.partitions.to_string();
    let flags = ["--partitions", &partitions];
    let mut core = Core::stopped_at(HOST, 3, &flags);
    core.found();
    let nodes = Vec::new();
    let mut whole = TestCluster { nodes, core };
    for (n, name) in (1..).zip(NAMES) {
        whole.add_at(name, 1, networks.place(n)).restart();
        // The first one gets everything.
        whole.until_healthy();
    }
    Bed::over(what, load, whole, Tolerance::Strict)
}

#[test]
fn no_client_notices_that_nodes_do_not_reach_each_other_during_moves() {
    with_namespaces(2, |networks| {
        let bed = bed("cuts during moves", MANY, networks);
        bed.begin();
        for cut in CUTS {
            sleep(PART);
            cut.apply(networks);
            bed.goes_on(500, DURING);
            sleep(SHORT);
            networks.heal();
            bed.until_copying();
        }
        bed.until_shared();
        bed.finish();
    });
}

/// Which cuts are tried for long: all of them with `EPHESUS_CRASH_ROUNDS`.
fn long_cuts() -> &'static [Cut] {
    match has_own_rounds() {
        true => &CUTS,
        false => &[Cut::Both],
    }
}

#[test]
fn a_cut_for_long_ends_a_move_which_is_tried_again() {
    with_namespaces(2, |networks| {
        for cut in long_cuts() {
            let bed = bed(&format!("a long cut, {cut:?}"), QUIETER, networks);
            bed.begin();
            sleep(PART);
            cut.apply(networks);
            bed.goes_on(500, DURING);
            sleep(LONG);
            networks.heal();
            bed.until_shared();
            let rows = bed.migrations();
            let reasons = rows.iter().filter_map(|row| row["last_error"].as_str());
            let reasons: Vec<&str> = reasons.filter(|reason| !reason.is_empty()).collect();
            let is_silence = |reason: &&str| reason.contains("has been silent for 10 s");
            assert!(reasons.iter().any(is_silence), "{cut:?}: {reasons:?}");
            bed.finish();
        }
    });
}
