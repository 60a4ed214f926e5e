//! A node's logs on simulated disks, for tests.

use std::collections::BTreeMap;

use ephesus_wal::files::begin;
use ephesus_wal::{Durability, FaultDisk, LogId};
use futures_lite::future::block_on;

use crate::node::data_dir::{DataDirError, Layout};

/// What of a [`Home`](super::Home) is about logs; all choices follow from a seed.
#[derive(Debug)]
pub struct FaultLogs {
    pub seed: u64,
    logs: BTreeMap<LogId, FaultDisk>,
    /// Identities given out so far.
    pub created: u64,
}

impl FaultLogs {
    #[must_use]
    pub fn new(seed: u64) -> FaultLogs {
        FaultLogs {
            seed,
            logs: BTreeMap::new(),
            created: 0,
        }
    }

    /// The next identity; `rest` is its second half.
    pub fn new_id(&mut self, rest: u64) -> LogId {
        self.created += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.created.to_le_bytes());
        id[8..].copy_from_slice(&rest.to_le_bytes());
        LogId(id)
    }

    /// Begins a log, if it is not there.
    ///
    /// # Panics
    /// Never: nothing fails on a new disk.
    pub fn create(&mut self, log: LogId) {
        let number = u64::from_le_bytes(*log.0.first_chunk().expect("16 bytes"));
        let disk = FaultDisk::new(self.seed ^ number);
        let begun = block_on(begin(&disk, Durability::Strict));
        begun.expect("a disk without faults");
        self.logs.entry(log).or_insert(disk);
    }

    /// Where a log lies.
    ///
    /// # Errors
    /// [`DataDirError::LostLog`] when it is not there.
    pub fn disk(&self, log: LogId, durability: Durability) -> Result<FaultDisk, DataDirError> {
        let lost = || DataDirError::LostLog(log.to_string().into());
        let disk = self.get(log).cloned().ok_or_else(lost)?;
        Ok(disk.dsync(durability == Durability::Strict))
    }

    #[must_use]
    pub fn get(&self, log: LogId) -> Option<&FaultDisk> {
        self.logs.get(&log)
    }

    /// Removes the logs that `layout` does not name.
    pub fn keep(&mut self, layout: &Layout) {
        self.logs.retain(|log, _| layout.logs.contains(&log.0));
    }

    pub fn all(&self) -> impl Iterator<Item = &FaultDisk> {
        self.logs.values()
    }

    /// The logs as they are now, on other disks.
    #[must_use]
    pub fn snapshot(&self) -> FaultLogs {
        let logs = self.logs.iter();
        FaultLogs {
            logs: logs.map(|(id, log)| (*id, log.snapshot())).collect(),
            ..*self
        }
    }
}
