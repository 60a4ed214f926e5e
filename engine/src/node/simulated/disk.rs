//! A data directory on simulated disks: logs, images, and the layout that is durable.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephesus_wal::{Durability, FaultDisk, LogId};
use ephesus_wire::{Epoch, PartitionId};

use crate::image::fault::FaultStore;
use crate::image::{DbId, drop_copy};
use crate::node::data_dir::{DataDirError, Layout};
use crate::node::recovery::Home;
use crate::node::recovery::fault_logs::FaultLogs;

/// Image stores of a node.
const STORES: u16 = 2;

/// A data directory; clones share it.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    logs: FaultLogs,
    layout: Layout,
    stores: Vec<FaultStore>,
}

impl Disk {
    /// That of a node that has just joined a cluster.
    #[must_use]
    pub fn new(seed: u64, partitions: u16, shards: u16) -> Disk {
        let disk = Disk(Arc::new(Mutex::new(State {
            logs: FaultLogs::new(seed),
            layout: Layout::empty(partitions, std::iter::empty()),
            stores: (0..STORES).map(|db| FaultStore::new(DbId(db))).collect(),
        })));
        let logs = (0..shards).map(|_| disk.new_log().expect("a disk without faults"));
        let logs: Vec<LogId> = logs.collect();
        disk.lock().layout = Layout::empty(partitions, logs.into_iter());
        disk
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn layout(&self) -> Layout {
        self.lock().layout.clone()
    }

    /// How many shards the layout has.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.lock().layout.shards()
    }

    /// The migrations whose copies are named and not served.
    #[must_use]
    pub fn staging(&self) -> Vec<(PartitionId, ephesus_wire::MigrationId)> {
        let state = self.lock();
        let staging = state.layout.staging().iter();
        staging
            .map(|staging| (staging.partition, staging.source.migration))
            .collect()
    }

    /// A layout is durable.
    pub fn written(&self, layout: &Layout) {
        self.lock().layout = layout.clone();
    }

    pub(super) fn take_stores(&self) -> Vec<FaultStore> {
        std::mem::take(&mut self.lock().stores)
    }

    pub(super) fn put_stores(&self, stores: Vec<FaultStore>) {
        self.lock().stores = stores;
    }

    /// Removes the images of a copy.
    pub(super) fn drop_images(&self, partition: PartitionId, epoch: Epoch) {
        let mut state = self.lock();
        let at = usize::from(DbId::of(partition, STORES).0);
        let dropped = drop_copy(&mut state.stores[at], partition, epoch);
        dropped.expect("a store without faults");
    }

    /// The process has died, and with `power` the machine.
    pub fn crash(&self, power: bool) {
        let mut state = self.lock();
        for log in state.logs.all() {
            if power {
                log.crash();
            } else {
                log.kill();
                log.land();
            }
        }
        let seed = state.logs.seed;
        state.stores = state.stores.iter().map(|store| store.crash(seed)).collect();
    }

    /// The directory as it is now, on another disk; no process may use it.
    #[must_use]
    pub fn snapshot(&self) -> Disk {
        let state = self.lock();
        Disk(Arc::new(Mutex::new(State {
            logs: state.logs.snapshot(),
            layout: state.layout.clone(),
            stores: state.stores.iter().map(|store| store.crash(0)).collect(),
        })))
    }
}

impl Home for Disk {
    type Disk = FaultDisk;

    fn disk(&self, log: LogId, durability: Durability) -> Result<FaultDisk, DataDirError> {
        self.lock().logs.disk(log, durability)
    }

    fn create_log(&self, log: LogId) -> Result<(), DataDirError> {
        self.lock().logs.create(log);
        Ok(())
    }

    fn write_layout(&self, layout: &Layout) -> Result<(), DataDirError> {
        self.written(layout);
        Ok(())
    }

    fn remove_other_logs(&self, layout: &Layout) -> Result<(), DataDirError> {
        self.lock().logs.keep(layout);
        Ok(())
    }

    fn new_id(&self) -> LogId {
        let mut state = self.lock();
        let seed = state.logs.seed;
        state.logs.new_id(seed)
    }
}
