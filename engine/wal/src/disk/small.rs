//! [`SmallDisk`]: a [`FaultDisk`] that becomes full, for tests.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use super::Disk;
use super::fault::{FaultDisk, FaultFile};

/// A disk of so many bytes; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SmallDisk {
    disk: FaultDisk,
    files: Rc<RefCell<BTreeMap<String, u64>>>,
    bytes: Rc<Cell<u64>>,
    /// After so many pauses it is as large as can be.
    waits: Rc<Cell<Option<u32>>>,
}

impl SmallDisk {
    pub(crate) fn new(bytes: u64) -> SmallDisk {
        SmallDisk {
            disk: FaultDisk::new(1),
            files: Rc::default(),
            bytes: Rc::new(Cell::new(bytes)),
            waits: Rc::default(),
        }
    }

    /// Has somebody make room once whoever uses the disk has waited so many times.
    pub(crate) fn grows_after(&self, pauses: u32) {
        self.waits.set(Some(pauses));
    }

    /// Pauses before somebody makes room, if that is to come.
    pub(crate) fn waits(&self) -> Option<u32> {
        self.waits.get()
    }

    /// Where faults are planned.
    pub(crate) fn faults(&self) -> &FaultDisk {
        &self.disk
    }

    /// Makes it larger or smaller.
    pub(crate) fn resize(&self, bytes: u64) {
        self.bytes.set(bytes);
    }
}

impl Disk for SmallDisk {
    type File = FaultFile;

    async fn create(&self, name: &str, len: u64) -> io::Result<FaultFile> {
        if self.files.borrow().values().sum::<u64>() + len > self.bytes.get() {
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

    async fn pause(&self) {
        match self.waits.get() {
            Some(0) => {
                self.waits.set(None);
                self.resize(u64::MAX);
            }
            Some(left) => self.waits.set(Some(left - 1)),
            None => panic!("nobody makes room"),
        }
    }
}
