use futures_lite::future::block_on;

use super::*;
use crate::disk::fault::FaultDisk;
use crate::open::{Opened, open_writer};
use crate::options::{Durability, OnDamage};
use crate::recover::{Recovered, recover};
use crate::writer::{LogWriter, WriteOp};

fn options(durability: Durability) -> LogOptions {
    LogOptions {
        durability,
        segment_bytes: 64 << 10,
        group_bytes_max: 16 << 10,
        in_flight_group_bytes: 16 << 10,
        mapped_groups: 3,
        mapped_group_bytes: 8 << 10,
        ..LogOptions::new(LogId([3; 16]))
    }
}

/// Recovers and opens; the records found.
fn reopen(
    disk: &FaultDisk,
    durability: Durability,
) -> (Opened<FaultDisk>, Recovered, Vec<Vec<u8>>) {
    reopen_with(disk, &options(durability))
}

fn reopen_with(
    disk: &FaultDisk,
    opts: &LogOptions,
) -> (Opened<FaultDisk>, Recovered, Vec<Vec<u8>>) {
    let mut found = Vec::new();
    let mut keep = |_, record: &[u8]| {
        found.push(record.to_vec());
        Ok(())
    };
    let (opened, recovered) = block_on(async {
        let recovered = recover(disk, opts, Lsn::ZERO, &mut keep).await.unwrap();
        let opened = open_writer(disk, opts, &recovered, Lsn::ZERO, 0).await;
        (opened.unwrap(), recovered)
    });
    (opened, recovered, found)
}

fn relaxed() -> (FaultDisk, Opened<FaultDisk>) {
    let disk = FaultDisk::new(5).dsync(false);
    let (opened, _, found) = reopen(&disk, Durability::Relaxed);
    assert!(found.is_empty());
    (disk, opened)
}

fn write(opened: &mut Opened<FaultDisk>, op: WriteOp) {
    let written = block_on(opened.segment.file.write_at(&op.buf, op.offset));
    let bytes = op.buf.len();
    opened.writer.complete(op, written.map(|()| bytes)).unwrap();
}

fn append(writer: &mut LogWriter, texts: &[&str]) {
    for text in texts {
        writer.append(text.as_bytes());
    }
}

fn texts(found: &[Vec<u8>]) -> Vec<&str> {
    let text = |record| std::str::from_utf8(record).unwrap();
    found.iter().map(|record| text(record)).collect()
}

#[test]
fn what_is_published_outlives_the_process_and_is_logged_by_the_next() {
    let (disk, mut opened) = relaxed();
    append(&mut opened.writer, &["a", "b"]);
    assert_eq!(opened.writer.committed(), Lsn(0));
    assert_eq!(opened.writer.publish(0), Lsn(2));
    append(&mut opened.writer, &["c"]);
    assert_eq!(opened.writer.publish(0), Lsn(3));
    append(&mut opened.writer, &["never published"]);
    drop(opened);
    disk.kill();

    let (mut opened, recovered, found) = reopen(&disk, Durability::Relaxed);
    assert_eq!(texts(&found), ["a", "b", "c"]);
    assert_eq!((recovered.last_lsn, recovered.published.len()), (Lsn(0), 3));
    assert_eq!(opened.writer.durable(), opened.writer.appended());
    append(&mut opened.writer, &["d"]);
    opened.writer.publish(0);
    drop(opened);
    disk.kill();

    let (opened, recovered, found) = reopen(&disk, Durability::Strict);
    assert_eq!(texts(&found), ["a", "b", "c", "d"]);
    assert_eq!(recovered.published.len(), 1);
    assert!(disk.contents(FILE_NAME).is_none(), "strict logs need none");
    drop(opened);
    disk.crash();
    let (_, recovered, found) = reopen(&disk, Durability::Strict);
    assert_eq!(texts(&found), ["a", "b", "c", "d"]);
    assert!(recovered.published.is_empty());
}

#[test]
fn the_wall_clock_of_what_is_published_counts() {
    let (disk, mut opened) = relaxed();
    append(&mut opened.writer, &["a"]);
    opened.writer.publish(70);
    append(&mut opened.writer, &["b"]);
    opened.writer.publish(60);
    drop(opened);
    disk.kill();
    let (_, recovered, _) = reopen(&disk, Durability::Relaxed);
    assert_eq!(recovered.wall_clock_ms, 70);
}

