use futures_lite::future::block_on;

use super::*;
use crate::disk::fault::FaultDisk;
use crate::disk::std::StdDisk;
use crate::options::{Durability, LogId};

const PIECE_BYTES: usize = 256 << 10;

/// Two pieces, and a part of a third.
const BYTES: u64 = 2 * PIECE_BYTES as u64 + 3 * BLOCK_BYTES as u64;

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: BYTES,
        ..LogOptions::new(LogId::default())
    }
}

/// A file of sevens, durably, that is one block longer.
fn sevens<D: Disk>(disk: &D) -> D::File {
    let block = BLOCK_BYTES as u64;
    let file = block_on(disk.create("file", BYTES + block)).unwrap();
    for offset in (0..=BYTES).step_by(BLOCK_BYTES) {
        block_on(file.write_at(&[7; BLOCK_BYTES], offset)).unwrap();
    }
    block_on(file.sync()).unwrap();
    file
}

#[test]
fn names_are_canonical() {
    let id = SegmentId(0x2a);
    assert_eq!(id.file_name(), "seg-000000000000002a.log");
    assert_eq!(SegmentId::from_file_name(&id.file_name()), Some(id));
    assert_eq!(SegmentId::from_free_name(&id.free_name()), Some(id));
    for name in [
        "seg-000000000000002A.log",
        "seg-2a.log",
        "seg-0000000000000000.log",
        "seg-+00000000000002a.log",
        "seg-ffffffffffffffff.log",
        "seg-4000000000000001.log",
        "seg-000000000000002a.log.bak",
        "free-000000000000002a.log",
    ] {
        assert_eq!(SegmentId::from_file_name(name), None, "{name}");
    }
}

#[test]
fn zeroes_cover_what_was_asked_for_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::new(dir.path(), Durability::Strict).unwrap();
    let file = sevens(&disk);
    block_on(zero(&file, "file", BYTES, PIECE_BYTES, || true)).unwrap();
    let bytes = std::fs::read(dir.path().join("file")).unwrap();
    let (zeroes, found) = bytes.split_at(BYTES as usize);
    assert!(zeroes.iter().all(|b| *b == 0), "all are zeroes");
    assert_eq!(found, [7; BLOCK_BYTES], "and nothing behind them");
}

#[test]
fn zeroes_are_durable_piece_by_piece() {
    let disk = FaultDisk::new(1);
    let file = sevens(&disk);
    disk.fail_sync(1);
    let failed = block_on(zero(&file, "file", BYTES, PIECE_BYTES, || true));
    assert!(matches!(failed, Err(WalError::Io { .. })), "{failed:?}");
    let bytes = disk.contents("file").unwrap();
    let (written, rest) = bytes.split_at(2 * PIECE_BYTES);
    assert!(written.iter().all(|b| *b == 0), "two pieces are written");
    assert!(rest.iter().all(|b| *b == 7), "and the third is not");
    let before = disk.operations();
    disk.kill();
    let file = block_on(disk.open("file", true)).unwrap();
    block_on(zero(&file, "file", BYTES, PIECE_BYTES, || true)).unwrap();
    let operations = disk.operations() - before;
    assert_eq!(operations, 1 + 3 * 2, "a write and a sync of each");
}

#[test]
fn what_the_file_system_keeps_room_for_need_not_be_filled() {
    let id = SegmentId(1);
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::new(dir.path(), Durability::Strict).unwrap();
    let sparse = std::fs::File::create(dir.path().join("sparse")).unwrap();
    sparse.set_len(BYTES).unwrap();
    let sparse = block_on(disk.open("sparse", true)).unwrap();
    assert!(
        !sparse.is_reserved(BYTES),
        "a disk may be full when it is written"
    );
    let segment = block_on(make(&disk, &options(), id, PIECE_BYTES, || false)).unwrap();
    assert!(segment.file.is_reserved(BYTES));
    assert!(!segment.file.is_reserved(BYTES + 1));
    let bytes = std::fs::read(dir.path().join(id.file_name())).unwrap();
    assert!(bytes.len() as u64 == BYTES && bytes.iter().all(|b| *b == 0));
    // A disk that promises nothing is written to.
    let disk = FaultDisk::new(1);
    let before = disk.operations();
    block_on(make(&disk, &options(), id, PIECE_BYTES, || false)).unwrap();
    assert!(
        disk.operations() - before > 2 * 3,
        "a write and a sync of each piece"
    );
}

#[test]
fn the_rest_of_a_segment_is_left_where_the_file_system_keeps_room_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::new(dir.path(), Durability::Strict).unwrap();
    let id = SegmentId(1);
    let mut pieces = 0;
    let one = || {
        pieces += 1;
        pieces == 1
    };
    let segment = block_on(make(&disk, &options(), id, PIECE_BYTES, one)).unwrap();
    assert!(pieces <= 2, "one if the device makes zeroes itself");
    assert!(segment.file.is_reserved(BYTES));
    let bytes = std::fs::read(dir.path().join(id.file_name())).unwrap();
    assert!(bytes.len() as u64 == BYTES && bytes.iter().all(|b| *b == 0));
}
