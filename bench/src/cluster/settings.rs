use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::affinity;
use crate::error::Result;
use crate::locate;
use crate::named::Named;
use crate::redis_benchmark::RedisBenchmark;

use super::{Case, ClusterArgs};

/// The flags with every default filled in.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) cases: Vec<Case>,
    pub(super) is_quick: bool,
    /// CPUs of this machine that may be used.
    pub(super) cpus: Vec<usize>,
    pub(super) ephesus: PathBuf,
    pub(super) benchmark: RedisBenchmark,
    root: TempDir,
}

impl Settings {
    pub(super) fn resolve(arguments: &ClusterArgs) -> Result<Self> {
        let cases = match &*arguments.cases {
            [] => Case::all(),
            cases => cases.to_vec(),
        };
        Ok(Settings {
            is_quick: arguments.quick,
            cpus: affinity::allowed()?,
            ephesus: locate::ephesus(arguments.ephesus.as_deref())?,
            cases,
            benchmark: RedisBenchmark(arguments.redis_benchmark.clone()),
            root: locate::data_root(arguments.dir.as_deref(), "cluster-")?,
        })
    }

    /// `full`, or `short` with `--quick`.
    pub(super) fn or_quick<T>(&self, full: T, short: T) -> T {
        if self.is_quick { short } else { full }
    }

    /// The directory that holds all data.
    pub(super) fn root(&self) -> &Path {
        self.root.path()
    }

    /// A scratch file for a client's output.
    pub(super) fn scratch(&self) -> PathBuf {
        self.root.path().join("client.out")
    }
}
