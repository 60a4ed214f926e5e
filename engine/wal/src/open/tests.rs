use futures_lite::future::block_on;

use super::*;
use crate::disk::fault::FaultFile;
use crate::disk::small::SmallDisk;
use crate::options::LogId;
use crate::recover::recover;

const SEGMENT_BYTES: u64 = 64 << 10;

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: SEGMENT_BYTES,
        opening_bytes_min: SEGMENT_BYTES / 4,
        group_bytes_max: 8 << 10,
        ..LogOptions::new(LogId([7; 16]))
    }
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
    let disk = SmallDisk::new(3 * SEGMENT_BYTES + SEGMENT_BYTES / 4);
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
    let disk = SmallDisk::new(SEGMENT_BYTES + SEGMENT_BYTES / 4);
    reopen(&disk).expect("room");
    assert_eq!(reopen(&disk).expect("room").info.bytes, SEGMENT_BYTES / 4);
    assert_eq!(reopen(&disk).expect("room").info.bytes, SEGMENT_BYTES);
    let tiny = SmallDisk::new(SEGMENT_BYTES / 8);
    assert!(is_out_of_space(&reopen(&tiny)));
}
