use ephesus_coordinator::migration::{Arrival, MigrationTable};
use ephesus_wal::LogId;
use ephesus_wire::MigrationId;
use ephesus_wire::record::{Prepared, Record, RecordMeta, Source};
use ephesus_wire::{Lsn, NodeId};

use super::*;
use crate::keyspace::replay::{Rebuild, Replay};
use crate::table::KeyHasher;

const ID: PartitionId = PartitionId(0);

fn source(migration: u64) -> Source {
    Source {
        migration: MigrationId(migration),
        node: NodeId([3; 16]),
        shard: ShardId(0),
    }
}

/// What the log makes of a copy with these records; one that `migration` fills, if it is not 0.
fn copy(epoch: u64, migration: u64, records: &[Record<'_>]) -> Partition {
    let rebuild = match migration {
        0 => Rebuild::new(ID, Epoch(epoch)),
        _ => Rebuild::staging(ID, Epoch(epoch), source(migration)),
    };
    let mut replay = Replay::new(KeyHasher::with_seeds([1; 4]), 1, vec![rebuild]);
    for (seq, record) in (1..).zip(records) {
        let meta = RecordMeta {
            partition: ID,
            epoch: Epoch(epoch),
            seq,
        };
        replay
            .record(Lsn(seq), &record.to_vec(meta))
            .expect("legal");
    }
    replay.finish().expect("dense").remove(0)
}

/// The records of a copy that migration 7 has filled, as far as `steps` says.
fn moved(epoch: u64, steps: usize) -> Partition {
    let prepared = Prepared {
        migration: MigrationId(7),
        count: 0,
        digest: [0; 2],
    };
    let records = [
        Record::Created { source: source(7) },
        Record::Prepared(prepared),
        Record::Activated { start_seq: 4 },
    ];
    copy(epoch, 7, &records[..steps])
}

/// Two shards, of which the first serves the partition at `served`, if that is not 0, and the second has a
/// staging copy of epoch `staging`, if that is not 0.
fn layout(served: u64, staging: u64) -> Layout {
    let logs = [LogId([1; 16]), LogId([2; 16])];
    let mut layout = Layout::empty(1, logs.into_iter());
    layout.add_copies(&[(ShardId(0), Epoch(served))]);
    if staging > 0 {
        let place = StagingPlace {
            partition: ID,
            shard: ShardId(1),
            epoch: Epoch(staging),
            source: source(7),
        };
        layout.add_staging(place).expect("nothing is in its way");
    }
    layout
}

/// A table whose last migration is 7, by which the partition has arrived at an epoch, or by another one;
/// it is planned for this node there.
fn plan(copy: (u16, u64), arrival: (u64, u64)) -> Plan {
    let arrival = Arrival {
        migration: MigrationId(arrival.0),
        epoch: Epoch(arrival.1),
    };
    let migrations = MigrationTable {
        last: MigrationId(7),
        arrivals: [(ID, arrival)].into(),
        ..MigrationTable::default()
    };
    let plan = Plan {
        shards: 2,
        copies: vec![(ShardId(copy.0), Epoch(copy.1))],
        migrations: MigrationTable::default(),
    };
    plan.with(migrations)
}

/// The layout and the epochs of the copies that are left on either shard.
fn settle(
    plan: &Plan,
    layout: &Layout,
    first: Option<Partition>,
    second: Option<Partition>,
) -> Result<(Layout, [Vec<u64>; 2]), RecoveryError> {
    let mut shards = [first, second].map(|copy| copy.into_iter().collect::<Vec<_>>());
    let settled = plan.settle(layout, &mut shards.each_mut(), Planted::default())?;
    let epochs = shards.map(|copies| copies.iter().map(|copy| copy.epoch.0).collect());
    Ok((settled, epochs))
}

const NEVER: (u64, u64) = (6, 3);

#[test]
fn a_staging_copy_that_was_not_prepared_goes() {
    for arrival in [NEVER, (7, 5)] {
        let plan = plan((0, 0), arrival);
        for steps in 0..2 {
            let settled = settle(&plan, &layout(0, 5), None, Some(moved(5, steps)));
            assert_eq!(settled.expect("settled"), (layout(0, 0), [vec![], vec![]]));
        }
    }
}

#[test]
fn a_prepared_copy_goes_only_by_the_tables_word() {
    let settled = |plan: &Plan| {
        let served = copy(4, 0, &[]);
        settle(plan, &layout(4, 5), Some(served), Some(moved(5, 2))).expect("settled")
    };
    let aborted = settled(&plan((0, 4), (6, 4)));
    assert_eq!(aborted, (layout(4, 0), [vec![4], vec![]]));
    let committed = settled(&plan((1, 5), (7, 5)));
    assert_eq!(committed, (layout(0, 5), [vec![], vec![5]]), "one is left");
    let mut open = plan((0, 4), (6, 4));
    open.migrations.last = MigrationId(6);
    assert_eq!(settled(&open), (layout(4, 5), [vec![4], vec![5]]));
    assert!(open.keeps(&layout(4, 5)));
    let undecided = open.check_succession(&layout(4, 5));
    assert!(matches!(undecided, Err(RecoveryError::Undecided { .. })));
}

#[test]
fn an_activated_copy_is_served_whatever_the_layout_says() {
    let plan = plan((1, 5), (7, 5));
    let served = Some(copy(4, 0, &[]));
    let (settled, epochs) =
        settle(&plan, &layout(4, 5), served, Some(moved(5, 3))).expect("settled");
    assert_eq!(settled.served(ID), Some((ShardId(1), Epoch(5))));
    assert!(settled.staging().is_empty());
    assert_eq!(epochs, [vec![], vec![5]]);
    assert!(plan.keeps(&settled));
}

#[test]
fn what_has_arrived_elsewhere_since_is_void() {
    let dropped = || copy(4, 0, &[Record::Dropped]);
    for found in [copy(4, 0, &[]), dropped()] {
        let settled = settle(&plan((0, 0), (6, 5)), &layout(4, 0), Some(found), None);
        assert_eq!(settled.expect("settled"), (layout(0, 0), [vec![], vec![]]));
    }
    let back = plan((0, 8), (0, 8));
    let (settled, _) = settle(&back, &layout(4, 0), Some(dropped()), None).expect("void");
    assert_eq!(settled, layout(0, 0), "it comes back, empty");
}

#[test]
fn a_table_that_is_older_than_the_data_is_refused() {
    let refused = |plan: &Plan, found: Partition, epoch| match settle(
        plan,
        &layout(epoch, 0),
        Some(found),
        None,
    ) {
        Err(RecoveryError::Succession { epoch: of, .. }) => of.0 == epoch,
        _ => false,
    };
    assert!(
        refused(&plan((0, 0), (6, 4)), copy(4, 0, &[]), 4),
        "elsewhere"
    );
    assert!(
        refused(&plan((0, 0), (6, 4)), copy(6, 0, &[]), 6),
        "elsewhere"
    );
    let dropped = copy(4, 0, &[Record::Dropped]);
    assert!(refused(&plan((0, 4), (6, 4)), dropped, 4), "given up since");
    let later = plan((0, 4), (6, 4));
    let (settled, _) = settle(&later, &layout(6, 0), Some(copy(6, 0, &[])), None).expect("kept");
    assert!(!later.keeps(&settled));
    let refused = later.check_succession(&settled);
    assert!(matches!(refused, Err(RecoveryError::Succession { .. })));
}

#[test]
fn a_served_copy_without_its_activation_is_refused() {
    let created = copy(4, 0, &[Record::Created { source: source(7) }]);
    let settled = settle(&plan((0, 4), (7, 4)), &layout(4, 0), Some(created), None);
    assert!(matches!(settled, Err(RecoveryError::NotActivated { .. })));
}

#[test]
fn a_copy_that_begins_empty_is_served_whatever_an_aborted_migration_has_left() {
    let created = Record::Created { source: source(7) };
    for records in [&[created][..], &[created, Record::StagingWiped]] {
        let mut copies = vec![copy(4, 0, records)];
        let settled = plan((0, 4), (0, 4)).settle(
            &layout(4, 0),
            &mut [&mut copies, &mut Vec::new()],
            Planted::default(),
        );
        assert_eq!(settled.expect("settled"), layout(4, 0));
        assert!(copies[0].is_serving() && copies[0].seq() == 0);
    }
}

#[test]
fn with_another_number_of_shards_a_committed_copy_goes_on() {
    let mut plan = plan((2, 6), (7, 5));
    plan.shards = 3;
    let (settled, epochs) = settle(&plan, &layout(0, 5), None, Some(moved(5, 2))).expect("settled");
    assert_eq!((&settled, epochs), (&layout(0, 5), [vec![], vec![5]]));
    assert!(!plan.keeps(&settled));
    assert!(plan.check_succession(&settled).is_ok());
    plan.copies[0].1 = Epoch(5);
    let same = plan.check_succession(&settled);
    assert!(matches!(same, Err(RecoveryError::Succession { .. })));
}

#[test]
fn what_a_migration_has_brought_is_never_begun_empty() {
    let is_refused = |settled: Result<_, RecoveryError>| {
        matches!(
            settled,
            Err(RecoveryError::NotHere {
                migration: MigrationId(7),
                ..
            })
        )
    };
    let plan = plan((1, 5), (7, 5));
    // The directory is older than the move.
    assert!(is_refused(settle(&plan, &layout(0, 0), None, None)));
    // It has what was here before the partition went away and came back.
    let before = Some(copy(3, 0, &[]));
    assert!(is_refused(settle(&plan, &layout(3, 0), before, None)));
    // The log was cut where it says that the copy was prepared.
    for steps in 0..2 {
        let part = Some(moved(5, steps));
        assert!(is_refused(settle(&plan, &layout(0, 5), None, part)));
    }
    let whole = Some(moved(5, 2));
    assert!(settle(&plan, &layout(0, 5), None, whole).is_ok());
}

#[test]
fn a_table_with_other_shards_or_partitions_than_the_node_has_is_refused() {
    let layout = layout(0, 0);
    let refused = |plan: Plan| plan.check(&layout).map_err(|error| error.to_string());
    assert!(refused(plan((1, 3), NEVER)).is_ok());
    let no_shard = refused(plan((2, 3), NEVER)).expect_err("two shards");
    assert!(no_shard.contains("to shard 2 of this node"), "{no_shard}");
    let mut more = plan((1, 3), NEVER);
    more.copies.push((ShardId(0), Epoch(1)));
    let no_partition = refused(more).expect_err("one partition");
    assert!(no_partition.contains("gives partition 1"), "{no_partition}");
}
