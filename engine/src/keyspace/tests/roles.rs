//! Replay of records that say what a copy is.

use ephesus_wire::block::BlockBuilder;
use ephesus_wire::record::{ImageEntry, ImagesIter, Prepared, Record, RecordMeta, Source};
use ephesus_wire::{Epoch, Lsn, MigrationId, NodeId, PartitionId, ShardId};

use crate::image::Manifest;
use crate::keyspace::Partition;
use crate::keyspace::replay::{Rebuild, Replay, ReplayError};
use crate::migration::StagingState;
use crate::table::KeyHasher;

const ID: PartitionId = PartitionId(1);
const EPOCH: Epoch = Epoch(4);
const FROM: Source = Source {
    migration: MigrationId(9),
    node: NodeId([1; 16]),
    shard: ShardId(0),
};
const PREPARED: Prepared = Prepared {
    migration: MigrationId(9),
    count: 1,
    digest: [2, 3],
};
const CREATED: Record<'_> = Record::Created { source: FROM };
const PUT: Record<'_> = Record::Put {
    key: b"k",
    value: b"v",
    expire_at_ms: 0,
};

fn meta(seq: u64) -> RecordMeta {
    RecordMeta {
        partition: ID,
        epoch: EPOCH,
        seq,
    }
}

fn hasher() -> KeyHasher {
    KeyHasher::with_seeds([1; 4])
}

/// Replays records with these sequences behind `rebuild`.
fn replay(rebuild: Rebuild, records: &[(u64, Record<'_>)]) -> Result<Partition, ReplayError> {
    let mut replay = Replay::new(hasher(), 4, vec![rebuild]);
    for (lsn, (seq, record)) in (101..).zip(records) {
        replay.record(Lsn(lsn), &record.to_vec(meta(*seq)))?;
    }
    Ok(replay.finish()?.pop().expect("one copy"))
}

fn dense<'a>(records: &[Record<'a>]) -> Vec<(u64, Record<'a>)> {
    (1..).zip(records.iter().copied()).collect()
}

/// A copy that begins with an image of nothing, up to record 10.
fn imaged(mut rebuild: Rebuild) -> Rebuild {
    let manifest = Manifest {
        image: crate::image::ImageId {
            partition: ID,
            epoch: EPOCH,
            generation: crate::image::Generation(1),
        },
        log: [0; 16],
        lsn_start: Lsn(100),
        lsn_end: Lsn(100),
        seq_start: 10,
        count: 0,
        digest: [0; 2],
        blocks: 0,
        bytes: 0,
        created_ms: 0,
    };
    rebuild.image_complete(&manifest).expect("an empty image");
    rebuild
}

fn block() -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    let mut block = Vec::new();
    builder.push(b"k", b"v", 0, |_| unreachable!("it fits"));
    builder.finish(|built| block.extend_from_slice(built));
    block
}

#[test]
fn the_last_record_that_tells_it_decides_what_a_copy_is() {
    let block = block();
    let block = Record::Block(&block);
    let prepared = Record::Prepared(PREPARED);
    let activated = |start_seq| Record::Activated { start_seq };
    let serving = |copy: &Partition| copy.is_serving();
    let is = |copy: &Partition, state| copy.incoming().map(|i| i.state()) == Some(state);
    for named in [false, true] {
        let rebuild = || match named {
            true => Rebuild::staging(ID, EPOCH, FROM),
            false => Rebuild::new(ID, EPOCH),
        };
        let run = |records: &[Record<'_>]| {
            let copy = replay(rebuild(), &dense(records)).expect("legal");
            assert_eq!(copy.seq(), records.len() as u64);
            copy
        };
        let copy = run(&[CREATED, block, PUT]);
        assert!(is(&copy, StagingState::Broken) && copy.table.len() == 1);
        assert_eq!(copy.incoming().expect("staging").source(), FROM);
        let copy = run(&[CREATED, block, PUT, Record::StagingWiped]);
        assert!(is(&copy, StagingState::Wiped) && copy.table.is_empty());
        assert_eq!(copy.pin(), None);
        let copy = run(&[CREATED, block, prepared]);
        let held = copy.incoming().expect("staging").contents();
        assert!(is(&copy, StagingState::Prepared(held, Lsn(103))));
        assert_eq!((held.count, held.digest), (1, [2, 3]));
        assert_eq!(copy.kept_from(), Some(Lsn(103)));
        let copy = run(&[CREATED, block, prepared, prepared]);
        assert_eq!(copy.kept_from(), Some(Lsn(104)), "said again");
        let copy = run(&[CREATED, block, prepared, activated(5), PUT]);
        assert!(serving(&copy) && copy.table.len() == 1);
        assert_eq!(copy.kept_from(), named.then_some(Lsn(104)));
        let copy = run(&[CREATED, block, prepared, activated(5), Record::Dropped]);
        assert!(copy.is_empty_remnant() && copy.table.is_empty());
        assert_eq!(copy.kept_from(), Some(Lsn(105)));
        let copy = run(&[CREATED, prepared, Record::StagingWiped]);
        assert!(is(&copy, StagingState::Wiped));
    }
    let first = Record::Created {
        source: Source::NONE,
    };
    let copy = replay(Rebuild::new(ID, EPOCH), &dense(&[first, PUT]));
    assert!(serving(&copy.expect("legal")));
}

