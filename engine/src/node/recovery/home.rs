//! What recovery needs of a data directory besides its image stores.

use std::io;

use ephesus_wal::dir::DirError;
use ephesus_wal::{Disk, Durability, LogId, StdDisk};

use crate::node::data_dir::{DataDir, DataDirError, Layout};
use crate::node::environment;

/// The logs and the layout of one node.
pub trait Home: Sync {
    /// Where one log lies.
    type Disk: Disk;

    /// The directory of a log.
    ///
    /// # Errors
    /// [`DataDirError::LostLog`] when it is not there.
    fn disk(&self, log: LogId, durability: Durability) -> Result<Self::Disk, DataDirError>;

    /// Replaces the layout; it is durable and complete or unchanged.
    ///
    /// # Errors
    /// What the operating system says.
    fn write_layout(&self, layout: &Layout) -> Result<(), DataDirError>;

    /// Removes the logs that `layout` does not name.
    ///
    /// # Errors
    /// What the operating system says.
    fn remove_other_logs(&self, layout: &Layout) -> Result<(), DataDirError>;

    /// Begins a log in a directory of its own, durably, if it is not there.
    ///
    /// # Errors
    /// What the operating system says.
    fn create_log(&self, log: LogId) -> Result<(), DataDirError>;

    /// Bytes free for logs, where that is known.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// An identity that no log has had.
    fn new_id(&self) -> LogId {
        LogId(*uuid::Uuid::new_v4().as_bytes())
    }

    /// Begins a log. A layout names only logs that were begun before: one that is not there is lost.
    ///
    /// # Errors
    /// What the operating system says.
    fn new_log(&self) -> Result<LogId, DataDirError> {
        let log = self.new_id();
        self.create_log(log)?;
        Ok(log)
    }
}

impl Home for DataDir {
    type Disk = StdDisk;

    fn disk(&self, log: LogId, durability: Durability) -> Result<StdDisk, DataDirError> {
        let dir = self.log_dir(log);
        StdDisk::new(&dir, durability).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => DataDirError::LostLog(dir),
            _ => DirError::of("open", &dir)(error).into(),
        })
    }

    fn create_log(&self, log: LogId) -> Result<(), DataDirError> {
        DataDir::create_log(self, log)
    }

    fn write_layout(&self, layout: &Layout) -> Result<(), DataDirError> {
        DataDir::write_layout(self, layout)
    }

    fn free_bytes(&self) -> Option<u64> {
        environment::free_bytes(self.path())
    }

    fn remove_other_logs(&self, layout: &Layout) -> Result<(), DataDirError> {
        DataDir::remove_other_logs(self, layout)
    }
}
