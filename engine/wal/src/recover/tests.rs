use futures_lite::future::block_on;

use super::*;
use crate::disk::fault::FaultDisk;
use crate::driver::Log;
use crate::error::GroupFault;
use crate::open::open_writer;
use crate::verify::verify;

fn options() -> LogOptions {
    let opts = LogOptions::new(LogId([2; 16]));
    LogOptions {
        segment_bytes: 32 << 10,
        group_bytes_max: 8 << 10,
        ..opts
    }
}

fn open(disk: &FaultDisk, opts: &LogOptions) -> Result<(Log<FaultDisk>, Recovered), WalError> {
    block_on(Log::open(disk.clone(), opts, Lsn::ZERO, 1, &mut |_, _| {
        Ok(())
    }))
}

/// Twenty records, each in a group of its own: seven blocks of the first segment after its opening,
/// then eight of each following one.
fn twenty(opts: &LogOptions) -> FaultDisk {
    let disk = FaultDisk::new(1);
    let (mut log, _) = open(&disk, opts).unwrap();
    for number in 0..20u8 {
        log.append(&[number; 100]).unwrap();
        block_on(log.commit(1)).unwrap();
    }
    disk
}

fn name(id: u64) -> String {
    SegmentId(id).file_name()
}

fn visited(disk: &FaultDisk, opts: &LogOptions) -> Result<(Vec<u64>, Recovered), WalError> {
    let mut lsns = Vec::new();
    let recovered = block_on(recover(disk, opts, Lsn::ZERO, &mut |lsn, _| {
        lsns.push(lsn.0);
        Ok(())
    }))?;
    Ok((lsns, recovered))
}

#[test]
fn a_flipped_bit_in_the_middle_is_refused_with_file_and_offset() {
    let disk = twenty(&options());
    disk.flip_bit(&name(2), 2 * 4096 + 150, 3);
    match visited(&disk, &options()) {
        Err(WalError::Damage {
            file,
            offset,
            lsn,
            fault: GroupFault::Checksum,
        }) => {
            assert_eq!((file, offset, lsn), (name(2), 8192, Lsn(10)));
        }
        other => panic!("{other:?}"),
    }
    let report = block_on(verify(&disk, &options())).unwrap();
    assert!(!report.is_sound());
    assert_eq!((report.damage[0].offset, report.records), (8192, 19));
    assert_eq!(report.segments[1].groups, 7);
}

#[test]
fn skipping_loses_the_damaged_group_only_and_cutting_everything_behind() {
    let disk = twenty(&options());
    disk.flip_bit(&name(2), 2 * 4096 + 150, 3);
    let skip = LogOptions {
        on_damage: OnDamage::Skip,
        ..options()
    };
    let (lsns, recovered) = visited(&disk, &skip).unwrap();
    assert_eq!(lsns, (1..=9).chain(11..=20).collect::<Vec<_>>());
    assert_eq!(recovered.damage.len(), 1);

    let cut = LogOptions {
        on_damage: OnDamage::Cut,
        ..options()
    };
    let (mut log, recovered) = open(&disk, &cut).unwrap();
    assert_eq!(recovered.last_lsn, Lsn(9));
    assert_eq!(
        log.append(b"new").unwrap(),
        Lsn(21),
        "cut LSNs are not used again"
    );
    block_on(log.commit(1)).unwrap();
    let (lsns, _) = visited(&disk, &options()).unwrap();
    assert_eq!(lsns, (1..=9).chain([21]).collect::<Vec<_>>());
}

#[test]
fn a_flipped_bit_in_the_last_group_is_a_torn_tail() {
    let disk = twenty(&options());
    disk.flip_bit(&name(3), 4 * 4096 + 140, 0);
    let (lsns, recovered) = visited(&disk, &options()).unwrap();
    assert_eq!(lsns.len(), 19);
    let torn = recovered.torn.unwrap();
    assert_eq!(
        (torn.segment, torn.offset, torn.lsn),
        (SegmentId(3), 4 * 4096, Lsn(20))
    );
}

#[test]
fn a_log_whose_only_group_is_bad_is_no_empty_one() {
    let disk = FaultDisk::new(1);
    let (mut log, _) = open(&disk, &options()).unwrap();
    while log.segments().count() < 2 {
        log.append(&[1; 3000]).unwrap();
        block_on(log.commit(1)).unwrap();
    }
    block_on(log.truncate_before(log.writer().durable())).unwrap();
    assert_eq!(
        log.segments().map(|s| s.id).collect::<Vec<_>>(),
        [SegmentId(2)]
    );
    drop(log);
    assert_eq!(visited(&disk, &options()).unwrap().0.len(), 1);
    disk.flip_bit(&name(2), 1500, 3);
    match visited(&disk, &options()) {
        Err(WalError::Damage { file, offset, .. }) => assert_eq!((file, offset), (name(2), 0)),
        other => panic!("{other:?}"),
    }
    let accepting = LogOptions {
        on_damage: OnDamage::Cut,
        ..options()
    };
    let (lsns, recovered) = visited(&disk, &accepting).unwrap();
    assert!(lsns.is_empty() && recovered.damage.len() == 1);
}

