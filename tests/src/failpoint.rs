//! Places at which a process stops, once they are armed: `engine/src/failpoint.rs` has what it does there.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

use crate::paths;

/// The variable that names the directory of files that arm places.
pub const VARIABLE: &str = "EPHESUS_FAILPOINTS";

/// The places of all processes that are started with it.
#[derive(Clone, Debug)]
pub struct Failpoints(Arc<TempDir>);

impl Default for Failpoints {
    fn default() -> Self {
        Self(Arc::new(paths::scratch()))
    }
}

impl Failpoints {
    pub fn directory(&self) -> &Path {
        self.0.path()
    }

    /// The next process that passes this place stops there.
    pub fn arm(&self, place: &str) {
        fs::write(self.0.path().join(place), "").expect("arm a failpoint");
    }

    /// None does any more; answers whether one has passed and stops.
    pub fn disarm(&self, place: &str) -> bool {
        fs::remove_file(self.0.path().join(place)).is_err()
    }
}
