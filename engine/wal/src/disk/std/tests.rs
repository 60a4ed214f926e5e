use futures_lite::future::block_on;

use super::*;
use crate::driver::Log;
use crate::options::{LogId, LogOptions};
use ephesus_wire::Lsn;

fn reopen(dir: &Path, durability: Durability) -> (Log<StdDisk>, Vec<(Lsn, Vec<u8>)>) {
    let opts = LogOptions {
        durability,
        segment_bytes: 1 << 20,
        group_bytes_max: 64 << 10,
        ..LogOptions::new(LogId([5; 16]))
    };
    let disk = StdDisk::new(dir, durability).unwrap();
    let mut records = Vec::new();
    let opened = block_on(Log::open(disk, &opts, Lsn::ZERO, 1, &mut |lsn, record| {
        records.push((lsn, record.to_vec()));
        Ok(())
    }));
    (opened.unwrap().0, records)
}

#[test]
fn records_survive_dropping_the_log() {
    for durability in [Durability::Strict, Durability::Relaxed] {
        let dir = tempfile::tempdir().unwrap();
        let mut expected = Vec::new();
        for life in 0..4u8 {
            let (mut log, records) = reopen(dir.path(), durability);
            assert_eq!(records, expected);
            for number in 0..200usize {
                let record = vec![life.wrapping_add(number as u8); number * 97];
                expected.push((log.append(&record).unwrap(), record));
                if number % 20 == 0 {
                    block_on(log.commit(1)).unwrap();
                }
            }
            block_on(log.commit(1)).unwrap();
            log.append(b"never committed").unwrap();
        }
    }
}

#[test]
fn truncated_segments_are_reused() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = reopen(dir.path(), Durability::Strict);
    let mut last = Lsn::ZERO;
    for _ in 0..60 {
        last = log.append(&[1; 100_000]).unwrap();
        block_on(log.commit(1)).unwrap();
        block_on(log.truncate_before(last)).unwrap();
    }
    drop(log);
    assert!(fs::read_dir(dir.path()).unwrap().count() <= 5);
    let (_, records) = reopen(dir.path(), Durability::Strict);
    assert_eq!(records.last(), Some(&(last, vec![1; 100_000])));
}

#[test]
fn creating_an_existing_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::new(dir.path(), Durability::Strict).unwrap();
    block_on(disk.create("a", 4096)).unwrap();
    assert_eq!(
        block_on(disk.create("a", 4096)).unwrap_err().kind(),
        io::ErrorKind::AlreadyExists
    );
}

#[test]
fn a_file_with_a_hole_is_not_stored_to() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("file");
    let file = File::create(&path).expect("created");
    file.set_len(64 << 10).expect("grown");
    assert!(!has_own_blocks(&file).expect("looked at"), "a hole");
    std::fs::write(&path, vec![1; 64 << 10]).expect("written");
    file.sync_all().expect("synced");
    assert!(has_own_blocks(&file).expect("looked at"), "whole");
}
