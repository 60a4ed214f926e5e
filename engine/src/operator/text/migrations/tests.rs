use ephesus_coordinator::report::DrainingRow;

use super::*;

pub(in crate::operator) fn move_row(partition: u16, migration: Option<u64>) -> MoveRow {
    MoveRow {
        partition,
        migration,
        from_node: Some("athens".to_owned()),
        from_shard: Some(0),
        to_node: "ephesus".to_owned(),
        to_shard: 1,
        refusal: None,
    }
}

pub(in crate::operator) fn migration_row(
    id: u64,
    partition: u16,
    state: MigrationState,
) -> MigrationRow {
    MigrationRow {
        id,
        partition,
        state,
        abort_reason: None,
        from_node: "athens".to_owned(),
        from_shard: 0,
        to_node: "ephesus".to_owned(),
        to_shard: 1,
        attempt: 1,
        will_retry: false,
        keys: 1_000,
        bytes: 100 << 10,
        keys_per_s: 500,
        bytes_per_s: 51_200_000,
        hold_us: 0,
        last_error: String::new(),
    }
}

pub(in crate::operator) fn migrations_report() -> MigrationsReport {
    MigrationsReport {
        migrations: vec![
            MigrationRow {
                hold_us: 1_250,
                ..migration_row(7, 2, MigrationState::Committed)
            },
            migration_row(8, 5, MigrationState::Copying),
            MigrationRow {
                will_retry: true,
                last_error: "the target has failed".to_owned(),
                ..migration_row(9, 6, MigrationState::Aborted)
            },
        ],
        draining: vec![DrainingRow {
            node: "athens".to_owned(),
            partitions: 1,
        }],
        limit_mb_s: 20,
    }
}

#[test]
fn what_goes_the_same_way_is_one_line() {
    let planned = [
        move_row(2, Some(7)),
        move_row(3, Some(8)),
        MoveRow {
            from_node: Some("byzantium".to_owned()),
            ..move_row(4, Some(9))
        },
        MoveRow {
            refusal: Some("node ephesus has failed".to_owned()),
            ..move_row(5, None)
        },
        move_row(7, None),
        move_row(8, None),
    ];
    let expected = "\
PARTITIONS  FROM         TO         MIGRATIONS
2-3         athens/0     ephesus/1  7-8
4           byzantium/0  ephesus/1  9
5           athens/0     ephesus/1  not planned: node ephesus has failed
7-8         athens/0     ephesus/1  -
";
    assert_eq!(plan(&planned), expected);
}

#[test]
fn migrations_have_a_line_each() {
    let text = migrations(&migrations_report());
    let expected = "\
ID  PARTITION  FROM      TO         STATE                         ATTEMPT  KEYS      BYTES  KEYS/S       RATE    HELD  ERROR
 7          2  athens/0  ephesus/1  committed                           1  1000  100.0 KiB       -          -  1.2 ms
 8          5  athens/0  ephesus/1  copying                             1  1000  100.0 KiB     500  51.2 MB/s       -
 9          6  athens/0  ephesus/1  aborted, will be tried again        1  1000  100.0 KiB       -          -       -  the target has failed
node athens is being drained: it owns 1 partition
no node sends more than 20 MB/s
";
    assert_eq!(text, expected);
}
