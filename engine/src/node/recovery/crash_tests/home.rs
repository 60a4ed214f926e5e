//! Logs on simulated disks and a layout that a crash leaves old or new.

use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use ephesus_wal::dir::DirError;
use ephesus_wal::{Durability, FaultDisk, LogId};

use crate::node::data_dir::{DataDirError, Layout};
use crate::node::recovery::Home;
use crate::node::recovery::fault_logs::FaultLogs;

pub(super) struct SimHome {
    state: Mutex<State>,
}

struct State {
    logs: FaultLogs,
    layout: Layout,
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
                logs: FaultLogs::new(seed),
                layout,
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
        let disk = self.lock().logs.get(log).cloned();
        disk.expect("a log of the layout")
    }

    pub(super) fn logs(&self) -> Vec<FaultDisk> {
        self.lock().logs.all().cloned().collect()
    }

    pub(super) fn fail_after(&self, changes: Option<u64>) {
        self.lock().fails_in = changes;
    }
}

impl Home for SimHome {
    type Disk = FaultDisk;

    fn disk(&self, log: LogId, durability: Durability) -> Result<FaultDisk, DataDirError> {
        self.lock().logs.disk(log, durability)
    }

    fn create_log(&self, log: LogId) -> Result<(), DataDirError> {
        self.lock().logs.create(log);
        Ok(())
    }

    fn write_layout(&self, layout: &Layout) -> Result<(), DataDirError> {
        let mut state = self.lock();
        let result = state.change();
        let happened = result.is_ok() || (state.logs.seed ^ state.logs.created).is_multiple_of(2);
        if happened {
            state.layout = layout.clone();
        }
        result
    }

    fn remove_other_logs(&self, layout: &Layout) -> Result<(), DataDirError> {
        let mut state = self.lock();
        state.logs.keep(layout);
        state.change()
    }

    fn new_id(&self) -> LogId {
        self.lock().logs.new_id(1 << 56)
    }
}
