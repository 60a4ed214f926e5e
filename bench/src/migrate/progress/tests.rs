use super::*;

fn row(id: u64, partition: u16, state: MigrationState) -> MigrationRow {
    MigrationRow {
        id,
        partition,
        state,
        abort_reason: None,
        from_node: "a".to_owned(),
        from_shard: 0,
        to_node: "b".to_owned(),
        to_shard: 0,
        attempt: 1,
        will_retry: false,
        keys: 0,
        bytes: 0,
        keys_per_s: 0,
        bytes_per_s: 0,
        hold_us: 0,
        last_error: String::new(),
    }
}

fn of_two() -> Progress {
    Progress::new(
        BTreeSet::from([3, 4]),
        &[row(1, 3, MigrationState::Committed)],
    )
}

#[test]
fn done_when_all_have_arrived() {
    let mut progress = of_two();
    progress.note(&[
        row(1, 3, MigrationState::Committed),
        row(2, 3, MigrationState::Planned),
        row(3, 4, MigrationState::Planned),
    ]);
    assert_eq!(progress.stage(), Stage::Waiting);
    progress.note(&[
        row(2, 3, MigrationState::Copying),
        row(3, 4, MigrationState::Planned),
        row(9, 7, MigrationState::Copying),
    ]);
    assert_eq!(progress.stage(), Stage::Copying);
    progress.note(&[
        row(2, 3, MigrationState::Committed),
        row(3, 4, MigrationState::Planned),
    ]);
    assert_eq!(progress.stage(), Stage::Copying);
    assert!(!progress.may_be_over());
    progress.note(&[
        row(2, 3, MigrationState::Committed),
        row(3, 4, MigrationState::Committed),
    ]);
    assert_eq!(progress.stage(), Stage::Done);
}

#[test]
fn what_ended_between_two_looks_is_seen_in_the_table() {
    let mut progress = of_two();
    progress.note(&[
        row(2, 3, MigrationState::Copying),
        row(3, 4, MigrationState::Committed),
    ]);
    progress.note(&[row(3, 4, MigrationState::Committed)]);
    assert!(progress.may_be_over());
    progress.arrived([3, 4, 5].into_iter());
    assert_eq!(progress.stage(), Stage::Done);
    assert!(!progress.may_be_over());
}

#[test]
fn a_retry_goes_on_and_an_abort_for_good_fails() {
    let mut progress = of_two();
    let mut aborted = row(2, 3, MigrationState::Aborted);
    aborted.will_retry = true;
    aborted.last_error = "the stream broke".to_owned();
    progress.note(&[aborted.clone(), row(3, 4, MigrationState::Committed)]);
    assert_eq!(progress.stage(), Stage::Copying);
    let mut again = row(4, 3, MigrationState::Committed);
    again.attempt = 2;
    again.hold_us = 1500;
    let mut retried = progress.clone();
    retried.note(&[aborted.clone(), row(3, 4, MigrationState::Committed), again]);
    assert_eq!(retried.stage(), Stage::Done);
    let said = retried.said();
    assert_eq!((said.retries, said.holds_ms), (1, vec![1.5, 0.0]));
    aborted.will_retry = false;
    progress.note(&[aborted, row(3, 4, MigrationState::Committed)]);
    let why = "partition 3: the stream broke".to_owned();
    assert_eq!(progress.stage(), Stage::Failed(why));
}