#[test]
fn a_group_that_is_being_written_is_still_there() {
    let (disk, mut opened) = relaxed();
    append(&mut opened.writer, &["a"]);
    opened.writer.publish(0);
    let op = opened.writer.next_write(0).unwrap();
    append(&mut opened.writer, &["b"]);
    opened.writer.publish(0);
    drop((op, opened));
    disk.kill();
    let (_, recovered, found) = reopen(&disk, Durability::Relaxed);
    assert_eq!(texts(&found), ["a", "b"]);
    assert_eq!(recovered.published.len(), 2);
}

#[test]
fn written_groups_are_not_found_twice_and_their_slots_are_used_again() {
    let (disk, mut opened) = relaxed();
    for round in 0..10 {
        append(&mut opened.writer, &[&format!("{round}")]);
        assert_eq!(opened.writer.publish(0), opened.writer.appended());
        let op = opened.writer.next_write(0).unwrap();
        assert!(op.buf.is_mapped());
        write(&mut opened, op);
    }
    append(&mut opened.writer, &["last"]);
    opened.writer.publish(0);
    drop(opened);
    disk.kill();
    let (_, recovered, found) = reopen(&disk, Durability::Relaxed);
    assert_eq!(found.len(), 11);
    assert_eq!(texts(&found)[10], "last");
    assert_eq!(recovered.published.len(), 1);
}

#[test]
fn a_record_without_room_in_a_slot_is_committed_by_its_write_alone() {
    let (disk, mut opened) = relaxed();
    append(&mut opened.writer, &["a"]);
    opened.writer.append(&[7; 9000]);
    append(&mut opened.writer, &["b"]);
    // `b` shares the group of the large record.
    assert_eq!(opened.writer.publish(0), Lsn(1));
    opened.writer.append(&[8; 8000]);
    assert_eq!(opened.writer.publish(0), Lsn(1));
    while let Some(op) = opened.writer.next_write(0) {
        write(&mut opened, op);
    }
    assert_eq!(opened.writer.publish(0), Lsn(4));
    drop(opened);
    disk.kill();
    let (_, _, found) = reopen(&disk, Durability::Relaxed);
    assert_eq!(found.len(), 4);
}

/// The file after two publications of one group: "a", then "b".
fn two_publications() -> (FaultDisk, FileHeader) {
    let (disk, mut opened) = relaxed();
    for text in ["a", "b"] {
        append(&mut opened.writer, &[text]);
        opened.writer.publish(0);
    }
    drop(opened);
    disk.kill();
    (disk, FileHeader::new(3, 8 << 10))
}

fn slot_in_use(disk: &FaultDisk, header: &FileHeader) -> usize {
    let bytes = disk.contents(FILE_NAME).unwrap();
    let mut slots = (0..3).map(|slot| header.slot_at(slot));
    slots
        .find(|at| bytes[*at..at + CELL_BYTES] != [0; CELL_BYTES])
        .unwrap()
}

#[test]
fn a_cell_that_was_being_stored_leaves_the_one_before() {
    for byte in 0..CELL_BYTES {
        let (disk, header) = two_publications();
        let second = slot_in_use(&disk, &header) + CELL_BYTES;
        disk.flip_bit(FILE_NAME, (second + byte) as u64, 3);
        let (_, _, found) = reopen(&disk, Durability::Relaxed);
        assert_eq!(texts(&found), ["a"], "byte {byte}");
    }
}

#[test]
fn a_bad_record_ends_what_is_found() {
    let (disk, header) = two_publications();
    let group = slot_in_use(&disk, &header) + HEAD_BYTES;
    disk.flip_bit(FILE_NAME, (group + HEADER_BYTES + 5 + 4) as u64, 0);
    let (_, _, found) = reopen(&disk, Durability::Relaxed);
    assert_eq!(texts(&found), ["a"]);
    let (disk, header) = two_publications();
    let group = slot_in_use(&disk, &header) + HEAD_BYTES;
    disk.flip_bit(FILE_NAME, (group + HEADER_BYTES) as u64, 0);
    let (_, _, found) = reopen(&disk, Durability::Relaxed);
    assert!(found.is_empty());
}

