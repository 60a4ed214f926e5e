//! What the kernel says about a process: CPU time, memory, block I/O, its threads.

use std::io;
use std::time::Duration;

use ::procfs::process::{ClearRefs, Process, Task};
use ::procfs::{ProcError, ProcResult, ticks_per_second};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{During, Result};

#[cfg(test)]
mod tests;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pid(pub u32);

#[derive(Clone, Debug)]
pub struct Thread {
    pub tid: i32,
    pub name: String,
    /// Where it may run.
    pub cpus: Vec<usize>,
    /// On a CPU so far.
    pub cpu: Duration,
}

/// CPU time of a process by then, with that of its forks (Redis's rewriters) that had ended.
#[derive(Clone, Copy, Debug)]
pub struct CpuMark {
    pub pid: Pid,
    used: Duration,
}

impl CpuMark {
    pub fn of(pid: Pid) -> Result<Self> {
        let used = cpu_time(pid)? + cpu_time_of_children(pid)?;
        Ok(CpuMark { pid, used })
    }

    pub fn elapsed(&self) -> Result<Duration> {
        Ok(CpuMark::of(self.pid)?.used.saturating_sub(self.used))
    }
}

/// CPU time of all threads of a process, living and ended: utime + stime of `/proc/PID/stat` without its rounding
/// to 10 ms.
pub fn cpu_time(pid: Pid) -> Result<Duration> {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `clock` and `time` are valid places for what is written to them.
    let status = unsafe {
        match libc::clock_getcpuclockid(pid.0 as libc::pid_t, &mut clock) {
            0 if libc::clock_gettime(clock, &mut time) == 0 => Ok(()),
            0 => Err(io::Error::last_os_error()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    };
    status.during(format_args!("CPU time of process {}", pid.0))?;
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// CPU time of children that have ended and were waited for, to 10 ms.
pub fn cpu_time_of_children(pid: Pid) -> Result<Duration> {
    let stat = read(pid, Process::stat)?;
    let ticks = (stat.cutime + stat.cstime) as f64;
    Ok(Duration::from_secs_f64(ticks / ticks_per_second() as f64))
}

pub fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Resident memory now, and the most of it since the start or [`reset_peak`], in bytes.
pub fn resident_bytes(pid: Pid) -> Result<[u64; 2]> {
    read(pid, |process| {
        let status = process.status()?;
        let kib = status.vmrss.zip(status.vmhwm).ok_or("no VmRSS")?;
        Ok([kib.0, kib.1].map(|kib| kib * 1024))
    })
}

/// Lets the peak begin anew at what is resident now.
pub fn reset_peak(pid: Pid) -> Result<()> {
    read(pid, |process| process.clear_refs(ClearRefs::PeakRSS))
}

/// Bytes sent to the device so far (for buffered writes: dirtied in the page cache).
pub fn written_bytes(pid: Pid) -> Result<u64> {
    read(pid, |process| Ok(process.io()?.write_bytes))
}

/// Every thread of a process; those that end meanwhile are left out.
pub fn threads(pid: Pid) -> Result<Vec<Thread>> {
    let mut threads = Vec::new();
    for task in read(pid, Process::tasks)? {
        match task.and_then(|task| thread(&task)) {
            Ok(found) => threads.push(found),
            Err(ProcError::NotFound(_)) => {}
            Err(ProcError::Io(error, _)) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(error).during(format_args!("process {}", pid.0)),
        }
    }
    Ok(threads)
}

fn thread(task: &Task) -> ProcResult<Thread> {
    let status = task.status()?;
    let cpus = status.cpus_allowed_list.ok_or("no Cpus_allowed_list")?;
    let cpus = cpus.into_iter();
    Ok(Thread {
        tid: task.tid,
        name: status.name,
        cpus: cpus.flat_map(|(a, b)| a as usize..=b as usize).collect(),
        cpu: Duration::from_nanos(task.schedstat()?.sum_exec_runtime),
    })
}

fn read<T>(pid: Pid, find: impl FnOnce(&Process) -> ProcResult<T>) -> Result<T> {
    let found = Process::new(pid.0 as i32).and_then(|process| find(&process));
    found.during(format_args!("process {}", pid.0))
}