#[test]
fn a_copy_that_begins_anew_has_nothing_from_before() {
    let block = block();
    let records = [
        (1, CREATED),
        (2, PUT),
        (3, Record::StagingWiped),
        (1, CREATED),
        (2, Record::Mark),
        (1, CREATED),
        (2, Record::Block(&block)),
    ];
    let copy = replay(Rebuild::staging(ID, EPOCH, FROM), &records).expect("legal");
    assert_eq!((copy.seq(), copy.table.len()), (2, 1));
    assert_eq!(copy.pin(), Some(Lsn(106)));
    let behind_image = imaged(Rebuild::staging(ID, EPOCH, FROM));
    let copy = replay(behind_image, &records[3..5]).expect("legal");
    assert_eq!((copy.seq(), copy.changes_since_image()), (2, 2));
}

/// A served copy that begins empty logs nothing to say so.
#[test]
fn a_copy_that_begins_empty_has_nothing_of_an_aborted_migration_of_its_epoch() {
    let left = [
        (1, CREATED),
        (2, PUT),
        (3, Record::Prepared(PREPARED)),
        (4, Record::StagingWiped),
    ];
    let key = |key: &'static [u8]| Record::Put {
        key,
        value: b"v",
        expire_at_ms: 0,
    };
    let own = [(1, key(b"a")), (2, key(b"b"))];
    for from in 0..left.len() {
        // Nothing has wiped what a start finds void.
        for to in from..=left.len() {
            let records: Vec<_> = left[from..to].iter().chain(&own).copied().collect();
            let copy = replay(Rebuild::new(ID, EPOCH), &records).expect("legal");
            assert!(copy.is_serving() && copy.seq() == 2, "{from}..{to}");
            assert_eq!(copy.table.len(), 2, "{from}..{to}");
            assert_eq!(copy.pin(), Some(Lsn(101 + (to - from) as u64)));
        }
    }
    let mut cut = Replay::new(hasher(), 4, vec![Rebuild::new(ID, EPOCH)]);
    cut = cut.going_on_behind_gaps();
    for (lsn, (seq, record)) in (101..).zip([left[1]].iter().chain(&own)) {
        let record = record.to_vec(meta(*seq));
        cut.record(Lsn(lsn), &record).expect("legal");
    }
    let copy = cut.finish().expect("nothing is missing").remove(0);
    assert_eq!(copy.table.len(), 2);
    for (seq, record) in [(1, PUT), (1, Record::Prepared(PREPARED))] {
        let refused = replay(
            Rebuild::new(ID, EPOCH),
            &[(1, PUT), (2, PUT), (seq, record)],
        );
        assert!(refused.is_err(), "served since the first record");
    }
}