#[test]
fn a_mark_turns_a_bad_last_group_into_damage() {
    let disk = FaultDisk::new(1);
    let (mut log, _) = open(&disk, &options()).unwrap();
    log.append(b"last").unwrap();
    block_on(log.mark(1)).unwrap();
    disk.flip_bit(&name(1), 4096 + 133, 0);
    assert!(matches!(
        visited(&disk, &options()),
        Err(WalError::Damage {
            offset: 4096,
            lsn: Lsn(1),
            ..
        })
    ));
}

#[test]
fn a_bad_opening_is_damage_even_before_a_single_group() {
    let disk = FaultDisk::new(1);
    let (mut log, _) = open(&disk, &options()).unwrap();
    log.append(b"only").unwrap();
    block_on(log.commit(1)).unwrap();
    disk.flip_bit(&name(1), 20, 0);
    assert!(matches!(
        visited(&disk, &options()),
        Err(WalError::Damage { offset: 0, .. })
    ));
}

#[test]
fn a_missing_segment_is_named() {
    let disk = twenty(&options());
    disk.lose(&name(2));
    match visited(&disk, &options()) {
        Err(WalError::MissingSegment { file, next }) => {
            assert_eq!((file, next), (name(2), name(3)))
        }
        other => panic!("{other:?}"),
    }
    assert!(
        block_on(verify(&disk, &options()))
            .unwrap()
            .refused
            .is_some()
    );
}

#[test]
fn records_missing_at_the_front_are_named() {
    let disk = twenty(&options());
    disk.lose(&name(1));
    // As in a log of a release without lists, where nobody misses the file itself.
    disk.lose(files::FILE_NAME);
    let from = |lsn| block_on(recover(&disk, &options(), Lsn(lsn), &mut |_, _| Ok(())));
    assert!(matches!(
        from(7),
        Err(WalError::MissingRecords {
            wanted: Lsn(7),
            available: Lsn(8)
        })
    ));
    assert_eq!(from(8).unwrap().records, 13);
}

#[test]
fn a_foreign_log_is_refused() {
    let disk = twenty(&options());
    let other = LogOptions {
        log_id: LogId([9; 16]),
        ..options()
    };
    assert!(matches!(
        visited(&disk, &other),
        Err(WalError::ForeignLog { .. })
    ));
    assert_eq!(block_on(peek_log_id(&disk)).unwrap(), Some(LogId([2; 16])));
}

#[test]
fn openings_without_records_do_not_pile_up_files() {
    let disk = twenty(&options());
    for _ in 0..10 {
        let (log, recovered) = open(&disk, &options()).unwrap();
        assert_eq!(recovered.last_lsn, Lsn(20));
        assert_eq!(log.segments().count(), 4);
    }
    let names = block_on(crate::disk::Disk::list(&disk)).unwrap();
    assert_eq!(names.len(), 4 + 1, "with their list: {names:?}");
}

#[test]
fn the_floor_is_respected() {
    let disk = twenty(&options());
    let (_, recovered) = visited(&disk, &options()).unwrap();
    let opts = options();
    let opened = block_on(crate::open_writer(&disk, &opts, &recovered, Lsn(500), 1));
    assert_eq!(opened.unwrap().writer.append(b"x"), Lsn(501));
}

#[test]
fn an_opening_may_set_the_clock_back_and_nothing_else_may() {
    let disk = FaultDisk::new(1);
    let (mut log, _) = open(&disk, &options()).unwrap();
    log.append(b"ahead").unwrap();
    block_on(log.commit(1_000_000)).unwrap();
    drop(log);
    let (_, mut recovered) = visited(&disk, &options()).unwrap();
    assert_eq!(recovered.wall_clock_ms, 1_000_000);
    recovered.wall_clock_ms = 5;
    block_on(open_writer(&disk, &options(), &recovered, Lsn::ZERO, 5)).unwrap();
    let (lsns, recovered) = visited(&disk, &options()).unwrap();
    assert_eq!((lsns, recovered.wall_clock_ms), (vec![1], 5));
    // Unless it is told to, an opening goes on from there.
    block_on(open_writer(&disk, &options(), &recovered, Lsn::ZERO, 1)).unwrap();
    let (_, recovered) = visited(&disk, &options()).unwrap();
    assert_eq!(recovered.wall_clock_ms, 5);
}
