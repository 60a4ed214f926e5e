//! Which CPUs this process may use, and confining a thread to some of them.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{BenchError, During, Result};

pub fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).during("sched_getaffinity")?;
    let all = 0..CpuSet::MAX_CPU;
    Ok(all.filter(|&cpu| set.is_set(cpu)).collect())
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