#[test]
fn an_image_of_a_copy_that_begins_empty_says_what_it_is() {
    let mut replay = Replay::new(hasher(), 4, vec![imaged(Rebuild::new(ID, EPOCH))]);
    let mut body = Vec::new();
    let entry = ImageEntry {
        partition: ID,
        epoch: EPOCH,
        generation: 3,
    };
    ImagesIter::encode([entry], &mut body);
    let images = Record::Images(ImagesIter::new(&body).expect("just encoded"));
    let images = images.to_vec(RecordMeta::default());
    let covered = [CREATED.to_vec(meta(1)), images]
        .into_iter()
        .chain([Record::StagingWiped.to_vec(meta(2)), PUT.to_vec(meta(1))]);
    for (lsn, record) in (90..).zip(covered) {
        replay.record(Lsn(lsn), &record).expect("covered");
    }
    replay
        .record(Lsn(101), &PUT.to_vec(meta(11)))
        .expect("legal");
    assert!(replay.lost_image().is_none(), "that was the other copy's");
    let copy = replay.finish().expect("complete").remove(0);
    assert!(copy.is_serving() && copy.seq() == 11);
}

#[test]
fn behind_an_image_a_copy_may_be_in_the_midst_of_a_move() {
    let block = block();
    let prepared = Record::Prepared(PREPARED);
    let activated = Record::Activated { start_seq: 12 };
    let run = |rebuild: Rebuild, record: Record<'_>| replay(imaged(rebuild), &[(11, record)]);
    for named in [false, true] {
        let rebuild = || match named {
            true => Rebuild::staging(ID, EPOCH, FROM),
            false => Rebuild::new(ID, EPOCH),
        };
        let state = |record| {
            let copy = run(rebuild(), record).expect("legal");
            copy.incoming().map(|i| i.state())
        };
        assert_eq!(state(Record::Block(&block)), Some(StagingState::Broken));
        assert_eq!(state(Record::StagingWiped), Some(StagingState::Wiped));
        assert!(matches!(state(prepared), Some(StagingState::Prepared(..))));
        assert!(run(rebuild(), activated).expect("legal").is_serving());
        let plain = run(rebuild(), PUT).expect("legal");
        assert_eq!(plain.is_serving(), !named, "as the layout says");
    }
}