#[test]
fn a_file_that_is_none_or_of_another_shape_is_damage_and_made_anew_if_that_is_accepted() {
    for byte in [0, 8, 12, 16, 20] {
        let (disk, _) = two_publications();
        disk.flip_bit(FILE_NAME, byte, 1);
        let mut opts = options(Durability::Relaxed);
        let refused = block_on(recover(&disk, &opts, Lsn::ZERO, &mut |_, _| Ok(())));
        let is_damage = matches!(refused, Err(WalError::DamagedFile { file: FILE_NAME }));
        assert!(is_damage, "byte {byte}: {refused:?}");
        opts.on_damage = OnDamage::Cut;
        let (mut opened, _, found) = reopen_with(&disk, &opts);
        assert!(found.is_empty(), "byte {byte}");
        append(&mut opened.writer, &["c"]);
        assert_eq!(opened.writer.publish(0), opened.writer.appended());
        drop(opened);
        disk.kill();
        let (_, _, found) = reopen(&disk, Durability::Relaxed);
        assert_eq!(texts(&found), ["c"]);
    }
}

#[test]
fn runs_continue_one_another_or_end() {
    let record = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let run = |first_lsn, texts: &[&str]| {
        let records: Vec<u8> = texts.iter().flat_map(|text| record(text)).collect();
        (first_lsn, texts.len() as u32, records)
    };
    let owned = [
        run(7, &["g", "h"]),
        run(3, &["c"]),
        run(3, &["c", "d", "e"]),
        run(1, &["a", "b"]),
        run(9, &["i"]),
    ];
    let runs: Vec<Run<'_>> = owned
        .iter()
        .map(|(first_lsn, record_count, records)| Run {
            first_lsn: *first_lsn,
            record_count: *record_count,
            records,
            wall_clock_ms: 0,
        })
        .collect();
    let found = |next| {
        let found = continuing(&runs, Lsn(next)).records;
        let text = |record: &[u8]| String::from_utf8_lossy(record).into_owned();
        let pairs = found
            .into_iter()
            .map(|(lsn, record)| (lsn.0, text(&record)));
        pairs.collect::<Vec<_>>()
    };
    let pairs = |lsns: std::ops::Range<u64>, texts: &str| {
        let texts = texts.chars().map(|text| text.to_string());
        lsns.zip(texts).collect::<Vec<_>>()
    };
    assert_eq!(found(1), pairs(1..6, "abcde"), "6 is missing");
    assert_eq!(found(4), pairs(4..6, "de"));
    assert_eq!(found(6), []);
    assert_eq!(found(7), pairs(7..10, "ghi"));
    assert_eq!(found(10), []);
}

#[test]
fn an_opening_that_no_segment_takes_is_an_error() {
    let (disk, mut opened) = relaxed();
    for _ in 0..3 {
        append(&mut opened.writer, &[&"x".repeat(7 << 10)]);
    }
    opened.writer.publish(0);
    disk.kill();
    let small = LogOptions {
        segment_bytes: 16 << 10,
        ..options(Durability::Relaxed)
    };
    let opened = block_on(async {
        let recovered = recover(&disk, &small, Lsn::ZERO, &mut |_, _| Ok(())).await?;
        open_writer(&disk, &small, &recovered, Lsn::ZERO, 0).await
    });
    let error = opened.err().map(|error| error.to_string());
    let expected = "a record of 24576 bytes is above the log's limit of 16384";
    assert_eq!(error.as_deref(), Some(expected));
}

#[test]
fn an_opening_that_ends_anywhere_has_not_lost_the_file() {
    let [relaxed_again, strict] = [Durability::Relaxed, Durability::Strict];
    for (to, is_killed) in [relaxed_again, strict]
        .into_iter()
        .flat_map(|to| [true, false].map(|is_killed| (to, is_killed)))
    {
        for operations in 0..120 {
            let (disk, mut opened) = relaxed();
            append(&mut opened.writer, &["a"]);
            opened.writer.publish(0);
            drop(opened);
            disk.kill();
            disk.fail_after(operations);
            let opts = options(to);
            let opening = block_on(async {
                let recovered = recover(&disk, &opts, Lsn::ZERO, &mut |_, _| Ok(())).await?;
                open_writer(&disk, &opts, &recovered, Lsn::ZERO, 0).await
            });
            drop(opening);
            if is_killed {
                disk.kill();
            } else {
                disk.crash();
            }
            let (_, _, found) = reopen(&disk, Durability::Relaxed);
            if is_killed {
                assert_eq!(texts(&found), ["a"], "{to:?}, {operations}");
            }
        }
    }
}
