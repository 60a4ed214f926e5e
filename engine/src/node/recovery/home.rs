//! What recovery needs of a data directory besides its image stores.

use ephesus_wal::dir::DirError;
use ephesus_wal::{Disk, Durability, LogId, StdDisk};

use crate::node::stamp::{DataDir, DataDirError, Layout};

/// The logs and the layout of one node.
pub trait Home: Sync {
    /// Where one log lies.
    type Disk: Disk;

    /// The directory of a log, created durably if it is not there.
    ///
    /// # Errors
    /// What the operating system says.
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

    /// An identity that no log has had.
    fn new_log(&self) -> LogId {
        LogId(*uuid::Uuid::new_v4().as_bytes())
    }
}

impl Home for DataDir {
    type Disk = StdDisk;

    fn disk(&self, log: LogId, durability: Durability) -> Result<StdDisk, DataDirError> {
        let dir = self.create_log_dir(log)?;
        Ok(StdDisk::new(&dir, durability).map_err(DirError::of("open", &dir))?)
    }

    fn write_layout(&self, layout: &Layout) -> Result<(), DataDirError> {
        DataDir::write_layout(self, layout)
    }

    fn remove_other_logs(&self, layout: &Layout) -> Result<(), DataDirError> {
        DataDir::remove_other_logs(self, layout)
    }
}
