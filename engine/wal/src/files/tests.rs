use futures_lite::future::block_on;

use super::*;
use crate::disk::fault::FaultDisk;
use crate::driver::Log;
use crate::options::{LogId, OnDamage};
use crate::recover::recover;
use crate::verify::verify;
use ephesus_wire::Lsn;

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 32 << 10,
        group_bytes_max: 8 << 10,
        is_begun: true,
        ..LogOptions::new(LogId([2; 16]))
    }
}

fn open(disk: &FaultDisk, opts: &LogOptions) -> Result<Log<FaultDisk>, WalError> {
    let visit = &mut |_, _: &[u8]| Ok(());
    let opening = Log::open(disk.clone(), opts, Lsn::ZERO, 1, visit);
    Ok(block_on(opening)?.0)
}

/// Segments 1 to 3 have a record in each group; behind them an opening has begun segment 4.
fn lived() -> FaultDisk {
    let disk = FaultDisk::new(1);
    block_on(begin(&disk, Durability::Strict)).unwrap();
    let mut log = open(&disk, &options()).unwrap();
    for number in 0..20u8 {
        log.append(&[number; 100]).unwrap();
        block_on(log.commit(1)).unwrap();
    }
    open(&disk, &options()).unwrap();
    disk
}

#[test]
fn every_segment_that_is_gone_is_missed_also_the_first_and_the_last() {
    for gone in 1..=4 {
        let disk = lived();
        let name = SegmentId(gone).file_name();
        disk.lose(&name);
        match open(&disk, &options()) {
            // The next one names the second and the third, too.
            Err(WalError::LostSegment { file } | WalError::MissingSegment { file, .. }) => {
                assert_eq!(file, name);
            }
            other => panic!("{gone}: {:?}", other.map(drop)),
        }
        let report = block_on(verify(&disk, &options())).unwrap();
        assert!(report.refused.is_some_and(|text| text.contains(&name)));
        let accepting = LogOptions {
            on_damage: OnDamage::Cut,
            ..options()
        };
        open(&disk, &accepting).expect("the loss is accepted");
        open(&disk, &options()).expect("what is left is listed");
    }
}

#[test]
fn a_directory_without_files_has_lost_its_log_if_one_was_begun() {
    let disk = FaultDisk::new(1);
    let lost = open(&disk, &options());
    assert!(
        matches!(lost, Err(WalError::LostLog)),
        "{:?}",
        lost.map(drop)
    );
    // A release without lists died while it made the first segment.
    block_on(disk.create(&SegmentId(1).free_name(), 4096)).unwrap();
    open(&disk, &options()).expect("a new log");
}

#[test]
fn a_log_of_a_release_without_lists_gets_one() {
    let disk = lived();
    disk.lose(FILE_NAME);
    open(&disk, &options()).expect("it has segments");
    disk.lose(&SegmentId(3).file_name());
    assert!(open(&disk, &options()).is_err(), "listed since");
}

#[test]
fn a_damaged_list_is_refused_and_one_good_place_is_enough() {
    let disk = lived();
    disk.flip_bit(FILE_NAME, 9, 1);
    open(&disk, &options()).expect("the other place is whole");
    disk.flip_bit(FILE_NAME, 9, 1);
    disk.flip_bit(FILE_NAME, 4096 + 30, 1);
    let damaged = open(&disk, &options());
    assert!(
        matches!(damaged, Err(WalError::DamagedFile { file: FILE_NAME })),
        "{:?}",
        damaged.map(drop)
    );
}

#[test]
fn files_of_another_size_are_removed_and_never_used_again() {
    for bytes in [16 << 10, 64 << 10] {
        let disk = lived();
        let changed = LogOptions {
            segment_bytes: bytes,
            ..options()
        };
        let mut log = open(&disk, &changed).unwrap();
        for number in 0..100u8 {
            log.append(&[number; 4000]).unwrap();
            block_on(log.commit(1)).unwrap();
            block_on(log.truncate_before(log.writer().durable())).unwrap();
        }
        let names = block_on(disk.list()).unwrap();
        let segments = names
            .iter()
            .filter(|name| SegmentId::from_file_name(name).is_some());
        for name in segments {
            let len = disk.contents(name).expect("listed").len() as u64;
            assert_eq!(len, bytes, "{name}");
        }
    }
    let opts = options();
    let disk = lived();
    let recovered = block_on(recover(&disk, &opts, Lsn::ZERO, &mut |_, _| Ok(()))).unwrap();
    let opening = crate::open_writer(&disk, &opts, &recovered, Lsn::ZERO, 1);
    let mut opened = block_on(opening).unwrap();
    let small = SegmentInfo {
        id: SegmentId(1),
        bytes: 16 << 10,
    };
    let to = opened.writer.allocate_segment();
    for refused in [
        block_on(opened.files.recycle(&opts, small, to)).map(drop),
        block_on(opened.files.reuse(&opts, small, to)).map(drop),
        block_on(opened.files.shelve(&opts, small)),
        opened.writer.add_segment(SegmentInfo { id: to, ..small }),
    ] {
        assert!(
            matches!(refused, Err(WalError::SegmentSize { .. })),
            "{refused:?}"
        );
    }
}

