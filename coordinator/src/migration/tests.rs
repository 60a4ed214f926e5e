use super::*;

const PARTITION: PartitionId = PartitionId(3);

fn table(last: u64, arrival: Option<u64>) -> MigrationTable {
    let arrival = arrival.map(|id| {
        let arrival = Arrival {
            migration: MigrationId(id),
            epoch: Epoch(4),
        };
        (PARTITION, arrival)
    });
    MigrationTable {
        last: MigrationId(last),
        active: BTreeMap::new(),
        arrivals: arrival.into_iter().collect(),
        limit_mb_s: 0,
    }
}

#[test]
fn an_older_table_decides_nothing() {
    let of = |table: MigrationTable| table.decision_for_target(MigrationId(7), PARTITION);
    assert_eq!(of(table(6, None)), Decision::Open);
    assert_eq!(of(table(7, None)), Decision::Aborted);
    assert_eq!(of(table(7, Some(7))), Decision::Committed);
    assert_eq!(of(table(9, Some(8))), Decision::Aborted);
    assert_eq!(of(table(9, Some(6))), Decision::Aborted);
}

#[test]
fn a_source_learns_from_the_epoch_of_the_arrival_whichever_migration_that_was() {
    let of = |table: MigrationTable, epoch| {
        table.decision_for_source(MigrationId(7), PARTITION, Epoch(epoch))
    };
    assert_eq!(of(table(6, Some(5)), 4), Decision::Open);
    assert_eq!(of(table(7, Some(7)), 3), Decision::Committed);
    // It was committed, and the partition has moved on twice since then.
    assert_eq!(of(table(9, Some(9)), 2), Decision::Committed);
    // What was there was given up.
    assert_eq!(of(table(9, Some(0)), 3), Decision::Committed);
    assert_eq!(of(table(9, Some(3)), 4), Decision::Aborted);
    assert_eq!(of(table(9, None), 4), Decision::Aborted);
}

#[test]
fn copies_of_before_the_arrival_are_void() {
    let table = table(9, Some(8));
    let is_current = |epoch| table.is_current(PARTITION, Epoch(epoch));
    assert_eq!([3, 4, 5].map(is_current), [false, true, true]);
    assert!(!table.is_current(PartitionId(4), Epoch(9)), "nobody's");
}

#[test]
fn texts_are_cut_between_characters() {
    let long = "ä".repeat(TEXT_BYTES_MAX);
    let text = format!("x{long}");
    assert_eq!(bounded(&text).len(), TEXT_BYTES_MAX - 1);
    assert_eq!(bounded("short"), "short");
}
