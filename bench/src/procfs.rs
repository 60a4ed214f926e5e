//! What the kernel says about a process: CPU time, memory, block I/O, its threads.

use std::io;
use std::time::Duration;

use ::procfs::process::{ClearRefs, Process, Task};
use ::procfs::{ProcError, ProcResult, ticks_per_second};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{BenchError, Result};

#[cfg(test)]
mod tests;

/// A process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pid(pub u32);

/// A thread that lives.
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
    /// By now.
    pub fn of(pid: Pid) -> Result<Self> {
        let stat = read(pid, Process::stat)?;
        let ticks = (stat.cutime + stat.cstime) as f64;
        let forks = Duration::from_secs_f64(ticks / ticks_per_second() as f64);
        let used = cpu_time(pid)? + forks;
        Ok(CpuMark { pid, used })
    }

    /// Since then.
    pub fn elapsed(&self) -> Result<Duration> {
        Ok(CpuMark::of(self.pid)?.used.saturating_sub(self.used))
    }
}

/// CPU time of all threads of a process, living and ended: utime + stime of `/proc/PID/stat` without its rounding
/// to 10 ms.
pub fn cpu_time(pid: Pid) -> Result<Duration> {
    let what = || BenchError::io(format!("CPU time of process {}", pid.0));
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is a valid place for one clock id.
    let status = unsafe { libc::clock_getcpuclockid(pid.0 as libc::pid_t, &mut clock) };
    if status != 0 {
        return Err(what()(io::Error::from_raw_os_error(status)));
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return Err(what()(io::Error::last_os_error()));
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// CPU time of the calling thread.
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
            Err(error) => return Err(failed(pid)(error)),
        }
    }
    Ok(threads)
}

fn thread(task: &Task) -> ProcResult<Thread> {
    let status = task.status()?;
    let cpus = status.cpus_allowed_list.ok_or("no Cpus_allowed_list")?;
    let ranges = cpus.into_iter();
    Ok(Thread {
        tid: task.tid,
        name: status.name,
        cpus: ranges
            .flat_map(|(first, last)| first as usize..=last as usize)
            .collect(),
        cpu: Duration::from_nanos(task.schedstat()?.sum_exec_runtime),
    })
}

fn read<T>(pid: Pid, find: impl FnOnce(&Process) -> ProcResult<T>) -> Result<T> {
    let found = Process::new(pid.0 as i32).and_then(|process| find(&process));
    found.map_err(failed(pid))
}

fn failed(pid: Pid) -> impl FnOnce(ProcError) -> BenchError {
    move |error| BenchError::io(format!("process {}", pid.0))(io::Error::other(error))
}