/// Does something, and once more if that may succeed then.
fn again<T>(mut attempt: impl FnMut() -> Result<T, WalError>) -> Result<T, WalError> {
    match attempt() {
        Err(error) if error.passes() => attempt(),
        other => other,
    }
}

/// What a log does with its files; each attempt to name a segment has a number of its own.
fn use_files(files: &mut LogFiles<FaultDisk>, opts: &LogOptions) -> Result<(), WalError> {
    let [one, two, three] = [1, 2, 3].map(|id| SegmentInfo {
        id: SegmentId(id),
        bytes: 32 << 10,
    });
    let mut last = 10;
    let mut next = || {
        last += 1;
        SegmentId(last)
    };
    again(|| block_on(files.recycle(opts, one, next())))?;
    again(|| block_on(files.shelve(opts, two)))?;
    again(|| block_on(files.prepare(opts, next())))?;
    again(|| block_on(files.reuse(opts, two, next())))?;
    again(|| block_on(files.discard(three)))
}

#[test]
fn whatever_the_system_lacks_once_the_same_succeeds_later_or_at_another_start() {
    let codes = [libc::EMFILE, libc::ENOSPC, libc::EDQUOT, libc::EINTR];
    let both = [Durability::Strict, Durability::Relaxed];
    for (code, durability) in codes.iter().flat_map(|code| both.map(|kind| (*code, kind))) {
        let strict = durability == Durability::Strict;
        let opts = LogOptions {
            durability,
            ..options()
        };
        let begin = |disk: &FaultDisk| {
            let recovered = block_on(recover(disk, &opts, Lsn::ZERO, &mut |_, _| Ok(())))?;
            block_on(crate::open_writer(disk, &opts, &recovered, Lsn::ZERO, 1))
        };
        for operation in 0.. {
            let disk = lived().dsync(strict);
            let before = disk.operations();
            disk.fail_once(operation, code);
            let context = format!("{code}, {durability:?}, operation {operation}");
            let mut opened = match begin(&disk) {
                Ok(opened) => opened,
                Err(_) => {
                    disk.kill();
                    begin(&disk).unwrap_or_else(|error| panic!("{context}: {error}"))
                }
            };
            let used = use_files(&mut opened.files, &opts);
            if let Err(error) = &used {
                assert!(
                    matches!(error, WalError::Unsynced { .. }),
                    "{context}: {error}"
                );
            }
            let is_over = disk.operations() - before <= operation;
            disk.fail_once(u64::MAX / 2, code);
            let found = block_on(disk.list()).unwrap();
            let segments = found
                .iter()
                .filter(|name| SegmentId::from_file_name(name).is_some());
            assert!(
                used.is_err() || segments.count() == 4,
                "{context}: {found:?}"
            );
            for power in [false, true] {
                let disk = disk.snapshot();
                if power {
                    disk.crash();
                } else {
                    disk.kill();
                    disk.land();
                }
                let names = block_on(disk.list()).unwrap();
                let checked = block_on(check(&disk, &opts, &names));
                checked.unwrap_or_else(|error| panic!("{context}: {error}"));
                begin(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
            }
            if is_over {
                assert!(operation > 30, "all of it");
                break;
            }
        }
    }
}

#[test]
fn what_is_listed_is_there_whenever_the_power_goes() {
    let opts = options();
    for operations in 0.. {
        let disk = lived();
        let recovered = block_on(recover(&disk, &opts, Lsn::ZERO, &mut |_, _| Ok(()))).unwrap();
        let before = disk.operations();
        disk.fail_after(operations);
        let done = block_on(async {
            let opening = crate::open_writer(&disk, &opts, &recovered, Lsn::ZERO, 1);
            let mut opened = opening.await?;
            let [one, two, three] = [1, 2, 3].map(|id| SegmentInfo {
                id: SegmentId(id),
                bytes: 32 << 10,
            });
            let files = &mut opened.files;
            files.recycle(&opts, one, SegmentId(10)).await?;
            files.shelve(&opts, two).await?;
            files.prepare(&opts, SegmentId(11)).await?;
            files.reuse(&opts, two, SegmentId(12)).await?;
            files.discard(three).await
        });
        disk.crash();
        let names = block_on(disk.list()).unwrap();
        let checked = block_on(check(&disk, &opts, &names));
        checked.unwrap_or_else(|error| panic!("after {operations} operations: {error}"));
        if done.is_ok() {
            assert!(disk.operations() - before > 30, "all of it");
            return;
        }
    }
}
