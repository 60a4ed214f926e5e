use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use futures_lite::future::block_on;

use super::*;
use crate::disk::fault::{FaultDisk, FaultFile};
use crate::options::LogId;
use crate::recover::recover;

/// A disk of so many bytes.
#[derive(Clone)]
struct SmallDisk {
    disk: FaultDisk,
    files: Rc<RefCell<BTreeMap<String, u64>>>,
    bytes: u64,
}

impl SmallDisk {
    fn new(bytes: u64) -> SmallDisk {
        SmallDisk {
            disk: FaultDisk::new(1),
            files: Rc::default(),
            bytes,
        }
    }
}

impl Disk for SmallDisk {
    type File = FaultFile;

    async fn create(&self, name: &str, len: u64) -> io::Result<FaultFile> {
        if self.files.borrow().values().sum::<u64>() + len > self.bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.files.borrow_mut().insert(name.to_owned(), len);
        self.disk.create(name, len).await
    }

    async fn open(&self, name: &str, write: bool) -> io::Result<FaultFile> {
        self.disk.open(name, write).await
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let len = self.files.borrow_mut().remove(from).unwrap_or(0);
        self.files.borrow_mut().insert(to.to_owned(), len);
        self.disk.rename(from, to).await
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        self.files.borrow_mut().remove(name);
        self.disk.remove(name).await
    }

    async fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list().await
    }

    async fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir().await
    }
}

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
        block_on(prepare(&disk, &options(), SegmentId(id))).expect("room");
    }
    let opened = reopen(&disk).expect("room");
    assert_eq!(opened.info.bytes, SEGMENT_BYTES);
    let names: Vec<_> = disk.files.borrow().keys().cloned().collect();
    assert_eq!(
        names,
        [opened.info.id.file_name()],
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
