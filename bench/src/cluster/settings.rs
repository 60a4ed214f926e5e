use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::affinity;
use crate::error::Result;
use crate::locate;
use crate::named::Named;
use crate::redis_benchmark::RedisBenchmark;

use super::scale::Size;
use super::{Case, ClusterArgs};

/// The flags with every default filled in.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) cases: Vec<Case>,
    pub(super) is_quick: bool,
    /// CPUs of this machine that may be used.
    pub(super) cpus: Vec<usize>,
    /// Of [`Case::Scale`].
    pub(super) size: Size,
    pub(super) ephesus: PathBuf,
    pub(super) benchmark: RedisBenchmark,
    root: TempDir,
}

impl Settings {
    pub(super) fn resolve(arguments: &ClusterArgs) -> Result<Self> {
        let has_size = arguments.nodes.is_some() || arguments.partitions.is_some();
        let cases = match &*arguments.cases {
            [] if has_size => vec![Case::Scale],
            [] => Case::all(),
            cases => cases.to_vec(),
        };
        let has_processes = cases.iter().any(|case| *case != Case::Scale);
        Ok(Settings {
            size: Size {
                nodes: arguments
                    .nodes
                    .unwrap_or(if arguments.quick { 100 } else { 1000 }),
                partitions: arguments.partitions.unwrap_or(16384),
            },
            is_quick: arguments.quick,
            cpus: affinity::allowed()?,
            ephesus: if has_processes {
                locate::ephesus(arguments.ephesus.as_deref())?
            } else {
                PathBuf::new()
            },
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
