use super::super::text::migrations::tests::migration_row;
use super::*;

const MB: u64 = 1_000_000;

fn report(migrations: Vec<MigrationRow>) -> MigrationsReport {
    MigrationsReport {
        migrations,
        ..MigrationsReport::default()
    }
}

fn row(id: u64, partition: u16, state: MigrationState, bytes: u64) -> MigrationRow {
    MigrationRow {
        keys: bytes / 100,
        bytes,
        ..migration_row(id, partition, state)
    }
}

fn aborted(id: u64, partition: u16, attempt: u32, will_retry: bool) -> MigrationRow {
    MigrationRow {
        attempt,
        will_retry,
        last_error: "the target has failed".to_owned(),
        ..row(id, partition, MigrationState::Aborted, 0)
    }
}

fn following(moves: &[(u16, u64)]) -> Following {
    let mut following = Following::default();
    for (partition, id) in moves {
        following.add(*partition, *id, ("ephesus", 1), 10 * MB);
    }
    following
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn progress_says_what_is_done_how_fast_and_how_long() {
    let mut following = following(&[(3, 7), (4, 8)]);
    let planned = [
        row(7, 3, MigrationState::Copying, 0),
        row(8, 4, MigrationState::Planned, 0),
    ];
    assert!(following.note(&report(planned.to_vec()), s(0)).is_empty());
    assert_eq!(following.left(), None);
    let now = [
        row(7, 3, MigrationState::Copying, 4 * MB),
        row(8, 4, MigrationState::Planned, 0),
    ];
    following.note(&report(now.to_vec()), s(2));
    let expected = "0 of 2 moves done, 2 left, 2.0 MB/s, 20000 keys/s, 8.0 s to go";
    assert_eq!(following.progress(), expected);
    assert_eq!(following.position(), (4 * MB, 20 * MB));
    let now = [
        row(7, 3, MigrationState::Committed, 8 * MB),
        row(8, 4, MigrationState::Copying, MB),
    ];
    following.note(&report(now.to_vec()), s(4));
    assert_eq!(
        following.position(),
        (11 * MB, 20 * MB),
        "smaller than was guessed"
    );
    assert!(!following.is_over());
    let now = [
        row(7, 3, MigrationState::Committed, 8 * MB),
        MigrationRow {
            hold_us: 900,
            ..row(8, 4, MigrationState::Committed, 12 * MB)
        },
    ];
    following.note(&report(now.to_vec()), s(6));
    assert!(following.is_over() && following.failures().is_empty());
    assert_eq!(following.position(), (20 * MB, 20 * MB));
    assert_eq!(
        following.summary(s(6)),
        "2 moves done in 6.0 s: 200000 keys, 19.1 MiB; commands were held for 900 us at most"
    );
}

#[test]
fn the_rate_is_that_of_late() {
    let mut following = following(&[(3, 7)]);
    for second in 0..10 {
        let bytes = if second < 5 { 0 } else { (second - 5) * MB };
        following.note(
            &report(vec![row(7, 3, MigrationState::Copying, bytes)]),
            s(second),
        );
    }
    assert_eq!(following.rates(), (10_000, MB));
}

#[test]
fn a_move_that_is_tried_again_is_under_way() {
    let mut following = following(&[(3, 7)]);
    following.note(&report(vec![aborted(7, 3, 1, true)]), s(0));
    assert!(!following.is_over());
    assert!(following.progress().ends_with("(the target has failed)"));
    let again = MigrationRow {
        attempt: 2,
        ..row(9, 3, MigrationState::Copying, MB)
    };
    following.note(&report(vec![aborted(7, 3, 1, false), again]), s(1));
    assert!(!following.is_over() && following.bytes() == MB);
    following.note(&report(vec![aborted(9, 3, 2, false)]), s(2));
    assert!(following.is_over());
    let expected = "partition 3 to ephesus/1: the target has failed, after 2 attempts";
    assert_eq!(following.failures(), [expected]);
    assert!(
        following
            .progress()
            .contains("0 of 1 moves done, 0 left, 1 failed")
    );
}

#[test]
fn a_later_move_elsewhere_is_another() {
    let mut following = following(&[(3, 7)]);
    let elsewhere = MigrationRow {
        to_node: "athens".to_owned(),
        ..row(9, 3, MigrationState::Copying, 0)
    };
    let now = [row(7, 3, MigrationState::Committed, MB), elsewhere];
    following.note(&report(now.to_vec()), s(0));
    assert!(following.is_over() && following.failures().is_empty());
}

#[test]
fn an_end_that_the_leader_has_forgotten_is_looked_up() {
    let mut following = following(&[(3, 7), (4, 8)]);
    assert_eq!(following.note(&report(Vec::new()), s(0)), [3, 4]);
    following.resolve(3, Some(("ephesus", 1)));
    following.resolve(4, Some(("ephesus", 0)));
    assert!(following.is_over());
    assert!(following.failures()[0].starts_with("partition 4 to ephesus/1: it is not there"));
    assert!(following.note(&report(Vec::new()), s(1)).is_empty());
}

#[test]
fn a_move_that_is_done_lacks_figures_until_its_source_has_told_them() {
    let mut following = following(&[(3, 7), (4, 8)]);
    let rows = [
        row(7, 3, MigrationState::Committed, MB),
        aborted(8, 4, 1, false),
    ];
    following.note(&report(rows.to_vec()), s(1));
    assert!(following.is_over() && following.lacks_figures());
    let told = MigrationRow {
        hold_us: 2_500,
        ..row(7, 3, MigrationState::Committed, 2 * MB)
    };
    following.note(&report(vec![told]), s(1));
    assert!(!following.lacks_figures());
    assert_eq!(
        following.summary(s(1)),
        "1 move done in 1.0 s: 20000 keys, 1.9 MiB; commands were held for 2.5 ms at most"
    );
}