#[test]
fn records_in_an_impossible_order_are_refused() {
    let block = block();
    let block = Record::Block(&block);
    let prepared = Record::Prepared(PREPARED);
    let other = Record::Prepared(Prepared {
        migration: MigrationId(8),
        ..PREPARED
    });
    let activated = |start_seq| Record::Activated { start_seq };
    let wiped = Record::StagingWiped;
    let orders: [&[Record<'_>]; 14] = [
        &[block],
        &[prepared],
        &[wiped],
        &[activated(2)],
        &[PUT, CREATED],
        &[CREATED, activated(3)],
        &[CREATED, Record::Dropped],
        &[CREATED, other],
        &[CREATED, prepared, PUT],
        &[CREATED, prepared, block],
        &[CREATED, prepared, activated(5)],
        &[CREATED, wiped, PUT],
        &[CREATED, prepared, activated(4), block],
        &[PUT, Record::Dropped, PUT],
    ];
    for records in orders {
        let refused = replay(Rebuild::new(ID, EPOCH), &dense(records));
        let lsn = Lsn(100 + records.len() as u64);
        match refused {
            Err(ReplayError::Unexpected { lsn: found }) => assert_eq!(found, lsn),
            Err(other) => panic!("{records:?}: {other}"),
            Ok(_) => panic!("{records:?} were taken"),
        }
    }
    for records in [
        vec![(1, CREATED), (2, prepared), (1, CREATED)],
        vec![(1, PUT), (2, PUT), (1, CREATED)],
    ] {
        let refused = replay(Rebuild::new(ID, EPOCH), &records);
        assert!(matches!(refused, Err(ReplayError::Unexpected { .. })));
    }
    let bad = replay(
        Rebuild::new(ID, EPOCH),
        &dense(&[CREATED, Record::Block(b"no")]),
    );
    assert!(matches!(bad, Err(ReplayError::Import { .. })));
    let gap = replay(Rebuild::new(ID, EPOCH), &[(1, CREATED), (3, PUT)]);
    assert!(matches!(gap, Err(ReplayError::Gap { .. })));
}

#[test]
fn records_of_copies_that_are_not_named_are_skipped_only_when_asked_to() {
    let foreign = RecordMeta {
        partition: PartitionId(2),
        ..meta(5)
    };
    let later = RecordMeta {
        epoch: Epoch(5),
        ..meta(1)
    };
    let records = [
        PUT.to_vec(foreign),
        CREATED.to_vec(later),
        Record::Dropped.to_vec(foreign),
        PUT.to_vec(meta(1)),
    ];
    let mut strict = Replay::new(hasher(), 4, vec![Rebuild::new(ID, EPOCH)]);
    let refused = strict.record(Lsn(1), &records[0]);
    assert!(matches!(refused, Err(ReplayError::Foreign { .. })));
    let refused = strict.record(Lsn(1), &records[1]);
    assert!(matches!(refused, Err(ReplayError::Epoch { .. })));

    let lax = Replay::new(hasher(), 4, vec![Rebuild::new(ID, EPOCH)]);
    let mut lax = lax.skipping_others();
    for (lsn, record) in (1..).zip(&records) {
        lax.record(Lsn(lsn), record).expect("skipped or applied");
    }
    let damaged = lax.record(Lsn(9), b"no record");
    assert!(matches!(damaged, Err(ReplayError::Record { .. })));
    let gap = lax.record(Lsn(10), &PUT.to_vec(meta(3)));
    assert!(gap.is_ok(), "told at the end");
    assert!(matches!(lax.finish(), Err(ReplayError::Gap { .. })));
}

#[test]
fn missing_records_are_gone_past_only_when_damage_was_to_be_skipped() {
    let records = [(1, 1), (2, 4), (3, 5)].map(|(lsn, seq)| (Lsn(lsn), PUT.to_vec(meta(seq))));
    for (is_damaged, is_asked) in [(true, true), (false, true), (true, false)] {
        let mut replay = Replay::new(hasher(), 4, vec![Rebuild::new(ID, EPOCH)]);
        if is_asked {
            replay = replay.going_on_behind_gaps();
        }
        for (lsn, record) in &records {
            replay.record(*lsn, record).expect("told at the end");
        }
        if is_damaged {
            replay.accept_gaps();
        }
        match replay.finish() {
            Ok(partitions) => {
                assert!(is_damaged && is_asked);
                assert_eq!(partitions[0].seq(), 5);
            }
            Err(error) => {
                assert!(!(is_damaged && is_asked), "{error}");
                assert!(matches!(error, ReplayError::Gap { .. }));
            }
        }
    }
}

#[test]
fn a_partition_that_has_lost_records_holds_the_log_from_before_them() {
    let lost = Replay::new(hasher(), 4, vec![Rebuild::new(ID, EPOCH)]);
    let mut lost = lost.going_on_behind_gaps();
    lost.record(Lsn(7), &PUT.to_vec(meta(4))).expect("applied");
    lost.accept_gaps();
    let partitions = lost.finish().expect("accepted");
    assert_eq!(partitions[0].pin(), Some(Lsn(1)), "nothing of it is imaged");
}

/// What migration 8 has left of a copy that migration 9 fills now.
fn left_behind() -> [(u64, Record<'static>); 3] {
    let source = Source {
        migration: MigrationId(8),
        ..FROM
    };
    let prepared = Prepared {
        migration: MigrationId(8),
        ..PREPARED
    };
    [
        (1, Record::Created { source }),
        (2, PUT),
        (3, Record::Prepared(prepared)),
    ]
}

#[test]
fn what_an_earlier_migration_has_left_is_broken_and_not_in_the_next_ones_way() {
    let own = [(1, CREATED), (2, PUT), (3, Record::Prepared(PREPARED))];
    let left = left_behind();
    for from in 0..3 {
        let before = &left[from..];
        let copy = replay(Rebuild::staging(ID, EPOCH, FROM), before).expect("passed over");
        let incoming = copy.incoming().expect("staging");
        assert_eq!(incoming.state(), StagingState::Broken, "from {from}");
        assert_eq!(incoming.source(), FROM);
        let both: Vec<_> = before.iter().chain(&own).copied().collect();
        let copy = replay(Rebuild::staging(ID, EPOCH, FROM), &both).expect("legal");
        assert!(copy.is_prepared() && copy.table.len() == 1);
        assert_eq!(copy.incoming().expect("staging").source(), FROM);

        let activated = (4, Record::Activated { start_seq: 5 });
        let all: Vec<_> = both.iter().copied().chain([activated, (5, PUT)]).collect();
        let copy = replay(Rebuild::new(ID, EPOCH), &all).expect("legal");
        assert!(copy.is_serving() && copy.seq() == 5, "from {from}");
    }
    let gap = replay(Rebuild::new(ID, EPOCH), &left[1..]);
    assert!(matches!(gap, Err(ReplayError::Gap { .. })), "it is served");
    let cut = [own[0], own[2]];
    let gap = replay(Rebuild::staging(ID, EPOCH, FROM), &cut);
    assert!(
        matches!(gap, Err(ReplayError::Gap { .. })),
        "it was prepared"
    );
    let wiped = [own[0], own[2], (4, Record::StagingWiped)];
    assert!(replay(Rebuild::staging(ID, EPOCH, FROM), &wiped).is_ok());
}

#[test]
fn a_lost_image_is_missed_of_copies_that_count() {
    let entry = ImageEntry {
        partition: ID,
        epoch: EPOCH,
        generation: 1,
    };
    let lost = |rebuild: Rebuild, records: &[(u64, Record<'_>)]| {
        let mut body = Vec::new();
        ImagesIter::encode([entry], &mut body);
        let images = Record::Images(ImagesIter::new(&body).expect("just encoded"));
        let mut replay = Replay::new(hasher(), 4, vec![rebuild]);
        let images = images.to_vec(RecordMeta::default());
        replay.record(Lsn(100), &images).expect("an image");
        for (lsn, (seq, record)) in (101..).zip(records) {
            let record = record.to_vec(meta(*seq));
            replay.record(Lsn(lsn), &record).expect("told at the end");
        }
        replay.lost_image().is_some()
    };
    let staging = || Rebuild::staging(ID, EPOCH, FROM);
    let prepared = (11, Record::Prepared(PREPARED));
    assert!(lost(staging(), &[prepared]));
    assert!(lost(
        staging(),
        &[(11, Record::Activated { start_seq: 12 })]
    ));
    assert!(!lost(staging(), &[prepared, (12, Record::StagingWiped)]));
    assert!(!lost(staging(), &[(11, PUT)]), "it is wiped anyway");
    assert!(
        !lost(staging(), &left_behind()[2..]),
        "of another migration"
    );
    assert!(!lost(staging(), &[(11, PUT), (1, CREATED), prepared]));
    assert!(!lost(imaged(staging()), &[prepared]));
    assert!(lost(Rebuild::new(ID, EPOCH), &[(11, PUT)]));
    let begun = [(11, PUT), (1, CREATED), (2, PUT)];
    assert!(!lost(Rebuild::new(ID, EPOCH), &begun), "before it began");
}

#[test]
fn records_that_an_image_covers_say_what_its_copy_is() {
    let prepared = Record::Prepared(PREPARED);
    let activated = Record::Activated { start_seq: 12 };
    for covered in [prepared, activated] {
        let staging = imaged(Rebuild::staging(ID, EPOCH, FROM));
        let mut replay = Replay::new(hasher(), 4, vec![staging]);
        replay
            .record(Lsn(97), &CREATED.to_vec(meta(1)))
            .expect("covered");
        replay
            .record(Lsn(98), &covered.to_vec(meta(9)))
            .expect("covered");
        replay
            .record(Lsn(99), &Record::Mark.to_vec(meta(10)))
            .expect("covered");
        let copy = replay.finish().expect("complete").remove(0);
        assert_eq!(copy.is_prepared(), covered == prepared);
        assert_eq!(copy.is_serving(), covered == activated);
        assert_eq!((copy.kept_from(), copy.seq()), (Some(Lsn(98)), 10));
    }
}
