//! Which CPUs this process may use, and confining a thread or a process to some of them.

use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::procfs::Pid;

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
pub fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None);
    let set = set.map_err(|error| BenchError::io("sched_getaffinity")(error.into()))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect())
}

/// The first two of them, one for servers (or the source) and one for clients (or the target).
pub fn two() -> Result<[usize; 2]> {
    let two = allowed()?.first_chunk().copied();
    two.ok_or_else(|| BenchError::failed("CPUs", "two are needed, and only one may be used"))
}

/// Confines the calling thread and everything it starts; async-signal-safe. It fails when it may use none of the CPUs.
pub fn confine_current(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// CPUs as the kernel writes a list of single numbers.
pub fn list(cpus: &[usize]) -> String {
    let numbers: Vec<String> = cpus.iter().map(usize::to_string).collect();
    numbers.join(",")
}

/// A cpuset control group that is removed when dropped; it must be empty by then.
#[derive(Debug)]
pub struct CpusetGroup(PathBuf);

impl CpusetGroup {
    /// Creates a group that holds its members on `cpus`; needs a cpuset controller and the right to create groups.
    pub fn create(name: &str, cpus: &[usize]) -> Result<Self> {
        let [v1, v2] = ["/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"].map(PathBuf::from);
        let is_v1 = v1.join("cpuset.cpus").exists();
        let root = if is_v1 { v1 } else { v2 };
        if !is_v1 {
            write(root.join("cgroup.subtree_control"), "+cpuset")?;
        }
        let folder = root.join(name);
        fs::create_dir(&folder).map_err(BenchError::io(folder.display().to_string()))?;
        let group = CpusetGroup(folder);
        write(group.0.join("cpuset.cpus"), &list(cpus))?;
        if is_v1 {
            let nodes = fs::read_to_string(root.join("cpuset.mems"));
            let nodes = nodes.map_err(BenchError::io("cpuset.mems"))?;
            write(group.0.join("cpuset.mems"), nodes.trim())?;
        }
        Ok(group)
    }

    /// Moves a whole process into the group.
    pub fn join(&self, pid: Pid) -> Result<()> {
        write(self.0.join("cgroup.procs"), &pid.0.to_string())
    }
}

fn write(path: PathBuf, text: &str) -> Result<()> {
    fs::write(&path, text).map_err(BenchError::io(path.display().to_string()))
}

impl Drop for CpusetGroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}
