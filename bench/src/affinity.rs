//! Which CPUs this process may use, and confining a thread or a process to some of them.

use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::procfs::Pid;

const CPUSET_V1_ROOT: &str = "/sys/fs/cgroup/cpuset";
const CPUSET_V2_ROOT: &str = "/sys/fs/cgroup";

/// How servers are confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Confinement {
    /// `sched_setaffinity` before exec, inherited by every thread.
    Affinity,
    /// Additionally a cpuset control group, which also holds the kernel's io_uring workers; needs root.
    Cpuset,
}

/// The CPUs the calling thread may run on, ascending.
///
/// # Errors
/// When the kernel refuses the question.
pub fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)
        .map_err(|error| BenchError::io("sched_getaffinity")(error.into()))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect())
}

/// The first two of them, one for servers (or the source) and one for clients (or the target).
///
/// # Errors
/// When there is only one.
pub fn two() -> Result<[usize; 2]> {
    let allowed = allowed()?;
    let two = allowed.first_chunk().copied();
    two.ok_or_else(|| BenchError::failed("CPUs", "two are needed, and only one may be used"))
}

/// A mask holding `cpus`, made before a fork so that nothing is allocated after it.
pub fn mask(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    set
}

/// Confines the calling thread and everything it starts; async-signal-safe.
///
/// # Errors
/// When none of the CPUs may be used.
pub fn confine_current(mask: &CpuSet) -> io::Result<()> {
    Ok(sched_setaffinity(None, mask)?)
}

/// A cpuset control group that is removed when dropped; it must be empty by then.
#[derive(Debug)]
pub struct CpusetGroup {
    folder: PathBuf,
}

impl CpusetGroup {
    /// Creates a group that holds its members on `cpus`.
    ///
    /// # Errors
    /// Without a cpuset controller or the right to create groups.
    pub fn create(name: &str, cpus: &[usize]) -> Result<Self> {
        let v1 = PathBuf::from(CPUSET_V1_ROOT);
        let is_v1 = v1.join("cpuset.cpus").exists();
        let root = if is_v1 {
            v1
        } else {
            PathBuf::from(CPUSET_V2_ROOT)
        };
        if !is_v1 {
            let controllers = root.join("cgroup.subtree_control");
            fs::write(&controllers, "+cpuset")
                .map_err(BenchError::io(controllers.display().to_string()))?;
        }
        let folder = root.join(name);
        fs::create_dir(&folder).map_err(BenchError::io(folder.display().to_string()))?;
        let group = CpusetGroup { folder };
        group.write("cpuset.cpus", &list(cpus))?;
        if is_v1 {
            let mems = root.join("cpuset.mems");
            let mems =
                fs::read_to_string(&mems).map_err(BenchError::io(mems.display().to_string()))?;
            group.write("cpuset.mems", mems.trim())?;
        }
        Ok(group)
    }

    /// Moves a whole process into the group.
    ///
    /// # Errors
    /// When it is gone.
    pub fn join(&self, pid: Pid) -> Result<()> {
        self.write("cgroup.procs", &pid.0.to_string())
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, text).map_err(BenchError::io(path.display().to_string()))
    }
}

impl Drop for CpusetGroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.folder) {
            eprintln!("cannot remove {}: {error}", self.folder.display());
        }
    }
}

/// CPUs as the kernel writes a list of single numbers.
pub fn list(cpus: &[usize]) -> String {
    cpus.iter()
        .map(usize::to_string)
        .collect::<Vec<_>>()
        .join(",")
}
