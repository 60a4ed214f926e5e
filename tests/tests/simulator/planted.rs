//! Deliberate bugs: the same runs have to find each of them.

use ephesus_coordinator::planted::Bug;
use ephesus_engine::planted::Bug as Mistake;

use crate::world::{Kill, Shape, World};
use crate::{caught, grid, run};

/// Seeds that may be needed.
const SEEDS_MAX: u64 = 120;

/// What a run shows without the bug is not the bug's.
fn assert_clean(what: &str, run: impl FnOnce() -> Result<(), String>) {
    if let Err(violation) = caught(run) {
        panic!("{what} fails without the bug as well: {violation}");
    }
}

/// Some seed fails in the way that the bug should make it fail, and not without it.
fn assert_caught(bug: Bug, how: &[&str]) {
    let caught = (0..SEEDS_MAX).find_map(|seed| {
        let violation = run(3, seed, Some(bug)).err()?;
        let is_expected = how.iter().any(|part| violation.contains(part));
        is_expected.then_some((seed, violation))
    });
    let (seed, violation) = caught.unwrap_or_else(|| panic!("{bug:?} is not caught"));
    println!("{bug:?}: seed {seed}: {violation}");
    assert_clean(&format!("seed {seed}"), || run(3, seed, None).map(drop));
}

macro_rules! planted_bugs_are_caught {
    ($($name:ident: $bug:ident, $how:expr;)*) => {$(
        #[test]
        fn $name() {
            assert_caught(Bug::$bug, &$how);
        }
    )*};
}

planted_bugs_are_caught! {
    catches_votes_that_are_not_written_down: ForgottenVote, ["lead term"];
    catches_members_that_write_nothing_down: NoPersist, ["lead term", "another state", "a panic", "is older than", "was acknowledged"];
    catches_answers_before_the_disk_has_it: AnswerBeforeSync, ["lead term", "another state", "a panic", "is older than", "was acknowledged"];
    catches_leases_longer_than_the_timeout: LongLease, ["is served by"];
    catches_leases_without_a_read_index_round: NoReadRound, ["is served by"];
    catches_commands_carried_out_before_they_are_decided: ApplyBeforeCommit, ["another state"];
    catches_deltas_on_the_wrong_version: WrongBase, ["another table"];
    catches_a_leader_that_takes_the_past_for_silence: HastyLeader, ["with it a node was failed"];
}

/// A run in which a mistake can be noticed.
#[derive(Clone, Copy, Debug)]
enum Run {
    Grid(Kill),
    Any { seed: u64 },
}

impl Run {
    fn go(self, mistake: Option<Mistake>) -> Result<(), String> {
        caught(|| match self {
            Run::Grid(kill) => grid::run(0, kill, mistake).map(drop),
            Run::Any { seed } => {
                let mut world = World::new(seed, Shape::any(3, seed), None)?;
                world.mistake = mistake;
                world.run().map(drop)
            }
        })
    }
}

/// Of the whole grid and of some runs of any kind, one fails in the way that the mistake should make it
/// fail, and not without it.
fn assert_noticed(mistake: Mistake, how: &[&str]) {
    let any = (0..SEEDS_MAX).map(|seed| Run::Any { seed });
    let noticed = grid::kills().map(Run::Grid).chain(any).find_map(|run| {
        let violation = run.go(Some(mistake)).err()?;
        let is_expected = how.iter().any(|part| violation.contains(part));
        is_expected.then_some((run, violation))
    });
    let (run, violation) = noticed.unwrap_or_else(|| panic!("{mistake:?} is not noticed"));
    println!("{mistake:?}: {run:?}: {violation}");
    assert_clean(&format!("{run:?}"), || run.go(None));
}

macro_rules! mistakes_are_noticed {
    ($($name:ident: $mistake:ident, $how:expr;)*) => {$(
        #[test]
        fn $name() {
            assert_noticed(Mistake::$mistake, &$how);
        }
    )*};
}

mistakes_are_noticed! {
    notices_that_capture_starts_one_turn_late: LateCapture, ["of a stream differ", "is lost", "not all of"];
    notices_that_a_source_deletes_before_the_commit: EarlyDelete, ["is lost", "nobody serves", "does not start", "has brought"];
    notices_that_unprepared_staging_survives_a_break: StagingSurvives, ["whose stream is over"];
    notices_that_a_prepared_copy_is_wiped: PreparedWiped, ["nobody serves", "does not start", "has brought"];
    notices_that_a_source_resumes_after_it_has_said_commit: Resumes, ["is served by", "is lost", "resurrected", "no write after the end"];
    notices_that_nobody_looks_at_the_owner_at_execution: ExecutesHeld, ["is lost", "resurrected", "is served by", "no write after the end"];
}
