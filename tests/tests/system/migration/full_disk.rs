//! A target whose disk becomes full in the middle of a move.

use std::thread::sleep;
use std::time::Duration;

use ephesus_tests::mount::SmallDisk;
use ephesus_tests::writer_pool::Tolerance;
use ephesus_tests::{Node, Options, Reply, TestCluster, paths};
use serde_json::Value;

use super::bed::{Bed, LARGE, NAMES, migrations};
use super::owned;

/// Moves are under way for so long before.
const PART: Duration = Duration::from_millis(700);

/// How soon a move that cannot go on is given up.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(5);

/// How soon it is tried again while the disk is full.
const AGAIN_WITHIN: Duration = Duration::from_secs(20);

const REASON: &str = "the target's disk is full";

#[test]
fn a_target_on_a_full_disk_says_so_and_is_tried_again_when_there_is_space() {
    let Some(disk) = SmallDisk::mount(1 << 30) else {
        return;
    };
    let partitions = LARGE.partitions.to_string();
    let mut whole = TestCluster::started(&["--partitions", &partitions], &NAMES[..1], 1);
    let options = Options {
        wal_budget: Some(64 << 20),
        ..whole.options(NAMES[1], 1)
    };
    let mut target = Node::stopped_at(options, paths::scratch(), disk.path().join("data"));
    target.restart();
    whole.nodes.push(target);
    let mut bed = Bed::over("a full disk", LARGE, whole, Tolerance::Strict);
    bed.begin();
    sleep(PART);
    let ballast = disk.fill(0);
    let given_up = |whole: &TestCluster| {
        let rows = migrations(whole);
        let is_given_up = |row: &&Value| {
            let reason = row["last_error"].as_str().unwrap_or_default();
            row["state"] == "aborted" && reason.contains(REASON)
        };
        rows.iter().filter(is_given_up).count()
    };
    bed.whole
        .within(GIVEN_UP_WITHIN, "it is given up", |whole| {
            given_up(whole) > 0
        });
    bed.goes_on(500, GIVEN_UP_WITHIN);
    bed.whole
        .within(AGAIN_WITHIN, "it is tried again", |whole| {
            given_up(whole) > 1
        });
    assert_eq!(owned(&bed.whole).get(NAMES[1]), None, "on a full disk");
    let target = bed.whole.node(NAMES[1]);
    assert!(!target.has_exited(), "the target lives on");
    assert_eq!(target.client().say("PING"), Reply::Simple("PONG".into()));
    drop(ballast);
    bed.until_shared();
    bed.finish();
}
