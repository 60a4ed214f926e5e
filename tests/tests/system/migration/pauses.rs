//! Source and target that stand still in the middle of moves, as processes do on an overcommitted machine:
//! the moves go on or are tried again, and nothing comes out wrong.

use std::thread::sleep;
use std::time::Duration;

use ephesus_tests::writer_pool::Tolerance;

use super::bed::{Bed, MANY, NAMES, QUIETER};

/// Moves are under way for so long before somebody stands still.
const PART: Duration = Duration::from_millis(700);

/// Longer than it takes until a node counts as failed, of which the default is 2 s.
const FAILED: Duration = Duration::from_millis(3_000);

/// Longer than either end of a stream waits for the other, 10 s.
const SILENT: Duration = Duration::from_millis(12_500);

/// Nodes count as failed after a minute, and leases last for half of it: only streams notice.
const PATIENT: [&str; 2] = ["--heartbeat-timeout", "60000"];

/// How long writers may take to be answered again.
const AFTERWARDS: Duration = Duration::from_secs(10);

/// SIGSTOP, and SIGCONT later.
fn pause(bed: &mut Bed, name: &str, for_long: Duration) {
    bed.whole.node(name).signal(libc::SIGSTOP);
    sleep(for_long);
    bed.whole.node(name).signal(libc::SIGCONT);
}

#[test]
fn source_and_target_that_count_as_failed_meanwhile_go_on_with_their_moves() {
    let mut bed = Bed::start("pauses during moves", MANY, &[], 2, Tolerance::Patient);
    bed.begin();
    sleep(PART);
    pause(&mut bed, NAMES[1], FAILED);
    // It was given up, and is tried again.
    bed.until_copying();
    sleep(PART);
    pause(&mut bed, NAMES[0], FAILED);
    bed.goes_on(1_000, AFTERWARDS);
    bed.until_shared();
    bed.finish();
}

/// One of the nodes stands still for longer than the other listens to nothing; which says `words`.
fn is_given_up(name: &str, words: &str, tolerance: Tolerance) {
    let mut bed = Bed::start(
        &format!("silence of {name}"),
        QUIETER,
        &PATIENT,
        1,
        tolerance,
    );
    bed.begin();
    sleep(PART);
    pause(&mut bed, name, SILENT);
    bed.goes_on(1_000, AFTERWARDS);
    bed.until_shared();
    let rows = bed.migrations();
    let is_silence = |row: &&serde_json::Value| {
        row["last_error"]
            .as_str()
            .unwrap_or_default()
            .contains(words)
    };
    let silenced: Vec<_> = rows.iter().filter(is_silence).collect();
    assert!(!silenced.is_empty(), "no {words:?} in {rows:?}");
    for row in silenced {
        assert_eq!(row["state"], "aborted", "{row}");
        let is_next = |other: &&serde_json::Value| {
            other["partition"] == row["partition"] && other["state"] == "committed"
        };
        assert_eq!(rows.iter().filter(is_next).count(), 1, "{row}");
    }
    bed.finish();
}

#[test]
fn a_source_gives_up_a_target_that_is_silent_for_long_and_tries_again() {
    // All keys are at the source.
    is_given_up(
        NAMES[1],
        "the target has been silent for 10 s",
        Tolerance::Strict,
    );
}

#[test]
fn a_target_gives_up_a_source_that_is_silent_for_long_and_is_asked_again() {
    // What the source has held meanwhile it may refuse.
    is_given_up(
        NAMES[0],
        "the source has been silent for 10 s",
        Tolerance::Patient,
    );
}
