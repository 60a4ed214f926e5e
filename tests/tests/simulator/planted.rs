//! Deliberate bugs: the same runs have to find each of them.

use ephesus_coordinator::planted::Bug;
use ephesus_engine::planted::Bug as Mistake;

use crate::world::{Shape, World};
use crate::{caught, grid, run};

/// Seeds that may be needed.
const SEEDS_MAX: u64 = 120;

/// Some seed fails in the way that the bug should make it fail.
fn assert_caught(bug: Bug, how: &[&str]) {
    let caught = (0..SEEDS_MAX).find_map(|seed| {
        let violation = run(3, seed, Some(bug)).err()?;
        let is_expected = how.iter().any(|part| violation.contains(part));
        is_expected.then_some((seed, violation))
    });
    let (seed, violation) = caught.unwrap_or_else(|| panic!("{bug:?} is not caught"));
    println!("{bug:?}: seed {seed}: {violation}");
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

/// Of the whole grid and of some runs of any kind, one fails in the way that the mistake should make it
/// fail.
fn assert_noticed(mistake: Mistake, how: &[&str]) {
    let is_expected = |violation: &String| how.iter().any(|part| violation.contains(part));
    let in_grid = grid::kills().find_map(|kill| {
        let run = caught(|| grid::run(0, kill, Some(mistake)));
        let violation = run.err().filter(is_expected)?;
        Some(format!("{kill:?}: {violation}"))
    });
    let any = || {
        (0..SEEDS_MAX).find_map(|seed| {
            let run = caught(|| {
                let mut world = World::new(seed, Shape::any(3, seed), None)?;
                world.mistake = Some(mistake);
                world.run()
            });
            let violation = run.err().filter(is_expected)?;
            Some(format!("seed {seed}: {violation}"))
        })
    };
    let noticed = in_grid.or_else(any);
    let noticed = noticed.unwrap_or_else(|| panic!("{mistake:?} is not noticed"));
    println!("{mistake:?}: {noticed}");
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
