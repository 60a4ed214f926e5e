//! What the kernel says about a process: CPU time, memory, block I/O, where its threads may run.

use std::io;
use std::time::Duration;

use ::procfs::process::{ClearRefs, Process, Status, Task};
use ::procfs::{ProcError, ProcResult};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::error::{BenchError, Result};

#[cfg(test)]
mod tests;

/// A process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pid(pub u32);

/// One thread and the CPUs it may run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadPlacement {
    /// Thread id.
    pub tid: u32,
    /// Thread name.
    pub name: String,
    /// CPUs it may run on.
    pub cpus: Vec<usize>,
}

/// CPU time of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadCpu {
    /// Thread name.
    pub name: String,
    /// On a CPU so far.
    pub cpu: Duration,
}

/// CPU time of all threads of a process, living and ended, in nanoseconds of the scheduler's clock.
///
/// The same sum as utime + stime of `/proc/PID/stat`, without its 10 ms rounding; forked children
/// are not in it.
///
/// # Errors
/// When the process is gone.
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

/// CPU time of children that have ended (Redis's forked rewriters).
///
/// # Errors
/// When the process is gone.
pub fn reaped_children_cpu_time(pid: Pid) -> Result<Duration> {
    let stat = read(pid, Process::stat)?;
    let ticks = (stat.cutime + stat.cstime) as f64;
    Ok(Duration::from_secs_f64(
        ticks / ::procfs::ticks_per_second() as f64,
    ))
}

/// Resident memory in bytes.
///
/// # Errors
/// When the process is gone.
pub fn resident_bytes(pid: Pid) -> Result<u64> {
    status_bytes(pid, |status| status.vmrss)
}

/// The most memory that was resident since the start or [`reset_peak`], in bytes.
///
/// # Errors
/// When the process is gone.
pub fn peak_resident_bytes(pid: Pid) -> Result<u64> {
    status_bytes(pid, |status| status.vmhwm)
}

/// Lets the peak begin anew at what is resident now.
///
/// # Errors
/// When the process is gone or belongs to another user.
pub fn reset_peak(pid: Pid) -> Result<()> {
    read(pid, |process| process.clear_refs(ClearRefs::PeakRSS))
}

/// Bytes sent to the device so far (for buffered writes: dirtied in the page cache).
///
/// # Errors
/// When the process is gone or belongs to another user.
pub fn written_bytes(pid: Pid) -> Result<u64> {
    read(pid, |process| Ok(process.io()?.write_bytes))
}

/// Every thread of the process and where it may run.
///
/// # Errors
/// When the process is gone.
pub fn thread_placements(pid: Pid) -> Result<Vec<ThreadPlacement>> {
    of_threads(pid, |task| {
        let status = task.status()?;
        let ranges = status.cpus_allowed_list.ok_or("no Cpus_allowed_list")?;
        Ok(ThreadPlacement {
            tid: task.tid as u32,
            name: status.name,
            cpus: ranges
                .into_iter()
                .flat_map(|(first, last)| first as usize..=last as usize)
                .collect(),
        })
    })
}

/// CPU time of the calling thread.
pub fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time of every living thread, from `schedstat`.
///
/// # Errors
/// When the process is gone.
pub fn thread_cpu_times(pid: Pid) -> Result<Vec<ThreadCpu>> {
    of_threads(pid, |task| {
        Ok(ThreadCpu {
            name: task.stat()?.comm,
            cpu: Duration::from_nanos(task.schedstat()?.sum_exec_runtime),
        })
    })
}

/// What `find` finds of every thread; those that end meanwhile are left out.
fn of_threads<T>(pid: Pid, find: impl Fn(&Task) -> ProcResult<T>) -> Result<Vec<T>> {
    let mut threads = Vec::new();
    for task in read(pid, Process::tasks)? {
        match task.and_then(|task| find(&task)) {
            Ok(found) => threads.push(found),
            Err(ProcError::NotFound(_)) => {}
            Err(ProcError::Io(error, _)) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(failed(pid)(error)),
        }
    }
    Ok(threads)
}

/// One of the sizes of `/proc/PID/status`, which are in KiB.
fn status_bytes(pid: Pid, size: fn(&Status) -> Option<u64>) -> Result<u64> {
    let kib = read(pid, |process| Ok(size(&process.status()?)))?;
    kib.map(|kib| kib * 1024)
        .ok_or_else(|| BenchError::parse("memory of a process", ""))
}

fn read<T>(pid: Pid, find: impl FnOnce(&Process) -> ProcResult<T>) -> Result<T> {
    let found = Process::new(pid.0 as i32).and_then(|process| find(&process));
    found.map_err(failed(pid))
}

fn failed(pid: Pid) -> impl FnOnce(ProcError) -> BenchError {
    move |error| BenchError::io(format!("process {}", pid.0))(io::Error::other(error))
}
