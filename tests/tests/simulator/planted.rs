//! Deliberate bugs: the same runs have to find each of them.

use ephesus_coordinator::planted::Bug;

use crate::run;

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
    catches_members_that_write_nothing_down: NoPersist, ["lead term", "another state", "a panic", "was acknowledged"];
    catches_leases_longer_than_the_timeout: LongLease, ["is served by"];
    catches_leases_without_a_read_index_round: NoReadRound, ["is served by"];
    catches_commands_carried_out_before_they_are_decided: ApplyBeforeCommit, ["another state"];
    catches_deltas_on_the_wrong_version: WrongBase, ["another table"];
    catches_a_leader_that_takes_the_past_for_silence: HastyLeader, ["with it a node was failed"];
}
