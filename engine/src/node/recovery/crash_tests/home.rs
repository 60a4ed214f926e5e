//! Logs on simulated disks and a layout that a crash leaves old or new.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use ephesus_wal::dir::DirError;
use ephesus_wal::files::begin;
use ephesus_wal::{Durability, FaultDisk, LogId};
use futures_lite::future::block_on;

use crate::node::recovery::Home;
use crate::node::stamp::{DataDirError, Layout};

pub(super) struct SimHome {
    state: Mutex<State>,
}

struct State {
    seed: u64,
    logs: BTreeMap<LogId, FaultDisk>,
    layout: Layout,
    created: u64,
    /// Changes until one fails; it may have happened nevertheless.
    fails_in: Option<u64>,
}

fn power_loss() -> DataDirError {
    let loss = std::io::Error::other("simulated power loss");
    DirError::of("change", Path::new("simulated"))(loss).into()
}

impl State {
    fn change(&mut self) -> Result<(), DataDirError> {
        match &mut self.fails_in {
            Some(0) => Err(power_loss()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl SimHome {
    pub(super) fn new(seed: u64, layout: Layout) -> SimHome {
        let logs = layout.logs.clone();
        let home = SimHome {
            state: Mutex::new(State {
                seed,
                logs: BTreeMap::new(),
                layout,
                created: 0,
                fails_in: None,
            }),
        };
        for log in logs {
            home.create_log(LogId(log)).expect("nothing fails yet");
        }
        home
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while locked")
    }

    pub(super) fn layout(&self) -> Layout {
        self.lock().layout.clone()
    }

    pub(super) fn log(&self, log: LogId) -> FaultDisk {
        self.lock().logs[&log].clone()
    }

    pub(super) fn logs(&self) -> Vec<FaultDisk> {
        self.lock().logs.values().cloned().collect()
    }

    pub(super) fn fail_after(&self, changes: Option<u64>) {
        self.lock().fails_in = changes;
    }
}

impl Home for SimHome {
    type Disk = FaultDisk;

    fn disk(&self, log: LogId, durability: Durability) -> Result<FaultDisk, DataDirError> {
        let strict = durability == Durability::Strict;
        let state = self.lock();
        let disk = state.logs.get(&log).cloned();
        let lost = || DataDirError::LostLog(log.to_string().into());
        Ok(disk.ok_or_else(lost)?.dsync(strict))
    }

    fn create_log(&self, log: LogId) -> Result<(), DataDirError> {
        let mut state = self.lock();
        let number = u64::from_le_bytes(*log.0.first_chunk().expect("16 bytes"));
        let disk = FaultDisk::new(state.seed ^ number);
        let begun = block_on(begin(&disk, Durability::Strict));
        begun.expect("a disk without faults");
        state.logs.entry(log).or_insert(disk);
        Ok(())
    }

    fn write_layout(&self, layout: &Layout) -> Result<(), DataDirError> {
        let mut state = self.lock();
        let result = state.change();
        let happened = result.is_ok() || (state.seed ^ state.created).is_multiple_of(2);
        if happened {
            state.layout = layout.clone();
        }
        result
    }

    fn remove_other_logs(&self, layout: &Layout) -> Result<(), DataDirError> {
        let mut state = self.lock();
        state.logs.retain(|log, _| layout.logs.contains(&log.0));
        state.change()
    }

    fn new_id(&self) -> LogId {
        let mut state = self.lock();
        state.created += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&state.created.to_le_bytes());
        id[15] = 1;
        LogId(id)
    }
}
