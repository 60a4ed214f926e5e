use futures_lite::future::block_on;

use super::*;
use crate::disk::fault::FaultFile;
use crate::disk::small::SmallDisk;
use crate::files::begin;
use crate::options::LogId;
use crate::recover::recover;

const SEGMENT_BYTES: u64 = 64 << 10;

/// Of a short list: two slots.
const LIST_BYTES: u64 = 8 << 10;

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: SEGMENT_BYTES,
        opening_bytes_min: SEGMENT_BYTES / 4,
        group_bytes_max: 8 << 10,
        is_begun: true,
        ..LogOptions::new(LogId([7; 16]))
    }
}

/// A disk of so many bytes with a log that was begun.
fn begun(bytes: u64) -> SmallDisk {
    let disk = SmallDisk::new(u64::MAX);
    block_on(begin(&disk, Durability::Strict)).expect("room");
    disk.resize(bytes);
    disk
}

/// Opens the log once more; answers the segment that it has begun with.
fn reopen(disk: &SmallDisk) -> Result<SegmentHandle<FaultFile>, WalError> {
    block_on(async {
        let recovered = recover(disk, &options(), Lsn::ZERO, &mut |_, _| Ok(())).await?;
        let opened = open_writer(disk, &options(), &recovered, Lsn::ZERO, 0).await?;
        Ok(opened.segment)
    })
}

#[test]
fn an_opening_on_a_full_disk_takes_the_room_of_segments_that_were_never_used() {
    let disk = begun(3 * SEGMENT_BYTES + SEGMENT_BYTES / 4);
    assert_eq!(reopen(&disk).expect("room").info.id, SegmentId(1));
    for id in [2, 3] {
        block_on(make(&disk, &options(), SegmentId(id))).expect("room");
    }
    let opened = reopen(&disk).expect("room");
    assert_eq!(opened.info.bytes, SEGMENT_BYTES);
    let names = block_on(disk.list()).expect("listed");
    assert_eq!(
        names,
        [opened.info.id.file_name(), files::FILE_NAME.to_owned()],
        "the last opening alone"
    );
}

#[test]
fn an_opening_without_room_for_a_segment_begins_with_a_small_one() {
    let disk = begun(SEGMENT_BYTES + SEGMENT_BYTES / 4);
    reopen(&disk).expect("room");
    assert_eq!(reopen(&disk).expect("room").info.bytes, SEGMENT_BYTES / 4);
    assert_eq!(reopen(&disk).expect("room").info.bytes, SEGMENT_BYTES);
    let tiny = begun(SEGMENT_BYTES / 8);
    assert!(is_out_of_space(&reopen(&tiny)));
}

#[test]
fn an_opening_that_found_no_room_or_was_killed_has_not_lost_the_log() {
    let new = || begun(LIST_BYTES);
    let unfinished = || {
        let disk = begun(u64::MAX);
        let name = SegmentId(1).free_name();
        block_on(disk.create(&name, SEGMENT_BYTES)).expect("room");
        disk.resize(SEGMENT_BYTES + LIST_BYTES);
        disk
    };
    let of_a_release_without_lists = || {
        let disk = unfinished();
        block_on(disk.remove(files::FILE_NAME)).expect("removed");
        disk
    };
    let lived = || {
        let disk = begun(u64::MAX);
        reopen(&disk).expect("room");
        for id in [2, 3] {
            block_on(make(&disk, &options(), SegmentId(id))).expect("room");
        }
        disk.resize(3 * SEGMENT_BYTES + LIST_BYTES);
        disk
    };
    for (number, made) in [
        &new as &dyn Fn() -> SmallDisk,
        &unfinished,
        &of_a_release_without_lists,
        &lived,
    ]
    .into_iter()
    .enumerate()
    {
        for fails_after in 0..200 {
            let disk = made();
            disk.faults().fail_after(fails_after);
            let _ = reopen(&disk).map(drop);
            disk.faults().kill();
            let _ = reopen(&disk).map(drop);
            disk.resize(u64::MAX);
            reopen(&disk).unwrap_or_else(|error| panic!("{number}, {fails_after}: {error}"));
        }
    }
}

#[test]
fn an_opening_without_room_for_the_list_takes_that_of_unfinished_files() {
    let disk = begun(u64::MAX);
    let name = SegmentId(1).free_name();
    block_on(disk.create(&name, SEGMENT_BYTES)).expect("room");
    disk.resize(2 * SEGMENT_BYTES + LIST_BYTES);
    assert_eq!(reopen(&disk).expect("room").info.bytes, SEGMENT_BYTES);
    let names = block_on(disk.list()).expect("listed");
    assert!(names.iter().any(|name| name == files::FILE_NAME) && !names.contains(&name));
}

#[test]
fn an_opening_can_be_small_although_there_is_room() {
    let opts = LogOptions {
        opens_small: true,
        ..options()
    };
    let disk = begun(u64::MAX);
    let opened = block_on(async {
        let recovered = recover(&disk, &opts, Lsn::ZERO, &mut |_, _| Ok(())).await?;
        open_writer(&disk, &opts, &recovered, Lsn::ZERO, 0).await
    });
    let segment = opened.expect("room").segment;
    assert_eq!(segment.info.bytes, SEGMENT_BYTES / 4);
}
